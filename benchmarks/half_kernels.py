"""How much slower half precision is than float32: ``python benchmarks/half_kernels.py [--factor 5] [-k NAME]``.

The CPU has no fast path for some of its float16 and bfloat16 kernels, and the simulation may not run into one: mixed
precision is what many programs use. Every entry of torch's operator database that has the dtypes on CUDA runs on
``cuda:0``, forward and backward, in float32 and in both halves; the program lists what takes more than `--factor`
times as long.

The database's samples have a handful of elements, and simulating the launch takes longer than computing them. So each
extent of a sample is multiplied by the same whole number, as long as the op still accepts it and the largest tensor
stays below `--elements`; what cannot be enlarged is timed as it is. ``--samples`` takes more than one sample of an
entry. To see what another processor would do, ask the libraries for its instructions:
``ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2``.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves, tree_map

import fakegpu_lab as lab

if TYPE_CHECKING:
    from collections.abc import Iterator

HALVES = (torch.float16, torch.bfloat16)
FACTORS = (16, 8, 4, 3, 2, 1)
ERRORS = (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError, AssertionError)
LONG = 0.2
"""Seconds after which a call is not repeated."""
NOTHING = 1e-4
"""Seconds that are not worth a line."""


class Sample(NamedTuple):
    """The arguments of a call, on the device."""

    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    factor: int


class Slow(NamedTuple):
    """A call that is slower in half precision."""

    name: str
    dtype: torch.dtype
    phase: str
    seconds: float
    wide_seconds: float
    factor: int

    @property
    def ratio(self) -> float:
        """How many times as long as in float32."""
        return self.seconds / self.wide_seconds


def enlarged(value: Any, factor: int) -> Any:
    """`value` on the device; the values of a tensor repeat `factor` times along each dimension longer than 1."""
    if not isinstance(value, torch.Tensor):
        return "cuda:0" if str(value) == "cpu" else value
    inner = value.detach()
    if factor > 1 and inner.layout is torch.strided:
        inner = inner.repeat([factor if extent > 1 else 1 for extent in inner.shape])
    return inner.to("cuda:0").requires_grad_(value.requires_grad)


def in_dtype(sample: Sample, dtype: torch.dtype) -> Sample:
    """The float32 sample in another dtype."""

    def convert(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dtype is torch.float32:
            return value.detach().to(dtype).requires_grad_(value.requires_grad)
        return dtype if value is torch.float32 else value

    return Sample(tree_map(convert, sample.arguments), tree_map(convert, sample.keywords), sample.factor)


def samples_of(entry: Any, count: int, elements: int) -> Iterator[Sample]:
    """The first samples of an entry, each as large as the op accepts."""
    gradients = entry.supports_autograd and torch.float32 in entry.supported_backward_dtypes("cuda")
    for sample in itertools.islice(entry.sample_inputs("cpu", torch.float32, requires_grad=gradients), count):
        values = (sample.input, *sample.args), sample.kwargs
        tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
        for factor in FACTORS:
            if factor > 1 and any(t.numel() * factor ** sum(n > 1 for n in t.shape) > elements for t in tensors):
                continue
            larger = Sample(*tree_map(lambda value, by=factor: enlarged(value, by), values), factor)
            try:
                if timed(larger, entry, 1).get("forward", 0) < LONG:
                    yield larger
                    break
            except ERRORS:
                continue


def timed(sample: Sample, entry: Any, repeats: int) -> dict[str, float]:
    """Seconds of forward and of backward, the best of some repetitions."""
    best: dict[str, float] = {}
    for _ in range(repeats):
        start = time.perf_counter()
        result = entry(*sample.arguments, **sample.keywords)
        spent = time.perf_counter() - start
        note(best, "forward", spent)
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        if outputs:
            grads = [torch.ones_like(output) for output in outputs]
            start = time.perf_counter()
            torch.autograd.backward(outputs, grads)
            spent += (more := time.perf_counter() - start)
            note(best, "backward", more)
        for leaf in tree_leaves(sample):
            if isinstance(leaf, torch.Tensor):
                leaf.grad = None
        if spent > LONG:
            break
    return best


def note(best: dict[str, float], phase: str, seconds: float) -> None:
    """Keep the smaller figure."""
    best[phase] = min(seconds, best.get(phase, seconds))


def slow_calls(entry: Any, options: argparse.Namespace) -> Iterator[Slow]:
    """The calls of an entry that are more than `--factor` times as slow in half precision, the slowest of each kind."""
    dtypes = [dtype for dtype in HALVES if dtype in entry.dtypesIfCUDA]
    worst: dict[tuple[torch.dtype, str], Slow] = {}
    for sample in samples_of(entry, options.samples, options.elements) if dtypes else ():
        for dtype in dtypes:
            try:
                found = compared(entry, sample, dtype, options)
            except ERRORS:  # the op takes the dtype only in some of its arguments
                continue
            for slow in found:
                key = dtype, slow.phase
                if key not in worst or slow.ratio > worst[key].ratio:
                    worst[key] = slow
    yield from worst.values()


def compared(entry: Any, sample: Sample, dtype: torch.dtype, options: argparse.Namespace) -> list[Slow]:
    """The slow phases of one sample; what looks slow is timed again, because another program may have disturbed it."""
    name = f"{entry.name}.{entry.variant_test_name}" if entry.variant_test_name else entry.name
    half = in_dtype(sample, dtype)
    found: list[Slow] = []
    for repeats in (options.repeats, 5 * options.repeats):
        wide, narrow = timed(sample, entry, repeats), timed(half, entry, repeats)
        found = [
            Slow(name, dtype, phase, narrow[phase], wide[phase], sample.factor)
            for phase in narrow
            if phase in wide and narrow[phase] > max(options.factor * wide[phase], wide[phase] + NOTHING)
        ]
        if not found:
            break
    return found


def main() -> None:
    """Print a line for each slow call."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--factor", type=float, default=5, help="list what takes more than this times as long")
    parser.add_argument("--samples", type=int, default=1, help="samples of each entry (default 1)")
    parser.add_argument("--elements", type=int, default=2**16, help="elements of the largest operand (default 65536)")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions, of which the best counts (default 3)")
    parser.add_argument("-k", dest="name", default="", help="only entries with this in their names")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db  # takes seconds

    lab.enable("a100")
    torch.manual_seed(0)
    entries = [entry for entry in op_db if options.name in entry.name]
    start, found = time.perf_counter(), 0
    for entry in entries:
        for slow in slow_calls(entry, options):
            found += 1
            print(
                f"{slow.name:45} {str(slow.dtype).removeprefix('torch.'):9}{slow.phase:9}{slow.ratio:8.1f} ×"
                f"{slow.wide_seconds * 1e3:10.2f} ms →{slow.seconds * 1e3:10.2f} ms   (extents × {slow.factor})",
                flush=True,
            )
    print(
        f"{len(entries)} entries, {found} calls more than {options.factor:g} × as slow as float32, "
        f"in {time.perf_counter() - start:.0f} s"
    )
    lab.disable()


if __name__ == "__main__":
    main()
