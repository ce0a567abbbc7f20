"""What a check sees, as plain data: numbers, texts, tensors, names of types. No class of the student's has a say in it.

An expectation is about what `seen` returns, not about the object itself. Such data can be sent to another process
(`codec`), and be judged there.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.flags.tampering import installed

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from fakegpu_lab.trace import Trace

PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
"""The types whose values are seen as they are; what only imitates them, by inheritance, is not."""
DEEPEST = 20
LONGEST = 4000
"""Levels of containers, and characters of a text in words, beyond which nothing is looked at."""


class SeenTensor:
    """A tensor: where and what it was when it was looked at.

    Attributes
    ----------
    dtype, device
        As text: ``"torch.float32"``, ``"cuda:0"``.
    grad
        The gradient's device; empty if there is none.
    values
        A copy on the CPU; None if it has no values (``meta``), or they were not looked at.
    is_tensor
        False for an array of numpy's.
    """

    def __init__(
        self, shape: tuple[int, ...], dtype: str, device: str, requires_grad: bool = False, grad: str = "",
        values: torch.Tensor | None = None, is_tensor: bool = True,
    ) -> None:  # fmt: skip
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.requires_grad = requires_grad
        self.grad = grad
        self.values = values
        self.is_tensor = is_tensor

    @property
    def numel(self) -> int:
        """The number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def is_floating_point(self) -> bool:
        """Whether it holds real numbers that are not integers."""
        return "float" in self.dtype


@dataclass(frozen=True)
class SeenGroup:
    """A module or an optimizer: its tensors by name.

    Attributes
    ----------
    kind
        ``"module"`` or ``"optimizer"``.
    name
        The name of its class.
    """

    kind: str
    name: str
    tensors: tuple[tuple[str, SeenTensor], ...]


@dataclass(frozen=True)
class SeenType:
    """A class, by the names of itself and of all that it inherits from; names of the notebook's own end with ``*``."""

    names: tuple[str, ...]

    @property
    def name(self) -> str:
        """Without the module."""
        return self.names[0].rpartition(".")[2].rstrip("*")


@dataclass(frozen=True)
class Opaque:
    """Any other object: its type, and what it says of itself.

    Two are equal if their types are, and what they say; one of a class of the notebook's own equals nothing.
    """

    type: SeenType
    text: str

    @property
    def own(self) -> bool:
        """Whether its class was made in the notebook."""
        return self.type.names[0].endswith("*")


@dataclass(frozen=True)
class SeenError:
    """What a call raised."""

    type: SeenType
    text: str


@dataclass
class SeenTrace:
    """A recording: lists of records, as in `fakegpu_lab.trace.Trace`.

    Attributes
    ----------
    peaks
        The most bytes that tensors held, by device.
    elapsed
        Seconds.
    of_attempt
        Whether it is the recording of the exercise's cell, which the grader has already.
    """

    kernels: list[Any]
    transfers: list[Any]
    collectives: list[Any]
    allocations: list[Any]
    waits: list[Any]
    host_work: list[Any]
    races: list[Any]
    peaks: dict[int, int]
    elapsed: float
    of_attempt: bool = False


class Attempted:
    """Stands for the recording of the exercise's cell in what is sent."""


RECORDS = ("kernels", "transfers", "collectives", "allocations", "waits", "host_work", "races")


def seen(thing: Any, depth: int = 0) -> Any:
    """Return what is seen of a value."""
    return _seen(thing, depth, values=True)


def places(thing: Any) -> Any:
    """Return what is seen of a value when only shapes, dtypes and devices matter."""
    return _seen(thing, 0, values=False)


def _seen(thing: Any, depth: int, *, values: bool) -> Any:
    import torch

    kind = type(thing)
    if kind in PLAIN:
        return thing
    if kind is Fraction:
        return float(thing)
    plain: Any
    for plain in (int, float, str, bytes):
        if issubclass(kind, plain):  # of a library; one of the notebook's own could say anything of itself
            return plain(thing) if is_known(kind) else Opaque(type_of(thing), _text(thing))
    if depth > DEEPEST:
        return Opaque(type_of(thing), "…")
    if issubclass(kind, torch.Tensor) and is_known_tensor(kind):
        own = replaced_method(thing)
        return tensor(thing, values=values) if not own else Opaque(type_of(thing), f"a tensor with its own {own}")
    if issubclass(kind, list):  # their own iterators: a subclass of the notebook's has no say
        return [_seen(item, depth + 1, values=values) for item in list.__iter__(thing)]
    if issubclass(kind, tuple):
        return tuple(_seen(item, depth + 1, values=values) for item in tuple.__iter__(thing))
    if issubclass(kind, dict):
        return {_key(key): _seen(dict.get(thing, key), depth + 1, values=values) for key in dict.__iter__(thing)}
    if issubclass(kind, (set, frozenset)):
        return {_key(item) for item in (set if issubclass(kind, set) else frozenset).__iter__(thing)}
    if issubclass(kind, torch.nn.Module):
        return SeenGroup("module", kind.__name__, tuple(_of_module(thing, values=values)))
    if issubclass(kind, torch.optim.Optimizer) and is_known(kind):
        return SeenGroup("optimizer", kind.__name__, tuple(_of_optimizer(thing, values=values)))
    if is_known(kind):
        return _of_library(thing, kind, values=values)
    return Opaque(type_of(thing), _text(thing))


