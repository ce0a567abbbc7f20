"""Which threads of a launch fail an assert, and of which op: what CUDA's kernels check and the CPU's refuse.

A thread's place follows from the place of the wrong value in the kernel's order of elements and from the launch's
geometry (aten/src/ATen/native/cuda/*.cu). Where that order depends on strides, as TensorIterator chooses it, the
elements are taken in row-major order.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from fakegpu_lab.driver.asserts import sites

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fakegpu_lab.driver.asserts.sites import Site


class Failure(NamedTuple):
    """The threads of one launch that failed an assert: (site, block, thread) of the first of them, and how many."""

    first: list[tuple[Site, int, int]]
    total: int


_SHOWN = 8
"""CUDA prints a line for each thread that failed; so many are shown here, then how many more there are."""

Named = dict[str, Any]


def _in(positions: torch.Tensor, threads: int, each: int = 1, offset: int = 0) -> torch.Tensor:
    """The threads, as block << 12 | thread, that see these elements, where a block takes threads × each of them."""
    return positions // (threads * each) << 12 | (positions % (threads * each) % threads + offset)


def _at(site: Site, threads: torch.Tensor) -> Failure:
    threads = torch.unique(threads)
    first = [(site, key >> 12, key & 0xFFF) for key in threads[:_SHOWN].tolist()]
    return Failure(first, threads.numel())


def _where(bad: torch.Tensor) -> torch.Tensor:
    return bad.reshape(-1).nonzero().reshape(-1)


def _outside(index: torch.Tensor, size: int, lowest: int = 0) -> torch.Tensor:
    return (index < lowest) | (index >= size)


def _whole_blocks(blocks: torch.Tensor, threads: int) -> torch.Tensor:
    """All the threads of some blocks."""
    return (blocks.reshape(-1, 1) << 12 | torch.arange(threads)).reshape(-1)


def _spread(positions: torch.Tensor, inner: int) -> torch.Tensor:
    """Each position, as the `inner` elements of its slice."""
    return (positions.reshape(-1, 1) * inner + torch.arange(inner)).reshape(-1)


def _vector(bad: torch.Tensor, slice_bytes: int) -> Failure:
    """A block per index copies its slice, 16 bytes a thread."""
    threads = min(256, -(-slice_bytes // 16 // -32) * -32 if slice_bytes else 32)
    return _at(sites.VECTOR, _whole_blocks(_where(bad), max(threads, 32)))


def _selected(source: torch.Tensor, dim: int, index: torch.Tensor) -> Failure:
    """`index_select_out_cuda_impl`: up to 16 indices have a kernel in which every thread sees each; else a gather."""
    bad = _outside(index.reshape(-1), source.shape[dim] if source.dim() else 1)
    inner = source.numel() // max(source.shape[dim] if source.dim() else 1, 1)
    if bad.numel() <= 16:
        blocks = torch.arange(max(1, min(-(-inner // 128), 8 * 108)))
        return _at(sites.SELECT, _whole_blocks(blocks, min(max(inner, 1), 128)))
    slice_bytes = inner * source.element_size()
    if dim == 0 and slice_bytes % 16 == 0 and source.is_contiguous():
        return _vector(bad, slice_bytes)
    return _at(sites.GATHER, _in(_spread(_where(bad), inner), 128, 8))


def _index_select(a: Named) -> Failure:
    source = a["self"]
    return _selected(source, a["dim"] % max(source.dim(), 1), a["index"])


def _embedding(a: Named) -> Failure:
    return _selected(a["weight"], 0, a["indices"])


def _embedding_renorm(a: Named) -> Failure:
    """A block for each distinct index."""
    wrong = _outside(torch.unique(a["indices"]), a["self"].shape[0])
    return _at(sites.RENORM, _whole_blocks(_where(wrong), 128))


def _advanced(a: Named, reads: bool) -> Failure:
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
        bad = bad | _outside(index, size, -size)
    inner *= math.prod(source.shape[dim:])
    slice_bytes = inner * source.element_size()
    alone = len(places) == 1 and places[0][0] == 0 and inner > 1
    if reads and alone and slice_bytes % 16 == 0 and source.is_contiguous():
        return _vector(bad, slice_bytes)
    return _at(sites.INDEX, _in(_spread(_where(bad), inner), 128, 4))


def _index(a: Named) -> Failure:
    return _advanced(a, reads=True)


def _index_put(a: Named) -> Failure:
    return _advanced(a, reads=False)


def _gather(a: Named, written: bool = False) -> Failure:
    index, source = a["index"], a["self"]
    row = index.shape[1] * source.element_size() if index.dim() == 2 else 0
    if not written and a["dim"] == 0 and row and row % 16 == 0 and not index.stride(1) and source.is_contiguous():
        return _vector(_outside(index[:, 0], source.shape[0]), row)  # whole rows: the index is expanded
    site = sites.SCATTER_VALUE if "value" in a and "src" not in a else sites.GATHER
    return _at(site, _in(_where(_outside(index, source.shape[a["dim"]] if source.dim() else 1)), 128, 8))


def _scatter(a: Named) -> Failure:
    return _gather(a, written=True)


def _take(a: Named) -> Failure:
    index, numel = a["index"], a["self"].numel()
    return _at(sites.TAKE, _in(_where(_outside(index, numel, -numel)), 128, 4))


def _along(site: Site, negative: bool) -> Callable[[Named], Failure]:
    def along(a: Named) -> Failure:
        source, index = a["self"], a["index"].reshape(-1)
        size = source.shape[a["dim"]] if source.dim() else 1
        bad = _outside(index, size, -size if negative else 0)
        return _at(site, _in(_spread(_where(bad), source.numel() // max(size, 1)), 128, 4))

    return along


def _index_add(a: Named) -> Failure:
    source, index = a["self"], a["index"].reshape(-1)
    size = source.shape[a["dim"]] if source.dim() else 1
    inner = source.numel() // max(size, 1)
    if index.numel() <= 16:
        blocks = torch.arange(max(1, min(-(-inner // 128), 8 * 108)))
        return _at(sites.ADD_SMALL, _whole_blocks(blocks, min(max(inner, 1), 128)))
    return _at(sites.ADD_LARGE, _in(_spread(_where(_outside(index, size)), inner), 128))


def _wrong_labels(a: Named, classes: int) -> torch.Tensor:
    target = a["target"]
    kept: torch.Tensor = target != a.get("ignore_index", -100)
    return _outside(target, classes) & kept


def _nll_loss(a: Named) -> Failure:
    source = a["self"]
    bad = _where(_wrong_labels(a, source.shape[-1]))
    if source.dim() == 1:
        return _at(sites.NLL_ONE, bad * 0)
    if a.get("reduction", 1) == 0:
        return _at(sites.NLL_EACH, _in(bad, 1024))
    batch = source.shape[0]
    threads = min(max(2 ** round(math.log2(max(batch / 16, 1))), 32), 1024)  # nll_loss_threads
    return _at(sites.NLL, bad % threads)


def _nll_loss2d(a: Named) -> Failure:
    bad = _wrong_labels(a, a["self"].shape[1])
    if a.get("reduction", 1) == 0:
        return _at(sites.NLL2D_EACH, _in(_where(bad), 1024))
    elements = max(bad[0].numel(), 1)
    blocks = max(1, -(-elements // 1024) // 128)  # of a sample
    at = _where(bad)
    sample, element = at // elements, at % elements
    return _at(sites.NLL2D, (sample * blocks + element // 1024 % blocks) << 12 | element % 1024)


def _binary_cross_entropy(a: Named) -> Failure:
    source, target = a["self"], a["target"]
    bad = ~((source >= 0) & (source <= 1))
    if bool(bad.any()):
        return _at(sites.BCE_INPUT, _in(_where(bad), 128, 4))
    return _at(sites.BCE_TARGET, _in(_where(~((target >= 0) & (target <= 1))), 128, 4))


def _multi_margin_loss(a: Named) -> Failure:
    return _at(sites.MARGIN, _whole_blocks(_where(_outside(a["target"], a["self"].shape[-1])), 128))


def _max_unpool2d(a: Named) -> Failure:
    return _at(sites.UNPOOL, _in(_where(_outside(a["indices"], math.prod(a["output_size"]))), 1024))


def _masked_scatter(a: Named) -> Failure:
    return _at(sites.MASKED, torch.zeros(1, dtype=torch.int64))


def _repeat_interleave(a: Named) -> Failure:
    """A warp per element, 16 warps a block."""
    at = _where(a["repeats"] < 0)
    return _at(sites.REPEAT, ((at // 16) << 12 | at % 16 * 32).reshape(-1, 1).add(torch.arange(32)).reshape(-1))


def _embedding_bag(a: Named) -> Failure:
    """A warp per feature block of a bag, 8 bags a block; the threads of each block's first row are told."""
    wrong = _where(_outside(a["indices"].reshape(-1), a["weight"].shape[0]))
    bags = torch.searchsorted(a["offsets"].to(wrong.dtype), wrong, right=True) - 1
    site = sites.BAG_MAX if a.get("mode", 0) == 2 else sites.BAG
    return _at(site, _whole_blocks(torch.unique(bags // 8), min(a["weight"].shape[1], 32)))


def _assert_async(a: Named) -> Failure:
    return Failure([(sites.asserting(a.get("assert_msg", "")), 0, 0)], 1)


def _multinomial(a: Named) -> Failure:
    """One sample, or several without replacement: checked by `torch._assert_async`; else by the sampling kernel."""
    source = a["self"]
    rows = source.reshape(-1, source.shape[-1]).float()
    wrong = {"nan": rows.isnan(), "infinite": rows.isinf(), "negative": rows < 0}
    kind = next((kind for kind, bad in wrong.items() if bool(bad.any())), "sum")
    if a["num_samples"] == 1 or not a.get("replacement", False):
        if kind == "sum":
            return Failure([(sites.asserting("invalid multinomial distribution (sum of probabilities <= 0)"), 0, 0)], 1)
        return Failure([(sites.asserting("probability tensor contains either `inf`, `nan` or element < 0"), 0, 0)], 1)
    threads = min(-(-rows.shape[1] // 32) * 32, 1024)
    if kind == "sum":
        return _at(sites.SAMPLE[kind], _whole_blocks(_where(rows.sum(1) <= 0), threads))
    at = _where(wrong[kind])
    return _at(sites.SAMPLE[kind], (at // rows.shape[1]) << 12 | at % rows.shape[1] % threads)


def _bernoulli(a: Named) -> Failure:
    """DistributionTemplates.h: a thread draws four at once and looks at the last one first; 512 threads a block."""
    p = a["p"] if isinstance(a.get("p"), torch.Tensor) else a["self"]
    at = _where(~((p >= 0) & (p <= 1)))
    threads = torch.unique(at // 4)
    last = {int(thread): slot for thread, slot in zip((at // 4).tolist(), (at % 4).tolist(), strict=True)}
    first = []
    for thread in threads[:_SHOWN].tolist():
        slot = last[thread] + 1
        first.append((sites.bernoulli(slot), thread // 512, thread % 512))
    return Failure(first, threads.numel())


class Kernel(NamedTuple):
    """An op whose kernel asserts: what the CPU says instead, and which threads fail."""

    cpu_says: str  # a regular expression
    failure: Callable[[Named], Failure]


_RANGE = "out of bounds for dimension"
_SELF = "index out of range in self|INDICES element is out of DATA bounds"
_TAKEN = "out of range: tried to access index"
_LABELS = r"(?s)^Target .* is out of bounds"


def _each(names: Iterable[str], cpu_says: str, failure: Callable[[Named], Failure]) -> dict[str, Kernel]:
    return dict.fromkeys(names, Kernel(cpu_says, failure))


KERNELS: dict[str, Kernel] = {
    **_each(("embedding",), _SELF, _embedding),
    **_each(("embedding_renorm_",), r"^select\(\): index", _embedding_renorm),
    **_each(("index_select",), _SELF, _index_select),
    **_each(("index", "_unsafe_index"), _RANGE, _index),
    **_each(("index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"), _RANGE, _index_put),
    **_each(("gather",), _RANGE, _gather),
    **_each(
        ("scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_"), _RANGE, _scatter
    ),
    **_each(("take", "put", "put_"), _TAKEN, _take),
    **_each(("index_fill", "index_fill_"), _RANGE, _along(sites.FILL, negative=True)),
    **_each(("index_copy", "index_copy_"), _RANGE, _along(sites.COPY, negative=False)),
    **_each(("index_add", "index_add_"), f"{_RANGE}|{_SELF}", _index_add),
    **_each(("index_reduce", "index_reduce_"), _SELF, _index_add),
    **_each(("nll_loss_forward",), _LABELS, _nll_loss),
    **_each(("nll_loss2d_forward",), _LABELS, _nll_loss2d),
    **_each(("binary_cross_entropy",), "should be between 0 and 1", _binary_cross_entropy),
    **_each(("multi_margin_loss",), "target out of range", _multi_margin_loss),
    **_each(("max_unpool2d",), "Found an invalid max index", _max_unpool2d),
    **_each(("masked_scatter", "masked_scatter_"), "Number of elements of source <", _masked_scatter),
    **_each(("repeat_interleave",), "repeats can not be negative", _repeat_interleave),
    **_each(
        ("_embedding_bag", "_embedding_bag_forward_only"),
        r"num_embeddings but found idx|not in the valid range \[",
        _embedding_bag,
    ),
    **_each(("_assert_async",), "^(?!Boolean value of Tensor)", _assert_async),
    **_each(("multinomial",), "probabilit", _multinomial),
    **_each(("bernoulli", "bernoulli_"), "Expected p_in >= 0", _bernoulli),
}
"""By name of the op. Where the CPU raises anything else, CUDA raises it too: shapes, dtypes, devices."""
