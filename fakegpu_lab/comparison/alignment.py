"""Which kernels of one recording are which of another: an alignment of two sequences.

Kernels are the same if module, op and phase are, in the order of their launch. Cards and libraries name kernels
differently (``ampere_sgemm_…``, ``cudnn::…``), so names count only where ops do not decide. The longest common
subsequence is found on bits, as Hyyrö describes (H. Hyyrö, "Bit-Parallel LCS-length Computation Revisited", 2004): one
row of the table is one integer, and 10,000 kernels against 10,000 take less than a second.

What is left between two pairs may be several kernels that became one (fusion), or one that became several.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from fakegpu_lab.recording_views.kernel_classes import class_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from fakegpu_lab.hardware.time.records import Kernel

MOST = 20_000
"""Longer sequences are not aligned in one piece, but by the number of each kernel among those of its key."""

MOST_FUSED, MOST_FROM = 64, 2_000
"""At most 64 kernels can be what at most 2,000 others were fused into, or split from; more are another program."""

_MOST_REPLACED = 8
"""At most this many kernels in a row can have been replaced by the same number of others."""


@dataclass(frozen=True, slots=True)
class Match:
    """Kernels that are the same in both: by their places in the two sequences; one of the two may be empty.

    One before and one after is a kernel that both have. Several and fewer are kernels that were fused (or split). If
    one side is empty, the kernels are gone, or new.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]


def lcs(first: Sequence[Hashable], second: Sequence[Hashable]) -> list[tuple[int, int]]:
    """The pairs of places of a longest common subsequence.

    >>> lcs("abcbdab", "bdcaba")
    [(1, 0), (4, 1), (5, 3), (6, 4)]
    """
    head = 0
    while head < min(len(first), len(second)) and first[head] == second[head]:
        head += 1
    tail = 0
    while tail < min(len(first), len(second)) - head and first[-1 - tail] == second[-1 - tail]:
        tail += 1
    middle = _lcs_of_middle(first[head : len(first) - tail], second[head : len(second) - tail])
    return [
        *((place, place) for place in range(head)),
        *((head + i, head + k) for i, k in middle),
        *((len(first) - tail + i, len(second) - tail + i) for i in range(tail)),
    ]


def _lcs_of_middle(first: Sequence[Hashable], second: Sequence[Hashable]) -> list[tuple[int, int]]:
    if not first or not second:
        return []
    if max(len(first), len(second)) > MOST:
        return _numbered(first, second)
    places: dict[Hashable, int] = defaultdict(int)
    for place, token in enumerate(second):
        places[token] |= 1 << place
    every = (1 << len(second)) - 1
    rows, row = [], every
    for token in first:
        same = row & places.get(token, 0)
        row = ((row + same) | (row - same)) & every
        rows.append(row)
    pairs = []
    i, k = len(first), len(second)
    while i and k:  # a bit of 0: here the subsequence of the row becomes longer
        if rows[i - 1] >> (k - 1) & 1:
            k -= 1
            continue
        i -= 1
        if i and not rows[i - 1] >> (k - 1) & 1:
            continue
        k -= 1
        pairs.append((i, k))
    return pairs[::-1]


