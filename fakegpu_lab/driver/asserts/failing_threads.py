"""The threads of a launch that fail an assert, for each op whose CUDA kernel has one (`Row.asserts`).

A thread's block and number follow from the position of the wrong value in the kernel's order of elements, and from the
launch's geometry (aten/src/ATen/native/cuda/*.cu). Where that order depends on strides (TensorIterator chooses it), we
assume row-major order.

A thread is one integer here, block << 12 | thread.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from fakegpu_lab.driver.asserts import kernel_asserts

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.asserts.kernel_asserts import Site


class Failure(NamedTuple):
    """The threads of one launch that failed an assert: (site, block, thread) of the first few, and their number."""

    first: list[tuple[Site, int, int]]
    total: int


_PRINTED = 8
"""CUDA prints a line for each thread that failed. Here this many are printed, then the number of the others."""

Named = dict[str, Any]


def _threads(positions: torch.Tensor, threads: int, each: int = 1, offset: int = 0) -> torch.Tensor:
    """The threads that read these elements, if a block of `threads` threads reads threads × each of them."""
    return positions // (threads * each) << 12 | (positions % (threads * each) % threads + offset)


def _failed(site: Site, threads: torch.Tensor) -> Failure:
    threads = torch.unique(threads)
    first = [(site, key >> 12, key & 0xFFF) for key in threads[:_PRINTED].tolist()]
    return Failure(first, threads.numel())


def _positions(bad: torch.Tensor) -> torch.Tensor:
    return bad.reshape(-1).nonzero().reshape(-1)


def _outside(index: torch.Tensor, size: int, lowest: int = 0) -> torch.Tensor:
    return (index < lowest) | (index >= size)


def _whole_blocks(blocks: torch.Tensor, threads: int) -> torch.Tensor:
    """All threads of some blocks."""
    return (blocks.reshape(-1, 1) << 12 | torch.arange(threads)).reshape(-1)


def _elements_of_slices(positions: torch.Tensor, inner: int) -> torch.Tensor:
    """The `inner` elements of the slice at each position."""
    return (positions.reshape(-1, 1) * inner + torch.arange(inner)).reshape(-1)


def _vectorized_gather(bad: torch.Tensor, slice_bytes: int) -> Failure:
    """`vectorized_gather_kernel`: one block for each index copies its slice, 16 bytes for each thread."""
    threads = min(256, -(-slice_bytes // 16 // -32) * -32 if slice_bytes else 32)
    return _failed(kernel_asserts.VECTOR, _whole_blocks(_positions(bad), max(threads, 32)))


def _index_select_kernel(source: torch.Tensor, dim: int, index: torch.Tensor) -> Failure:
    """`index_select_out_cuda_impl`: for up to 16 indices, a kernel in which every thread reads each; else a gather."""
    bad = _outside(index.reshape(-1), source.shape[dim] if source.dim() else 1)
    inner = source.numel() // max(source.shape[dim] if source.dim() else 1, 1)
    if bad.numel() <= 16:
        blocks = torch.arange(max(1, min(-(-inner // 128), 8 * 108)))
        return _failed(kernel_asserts.SELECT, _whole_blocks(blocks, min(max(inner, 1), 128)))
    slice_bytes = inner * source.element_size()
    if dim == 0 and slice_bytes % 16 == 0 and source.is_contiguous():
        return _vectorized_gather(bad, slice_bytes)
    return _failed(kernel_asserts.GATHER, _threads(_elements_of_slices(_positions(bad), inner), 128, 8))


def index_select(a: Named) -> Failure:
    source = a["self"]
    return _index_select_kernel(source, a["dim"] % max(source.dim(), 1), a["index"])


def embedding(a: Named) -> Failure:
    return _index_select_kernel(a["weight"], 0, a["indices"])


def embedding_renorm(a: Named) -> Failure:
    """One block for each distinct index."""
    wrong = _outside(torch.unique(a["indices"]), a["self"].shape[0])
    return _failed(kernel_asserts.RENORM, _whole_blocks(_positions(wrong), 128))


def _advanced_indexing(a: Named, reads: bool) -> Failure | None:
    """The threads that read a wrong index; the host finds an index into a dimension of size 0 (`AdvancedIndex`)."""
    source, dim, bad = a["self"], 0, torch.zeros((), dtype=torch.bool)
    places, inner = [], 1
    for index in a["indices"]:
        if index is None:
            inner *= source.shape[dim]
            dim += 1
        elif index.dtype in (torch.bool, torch.uint8):
            places += [(dim + i, part) for i, part in enumerate(index.nonzero().unbind(1))]
            dim += index.dim()
        else:
            places.append((dim, index))
            dim += 1
    for at, index in places:
        size = source.shape[at]
        if size == 0:
            return None
        bad = bad | _outside(index, size, -size)
    inner *= math.prod(source.shape[dim:])
    slice_bytes = inner * source.element_size()
    alone = len(places) == 1 and places[0][0] == 0 and inner > 1
    if reads and alone and slice_bytes % 16 == 0 and source.is_contiguous():
        return _vectorized_gather(bad, slice_bytes)
    return _failed(kernel_asserts.INDEX, _threads(_elements_of_slices(_positions(bad), inner), 128, 4))


def index(a: Named) -> Failure | None:
    return _advanced_indexing(a, reads=True)


def index_put(a: Named) -> Failure | None:
    return _advanced_indexing(a, reads=False)


def gather(a: Named, written: bool = False) -> Failure:
    index, source = a["index"], a["self"]
    row = index.shape[1] * source.element_size() if index.dim() == 2 else 0
    if not written and a["dim"] == 0 and row and row % 16 == 0 and not index.stride(1) and source.is_contiguous():
        return _vectorized_gather(_outside(index[:, 0], source.shape[0]), row)  # whole rows: the index is expanded
    site = kernel_asserts.SCATTER_VALUE if "value" in a and "src" not in a else kernel_asserts.GATHER
    return _failed(site, _threads(_positions(_outside(index, source.shape[a["dim"]] if source.dim() else 1)), 128, 8))


def scatter(a: Named) -> Failure:
    return gather(a, written=True)


def take(a: Named) -> Failure:
    index, numel = a["index"], a["self"].numel()
    return _failed(kernel_asserts.TAKE, _threads(_positions(_outside(index, numel, -numel)), 128, 4))


def along(site: Site, negative: bool) -> Callable[[Named], Failure]:
    def along(a: Named) -> Failure:
        source, index = a["self"], a["index"].reshape(-1)
        size = source.shape[a["dim"]] if source.dim() else 1
        bad = _outside(index, size, -size if negative else 0)
        return _failed(site, _threads(_elements_of_slices(_positions(bad), source.numel() // max(size, 1)), 128, 4))

    return along


def index_add(a: Named) -> Failure:
    source, index = a["self"], a["index"].reshape(-1)
    size = source.shape[a["dim"]] if source.dim() else 1
    inner = source.numel() // max(size, 1)
    if index.numel() <= 16:
        blocks = torch.arange(max(1, min(-(-inner // 128), 8 * 108)))
        return _failed(kernel_asserts.ADD_SMALL, _whole_blocks(blocks, min(max(inner, 1), 128)))
    return _failed(
        kernel_asserts.ADD_LARGE, _threads(_elements_of_slices(_positions(_outside(index, size)), inner), 128)
    )


def _wrong_labels(a: Named, classes: int) -> torch.Tensor:
    target = a["target"]
    kept: torch.Tensor = target != a.get("ignore_index", -100)
    return _outside(target, classes) & kept


def nll_loss(a: Named) -> Failure:
    source = a["self"]
    bad = _positions(_wrong_labels(a, source.shape[-1]))
    if source.dim() == 1:
        return _failed(kernel_asserts.NLL_ONE, bad * 0)
    if a.get("reduction", 1) == 0:
        return _failed(kernel_asserts.NLL_EACH, _threads(bad, 1024))
    batch = source.shape[0]
    threads = min(max(2 ** round(math.log2(max(batch / 16, 1))), 32), 1024)  # nll_loss_threads
    return _failed(kernel_asserts.NLL, bad % threads)


def nll_loss2d(a: Named) -> Failure:
    bad = _wrong_labels(a, a["self"].shape[1])
    if a.get("reduction", 1) == 0:
        return _failed(kernel_asserts.NLL2D_EACH, _threads(_positions(bad), 1024))
    elements = max(bad[0].numel(), 1)
    blocks = max(1, -(-elements // 1024) // 128)  # of a sample
    at = _positions(bad)
    sample, element = at // elements, at % elements
    return _failed(kernel_asserts.NLL2D, (sample * blocks + element // 1024 % blocks) << 12 | element % 1024)


def binary_cross_entropy(a: Named) -> Failure:
    source, target = a["self"], a["target"]
    bad = ~((source >= 0) & (source <= 1))
    if bool(bad.any()):
        return _failed(kernel_asserts.BCE_INPUT, _threads(_positions(bad), 128, 4))
    return _failed(kernel_asserts.BCE_TARGET, _threads(_positions(~((target >= 0) & (target <= 1))), 128, 4))


def multi_margin_loss(a: Named) -> Failure:
    return _failed(kernel_asserts.MARGIN, _whole_blocks(_positions(_outside(a["target"], a["self"].shape[-1])), 128))


def max_unpool2d(a: Named) -> Failure:
    return _failed(
        kernel_asserts.UNPOOL, _threads(_positions(_outside(a["indices"], math.prod(a["output_size"]))), 1024)
    )


def masked_scatter(a: Named) -> Failure:
    return _failed(kernel_asserts.MASKED, torch.zeros(1, dtype=torch.int64))


def repeat_interleave(a: Named) -> Failure | None:
    """One warp for each element, 16 warps in a block; without `output_size`, the host has checked (Repeat.h)."""
    repeats, size = a["repeats"], a.get("output_size")
    if size is None:
        return None
    end = repeats.cumsum(0)
    at = _positions((repeats < 0) | (end < repeats) | (end > size))
    if not at.numel():
        return None
    return _failed(
        kernel_asserts.REPEAT, ((at // 16) << 12 | at % 16 * 32).reshape(-1, 1).add(torch.arange(32)).reshape(-1)
    )


def embedding_bag(a: Named) -> Failure:
    """One warp for each feature block of a bag, 8 bags in a block; each block prints the threads of its first row."""
    wrong = _positions(_outside(a["indices"].reshape(-1), a["weight"].shape[0]))
    bags = torch.searchsorted(a["offsets"].to(wrong.dtype), wrong, right=True) - 1
    site = kernel_asserts.BAG_MAX if a.get("mode", 0) == 2 else kernel_asserts.BAG
    return _failed(site, _whole_blocks(torch.unique(bags // 8), min(a["weight"].shape[1], 32)))


def assert_async(a: Named) -> Failure:
    return Failure([(kernel_asserts.asserting(a.get("assert_msg", "")), 0, 0)], 1)


def multinomial(a: Named) -> Failure:
    """`torch._assert_async` checks for one sample, or several without replacement; else the sampling kernel checks."""
    source = a["self"]
    rows = source.reshape(-1, source.shape[-1]).float()
    wrong = {"nan": rows.isnan(), "infinite": rows.isinf(), "negative": rows < 0}
    kind = next((kind for kind, bad in wrong.items() if bool(bad.any())), "sum")
    if a["num_samples"] == 1 or not a.get("replacement", False):
        if kind == "sum":
            return Failure(
                [(kernel_asserts.asserting("invalid multinomial distribution (sum of probabilities <= 0)"), 0, 0)], 1
            )
        return Failure(
            [(kernel_asserts.asserting("probability tensor contains either `inf`, `nan` or element < 0"), 0, 0)], 1
        )
    threads = min(-(-rows.shape[1] // 32) * 32, 1024)
    if kind == "sum":
        return _failed(kernel_asserts.SAMPLE[kind], _whole_blocks(_positions(rows.sum(1) <= 0), threads))
    at = _positions(wrong[kind])
    return _failed(kernel_asserts.SAMPLE[kind], (at // rows.shape[1]) << 12 | at % rows.shape[1] % threads)


def bernoulli(a: Named) -> Failure:
    """DistributionTemplates.h: a thread draws four at once and checks the last one first; 512 threads in a block."""
    p = a["p"] if isinstance(a.get("p"), torch.Tensor) else a["self"]
    at = _positions(~((p >= 0) & (p <= 1)))
    threads = torch.unique(at // 4)
    last = {int(thread): slot for thread, slot in zip((at // 4).tolist(), (at % 4).tolist(), strict=True)}
    first = []
    for thread in threads[:_PRINTED].tolist():
        slot = last[thread] + 1
        first.append((kernel_asserts.bernoulli(slot), thread // 512, thread % 512))
    return Failure(first, threads.numel())
