"""`torch.distributed.rpc` with tensors on devices: they travel as their values, and the device maps say where they go.

TensorPipe's agent is C++ and moves tensors only in a torch that was built for CUDA. So it gets no device maps: they are
kept here, and a tensor is sent as one on the CPU, with the device that the map gives (getDeviceForTensor in
tensorpipe_agent.cpp). Simplified: on a card, the copy is asynchronous, and no copy to the host.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.changes import imported, item, replaced, wrapped
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, tensors_of
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.base.changes import Change

_own: dict[str, dict[torch.device, torch.device]] = {}
"""This process's device maps, by the worker that is called: where a tensor on one of its devices goes there."""
_name: list[str] = []
"""The name of this process's worker."""


class _Call(threading.local):
    to: str | None = None


_call = _Call()
"""The worker that this thread is calling; None while it answers a call."""

_REFUSAL = (
    "TensorPipe RPC backend only supports CPU tensors by default, please move your tensors to CPU before sending them "
    "over RPC, or call `set_device_map` on `TensorPipeRpcBackendOptions` to explicitly configure device mapping. "
    "{kind} device mapping is not available for destination {to}, but found tensor on device: {device}"
)


def _reduced(tensor: FakeCudaTensor) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """How a tensor is pickled. With an answer goes its own device: only the caller has the map."""
    if tensor.requires_grad and _differentiates():
        raise FakeGpuError("Backward over RPC (torch.distributed.autograd) works only with tensors on the CPU here.")
    if _call.to is None:
        return _answered, (tensor.cpu(), tensor.device, _name[0])
    target = _own.get(_call.to, {}).get(tensor.device)
    if target is None:
        raise RuntimeError(_REFUSAL.format(kind="Request", to=_call.to, device=tensor.device))
    return torch.Tensor.to, (tensor.cpu(), target)


def _differentiates() -> bool:
    """Whether this thread is in a context of `torch.distributed.autograd`."""
    try:
        torch._C._distributed_autograd._current_context()
    except RuntimeError:
        return False
    return True


def _answered(values: torch.Tensor, device: torch.device, by: str) -> torch.Tensor:
    for mine, theirs in _own.get(by, {}).items():
        if theirs == device:
            return values.to(mine)
    raise RuntimeError(_REFUSAL.format(kind="Response", to=_name[0], device=device))


def _calling(call: Callable[..., Any], worker: Callable[[Any], Any]) -> Callable[..., Any]:
    """`call`, torch's ``rpc_sync`` and the like, with the worker that it calls noted."""

    @functools.wraps(call)
    def noted(to: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        if any(one.__class__ is FakeCudaTensor for one in tensors_of([args, kwargs])):
            func = functools.partial(func)  # C++ sends the arguments of torch's own functions itself
        outer, _call.to = _call.to, worker(to).name
        try:
            return call(to, func, *args, **kwargs)
        finally:
            _call.to = outer

    return noted


def _rows(rpc: Any) -> list[Change]:
    if not rpc.is_available():  # on Windows
        return []
    api, registry = rpc.api, rpc.backend_registry
    begin, compare = registry.init_backend, registry._tensorpipe_exchange_and_check_all_device_maps
    given: list[Any] = []

    @functools.wraps(begin)
    def init_backend(backend: Any, *args: Any, **kwargs: Any) -> Any:
        options = kwargs.get("rpc_backend_options")
        if isinstance(options, rpc.TensorPipeRpcBackendOptions):
            given[:], _name[:] = [options], [kwargs["name"]]
            _own.clear()
            _own.update(options.device_maps)
            kwargs["rpc_backend_options"] = rpc.TensorPipeRpcBackendOptions(
                num_worker_threads=options.num_worker_threads,
                rpc_timeout=options.rpc_timeout,
                init_method=options.init_method,
            )
        return begin(backend, *args, **kwargs)

    @functools.wraps(compare)
    def check_device_maps(name: str, count: int, maps: Any, devices: Any, group: Any) -> tuple[Any, Any]:
        compare(name, count, given[0].device_maps, given[0].devices, group)
        return {}, []

    def around(function: Any) -> Any:
        return _calling(function, api._to_worker_info)

    why, registered = "device tensors travel between processes", "torch.distributed.rpc.backend_registry"
    return [
        replaced(f"{registered}.init_backend", init_backend, why),
        replaced(f"{registered}._tensorpipe_exchange_and_check_all_device_maps", check_device_maps, why),
        wrapped("torch.distributed.rpc.api._invoke_rpc", around, why),
        wrapped("torch.distributed.rpc.api.remote", around, why),
        wrapped("torch.distributed.rpc.remote", around, why),
        item(
            "torch.distributed.rpc.internal._internal_rpc_pickler._dispatch_table",
            FakeCudaTensor,
            lambda _: _reduced,
            why,
        ),
    ]


CHANGES = [imported("torch.distributed.rpc", _rows, "device tensors travel between processes")]
