"""Expectations of values: numbers, tensors, shapes, dtypes, answers to questions."""

from __future__ import annotations

import functools
import hashlib
import math
import re
from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.expect.describe import SHOWN, tensors, value
from fakegpu_lab.course.expect.expectation import expectation
from fakegpu_lab.course.expect.outcome import NOTHING, asks_for, report, subject
from fakegpu_lab.course.expect.plain_data.conversion import Opaque, SeenTensor, SeenType, named, places, type_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch
    from typing_extensions import Unpack

    from fakegpu_lab.course.expect.outcome import Said

_DIGEST = re.compile("[0-9a-f]{6}")
_UNSET = "Replace `...` with your answer, and run that cell again."


@expectation()
def equal(found: Any, expected: Any, **said: Unpack[Said]) -> bool:
    """Expect a value; of tensors, the same shape, dtype and numbers, on any device.

    A ``torch.device`` equals its name, and ``"cuda"`` is ``"cuda:0"``. A NumPy number is compared in its own precision:
    ``numpy.float32(0.1)`` equals ``0.1``.
    """
    met, difference = _same(found, expected, 0.0, 0.0)
    first = _first_numbers(found) if met else None
    return _report_value(said, met, found, expected, difference or (first or ""), "is")


@expectation()
def close(found: Any, expected: Any, *, rtol: float = 1e-4, atol: float = 1e-6, **said: Unpack[Said]) -> bool:
    """Expect numbers up to rounding, on any device: ``|found - expected| <= atol + rtol·|expected|``.

    Gradients are often as small as `atol`: for them, use ``atol=0``.
    """
    met, difference = _same(found, expected, rtol, atol)
    if met and _first_numbers(found) is not None:  # too many to be shown
        difference = _difference(_apart(found, expected), rtol, atol)
    return _report_value(said, met, found, expected, difference, "is close to", rtol)


def _report_value(
    said: Said, met: bool, found: Any, expected: Any, difference: str, verb: str, rtol: float = 0.0
) -> bool:
    name = subject("the value")
    brief = _brief(expected, rtol)
    what = f"{name} {verb} {brief}" if len(brief) < 40 else f"{name} has the right value"
    hint = _UNSET if found is Ellipsis else ""
    if _COMPUTE in difference:  # what the author says is about values
        said = {**said, "hint": ""}
    elif _lacks(found, expected) and not asks_for("grad") and "None" not in said.get("hint", ""):
        # a gradient is None where none came: nothing returned it; and the author may speak of None
        said = {**said, "hint": f"{NOTHING} {said.get('hint', '')}".strip()}
    return report(said, met=met, what=what, expected=brief, found=difference or _brief(found, rtol), hint=hint)


def _lacks(found: Any, expected: Any) -> bool:
    """Whether a value, or an item of it, is None where something else is expected."""
    if isinstance(found, (list, tuple)) and isinstance(expected, (list, tuple)):
        return any(_lacks(one, other) for one, other in zip(found, expected, strict=False))
    return found is None and expected is not None


def _brief(thing: Any, rtol: float) -> str:
    """A value in words; of numbers that may be rounded, the digits that matter."""
    if type(thing) is list and len(thing) <= 8 and all(type(item) in (int, float) for item in thing):
        return f"[{', '.join(_brief(item, rtol) for item in thing)}]"
    return f"{thing:.6g}" if type(thing) is float and rtol >= 1e-5 else value(thing)


def _same(found: Any, expected: Any, rtol: float, atol: float) -> tuple[bool, str]:
    """Whether two values are the same, and how they differ; that is empty if the values themselves show it."""
    if _is_numpy_number(expected) and isinstance(found, (int, float)) and not isinstance(found, bool):
        found, expected = expected, found
    if isinstance(expected, SeenTensor) or isinstance(found, SeenTensor):
        return _same_tensors(found, expected, rtol, atol)
    if isinstance(expected, dict) and isinstance(found, dict):
        if found.keys() != expected.keys():
            return False, f"the keys {value(list(found))}"
        return _same_items([(value(key), found[key], expected[key]) for key in expected], rtol, atol)
    if isinstance(expected, (list, tuple)) and isinstance(found, (list, tuple)):
        if len(found) != len(expected):
            return False, f"{len(found)} values: {value(found)}"
        pairs = zip(found, expected, strict=True)
        return _same_items([(str(index), one, other) for index, (one, other) in enumerate(pairs)], rtol, atol)
    if isinstance(expected, float) or ((rtol or atol) and isinstance(expected, int)):
        is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
        return is_number and math.isclose(found, expected, rel_tol=rtol, abs_tol=atol), ""
    return _same_plain(found, expected), ""


