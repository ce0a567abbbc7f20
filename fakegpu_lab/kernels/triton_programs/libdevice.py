"""Functions of ``tl.extra.cuda.libdevice``, as far as torch has them on the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from triton import language

from fakegpu_lab.kernels.triton_programs.builder import builder, in_torch, semantic

if TYPE_CHECKING:
    from collections.abc import Callable

_UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    name: getattr(torch, name)
    for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "erfc", "erfinv", "exp",
        "exp2", "expm1", "floor", "lgamma", "log", "log10", "log1p", "log2", "rsqrt", "sin", "sinh", "sqrt", "tan",
        "tanh", "trunc",
    )
}  # fmt: skip
_UNARY |= {"fast_expf": torch.exp, "fast_logf": torch.log, "fast_sinf": torch.sin, "fast_cosf": torch.cos}
_UNARY |= {"fast_tanhf": torch.tanh, "nearbyint": torch.round, "erfcx": torch.special.erfcx}
_UNARY |= {"cyl_bessel_i0": torch.special.i0, "cyl_bessel_i1": torch.special.i1}
_UNARY |= {"j0": torch.special.bessel_j0, "j1": torch.special.bessel_j1}
_UNARY |= {"y0": torch.special.bessel_y0, "y1": torch.special.bessel_y1}
_UNARY |= {"rint": torch.round, "abs": torch.abs, "tgamma": lambda x: torch.exp(torch.lgamma(x))}
_BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "pow": torch.pow, "atan2": torch.atan2, "fmod": torch.fmod, "hypot": torch.hypot, "copysign": torch.copysign,
    "mul_rn": torch.mul, "add_rn": torch.add, "sub_rn": torch.sub, "div_rn": torch.div, "nextafter": torch.nextafter,
}  # fmt: skip


def _unary(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], Any]:
    def compute(data: Any) -> Any:
        return function(in_torch(data)).numpy()

    def called(operand: Any) -> Any:
        operand = semantic.to_tensor(operand)
        return semantic.make_tensor(builder.unary_op(operand.handle, compute), operand.type)

    return called


def _binary(function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Callable[[Any, Any], Any]:
    def compute(left: Any, right: Any) -> Any:
        return function(in_torch(left), in_torch(right)).numpy()

    def called(left: Any, right: Any) -> Any:
        left, right = semantic.broadcast_impl_value(semantic.to_tensor(left), semantic.to_tensor(right))
        return semantic.make_tensor(builder.binary_op(left.handle, right.handle, compute), left.type)

    return called


def _predicate(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], Any]:
    """A question, which libdevice answers with an int32."""
    answer = _unary(lambda x: function(x).to(x.dtype))
    return lambda operand: answer(operand).to(language.int32, _semantic=semantic)


def _llrint(operand: Any) -> Any:
    return _unary(torch.round)(operand).to(language.int64, _semantic=semantic)


LIBDEVICE: dict[str, Callable[..., Any]] = {
    "llrint": _llrint,
    **{name: _unary(function) for name, function in _UNARY.items()},
    **{name: _binary(function) for name, function in _BINARY.items()},
    **{name: _predicate(getattr(torch, name)) for name in ("isinf", "isnan", "signbit")},
}
"""By name."""
