"""`compare(before, after)`: two recordings, side by side: how much faster, and why. Start with `result`.

A `sides.Side` is one of the two. `accounting` says where a device's time went, `alignment` which kernels of the two are
the same, `steps` what a recording repeats. From these, `changes` makes rows, `causes` the reasons, and `sentence`,
`tables`, `figure` and `page` what people see.

May import `recording_views` and what is below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.comparison.result import Comparison
from fakegpu_lab.comparison.sides import Side
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from fakegpu_lab.recording_views.recorded import Recorded

__all__ = ["Comparison", "compare"]


def compare(before: Recorded, after: Recorded, labels: tuple[str, str] = ("before", "after")) -> Comparison:
    """Compare two recordings: how much faster or slower the second is, and why.

    Parameters
    ----------
    before, after
        The recordings, as `record` makes them.
    labels
        What the two are called.

    Returns
    -------
    Comparison
        A sentence, tables and a figure in a notebook, the sentence and the tables when printed.

    Raises
    ------
    FakeGpuError
        One of them is no recording, is still running or has nothing in it; or both are the same.
    """
    for label, recorded in zip(labels, (before, after), strict=True):
        _check(label, recorded)
    if before is after:
        raise FakeGpuError(
            "compare(before, after) was given the same recording twice: make another one after your change, with "
            "`with lab.record() as after:`."
        )
    return Comparison(Side(before, labels[0]), Side(after, labels[1]))


def _check(label: str, recorded: Any) -> None:
    if not hasattr(recorded, "began_ns"):
        kind = type(recorded).__name__
        raise FakeGpuError(
            f"compare(before, after) needs two recordings, and {label!r} is of the type {kind}: make one with "
            "`with lab.record() as trace:`."
        )
    if getattr(recorded, "running", False):
        raise FakeGpuError(
            f"The recording {label!r} has not ended: compare it after the `with lab.record()` block that makes it."
        )
    if not (recorded.kernels or recorded.transfers or recorded.collectives):
        dropped = sum(recorded.dropped.values())
        why = "kept no records: make it with a larger limit, lab.record(limit=…)" if dropped else (
            "is empty, because nothing ran on a GPU meanwhile: run the program inside the `with lab.record()` block"
        )  # fmt: skip
        raise FakeGpuError(f"The recording {label!r} {why}.")
