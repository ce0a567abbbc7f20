"""Follows what memory is for while a program runs, for a live display. It costs nothing unless it is used.

While it watches, it wraps the dispatch path and keeps a weak reference to each result. From time to time it sorts the
live ones into categories (`categories`), so often that it takes at most `SHARE` of the program's time.
"""

from __future__ import annotations

import threading
import weakref
from time import perf_counter, process_time, thread_time
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.nn.modules import module as modules
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.memory_report import categories
from fakegpu_lab.driver.memory_report.categories import KEPT, PASSING, UNKNOWN, Claims
from fakegpu_lab.driver.recorder import recording
from fakegpu_lab.driver.tensor_api import conversion
from fakegpu_lab.hardware.time.clock import here

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.hardware.machine import Machine
    from fakegpu_lab.hardware.memory_categories import Categories

SHARE = 0.005
"""The part of the program's time that looks may take: by the wall clock, and by processor time, because other processes
may delay the program."""

EAGER_SHARE = 0.05
"""The same for a cell's first looks, because most cells are short and a curve needs more than two points …"""

EAGER_SECONDS = 0.02
"""… until they have taken this long."""

SCAN_SHARE = 0.002
"""The same for going through all of Python's objects, if some memory has no claim."""

LEAST_SECONDS = 0.005
"""The least time between two looks."""

PENDING = 2_000
"""Looks kept until `take`; if there are more, every other one is dropped."""

_become = conversion.become
_current_node: Any = torch._C._current_autograd_node
_grad_enabled: Any = torch.is_grad_enabled


class Look(NamedTuple):
    """What memory was for at one moment of simulated time (ns): for each card its `Categories` and reserved bytes."""

    now_ns: int
    categories: tuple[Categories, ...]
    reserved: tuple[int, ...]


