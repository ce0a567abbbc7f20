"""`Op`: what the dispatch path needs to know of an ATen overload, worked out once from its schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.cost.op_row import row_of
from fakegpu_lab.hardware.time import host_costs

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.work import Estimator

    Plan = Callable[[tuple[Any, ...], dict[str, Any]], Any]
    """What runs an op: it is called with the op's arguments, positional and by name."""

_functions = torch._C._VariableFunctions
_methods = torch._C.TensorBase

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
    row
        What is known of it beyond the schema (`op_sheet`).
    estimate
        What its kernel costs; None if it streams (see `work`).
    launches
        Whether there is a kernel at all.
    host
        What it takes on the host, without launches.
    """

    __slots__ = (
        "arguments", "call", "composite", "estimate", "func", "has_device", "has_generator", "has_ints", "has_lists",
        "host", "is_view", "launches", "name", "only_tensors", "outs", "pointwise", "position", "random", "reshaping",
        "returns", "returns_write", "row", "schema", "single", "tensor_kwargs", "tensors", "writes_lists", "written",
    )  # fmt: skip

    def __init__(self, func: Any) -> None:
        self.func = func
        self.schema = func._schema
        self.name: str = self.schema.name.removeprefix("aten::")
        self.row = row_of(self.schema)
        self.call: Callable[..., Any] = _binding(func, self.name) if self.row.binding else func._op
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
        takes_ints = any(t in _INT_TYPES for t in types.values())
        factory = not self.tensors  # `arange`: its numbers are its size
        self.has_ints = factory or (takes_ints and self.row.grows)

    def _read_writes(self) -> None:
        arguments = self.schema.arguments
        self.outs = tuple(a.name for a in arguments if a.is_out)
        written = [a for a in arguments if a.alias_info is not None and a.alias_info.is_write]
        self.written = tuple(a.name for a in written)
        self.writes_lists = not self.outs and any(str(a.type) == "List[Tensor]" for a in written)
        changes_shape = torch.Tag.inplace_view in self.func.tags or self.row.reshapes
        self.reshaping = changes_shape or bool(self.outs)

    def _read_results(self) -> None:
        results = self.schema.returns
        self.returns = (self.arguments[0],) if self.row.views else _aliased(self.schema)
        self.returns_write = tuple(r.alias_info is not None and r.alias_info.is_write for r in results)
        self.only_tensors = len(results) > 0 and all(str(r.type) == "Tensor" for r in results)
        self.single = self.only_tensors and len(results) == 1
        self.is_view = any(self.returns) and not any(self.returns_write)

    def _read_kernel(self) -> None:
        """How it computes and what that costs; call it last, it reads `is_view`."""
        row, tags = self.row, self.func.tags
        self.pointwise = torch.Tag.pointwise in tags
        seeded = torch.Tag.nondeterministic_seeded in tags or self.has_generator
        self.random = seeded and row.random
        self.estimate: Estimator | None = row.cost
        self.launches = row.launches and not (self.is_view or torch.Tag.inplace_view in tags)
        kernel = host_costs.IN_PLACE if self.written and not self.outs else host_costs.POINTWISE
        kind = host_costs.VIEW if self.is_view else kernel if self.launches else host_costs.EMPTY
        self.host = row.host or (host_costs.LIST if self.name.startswith("_foreach_") else kind)

    def decomposed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a composite op by the ops that C++ decomposes it into."""
        return self.func._op_dk(self.composite, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<Op {self.func}>"


def _aliased(schema: Any) -> tuple[str | None, ...]:
    """For each result, the name of the argument that it is, or is a view of; else None."""
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
    if func.namespace != "aten" or name.startswith("new_"):
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
