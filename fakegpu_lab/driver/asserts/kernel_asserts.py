"""The asserts in CUDA's kernels: file, line, kernel and condition.

They are from PyTorch 2.14's CUDA build (earlier versions differ where noted). The sources are
aten/src/ATen/native/cuda/*.cu; a few line numbers differ between builds.
"""

from __future__ import annotations

from typing import NamedTuple

from fakegpu_lab.driver.base.cuda_messages import TORCH_VERSION

_SOURCES = ("/__w/pytorch" if TORCH_VERSION >= (2, 13) else "") + "/pytorch"
_ROOT = f"{_SOURCES}/aten/src/ATen/native/cuda"
_NEW = TORCH_VERSION >= (2, 14)


class Site(NamedTuple):
    """One CUDA_KERNEL_ASSERT."""

    file: str
    line: int
    kernel: str
    condition: str
    folder: str = _ROOT

    def text(self, block: int, thread: int) -> str:
        """The line that a failing thread prints (CUDA's device-side ``__assert_fail``)."""
        return (
            f"{self.folder}/{self.file}:{self.line}: {self.kernel}: block: [{block},0,0], thread: [{thread},0,0] "
            f"Assertion `{self.condition}` failed."
        )


VECTOR = Site(
    "IndexKernelUtils.cu", 19 if _NEW else 16, "vectorized_gather_kernel",
    'ind >=0 && ind < ind_dim_size && "vectorized gather kernel index out of bounds"',
)  # fmt: skip
SELECT = Site("Indexing.cu", 1558, "indexSelectSmallIndex", "srcIndex < srcSelectDimSize")
GATHER = Site(
    "ScatterGatherKernel.cu", 203, "operator()",
    'idx_dim >= 0 && idx_dim < index_size && "scatter gather kernel index out of bounds"',
)  # fmt: skip
SCATTER_VALUE = Site(
    "ScatterGatherKernel.cu", 450, "operator()", 'idx_dim >= 0 && idx_dim < index_size && "index out of bounds"'
)
INDEX = Site("IndexKernel.cu", 111, "operator()", '-sizes[i] <= index && index < sizes[i] && "index out of bounds"')
FILL = Site(
    "IndexKernel.cu", 154, "operator()", 'idx >= -self_dim_size && idx < self_dim_size && "index out of bounds"'
)
COPY = Site(
    "IndexKernel.cu", 193, "operator()", 'idx >= 0 && idx < self_dim_size && "index_copy_(): index out of bounds"'
)
TAKE = Site(
    "IndexKernel.cu", 343, "operator()", 'idx < numel && idx >= -numel && "cuda_take_put_kernel() index out of bounds"'
)
MASKED = Site("IndexKernel.cu", 404, "masked_scatter_size_check", "totalElements <= srcSize")
ADD_SMALL = Site("Indexing.cu", 1035, "indexFuncSmallIndex", "dstIndex < dstAddDimSize")
ADD_LARGE = Site("Indexing.cu", 1094, "indexFuncLargeIndex", "dstIndex < dstAddDimSize")
_LABEL, _CLASS = "cur_target >= 0 && cur_target < n_classes", "t >= 0 && t < n_classes"
_LATER = 0 if _NEW else 1  # in 2.14, Loss.cu has one line less above its loss kernels
NLL_EACH = Site("Loss.cu", 179 + _LATER, "nll_loss_forward_no_reduce_cuda_kernel", _LABEL)
NLL_ONE = Site("Loss.cu", 200 + _LATER, "nll_loss_forward_reduce_cuda_kernel_1d", _CLASS)
NLL = Site("Loss.cu", 244 + _LATER, "nll_loss_forward_reduce_cuda_kernel_2d", _CLASS)
NLL2D_EACH = Site("NLLLoss2d.cu", 75, "nll_loss2d_forward_no_reduce_kernel", _LABEL)
NLL2D = Site("NLLLoss2d.cu", 108, "nll_loss2d_forward_kernel", _CLASS)
BCE_INPUT = Site("Loss.cu", 89 + _LATER, "operator()", "input_val >= zero && input_val <= one")
BCE_TARGET = Site("Loss.cu", 90 + _LATER, "operator()", "target_val >= zero && target_val <= one")
MARGIN = Site(
    "MultiMarginLoss.cu", 34, "MultiMarginLoss_forward_kernel",
    'target_k >= 0 && target_k < dim && "target index is out of bounds"',
)  # fmt: skip
RENORM = Site(
    "Embedding.cu",
    208,
    "renorm_kernel",
    'index >= 0 && index < num_weights && "embedding_renorm_: index out of bounds"',
)
UNPOOL = Site("MaxUnpooling.cu", 47, "max_unpooling2d_forward_kernel", "maxind >= 0 && maxind < outputImageSize")
REPEAT = Site("Repeat.cu", 36, "compute_cuda_kernel", "repeat >= 0 && start >= 0 && end <= result_size")
_BAG_WORDS = '!has_invalid_index && "Invalid input index in EmbeddingBag: index out of range [0, numRows)"'
BAG = Site("EmbeddingBag.cu", 148, "EmbeddingBag_updateOutputKernel_sum_mean", _BAG_WORDS)
BAG_MAX = Site("EmbeddingBag.cu", 88, "EmbeddingBag_updateOutputKernel_max", _BAG_WORDS)
NAN_SENT = Site(
    "NanCheck.cu", 217, "checkForNaN", "!isnan(tailPtr[threadIdx.x])", f"{_SOURCES}/torch/csrc/distributed/c10d"
)
SAMPLE = {
    "negative": Site("MultinomialKernel.cu", 218, "sampleMultinomialOnce", "!(val < zero)"),
    "infinite": Site("MultinomialKernel.cu", 217, "sampleMultinomialOnce", "!_isinf(val)"),
    "nan": Site("MultinomialKernel.cu", 216, "sampleMultinomialOnce", "!at::_isnan(val)"),
    "sum": Site("MultinomialKernel.cu", 229, "sampleMultinomialOnce", "sum > accZero"),
}


def asserting(message: str) -> Site:
    """The assert of `torch._assert_async`."""
    return Site("TensorCompare.cu", 112, "_assert_async_cuda_kernel", message)


def bernoulli(slot: int) -> Site:
    """The assert of probability number `slot` (1 to 4) of the four that a thread draws with."""
    return Site("DistributionTemplates.h", 644 - 5 * slot, "operator()", f"0 <= p{slot} && p{slot} <= 1")
