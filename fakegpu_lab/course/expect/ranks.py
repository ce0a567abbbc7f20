"""Expectations of several ranks: what they sent each other, and what each has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.expect.describe import listed, tensors
from fakegpu_lab.course.expect.outcome import report, subject
from fakegpu_lab.course.expect.runs import commonest_line, looked_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Unpack

    from fakegpu_lab.course.expect.outcome import Said
    from fakegpu_lab.course.expect.runs import Run


def collectives(*, rank: int = 0, trace: Run = None, at_most: int | None = None, **counts: Any) -> bool:
    """Expect operations of several ranks, as one rank did them: ``collectives(all_reduce=1, broadcast=2)``.

    Parameters
    ----------
    rank
        Whose operations are counted.
    at_most
        How many there may be in all.
    **counts
        The operation's name, as in torch.distributed, and how often; also what any expectation takes (`Said`).
    """
    said: Any = {key: counts.pop(key) for key in ("points", "what", "hint", "success", "failure") if key in counts}
    mine = [one for one in looked_at(trace).collectives if _rank_of(one) == rank]
    found: dict[str, int] = {}
    for one in mine:
        found[_operation(one.name)] = found.get(_operation(one.name), 0) + 1
    wrong = [name for name, count in counts.items() if found.get(name, 0) != count]
    met = not wrong and (at_most is None or len(mine) <= at_most)
    asked = [f"{count} × {name}" for name, count in counts.items()]
    asked += [f"at most {at_most} operations" if at_most is not None else ""]
    what = f"rank {rank} takes part in {', '.join(one for one in asked if one) or 'any operations'}"
    told = ", ".join(f"{count} × {name}" for name, count in sorted(found.items())) or "no collective operation"
    return report(said, met=met, what=what, found=told, line=commonest_line(mine) if mine and not met else "")


def _operation(name: str) -> str:
    """An operation as torch.distributed calls it: ``nccl:all_reduce`` is ``all_reduce``."""
    return name.rpartition(":")[2].removeprefix("c10d::").strip("_").lower()


def _rank_of(record: Any) -> int:
    """The rank on whose device a collective was recorded: its place among those who took part."""
    rank = getattr(record, "rank", None)
    return int(rank) if rank is not None else int(record.device)


def same_on_every_rank(per_rank: Sequence[Any], **said: Unpack[Said]) -> bool:
    """Expect the same tensors, bit for bit, on every rank.

    Parameters
    ----------
    per_rank
        What each rank returned, as ``run_ranks`` gives it: a model, a state_dict, a tensor, or several of them.
    """
    import torch

    ranks = [dict(tensors(one)) for one in per_rank]
    differ = []
    for number, held in enumerate(ranks[1:], 1):
        names = [
            name
            for name in ranks[0].keys() | held.keys()
            if name not in held
            or name not in ranks[0]
            or not torch.equal(held[name].detach().cpu(), ranks[0][name].detach().cpu())
        ]
        if names:
            differ.append(f"rank {number} ({listed(sorted(names)) or 'its tensor'})")
    empty = not ranks or not ranks[0]
    told = "no tensors to compare" if empty else f"other values than rank 0 on {', '.join(differ[:3])}"
    hint = "Ranks stay equal if they start equal (broadcast) and step with the same gradients (all_reduce)."
    name = subject("the result")
    what = f"{name} is the same on all {len(ranks)} ranks"
    return report(said, met=not differ and not empty, what=what, found=told, hint=hint)


def equals_single_device(
    found: Any, expected: Any, *, rtol: float = 1e-4, atol: float = 1e-5, **said: Unpack[Said]
) -> bool:
    """Expect what several GPUs computed to be what one device computes, up to rounding: tensors by their names."""
    import torch

    mine, theirs = dict(tensors(found)), dict(tensors(expected))
    mine, theirs = ({name.removeprefix("module."): one for name, one in held.items()} for held in (mine, theirs))
    missing = sorted(theirs.keys() ^ mine.keys())
    far = []
    for name in sorted(theirs.keys() & mine.keys()):
        one, other = mine[name].detach().cpu().double(), theirs[name].detach().cpu().double()
        if one.shape != other.shape:
            far.append(f"{name or 'it'} has the shape {tuple(one.shape)}, not {tuple(other.shape)}")
        elif not torch.allclose(one, other, rtol=rtol, atol=atol):
            far.append(f"{name or 'it'} differs by up to {(one - other).abs().max().item():.2g}")
    told = f"only one of the two has {listed(missing)}" if missing else "; ".join(far[:3]) or "no tensors to compare"
    hint = "Average over all ranks (sum, then divide by their number), and give every rank its own part of the batch."
    met = bool(theirs) and not missing and not far
    return report(
        said, met=met, what=f"{subject('the result')} is what a single device computes", found=told, hint=hint
    )
