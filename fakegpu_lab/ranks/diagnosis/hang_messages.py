"""What is said when no rank can go on: who waits where, what the others did instead, and the likely cause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.ranks.collectives import start_conditions
from fakegpu_lab.ranks.collectives.operation import P2P, Operation
from fakegpu_lab.ranks.diagnosis import nccl_watchdog
from fakegpu_lab.ranks.dist import dist
from fakegpu_lab.ranks.source_lines import condition, told

if TYPE_CHECKING:
    from fakegpu_lab.ranks.collectives.channel import Channel
    from fakegpu_lab.ranks.scheduling.scheduler import Rank, Scheduler


def stuck(scheduler: Scheduler) -> tuple[Rank, BaseException]:
    """Whose call can never come to its end, and the exception that it raises."""
    waiting = [rank for rank in scheduler.ranks if not rank.done]
    first = next((rank for rank in waiting if isinstance(_what(rank), Operation)), waiting[0])
    like_nccl = bool(scheduler.shared.get("timeout_like_nccl"))
    error = dist.DistBackendError(as_logged(waiting) if like_nccl else described(scheduler.ranks, first))
    scheduler.shared["stuck"] = error
    return first, error


def _what(rank: Rank) -> Any:
    return rank.waiting.what if rank.waiting is not None else None


def described(ranks: list[Rank], first: Rank) -> str:
    """Tell all of it: NCCL's words, then every rank, then the likely cause."""
    lines = [_words(first), ""]
    lines.append("No rank can go on. On real GPUs this program hangs until that timeout; here it is known at once:")
    lines += [f"  rank {rank.number} {_state(rank, first)}" for rank in ranks]
    cause = _cause(ranks, first)
    if cause:
        lines += ["Likely cause: " + cause]
    return "\n".join(lines)


def as_logged(waiting: list[Rank]) -> str:
    """What is in the log ten minutes later: NCCL's watchdog, for every rank that waits."""
    texts = [
        f"{_words(rank)}\n[Rank {rank.number}] Some NCCL operations have failed or timed out. Due to the asynchronous "
        "nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.\n"
        f"[Rank {rank.number}] To avoid data inconsistency, we are taking the entire process down."
        for rank in waiting
    ]
    return "\n".join(texts)


def _words(rank: Rank) -> str:
    """The watchdog's sentence for the call that a rank waits in; Gloo's, or the store's."""
    what = _what(rank)
    if not isinstance(what, Operation):
        return f"wait timeout after 600000ms, keys: {', '.join(getattr(what, 'keys', ('?',)))}"
    if what.channel.backend != "nccl":
        return f"[Rank {rank.number}] Timed out waiting 1800000ms for recv operation to complete"
    return nccl_watchdog.caught(what)


def _state(rank: Rank, first: Rank) -> str:
    """What a rank does, or did last."""
    what = _what(rank)
    if rank.done:
        wanted = _what(first)
        channel = wanted.channel if isinstance(wanted, Operation) else None
        last = _last(rank, channel)
        if last is None:
            return f"has ended, without any operation of {channel.known_as if channel else 'a group'}"
        return f"has ended; its last one was {_numbered(last)} ({told(last.line)})"
    if isinstance(what, Operation):
        held = start_conditions.behind(what)
        after = f", behind its {held} ({told(held.line)})" if held is not None else ""
        return f"waits in {_numbered(what)} ({told(what.line)}){after}"
    return f"waits for {what}" if what is not None else "waits"


def _numbered(operation: Operation) -> str:
    if operation.kind in P2P:
        return str(operation)
    return f"{operation}, operation {operation.number} of {operation.channel.known_as}"


def _last(rank: Rank, channel: Channel | None) -> Operation | None:
    if channel is None or rank.number not in channel.ranks:
        return None
    history = channel.history[channel.ranks.index(rank.number)]
    return history[-1] if history else None


