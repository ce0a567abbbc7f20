"""DTensor, adapted where the simulation differs from CUDA: its C++ device, and the ops `linear` and `linear_backward`.

On a simulated device `aten::linear` is one op (`driver.ops.linear`), so its backward is one too. DTensor has rules for
neither; here they are split into the views, products and sums of CUDA, for which it has rules. (For `linear` it would
find this out by itself, slowly and again for each call, with an error whose traceback keeps the call's tensors in a
cycle: `torch/distributed/tensor/_decompositions.py`, `propagate_strategy`.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.changes import added, imported, item
from fakegpu_lab.driver.tensor_api import wrapper_subclasses

if TYPE_CHECKING:
    from fakegpu_lab.driver.base.changes import Change


def linear(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The views and the product that `aten::linear` consists of on CUDA."""
    return op.decompose(*args, **kwargs)


def linear_backward(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The gradients of input, weight and bias that the mask asks for."""
    source, grad, weight, (of_source, of_weight, of_bias) = args
    rows = grad if grad.dim() == 2 else grad.reshape(-1, grad.shape[-1])
    results: list[Any] = [None, None, None]
    if of_source:
        product = torch.mm(rows, weight)
        results[0] = product if grad.dim() == 2 else product.view(source.shape)
    if of_weight:
        inputs = source if source.dim() == 2 else source.reshape(-1, source.shape[-1])
        results[1] = torch.mm(rows.t(), inputs)
    if of_bias:
        results[2] = rows.sum(0)
    return tuple(results)


def _rows(_: Any) -> list[Change]:
    path, table = f"{_API}.DTensor", f"{_API}.DTensor._op_dispatcher._custom_op_handlers"
    made = "a DTensor is made by its own C++ function, not by `_make_wrapper_subclass`"
    return [
        item(table, torch.ops.aten.linear.default, lambda _: linear, "linear is one op on CUDA"),
        item(table, torch.ops.aten.linear_backward.default, lambda _: linear_backward, "linear is one op on CUDA"),
        added(f"{path}.device", property(wrapper_subclasses.device), made),
        added(f"{path}.is_cuda", property(wrapper_subclasses.is_cuda), made),
    ]


_API = "torch.distributed.tensor._api"
CHANGES = [imported(_API, _rows, "DTensors of device tensors")]
