"""fakegpu_lab: GPUs to learn on, for machines that have none.

>>> import fakegpu_lab as lab
>>> machine = lab.enable("a100:2")
>>> import torch
>>> torch.cuda.device_count()
2
>>> lab.disable()

Reading the code? Start with `session`, where enable and disable are; `docs/developers.md` continues from there.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from fakegpu_lab.advice import advise
    from fakegpu_lab.comparison import Comparison, compare
    from fakegpu_lab.compilation import Compiled, compiled
    from fakegpu_lab.course import draw, expect
    from fakegpu_lab.hardware.errors import FakeGpuError
    from fakegpu_lab.host_time import clock, host_work
    from fakegpu_lab.kernels.sampling import sample_programs
    from fakegpu_lab.notebook.panel import panel, watch
    from fakegpu_lab.opened.opening import open_recording as open  # noqa: A004, F401 - always called lab.open
    from fakegpu_lab.planning import Planned, plan
    from fakegpu_lab.session import disable, enable, machine, reset, run_ranks, snapshot
    from fakegpu_lab.trace import Trace, record

__version__ = "0.1.0"

__all__ = [
    "Comparison",
    "Compiled",
    "FakeGpuError",
    "Planned",
    "Trace",
    "advise",
    "clock",
    "compare",
    "compiled",
    "disable",
    "draw",
    "enable",
    "expect",
    "host_work",
    "machine",
    "panel",
    "plan",
    "record",
    "reset",
    "run_ranks",
    "sample_programs",
    "snapshot",
    "watch",
]
_MODULES = {
    "Comparison": "comparison", "compare": "comparison", "Compiled": "compilation", "compiled": "compilation",
    "FakeGpuError": "hardware.errors", "Planned": "planning", "plan": "planning", "Trace": "trace", "record": "trace",
    "advise": "advice", "clock": "host_time", "host_work": "host_time", "sample_programs": "kernels.sampling",
}  # fmt: skip
"""Where public names are, those apart whose modules need more than an import; all others are of `session`."""


def __getattr__(name: str) -> Any:
    # Lazy, because torch imports this package during its own import (see `autoload`), which must stay fast.
    if name in _MODULES:
        return getattr(import_module(f"fakegpu_lab.{_MODULES[name]}"), name)
    if name in ("draw", "expect"):
        return import_module(f"fakegpu_lab.course.{name}")
    if name == "open":  # not in __all__: `from fakegpu_lab import *` leaves Python's own open alone
        from fakegpu_lab.opened.opening import open_recording

        return open_recording
    if name in ("panel", "watch"):
        import_module("torch")  # may enable a machine, which needs modules that the next line has only begun to import
        from fakegpu_lab.notebook import panel as panels

        return getattr(panels, name)
    if name in __all__:
        from fakegpu_lab import session

        return getattr(session, name)
    raise AttributeError(f"module 'fakegpu_lab' has no attribute {name!r}")


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Load the magics: called by ``%load_ext fakegpu_lab``."""
    from fakegpu_lab.course import lesson_magics as course
    from fakegpu_lab.notebook import gpu_magics

    gpu_magics.load(shell)
    course.load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Unload the magics: called by ``%unload_ext fakegpu_lab``."""
    from fakegpu_lab.course import lesson_magics as course
    from fakegpu_lab.notebook import gpu_magics

    gpu_magics.unload(shell)
    course.unload(shell)
