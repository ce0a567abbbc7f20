"""Prints the loops of a kernel as a function over whole tensors, while Inductor makes the kernel.

Inductor describes a kernel as nodes, each a loop over all places of a range, whose body loads, computes and stores at
one place. A node is printed as statements over its whole range at once:

    m.begin((64,), (256,))
    v1 = m.load('in_ptr0', (0, (256, 1)))
    v2 = m.reduce('sum', torch.float32, v1)
    m.store('buf0', 'out_ptr0', (0, (1, 0)), v2)

A place in memory is an offset and strides where that is enough, and else a formula of the indices. The function is kept
in Inductor's cache folder, by the text of the Triton kernel: Inductor loads kernels from there without making them.
"""

from __future__ import annotations

import re
from functools import lru_cache, wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from fakegpu_lab.kernels.fused_loops import kept
from fakegpu_lab.kernels.fused_loops.values import Values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class Unsupported(Exception):  # noqa: N818 - it is no error
    """Raised where a kernel cannot be printed; its programs run one by one."""


class _Name(str):
    """A value in the printed function."""

    __slots__ = ()


class Printed(NamedTuple):
    """The function of a kernel, and the names of the arguments that it stores to."""

    values: Callable[[Values], None]
    written: tuple[str, ...]


_STORES = re.compile(r"m\.(?:store|add_to)\('[^']*', '([^']*)'")


def defining(define_kernel: Callable[..., Any]) -> Callable[..., Any]:
    """`TritonScheduling.define_kernel`, which gets each kernel that Inductor has made, and prints it."""

    @wraps(define_kernel)
    def define(self: Any, src_code: str, node_schedule: Any, kernel: Any) -> Any:
        keep(src_code, kernel)
        return define_kernel(self, src_code, node_schedule, kernel)

    return define


def keep(source: str, kernel: Any) -> None:
    """Print a kernel and keep the function; what cannot be printed is left out."""
    path = kept.place(source)
    if path.exists():
        return
    try:
        text = "\n".join(_printed(kernel, "4x(" in source))
    except Unsupported:
        return
    kept.write(path, text.encode())


@lru_cache(maxsize=4096)
def of(source: str) -> Printed | None:
    """What is kept for a Triton kernel, by its source; None if there is nothing."""
    path = kept.place(source)
    if not path.exists():
        return None
    named: dict[str, Any] = {"torch": torch, "inf": float("inf"), "nan": float("nan")}
    text = path.read_text(encoding="utf-8")
    exec(compile(text, str(path), "exec"), named)
    return Printed(named["values"], tuple(dict.fromkeys(_STORES.findall(text))))


def _printed(kernel: Any, four: bool) -> Iterator[str]:
    """The lines of the function."""
    from torch._inductor.virtualized import V

    if kernel.args.workspace_args:
        raise Unsupported("workspace")
    yield "def values(m):"
    stored: dict[str, bool] = {}
    for one in getattr(kernel, "sub_kernels", None) or [kernel]:
        for node in one.features.node_schedule:
            if not hasattr(node, "_body"):
                continue  # a mark for where reductions begin and end
            writer = _Writer(one, node, stored, four)
            with V.set_ops_handler(writer.handler()):
                node._body(*writer.symbols)
            yield from (f"    {line}" for line in writer.lines)
    yield "    m.finish()"


