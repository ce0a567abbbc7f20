"""numba's streams and events, on torch's: both libraries queue work on the same streams of the device.

``stream=0`` is CUDA's default stream, whatever stream is current in torch. `cuda.external_stream` takes the number
that ``torch.cuda.Stream.cuda_stream`` gives. As with torch's own streams, the default stream does not wait for others.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.torch_cuda import streams as torch_streams
from fakegpu_lab.hardware.time.clock import here
from fakegpu_lab.kernels.numba_cuda import messages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fakegpu_lab.hardware.device import Device


class Stream:
    """``cuda.stream()``: a stream of torch's; without one, the default stream."""

    def __init__(self, stream: Any = None) -> None:
        self._stream = torch.cuda.default_stream() if stream is None else stream
        self.external = False

    @property
    def handle(self) -> int:
        """The ``cudaStream_t``."""
        return int(self._stream.cuda_stream)

    def __int__(self) -> int:
        return self.handle

    def __cuda_stream__(self) -> tuple[int, int]:
        """The protocol by which libraries exchange streams."""
        return 0, self.handle

    def synchronize(self) -> None:
        """Wait for all its work."""
        with driver_errors("cuStreamSynchronize"):
            self._stream.synchronize()

    @contextmanager
    def auto_synchronize(self) -> Iterator[Stream]:
        """Wait for all its work at the end of a `with` block."""
        yield self
        self.synchronize()

    def __repr__(self) -> str:
        return f"<CUDA stream {self.handle} on {self._stream.device}>" if self.handle else "<Default CUDA stream>"


class Event:
    """``cuda.event()``."""

    def __init__(self, timing: bool = True) -> None:
        self._event = torch.cuda.Event(enable_timing=timing)  # type: ignore[no-untyped-call]

    def record(self, stream: Any = 0) -> None:
        """Record the point that the stream has reached."""
        self._event.record(torch_stream(stream))

    def wait(self, stream: Any = 0) -> None:
        """Let later work on the stream wait for the event."""
        self._event.wait(torch_stream(stream))

    def query(self) -> bool:
        """Whether the work before the event is done."""
        return bool(self._event.query())  # type: ignore[no-untyped-call]

    def synchronize(self) -> None:
        """Wait for the event."""
        with driver_errors("cuEventSynchronize"):
            self._event.synchronize()

    def elapsed_time(self, evtend: Event) -> float:
        """Milliseconds of simulated time until the other event."""
        return float(self._event.elapsed_time(evtend._event))


def torch_stream(stream: Any) -> Any:
    """Torch's stream for what a function of numba's takes: 0, a `Stream`, or one of torch's or of another library."""
    if isinstance(stream, Stream):
        return stream._stream
    if isinstance(stream, torch.Stream):
        return stream
    if not stream:
        return torch.cuda.default_stream()
    pointer = stream.__cuda_stream__()[1] if hasattr(stream, "__cuda_stream__") else int(stream)
    return external_stream(pointer)._stream


def external_stream(ptr: int) -> Stream:
    """The stream behind a ``cudaStream_t``, such as ``torch.cuda.current_stream().cuda_stream``."""
    if not ptr:
        return Stream()
    number = torch_streams.id_of(ptr)
    device = current.device()
    if number in device.streams:
        stream: Any = torch.cuda.Stream(stream_id=number, device_index=device.index, device_type=1)  # type: ignore[no-untyped-call]
    else:
        stream = torch.cuda.ExternalStream(ptr)  # type: ignore[no-untyped-call]
    result = Stream(stream)
    result.external = True
    return result


@contextmanager
def on_stream(device: Device, stream: Any) -> Iterator[None]:
    """Let what is launched go to one of numba's streams."""
    chosen = torch_stream(stream)
    queue = device.stream_of(chosen.stream_id, torch_streams.priority_of(chosen.stream_id))
    streams = here.host.streams
    before = streams[device]
    streams[device] = queue
    try:
        yield
    finally:
        streams[device] = before


@contextmanager
def driver_errors(call: str) -> Iterator[None]:
    """Raise the sticky errors of the device as numba does: as errors of the driver's function that noticed them."""
    try:
        yield
    except torch.AcceleratorError as error:
        code = getattr(error, "error_code", 0)
        if code not in _NAMES:
            raise
        raise messages.driver_error(code, call, _NAMES[code], *getattr(error, "__notes__", ())) from None


_NAMES = {700: "CUDA_ERROR_ILLEGAL_ADDRESS", 710: "CUDA_ERROR_ASSERT"}


def synchronize() -> None:
    """Wait for all work on the current device."""
    with driver_errors("cuCtxSynchronize"):
        torch.cuda.synchronize()


def check(device: Device, call: str) -> None:
    """Raise if the device has failed."""
    with driver_errors(call):
        device_asserts.check(device)
