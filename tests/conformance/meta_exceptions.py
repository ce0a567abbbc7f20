"""Entries of torch's operator database that need values, or lay their results out otherwise, under ``compute="meta"``.

`test_op_db_meta` holds both lists in step with the truth: an entry that starts to agree must be taken out.
"""

from fakegpu_lab.driver.base.cuda_messages import TORCH_VERSION

_SIZE = "the size of the result depends on values"
_READS = "torch itself reads a value on the host, on a card too"
_NO_SHAPES = "torch has no shape function for it"
_FACTORS = "CPU and shape function give factors of equal shapes and other strides"

EXCEPTIONS = {
    "allclose": _READS,
    "argwhere": _SIZE,
    "bincount": _SIZE,
    "corrcoef": _READS,
    "cov": _READS,
    "equal": _READS,
    "istft": _READS,
    "item": _READS,
    "linalg.lstsq": _NO_SHAPES,
    "linalg.lstsq.grad_oriented": _NO_SHAPES,
    "masked_select": _SIZE,
    "narrow": _READS,
    "nn.functional.ctc_loss": "lengths given as a tensor on the device are read on the host",
    "nn.functional.gaussian_nll_loss": _READS,
    "nn.functional.one_hot": _SIZE,
    "nonzero": _SIZE,
    "sparse.sampled_addmm": _NO_SHAPES,
    "to_sparse": _SIZE,
    "unique": _SIZE,
    "unique_consecutive": _SIZE,
}

if TORCH_VERSION < (2, 15):  # which counts them beforehand
    EXCEPTIONS["combinations"] = _SIZE

STRIDES = {
    "fft.rfftn": "the CPU's FFT library returns another order of the axes",
    "linalg.eig": _FACTORS,
    "pca_lowrank": _FACTORS,
    "svd_lowrank": _FACTORS,
}
