"""`ProfiledTrace`: what `lab.record()` returns on a real card, recorded with `torch.profiler`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.opened.device_work import HostTimes, OpenedRecords
from fakegpu_lab.opened.opening import open_recording
from fakegpu_lab.opened.recorded_trace import OpenedTrace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self


class ProfiledTrace(OpenedTrace):
    """What happened on real cards between the start and the end of a recording.

    The profiler writes its trace to a temporary file, and `open_recording` reads it. Recording slows the program's host
    down: the profiler notes every op with its shapes, memory and Python's functions. It waits for the cards when it
    begins and when it ends.

    Parameters
    ----------
    names
        Of the cards, by their ordinals.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = dict(enumerate(names))
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        self._profiler: Any = torch.profiler.profile(
            activities=activities, record_shapes=True, profile_memory=True, with_stack=True
        )

    def __enter__(self) -> Self:
        torch.cuda.synchronize()  # what was launched before is not recorded
        self._held = {card: torch.cuda.memory_allocated(card) for card in self._names}
        self._profiler.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        torch.cuda.synchronize()  # or the profiler would miss kernels that still run
        self._profiler.__exit__(*exception)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "recording.json"
            self._profiler.export_chrome_trace(str(file))
            try:
                read = open_recording(file)
            except FakeGpuError:  # a file without a kernel or a copy
                read = OpenedTrace(OpenedRecords(), HostTimes(), {}, "")
        del self._profiler
        vars(self).update(vars(read))
        self._origin, self._cards = "this recording", self._names
        self._simulated = False  # in tests, the card that counts as real is a simulated one
        for card, held in self._held.items():
            self._records.peaks.setdefault(card, held)
        own = Path(__file__).name  # the wait above is not the program's
        self._records.waits[:] = [wait for wait in self._records.waits if own not in wait.line]

    def __getattr__(self, name: str) -> Any:
        # Only what is read from the profiler's file is missing before the end.
        if "_profiler" in vars(self) and not name.startswith("__"):
            raise FakeGpuError(
                "The profiler's records are there when the recording has ended: leave its with block first."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
