"""Streams and events, on the simulated queues of `hardware.time.clock`, and stand-ins for torch's C classes of them.

PyTorch makes its streams with cudaStreamNonBlocking: they do not wait for the default stream, nor it for them. Only
an external stream (`ExternalStream`) may be a blocking one; here it is treated like the others.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
from typing import TYPE_CHECKING, Any

import torch
import torch.cuda.streams

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base import cuda_messages, current, graph_capture, not_simulated, stream_history, sync_debug
from fakegpu_lab.driver.base.changes import begun, computed, in_cuda_builds, replaced
from fakegpu_lab.driver.cost.launching import wait
from fakegpu_lab.driver.torch_cuda.devices import require
from fakegpu_lab.hardware.time.clock import CALL_NS, here, query, synchronised

if TYPE_CHECKING:
    import types
    from collections.abc import Callable

    from typing_extensions import Self

    from fakegpu_lab.driver.base.changes import Change
    from fakegpu_lab.hardware.device import Device
    from fakegpu_lab.hardware.time.clock import Mark, Stream


class StandIn(type):
    """The class of a stand-in: calling it calls `make`, and all objects of the C class are its instances."""

    _original: type
    make: Callable[..., Any]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make an object: by `make` only if it is the stand-in itself, not a subclass, that is called."""
        return cls.make(*args, **kwargs) if "make" in vars(cls) else super().__call__(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls._original) if "make" in vars(cls) else super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls._original) if "make" in vars(cls) else super().__subclasscheck__(subclass)


def stand_in(original: type) -> Any:
    """A class that stands in for `original`, and can be a base of other classes; its `make` is set later."""
    meta = type(f"{original.__name__}Type", (StandIn, type(original)), {})
    # `__module__`: pickle names it as programs do
    names = {"__module__": "torch", "__doc__": original.__doc__, "_original": original}
    return meta(original.__name__, (original,), names)


if TYPE_CHECKING:
    STREAM = torch._C.Stream
    EVENT = torch._C.Event
    GENERATOR = torch._C.Generator
else:
    STREAM, EVENT, GENERATOR = map(stand_in, (torch._C.Stream, torch._C.Event, torch._C.Generator))


_CUDA = 1  # c10::DeviceType::CUDA

# Ids are made as in c10/cuda/CUDAStream.cpp: | index in the pool | type: 4 bits | 1 for a stream of torch's own |.
# Type 0 is the default stream, whose id is 0; 1 to 4 are the pools by priority, 0 to -3; an external stream's id is
# its address, which is even.
_POOL_SIZE = 32
_PRIORITIES = 4
_POINTERS = 0x5500_0000_0000
_EVENT_POINTERS = 0x5600_0000_0000


_next_in_pool: dict[tuple[int, int], itertools.count[int]] = {}
_event_numbers = itertools.count(1)


def from_pool(index: int, priority: int) -> int:
    """The id of the next stream of a device's pool for that priority, round-robin."""
    level = min(max(-priority, 0), _PRIORITIES - 1)
    number = next(_next_in_pool.setdefault((index, level), itertools.count())) % _POOL_SIZE
    return number << 5 | (level + 1) << 1 | 1


def priority_of(stream_id: int) -> int:
    """The priority of a stream: 0 is the lowest, -3 the highest."""
    return 1 - (stream_id >> 1 & 0xF) if stream_id & 1 else 0


def pointer_of(stream_id: int, index: int) -> int:
    """A ``cudaStream_t``: null for the default stream, an external stream's own, else a made-up one."""
    return _POINTERS + (index << 32) + (stream_id << 8) if stream_id & 1 else stream_id


def id_of(pointer: int) -> int:
    """The stream id behind a ``cudaStream_t``."""
    return (pointer & 0xFFFF_FFFF) >> 8 if pointer >> 40 == _POINTERS >> 40 else pointer


def current_stream(index: int) -> int:
    """The id of this thread's current stream on a device."""
    return current.device(index).stream


def set_stream(stream_id: int, device_index: int, device_type: int) -> None:
    """Make a stream and its device current."""
    if device_type != _CUDA:
        raise RuntimeError("device_type == DeviceType::CUDA INTERNAL ASSERT FAILED")
    require()
    device = current.device(device_index)
    current.thread.index = device.index
    stream_history.make_current(device, _queue(stream_id, device))


