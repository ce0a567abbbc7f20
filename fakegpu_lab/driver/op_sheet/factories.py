"""Ops that make tensors or change a tensor's metadata, and those that only write a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.copies import hidden_waits, transfer
from fakegpu_lab.driver.cost.estimators import copying, writing
from fakegpu_lab.driver.cost.op_row import row
from fakegpu_lab.driver.placement import rules
from fakegpu_lab.driver.tensor_api import storage
from fakegpu_lab.hardware.time import host_costs

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op

    Kernel = Callable[..., Any]


def _without_layout(op: Op, call: Kernel) -> Kernel:
    """`new_empty_strided` of a strided gradient, called with the layout of its compressed sparse leaf.

    accumulate_grad.h takes such a gradient as it is, but does not see that the leaf is compressed.
    """

    def new_empty_strided(*args: Any, layout: torch.layout | None = None, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    return new_empty_strided


def _no_gradients_of_outs(op: Op, *args: Any, out: list[torch.Tensor] | tuple[()] = (), **kwargs: Any) -> None:
    """The check that `unbind_copy` makes in its kernel, where autograd has passed (native/TensorShape.cpp)."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in out):
        raise RuntimeError(
            f"{op.name}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad."
        )


row("empty", "empty_strided", "empty_like", "empty_permuted", launches=False)
row("new_empty", launches=False, binding=False)
row("new_empty_strided", launches=False, values=_without_layout)
row("resize_", launches=False, reshapes=True)
row("resize_as_", launches=False, reshapes=True, devices=rules.any_device)
row("resize_as_sparse_", reshapes=True)
row("set_", launches=False, reshapes=True, binding=False, runs=storage.set_, devices=rules.any_device)

row("zeros_like", "ones_like", cost=writing, shape=torch.empty_like)
row("full_like", "new_full", "new_ones", "new_zeros", "zeros", "ones", "full", "arange", "zero_", cost=writing)
row("linspace", cost=writing, waits=hidden_waits.value)
row("logspace", waits=hidden_waits.value)
row("fill", devices=rules.any_device, result_beside_self=True, waits=hidden_waits.value_beside)
row("fill_", cost=writing, devices=rules.any_device, waits=hidden_waits.value_beside)

row("_unsafe_view", "lift", "lift_fresh", "_reshape_alias", views=True)
row("alias", "slice", binding=False)
row("detach", host=host_costs.DETACH)


row("copy_", runs=transfer.copy_)
row("copy", devices=rules.any_device)
row("_to_copy", runs=transfer.to_copy)
row("detach_copy", binding=False)
row("clone", grows=False, cost=copying)
row("unbind_copy", checks=_no_gradients_of_outs)
row("cat", grows=False, cost=copying)
row("stack", grows=False, cost=copying, devices=rules.CAT)
row("_stack", cost=copying, devices=rules.CAT)
row("block_diag", devices=rules.block_diag)
row("_local_scalar_dense", synchronises=True, runs=transfer.local_scalar_dense)
row("is_pinned", binding=False, runs=transfer.is_pinned)
row("pin_memory", binding=False, runs=transfer.pin_memory)
row("_pin_memory", runs=transfer.pin_memory)
row("record_stream", runs=transfer.record_stream)
row("_pack_padded_sequence", runs=transfer.pack_padded_sequence)
