"""The state that a rank would own if it were a process: swapped whenever the turn passes.

The environment, the random states of torch, NumPy and Python, the state of CUDA (initialised or not, the generators of
the devices), torch's default dtype, stdout and stderr. State that belongs to a thread needs no swap: the current
device, streams, gradient mode, autocast.
"""

from __future__ import annotations

import os
import random
import sys
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.random import generators as device_random
from fakegpu_lab.ranks.scheduling import numpy_state
from fakegpu_lab.ranks.scheduling.scheduler import ProcessLike

if TYPE_CHECKING:
    from fakegpu_lab.ranks.scheduling.output import RankOutput

_environment: Any = getattr(os.environ, "_data", None)  # CPython's plain dict behind it: quick to compare

_PROCESS_WIDE = (
    ("accelerate.state", "PartialState", "_shared_state"),
    ("accelerate.state", "AcceleratorState", "_shared_state"),
    ("accelerate.state", "GradientState", "_shared_state"),
    ("torch._subclasses.fake_tensor", "FakeTensorMode", "cache"),  # results for "cuda", which is each rank's own
    ("torch.cuda.graphs", "graph", "default_capture_stream"),
)
"""What classes keep once per process, a dict or None at first: module, class, attribute."""


def _class_dicts() -> dict[tuple[Any, str], Any]:
    """The `_PROCESS_WIDE` values of the modules imported so far."""
    owners = [(getattr(sys.modules.get(module), name, None), attribute) for module, name, attribute in _PROCESS_WIDE]
    return {(owner, attribute): getattr(owner, attribute) for owner, attribute in owners if owner is not None}


def _new(found: Any) -> Any:
    """What a new process has in place of a process-wide value."""
    return None if found is None or isinstance(found, torch.Stream) else type(found)()


class ProcessState(ProcessLike):
    """One process's state, as it was when its rank gave up the turn.

    A new one is a copy of the calling thread's state, as if a process had been started now: the same environment plus
    `variables`, the same random states, CUDA not initialised.
    """

    def __init__(self, variables: dict[str, str] | None = None, output: RankOutput | None = None) -> None:
        self._raw: Any = None
        self._environ: dict[str, str] = {}
        self._numpy: numpy_state.State | None = None
        self.leave()
        if variables:
            self._environ.update(variables)
            self._raw = None
        if output is not None:
            self._streams: tuple[Any, Any] = (output, output)
        if variables is not None:
            self._generators: dict[int, Any] = {}
            cuda: Any = torch.cuda
            seeds = type(cuda._lazy_seed_tracker)()
            vars(seeds).update(vars(cuda._lazy_seed_tracker))
            self._cuda: tuple[Any, ...] = (False, list(cuda._queued_calls), seeds, ())
            self._ready = False
            self._dicts = {place: _new(found) for place, found in _class_dicts().items()}

    def leave(self) -> None:
        """Save the state from where torch, Python and NumPy keep it."""
        cuda: Any = torch.cuda
        if self._raw is None or _environment != self._raw:
            self._environ = dict(os.environ)
            self._raw = dict(_environment) if _environment is not None else None
        self._torch = torch.random.get_rng_state()
        self._python = random.getstate()
        self._numpy = numpy_state.save(self._numpy)
        self._dtype = torch.get_default_dtype()
        self._streams = (sys.stdout, sys.stderr)
        self._generators = device_random.generators()
        self._cuda = (cuda._initialized, cuda._queued_calls, cuda._lazy_seed_tracker, cuda.default_generators)
        self._ready = current.ready
        self._dicts = _class_dicts()

    def enter(self) -> None:
        """Restore the state where torch, Python and NumPy look for it."""
        cuda: Any = torch.cuda
        if self._raw is None or _environment != self._raw:
            self._restore_environment()
        torch.random.set_rng_state(self._torch)
        random.setstate(self._python)
        if self._numpy is not None:
            numpy_state.restore(self._numpy)
        if torch.get_default_dtype() is not self._dtype:
            torch.set_default_dtype(self._dtype)
        sys.stdout, sys.stderr = self._streams
        device_random.use(self._generators)
        cuda._initialized, cuda._queued_calls, cuda._lazy_seed_tracker, cuda.default_generators = self._cuda
        current.ready = self._ready
        for owner_and_name, found in _class_dicts().items():
            if owner_and_name not in self._dicts:  # another rank has imported the module meanwhile
                self._dicts[owner_and_name] = _new(found)
            setattr(*owner_and_name, self._dicts[owner_and_name])

    def _restore_environment(self) -> None:
        for name in [name for name in os.environ if name not in self._environ]:
            del os.environ[name]
        for name, value in self._environ.items():
            if os.environ.get(name) != value:
                os.environ[name] = value
