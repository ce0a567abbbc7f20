"""What was seen, as JSON and back. Reading it makes data and nothing else: numbers, texts, tensors, records."""

from __future__ import annotations

import base64
import math
from typing import Any

from fakegpu_lab.course.expect.plain_data import records
from fakegpu_lab.course.expect.plain_data.conversion import (
    RECORDS,
    Attempted,
    Opaque,
    SeenError,
    SeenGroup,
    SeenTensor,
    SeenTrace,
    SeenType,
)

LARGEST = 24 * 2**20
"""Bytes of a tensor; the values of a larger one are not sent."""
_DTYPES = frozenset(
    [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
    + ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex128", "complex64", "bool"]
)


def encode(thing: Any) -> Any:
    """Write what was seen as lists, texts and numbers."""
    if thing is None or type(thing) in (bool, str):
        return thing
    if type(thing) is int:
        return thing if abs(thing) < 2**53 else ["int", hex(thing)]
    if type(thing) is float:
        return thing if math.isfinite(thing) else ["float", str(thing)]
    kind = type(thing)
    if kind in _ENCODERS:
        return _ENCODERS[kind](thing)
    raise TypeError(f"{kind.__name__} is not plain data")


def _encode_tensor(one: SeenTensor) -> list[Any]:
    data = None
    if one.values is not None and one.values.nbytes <= LARGEST and one.dtype.removeprefix("torch.") in _DTYPES:
        import torch

        raw = one.values.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if one.numel else b""
        data = base64.b64encode(raw).decode()
    return ["tensor", list(one.shape), one.dtype, one.device, one.requires_grad, one.grad, one.is_tensor, data]


def _encode_trace(one: SeenTrace) -> list[Any]:
    if one.of_attempt:
        return ["attempt"]
    lists = {name: records.rows(name, getattr(one, name)) for name in RECORDS}
    return ["trace", lists, list(one.peaks.items()), one.elapsed]


def _group(one: SeenGroup) -> list[Any]:
    return ["group", one.kind, one.name, [[name, _encode_tensor(held)] for name, held in one.tensors]]


_ENCODERS: dict[type, Any] = {
    type(Ellipsis): lambda one: ["..."],
    complex: lambda one: ["complex", encode(one.real), encode(one.imag)],
    bytes: lambda one: ["bytes", one.hex()],
    list: lambda one: ["list", [encode(item) for item in one]],
    tuple: lambda one: ["tuple", [encode(item) for item in one]],
    set: lambda one: ["set", [encode(item) for item in one]],
    dict: lambda one: ["dict", [[encode(key), encode(item)] for key, item in one.items()]],
    SeenTensor: _encode_tensor,
    SeenGroup: _group,
    SeenType: lambda one: ["type", list(one.names)],
    Opaque: lambda one: ["opaque", list(one.type.names), one.text],
    SeenError: lambda one: ["error", list(one.type.names), one.text],
    SeenTrace: _encode_trace,
    Attempted: lambda one: ["attempt"],
}


def decode(data: Any) -> Any:
    """Read what `encode` wrote.

    Raises
    ------
    ValueError
        It is something else.
    """
    if data is None or isinstance(data, (bool, int, float, str)):
        return data
    if isinstance(data, list) and data and isinstance(data[0], str) and data[0] in _DECODERS:
        try:
            return _DECODERS[data[0]](*data[1:])
        except (TypeError, KeyError, IndexError, AttributeError, RuntimeError, OverflowError) as error:
            raise ValueError(f"not what was seen: {error}") from None
    raise ValueError("not what was seen")


def _tensor(
    shape: list[int], dtype: str, device: str, requires_grad: bool, grad: str, is_tensor: bool, data: str | None
) -> SeenTensor:
    found = SeenTensor(
        tuple(map(int, shape)), str(dtype), str(device), bool(requires_grad), str(grad), None, bool(is_tensor)
    )
    if data is not None:
        import torch

        name = found.dtype.removeprefix("torch.")
        if name not in _DTYPES:
            raise ValueError(f"no dtype {name}")
        kind = getattr(torch, name)
        raw = bytearray(base64.b64decode(data, validate=True))
        if len(raw) != found.numel * kind.itemsize:
            raise ValueError("values that do not fit the shape")
        found.values = (
            torch.frombuffer(raw, dtype=kind).reshape(found.shape) if raw else torch.empty(found.shape, dtype=kind)
        )
    return found


def _decode_trace(lists: dict[str, list[list[Any]]], peaks: list[list[int]], elapsed: float) -> SeenTrace:
    made: dict[str, Any] = {name: records.records(name, lists[name]) for name in RECORDS}
    return SeenTrace(**made, peaks={int(device): int(peak) for device, peak in peaks}, elapsed=float(elapsed))


_DECODERS: dict[str, Any] = {
    "attempt": Attempted,
    "...": lambda: ...,
    "int": lambda text: int(text, 16),
    "float": float,
    "complex": lambda real, imag: complex(decode(real), decode(imag)),
    "bytes": bytes.fromhex,
    "list": lambda items: [decode(item) for item in items],
    "tuple": lambda items: tuple(decode(item) for item in items),
    "set": lambda items: {decode(item) for item in items},
    "dict": lambda items: {decode(key): decode(item) for key, item in items},
    "tensor": _tensor,
    "group": lambda kind, name, held: SeenGroup(
        str(kind), str(name), tuple((str(key), _tensor(*one[1:])) for key, one in held)
    ),
    "type": lambda names: SeenType(tuple(map(str, names))),
    "opaque": lambda names, text: Opaque(SeenType(tuple(map(str, names))), str(text)),
    "error": lambda names, text: SeenError(SeenType(tuple(map(str, names))), str(text)),
    "trace": _decode_trace,
}
