"""`Op`: what the dispatch path needs to know of an ATen overload, worked out once from its schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.cost.estimators import ESTIMATORS, LAUNCHES_NOTHING, SYNCHRONISES
from fakegpu_lab.driver.cost.matrix_products import PRODUCTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.work import Estimator

    Plan = Callable[[tuple[Any, ...], dict[str, Any]], Any]
    """What runs an op: it is called with the op's arguments, positional and by name."""

_functions = torch._C._VariableFunctions
_methods = torch._C.TensorBase

# Their outputs share the input's storage, although the schema does not say so.
_UNDECLARED_VIEWS = {"aten::_unsafe_view", "aten::lift", "aten::lift_fresh", "aten::_reshape_alias"}

# They change the tensor's own sizes or storage.
_RESHAPING = {"aten::resize_", "aten::resize_as_", "aten::resize_as_sparse_", "aten::set_", "aten::rename_"}

# Their results are never larger than the operands together: `memory_preflight` can skip them.
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

# Tagged as random because of their dropout, which the CPU kernel refuses.
_DRAWS_NOTHING = {
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
}

# A Python binding of the same name exists, but means something else or takes its arguments in another order.
_NO_BINDING = {"alias", "slice", "pin_memory", "is_pinned", "detach_copy", "set_", "normal", "new_empty"}

# cuBLAS takes its workspace from the caching allocator at the first of these on a (device, stream).
_BLAS = {"mm", "addmm", "bmm", "baddbmm", "addmv", "mv", "addr", "dot", "vdot", "_addmm_activation", "addbmm",
         "_int_mm", "_scaled_mm", "linear", "addmm_", "baddbmm_"}  # fmt: skip


_TENSOR_TYPES = {"Tensor", "Optional[Tensor]"}
_INT_TYPES = {"int", "List[int]", "Optional[List[int]]", "Optional[int]", "SymInt", "List[SymInt]", "Optional[SymInt]",
              "Optional[List[SymInt]]"}  # fmt: skip


