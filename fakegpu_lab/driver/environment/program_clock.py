"""The functions of `time`, in simulated time for the program's own code: ``enable(…, clock="simulated")``.

Programs measure themselves with ``time.perf_counter()`` around a ``torch.cuda.synchronize()``. On a simulated GPU that
is the time that this computer takes to simulate. With this clock, ``time.time``, ``perf_counter``, ``monotonic``,
``process_time`` and their ``_ns`` read the calling thread's simulated time, and ``time.sleep`` advances it.

Only the program's own code and training libraries read it (`user_code.frames`). The standard library, Jupyter and every
other package keep the computer's clock: their timeouts are for real sockets, threads and processes.

Simplified: Python itself takes no time between two calls, and the process's own time is the thread's time without its
sleeps, as if the process had one thread.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.changes import begun, replaced, wrapped
from fakegpu_lab.hardware.time.clock import here
from fakegpu_lab.user_code import environment, frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


NAMES = ("time", "perf_counter", "monotonic", "process_time")
READING_NS = 300
"""The cost of a reading, about what Python takes for such a call. Two readings always differ, even of ``time.time()``,
whose floats are 256 ns apart today: a program can divide by the difference, and a loop that awaits a time ends."""

_TRAINING_LIBRARIES = frozenset({
    "accelerate", "catalyst", "composer", "d2l", "deepspeed", "detectron2", "diffusers", "fairseq", "fastai", "flair",
    "ignite", "lightning", "lightning_fabric", "megatron", "mmengine", "monai", "nemo", "peft", "pytorch_lightning",
    "sentence_transformers", "skorch", "timm", "torch_geometric", "torchmetrics", "torchtitan", "torchtune",
    "torchvision", "transformers", "trl", "ultralytics",
})  # fmt: skip
"""Installed packages that run training loops, and measure them."""

_began: dict[str, int] = {}
"""What the computer's clocks showed when the simulated one began, ns. Empty while the computer's clocks are used."""


class _Sleep(threading.local):
    """The time that the calling thread has slept, ns."""

    total = 0


_slept = _Sleep()
_sleep = time.sleep


@functools.cache
def _reads_simulated_time(file_name: str) -> bool:
    """Whether code of this file belongs to the program or to a training library."""
    return bool(frames.kind(file_name) & frames.OWN) or frames.package(file_name) in _TRAINING_LIBRARIES


def _follows() -> bool:
    """Whether the caller of the function that calls this is to see simulated time."""
    return bool(_began) and _reads_simulated_time(sys._getframe(2).f_code.co_filename)


def _simulated(name: str) -> int:
    host = here.host
    host.work(READING_NS)
    return _began[name] + host.clock - (_slept.total if name == "process_time" else 0)


def _functions(name: str) -> dict[Any, Any]:
    """The replacements of ``time.NAME`` and ``time.NAME_ns``, by the original."""
    seconds, nanoseconds = getattr(time, name), getattr(time, f"{name}_ns")

    @functools.wraps(seconds)
    def in_seconds() -> float:
        return _simulated(name) / 1e9 if _follows() else seconds()

    @functools.wraps(nanoseconds)
    def in_nanoseconds() -> int:
        return _simulated(name) if _follows() else nanoseconds()

    return {seconds: in_seconds, nanoseconds: in_nanoseconds}


@functools.wraps(_sleep)
def sleep(seconds: float, /) -> None:
    """`time.sleep`: really sleeps, because the program may wait for something real."""
    _sleep(seconds)
    if _follows():
        ns = round(float(seconds) * 1e9)
        _slept.total += ns
        if current.machine is not None:
            current.machine.keep_host_busy(ns, "sleep")


_REPLACEMENTS: dict[Any, Any] = {_sleep: sleep}
for _name in NAMES:
    _REPLACEMENTS.update(_functions(_name))
_ORIGINALS = {new: old for old, new in _REPLACEMENTS.items()}


def _begin() -> Callable[[], None]:
    _began.update({name: getattr(time, f"{name}_ns")() for name in NAMES})
    _slept.total = 0
    return _end


def _end() -> None:
    _began.clear()
    _rename(_ORIGINALS)  # what the program imported while the clock was simulated


def _simulates_time() -> bool:
    return current.machine is not None and current.machine.clock == "simulated"


_WHY = "the program's code sees simulated time"


def _rename(functions: dict[Callable[..., Any], Callable[..., Any]]) -> None:
    """Replace functions that modules of the program and of training libraries have imported by name."""
    by_id = {id(old): new for old, new in functions.items()}
    for names in _namespaces():
        for name, value in list(names.items()):
            if id(value) in by_id:
                names[name] = by_id[id(value)]


def _namespaces() -> Iterator[dict[str, Any]]:
    """The names of the program's and of training libraries' modules, and those of a notebook."""
    for module in list(sys.modules.values()):
        names = vars(module) if isinstance(module, ModuleType) else {}
        file_name = names.get("__file__")
        if isinstance(file_name, str) and _reads_simulated_time(file_name):
            yield names
    yield vars(sys.modules["__main__"])
    shell = environment.shell()
    if shell is not None:
        yield shell.user_ns


CHANGES = [
    begun(_begin, "the simulated clock begins at the computer's", when=_simulates_time),
    *(replaced(f"time.{old.__name__}", new, _WHY, when=_simulates_time) for old, new in _REPLACEMENTS.items()),
    wrapped("timeit.default_timer", lambda old: time.perf_counter, _WHY, when=_simulates_time),
    begun(lambda: _rename(_REPLACEMENTS), "and what it has imported before", when=_simulates_time),
]