def _queue(stream_id: int, device: Device) -> Stream:
    return device.stream_of(stream_id, priority_of(stream_id))


def _queue_of(stream: torch.Stream) -> tuple[Device, Stream]:
    device = current.device(stream.device_index)
    return device, _queue(stream.stream_id, device)


def _described(stream_id: int, index: int) -> tuple[int, int, int]:
    return stream_id, index, _CUDA


def _index(index: int) -> int:
    require()
    return current.device(index).index


class CudaStreamBase(STREAM):
    """``torch._C._CudaStreamBase`` (torch/csrc/cuda/Stream.cpp), the base of `torch.cuda.Stream`."""

    def __new__(
        cls,
        priority: int = 0,
        stream_id: int = 0,
        device_index: int = 0,
        device_type: int = 0,
        stream_ptr: int = 0,
    ) -> Self:
        """Take the next stream of a pool, wrap an external one, or get one by its id."""
        require()
        if stream_ptr and priority:
            raise RuntimeError("Priority was explicitly set for a external stream")
        if not (stream_id or device_index or device_type):  # a new one
            device_index = current.device().index
            stream_id = stream_ptr or from_pool(device_index, priority)
        return super().__new__(cls, stream_id=stream_id, device_index=device_index, device_type=_CUDA)

    @property
    def cuda_stream(self) -> int:
        """The ``cudaStream_t``."""
        return pointer_of(self.stream_id, self.device_index)

    native_handle = cuda_stream

    @property
    def priority(self) -> int:
        """Its priority; lower numbers go first."""
        return priority_of(self.stream_id)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The lowest and the highest priority."""
        return 0, 1 - _PRIORITIES

    def query(self) -> bool:
        """Whether all work is done."""
        device_asserts.check(current.device(self.device_index))
        host = here.host
        host.now += CALL_NS
        queue = _queue_of(self)[1]
        graph_capture.forbid_wait((queue,))
        if queue.end > host.now:
            return False
        synchronised(host, [queue])  # knowing that it is done orders the host after it, as waiting does
        return True

    def synchronize(self) -> None:
        """Wait until all work is done."""
        device, queue = _queue_of(self)
        sync_debug.synchronizing()
        wait(device, "Stream.synchronize", queue)
        device_asserts.check(device)

    def is_capturing(self) -> bool:
        """Whether a CUDA graph is being captured."""
        return _queue_of(self)[1].capture is not None

    def __enter__(self) -> Self:
        before = current.thread.index
        self.__dict__.setdefault("_outer", []).append((before, current_stream(self.device_index)))
        set_stream(self.stream_id, self.device_index, _CUDA)
        return self

    def __exit__(self, *exception: object) -> None:
        device_before, stream_before = self.__dict__["_outer"].pop()
        set_stream(stream_before, self.device_index, _CUDA)
        current.thread.index = device_before


class CudaEventBase(EVENT):
    """``torch._C._CudaEventBase`` (c10/cuda/CUDAEvent.h), the base of `torch.cuda.Event`."""

    _timing: bool
    _device_index: int | None
    _pointer: int
    _mark: Mark | None

    def __new__(
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> Self:
        """Make an event that is not recorded yet."""
        self = super().__new__(cls, device="cpu")  # the C half does nothing
        self._timing = bool(enable_timing)
        self._device_index = None  # CUDA makes the event when it is first recorded
        self._pointer = 0
        self._mark = None
        return self

    @classmethod
    def from_ipc_handle(cls, device: object, handle: bytes) -> CudaEventBase:
        """Refused: see `ipc_handle`."""
        raise not_simulated.error("shared events")

    def ipc_handle(self) -> bytes:
        """Refused: events cannot be shared."""
        raise not_simulated.error("shared events")

    @property
    def device(self) -> torch.device | None:  # type: ignore[override]
        """The device of the stream that first recorded it."""
        return None if self._device_index is None else torch.device("cuda", self._device_index)

    @property
    def cuda_event(self) -> int:
        """The ``cudaEvent_t``; 0 until it is recorded."""
        return self._pointer

    event_id = cuda_event

    def record(self, stream: torch.Stream) -> None:  # type: ignore[override]
        """Record the point that the stream has reached."""
        if (device := current.device(stream.device_index)).retired:
            raise device_asserts.retired_error(device)
        if self._device_index is None:
            self._device_index = stream.device_index
            self._pointer = _EVENT_POINTERS + next(_event_numbers) * 0x40
        if self._device_index != stream.device_index:
            raise RuntimeError(
                f"Event device {self._device_index} does not match recording stream's device {stream.device_index}."
            )
        queue = _queue_of(stream)[1]
        self._mark = graph_capture.mark(queue)

    def wait(self, stream: torch.Stream) -> None:  # type: ignore[override]
        """Make work queued on the stream from now on wait for the event."""
        graph_capture.wait(_queue_of(stream)[1], self._mark)

    def query(self) -> bool:
        """Whether the work before the event is done."""
        if self._device_index is not None:
            device_asserts.check(current.device(self._device_index))
        host = here.host
        host.now += CALL_NS
        if isinstance(self._mark, graph_capture.CapturedMark):
            raise graph_capture.captured_event()
        return self._mark is None or query(host, self._mark)

    def synchronize(self) -> None:
        """Wait for the event."""
        if self._mark is not None:
            wait(current.device(self._device_index), "Event.synchronize", mark=self._mark)
            device_asserts.check(current.device(self._device_index))

    def elapsed_time(self, other: CudaEventBase) -> float:  # type: ignore[override]
        """Milliseconds of simulated time between two events.

        Raises
        ------
        ValueError
            An event was made without ``enable_timing=True``, or not recorded.
        RuntimeError
            An event has not happened yet: synchronize first (cudaErrorNotReady).
        """
        if not (self._timing and other._timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._device_index is None or other._device_index is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if self._device_index != other._device_index:
            raise cuda_messages.invalid_resource_handle()
        assert self._mark is not None
        assert other._mark is not None
        if isinstance(self._mark, graph_capture.CapturedMark) or isinstance(other._mark, graph_capture.CapturedMark):
            raise graph_capture.captured_event()
        if max(self._mark.time, other._mark.time) > here.host.now:
            raise cuda_messages.not_ready()
        idle = max(0, other._mark.first_uses - self._mark.first_uses)  # the card stood still while the host loaded
        return (other._mark.time - self._mark.time + idle) / 1e6


for _base, _name in ((CudaStreamBase, "_CudaStreamBase"), (CudaEventBase, "_CudaEventBase")):
    _base.__name__ = _base.__qualname__ = _name
    _base.__module__ = "torch._C"


@functools.cache
def executed_again(name: str) -> types.ModuleType:
    """A module of torch's, such as torch/cuda/streams.py, executed once more, over the bases that are patched in.

    A CPU build derives torch.cuda.Stream and Event from dummies, a CUDA build from C++'s own classes, and a class
    cannot change to a base of another layout.
    """
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _begin() -> None:
    global _event_numbers
    _next_in_pool.clear()
    stream_history.forget()
    _event_numbers = itertools.count(1)


def _classes() -> list[Change]:
    return [
        row
        for name in ("Stream", "ExternalStream", "Event")
        for row in class_rows("torch.cuda.streams", name, getattr(executed_again("torch.cuda.streams"), name))
    ]


def class_rows(module: str, name: str, new: Any) -> list[Change]:
    """The class `new` in `module` and torch.cuda in the place of the one of that name."""
    make = staticmethod(functools.partial(_make_instead, new))
    why = "streams, events and graphs of the machine, over the bases that CUDA builds have"
    return [
        replaced(
            f"{module}.{name}.__new__", make, "for `from torch.cuda import Stream` before the machine was enabled"
        ),
        replaced(f"{module}.{name}", new, why),
        replaced(f"torch.cuda.{name}", new, why),
    ]


def _make_instead(new: Any, old: Any, *args: Any, **kwargs: Any) -> Any:
    return new(*args, **kwargs)


FUNCTIONS = {
    "_CudaStreamBase": CudaStreamBase,
    "_CudaEventBase": CudaEventBase,
    "_cuda_getCurrentStream": lambda index: _described(current_stream(_index(index)), _index(index)),
    "_cuda_getCurrentRawStream": lambda index: pointer_of(current_stream(_index(index)), _index(index)),
    "_cuda_getDefaultStream": lambda index: _described(0, _index(index)),
    "_cuda_getStreamFromExternal": lambda pointer, index: _described(pointer, _index(index)),
    "_cuda_setStream": set_stream,
}


CHANGES = [
    *in_cuda_builds(FUNCTIONS),
    begun(_begin, "streams are numbered from the first"),
    computed(_classes, "torch.cuda.streams is executed again"),
]