def _numbered(first: Sequence[Hashable], second: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Pairs of the n-th of a token with the n-th of it, as far as they are in order."""
    places: dict[Hashable, list[int]] = defaultdict(list)
    for place, token in enumerate(second):
        places[token].append(place)
    used: dict[Hashable, int] = defaultdict(int)
    pairs: list[tuple[int, int]] = []
    for place, token in enumerate(first):
        number = used[token]
        used[token] += 1
        if number < len(places.get(token, ())) and (not pairs or places[token][number] > pairs[-1][1]):
            pairs.append((place, places[token][number]))
    return pairs


def aligned(before: Sequence[Kernel], after: Sequence[Kernel]) -> list[Match]:
    """Match all kernels, each of which is in exactly one match; in the order in which they were launched."""
    keys = _keys(before, after)
    return _joined(before, after, _matched(before, after, keys, 0, 0))


def _matched(
    before: Sequence[Kernel],
    after: Sequence[Kernel],
    keys: Sequence[Callable[[Kernel], Hashable]],
    first: int,
    second: int,
) -> list[Match]:
    """Match by the first key, and what is left between its pairs by the next ones."""
    if not before or not after or not keys:
        return _left_over(before, after, first, second)
    key = keys[0]
    pairs = lcs([key(kernel) for kernel in before], [key(kernel) for kernel in after])
    found: list[Match] = []
    i = k = 0
    for this, that in [*pairs, (len(before), len(after))]:
        if this > i or that > k:
            found += _matched(before[i:this], after[k:that], keys[1:], first + i, second + k)
        if this < len(before):
            found.append(Match((first + this,), (second + that,)))
        i, k = this + 1, that + 1
    return found


def _left_over(before: Sequence[Kernel], after: Sequence[Kernel], first: int, second: int) -> list[Match]:
    return (
        [Match(tuple(range(first, first + len(before))), tuple(range(second, second + len(after))))]
        if before or after
        else []
    )


def _joined(before: Sequence[Kernel], after: Sequence[Kernel], found: Sequence[Match]) -> list[Match]:
    """Cut what is left into fusions, new kernels and kernels that are gone."""
    result: list[Match] = []
    for match in found:
        if len(match.before) == len(match.after) == 1:
            result.append(match)
            continue
        old, new = match.before, match.after
        heavy = any(class_of(op_of(before[i])) in HEAVY for i in old) != any(
            class_of(op_of(after[k])) in HEAVY for k in new
        )
        few, many = sorted((len(old), len(new)))
        if few and not heavy and few == many <= _MOST_REPLACED:
            result += [Match((i,), (k,)) for i, k in zip(old, new, strict=True)]
        elif few and not heavy and 2 * few <= many + 1 and few <= MOST_FUSED and many <= MOST_FROM:
            result += _fusions(before, after, old, new)
        else:
            result += [Match((i,), ()) for i in old] + [Match((), (k,)) for k in new]
    return result


HEAVY = ("matmul", "convolution", "attention")
"""Classes of kernels that take part in no fusion with a kernel of another class."""


def _fusions(
    before: Sequence[Kernel], after: Sequence[Kernel], old: tuple[int, ...], new: tuple[int, ...]
) -> list[Match]:
    """Several kernels that became fewer: each compiled kernel's name has the ops that it replaces, in their order."""
    if len(new) < 2 or len(old) <= len(new):
        return [Match(old, new)]
    cuts, place = [], 0
    for number, k in enumerate(new):
        names = set(_fused_ops(op_of(after[k])))
        first = place
        most = len(old) - (len(new) - number - 1)  # leave one for each of the others
        while place < most and (place == first or _short(op_of(before[old[place]])) in names):
            place += 1
        cuts.append((first, place))
    cuts[-1] = (cuts[-1][0], len(old))
    return [Match(old[first:last], (k,)) for (first, last), k in zip(cuts, new, strict=True)]


_FUSED = re.compile(r"^triton_(?:poi|red|per|tem|for)_fused_(.*?)_?\d*$")


def _fused_ops(name: str) -> list[str]:
    """The names of ops in the name of a kernel of Inductor's, as far as they are single words."""
    found = _FUSED.match(name)
    return found[1].split("_") if found else []


def _short(name: str) -> str:
    return name.rpartition("::")[2].strip("_").removeprefix("native_")


# --------------------------------------------------------------------- keys

_SAME = {
    "linear": "mm", "addmm": "mm", "matmul": "mm", "linear_backward": "mm", "addmm_activation": "mm",
    "cudnn_convolution": "convolution", "conv2d": "convolution", "slow_conv2d_forward": "convolution",
    "cudnn_convolution_backward_input": "convolution_backward",
    "cudnn_convolution_backward_weight": "convolution_backward",  # PyTorch before 1.11
    "cudnn_batch_norm": "batch_norm", "cudnn_batch_norm_backward": "batch_norm_backward",
    "batch_norm_with_update": "batch_norm", "miopen_batch_norm": "batch_norm",
    "Memcpy DtoD (Device -> Device)": "copy", "to_copy": "copy", "to": "copy", "contiguous": "copy", "clone": "copy",
    "zero": "fill", "zeros": "fill", "ones": "fill", "full": "fill",
    "clamp_min": "relu", "max_pool2d": "max_pool2d_with_indices",
}  # fmt: skip
"""Ops that are the same kernel under another name, by their short names: a simulated recording has the name that the
program called, a card's has the one that launched."""

_WRAPPERS = {"DistributedDataParallel": 2, "DataParallel": 2, "OptimizedModule": 2, "FullyShardedDataParallel": 2}
"""Modules around a model, with the parts of a path that they are."""


def op_of(kernel: Kernel) -> str:
    """The op that launched a kernel; the words of its function's name, if the op is only torch.compile's frame."""
    if not kernel.function or not kernel.name.startswith("CompiledFunction"):
        return kernel.name
    return kernel.function if kernel.function.startswith("triton_") else normalized(kernel.function)


@lru_cache(maxsize=4096)
def module_of(path: str) -> str:
    """A module's path within the model, without the model's class and what wraps it.

    >>> module_of("DistributedDataParallel.module.0.fc"), module_of("Net.0.fc"), module_of("Net")
    ('0.fc', '0.fc', '')
    """
    parts = path.split(".")
    while parts and parts[0] in _WRAPPERS:
        wrapped = parts[2:]
        if not wrapped or wrapped[0] not in _WRAPPERS:
            return ".".join(wrapped)
        parts = wrapped
    return ".".join(part for part in parts[1:] if part != "_orig_mod")


@lru_cache(maxsize=4096)
def canonical(name: str) -> str:
    """An op's name without what differs between an op in place, a native one and a library's.

    >>> canonical("aten::add_"), canonical("aten::linear"), canonical("aten::cudnn_convolution")
    ('add', 'mm', 'convolution')
    """
    short = _short(name)
    return _SAME.get(short, short)


_WORDS = re.compile(r"[A-Z][a-z]{2,}|[a-z]{3,}")
_IGNORED = frozenset((
    "void", "native", "kernel", "cuda", "cub", "cudnn", "cutlass", "float", "half", "double", "bfloat", "int", "long",
    "unsigned", "char", "bool", "std", "array", "detail", "maxwell", "pascal", "volta", "turing", "ampere", "hopper",
    "sliced",
))  # fmt: skip
"""Words in kernels' names that say on which card they run, with which types, or in whose namespace they are."""


@lru_cache(maxsize=4096)
def normalized(name: str) -> str:
    """The words of a kernel's name: without the card, the sizes of tiles and the types.

    >>> normalized("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int, float)")
    'vectorized elementwise add functor'
    >>> normalized("volta_sgemm_128x64_nn"), normalized("ampere_sgemm_64x32_sliced1x4_tn")
    ('sgemm', 'sgemm')
    """
    words = (word.lower() for word in _WORDS.findall(name.partition("(")[0]))
    return " ".join(word for word in words if word not in _IGNORED) or name


_OP = re.compile(r"[\w:]+")
"""What looks like an op's name, or like one with "_kernel" behind it."""


def _phase(kernel: Kernel) -> str:
    return "backward" if kernel.backward or kernel.phase == "recompute" else kernel.phase


def _keys(before: Sequence[Kernel], after: Sequence[Kernel]) -> list[Callable[[Kernel], Hashable]]:
    """What makes kernels the same, the strictest first; what one recording does not know does not count."""
    modules = any(k.module for k in before) and any(k.module for k in after)
    phases = any(_phase(k) for k in before) and any(_phase(k) for k in after)

    def whole(kernel: Kernel) -> Hashable:
        return (module_of(kernel.module) if modules else "", canonical(op_of(kernel)), _phase(kernel) if phases else "")

    def op(kernel: Kernel) -> Hashable:
        return canonical(op_of(kernel)), _phase(kernel) if phases else ""

    def name(kernel: Kernel) -> Hashable:
        text = kernel.function or kernel.name
        named = canonical(text.removesuffix("_kernel")) if _OP.fullmatch(text) else normalized(text)
        return named, _phase(kernel) if phases else ""

    def kind(kernel: Kernel) -> Hashable:
        one = class_of(op_of(kernel))
        return one if one in HEAVY else id(kernel)  # equal only to itself

    return [whole, op, name, kind]


def key_of(kernel: Kernel) -> tuple[str, str, str]:
    """What a kernel is, in tables and for steps: its module's path, its op, its phase."""
    return module_of(kernel.module), canonical(op_of(kernel)), _phase(kernel)