def _of_library(thing: Any, kind: type, *, values: bool) -> Any:
    """What is seen of an object of Python's, torch's or another installed library's own classes."""
    import numpy as np
    import torch

    if issubclass(kind, (np.float16, np.float32)):  # one element of its own precision: not what Python's float is
        return SeenTensor((), f"torch.{thing.dtype}", "cpu", values=torch.tensor(np.array(thing)), is_tensor=False)
    if issubclass(kind, np.generic):
        return thing.item() if not isinstance(thing, np.void) else Opaque(type_of(thing), _text(thing))
    if kind is np.ndarray:
        try:
            copy = torch.from_numpy(np.array(thing)) if values else None
        except TypeError:  # of texts, or of objects
            return Opaque(type_of(thing), _text(thing))
        return SeenTensor(tuple(thing.shape), f"torch.{thing.dtype}", "cpu", values=copy, is_tensor=False)
    if kind is range:
        return list(thing)
    return Opaque(type_of(thing), _text(thing))


def _key(key: Any) -> Any:
    """A dict's key, or a member of a set: plain, or what it says of itself."""
    if type(key) is tuple:
        return tuple(_key(item) for item in key)
    return key if type(key) in PLAIN else Opaque(type_of(key), _text(key))


def _text(thing: Any) -> str:
    try:
        text = repr(thing)
    except Exception as error:
        return f"a {type(thing).__name__} that cannot be shown ({type(error).__name__})"
    return text[:LONGEST] if type(text) is str else ""


def is_known(kind: type) -> bool:
    """Whether a class belongs to Python or an installed module, which has it (`SDPBackend`: under another name)."""
    module: Any = sys.modules.get(str(getattr(kind, "__module__", "")))
    file = getattr(module, "__file__", None)
    if module is None or getattr(module, "__spec__", None) is None or not (file is None or installed(file)):
        return False
    owner = module
    for part in kind.__qualname__.split("."):
        owner = getattr(owner, part, None)
    return owner is kind or any(one is kind for one in list(vars(module).values()))


def is_known_tensor(kind: type) -> bool:
    """Whether a tensor's class is torch's or the driver's: a class of the student's could say what it likes."""
    import torch

    driver: Any = sys.modules.get("fakegpu_lab.driver.base.tensor")
    ours = driver.DEVICE_TENSORS if driver is not None else ()
    return any(kind is one for one in (torch.Tensor, torch.nn.Parameter, *ours))


def replaced_method(thing: torch.Tensor) -> str:
    """An attribute of a tensor that stands before a method of its class, which checks call; empty if there is none."""
    return next((name for name, one in vars(thing).items() if callable(one) and hasattr(type(thing), name)), "")


def type_of(thing: Any) -> SeenType:
    """The class of a value."""
    return named(type(thing))


def named(kind: type) -> SeenType:
    """What is seen of a class."""
    names = [
        f"{one.__module__}.{one.__qualname__}" + ("" if is_known(one) or is_public(one) else "*")
        for one in type.mro(kind)
    ]
    return SeenType(tuple(names))


def is_public(kind: type) -> bool:
    """Whether a built-in class is known by another name than its own, such as ``builtins.ellipsis``."""
    return not kind.__flags__ & 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement, or at run time


def tensor(thing: torch.Tensor, *, values: bool) -> SeenTensor:
    """What is seen of a tensor."""
    import torch

    grad = thing.grad if thing.is_leaf else None
    found = SeenTensor(
        tuple(thing.shape), str(thing.dtype), str(thing.device), thing.requires_grad,
        str(grad.device) if grad is not None else "",
    )  # fmt: skip
    if values and thing.device.type != "meta":
        try:
            with torch.no_grad():
                copy = type(thing).detach(thing).cpu()
                if copy.device.type != "cpu":  # of a machine that computes no values
                    return found
                found.values = (copy.to_dense() if copy.layout != torch.strided else copy).resolve_conj().resolve_neg()
        except RuntimeError:
            found.values = None
    return found


def _of_module(thing: Any, *, values: bool) -> Iterator[tuple[str, SeenTensor]]:
    for name, one in tensors_of_module(thing):
        yield name, tensor(one, values=values)


def tensors_of_module(thing: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and then buffers: read from the module's own tables, which no method of a subclass can hide."""
    found: list[tuple[str, Any]] = []
    _modules(thing, "", found, set())
    held: set[int] = set()
    for table in ("_parameters", "_buffers"):
        for prefix, module in found:
            for name, one in vars(module).get(table, {}).items():
                if one is not None and id(one) not in held and is_known_tensor(type(one)):
                    held.add(id(one))
                    yield f"{prefix}{name}", one


def _modules(thing: Any, prefix: str, found: list[tuple[str, Any]], visited: set[int]) -> None:
    if id(thing) not in visited:
        visited.add(id(thing))
        found.append((prefix, thing))
        for name, inner in vars(thing).get("_modules", {}).items():
            if inner is not None:
                _modules(inner, f"{prefix}{name}.", found, visited)


def _of_optimizer(thing: Any, *, values: bool) -> Iterator[tuple[str, SeenTensor]]:
    for place, state in enumerate(thing.state.values()):
        for key, one in state.items():
            if is_known_tensor(type(one)) and one.dim():  # the step counter rightly stays on the CPU
                yield f"state {place}: {key}", tensor(one, values=values)


def trace(recording: Trace) -> SeenTrace:
    """What is seen of a recording."""
    lists: dict[str, Any] = {name: list(getattr(recording, name)) for name in RECORDS}
    peaks = {device.index: recording.peak_memory(device.index) for device in recording.machine.devices}
    return SeenTrace(**lists, peaks=peaks, elapsed=recording.elapsed)