def _same_plain(found: Any, expected: Any) -> bool:
    """Whether two values that are not containers are equal: numbers by value, everything else by type, too."""
    if _device(expected) is not None:
        return _device(found) == _device(expected)
    numbers = (int, float, complex)
    alike = type(found) is type(expected) or (type(found) in numbers and type(expected) in numbers)
    return alike and bool(found == expected) and not (isinstance(found, Opaque) and found.own)


_DEVICE = re.compile(r"(cpu|cuda)(?::(\d+))?")
_TORCH_DEVICE = re.compile(r"device\(type='(\w+)'(?:, index=(\d+))?\)")


def _device(thing: Any) -> tuple[str, int] | None:
    """The device that a ``torch.device`` or a text names: its type and number; None if it names none."""
    if isinstance(thing, Opaque) and thing.type.names[0] == "torch.device":
        found = _TORCH_DEVICE.fullmatch(thing.text)
    else:
        found = _DEVICE.fullmatch(thing) if isinstance(thing, str) else None
    return (found[1], int(found[2] or 0)) if found else None


def _is_numpy_number(thing: Any) -> bool:
    """Whether it is one of NumPy's numbers that have another precision than Python's."""
    return isinstance(thing, SeenTensor) and not thing.is_tensor and thing.shape == ()


def _same_items(items: list[tuple[str, Any, Any]], rtol: float, atol: float) -> tuple[bool, str]:
    """Whether the items of two containers are the same: each has a key, the value found and the one expected."""
    for key, found, expected in items:
        met, difference = _same(found, expected, rtol, atol)
        if not met:
            return False, f"at {key}: {difference or f'{_brief(found, rtol)}, not {_brief(expected, rtol)}'}"
    return True, ""


_COMPUTE = (
    "A kernel before has failed, as an error here says, or the GPUs compute no values now: "
    "then, to go back to an exercise above, run the notebook from its first cell."
)


_ROUNDED = {"torch.float32": 2.0**-23, "torch.float16": 2.0**-10}
"""In these, a number is equal to what it is rounded to, 0.1 to a tensor of 0.1, if that is as close as this."""


def _same_tensors(found: Any, expected: Any, rtol: float, atol: float) -> tuple[bool, str]:
    import torch

    if not isinstance(found, SeenTensor):
        return False, f"{value(found)}, which is not a tensor"
    if found.values is None or (isinstance(expected, SeenTensor) and expected.values is None):
        return False, f"{value(found)}, whose values are not known. {_COMPUTE}"
    one = found.values
    exact, plain = not (rtol or atol), not isinstance(expected, SeenTensor)
    other: Any = _wide(expected) if plain else expected.values
    if (one.dtype == torch.bool) != (other.dtype == torch.bool):
        return False, f"the dtype {one.dtype}, not {other.dtype}"
    if one.shape != other.shape:
        return False, f"the shape {tuple(one.shape)}, not {tuple(other.shape)}"
    if exact and not plain and one.dtype != other.dtype:
        return False, f"the dtype {one.dtype}, not {other.dtype}"
    wide = torch.complex128 if one.is_complex() or other.is_complex() else torch.float64
    if exact and not plain:
        wrong = one != other
    else:
        near = functools.partial(torch.isclose, one.to(wide), other.to(wide))
        wrong = ~near(rtol=rtol, atol=atol)
        if exact and found.dtype in _ROUNDED:
            wrong &= ~near(rtol=_ROUNDED[found.dtype], atol=0.0) | (one != other.to(one.dtype))
    met = not wrong.any()
    if met or one.numel() <= SHOWN:
        return met, ""
    places, apart = _places(wrong, one, other), _apart(found, expected)
    if exact:
        return False, f"{places}; they differ by up to {apart:.3g}"
    return False, f"{_difference(apart, rtol, atol)}; {places}"


