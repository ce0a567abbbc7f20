"""Ctrl-C and a notebook's Stop: raised at moments at which the machine is consistent, and never lost."""

from __future__ import annotations

import gc
import importlib
import io
import signal
import socket
import sys
import time
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import torch

import fakegpu_lab as lab
from fakegpu_lab.driver import install
from fakegpu_lab.hardware.buffer import Buffer
from fakegpu_lab.ranks.scheduling.output import Console, RankOutput
from fakegpu_lab.user_code import interrupts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import FrameType

    from fakegpu_lab.hardware.machine import Machine


class Alarm(Exception):
    pass


def ring(*_: object) -> None:
    raise Alarm


@pytest.fixture
def program_signal() -> Iterator[signal.Signals]:
    """A signal for the program's own use, without a handler."""
    if sys.platform == "win32":
        pytest.skip("Windows has no SIGUSR1")
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    yield signal.SIGUSR1
    signal.signal(signal.SIGUSR1, before)


def at_once(function: Callable[[], object]) -> None:
    """Call a function that an interrupt must not outlive."""
    function()
    pytest.fail("The interrupt comes later.")


def on_next_allocation(machine: Machine, action: Callable[[], object]) -> None:
    """Do something inside the allocator when it takes memory of the device."""
    memory = machine.devices[0].allocator.device_memory
    call = memory.on_call

    def acting(name: str, nbytes: int) -> None:
        memory.on_call = call
        action()
        call(name, nbytes)

    memory.on_call = acting


def test_an_interrupt_in_the_allocator_is_raised_when_the_op_is_done(machine: Machine) -> None:
    on_next_allocation(machine, lambda: signal.raise_signal(signal.SIGINT))
    tensors: list[torch.Tensor] = []
    with pytest.raises(KeyboardInterrupt):
        at_once(lambda: tensors.append(torch.empty(64 << 20, dtype=torch.uint8, device="cuda")))
    assert torch.cuda.memory_reserved() == 64 << 20
    tensors.clear()
    assert torch.cuda.memory_allocated() == 0


@pytest.mark.parametrize("when", ["before enable", "after enable"])
def test_so_is_what_the_handler_of_any_signal_raises(program_signal: signal.Signals, when: str) -> None:
    if when == "before enable":
        signal.signal(program_signal, ring)
    machine = lab.enable("a100")
    if when == "after enable":
        signal.signal(program_signal, ring)
    on_next_allocation(machine, lambda: signal.raise_signal(program_signal))
    with pytest.raises(Alarm):
        at_once(lambda: torch.empty(64 << 20, dtype=torch.uint8, device="cuda"))
    assert torch.cuda.memory_reserved() == 64 << 20
    lab.disable()


def test_an_op_is_whole_but_for_the_users_code_in_it(machine: Machine) -> None:
    waits: dict[str, bool] = {}

    def note(frame: FrameType, event: str = "call", _: object = None) -> None:
        if event == "call":
            waits[frame.f_code.co_name] = waits[frame.f_code.co_filename] = interrupts.must_wait(frame)

    @torch.library.custom_op("interrupted::op", mutates_args=())
    def op(x: torch.Tensor) -> torch.Tensor:
        note(sys._getframe())
        return x.clone()

    x = torch.ones(3, device="cuda")
    op(x)
    sys.setprofile(note)
    x + x
    sys.setprofile(None)
    assert (waits["op"], waits["run"]) == (False, True)
    waits.clear()
    sys.setprofile(note)
    x.to("cuda", copy=True)
    sys.setprofile(None)
    assert waits["<string>"]  # the code of a named tuple


def test_an_interrupt_in_a_finalizer_is_raised_afterwards(machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    class Last(Buffer):
        __slots__ = ()

        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)
            super().__del__()

    interrupts.whole(Last.__del__)
    buffers = [Last(machine.devices[0], 1024)]
    with pytest.raises(KeyboardInterrupt):
        at_once(buffers.clear)
    assert torch.cuda.memory_allocated() == 0
    assert capfd.readouterr().err == ""


def test_one_in_the_garbage_of_ranks_is_not_lost(machine: Machine) -> None:
    class Cycle:
        def __init__(self) -> None:
            self.me = self
            self.held = torch.ones(1024, device="cuda")

        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        at_once(lambda: lab.run_ranks(lambda: Cycle() and None, 1))


def test_the_output_of_a_rank_does_nothing_when_it_is_collected() -> None:
    class Target(io.StringIO):
        flushed = 0

        def flush(self) -> None:
            self.flushed += 1

    target = Target()
    output = RankOutput(Console(target), 0)
    output.write("text")
    del output
    assert (target.getvalue(), target.flushed) == ("[rank0] text", 0)


def test_torch_is_imported_to_the_end(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "interrupted.py").write_text("import signal; signal.raise_signal(signal.SIGINT); done = True")
    monkeypatch.setattr(torch, "__path__", [*torch.__path__, str(tmp_path)])
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        importlib.import_module("interrupted")
    assert "interrupted" not in sys.modules
    with pytest.raises(KeyboardInterrupt):
        at_once(lambda: importlib.import_module("torch.interrupted"))
    module = sys.modules.pop("torch.interrupted")
    assert module.done
    assert vars(torch).pop("interrupted") is module


def test_a_mode_of_torch_is_entered_whole(machine: Machine) -> None:
    def interrupt(frame: FrameType, event: str, _: object) -> None:
        if event == "return" and frame.f_code is torch.set_grad_enabled.__init__.__code__:
            sys.setprofile(None)
            signal.raise_signal(signal.SIGINT)

    sys.setprofile(interrupt)
    with pytest.raises(KeyboardInterrupt), torch.no_grad():
        at_once(lambda: None)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("kind", ["device", "stream", "graph"])
