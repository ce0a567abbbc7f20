"""Entries of torch's operator database that do not agree with the CPU on ``cuda:0``, each with its reason.

`test_op_db` holds this list in step with the truth: an entry that starts to agree must be taken out.
"""

from fakegpu_lab.driver.base.cuda_messages import TORCH_VERSION

_JITERATOR = "jiterator compiles CUDA source at run time; there is no CUDA compiler (CPU torch refuses it too)"
_NO_CPU = "torch has no CPU kernel to compare with, or to compute with"

EXCEPTIONS = {
    "jiterator_2inputs_2outputs": _JITERATOR,
    "jiterator_4inputs_with_extra_args": _JITERATOR,
    "jiterator_binary": _JITERATOR,
    "jiterator_binary_return_by_ref": _JITERATOR,
    "jiterator_unary": _JITERATOR,
    "torch.ops.aten._efficient_attention_forward": _NO_CPU,
}

_NO_HALF_FFT = "Fourier transforms of halves are not simulated: torch refuses them for every device but CUDA's own"
_FFT = [f"fft.{name}{form}" for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft") for form in ("", "2", "n")]

DTYPE_EXCEPTIONS: dict[str, str] = {}
"""Entries that do not agree in one dtype, as `name-dtype`."""
if TORCH_VERSION >= (2, 15):  # which lists them in bfloat16
    DTYPE_EXCEPTIONS.update({f"{name}-bfloat16": _NO_HALF_FFT for name in (*_FFT, "stft")})
    DTYPE_EXCEPTIONS["sparse.sampled_addmm-bfloat16"] = _NO_CPU
if TORCH_VERSION < (2, 13):
    DTYPE_EXCEPTIONS["nn.functional.linear-complex64"] = "2.10 derives a complex linear only where it is several ops"
    DTYPE_EXCEPTIONS["trace-bfloat16"] = _NO_CPU
    DTYPE_EXCEPTIONS["cumprod-bfloat16"] = "2.10's formula of the gradient rounds in another order"

_OUT_DTYPE = "chunked losses multiply with another out_dtype, which is not simulated"
if TORCH_VERSION >= (2, 13):
    for _kind in ("chunked", "chunked_none"):
        DTYPE_EXCEPTIONS[f"nn.functional.linear_cross_entropy.{_kind}-bfloat16"] = _OUT_DTYPE
for _name in ("linalg.lstsq", "linalg.lstsq.grad_oriented"):
    DTYPE_EXCEPTIONS[f"{_name}-float32"] = "for the CPU, the database lists drivers that CUDA refuses"

WRONG_ON_SOME_CPUS = {"matrix_exp", "nn.functional.conv_transpose1d", "nn.functional.conv_transpose2d",
                      "nn.functional.conv_transpose3d"}  # fmt: skip
"""Entries that the CPU itself computes wrongly in bfloat16, on some processors: exp of the identity is -1e30 there."""

NOT_COMPARED = {
    "torch._scaled_mm": "the database lists float8 only, and for cards that the CPU build does not see",
    "torch._scaled_mm_v2": "the database lists float8 only, and for cards that the CPU build does not see",
    "torch.ops.aten._flash_attention_forward": "the database lists float16 only",
}
"""Entries that the database lists for CUDA, in none of the dtypes compared."""

MODULE_EXCEPTIONS: dict[str, str] = {}
"""Modules of torch's module database (`test_module_db`)."""

_CUDNN_RNN = "cudnn RNN backward can only be called in training mode"

NO_BACKWARD_IN_EVALUATION = {"nn.GRU": _CUDNN_RNN, "nn.LSTM": _CUDNN_RNN, "nn.RNN": _CUDNN_RNN}
"""Modules whose backward CUDA refuses in evaluation mode, and its sentence; forward is compared."""

OPTIMIZER_EXCEPTIONS: dict[str, str] = {}
"""Optimizers of torch's database (`test_optim_db`)."""
