"""Notes on the ops of a recording: name, shapes, the user's line, the module.

`start` puts `run` in front of the dispatch path, so that ops cost nothing more without a recording. An op of backward
belongs to the module of the forward op that has the sequence number of its autograd node.

`note` and `run` are on the path of every recorded op, so each is one function, without calls of helpers.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as torch_modules
from torch.optim.optimizer import _global_optimizer_pre_hooks

from fakegpu_lab.driver.base import current, device_memory
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.copies import repeated_copies
from fakegpu_lab.driver.cost import workspace
from fakegpu_lab.driver.dispatch import dispatcher
from fakegpu_lab.driver.recorder import host_reads, race_detection, running_modules
from fakegpu_lab.driver.recorder.recorded_buffer import RecordedBuffer, report_older
from fakegpu_lab.driver.recorder.running_modules import forward_modules, modules, remember
from fakegpu_lab.hardware.buffer import Buffer
from fakegpu_lab.hardware.time import host_costs
from fakegpu_lab.hardware.time.clock import here
from fakegpu_lab.hardware.time.recorder import UNKNOWN_NOTE, Recorder
from fakegpu_lab.user_code import interrupts
from fakegpu_lab.user_code.frames import SHOWN, kind, stack

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import CodeType, FrameType

    from fakegpu_lab.hardware.machine import Machine
    from fakegpu_lab.hardware.time.clock import Host
    from fakegpu_lab.hardware.time.records import Note

_next_sequence_number: Any = torch.autograd._get_sequence_nr  # type: ignore[attr-defined]
_current_node: Any = torch._C._current_autograd_node
_grad_enabled: Any = torch.is_grad_enabled


notes: dict[int, Note] = {}
"""The notes of ops, each by a number of its own; `_places` finds the number."""
_numbers = itertools.count()
_places: dict[tuple[Any, ...], int] = {}
_sites: dict[tuple[int, int, int], tuple[str, list[Any], int]] = {}
"""By code, instruction and op, for ops that the user's own line calls: the module, the shapes and the index there."""
_PLAIN, _USERS, _OPTIMIZERS, _MODULES = range(4)
"""What a frame of a file says of an op: nothing, its line, that an optimizer steps, that a module is moved."""
_roles: dict[str, int] = {}
_OPTIM = os.path.realpath(Path(torch.__file__).parent / "optim") + os.sep
_MODULE = os.path.realpath(torch_modules.__file__)
_FEW = 3
"""Tensors of an op that is kept in `_sites`, at most."""


def note(host: Host) -> int:
    """The index in `notes` of the op that the calling thread is running: name, shapes, the user's line, the module."""
    if host.note is not None:
        return host.note
    op = host.op
    frame: FrameType | None = sys._getframe(2) if op is None else op[2]
    called = frame
    module = phase = ""
    node = _current_node()
    if node is not None:
        module = forward_modules.get(node._sequence_nr(), "")
        phase = "recompute" if _grad_enabled() else "backward"
    elif modules.stack:
        module = modules.stack[-1][1]
        if op is not None:
            remember(_next_sequence_number() - 1, module)  # its node, if it has one, was made a moment ago
    while frame is not None:
        code = frame.f_code
        role = _roles.get(code.co_filename)
        if role is None:
            role = _role_of(code.co_filename)
        if role:
            if role == _USERS:
                break
            if not phase:
                name = code.co_name
                if role == _OPTIMIZERS:
                    phase = "optimizer" if name == "step" else ""
                elif name == "_apply":
                    phase = "move"
        frame = frame.f_back
    found: CodeType | None = None
    line = 0
    if frame is not None:
        found, line = frame.f_code, frame.f_lineno
    if op is None:
        key: tuple[Any, ...] = (None, id(found), line, module, phase)
        place = _places.get(key)
        if place is None:
            place = _place_of(key, ("allocation", (), found, line, module, phase, stack(frame)))
        return place
    func = op[0]
    shapes: list[Any] = []
    for argument in op[1]:
        cls = argument.__class__
        if cls is FakeCudaTensor:
            shapes.append(argument.shape)
        elif cls is list and argument and isinstance(argument[0], torch.Tensor):
            shapes += [item.shape for item in argument[:8] if item is not None]
    key = (id(func), id(found), line, module, phase, *shapes)
    place = _places.get(key)
    if place is None:
        place = _place_of(key, (func._schema.name, shapes, found, line, module, phase, stack(frame)))
    if called is frame and frame is not None and node is None and len(shapes) <= _FEW:
        _sites[id(found), frame.f_lasti, id(func)] = (module, shapes, place)
    host.note = place
    return place


