"""What does not change between two calls of an ATen overload, worked out once from its schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.cost.products import PRODUCTS
from fakegpu_lab.driver.cost.work import ESTIMATORS, LAUNCHES_NOTHING, SYNCHRONISES

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.work import Estimator

_functions = torch._C._VariableFunctions
_methods = torch._C.TensorBase

# Outputs share the input's storage although the schema does not say so.
_UNDECLARED_VIEWS = {"aten::_unsafe_view", "aten::lift", "aten::lift_fresh", "aten::_reshape_alias"}

# The tensor's own sizes or storage change.
_RESHAPING = {"aten::resize_", "aten::resize_as_", "aten::resize_as_sparse_", "aten::set_", "aten::rename_"}

# Results are never larger than the operands together: no need to foresee their size.
_NO_GROWTH = {
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward",
    "_adaptive_avg_pool2d", "_fused_rms_norm", "_fused_rms_norm_backward", "_log_softmax",
    "_log_softmax_backward_data", "_softmax", "_softmax_backward_data", "amax", "amin", "argmax", "argmin",
    "avg_pool2d_backward", "cat", "clone", "convolution_backward", "cumsum", "gather", "gelu_backward",
    "huber_loss", "l1_loss", "log_softmax", "max_pool2d_with_indices", "max_pool2d_with_indices_backward", "mean",
    "mse_loss", "mse_loss_backward", "native_batch_norm", "native_batch_norm_backward", "native_dropout",
    "native_dropout_backward", "native_group_norm", "native_group_norm_backward", "native_layer_norm",
    "native_layer_norm_backward", "nll_loss_backward", "nll_loss_forward", "sigmoid_backward", "silu_backward",
    "smooth_l1_loss", "softmax", "sort", "stack", "sum", "tanh_backward", "threshold_backward", "topk", "var_mean",
}  # fmt: skip

# Tagged as random for their dropout, which the CPU kernel refuses.
_DRAWS_NOTHING = {
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
}

# A Python binding of that name exists, but means something else or takes its arguments in another order.
_NO_BINDING = {"alias", "slice", "pin_memory", "is_pinned", "detach_copy", "set_", "normal", "new_empty"}

# cuBLAS takes its workspace from the caching allocator at the first of these on a (device, stream).
_BLAS = {"mm", "addmm", "bmm", "baddbmm", "addmv", "mv", "addr", "dot", "vdot", "_addmm_activation", "addbmm",
         "_int_mm", "_scaled_mm", "linear", "addmm_", "baddbmm_"}  # fmt: skip


class Op:
    """An ATen overload, as the dispatch path wants to know it.

    Attributes
    ----------
    func
        The overload.
    call
        What computes it on the inner tensors. The generated Python binding where there is one of the same
        meaning (it costs a third less than the overload's own call), else the overload.
    name
        Without namespace and overload: ``add``, ``add_``.
    tensors
        Positions of the positional arguments that may be a tensor.
    has_lists
        Whether an argument is a list of tensors.
    written
        Names of the arguments that the op writes to; `outs` those passed as ``out=``; `writes_lists` whether a list
        of tensors is among the others.
    estimate
        What its kernel costs; None if it streams (see `work`). `launches`: whether there is a kernel at all;
        `synchronises`: whether the host waits for it.
    returns
        For each result: the name of the argument that it is (written) or is a view of, else None.
    """

    __slots__ = (
        "arguments", "blas", "call", "composite", "estimate", "func", "has_device", "has_generator", "has_ints",
        "has_lists", "is_view", "launches", "name", "no_growth", "only_tensors", "outs", "pointwise", "position",
        "random", "reshaping", "returns", "returns_write", "schema", "single", "synchronises", "tensor_kwargs",
        "tensors", "writes_lists", "written",
    )  # fmt: skip

    def __init__(self, func: Any) -> None:
        schema = func._schema
        arguments = schema.arguments
        self.func = func
        self.schema = schema
        self.name = name = schema.name.partition("::")[2]
        self.call: Callable[..., Any] = _binding(func, name)
        self.arguments = tuple(a.name for a in arguments)
        self.position = {a.name: i for i, a in enumerate(arguments)}
        types = {a.name: str(a.type) for a in arguments}
        self.tensors = tuple(i for i, a in enumerate(arguments) if types[a.name] in _TENSOR_TYPES and not a.kwarg_only)
        self.tensor_kwargs = frozenset(
            a.name for a in arguments if a.kwarg_only and (types[a.name] in _TENSOR_TYPES or "Tensor" in types[a.name])
        )
        self.has_lists = any("Tensor" in t and t not in _TENSOR_TYPES for t in types.values())
        self.no_growth = name in _NO_GROWTH
        self.has_ints = any(t in _INT_TYPES for t in types.values()) and not self.no_growth
        if all(a.kwarg_only or types[a.name] not in _TENSOR_TYPES for a in arguments):
            self.has_ints = True  # a factory (`arange`): its numbers are its size
        self.has_device = "device" in types
        self.has_generator = "generator" in types
        self.random = name not in _DRAWS_NOTHING and (
            torch.Tag.nondeterministic_seeded in func.tags or self.has_generator
        )
        self.pointwise = torch.Tag.pointwise in func.tags
        self.blas = name in _BLAS
        self.estimate: Estimator | None = PRODUCTS.get(name) or ESTIMATORS.get(name)
        self.synchronises = name in SYNCHRONISES
        self.outs = tuple(a.name for a in arguments if a.is_out)
        self.written = tuple(a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write)
        self.writes_lists = not self.outs and any(types[name] == "List[Tensor]" for name in self.written)
        by_set = {frozenset(a.alias_info.before_set): a.name for a in arguments if a.alias_info is not None}
        self.returns = tuple(
            by_set.get(frozenset(r.alias_info.before_set)) if r.alias_info is not None else None for r in schema.returns
        )
        everything = next(
            (a.name for a in arguments if a.alias_info is not None and "*" in a.alias_info.after_set), None
        )
        if everything is not None:  # split, unbind, chunk …: Tensor(a -> *) self gives a list whose alias set is empty
            self.returns = tuple(
                everything if name is None and r.alias_info is not None else name
                for name, r in zip(self.returns, schema.returns, strict=True)
            )
        self.returns_write = tuple(r.alias_info is not None and r.alias_info.is_write for r in schema.returns)
        if schema.name in _UNDECLARED_VIEWS:
            self.returns = (arguments[0].name,)
        self.only_tensors = all(str(r.type) == "Tensor" for r in schema.returns) and len(schema.returns) > 0
        self.single = self.only_tensors and len(schema.returns) == 1
        self.is_view = any(self.returns) and not any(self.returns_write)
        self.launches = not (self.is_view or name in LAUNCHES_NOTHING or torch.Tag.inplace_view in func.tags)
        self.composite = torch._C.DispatchKey.CompositeImplicitAutograd
        self.reshaping = torch.Tag.inplace_view in func.tags or schema.name in _RESHAPING or bool(self.outs)

    def decomposed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A composite op by the ops that C++ makes it of."""
        return self.func._op_dk(self.composite, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<Op {self.func}>"


_TENSOR_TYPES = {"Tensor", "Optional[Tensor]"}
_INT_TYPES = {"int", "List[int]", "Optional[List[int]]", "Optional[int]", "SymInt", "List[SymInt]", "Optional[SymInt]",
              "Optional[List[SymInt]]"}  # fmt: skip


def _binding(func: Any, name: str) -> Callable[..., Any]:
    """The cheapest callable with the meaning of `func` below autograd."""
    overload: Callable[..., Any] = func._op
    if func.namespace != "aten" or name in _NO_BINDING or name.startswith("new_"):
        return overload
    if any("List[Optional[Tensor]]" in str(a.type) for a in func._schema.arguments):  # x[:, i]: None is no Tensor
        return overload
    # The bindings read the default `reduction=Mean` as 0 (none), and torch leaves defaults out of what it passes on.
    if any(a.is_out or a.name == "reduction" for a in func._schema.arguments):
        return overload
    for place in (_functions, _methods):
        if hasattr(place, name):
            return getattr(place, name)  # type: ignore[no-any-return]
    return overload
