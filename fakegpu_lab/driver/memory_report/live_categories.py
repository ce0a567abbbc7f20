"""Follows what memory is for while a program runs, for a live display. It costs nothing unless it is used.

While it watches, every allocation and free is an event (`live_memory`), and the events become a curve for each card
(`memory_curve`), with every peak. To correct what an allocation was taken to be for, it wraps the dispatch path and
keeps a weak reference to each result; from time to time it sorts the live ones into categories (`categories`), so often
that it takes at most `SHARE` of the program's time.
"""

from __future__ import annotations

import threading
import weakref
from time import perf_counter, process_time, thread_time
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as modules
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.memory_report import categories, live_memory
from fakegpu_lab.driver.memory_report.categories import CATEGORY, KEPT, PARAMETER, PASSING, STATE, UNKNOWN, Claims
from fakegpu_lab.driver.memory_report.live_memory import GRADIENTS, OTHER, begin_elsewhere, count_as, op_of
from fakegpu_lab.driver.memory_report.memory_curve import Curve
from fakegpu_lab.driver.recorder import recording
from fakegpu_lab.driver.tensor_api import conversion
from fakegpu_lab.hardware.memory_categories import NAMES
from fakegpu_lab.hardware.time.clock import here

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.hardware.device import Device
    from fakegpu_lab.hardware.machine import Machine

SHARE = 0.003
"""The part of the program's time that looks may take: by the wall clock, and by processor time, because other processes
may delay the program."""

EAGER_SHARE = 0.05
"""The same for a cell's first looks, because most cells are short and a curve needs more than two points …"""

EAGER_SECONDS = 0.02
"""… until they have taken this long."""

SCAN_SHARE = 0.002
"""The same for going through all of Python's objects, if some memory has no claim."""

LEAST_SECONDS = 0.005
"""The least time between two looks; the watch reads the clock at every op, and does what is due this often."""

PENDING = 2 * 4096
"""Numbers of events (two each) that may wait to be taken into the curves."""

_become = conversion.become
_current_node: Any = torch._C._current_autograd_node
_grad_enabled: Any = torch.is_grad_enabled
_PLACES = [NAMES.index(name) for name in CATEGORY]
"""The category of each claim, by its place among all."""