def _cause(ranks: list[Rank], first: Rank) -> str:
    what = _what(first)
    if not isinstance(what, Operation):
        return ""
    held = next((start_conditions.behind(one) or one for one in map(_what, ranks) if _is_send(one)), None)
    if held is not None:
        return _cause_of_send(ranks, held)
    if what.kind in P2P:
        return _cause_of_receive(ranks, what)
    channel = what.channel
    absent = [rank for rank in ranks if rank.number in channel.ranks and not _there(rank, what)]
    if not absent:
        return ""
    one = absent[0]
    last = _last(one, channel)
    called = channel.numbers[channel.ranks.index(one.number)]
    inside = condition(what.line)
    if one.done:
        did = f"rank {one.number} has ended without {_the(what.number)} {_name(what)}"
        if inside is not None:
            return (
                f"{did}: {told(what.line)} is inside `if {inside[1]}` (line {inside[0]}), where not every rank comes. "
                "Take it out of there: all ranks of a group must call it."
            )
        if last is not None and any(
            past.line == what.line for past in channel.history[channel.ranks.index(one.number)]
        ):
            return (
                f"{did}: it came by {told(what.line)} less often than rank {first.number}. Have all ranks equally many "
                "batches? DistributedSampler sees to that; DDP's join() helps where they cannot be."
            )
        return f"{did} (it called {called}, rank {first.number} {what.number}): is it inside `if rank == …`?"
    other = _what(one)
    if isinstance(other, Operation):
        inner = condition(other.line) or inside
        hint = f" One of the lines is inside `if {inner[1]}` (line {inner[0]})." if inner is not None else ""
        return (
            f"rank {first.number} waits for rank {one.number} in {_name(what)}, and rank {one.number} waits in "
            f"{_name(other)} for others: the ranks call operations in different orders, or one of them is called by "
            f"some ranks only.{hint}"
        )
    return f"rank {one.number} waits for {other} and does not come to {_name(what)}."


def _there(rank: Rank, what: Operation) -> bool:
    member = what.channel.ranks.index(rank.number)
    return what.channel.numbers[member] >= what.number


def _cause_of_receive(ranks: list[Rank], what: Operation) -> str:
    if what.peer < 0:
        return "no rank sends to it."
    me, peer = what.global_rank, what.channel.ranks[what.peer]
    other = ranks[peer]
    waits = _what(other)
    if other.done:
        return f"rank {peer} has ended and has sent nothing more to rank {me}: every recv needs a send."
    if isinstance(waits, Operation) and waits.kind in P2P:
        return (
            f"rank {me} receives from rank {peer} while rank {peer} waits in {waits}: one of two ranks has to send "
            "first, or both calls go into one batch_isend_irecv."
        )
    return f"rank {peer} waits in {waits} and does not come to its send."


def _is_send(what: Any) -> bool:
    """Whether a rank waits for a send to be received: in it, or behind it."""
    return isinstance(what, Operation) and (start_conditions.behind(what) or what).kind == "SEND"


def _cause_of_send(ranks: list[Rank], send: Operation) -> str:
    me, peer = send.global_rank, send.channel.ranks[send.peer]
    other = ranks[peer]
    waits = _what(other)
    text = f"rank {me}'s {send} ({told(send.line)}) is not over before rank {peer} receives it, and "
    if other.done:
        return f"{text}rank {peer} has ended: every send needs a recv."
    if not _is_send(waits):
        return f"{text}rank {peer} waits in {waits} ({told(waits.line)})." if waits is not None else text + "does not."
    return (
        f"{text}rank {peer} first waits for what it sends itself: let one of the two receive before it sends, or give "
        "both calls to batch_isend_irecv. (Gloo's send waits in the call; NCCL's lets the GPU wait, and with it what "
        "comes after it.)"
    )


def _name(operation: Operation) -> str:
    return str(operation).split(" of ")[0]


def _the(number: int) -> str:
    return "the " + {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"}.get(number, f"{number}th")


def note(scheduler: Scheduler) -> str:
    """What is added to the exception of the rank that failed: whose it is, and where the others were."""
    failed = scheduler.failed
    if failed is None or scheduler.shared.get("stuck") is failed.error:  # that tells it all
        return ""
    lines = [f"Rank {failed.number} raised this; the other ranks were stopped."]
    for rank in scheduler.ranks:
        what = _what(rank)
        if rank is not failed and isinstance(what, Operation) and rank.error is None:
            lines.append(f"rank {rank.number} was stopped in {_numbered(what)} ({told(what.line)})")
    return "\n".join(lines)


def unreceived(channels: list[Channel]) -> list[str]:
    """What is said at the end of sends that nobody received."""
    return [
        f"Rank {send.global_rank}'s {send} ({told(send.line)}) was never received: on real GPUs the program hangs "
        "when it next waits for the GPU, or ends."
        for channel in channels
        for queue in channel.sends.values()
        for send in queue
    ]
