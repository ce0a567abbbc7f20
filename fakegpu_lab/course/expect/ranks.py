"""Expectations of several ranks: their collectives, and the tensors of each."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.expect.describe import listed, tensors
from fakegpu_lab.course.expect.expectation import expectation
from fakegpu_lab.course.expect.outcome import Said, report, subject
from fakegpu_lab.course.expect.runs import commonest_line, recording_of, seen_run
from fakegpu_lab.formatting.units import several

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Unpack

    from fakegpu_lab.course.expect.plain_data.conversion import SeenTensor
    from fakegpu_lab.course.expect.runs import Run
    from fakegpu_lab.hardware.time.records import Collective


@expectation("trace", trace=recording_of)
def collectives(*, rank: int = 0, trace: Run = None, at_most: int | None = None, **counts: Any) -> bool:
    """Expect collective operations of one rank: ``collectives(all_reduce=1, broadcast=2)``.

    Parameters
    ----------
    rank
        The rank whose operations are counted.
    at_most
        The largest number of operations in all.
    **counts
        How often, by the operation's name in torch.distributed; also what any expectation takes (`Said`).
    """
    said: Any = {key: counts.pop(key) for key in Said.__annotations__ if key in counts}
    mine = [record for record in seen_run(trace).collectives if record.rank == rank]
    found = Counter(map(_operation, mine))
    met = all(found[name] == count for name, count in counts.items()) and (at_most is None or len(mine) <= at_most)
    limits = [f"{count} × {name}" for name, count in counts.items()]
    if at_most is not None:
        limits.append(f"at most {several(at_most, 'operation')}")
    what = f"rank {rank} takes part in {', '.join(limits) or 'any operations'}"
    counted = ", ".join(f"{count} × {name}" for name, count in sorted(found.items())) or "no collective operation"
    too_often = [one for one in mine if found[_operation(one)] > counts.get(_operation(one), found.total())]
    others = [one for one in mine if _operation(one) not in counts]
    line = commonest_line(too_often or others) if not met else ""
    return report(said, met=met, what=what, found=counted, line=line)


def _operation(record: Collective) -> str:
    """The operation's name in torch.distributed: ``nccl:all_reduce`` is ``all_reduce``."""
    return record.operation.strip("_").lower()


@expectation()
def same_on_every_rank(per_rank: Sequence[Any], **said: Unpack[Said]) -> bool:
    """Expect every rank to have the same tensors, bit for bit.

    Parameters
    ----------
    per_rank
        What ``run_ranks`` returned for each rank: a model, a state_dict, a tensor, or several of these.
    """
    ranks = [dict(tensors(one)) for one in per_rank]
    differ = []
    for number, held in enumerate(ranks[1:], 1):
        names = [
            name
            for name in ranks[0].keys() | held.keys()
            if name not in held or name not in ranks[0] or not _same(held[name], ranks[0][name])
        ]
        if names:
            differ.append(f"rank {number} ({listed(sorted(names)) or 'its tensor'})")
    empty = not ranks or not ranks[0]
    differences = "no tensors to compare" if empty else f"values different from rank 0's on {', '.join(differ[:3])}"
    hint = "Ranks stay identical if they start identical (broadcast) and step with the same gradients (all_reduce)."
    name = subject("the result")
    what = f"{name} is the same on all {len(ranks)} ranks"
    met = not differ and not empty
    return report(said, met=met, what=what, found="no differences" if met else differences, hint=hint)


def _same(one: SeenTensor, other: SeenTensor) -> bool:
    import torch

    return one.values is not None and other.values is not None and torch.equal(one.values, other.values)


@expectation()
def equals_single_device(
    found: Any, expected: Any, *, rtol: float = 1e-4, atol: float = 1e-5, **said: Unpack[Said]
) -> bool:
    """Expect several GPUs to compute what one device computes, up to rounding; tensors are matched by their names."""
    import torch

    mine, theirs = dict(tensors(found)), dict(tensors(expected))
    mine, theirs = ({name.removeprefix("module."): one for name, one in held.items()} for held in (mine, theirs))
    missing = sorted(theirs.keys() ^ mine.keys())
    far = []
    for name in sorted(theirs.keys() & mine.keys()):
        first, second = mine[name].values, theirs[name].values
        if first is None or second is None:
            far.append(f"the values of {name or 'it'} are not known")
            continue
        one, other = first.double(), second.double()
        if one.shape != other.shape:
            far.append(f"{name or 'it'} has the shape {tuple(one.shape)}, not {tuple(other.shape)}")
        elif not torch.allclose(one, other, rtol=rtol, atol=atol):
            far.append(f"{name or 'it'} differs by up to {(one - other).abs().max().item():.2g}")
    differences = (
        f"only one of the two has {listed(missing)}" if missing else "; ".join(far[:3]) or "no tensors to compare"
    )
    hint = "Average over all ranks (sum, then divide by their number), and give every rank its own part of the batch."
    met = bool(theirs) and not missing and not far
    what = f"{subject('the result')} is what a single device computes"
    return report(said, met=met, what=what, found="no differences" if met else differences, hint=hint)
