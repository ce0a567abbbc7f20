"""The class of a kernel, which colours it in a timeline: matmul, elementwise, copy and others."""

from __future__ import annotations

import functools
import re

import torch

CLASSES = (
    "matmul", "convolution", "attention", "elementwise", "reduction", "normalization", "optimizer", "copy",
    "collective", "other",
)  # fmt: skip
"""In the order in which a legend shows them."""

_MATMUL = (
    r"^(_?(add|badd|int_|scaled_|sparse_|grouped_)*(mm|bmm|mv|bmv)_?|addbmm_?|_addmm_activation|linear(_backward)?|v?dot|"
    r"addr_?|einsum|matmul|_trilinear|bilinear|_?cudnn_rnn.*)$"
)
_COPY = (
    r"^(Mem(cpy|set).*|clone|copy_|_to_copy|contiguous|cat|stack|index.*|gather|scatter.*|embedding.*|flip|roll|repeat|"
    r"constant_pad_nd|tril_?|triu_?|.*(select|slice|narrow|unfold|expand|diagonal)_backward|_foreach_copy_)$"
)
_REDUCTION = (
    r"softmax|loss|cross_entropy|pool|norm|^(nan)?(cum)?(sum|prod|mean|var|std|max|min|amax|amin|aminmax|argmax|argmin|"
    r"argsort|logsumexp|any|all|median|mode|sort|topk|kthvalue|bincount|histc|count_nonzero|nonzero|equal|_?unique\d?)"
    r"(_|$)"
)
_ELEMENTWISE = (
    r"^(fill_?|zero_?|zeros|ones|full|rand|arange|linspace|eye|normal_?|uniform_?|bernoulli_?|.*dropout.*|masked_.*|where|"
    r"random_|exponential_|relu_?|threshold.*)"
)
_BY_PATTERN = [
    (re.compile(pattern), kind)
    for pattern, kind in (
        (_COPY, "copy"),
        (r"^(nccl|c10d)", "collective"),
        (r"^_(fused|foreach)_", "optimizer"),
        (r"attention", "attention"),
        (r"conv", "convolution"),
        (r"(batch|layer|group|instance|rms)_norm", "normalization"),
        (_MATMUL, "matmul"),
        (_ELEMENTWISE, "elementwise"),
        (_REDUCTION, "reduction"),
    )
]


_OP = re.compile(r"^(\w+::)?\w+(\.\w+)?$")
_FUNCTIONS = [
    (re.compile(pattern, re.IGNORECASE), kind)
    for pattern, kind in (
        (r"^Mem(cpy|set)|copy_kernel|direct_copy|CatArray|gather|scatter|index_|indexSelect|transpose", "copy"),
        (r"nccl", "collective"),
        (r"multi_tensor_apply|adam", "optimizer"),
        (r"flash|fmha|attention|softmax_warp_forward_fused", "attention"),
        (r"batch_?norm|layer_?norm|group_?norm|rms_?norm|bn_[fb]w", "normalization"),
        (r"conv|winograd|wgrad|dgrad|fprop|cudnn|nchw|nhwc", "convolution"),
        (r"gemm|gemv|cutlass|cublas|xmma|matmul|splitK", "matmul"),
        (r"softmax|reduce|triton_(red|per)_|norm", "reduction"),
        (r"elementwise|pointwise|triton_poi|fill|dropout|distribution", "elementwise"),
    )
]
"""What a kernel of a real card does, by the name of its function, if no op is known."""


@functools.lru_cache(maxsize=4096)
def class_of(name: str) -> str:
    """The class of a kernel, by its op's name, or by its function's if it has no op: one of `CLASSES`.

    >>> class_of("aten::addmm"), class_of("aten::gelu_backward"), class_of("aten::native_layer_norm")
    ('matmul', 'elementwise', 'normalization')
    >>> class_of("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64>(int)"), class_of("triton_poi_fused_add_0")
    ('matmul', 'elementwise')
    """
    if not _OP.match(name):
        return _of_function(name)
    namespace, _, short = name.rpartition("::")
    for pattern, kind in _BY_PATTERN:
        if pattern.search(short):
            return kind
    packet = getattr(getattr(torch.ops, namespace or "aten"), short, None)
    if isinstance(packet, torch._ops.OpOverloadPacket):
        overloads: list[str] = packet.overloads()  # type: ignore[no-untyped-call]
        tags = {tag for overload in overloads for tag in getattr(packet, overload).tags}
        if torch.Tag.pointwise in tags:
            return "elementwise"
    return "other" if namespace else _of_function(name)


def _of_function(name: str) -> str:
    return next((kind for pattern, kind in _FUNCTIONS if pattern.search(name)), "other")
