"""Entries of torch's operator database that do not agree with the CPU on ``cuda:0``, each with its reason.

`test_op_db` holds this list in step with the truth: an entry that starts to agree must be taken out.
"""

_JITERATOR = "jiterator compiles CUDA source at run time; there is no CUDA compiler (CPU torch refuses it too)"
_NO_CPU = "torch has no CPU kernel to compare with, or to compute with"
_CPU_ONLY = "CUDA has no such kernel; the simulation refuses as CUDA does"

EXCEPTIONS = {
    "as_strided.partial_views": "the sample is a view into a larger storage; moving it copies the view only",
    "histogram": _CPU_ONLY,
    "histogramdd": _CPU_ONLY,
    "jiterator_2inputs_2outputs": _JITERATOR,
    "jiterator_4inputs_with_extra_args": _JITERATOR,
    "jiterator_binary": _JITERATOR,
    "jiterator_binary_return_by_ref": _JITERATOR,
    "jiterator_unary": _JITERATOR,
    "nn.functional.batch_norm.without_cudnn": "the database has no sample of it for the CPU",
    "sparse.mm.reduce": "CUDA has no such kernel (SparseCsrCPU only); the simulation refuses as CUDA does",
    "torch._scaled_mm": _NO_CPU,
    "torch._scaled_mm_v2": _NO_CPU,
    "torch.ops.aten._efficient_attention_forward": _NO_CPU,
    "torch.ops.aten._flash_attention_forward": _NO_CPU,
}

MODULE_EXCEPTIONS: dict[str, str] = {}
"""Modules of torch's module database (`test_module_db`)."""

_CUDNN_RNN = "cudnn RNN backward can only be called in training mode"

NO_BACKWARD_IN_EVALUATION = {"nn.GRU": _CUDNN_RNN, "nn.LSTM": _CUDNN_RNN, "nn.RNN": _CUDNN_RNN}
"""Modules whose backward CUDA refuses in evaluation mode, and its sentence; forward is compared."""

OPTIMIZER_EXCEPTIONS: dict[str, str] = {
    "SparseAdam": "`coalesce` of a sparse tensor on a device reaches C++, which sees a strided one",
}
"""Optimizers of torch's database (`test_optim_db`)."""
