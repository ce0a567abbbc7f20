"""``torch.use_deterministic_algorithms``: an error or a warning for each op whose CUDA kernel is not deterministic.

The ops and names are those of `alertNotDeterministic` in aten/src/ATen/native, for CUDA 12 and newer. The sentences are
those of aten/src/ATen/Context.cpp; warnings leave out C++'s own line ("Triggered internally at …"). The results are
the CPU's in every mode, and the time is that of the usual kernels.

The op sheet says which ops alert (`Row.alert`). Not among them: `cumsum`, whose scan is deterministic since CUDA 11.4,
and what the CPU's own code alerts on in the same words: `max_unpool2d`, `max_unpool3d`, a `put_` that does not add.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.user_code import warning_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op, Plan
    from fakegpu_lab.driver.cost.op_row import Arguments

    Alert = Callable[[Arguments], None]


def with_alerts(op: Op, plan: Plan) -> Plan:
    """`plan`, after the op's alert, if the mode is on; plans must be made again when it is switched."""
    if not torch.are_deterministic_algorithms_enabled():
        return plan
    alert = op.row.alert
    if alert is None:
        return plan

    def alerting(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if any(value.__class__ is FakeCudaTensor for value in (*args, *kwargs.values())):
            alert({**dict(zip(op.arguments, args, strict=False)), **kwargs})
        return plan(args, kwargs)

    return alerting


def _raise_or_warn(error: str, warning: str) -> None:
    if torch.is_deterministic_algorithms_warn_only_enabled():
        warning_lines.warn(warning)
    else:
        raise RuntimeError(error)


def _not_deterministic(kernel: str) -> None:
    """`Context::alertNotDeterministic`."""
    start = (
        f"{kernel} does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True"
    )
    end = (
        "file an issue at https://github.com/pytorch/pytorch/issues "
        "to help us prioritize adding deterministic support for this operation."
    )
    _raise_or_warn(
        f"{start})'. You can turn off determinism just for this operation, or you can use the 'warn_only=True' option, "
        f"if that's acceptable for your application. You can also {end}",
        f"{start}, warn_only=True)'. You can {end}",
    )


def alert_if(kernel: str, condition: Callable[[Arguments], bool]) -> Alert:
    """For `Row.alert`: the kernel is not deterministic with some arguments."""

    def alert(a: Arguments) -> None:
        if condition(a):
            _not_deterministic(kernel)

    return alert


def alert(kernel: str) -> Alert:
    """For `Row.alert`: the kernel is not deterministic."""
    return alert_if(kernel, lambda a: True)


def cudnn_samples(a: Arguments) -> bool:
    """Whether cuDNN has this backward (GridSampler.cpp, grid_sampler); only its conditions on sizes are left out."""
    bilinear_of_zeros = a["interpolation_mode"] == 0 and a["padding_mode"] == 0
    usable = torch.backends.cudnn.enabled and a["input"].dtype in (torch.float16, torch.float32, torch.float64)
    return bool(bilinear_of_zeros and a["align_corners"] and usable and a["input"].shape[1] <= 1024)


def alert_once(kernel: str) -> Alert:
    """The warning of attention's backward, with ``warn_only=True`` (transformers/cuda/attention_backward.cu)."""
    text = (
        f"{kernel} defaults to a non-deterministic algorithm. To explicitly enable determinism call "
        "torch.use_deterministic_algorithms(True, warn_only=False)."
    )

    def alert(a: Arguments) -> None:
        if torch.is_deterministic_algorithms_warn_only_enabled() and (
            kernel not in _warned or torch.is_warn_always_enabled()
        ):
            _warned.add(kernel)
            warning_lines.warn(text)

    return alert


_warned: set[str] = set()


# ------------------------------------------------------------------------------ cuBLAS

_cublas_is_deterministic: bool | None = None


def reset() -> None:
    """Forget what was warned of, and whether CUBLAS_WORKSPACE_CONFIG was set, as in a new process."""
    global _cublas_is_deterministic
    _cublas_is_deterministic = None
    _warned.clear()


def cublas(a: Arguments) -> None:
    """`Context::alertCuBLASConfigNotDeterministic`, in which a process reads the environment only once.

    Simplified: the first product in the mode reads it, on CUDA the first product of all.
    """
    global _cublas_is_deterministic
    if _cublas_is_deterministic is None:
        _cublas_is_deterministic = os.environ.get("CUBLAS_WORKSPACE_CONFIG") in (":4096:8", ":16:8")
    if _cublas_is_deterministic or _without_cublas(a):
        return
    text = (
        "Deterministic behavior was enabled with either `torch.use_deterministic_algorithms(True)` or "
        "`at::Context::setDeterministicAlgorithms(true)`, but this operation is not deterministic because it uses "
        "CuBLAS and you have CUDA >= 10.2. To enable deterministic behavior in this case, you must set an environment "
        "variable before running your PyTorch application: CUBLAS_WORKSPACE_CONFIG=:4096:8 or "
        "CUBLAS_WORKSPACE_CONFIG=:16:8. For more information, go to "
        "https://docs.nvidia.com/cuda/cublas/index.html#results-reproducibility"
    )
    _raise_or_warn(text, text)


def _without_cublas(a: Arguments) -> bool:
    """Whether nothing is multiplied, or cuBLASLt adds a bias to the product (cuda/Blas.cpp, addmm_out_cuda_impl)."""
    tensors = [value for value in a.values() if isinstance(value, torch.Tensor)]
    if any(tensor.numel() == 0 for tensor in tensors):
        return True
    if "output_mask" in a:  # linear_backward: the bias is only summed
        return not any(a["output_mask"][:2])
    if "weight" in a:  # linear
        bias, features, source = a.get("bias"), a["weight"].shape, a.get("input")
        flat = source is not None and (source.dim() == 2 or source.is_contiguous())
        return bias is not None and bias.dim() == 1 and bool(flat) and min(features) > 1
    if "mat2" in a and "self" in a:
        bias = a["self"]
        fits = bias.dim() == 1 and bias.numel() == a["mat2"].shape[1] and bias.is_contiguous()
        return bool(fits and a.get("beta", 1) == 1 and min(a["mat2"].shape) > 1)
    return False