def _role_of(file: str) -> int:
    path = os.path.realpath(file)
    role = _OPTIMIZERS if path.startswith(_OPTIM) else _MODULES if path == _MODULE else _PLAIN
    _roles[file] = _USERS if kind(file) & SHOWN else role
    return _roles[file]


def _place_of(key: tuple[Any, ...], new: Note) -> int:
    place = next(_numbers)
    notes[place] = new  # keeps the code alive, and with it its id
    _places[key] = place
    return place


def index_of(known: Note) -> int:
    """The index in `notes` of a note made earlier, when a graph was captured."""
    key = ("told", id(known))
    place = _places.get(key)
    return _place_of(key, known) if place is None else place


@interrupts.whole_but_for_users_code
def run(func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
    """`dispatcher.run`, with a note of the op for the recorders."""
    __tracebackhide__ = True
    host = here.host
    outer = host.op, host.note, host.dispatched
    try:
        host.op = func, args, sys._getframe(1)
        host.dispatched = host.now if _current_node() is not None else host.now + _python_ns
        host.note = None
        host.took = False
        _find_note(host, func, args)
        result = dispatcher.run(func, types, args, kwargs)
        if host.took:
            _note_tensors(result)
        if host.note is not None and _recorders and _recorders[-1].several:
            known = notes.get(host.note, UNKNOWN_NOTE)
            for recorder in _recorders.copy():
                race_detection.check(recorder, func, args, kwargs or {}, result, known)
        if result.__class__ is torch.Tensor and host.note is not None and _recorders:  # on the host
            host_reads.follow(args, kwargs or {}, result, notes.get(host.note, UNKNOWN_NOTE))
        return result
    finally:
        host.op, host.note, host.dispatched = outer
        host.took = True  # of an op within an op: the outer one may have


def _note_tensors(result: Any) -> None:
    """Note shape and dtype of an op's results with their memory."""
    for tensor in result if isinstance(result, (tuple, list)) else (result,):
        if tensor.__class__ is FakeCudaTensor:
            block = tensor._buffer.block
            if block is not None:
                for recorder in _recorders:
                    recorder.made(block.address, tensor.shape, tensor.dtype)


def _find_note(host: Host, func: Any, args: tuple[Any, ...]) -> None:
    """Note what is known of an op that a loop runs again."""
    frame = host.op[2]
    site = _sites.get((id(frame.f_code), frame.f_lasti, id(func)))
    if site is not None:  # for example in a loop
        module, shapes, place = site
        i = 0
        for argument in args:
            if argument.__class__ is FakeCudaTensor:
                if i == len(shapes) or argument.shape != shapes[i]:
                    break
                i += 1
            elif argument.__class__ is list:
                break
        else:
            stack = modules.stack
            if i == len(shapes) and _current_node() is None and module == (stack[-1][1] if stack else ""):
                host.note = place


_python_ns = 0
"""What Python takes of an op that it calls (`host_costs.PYTHON`), on the machine's host."""
_KEY = "fakegpu_lab.recording"
"""The key of the hooks: a new number for each recording would fail a guard of what is compiled in one of them."""
_HOOKS: tuple[tuple[dict[Any, Any], Any], ...] = (
    (_global_optimizer_pre_hooks, running_modules.remember_optimizer),
    (torch_modules._global_forward_pre_hooks, running_modules.enter),
    (torch_modules._global_forward_hooks, running_modules.leave),
    (torch_modules._global_forward_hooks_always_called, True),
)
_recorders: list[Recorder] = []
_interceptor: list[Any] = []
_wrapper: list[Any] = []
_watched: dict[type[Buffer], type[Buffer]] = {}
_runs: list[Any] = [run]
_refusal: list[Any] = []
_follower: list[Any] = []
_recorder_kinds: list[type[Recorder]] = [Recorder]
"""The last one is the class of the recorders of new recordings."""


_changing = threading.RLock()
"""Held while the dispatch path changes: threads begin and end recordings at the same time."""


def intercept(function: Any) -> None:
    """Have all ops go through `function`, recorded or not; None removes it. For `graphs`."""
    with _changing:
        _interceptor[:] = [function] if function is not None else []
        _refresh()


def wrap_dispatch(wrapper: Any, buffers: Mapping[type[Buffer], type[Buffer]] | None = None) -> None:
    """Have all ops go through ``wrapper(run)``, whatever `run` is then; None removes it. For `live_categories`.

    `buffers` has the classes of storages that are made meanwhile, in place of `Buffer` and `RecordedBuffer`.
    """
    global _watched
    with _changing:
        _wrapper[:] = [wrapper] if wrapper is not None else []
        _watched = dict(buffers or {})
        _refresh()


def follow_by(wrapper: Any, kind: type[Recorder]) -> None:
    """Have all ops go through ``wrapper(run)``, within what `wrap_dispatch` puts there. For `results`.

    Recorders are of another class from now on.
    """
    with _changing:
        _follower[:], _recorder_kinds[1:] = [wrapper], [kind]
        _refresh()


def new_recorder(began_ns: int, limit: int) -> Recorder:
    """A recorder that notes what `note` knows."""
    return _recorder_kinds[-1](note, notes, began_ns, limit)


def refuse_by(function: Any) -> None:
    """Have `function` refuse all ops; None removes it. For ranks that must end."""
    with _changing:
        _refusal[:] = [function] if function is not None else []
        _refresh()


def recorded() -> bool:
    """Whether ops are recorded or intercepted."""
    return bool(_recorders or _interceptor)


def _refresh() -> None:
    """Put in front of the dispatch path what is needed, and no more."""
    global notes, _python_ns
    _python_ns = current.host_ns(host_costs.PYTHON)
    way = _interceptor[0] if _interceptor else _runs[-1] if _recorders else dispatcher.run
    way = _follower[0](way) if _follower else way
    way = _refusal[0] if _refusal else _wrapper[0](way) if _wrapper else way
    FakeCudaTensor.__torch_dispatch__ = staticmethod(way)
    for module in (dispatcher, device_memory, workspace):
        kind = RecordedBuffer if _recorders else Buffer
        vars(module)["Buffer"] = _watched.get(kind, kind)
    report_older(bool(_recorders))
    if not (_recorders or _interceptor):
        for hooks, _ in _HOOKS:
            hooks.pop(_KEY, None)
        running_modules.forget()
        _places.clear()
        _sites.clear()
        host_reads.forget()
        notes = {}
    else:
        for hooks, hook in _HOOKS:
            hooks[_KEY] = hook


def hooks_of_others() -> bool:
    """Whether there are hooks for all modules that do not belong to the recorders."""
    kinds: tuple[dict[Any, Any], ...] = (
        torch_modules._global_backward_pre_hooks,
        torch_modules._global_backward_hooks,
        torch_modules._global_forward_pre_hooks,
        torch_modules._global_forward_hooks,
    )
    return any(key != _KEY for kind in kinds for key in kind)


@interrupts.whole
def start(machine: Machine, recorder: Recorder) -> None:
    """Begin to record; several recordings may run at a time, and each has all that happens meanwhile."""
    with _changing:
        _recorders.append(recorder)
        recorder.sent = repeated_copies.tensor_number
        recorder.notes = notes
        _refresh()
        _link(machine)


@interrupts.whole
def stop(machine: Machine, recorder: Recorder) -> None:
    """End a recording."""
    with _changing:
        if recorder in _recorders:
            _recorders.remove(recorder)
        _link(machine)
        _refresh()


def record_through(function: Any) -> None:
    """Have recorded ops go through `function`, which calls `run`; None removes it. For `profiler`."""
    with _changing:
        _runs[1:] = [function] if function is not None else []
        _refresh()


def _link(machine: Machine) -> None:
    outer = None
    for recorder in _recorders:
        recorder.outer = outer
        outer = recorder
    for device in machine.devices:
        device.record_to(_recorders[-1] if _recorders else None)