def _wide(numbers: Any) -> torch.Tensor:
    """Numbers of a check as a tensor, not rounded; truth values stay what they are."""
    import torch

    made = torch.as_tensor(numbers)
    return torch.as_tensor(numbers, dtype=torch.float64) if made.is_floating_point() else made


def _difference(apart: float, rtol: float, atol: float) -> str:
    """How far apart numbers are, and may be."""
    allowed = [f"{100 * rtol:g}%"] * bool(rtol) + [f"{atol:g}"] * bool(atol)
    return f"the largest difference is {apart:.3g} (tolerance: {' + '.join(allowed) or 'none'})"


def _apart(found: Any, expected: Any) -> float:
    """The largest difference between numbers, in tensors and containers."""
    import torch

    if isinstance(found, (list, tuple)) and isinstance(expected, (list, tuple)):
        return max((_apart(one, other) for one, other in zip(found, expected, strict=False)), default=0.0)
    if isinstance(found, dict) and isinstance(expected, dict):
        return max((_apart(found[key], expected[key]) for key in found.keys() & expected.keys()), default=0.0)
    tensors = [one.values if isinstance(one, SeenTensor) else one for one in (found, expected)]
    if not all(isinstance(one, (int, float, complex, list, tuple, torch.Tensor)) for one in tensors):
        return 0.0
    one, other = (torch.as_tensor(item) for item in tensors)
    wide = torch.complex128 if one.is_complex() or other.is_complex() else torch.float64
    return float((one.to(wide) - other.to(wide)).abs().max()) if one.numel() and other.numel() else 0.0


def _first_numbers(found: Any, most: int = 4) -> str | None:
    """The first numbers of the first tensor that is too large to be shown; None if there is none."""
    if isinstance(found, (list, tuple)):
        return next((text for item in found if (text := _first_numbers(item)) is not None), None)
    if isinstance(found, dict):
        return _first_numbers(list(found.values()))
    if not isinstance(found, SeenTensor) or found.values is None or found.numel <= SHOWN:
        return None
    first = found.values.flatten()[:most].tolist()
    numbers = ", ".join(f"{one:.4g}" if isinstance(one, float) else str(one) for one in first)
    return f"{numbers}, … ({value(found)})"


def _places(wrong: torch.Tensor, found: torch.Tensor, expected: torch.Tensor) -> str:
    """How many numbers of a tensor are wrong, and the first of them."""
    place = tuple(wrong.nonzero()[0].tolist())
    where = f" at [{', '.join(map(str, place))}]" if place else ""
    first = f"{found[place].item():.4g}, not {expected[place].item():.4g}"
    return f"{int(wrong.sum()):,} of {wrong.numel():,} are wrong, the first{where}: {first}"


@expectation()
def values(found: Sequence[Any], expected: Sequence[Any], *, rtol: float = 1e-4, **said: Unpack[Said]) -> bool:
    """Expect several numbers up to rounding; each right one earns its share of the points."""
    right = [_same(one, other, rtol, 1e-6)[0] for one, other in zip(found, expected, strict=False)]
    credit = sum(right) / max(len(expected), 1)
    what = f"all of {subject('the values')} are right"
    count = f"{sum(right)} of {len(expected)} right"
    return report(said, met=len(right) == len(expected) and all(right), what=what, found=count, credit=credit)


@expectation()
def true(condition: Any, sentence: str, *, found: str = "", **said: Unpack[Said]) -> bool:
    """Expect that a condition is true; `sentence` says what should be true, and `found` what was found instead."""
    if isinstance(condition, Opaque):
        found = f"{value(condition)}, which is neither true nor false"
    met = _truth(condition)
    return report(said, met=met, what=sentence, found="" if met else f"{found}" or "this is false")


def _truth(condition: Any) -> bool:
    """Whether a condition is true; a tensor or an array of one element is as that element."""
    if isinstance(condition, SeenTensor):
        return condition.values is not None and condition.numel == 1 and bool(condition.values.item())
    return not isinstance(condition, Opaque) and bool(condition)


