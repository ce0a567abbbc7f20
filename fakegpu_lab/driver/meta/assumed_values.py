"""``compute="meta"``: the values that libraries get when they read a tensor, and the errors of other reads.

A user's ``loss.item()`` is an error. But some functions of libraries read a tensor themselves, also on a real GPU, to
decide how to continue. They get the values of a run without problems, so that programs work unchanged:

- `GradScaler` finds no infinite gradient and steps;
- a square mask passed to `nn.Transformer` without ``is_causal`` counts as the causal one;
- `nn.init.trunc_normal_` redraws as often as expected for that number of elements;
- `AveragedModel` copies the parameters at its first update and averages at the others;
- the numbers that `ASGD` and `Adafactor` compute on the host are computed from ones;
- the masks that transformers' models get hide no token, so that attention needs none, and no sequence is packed.

On a real GPU such a read is a copy to the host, so it is counted as one.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.changes import imported, replaced, wrapped
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.copies import transfer
from fakegpu_lab.driver.copies.transfer import NoValuesError, no_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from fakegpu_lab.driver.base.changes import Change


def _assuming(function: Any, answers: Callable[..., Iterator[Any]]) -> Any:
    """`function`, whose reads get the values of the iterator `answers(*arguments)`, one after the other."""

    @functools.wraps(function)
    def assuming(*args: Any, **kwargs: Any) -> Any:
        thread = transfer.thread
        before, thread.answers = thread.answers, answers(*args, **kwargs)
        try:
            return function(*args, **kwargs)
        finally:
            thread.answers = before

    return assuming


def _ones(*args: Any, **kwargs: Any) -> Iterator[Any]:
    return itertools.repeat(1.0)


def _always(*args: Any, **kwargs: Any) -> Iterator[Any]:
    return itertools.repeat(True)


def _yes(*args: Any, **kwargs: Any) -> Iterator[Any]:
    return iter((True,))


def _redraws(tensor: torch.Tensor, mean: float, std: float, a: float, b: float, **kwargs: Any) -> Iterator[Any]:
    """Whether a sample is outside [a, b], read after every draw: True for each redraw, then False.

    A draw is outside with probability q. The element that needs most of N is redrawn about
    ``(ln N + 0.577) / ln(1/q) - 1/2`` times (the mean of the maximum of N geometric variables).
    """
    inside = _normal_cdf((b - mean) / std) - _normal_cdf((a - mean) / std)
    if inside <= 0.3:  # torch then rejects uniform candidates by the density
        peak = math.exp(-0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2)
        inside *= std * math.sqrt(2 * math.pi) / ((b - a) * peak)
    outside = min(max(1 - inside, 1e-12), 1 - 1e-12)
    count = (math.log(max(tensor.numel(), 1)) + 0.577) / -math.log(outside) - 0.5
    return itertools.chain(itertools.repeat(True, max(round(count), 0)), (False,))


def _normal_cdf(x: float) -> float:
    return (1 + math.erf(x / math.sqrt(2))) / 2


_averaged: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
"""Every AveragedModel that has been updated."""


def _first_update(model: Any, *args: Any) -> Iterator[Any]:
    if model.n_averaged.__class__ is not FakeCudaTensor:
        return iter(())
    first = model not in _averaged
    _averaged.add(model)
    return iter((first, not first))  # n_averaged == 0? n_averaged > 0?


def _maybe_opt_step(self: Any, optimizer: Any, optimizer_state: Any, *args: Any, **kwargs: Any) -> Any:
    """`GradScaler._maybe_opt_step`, for which no gradient is infinite."""
    for found in optimizer_state["found_inf_per_device"].values():
        if found.__class__ is FakeCudaTensor:
            transfer.count_copy(transfer.usable(found)._device, None, found.element_size())
    return optimizer.step(*args, **kwargs)


_MASKS = (
    "_ignore_causal_mask_sdpa", "_ignore_bidirectional_mask_sdpa", "find_packed_sequence_indices",
    "create_recurrent_attention_mask",
)  # fmt: skip
"""Functions of transformers.masking_utils that look at values: whether a mask hides nothing, whether one row is one
sequence."""


def _assume_no_padding(masking: Any) -> list[Change]:
    return [
        wrapped(f"{masking.__name__}.{name}", lambda old: _assuming(old, _always), _WHY)
        for name in _MASKS
        if hasattr(masking, name)
    ]


def _of_every_average(get: Any) -> Any:
    return lambda: _assuming(get(), _ones)


_WHY = "without values, what a program would read is assumed"


_SIGNS = (
    "with Meta tensors",  # no shape function
    "Meta' backend",
    "register_meta function",  # nonzero
    "on meta tensors",  # item
    "a meta tensor",  # repeat_interleave
    "Cannot copy out of meta tensor",
)


def explained(func: Any, error: Exception) -> Exception:
    """`error`; if values are missing, an error that says so and what to do instead."""
    if not current.meta() or not isinstance(error, RuntimeError) or isinstance(error, NoValuesError):
        return error
    text = str(error)
    if any(sign in text for sign in _SIGNS):
        return no_values(f"torch.{func._schema.name.partition('::')[2]}")
    for pattern, message in _MESSAGES:
        match = pattern.search(text)
        if match is not None:
            return RuntimeError(message(*([int(n) for n in group.split(",") if n.strip()] for group in match.groups())))
    return error


def _cannot_broadcast(b: list[int], a: list[int]) -> str:
    """ExpandUtils.cpp, `infer_size_impl`."""
    length = max(len(a), len(b))
    a, b = ([1] * (length - len(shape)) + shape for shape in (a, b))
    place = next(i for i in reversed(range(length)) if a[i] != b[i] and 1 not in (a[i], b[i]))
    return (
        f"The size of tensor a ({a[place]}) must match the size of tensor b ({b[place]}) "
        f"at non-singleton dimension {place}"
    )


def _cannot_multiply(a: list[int], b: list[int]) -> str:
    """Blas.cpp."""
    return f"mat1 and mat2 shapes cannot be multiplied ({a[0]}x{a[1]} and {b[0]}x{b[1]})"


_MESSAGES: tuple[tuple[re.Pattern[str], Callable[..., str]], ...] = (
    (
        re.compile(r"at index 1 had torch\.Size\(\[(.*?)\]\); but expected shape should be broadcastable to \[(.*?)\]"),
        _cannot_broadcast,
    ),
    (re.compile(r"a and b must have same reduction dim, but got \[(.*?)\] X \[(.*?)\]"), _cannot_multiply),
)
"""Errors of torch's Python shape functions, and a function that gives the kernel's message."""


CHANGES = [
    imported("transformers.masking_utils", _assume_no_padding, _WHY, when=current.meta),
    *(
        wrapped(path, partial(_assuming, answers=answers), _WHY, when=current.meta)
        for path, answers in (
            ("torch.nn.modules.transformer._detect_is_causal_mask", _yes),
            ("torch.nn.init._no_grad_trunc_normal_", _redraws),
            ("torch.optim.swa_utils.AveragedModel.update_parameters", _first_update),
            ("torch.optim.asgd.asgd", _ones),
            ("torch.optim._adafactor.adafactor", _ones),
        )
    ),
    wrapped("torch.optim.swa_utils.get_swa_multi_avg_fn", _of_every_average, _WHY, when=current.meta),
    replaced("torch.amp.grad_scaler.GradScaler._maybe_opt_step", _maybe_opt_step, _WHY, when=current.meta),
]
