"""The error when no rank can continue: which rank waits where, what the others did instead, and the likely cause.

Also the notes at the end of a run: on the exception of a rank that failed, and on sends that no rank received.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakegpu_lab.ranks.collectives import start_conditions
from fakegpu_lab.ranks.collectives.channel import Channel
from fakegpu_lab.ranks.collectives.operation import P2P, Operation
from fakegpu_lab.ranks.diagnosis import nccl_watchdog
from fakegpu_lab.ranks.diagnosis.hang_causes import awaited, likely_cause
from fakegpu_lab.ranks.dist import dist
from fakegpu_lab.user_code.frames import quoted

if TYPE_CHECKING:
    from fakegpu_lab.ranks.collectives.operation import Communicator
    from fakegpu_lab.ranks.scheduling.scheduler import Rank, Scheduler


def stuck(scheduler: Scheduler) -> tuple[Rank, BaseException]:
    """The rank whose call raises the error when no rank can continue, and the error."""
    waiting = [rank for rank in scheduler.ranks if not rank.done]
    first = next((rank for rank in waiting if isinstance(awaited(rank), Operation)), waiting[0])
    like_nccl = bool(scheduler.shared.get("timeout_like_nccl"))
    error = dist.DistBackendError(watchdog_log(waiting) if like_nccl else report(scheduler.ranks, first))
    scheduler.shared["stuck"] = error
    return first, error


def report(ranks: list[Rank], first: Rank) -> str:
    """The whole message: NCCL's words, then every rank, then the likely cause."""
    lines = [_timeout_message(first), ""]
    lines.append("No rank can continue. On real GPUs this program hangs until that timeout; here it stops at once:")
    lines += [f"  rank {rank.number} {_state(rank, first)}" for rank in ranks]
    cause = likely_cause(ranks, first)
    if cause:
        lines += ["Likely cause: " + cause]
    return "\n".join(lines)


def watchdog_log(waiting: list[Rank]) -> str:
    """The log after ten minutes on real GPUs: the messages of NCCL's watchdog for every rank that waits."""
    texts = [
        f"{_timeout_message(rank)}\n[Rank {rank.number}] Some NCCL operations have failed or timed out. Due to the "
        "asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.\n"
        f"[Rank {rank.number}] To avoid data inconsistency, we are taking the entire process down."
        for rank in waiting
    ]
    return "\n".join(texts)


def _timeout_message(rank: Rank) -> str:
    """The watchdog's sentence for the call that a rank waits in; or Gloo's, or the store's."""
    what = awaited(rank)
    if not isinstance(what, Operation):
        return f"wait timeout after 600000ms, keys: {', '.join(getattr(what, 'keys', ('?',)))}"
    if what.channel.backend != "nccl":
        return f"[Rank {rank.number}] Timed out waiting 1800000ms for recv operation to complete"
    return nccl_watchdog.timeout_message(what)


def _state(rank: Rank, first: Rank) -> str:
    """What a rank waits for, or its last operation if it has ended."""
    what = awaited(rank)
    if rank.done:
        wanted = awaited(first)
        channel = wanted.channel if isinstance(wanted, Operation) else None
        last = _last(rank, channel)
        if last is None:
            return f"has ended without calling any operation of {channel.known_as if channel else 'a group'}"
        return f"has ended; its last call was {_numbered(last)} ({quoted(last.line)})"
    if isinstance(what, Operation):
        blocker = start_conditions.blocker(what)
        after = f", behind its {blocker} ({quoted(blocker.line)})" if blocker is not None else ""
        return f"waits in {_numbered(what)} ({quoted(what.line)}){after}"
    return f"waits for {what}" if what is not None else "waits"


def _numbered(operation: Operation) -> str:
    if operation.kind in P2P:
        return str(operation)
    return f"{operation}, operation {operation.number} of {operation.channel.known_as}"


def _last(rank: Rank, channel: Communicator | None) -> Operation | None:
    if channel is None or rank.number not in channel.ranks:
        return None
    history = channel.history[channel.ranks.index(rank.number)]
    return history[-1] if history else None


def note(scheduler: Scheduler) -> str:
    """The note on the exception of the rank that failed: which rank it is, and where the others were; or empty."""
    failed = scheduler.failed
    if failed is None or scheduler.shared.get("stuck") is failed.error:  # the report covers all ranks
        return ""
    lines = [f"Rank {failed.number} raised this; the other ranks were stopped."]
    for rank in scheduler.ranks:
        what = awaited(rank)
        if rank is not failed and isinstance(what, Operation) and rank.error is None:
            lines.append(f"rank {rank.number} was stopped in {_numbered(what)} ({quoted(what.line)})")
    return "\n".join(lines)


def unreceived(communicators: list[Communicator]) -> list[str]:
    """Warnings at the end of a run about sends that no rank received."""
    return [
        f"Rank {send.global_rank}'s {send} ({quoted(send.line)}) was never received: on real GPUs the program hangs "
        "when it next waits for the GPU, or ends."
        for channel in communicators
        if isinstance(channel, Channel)  # implied ranks receive everything
        for queue in channel.sends.values()
        for send in queue
    ]
