"""Queues kernels on streams (`launched`, `kernel`) and makes the host wait for a device (`wait`).

The dispatch path calls `launched` for each op. Unless something watches the stream, such as a recording, it works out
only the time; FLOPs and other figures are left out.

`KernelCall` stands for an overload where the user's own kernel is launched: on CUDA that is no op of torch's. Its
launch takes the path of an op: recordings note it, CUDA graphs capture it and run it again, races between streams are
found. Profilers show its plain name (an op's has a namespace).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base import graph_capture, sync_debug
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.cost.work import LARGE, nbytes_of, read_by, streaming
from fakegpu_lab.hardware.time.clock import here, launch, synchronised
from fakegpu_lab.hardware.time.happens_before import merge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fakegpu_lab.driver.cost.op import Op
    from fakegpu_lab.driver.cost.work import Launch, Work
    from fakegpu_lab.hardware.device import Device
    from fakegpu_lab.hardware.time.clock import Mark, Stream

    Run = Callable[[list[FakeCudaTensor], list[FakeCudaTensor]], None]


_Tensor, _strided = torch.Tensor, torch.strided


def launched(
    op: Op, device: Device, args: Sequence[Any], result: Any, nbytes: int, produced: int | None = None
) -> None:
    """Queue the op's kernel on the current stream of `device`.

    Parameters
    ----------
    args, result
        Inner tensors in place of device tensors.
    nbytes
        The bytes of the tensors among the operands.
    produced
        The bytes of the results, if the caller knows them.
    """
    host = here.host
    stream = host.streams[device]
    estimate = op.estimate
    if nbytes > LARGE:
        nbytes = read_by(args, nbytes)
    if stream.watch is None:
        if estimate is None:
            roofline = device.roofline
            if produced is None:
                one = result.__class__ is _Tensor and result.layout is _strided
                produced = result.nbytes if one else nbytes_of(result)
            moved = nbytes + produced
            if moved <= roofline.cached:
                launch(host, stream, roofline.floor + int(moved * roofline.ns_per_cached_byte))
            else:
                launch(host, stream, roofline.streaming(moved))
        else:
            launch(host, stream, estimate(device, args, result, nbytes).ns)
    elif estimate is None and result.__class__ is torch.Tensor and result.layout is torch.strided:
        roofline = device.roofline
        moved = nbytes + result.nbytes
        elements = result.numel()
        launch(host, stream, roofline.streaming(moved), roofline.share(max(elements, nbytes // 4)), elements, moved)
    else:
        ns, flops, moved, share = (estimate or streaming)(device, args, result, nbytes)
        launch(host, stream, ns, share, flops, moved)
    if op.row.synchronises:
        sync_debug.synchronizing()
        wait(device, f"torch.{op.name}, whose result the host must know", stream)


def kernel(device: Device, work: Work | None = None) -> None:
    """Queue a kernel that is not the dispatched op's; without `work`, a small one."""
    host = here.host
    stream = host.streams[device]
    if work is None:
        launch(host, stream, device.roofline.floor, device.roofline.one_block)
        return
    launch(host, stream, work.ns, work.share, work.flops, work.nbytes)


def queue(device: Device, kernel: Launch) -> None:
    """Queue a kernel whose time is known on the current stream of `device`."""
    host = here.host
    launch(host, host.streams[device], *kernel)


def wait(device: Device, why: str, stream: Stream | None = None, mark: Mark | None = None) -> None:
    """Make the calling thread wait for a mark, for a stream, or else for everything queued on `device`."""
    host = here.host
    if mark is not None:
        if isinstance(mark, graph_capture.CapturedMark):
            raise graph_capture.captured_event()
        end = mark.time
        merge(host.seen, mark.seen)
    else:
        if stream is None:
            host.place_all(device)
        streams = list(device.streams.values()) if stream is None else [stream]
        graph_capture.forbid_wait(streams)
        end = max(one.end for one in streams)
        synchronised(host, streams)
    device.hold(host, end, why)


_SCHEMA: Any = torch._C.parse_schema("kernels::kernel(Tensor(a!)[] written, Tensor[] read, int run) -> ()")


class _Schema:
    """The schema of all kernels, with the name of one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.overload_name = ""
        self.arguments = _SCHEMA.arguments
        self.returns = _SCHEMA.returns


class KernelCall:
    """What the dispatch path sees of all launches of kernels of one name; `call_of` finds it.

    Its arguments are two lists of tensors, and the function that runs this launch. The kernel is taken to write all of
    its tensors, until that function has run and has moved those that were only read to the second list.
    """

    tags = ()
    _op = None
    _overloadname = "default"
    namespace = "kernels"

    def __init__(self, name: str) -> None:
        self._schema = _Schema(name)

    def __call__(self, tensors: Sequence[FakeCudaTensor], run: Run) -> None:
        """Launch a kernel on some device tensors; `run` gets the two lists."""
        __tracebackhide__ = True
        FakeCudaTensor.__torch_dispatch__(self, (), ([*tensors], [], run), {})

    @staticmethod
    def plan(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The plan of `dispatcher`."""
        written, read, run = args
        run(written, read)

    def __repr__(self) -> str:
        return f"<kernel {self._schema.name}>"


_calls: dict[str, KernelCall] = {}


def call_of(name: str) -> KernelCall:
    """The `KernelCall` of a name: always the same one, because much of what is known of an op is kept by its id."""
    found = _calls.get(name)
    if found is None:
        found = _calls[name] = KernelCall(name)
    return found
