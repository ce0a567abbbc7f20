"""Backward in the calling thread, on the streams of `node_streams`, and the devices of gradients.

The engine would start a thread for the device and asserts on its index there; PrivateUse1 with a Python guard has
none. Running in the caller's thread is also what makes the order of kernels the same in every run.

The engine does not look at the devices of gradients of tensor subclasses, as ours are (torch/csrc/autograd/engine.cpp,
validate_outputs), so those that people hand in are looked at here: at the roots, and out of their own Functions.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

import torch
from torch.autograd import graph

from fakegpu_lab.driver.autograd import gradient_lock, node_streams
from fakegpu_lab.driver.base import answers_to_cpp, cuda_messages, current
from fakegpu_lab.driver.base.changes import replaced
from fakegpu_lab.driver.base.privateuse1 import NAME, as_cuda_device
from fakegpu_lab.hardware.time import host_costs
from fakegpu_lab.hardware.time.clock import here

_engine_run_backward = graph._engine_run_backward
_is_multithreading: Any = torch._C._is_multithreading_enabled
_set_multithreading: Any = torch._C._set_multithreading_enabled


def engine_run_backward(tensors: Any, grads: Any, *args: Any, **kwargs: Any) -> Any:
    """`torch.autograd.graph._engine_run_backward` without worker threads."""
    __tracebackhide__ = True
    answers_to_cpp.forget_kept()
    grads = tuple(
        _beside(grad, tensor.device, f"invalid gradient at index {index}")
        if isinstance(grad, torch.Tensor) and isinstance(tensor, torch.Tensor)
        else grad
        for index, (tensor, grad) in enumerate(zip(tensors, grads, strict=True))
    )
    multithreading = _is_multithreading()
    backward = object()
    following, failed = node_streams.follow(tensors, grads), True
    try:
        gradient_lock.begin(backward)
        _set_multithreading(False)
        if following is not None:
            following.begin()
        result = _engine_run_backward(tensors, grads, *args, **kwargs)
        failed = False
        return result
    except RuntimeError as failure:
        if NAME not in str(failure):
            raise
        raise cuda_messages.with_cuda_name(failure) from None
    except SystemError:  # "returned NULL without setting an exception": the guard had to take it out of C++'s hands
        answers_to_cpp.raise_kept()
        raise
    finally:
        if following is not None:
            following.end(failed=failed)
        _set_multithreading(multithreading)
        gradient_lock.end(backward)


def _beside(grad: torch.Tensor, where: torch.device, what: str) -> torch.Tensor:
    """`grad` on the device where it belongs: a 0-dim one moves there, any other is refused."""
    where, found = as_cuda_device(where), as_cuda_device(grad.device)
    if found == where:
        return grad
    if grad.dim() == 0:
        return grad.to(where)
    raise RuntimeError(f"{what} - expected device {where} but got {found}")


def register_hook(self: torch.Tensor, hook: Any) -> Any:
    """`Tensor.register_hook`, on a device: runs on its node's stream; a gradient that moves to another card is noticed.

    C++ compares the types of the gradient before and after a hook, but not two cards; on CUDA the node that goes on
    with it then returns an invalid gradient (engine.cpp, validate_outputs). Noticed while the tensor itself is alive.
    """
    if not self.is_cuda:
        return _register_hook(self, hook)
    watched_tensor = weakref.ref(self)

    @functools.wraps(hook)
    def watched(grad: torch.Tensor) -> Any:
        node_streams.enter_current()
        result = hook(grad)
        if isinstance(result, torch.Tensor) and result.device != grad.device:
            node = getattr(watched_tensor(), "grad_fn", None)
            if node is not None:
                _watch(node)
        return result

    return _register_hook(self, watched)


_register_hook: Any = torch.Tensor.register_hook


def _watch(node: Any) -> None:
    """Refuse what `node` returns next, if it is on another device than it should be."""

    def check(gradients: Any, _: Any) -> None:
        handle.remove()
        for index, (grad, (target, slot)) in enumerate(zip(gradients, node.next_functions, strict=False)):
            if target is not None and isinstance(grad, torch.Tensor):
                where = target._input_metadata[slot].device
                _beside(grad, where, f"Function {node.name()} returned an invalid gradient at index {index}")

    handle = node.register_hook(check)


_apply = torch.autograd.function.BackwardCFunction.apply


def apply(self: Any, *args: Any) -> Any:
    """`BackwardCFunction.apply`: the backward of a `torch.autograd.Function`, its gradients checked."""
    here.host.now += current.host_ns(host_costs.FUNCTION_BACKWARD)
    result = _apply(self, *args)  # type: ignore[no-untyped-call]
    grads = [result] if isinstance(result, torch.Tensor) else list(result or ())
    edges = list(enumerate(self.next_functions))
    if len(grads) == len(edges):
        places = list(range(len(grads)))
    else:  # arguments that are no tensors have no edge: which is whose is known if every tensor has its gradient
        edges = [edge for edge in edges if edge[1][0] is not None]
        places = [place for place, grad in enumerate(grads) if isinstance(grad, torch.Tensor)]
        if len(places) != len(edges):
            return result
    for place, (index, (node, slot)) in zip(places, edges, strict=True):
        if node is None or not isinstance(grads[place], torch.Tensor):
            continue
        where = node._input_metadata[slot].device
        what = f"Function {type(self).__name__} returned an invalid gradient at index {index}"
        grads[place] = _beside(grads[place], where, what)
    return grads[0] if isinstance(result, torch.Tensor) else tuple(grads)


_STREAMS = "backward runs on the streams of the forward pass"
CHANGES = [
    replaced(
        "torch.autograd.graph._engine_run_backward", engine_run_backward, "backward runs on the forward's streams"
    ),
    replaced("torch.autograd._engine_run_backward", engine_run_backward, _STREAMS),
    replaced("torch.autograd.function.BackwardCFunction.apply", apply, _STREAMS),
]