class _Writer:
    """Prints one node."""

    def __init__(self, kernel: Any, node: Any, stored: dict[str, bool], four: bool) -> None:
        sympy = import_module("sympy")
        self.node, self.args, self.stored, self.four = node, kernel.args, stored, four
        self.lines: list[str] = []
        self.mask: _Name | None = None
        self._sizes: dict[Any, str] = {symbol: f"m.sizes[{name!r}]" for symbol, name in self.args.sizevars.items()}
        self._numels = {tree.numel: f"m.sizes['{tree.prefix}numel']" for tree in kernel.range_trees}
        ranges = [list(group) for group in node.get_ranges()]
        places = iter(range(sum(map(len, ranges))))
        self.symbols = [
            [sympy.Symbol(f"d{next(places)}", integer=True, nonnegative=True) for _ in group] for group in ranges
        ]
        self.dims = [symbol for group in self.symbols for symbol in group]
        self.indirect: set[Any] = set()
        sizes = [f"({''.join(f'{self.number(one)}, ' for one in group)})" for group in ranges]
        self.lines.append(f"m.begin({', '.join(sizes)})")

    def handler(self) -> Any:
        """What Inductor calls the operations of a body on."""
        writer = self
        base: Any = import_module("torch._inductor.ops_handler").DefaultHandler

        class Handler(base):  # type: ignore[misc]
            def _default(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
                own = getattr(writer, f"_{name}", None)
                return own(*args, **kwargs) if own is not None else writer.call(name, *args, **kwargs)

        return Handler()

    def call(self, name: str, *args: Any, **kwargs: Any) -> _Name:
        """Print an operation of `Values`."""
        if not hasattr(Values, name):
            raise Unsupported(name)
        given = [self.text(one) for one in args] + [f"{key}={self.text(one)}" for key, one in kwargs.items()]
        return self.assign(f"m.{name}({', '.join(given)})")

    def assign(self, text: str) -> _Name:
        """Print an assignment to a new name."""
        name = _Name(f"v{len(self.lines)}")
        self.lines.append(f"{name} = {text}")
        return name

    def text(self, value: Any) -> str:
        """A value as it is printed."""
        if isinstance(value, _Name):
            return str(value)
        if isinstance(value, torch.dtype | bool | int | float | str | None):
            return repr(value)
        return self.number(value)

    def number(self, expression: Any) -> str:
        """A size, which may depend on those that the kernel gets."""
        if expression in self._numels and not getattr(expression, "is_Integer", True):
            return self._numels[expression]
        return self._formula(expression)

    def place(self, expression: Any) -> str:
        """A place in memory: an offset and strides, or a formula."""
        strides = self._strides(expression)
        if strides is None:
            return self._formula(expression)
        return f"({strides[0]}, ({''.join(f'{one}, ' for one in strides[1:])}))"

    def _strides(self, expression: Any) -> list[str] | None:
        sympy = import_module("sympy")
        rest = sympy.expand(expression)
        found = []
        for symbol in self.dims:
            stride = rest.coeff(symbol)
            rest = sympy.expand(rest - stride * symbol)
            found.append(stride)
        moving = {*self.dims, *self.indirect}
        if any(one.free_symbols & moving for one in (rest, *found)):
            return None
        return [self.number(one) for one in (rest, *found)]

    def _formula(self, expression: Any) -> str:
        from torch.utils._sympy.printers import PythonPrinter

        expression = import_module("sympy").sympify(expression)
        names: dict[str, str] = {}
        for symbol in expression.free_symbols:
            if symbol in self._sizes:
                names[symbol.name] = self._sizes[symbol]
            elif symbol in self.dims:
                names[symbol.name] = f"m.index({self.dims.index(symbol)})"
            elif symbol not in self.indirect:
                raise Unsupported(f"the size {symbol}")
        text: str = PythonPrinter().doprint(expression)
        if re.search(r"[a-zA-Z_]\w*\(|\bif\b|\bTrue\b|\bFalse\b", text):
            raise Unsupported(text)
        return re.sub(r"[A-Za-z_]\w*", lambda found: names.get(found[0], found[0]), text)

    def _argument(self, name: str) -> str | None:
        from torch._inductor.virtualized import V

        name = V.graph.scheduler.mutation_real_name.get(name, name)
        inplace = getattr(self.args.inplace_buffers.get(name), "inner_name", None)
        for found in (self.args.output_buffers.get(name), inplace, self.args.input_buffers.get(name)):
            if isinstance(found, str):
                return found
        return None

    def _load(self, name: str, index: Any) -> _Name:
        from torch._inductor.virtualized import V

        if V.graph.is_unspec_arg(name):  # a tensor of the host with one element: the kernel gets its value
            return self.assign(f"m.number({self._argument(name)!r})")
        mask = f", {self.mask}" if self.mask else ""
        if name in self.stored:
            if not self.stored[name]:
                raise Unsupported("reads what was added up")
            return self.assign(f"m.again({name!r}, {self.place(index)}{mask})")
        return self.assign(f"m.load({self._argument(name)!r}, {self.place(index)}{mask})")

    def _load_seed(self, name: str, offset: Any) -> _Name:
        return self.assign(f"m.seed({self._argument(name)!r}, {self.number(offset)})")

    def _store(self, name: str, index: Any, value: Any, mode: str | None = None) -> None:
        if self.mask or mode not in (None, "atomic_add"):
            raise Unsupported(f"a store: {mode}")
        what = "store" if mode is None else "add_to"
        self.lines.append(f"m.{what}({name!r}, {self._argument(name)!r}, {self.place(index)}, {self.text(value)})")
        self.stored[name] = mode is None
        for other in self.node.get_output(name).get_mutations():
            self.lines.append(f"m.alias({other!r}, {name!r})")
            self.stored[other] = mode is None

    def _store_reduction(self, name: str, index: Any, value: Any) -> None:
        self._store(name, index, value)

    def _reduction(self, dtype: Any, src_dtype: Any, reduction_type: str, value: Any) -> Any:
        if reduction_type not in Values.REDUCTIONS:
            raise Unsupported(reduction_type)
        count = {"welford_reduce": 3, "welford_combine": 3, "online_softmax_reduce": 2}.get(reduction_type, 1)
        given = ", ".join(map(self.text, value if isinstance(value, tuple) else (value,)))
        result = self.assign(f"m.reduce({reduction_type!r}, {dtype!r}, {given})")
        return result if count == 1 else tuple(self.assign(f"{result}[{i}]") for i in range(count))

    def _masked(self, mask: Any, body: Callable[[], Any], other: Any) -> _Name:
        before = self.mask
        self.mask = mask if before is None else self.assign(f"{before} & {mask}")
        value = body()
        result = self.assign(f"m.chosen({self.mask}, {self.text(value)}, {self.text(other)})")
        self.mask = before
        return result

    def _indirect_indexing(self, var: Any, size: Any, check: bool = True, wrap_neg: bool = True) -> Any:
        name = self.assign(f"m.wrapped({var}, {self.number(size)}, {check}, {wrap_neg}, {self.mask})")
        symbol = import_module("sympy").Symbol(name, integer=True)
        self.indirect.add(symbol)
        return symbol

    def _check_bounds(self, expr: Any, size: Any, lower: bool, upper: bool) -> None:
        self.lines.append(f"m.check({self.place(expr)}, {self.number(size)}, {lower}, {upper}, {self.mask})")

    def _device_assert_async(self, cond: Any, msg: Any) -> None:
        self.lines.append(f"m.holds({cond}, {self.mask})")

    def _index_expr(self, expr: Any, dtype: torch.dtype) -> _Name:
        return self.assign(f"m.places({self.place(expr)}, {dtype!r})")

    def _value_expr(self, expr: Any, dtype: torch.dtype) -> _Name:
        return self._index_expr(expr, dtype)

    def _rand(self, seed: Any, offset: Any) -> _Name:
        return self.assign(f"m.rand({seed}, {offset}, False, {self.four})")

    def _randn(self, seed: Any, offset: Any) -> _Name:
        return self.assign(f"m.rand({seed}, {offset}, True, {self.four})")

    def _randint64(self, seed: Any, offset: Any, low: Any, high: Any) -> _Name:
        return self.assign(f"m.randint({seed}, {offset}, {self.text(low)}, {self.text(high)})")

    def _output(self, *result: Any) -> Sequence[Any]:
        return result
