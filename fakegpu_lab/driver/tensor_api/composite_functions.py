"""Composite functions that check devices in C++ before any kernel: makes their errors and paths those of CUDA devices.

C++ knows our devices under another name (`base.privateuse1`), and treats them differently from CUDA's in some places.
"""

from __future__ import annotations

import functools
from types import NoneType
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812 - its name everywhere
from torch.overrides import has_torch_function_unary

from fakegpu_lab.driver.asserts import domain_edges
from fakegpu_lab.driver.autocast import casts
from fakegpu_lab.driver.base import cuda_messages
from fakegpu_lab.driver.base.changes import wrapped
from fakegpu_lab.driver.base.privateuse1 import NAME
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.placement.dtypes import cpp_name
from fakegpu_lab.driver.placement.mismatch_errors import check_one_device

if TYPE_CHECKING:
    from collections.abc import Callable


_FUNCTIONS = (
    ("torch", ("inner", "take_along_dim", "tensor_split", "gradient", "_weight_norm")),
    ("torch._VF", ("stft", "istft", "tensordot", "chain_matmul", "lstm", "gru", "rnn_tanh", "rnn_relu")),
    ("torch.linalg", ("multi_dot",)),
    ("torch.Tensor", ("inner", "take_along_dim", "tensor_split")),
)
"""Functions whose own checks print a device."""


def _cuda_named(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, with CUDA's names in its errors."""

    @functools.wraps(function)
    def composite(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except RuntimeError as error:
            if NAME not in str(error):
                raise
            raise cuda_messages.with_cuda_name(error) from None

    return composite


def _matrix_rank(original: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.linalg.matrix_rank`, which leaves ``out=`` as it is where the matrix is of a subclass such as ours."""

    @functools.wraps(original)
    def matrix_rank(A: Any, *args: Any, out: Any = None, **options: Any) -> Any:  # noqa: N803 - torch's name
        ranks = original(A, *args, **options)
        return ranks if out is None else out.resize_(ranks.shape).copy_(ranks)

    return matrix_rank


def _rms_norm(original: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.rms_norm`, with the check of CUDA's fused kernel."""

    @functools.wraps(original)
    def rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Any:  # noqa: A002
        if weight is not None and (input.__class__ is FakeCudaTensor or weight.__class__ is FakeCudaTensor):
            check_one_device([("input", input), ("weight", weight)], "__fused_rms_norm")
        return original(input, normalized_shape, weight, eps)

    return rms_norm


def _has_a_function_of_its_own(value: Any) -> bool:
    kind = value.__class__
    if (
        kind in (torch.Tensor, FakeCudaTensor, NoneType)
        or getattr(kind, "__torch_function__", None) is torch._C._disabled_torch_function_impl
    ):
        return False  # `has_torch_function` also looks at modes, such as those that trace
    return has_torch_function_unary(value)


def _attention(original: Callable[..., Any]) -> Callable[..., Any]:
    """`F.scaled_dot_product_attention`: compares dtypes and devices first, a mask's as the efficient kernel does.

    aten/src/ATen/native/transformers/attention.cpp, validate_sdpa_input.
    """

    @functools.wraps(original)
    def scaled_dot_product_attention(
        query: Any, key: Any, value: Any, attn_mask: Any = None, *rest: Any, **options: Any
    ) -> Any:
        if _has_a_function_of_its_own(attn_mask):  # a bias of torch.nn.attention.bias
            cls, function = attn_mask.__class__, F.scaled_dot_product_attention
            return cls.__torch_function__(function, (cls,), (query, key, value, attn_mask, *rest), options)
        q, k, v = (casts.lower_precision(tensor) for tensor in (query, key, value))
        if not q == k == v:
            raise RuntimeError(
                f"Expected query, key, and value to have the same dtype, but got query.dtype: {cpp_name(q)} "
                f"key.dtype: {cpp_name(k)} and value.dtype: {cpp_name(v)} instead."
            )
        if not query.device == key.device == value.device:
            raise RuntimeError(
                "Expected query, key, and value to have the same device type, but got query.device: "
                f"{query.device} key.device: {key.device} and value.device: {value.device} instead."
            )
        if attn_mask is not None:
            check_one_device([("query", query), ("attn_bias", attn_mask)], "__scaled_dot_product_efficient_attention")
        return original(query, key, value, attn_mask, *rest, **options)

    return scaled_dot_product_attention


def _ctc_loss(original: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.ctc_loss`, given lists as lengths: C++ copies tensors to the host, but not subclasses such as ours.

    aten/src/ATen/native/LossCTC.cpp, ctc_loss: a tensor of any shape counts, also one without dimensions.
    """

    @functools.wraps(original)
    def ctc_loss(
        log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if log_probs.__class__ is FakeCudaTensor:
            input_lengths = _as_list(input_lengths, "input_lengths")
            target_lengths = _as_list(target_lengths, "target_lengths")
        return original(log_probs, targets, input_lengths, target_lengths, *args, **kwargs)

    return ctc_loss


def _as_list(lengths: Any, name: str) -> Any:
    if not isinstance(lengths, torch.Tensor):
        return lengths
    if lengths.dtype not in _INTEGERS:
        raise RuntimeError(f"{name} must be integral")
    return lengths.reshape(-1).tolist()


_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


_WHY = "composed of other ops: CUDA's own kernel has another name, result or error"


CHANGES = [
    *(wrapped(f"{owner}.{name}", _cuda_named, _WHY) for owner, names in _FUNCTIONS for name in names),
    wrapped("torch.linalg.matrix_rank", _matrix_rank, _WHY),
    wrapped("torch.rms_norm", _rms_norm, _WHY),
    wrapped("torch.ctc_loss", _ctc_loss, _WHY),
    wrapped("torch.nn.functional.one_hot", domain_edges.one_hot, _WHY),
    wrapped("torch.nn.functional.scaled_dot_product_attention", _attention, _WHY),
]