def test_a_device_a_stream_and_a_capture_are_entered_and_left_whole(machine: Machine, kind: str) -> None:
    x = torch.ones(2, device="cuda")
    owner = {"device": torch.cuda.device, "stream": torch.cuda.StreamContext, "graph": torch.cuda.graph}[kind]
    codes = {owner.__enter__.__code__, owner.__exit__.__code__}
    seen: list[bool] = []

    def look(frame: FrameType, event: str, _: object) -> None:
        if frame.f_code in codes or (frame.f_back is not None and frame.f_back.f_code in codes):
            seen.append(interrupts.must_wait(frame))

    context = {
        "device": lambda: torch.cuda.device(0),
        "stream": lambda: torch.cuda.stream(torch.cuda.Stream()),
        "graph": lambda: torch.cuda.graph(torch.cuda.CUDAGraph()),
    }[kind]()
    sys.setprofile(look)
    with context:
        x + 1
    sys.setprofile(None)
    assert len(seen) > 3
    assert all(seen)


def test_a_step_of_an_optimizer_is_whole_but_for_its_closure(machine: Machine) -> None:
    layer = torch.nn.Linear(4, 4).cuda()
    optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.ones(1, 4, device="cuda")).sum().backward()
    waits: dict[str, bool] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        waits[frame.f_code.co_name] = interrupts.must_wait(frame)

    def closure() -> float:
        return 0.0

    sys.setprofile(note)
    optimizer.step(closure)
    sys.setprofile(None)
    assert (waits["closure"], waits["_use_grad"], waits["adam"]) == (False, True, True)


def test_a_long_wait_takes_no_time(machine: Machine) -> None:
    @interrupts.whole
    def work() -> float:
        began = time.process_time()
        for number in range(100_000):
            abs(number)
        return time.process_time() - began

    @interrupts.whole
    def interrupted() -> float:
        signal.raise_signal(signal.SIGINT)
        return work()

    alone, times = work(), []
    with pytest.raises(KeyboardInterrupt):
        at_once(lambda: times.append(interrupted()) or time.sleep(1))
    assert times[0] < 3 * alone + 0.1


def test_an_event_loop_hears_of_a_signal_once(machine: Machine, program_signal: signal.Signals) -> None:
    ours, loops = socket.socketpair()
    ours.setblocking(False)
    loops.setblocking(False)
    heard: list[int] = []
    signal.signal(program_signal, lambda number, _: heard.append(number))
    before = signal.set_wakeup_fd(loops.fileno())
    try:
        on_next_allocation(machine, lambda: signal.raise_signal(program_signal))
        torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
        assert signal.set_wakeup_fd(before) == loops.fileno()
        assert (heard, ours.recv(100)) == ([program_signal], bytes([program_signal]))
    finally:
        ours.close()
        loops.close()


def test_elsewhere_it_is_raised_at_once(machine: Machine) -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_weak_references_callback_is_no_place_for_it() -> None:
    class Thing:
        pass

    things: weakref.WeakValueDictionary[int, Thing] = weakref.WeakValueDictionary()
    thing = things[0] = Thing()
    remove: Any = things._remove
    frames = []
    sys.setprofile(lambda frame, event, _: frames.append(frame) if event == "call" else None)
    del thing
    sys.setprofile(None)
    said = [interrupts.must_wait(frame) for frame in frames if frame.f_code is remove.__code__]
    assert said == [True]


def test_memory_that_was_never_taken_is_not_missed(capfd: pytest.CaptureFixture[str]) -> None:
    unraisable = sys.unraisablehook
    sys.unraisablehook = sys.__unraisablehook__
    try:
        buffer = Buffer.__new__(Buffer)
        del buffer
    finally:
        sys.unraisablehook = unraisable
    assert capfd.readouterr().err == ""


def test_the_program_sees_its_own_handlers(program_signal: signal.Signals) -> None:
    set_handler, before = signal.signal, signal.getsignal(signal.SIGINT)
    lab.enable("a100")
    assert signal.getsignal(signal.SIGINT) is before
    assert set_handler(program_signal, ring) is signal.SIG_IGN
    assert signal.getsignal(program_signal) is ring
    assert set_handler(program_signal, ring) is ring
    lab.disable()
    assert signal.getsignal(program_signal) is ring
    assert signal.getsignal(signal.SIGINT) is before


def test_a_machine_is_removed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    lab.enable("a100")
    undo = install.patches.undo

    def interrupted() -> None:
        signal.raise_signal(signal.SIGINT)
        undo()

    monkeypatch.setattr(install.patches, "undo", interrupted)
    with pytest.raises(KeyboardInterrupt):
        at_once(lambda: lab.disable() or time.sleep(0.1))
    assert not install.patches
    assert not torch.cuda.is_available()
    monkeypatch.undo()
    lab.enable("t4")
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    lab.disable()


def test_a_program_that_ignores_interrupts_goes_on_doing_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        lab.enable("a100")
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        lab.disable()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_error_in_backward_arrives_as_it_was(machine: Machine) -> None:
    class Own(BaseException):
        pass

    made: list[weakref.ref[BaseException]] = []

    def hook(grad: torch.Tensor) -> None:
        error = Own("mine")
        made.append(weakref.ref(error))
        raise error

    middle = torch.ones(3, device="cuda", requires_grad=True) * 2
    middle.register_hook(hook)
    loss = middle.sum()

    def said() -> str:
        try:
            loss.backward(retain_graph=True)
        except Own as error:
            return f"{error}, not {error.__context__}"
        return "nothing"

    assert [said(), said()] == ["mine, not None"] * 2
    gc.collect()
    assert [error() for error in made] == [None, None]
