"""Streams and events, over simulated queues."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest
import torch

import fakegpu_lab as lab
from fakegpu_lab.hardware.time.clock import CALL_NS

Stream, Event = torch.cuda.Stream, torch.cuda.Event  # those of the CPU build, as a program imports them


def test_what_a_stream_is(machine: Any) -> None:
    stream = torch.cuda.Stream()
    assert isinstance(stream, torch.cuda.Stream)
    assert isinstance(stream, torch.Stream)
    assert issubclass(torch.cuda.Stream, torch.Stream)
    names = [c.__name__ for c in torch.cuda.Stream.__mro__ if c is not torch._C.Stream]  # torch.Stream stands in for it
    assert names == ["Stream", "_CudaStreamBase", "Stream", "object"]
    assert stream.device == torch.device("cuda:0")
    assert (stream.device_index, stream.device_type, stream.stream_id) == (0, 1, 3)
    assert stream.priority == 0
    assert stream.cuda_stream != 0
    assert repr(stream) == f"<torch.cuda.Stream device=cuda:0 cuda_stream={stream.cuda_stream:#x}>"
    assert stream.__cuda_stream__() == (0, stream.cuda_stream)
    assert stream.native_handle == stream.cuda_stream


def test_streams_are_equal_if_they_are_one_stream(machine: Any) -> None:
    stream = torch.cuda.Stream()
    same = torch.cuda.Stream(stream_id=stream.stream_id, device_index=0, device_type=1)
    assert stream == same
    assert hash(stream) == hash(same)
    assert stream != torch.cuda.Stream()
    assert stream != torch.cuda.Stream(device=1)
    assert stream != 3
    assert len({stream, same, torch.cuda.default_stream()}) == 2


@pytest.mark.parametrize(("asked", "given"), [(0, 0), (-1, -1), (-3, -3), (-9, -3), (5, 0)])
def test_priorities_are_put_in_range(machine: Any, asked: int, given: int) -> None:
    assert torch.cuda.Stream(priority=asked).priority == given
    assert torch.cuda.Stream.priority_range() == (0, -3)


def test_a_pool_has_32_streams(machine: Any) -> None:
    streams = [torch.cuda.Stream() for _ in range(33)]
    assert len(set(streams)) == 32
    assert streams[0] == streams[32]


def test_the_default_stream(machine: Any) -> None:
    default = torch.cuda.default_stream(1)
    assert default.cuda_stream == default.stream_id == 0
    assert default.device == torch.device("cuda:1")
    assert torch.cuda.current_stream("cuda:1") == default
    assert torch.cuda.current_stream() == torch.cuda.default_stream(0)


def test_the_current_stream_of_a_with_block(machine: Any) -> None:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream
        assert machine.devices[0].stream == stream.stream_id
        with torch.cuda.stream(None):
            assert torch.cuda.current_stream() == stream
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert machine.devices[0].stream == 0


def test_a_stream_of_another_device_makes_that_device_current(machine: Any) -> None:
    stream = torch.cuda.Stream(device="cuda:1")
    for context in (torch.cuda.stream(stream), stream):
        with context:
            assert torch.cuda.current_device() == 1
            assert torch.cuda.current_stream() == stream
            assert torch.cuda.current_stream(0) == torch.cuda.default_stream(0)
        assert torch.cuda.current_device() == 0
        assert torch.cuda.current_stream(1) == torch.cuda.default_stream(1)


def test_set_stream_and_the_context_of_the_stream_itself(machine: Any) -> None:
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.set_stream(first)
    with second:
        assert torch.cuda.current_stream() == second
        with second:
            pass
        assert torch.cuda.current_stream() == second
    assert torch.cuda.current_stream() == first


def test_each_thread_has_its_current_stream(machine: Any) -> None:
    torch.cuda.set_stream(torch.cuda.Stream())
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.cuda.current_stream().stream_id))
    thread.start()
    thread.join()
    assert seen == [0]


def test_each_stream_has_its_own_memory_pool(machine: Any) -> None:
    x = torch.empty(1000, device="cuda")
    reserved = torch.cuda.memory_reserved()
    with torch.cuda.stream(torch.cuda.Stream()):
        y = torch.empty(1000, device="cuda")
    assert torch.cuda.memory_reserved() == 2 * reserved
    del x, y


@pytest.mark.parametrize("context", [lambda s: torch.cuda.stream(s), lambda s: s])
def test_record_stream_holds_a_block_until_the_other_stream_has_passed(machine: Any, context: Any) -> None:
    side = torch.cuda.Stream()
    x = torch.ones(1000, device="cuda")
    with context(side):
        x.record_stream(side)
        y = x + 1
    del x
    assert torch.cuda.memory_allocated() == 4096
    torch.empty(1, device="cuda")
    assert torch.cuda.memory_stats()["active_bytes.all.current"] == 8192  # the side stream is still at work
    side.synchronize()
    torch.empty(1, device="cuda")  # the next malloc sees that the stream has passed
    assert torch.cuda.memory_stats()["active_bytes.all.current"] == 4096
    del y


def test_waiting_for_streams_and_events(machine: Any) -> None:
    one, two = torch.cuda.Stream(), torch.cuda.Stream(device=1)
    one.wait_stream(torch.cuda.current_stream())
    one.wait_stream(two)
    event = two.record_event()
    assert event.device == torch.device("cuda:1")
    one.wait_event(event)
    event.wait()
    event.wait(one)
    assert one.query()
    assert event.query()
    one.synchronize()
    event.synchronize()
    assert not one.is_capturing()
    assert not torch.cuda.is_current_stream_capturing()


def test_an_external_stream(machine: Any) -> None:
    stream = torch.cuda.ExternalStream(0xABC0, device=1)
    assert isinstance(stream, torch.cuda.Stream)
    assert stream.cuda_stream == 0xABC0
    assert stream.device == torch.device("cuda:1")
    assert torch.cuda.get_stream_from_external(0xABC0, 1) == stream
    with torch.cuda.stream(stream):
        x = torch.ones(1, device="cuda")
    assert x.device == stream.device


def test_what_an_event_is(machine: Any) -> None:
    event = torch.cuda.Event()
    assert isinstance(event, torch.cuda.Event)
    assert isinstance(event, torch.Event)
    assert event.device is None
    assert event.cuda_event == 0
    assert event.query()
    assert repr(event) == "<torch.cuda.Event uninitialized>"
    event.record()
    assert event.device == torch.device("cuda:0")
    assert repr(event) == f"<torch.cuda.Event {event.cuda_event:#x}>"
    event.record(torch.cuda.Stream())


def test_the_time_between_two_events(machine: Any) -> None:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) == CALL_NS / 1e6
    start.record()
    torch.cuda._sleep(1_410_000_000)
    end.record()
    with pytest.raises(RuntimeError, match="device not ready"):
        start.elapsed_time(end)
    end.synchronize()
    assert start.elapsed_time(end) == pytest.approx(1000.0, abs=0.1)  # an A100 runs at 1410 MHz


def recorded(device: int = 0, **options: bool) -> Any:
    event = torch.cuda.Event(**options)
    event.record(torch.cuda.default_stream(device))
    return event


@pytest.mark.parametrize(
    ("events", "error", "said"),
    [
        (
            lambda: (recorded(), recorded()),
            ValueError,
            "Both events must be created with argument 'enable_timing=True'.",
        ),
        (
            lambda: (torch.cuda.Event(enable_timing=True), recorded(enable_timing=True)),
            ValueError,
            "Both events must be recorded before calculating elapsed time.",
        ),
        (
            lambda: (recorded(enable_timing=True), recorded(1, enable_timing=True)),
            torch.AcceleratorError,
            "CUDA error: invalid resource handle\nSearch for `cudaErrorInvalidResourceHandle' in ",
        ),
    ],
)
def test_events_that_cannot_be_compared(machine: Any, events: Any, error: type[Exception], said: str) -> None:
    start, end = events()
    with pytest.raises(error) as raised:
        start.elapsed_time(end)
    assert str(raised.value).startswith(said)


def test_an_event_stays_on_its_device(machine: Any) -> None:
    event = recorded(0)
    with pytest.raises(RuntimeError, match=r"^Event device 0 does not match recording stream's device 1\.$"):
        event.record(torch.cuda.default_stream(1))


def test_events_are_not_shared_between_processes(machine: Any) -> None:
    with pytest.raises(RuntimeError, match=r"is not simulated\."):
        recorded(interprocess=True).ipc_handle()


def test_classes_imported_before_the_machine_was_there_still_make_streams(machine: Any) -> None:
    assert isinstance(Stream(), torch.cuda.Stream)
    assert isinstance(Event(enable_timing=True), torch.cuda.Event)


def test_streams_without_a_device_in_their_name(machine: Any) -> None:
    assert torch.Stream(device="cuda:1", priority=-1).priority == -1
    assert isinstance(torch.Stream(), torch.cuda.Stream)
    assert torch.Stream("cpu").device == torch.device("cpu")
    assert isinstance(torch.Event("cuda", enable_timing=True), torch.cuda.Event)
    assert torch.Event("cpu").device == torch.device("cpu")


def test_a_stream_of_cudas_is_a_stream(machine: Any) -> None:
    assert torch.Stream in torch.cuda.Stream.mro()
    assert torch.Event in torch.cuda.Event.mro()


def test_a_stream_that_the_runtime_made(machine: Any) -> None:
    handle = ctypes.c_uint64(0)
    assert torch.cuda.cudart().cudaStreamCreate(ctypes.addressof(handle)) == 0
    stream = torch.cuda.ExternalStream(handle.value)
    assert handle.value != 0
    assert stream.cuda_stream == handle.value
    with torch.cuda.stream(stream):
        assert torch.ones(2, device="cuda").sum().item() == 2
    assert torch.cuda.cudart().cudaStreamDestroy(handle.value) == 0


def test_the_next_machine_starts_with_the_default_streams(machine: Any) -> None:
    torch.cuda.set_stream(torch.cuda.Stream())
    lab.reset()
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert torch.cuda.Stream().stream_id == 3