class Watch:
    """Watches a machine's memory between `start` and `stop`.

    Attributes
    ----------
    on_step
        Called in the training thread after each step of an optimizer, with the number of steps so far.
    steps
        Optimizer steps since the last `take`, each as (time in ns, number).
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.on_step: list[Callable[[int], object]] = []
        self.steps: list[tuple[int, int]] = []
        self._count = 0
        self._leader: int | None = None
        self._looks: list[Look] = []
        self._made: dict[int, list[Any]] = {}  # by id: a weak reference, and the tensor's last claim
        self._modules: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._next = self._pause = self._looked_at = self._next_scan = 0.0
        self._eager = EAGER_SECONDS
        self._busy = threading.Lock()
        self._hooks: list[Any] = []

    def start(self) -> None:
        """Begin to watch; one watch at a time."""
        self._scan()
        recording.wrap_dispatch(self._around)
        vars(conversion)["become"] = self._become
        self._hooks = [
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
            modules.register_module_parameter_registration_hook(self._registered),
            modules.register_module_buffer_registration_hook(self._registered),
        ]

    def stop(self) -> None:
        """End watching."""
        recording.wrap_dispatch(None)
        vars(conversion)["become"] = _become
        while self._hooks:
            self._hooks.pop().remove()
        self._made.clear()

    def take(self) -> tuple[list[Look], list[tuple[int, int]]]:
        """The looks and steps since the last call, oldest first."""
        looks, self._looks = self._looks, []
        steps, self.steps = self.steps, []
        return looks, steps

    def begin(self) -> None:
        """Prepare for another program: another thread may count the steps, and the first looks are close together."""
        self._leader = None
        self._eager = EAGER_SECONDS
        self._next = 0.0

    def look(self, *, thorough: bool = False) -> None:
        """Look now; `thorough`: also for tensors that were not made on the dispatch path."""
        if not self._busy.acquire(blocking=False):
            return
        try:
            began = thread_time()
            claims = self._claims()
            unclaimed = max(claims.unclaimed(device) for device in self.machine.cards)
            if unclaimed and (thorough or began >= self._next_scan):
                self._scan()
                began = thread_time()
                claims = self._claims()
            sums = tuple(claims.sums(device) for device in self.machine.cards)
            reserved = tuple(device.allocator.reserved_bytes for device in self.machine.cards)
            self._looks.append(Look(here.host.now, sums, reserved))
            if len(self._looks) > PENDING:
                del self._looks[:-1:2]
            took = thread_time() - began
            self._pause = took / (EAGER_SHARE if self._eager > 0 else SHARE)
            self._eager -= took
            now = perf_counter()
            self._next, self._looked_at = now + max(self._pause, LEAST_SECONDS), process_time()
        finally:
            self._busy.release()

    def _around(self, way: Any) -> Any:
        """Wrap the dispatch path. A look comes before an op, when the results of earlier ops have their grad_fn."""
        made = self._made
        reference = weakref.ref

        def watched(func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
            __tracebackhide__ = True
            now = perf_counter()
            if now >= self._next:
                early = self._pause - (process_time() - self._looked_at)
                if early <= 0:
                    self.look()
                else:
                    self._next = now + max(early, LEAST_SECONDS)
            result = way(func, types, args, kwargs)
            if result.__class__ is FakeCudaTensor:
                known = made.get(id(result))
                if known is None or known[0]() is not result:
                    passing = _current_node() is not None and not _grad_enabled()
                    made[id(result)] = [reference(result), PASSING if passing else UNKNOWN]
            elif result.__class__ in (tuple, list):
                passing = _current_node() is not None and not _grad_enabled()
                for item in result:
                    if item.__class__ is FakeCudaTensor:
                        known = made.get(id(item))
                        if known is None or known[0]() is not item:
                            made[id(item)] = [reference(item), PASSING if passing else UNKNOWN]
            return result

        return watched

    def _claims(self) -> Claims:
        claims = Claims(self.machine)
        claims.add_roots(self._modules, self._optimizers)
        tensors: list[Any] = []
        entries: list[list[Any]] = []
        tensor: Any = None
        for key, entry in list(self._made.items()):
            tensor = entry[0]()
            if tensor is None:
                if self._made.get(key) is entry:
                    del self._made[key]
            else:
                tensors.append(tensor)
                entries.append(entry)
        tensor = None  # only the list may hold it
        kept = categories.kept_by_autograd(tensors)
        alive = []
        for tensor, entry, saved in zip(tensors, entries, kept, strict=True):
            if tensor.__class__ is not FakeCudaTensor:
                continue  # it moved to the host (`conversion.become`)
            if saved and entry[1] == UNKNOWN:
                entry[1] = KEPT  # also while backward refers to it
            alive.append((tensor, entry[1]))
        claims.add_tensors(alive)
        return claims

    def _scan(self) -> None:
        """Look for tensors that no op returned (parameters that `module.to` moved), for modules and optimizers."""
        began = thread_time()
        found = categories.live()
        for tensor in found.tensors:
            known = self._made.get(id(tensor))
            if known is None or known[0]() is not tensor:
                self._made[id(tensor)] = [weakref.ref(tensor), UNKNOWN]
        self._modules.update(found.modules)
        self._optimizers.update(found.optimizers)
        ended = thread_time()
        self._next_scan = ended + (ended - began) / SCAN_SHARE

    def _become(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """`conversion.become`, which moves a module's parameter to a device without an op."""
        _become(target, source)
        if target.__class__ is FakeCudaTensor:
            self._made[id(target)] = [weakref.ref(target), UNKNOWN]

    def _registered(self, module: torch.nn.Module, name: str, value: Any) -> None:
        self._modules.add(module)

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._optimizers.add(optimizer)

    def _after_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        leader = self._leader
        if leader is None:
            self._leader = leader = threading.get_ident()
        if leader != threading.get_ident():  # of several ranks, only the first to step counts
            return
        self._count += 1
        self.steps.append((here.host.now, self._count))
        for call in self.on_step:
            call(self._count)