class Watch:
    """Watches a machine's memory between `start` and `stop`.

    Attributes
    ----------
    on_step
        Called in the training thread after each step of an optimizer, with the number of steps so far.
    curves
        The memory of each card, by slot.
    steps
        Optimizer steps since the last `take`, each as (time in ns, number).
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.on_step: list[Callable[[int], object]] = []
        self.steps: list[tuple[int, int]] = []
        self._count = 0
        self._leader: int | None = None
        self.curves = {device.slot: Curve() for device in machine.cards}
        self._stateful: dict[int, int] = {}  # by the optimizer's id: how many parameters had a state
        self._made: dict[int, Any] = {}  # by id, a weak reference; in the others, the same one if it has that claim
        self._passing: dict[int, Any] = {}
        self._kept: dict[int, Any] = {}
        self._modules: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._due = self._next = self._pause = self._looked_at = self._next_scan = 0.0
        self._eager = EAGER_SECONDS
        self._busy = threading.Lock()
        self._folding = threading.Lock()
        self._hooks: list[Any] = []
        self._driver_calls: list[tuple[Device, Any]] = []

    def start(self) -> None:
        """Begin to watch; one watch at a time."""
        live_memory.renew(self.machine)
        recording.wrap_dispatch(self._around, live_memory.WATCHED)
        for device in self.machine.cards:
            self._listen(device)
        self._scan()
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
        live_memory.renew(None)
        vars(conversion)["become"] = _become
        while self._driver_calls:
            device, before = self._driver_calls.pop()
            device.allocator.device_memory.on_call = before
        while self._hooks:
            self._hooks.pop().remove()
        for noted in (self._made, self._passing, self._kept):
            noted.clear()

    def take(self) -> list[tuple[int, int]]:
        """Take all events into the curves; returns the steps since the last call, oldest first."""
        self._fold()
        steps, self.steps = self.steps, []
        return steps

    def _listen(self, device: Device) -> None:
        """Have the segments that the allocator takes and gives back reported, too."""
        memory = device.allocator.device_memory
        before = memory.on_call
        self._driver_calls.append((device, before))

        def called(name: str, nbytes: int) -> None:
            if before is not None:
                before(name, nbytes)
            live_memory.reserved(device, -nbytes if name in ("free", "unmap") else nbytes)

        memory.on_call = called
        if device.allocator.reserved_bytes:
            live_memory.reserved(device, device.allocator.reserved_bytes)

    def _fold(self) -> None:
        """Take the events so far into the curves."""
        if not self._folding.acquire(blocking=False):
            return  # another thread does
        try:
            for slot, events in live_memory.taken().items():
                self.curves[slot].take(*events)
        finally:
            self._folding.release()

    def begin(self) -> None:
        """Prepare for another program: another thread may count the steps, and the first looks are close together."""
        self._leader = None
        self._eager = EAGER_SECONDS
        self._due = self._next = 0.0

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
            self._correct(claims)
            took = thread_time() - began
            self._pause = took / (EAGER_SHARE if self._eager > 0 else SHARE)
            self._eager -= took
            now = perf_counter()
            self._next, self._looked_at = now + max(self._pause, LEAST_SECONDS), process_time()
        finally:
            self._busy.release()

    def _correct(self, claims: Claims) -> None:
        """Have the curves say what the tensors claim, and of what nobody claims, that it is there."""
        for device in self.machine.cards:
            for buffer in list(device.workspaces.values()):
                count_as(buffer, live_memory.WORKSPACE)  # type: ignore[arg-type]
        for buffer in claims.buffers:
            block = buffer.block
            if block is not None and block.size:
                count_as(buffer, _PLACES[claims.by_block[buffer.device][block.address][0]])
        self._fold()
        for device in self.machine.cards:
            missing = device.allocator.allocated_bytes - self.curves[device.slot].held
            if missing and not live_memory.EVENTS:
                live_memory.found(device, missing)
        self._fold()

    def _around(self, way: Any) -> Any:
        """Wrap the dispatch path. A look comes before an op, when the results of earlier ops have their grad_fn."""
        made, passing, reference, thread = self._made, self._passing, weakref.ref, here
        current_node, grad_enabled = _current_node, _grad_enabled

        def watched(func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
            __tracebackhide__ = True
            now = perf_counter()
            if now >= self._due:
                self._do_what_is_due(now)
            host = thread.host
            op = host.live or op_of(host)
            first = args[0] if args else None
            if first.__class__ is FakeCudaTensor and not kwargs:
                op.device = device = first._device
                op.end = host.streams[device].end
            else:
                begin_elsewhere(op, host)
            op.args = args
            if grad_enabled():
                op.known, backward = -1, False
            else:
                backward = current_node() is not None
                op.known = GRADIENTS if backward else OTHER
            try:
                result = way(func, types, args, kwargs)
            finally:
                op.args, op.known = (), OTHER
            # A tensor has one weak reference, however often it is made: it shows whether the tensor was there before.
            if result.__class__ is FakeCudaTensor:
                key, seen = id(result), reference(result)
                if backward and made.get(key) is not seen:
                    passing[key] = seen
                made[key] = seen
            elif result.__class__ in (tuple, list):
                for item in result:
                    if item.__class__ is FakeCudaTensor:
                        key, seen = id(item), reference(item)
                        if backward and made.get(key) is not seen:
                            passing[key] = seen
                        made[key] = seen
            return result

        return watched

    def _do_what_is_due(self, now: float) -> None:
        self._due = now + LEAST_SECONDS
        if len(live_memory.EVENTS) > PENDING:
            self._fold()
        if now >= self._next:
            early = self._pause - (process_time() - self._looked_at)
            if early <= 0:
                self.look()
            else:
                self._next = now + max(early, LEAST_SECONDS)

    def _claims(self) -> Claims:
        claims = Claims(self.machine)
        claims.add_roots(self._modules, self._optimizers)
        tensors: list[Any] = []
        marks: list[int] = []
        tensor: Any = None
        for key, seen in list(self._made.items()):
            tensor = seen()
            if tensor is not None:
                tensors.append(tensor)
                passing, kept = self._passing.get(key) is seen, self._kept.get(key) is seen
                marks.append(PASSING if passing else KEPT if kept else UNKNOWN)
            elif self._made.get(key) is seen:
                del self._made[key]
        tensor = None  # only the list may hold it
        for noted in (self._passing, self._kept):
            for key, seen in list(noted.items()):
                if seen() is None and noted.get(key) is seen:
                    del noted[key]
        by_autograd = categories.kept_by_autograd(tensors)
        alive = []
        for tensor, mark, saved in zip(tensors, marks, by_autograd, strict=True):
            if tensor.__class__ is not FakeCudaTensor:
                continue  # it moved to the host (`conversion.become`)
            if saved and mark == UNKNOWN:
                self._kept[id(tensor)] = self._made[id(tensor)]  # also while backward refers to it
            alive.append((tensor, KEPT if saved and mark == UNKNOWN else mark))
        claims.add_tensors(alive)
        return claims

    def _scan(self) -> None:
        """Look for tensors that no op returned (parameters that `module.to` moved), for modules and optimizers."""
        began = thread_time()
        found = categories.live()
        for tensor in found.tensors:
            known = self._made.get(id(tensor))
            if known is None or known() is not tensor:
                self._made[id(tensor)] = weakref.ref(tensor)
        self._modules.update(found.modules)
        self._optimizers.update(found.optimizers)
        ended = thread_time()
        self._next_scan = ended + (ended - began) / SCAN_SHARE

    def _become(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """`conversion.become`, which moves a module's parameter to a device without an op."""
        _become(target, source)
        if target.__class__ is FakeCudaTensor:
            self._made[id(target)] = weakref.ref(target)
            if vars(target).get("_is_param"):
                _count(target, PARAMETER)

    def _registered(self, module: torch.nn.Module, name: str, value: Any) -> None:
        self._modules.add(module)
        _count(value, PARAMETER)

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._optimizers.add(optimizer)

    def _after_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if self._stateful.get(id(optimizer)) != len(optimizer.state):
            self._stateful[id(optimizer)] = len(optimizer.state)
            for entry in list(optimizer.state.values()):
                for value in list(entry.values()) if isinstance(entry, dict) else ():
                    _count(value, STATE)
        leader = self._leader
        if leader is None:
            self._leader = leader = threading.get_ident()
        if leader != threading.get_ident():  # of several ranks, only the first to step counts
            return
        self._count += 1
        host = here.host
        self.steps.append((max([host.now, *(stream.end for stream in host.streams.values())]), self._count))
        for call in self.on_step:
            call(self._count)


def _count(value: Any, claim: int) -> None:
    for tensor in categories.parts(value):
        count_as(tensor._buffer, _PLACES[claim])
