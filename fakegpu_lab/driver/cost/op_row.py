"""`Row`: what is known of an ATen op beyond its schema. `driver.op_sheet` has the rows, by family.

An op without a row streams (see `work`), computes with the CPU's kernel, and makes the checks that torch generates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from fakegpu_lab.driver.base.half_precision import into

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import torch

    from fakegpu_lab.driver.cost.work import Estimator
    from fakegpu_lab.hardware.time.host_costs import OpCost

    Values = Callable[[Any, Callable[..., Any]], Callable[..., Any]]

Arguments = dict[str, Any]
"""The arguments of a call, by the schema's names."""


class Assert(NamedTuple):
    """An assert in a CUDA kernel.

    Attributes
    ----------
    cpu_says
        A regular expression for the message with which the CPU's kernel refuses the same values.
    failure
        Finds the threads that fail. It returns None if the host checks these arguments, in the CPU's words, before the
        kernel is launched.
    """

    cpu_says: str
    failure: Callable[[Arguments], Any]


@dataclass(frozen=True, kw_only=True)
class Row:
    """What is known of an op.

    Attributes
    ----------
    cost
        The estimator of its kernel; None if it streams.
    launches
        Whether it launches a kernel at all.
    host
        What it takes on the host, without launches; None if that follows from its schema (`Op.host`). All rows of a
        family have that of the family (`family`).
    cublas
        Which of cuBLAS's functions computes it: ``"gemm"``, ``"gemv"``, ``"dot"``, ``"lt"`` (cuBLASLt); "" if none.
        cuBLAS takes its workspace from the caching allocator at the first call on a (device, stream).
    grows
        Whether its results can be larger than its operands together (`memory_preflight`).
    bound
        A bound on the bytes of its results, from inner arguments; None if it does not know.
    synchronises
        Whether the host always waits for its result, to know its shape or value.
    waits
        Makes the host wait before the kernel, for arguments that it must know: called with the op and its arguments.
    checks
        Raises if CUDA's kernel does not take these arguments, where the CPU's does: called with `Op` and the arguments.
    no_integers
        The name that CUDA's kernel gives itself when it refuses integers, which the CPU's takes; "" if it takes them.
    no_kernel
        The backend that has no kernel for it, as torch's error calls it; "" if CUDA has one.
    devices
        Raises CUDA's error if it does not take its tensors, which are on several devices; None: as torch generates it.
    cpu_scalars
        Whether TensorIterator lets a 0-dim CPU tensor stand for a number.
    iterates_out
        Whether TensorIterator, not a structured kernel, checks its ``out=`` tensor.
    result_beside_self
        Whether its result is a CPU tensor if its first argument is one, whatever the others are.
    asserts
        What its kernel asserts.
    reports_asserts
        Whether it waits for the device, and so reports kernels that have failed.
    expanded_index
        Whether the CPU's kernel reads outside the tensor for a wrong index that is expanded.
    alert
        Raises or warns under ``torch.use_deterministic_algorithms``: called with the arguments.
    in_float32
        Dtypes that are computed in float32 and rounded once (`half_precision.in_float32`).
    borrows
        The bytes that a library takes while it computes, in pieces: called with device, arguments and result.
    values
        Makes the function that computes it on inner tensors, from the op and the function that would.
    shape
        Computes it on meta tensors, in place of torch's shape function.
    draws
        Computes it with the device's random numbers, if it is random: called with op, device, generator, arguments.
    random
        Whether torch's tag that it is random is right.
    offset
        How far it advances the generator if the CPU computes it from a seed.
    runs
        Runs it in place of a kernel on one device: called with the op and its arguments.
    binding
        Whether the Python function of the same name means the same.
    views
        Whether it is a view of its first argument, although the schema does not say so.
    reshapes
        Whether it changes its first argument's sizes or storage.
    """

    cost: Estimator | None = None
    launches: bool = True
    host: OpCost | None = None
    cublas: str = ""
    grows: bool = True
    bound: Callable[[list[Any]], int | None] | None = None
    synchronises: bool = False
    waits: Callable[[Any, Arguments], None] | None = None
    checks: Callable[..., None] | None = None
    no_integers: str = ""
    no_kernel: str = ""
    devices: Callable[[Any, Any, tuple[Any, ...]], None] | None = None
    cpu_scalars: bool = True
    iterates_out: bool = False
    result_beside_self: bool = False
    asserts: Assert | None = None
    reports_asserts: bool = False
    expanded_index: bool = False
    alert: Callable[[Arguments], None] | None = None
    in_float32: frozenset[torch.dtype] = frozenset()
    borrows: Callable[[Any, tuple[Any, ...], Any], Iterable[int]] | None = None
    values: Values | None = None
    shape: Callable[..., Any] | None = None
    draws: Callable[..., Any] | None = None
    random: bool = True
    offset: int = 4
    runs: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any] | None = None
    binding: bool = True
    views: bool = False
    reshapes: bool = False


_PLAIN = Row()
_rows: dict[str, Row] = {}


def computes(kernel: Callable[..., Any]) -> Values:
    """For `Row.values`: `kernel`, whatever the CPU has, also in place and into ``out=``; not into several tensors."""

    def in_place(target: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return target.copy_(kernel(target, *args, **kwargs))

    def into_out(*args: Any, out: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        return into(out, kernel(*args, **kwargs))

    def values(op: Any, call: Callable[..., Any]) -> Callable[..., Any]:
        if op.outs:
            return into_out if op.outs == ("out",) else call
        return in_place if op.written else kernel

    return values


def row(*names: str, **columns: Any) -> None:
    """Add the row of one op, or the same row of several.

    Parameters
    ----------
    names
        An op's name, ``"mm"``, for all its overloads and for its in-place form, if that has no row of its own; or the
        name with an overload, ``"mm.dtype"``, which begins as a copy of the op's row.
    columns
        The attributes of `Row` that are not as usual.

    Raises
    ------
    ValueError
        An op has a row already.
    """
    for name in names:
        if name in _rows:
            raise ValueError(f"The op sheet has two rows for {name}.")
        base, _, overload = name.partition(".")
        _rows[name] = replace(row_named(base) if overload else _PLAIN, **columns)


def family(host: OpCost) -> Callable[..., None]:
    """`row` for a family of ops that take the same time on the host."""

    def row_of_family(*names: str, **columns: Any) -> None:
        row(*names, **{"host": host} | columns)

    return row_of_family


def rows() -> dict[str, Row]:
    """All rows, by the names with which they were added."""
    return dict(_rows)


def row_of(schema: torch._C.FunctionSchema) -> Row:
    """The row of the op with a schema."""
    namespace, _, name = schema.name.partition("::")
    return row_named(name, schema.overload_name) if namespace == "aten" else _PLAIN


def row_named(name: str, overload: str = "") -> Row:
    """The row of an ATen op, named without its namespace."""
    overload = overload.removesuffix("_out")
    found = _rows.get(f"{name}.{overload}") or _rows.get(name)
    if found is None and name.endswith("_"):
        found = _rows.get(f"{name[:-1]}.{overload}") or _rows.get(name[:-1])
        if found is not None and found.shape is not None:
            return replace(found, shape=None)  # in place, the shape is known
    return found or _PLAIN