class Op:
    """An ATen overload, with what the dispatch path needs to know of it.

    Attributes
    ----------
    func
        The overload.
    call
        Computes it on the inner tensors: the generated Python binding if one with the same meaning exists (it is a
        third faster than the overload's own call), else the overload.
    name
        Without overload, and without ATen's namespace: ``add``, ``add_``, ``mylib::add``.
    tensors
        Positions of the positional arguments that may be a tensor; `tensor_kwargs` has the names of the keyword-only
        ones.
    has_lists
        Whether an argument is a list of tensors.
    has_ints
        Whether a number among the arguments may make the result large: a size, a count of repeats.
    written
        Names of the arguments that the op writes to; `outs` those passed as ``out=``; `writes_lists` whether a list
        of tensors is among the others.
    reshaping
        Whether sizes or storage of a written tensor may change.
    returns
        For each result: the name of the argument that it is (written) or is a view of, else None; `returns_write`
        whether it is that argument.
    only_tensors
        Whether all results are tensors, no lists; `single` whether there is only one.
    estimate
        What its kernel costs; None if it streams (see `work`). `launches`: whether there is a kernel at all;
        `synchronises`: whether the host waits for it.
    blas
        Whether cuBLAS computes it, with a workspace.
    """

    __slots__ = (
        "arguments", "blas", "call", "composite", "estimate", "func", "has_device", "has_generator", "has_ints",
        "has_lists", "is_view", "launches", "name", "no_growth", "only_tensors", "outs", "pointwise", "position",
        "random", "reshaping", "returns", "returns_write", "schema", "single", "synchronises", "tensor_kwargs",
        "tensors", "writes_lists", "written",
    )  # fmt: skip

    def __init__(self, func: Any) -> None:
        self.func = func
        self.schema = func._schema
        self.name: str = self.schema.name.removeprefix("aten::")
        self.call: Callable[..., Any] = _binding(func, self.name)
        self.composite = torch._C.DispatchKey.CompositeImplicitAutograd
        self._read_arguments()
        self._read_writes()
        self._read_results()
        self._read_kernel()

    def _read_arguments(self) -> None:
        arguments = self.schema.arguments
        types = {a.name: str(a.type) for a in arguments}
        self.arguments = tuple(a.name for a in arguments)
        self.position = {name: i for i, name in enumerate(self.arguments)}
        self.tensors = tuple(i for i, a in enumerate(arguments) if types[a.name] in _TENSOR_TYPES and not a.kwarg_only)
        self.tensor_kwargs = frozenset(a.name for a in arguments if a.kwarg_only and "Tensor" in types[a.name])
        self.has_lists = any("Tensor" in t and t not in _TENSOR_TYPES for t in types.values())
        self.has_device = "device" in types
        self.has_generator = "generator" in types
        self.no_growth = self.name in _NO_GROWTH
        takes_ints = any(t in _INT_TYPES for t in types.values())
        factory = not self.tensors  # `arange`: its numbers are its size
        self.has_ints = factory or (takes_ints and not self.no_growth)

    def _read_writes(self) -> None:
        arguments = self.schema.arguments
        self.outs = tuple(a.name for a in arguments if a.is_out)
        written = [a for a in arguments if a.alias_info is not None and a.alias_info.is_write]
        self.written = tuple(a.name for a in written)
        self.writes_lists = not self.outs and any(str(a.type) == "List[Tensor]" for a in written)
        changes_shape = torch.Tag.inplace_view in self.func.tags or self.schema.name in _RESHAPING
        self.reshaping = changes_shape or bool(self.outs)

    def _read_results(self) -> None:
        results = self.schema.returns
        self.returns = _aliased(self.schema)
        self.returns_write = tuple(r.alias_info is not None and r.alias_info.is_write for r in results)
        self.only_tensors = len(results) > 0 and all(str(r.type) == "Tensor" for r in results)
        self.single = self.only_tensors and len(results) == 1
        self.is_view = any(self.returns) and not any(self.returns_write)

    def _read_kernel(self) -> None:
        """How it computes and what that costs; call it last, it reads `is_view`."""
        name, tags = self.name, self.func.tags
        self.pointwise = torch.Tag.pointwise in tags
        seeded = torch.Tag.nondeterministic_seeded in tags or self.has_generator
        self.random = seeded and name not in _DRAWS_NOTHING
        self.blas = name in _BLAS
        self.estimate: Estimator | None = PRODUCTS.get(name) or ESTIMATORS.get(name)
        self.synchronises = name in SYNCHRONISES
        self.launches = not (self.is_view or name in LAUNCHES_NOTHING or torch.Tag.inplace_view in tags)

    def decomposed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a composite op by the ops that C++ decomposes it into."""
        return self.func._op_dk(self.composite, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<Op {self.func}>"


def _aliased(schema: Any) -> tuple[str | None, ...]:
    """For each result, the name of the argument that it is, or is a view of; else None."""
    if schema.name in _UNDECLARED_VIEWS:
        return (schema.arguments[0].name,)
    marked = [a for a in schema.arguments if a.alias_info is not None]
    by_set = {frozenset(a.alias_info.before_set): a.name for a in marked}
    # split, unbind, chunk: from Tensor(a -> *) they return a list whose alias set is empty
    whole = next((a.name for a in marked if "*" in a.alias_info.after_set), None)
    return tuple(
        None if r.alias_info is None else by_set.get(frozenset(r.alias_info.before_set), whole) for r in schema.returns
    )


def _binding(func: Any, name: str) -> Callable[..., Any]:
    """The cheapest callable with the meaning of `func` below autograd."""
    overload: Callable[..., Any] = func._op
    if func.namespace != "aten" or name in _NO_BINDING or name.startswith("new_"):
        return overload
    if any("List[Optional[Tensor]]" in str(a.type) for a in func._schema.arguments):  # x[:, i] passes None
        return overload
    # The bindings take the default of `reduction` for 0 (none), and torch does not pass on defaults.
    if any(a.is_out or a.name == "reduction" for a in func._schema.arguments):
        return overload
    for place in (_functions, _methods):
        if hasattr(place, name):
            return getattr(place, name)  # type: ignore[no-any-return]
    return overload
