"""Ctrl-C and a notebook's Stop: raised at moments at which the machine is consistent, and never lost."""

from __future__ import annotations

import gc
import signal
import sys
import time
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import torch

import fakegpu_lab as lab
from fakegpu_lab.hardware.buffer import Buffer
from fakegpu_lab.user_code import interrupts

if TYPE_CHECKING:
    from collections.abc import Callable

    from IPython.core.interactiveshell import InteractiveShell

    from fakegpu_lab.hardware.machine import Machine


def use(function: Callable[[], object]) -> None:
    """Call a function, and wait for longer than an interrupt waits."""
    function()
    for _ in range(200):
        time.sleep(0.01)


def test_an_interrupt_in_the_allocator_is_raised_when_it_is_done(machine: Machine) -> None:
    memory = machine.devices[0].allocator.device_memory
    call = memory.on_call

    def interrupted(name: str, nbytes: int) -> None:
        signal.raise_signal(signal.SIGINT)
        call(name, nbytes)

    memory.on_call = interrupted
    tensors: list[torch.Tensor] = []
    with pytest.raises(KeyboardInterrupt):
        use(lambda: tensors.append(torch.empty(64 << 20, dtype=torch.uint8, device="cuda")))
    assert len(tensors) == 1
    assert torch.cuda.memory_allocated() == 64 << 20
    tensors.clear()
    assert torch.cuda.memory_allocated() == 0


def test_an_interrupt_in_a_finalizer_is_raised_afterwards(machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    class Last(Buffer):
        __slots__ = ()

        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)
            super().__del__()

    interrupts.whole(Last.__del__)
    buffers = [Last(machine.devices[0], 1024)]
    with pytest.raises(KeyboardInterrupt):
        use(buffers.clear)
    assert torch.cuda.memory_allocated() == 0
    assert capfd.readouterr().err == ""


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


def test_the_handler_is_the_programs_own_again_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT)
    lab.enable("a100")
    assert signal.getsignal(signal.SIGINT) is not before
    lab.disable()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_program_that_ignores_interrupts_goes_on_doing_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        lab.enable("a100")
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        lab.disable()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_ipythons_kernel_sets_the_handler_anew_for_each_cell(ipython: InteractiveShell) -> None:
    before = signal.getsignal(signal.SIGINT)
    lab.enable("a100")
    guarded = type(signal.getsignal(signal.SIGINT))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ipython.run_cell("pass")
    assert isinstance(signal.getsignal(signal.SIGINT), guarded)
    lab.disable()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
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
