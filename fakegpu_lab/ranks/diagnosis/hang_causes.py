"""The likely cause of a hang, from where each rank waits and what it has called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.ranks.collectives import start_conditions
from fakegpu_lab.ranks.collectives.operation import P2P, Operation
from fakegpu_lab.ranks.rank_conditions import rank_condition
from fakegpu_lab.user_code.frames import quoted

if TYPE_CHECKING:
    from fakegpu_lab.ranks.collectives.operation import Communicator
    from fakegpu_lab.ranks.scheduling.scheduler import Rank


def awaited(rank: Rank) -> Any:
    """What a rank waits for: an `Operation`, a key of a store, …; None if it does not wait."""
    return rank.waiting.what if rank.waiting is not None else None


def likely_cause(ranks: list[Rank], first: Rank) -> str:
    """The likely cause in one sentence or two; empty if none is known.

    Parameters
    ----------
    first
        The waiting rank whose call raises the error.
    """
    operation = awaited(first)
    if not isinstance(operation, Operation):
        return ""
    waited = [each for each in map(awaited, ranks) if _waits_for_send(each)]
    if waited:
        return _of_send(ranks, start_conditions.blocker(waited[0]) or waited[0])
    if operation.kind in P2P:
        return _of_receive(ranks, operation)
    channel = operation.channel
    members = (rank for rank in ranks if rank.number in channel.ranks)
    absentee = next((rank for rank in members if _calls(rank, channel) < operation.number), None)
    if absentee is None:
        return ""
    if absentee.done:
        return _of_ended_rank(absentee, first, operation)
    return _of_rank_elsewhere(absentee, first, operation)


def _calls(rank: Rank, channel: Communicator) -> int:
    return channel.numbers[channel.ranks.index(rank.number)]


def _of_ended_rank(absentee: Rank, first: Rank, operation: Operation) -> str:
    """`first` waits in a collective, and `absentee` has ended without calling it."""
    channel = operation.channel
    text = f"rank {absentee.number} has ended without calling {_function(operation)}, operation {operation.number}"
    condition = rank_condition(operation.line)
    if condition is not None:
        return (
            f"{text}: {quoted(operation.line)} is inside `if {condition[1]}` (line {condition[0]}), which not every "
            "rank enters. Move it out: all ranks of a group must call it."
        )
    if any(past.line == operation.line for past in channel.history[channel.ranks.index(absentee.number)]):
        return (
            f"{text}: it reached {quoted(operation.line)} fewer times than rank {first.number}. Does every rank "
            "have the same number of batches? DistributedSampler makes sure of it; DDP's join() helps where it cannot."
        )
    return (
        f"{text} (it called {_calls(absentee, channel)} of them, rank {first.number} {operation.number}): is it inside "
        "`if rank == …`?"
    )


def _of_rank_elsewhere(absentee: Rank, first: Rank, operation: Operation) -> str:
    """`first` waits in a collective, and `absentee` waits in something else."""
    other = awaited(absentee)
    if not isinstance(other, Operation):
        return f"rank {absentee.number} waits for {other} and never reaches {_function(operation)}."
    condition = rank_condition(other.line) or rank_condition(operation.line)
    hint = f" One of the lines is inside `if {condition[1]}` (line {condition[0]})." if condition is not None else ""
    return (
        f"rank {first.number} waits for rank {absentee.number} in {_function(operation)}, and rank {absentee.number} "
        f"waits in {_function(other)} for others: the ranks call operations in different orders, or one of them is "
        f"called by only some of the ranks.{hint}"
    )


def _of_receive(ranks: list[Rank], receive: Operation) -> str:
    if receive.peer < 0:
        return "no rank sends to it."
    me, peer = receive.global_rank, receive.channel.ranks[receive.peer]
    other = awaited(ranks[peer])
    if ranks[peer].done:
        return f"rank {peer} has ended and has sent nothing more to rank {me}: every recv needs a send."
    if isinstance(other, Operation) and other.kind in P2P:
        sent_to = {one.channel.ranks[one.peer] for one in other.batch or () if one.kind == "SEND"}
        if sent_to and me not in sent_to:
            return (
                f"rank {me} receives from rank {peer}, and rank {peer}'s batch sends to rank "
                f"{', '.join(map(str, sorted(sent_to)))} instead: every irecv needs the isend of its source."
            )
        return (
            f"rank {me} receives from rank {peer} while rank {peer} waits in {other}: one of two ranks has to send "
            "first, or both calls go into one batch_isend_irecv."
        )
    verb = "waits in" if isinstance(other, Operation) else "waits for"
    return f"rank {peer} {verb} {other} and never reaches its send."


def _waits_for_send(what: Any) -> bool:
    """Whether a rank waits until a send is received: in the send, or in an operation behind it."""
    return isinstance(what, Operation) and (start_conditions.blocker(what) or what).kind == "SEND"


def _of_send(ranks: list[Rank], send: Operation) -> str:
    me, peer = send.global_rank, send.channel.ranks[send.peer]
    other = awaited(ranks[peer])
    text = f"rank {me}'s {send} ({quoted(send.line)}) does not finish before rank {peer} receives it, and "
    if ranks[peer].done:
        return f"{text}rank {peer} has ended: every send needs a recv."
    if other is None:
        return f"{text}does not."
    if not isinstance(other, Operation):
        return f"{text}rank {peer} waits for {other}."
    if not _waits_for_send(other):
        return f"{text}rank {peer} waits in {other} ({quoted(other.line)})."
    return (
        f"{text}rank {peer} first waits for its own send: let one of the two receive before it sends, or give "
        "both calls to batch_isend_irecv. (Gloo's send waits in the call; with NCCL, the GPU waits, and so does "
        "everything that is launched after it.)"
    )


def _function(operation: Operation) -> str:
    return str(operation).split(" of ")[0]