def plain_number(found: Any) -> Any:
    """The number in a tensor or an array of one element; anything else as it is."""
    if isinstance(found, SeenTensor) and found.numel == 1 and found.values is not None:
        return found.values.item()
    return found


@expectation()
def at_most(found: float, limit: float, *, unit: str = "", **said: Unpack[Said]) -> bool:
    """Expect a number to be at most `limit`. An infinite one stands for what a check has not measured."""
    found = plain_number(found)
    if not isinstance(found, (int, float)):
        return report(said, met=False, what=f"{subject('it')} is a number", found=value(found), hint=_UNSET)
    text = f"{limit:g} {unit}".strip()
    what = f"{subject('it')} is at most {text}"
    expected = "" if text in said.get("what", what) else f"at most {text}"
    text = f"{found:g} {unit}".strip() if found != math.inf else "it was not measured"
    return report(said, met=found <= limit, what=what, expected=expected, found=text)


@expectation()
def choice(
    answer: Any, right: str, *, because: Mapping[str, str] | None = None, salt: str = "", **said: Unpack[Said]
) -> bool:
    """Expect the right answer to a multiple-choice question, such as ``"b"``.

    Parameters
    ----------
    answer
        The student's.
    right
        The right answer, or its `digest`, so that students cannot read it in the notebook.
    because
        By wrong answer, what is wrong with it; "" stands for all that are not listed.
    salt
        The salt that the digest was made with.
    """
    given = (answer if isinstance(answer, str) else value(answer)).strip().lower()
    hidden = _DIGEST.fullmatch(right) is not None  # it can be read in the check, and must not be the answer
    met = digest(given, salt) == right if hidden else given == right.lower()
    described = value(answer) if answer is not Ellipsis else "no answer yet"
    hint = _UNSET if answer is Ellipsis else (because or {}).get(given, (because or {}).get("", ""))
    return report(said, met=met, what=f"{subject('the answer')} is the right one", found=described, hint=hint)


def digest(answer: str, salt: str = "") -> str:
    """A short hash that stands in a check for the right answer: it keeps honest people honest.

    >>> digest("b", "streams")
    '2116d7'
    """
    return hashlib.sha256(f"{salt}:{answer.strip().lower()}".encode()).hexdigest()[:6]


@expectation(tensor=places)
def shape(tensor: Any, expected: Sequence[int], **said: Unpack[Said]) -> bool:
    """Expect a tensor's shape."""
    found = tensor.shape if isinstance(tensor, SeenTensor) else None
    met = found is not None and found == tuple(expected)
    described = str(found) if found is not None else f"{value(tensor)}, which has no shape"
    name = subject("the tensor")
    return report(said, met=met, what=f"{name} has the shape {tuple(expected)}", found=described)


@expectation(thing=places)
def dtype(thing: Any, expected: torch.dtype, **said: Unpack[Said]) -> bool:
    """Expect the dtype of a tensor, or of every floating-point tensor in a module."""
    wanted = value(expected)
    found = [(name, one) for name, one in tensors(thing) if isinstance(thing, SeenTensor) or one.is_floating_point]
    others = [f"{name} {one.dtype}".strip() for name, one in found if one.dtype != wanted]
    name = subject("the tensor")
    described = ", ".join(others[:3]) if found else f"{value(thing)}, which holds no tensor"
    return report(said, met=bool(found) and not others, what=f"{name} has the dtype {wanted}", found=described)


@expectation("thing", "kind", thing=type_of, kind=named)
def instance(thing: Any, kind: type, **said: Unpack[Said]) -> bool:
    """Expect a value to be an instance of a type."""
    found, wanted = (one for one in (thing, kind) if isinstance(one, SeenType))
    what = f"{subject('the value')} is a {wanted.name}"
    hint = _UNSET if found.name == "ellipsis" else ""
    article = "an" if found.name[:1] in "aeiouAEIOU" else "a"
    return report(said, met=wanted.names[0] in found.names, what=what, found=f"{article} {found.name}", hint=hint)
