"""What well-known kernels do to a card, and how long they take, beside what was measured on real ones.

    python benchmarks/kernels.py            # both tables, about a minute
    python benchmarks/kernels.py --write    # … into docs/kernels.md, between its markers

The kernels are those of textbooks, written for `numba.cuda`. Large grids are sampled: a few blocks run, and the figures
are scaled to all. The large products sum over 128 instead of 4096 elements, which changes their time but not their
FLOP/s. It needs the extra ``numba``.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from numba import cuda, float32

import fakegpu_lab as lab
from fakegpu_lab.formatting.units import duration, size
from fakegpu_lab.hardware.catalogue.lookup import gpu
from fakegpu_lab.hardware.kernel_model.launch_time import launch_time
from fakegpu_lab.hardware.kernel_model.occupancy import occupancy
from fakegpu_lab.kernels.sampling import sample_programs

PAGE = Path(__file__).parents[1] / "docs" / "kernels.md"
TILE = 32
PADDED = 33
CARDS = ("t4", "a100", "h100")


@cuda.jit
def matmul_rows(a, b, c):
    """Neighbouring threads compute neighbouring rows: their loads and stores are a row apart."""
    row, column = cuda.grid(2)
    total = float32(0)
    for k in range(a.shape[1]):
        total += a[row, k] * b[k, column]
    c[row, column] = total


@cuda.jit
def matmul_naive(a, b, c):
    """Neighbouring threads compute neighbouring columns."""
    column, row = cuda.grid(2)
    total = float32(0)
    for k in range(a.shape[1]):
        total += a[row, k] * b[k, column]
    c[row, column] = total


@cuda.jit
def matmul_tiled(a, b, c):
    """Tiles of both operands in shared memory."""
    left = cuda.shared.array((TILE, TILE), float32)
    right = cuda.shared.array((TILE, TILE), float32)
    column, row = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for start in range(0, a.shape[1], TILE):
        left[ty, tx] = a[row, start + tx]
        right[ty, tx] = b[start + ty, column]
        cuda.syncthreads()
        for k in range(TILE):
            total += left[ty, k] * right[k, tx]
        cuda.syncthreads()
    c[row, column] = total


@cuda.jit
def transpose_naive(source, target):
    """Loads rows, stores columns."""
    x, y = cuda.grid(2)
    target[x, y] = source[y, x]


def transpose_through_tile(width: int) -> Any:
    """Through shared memory, in a tile of `width` columns: with 32, a column of the tile lies in one bank."""

    @cuda.jit
    def transpose(source, target):
        tile = cuda.shared.array((TILE, width), float32)
        x, y = cuda.grid(2)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        tile[ty, tx] = source[y, x]
        cuda.syncthreads()
        target[cuda.blockIdx.x * TILE + ty, cuda.blockIdx.y * TILE + tx] = tile[tx, ty]

    return transpose


@cuda.jit
def copy_strided(source, target, stride):
    """Each thread copies one element of `stride`."""
    i = cuda.grid(1)
    target[i] = source[i * stride]


@cuda.jit
def gram_naive(a, c):
    """``a @ a.T`` of a narrow `a`: neighbouring threads read different rows of it."""
    column, row = cuda.grid(2)
    total = float32(0)
    for k in range(TILE):
        total += a[row, k] * a[column, k]
    c[row, column] = total


def gram_through_tile(width: int) -> Any:
    """The same through shared memory; the second tile has `width` columns, and is stored by columns."""

    @cuda.jit
    def gram(a, c):
        left = cuda.shared.array((TILE, TILE), float32)
        right = cuda.shared.array((TILE, width), float32)
        column, row = cuda.grid(2)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        left[ty, tx] = a[row, tx]
        right[tx, ty] = a[cuda.blockIdx.x * TILE + ty, tx]
        cuda.syncthreads()
        total = float32(0)
        for k in range(TILE):
            total += left[ty, k] * right[k, tx]
        c[row, column] = total

    return gram


@cuda.jit
def outer_naive(a, b, c):
    """``a @ b`` of a narrow `a` and a flat `b`."""
    column, row = cuda.grid(2)
    total = float32(0)
    for k in range(TILE):
        total += a[row, k] * b[k, column]
    c[row, column] = total


@cuda.jit
def outer_half_tiled(a, b, c):
    """The same with a tile of `a` in shared memory."""
    left = cuda.shared.array((TILE, TILE), float32)
    column, row = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    left[ty, tx] = a[row, tx]
    cuda.syncthreads()
    total = float32(0)
    for k in range(TILE):
        total += left[ty, k] * b[k, column]
    c[row, column] = total


def launched(
    card: str, kernel: Any, grid: Any, block: Any, shapes: list[tuple[int, ...]], blocks: int, *more: Any
) -> Any:
    """The record of a launch on a card, of which `blocks` blocks run."""
    lab.enable(card)
    tensors = [torch.zeros(shape, device="cuda") for shape in shapes]
    with lab.record() as trace, sample_programs(blocks):
        kernel[grid, block](*tensors, *more)
    lab.disable()
    return trace.kernels[-1]


@dataclass
class Case:
    """A kernel with its launch; `blocks` of its blocks run."""

    name: str
    kernel: Any
    grid: Any
    block: Any
    shapes: list[tuple[int, ...]]
    blocks: int
    more: tuple[Any, ...] = ()

    def on(self, card: str) -> Any:
        """Its record on a card."""
        return launched(card, self.kernel, self.grid, self.block, self.shapes, self.blocks, *self.more)


def _square(n: int, many: int) -> list[tuple[int, ...]]:
    return [(n, n)] * many


N, M = 1024, 4096
_SUMMED = [(M, 128), (128, M), (M, M)]
_SMALL = [(N, 128), (128, N), (N, N)]
TABLE = [
    Case("copy", copy_strided, M * 64, 256, [(M * 64 * 256,), (M * 64 * 256,)], 64, (1,)),
    Case("copy, stride 2", copy_strided, M * 64, 256, [(M * 128 * 256,), (M * 64 * 256,)], 64, (2,)),
    Case("copy, stride 8", copy_strided, M * 16, 256, [(M * 128 * 256,), (M * 16 * 256,)], 64, (8,)),
    Case("matmul 1024×128×1024, by rows", matmul_rows, (32, 32), (32, 32), _SMALL, 1),
    Case("matmul 1024×128×1024, by columns", matmul_naive, (32, 32), (32, 32), _SMALL, 1),
    Case("matmul 1024×128×1024, tiled", matmul_tiled, (32, 32), (32, 32), _SMALL, 1),
    Case("transpose 4096, naive", transpose_naive, (128, 128), (32, 32), _square(M, 2), 32),
    Case("transpose 4096, tiled", transpose_through_tile(TILE), (128, 128), (32, 32), _square(M, 2), 32),
    Case("transpose 4096, padded", transpose_through_tile(PADDED), (128, 128), (32, 32), _square(M, 2), 32),
]

_WORKLOG = "S. Boehm, github.com/siboehm/SGEMM_CUDA"
_A100 = "the same, README of February 2023"
_GUIDE = "CUDA C++ Best Practices Guide, Shared Memory in Matrix Multiplication"
_NARROW = [(M, TILE), (M, M)]
_FLAT = [(M, TILE), (TILE, M), (M, M)]
_BIG = (128, 128), (32, 32)
MEASURED = [
    ("rtx-a6000", Case("matmul 4096, by rows", matmul_rows, *_BIG, _SUMMED, 1), 309.0, "GFLOP/s", _WORKLOG),
    ("rtx-a6000", Case("matmul 4096, by columns", matmul_naive, *_BIG, _SUMMED, 1), 1986.5, "GFLOP/s", _WORKLOG),
    ("rtx-a6000", Case("matmul 4096, tiled", matmul_tiled, *_BIG, _SUMMED, 1), 2980.3, "GFLOP/s", _WORKLOG),
    ("a100", Case("matmul 4096, by rows", matmul_rows, *_BIG, _SUMMED, 1), 292.0, "GFLOP/s", _A100),
    ("a100", Case("matmul 4096, by columns", matmul_naive, *_BIG, _SUMMED, 1), 3115.7, "GFLOP/s", _A100),
    ("a100", Case("matmul 4096, tiled", matmul_tiled, *_BIG, _SUMMED, 1), 5448.6, "GFLOP/s", _A100),
    ("v100-16gb", Case("A·B, naive", outer_naive, *_BIG, _FLAT, 4), 119.9, "GB/s", _GUIDE),
    ("v100-16gb", Case("A·B, a tile of A", outer_half_tiled, *_BIG, _FLAT, 4), 144.4, "GB/s", _GUIDE),
    ("v100-16gb", Case("A·B, tiled", matmul_tiled, *_BIG, _FLAT, 4), 195.5, "GB/s", _GUIDE),
    ("v100-16gb", Case("A·Aᵀ, naive", gram_naive, *_BIG, _NARROW, 4), 12.8, "GB/s", _GUIDE),
    ("v100-16gb", Case("A·Aᵀ, tiled", gram_through_tile(TILE), *_BIG, _NARROW, 4), 140.2, "GB/s", _GUIDE),
    ("v100-16gb", Case("A·Aᵀ, padded", gram_through_tile(PADDED), *_BIG, _NARROW, 4), 199.4, "GB/s", _GUIDE),
]
"""(card, kernel, figure, unit, source): GB/s are each matrix read or written once, by the time."""


def table() -> list[str]:
    """The kernels on three cards: they run once, and the other cards' times follow from the same traffic."""
    rows = [
        "| | requested | sectors / request | between L1 and L2 | bank conflicts | "
        + " | ".join(CARDS)
        + " | bound by |",
        "|---|---:|---:|---:|---:|" + "---:|" * len(CARDS) + "---|",
    ]
    for case in TABLE:
        found = case.on("a100").access
        times = {
            card: launch_time(gpu(card), found, occupancy(gpu(card), found.threads, 0, found.shared_bytes))
            for card in CARDS
        }
        bounds = list(dict.fromkeys(time.bound_by for time in times.values()))
        rows.append(
            f"| {case.name} | {size(found.bytes_loaded + found.bytes_stored)} | {found.sectors_per_request:.3g} | "
            f"{size(found.l2_bytes)} | {found.bank_conflicts:,} | "
            f"{' | '.join(duration(time.ns) for time in times.values())} | {', '.join(bounds)} |"
        )
        print(rows[-1], flush=True)
    return rows


def measured() -> list[str]:
    """The kernels beside measurements."""
    rows = ["| card | kernel | measured | simulated | | source |", "|---|---|---:|---:|---:|---|"]
    for card, case, figure, unit, source in MEASURED:
        record = case.on(card)
        ns = record.end_ns - record.start_ns
        nbytes = sum(4 * torch.Size(shape).numel() for shape in case.shapes)
        simulated = (record.access.flops if unit == "GFLOP/s" else nbytes) / ns
        off = 100 * (simulated / figure - 1)
        rows.append(f"| {card} | {case.name} | {figure:,} {unit} | {simulated:,.1f} {unit} | {off:+.0f}% | {source} |")
        print(rows[-1], flush=True)
    return rows


def write(name: str, rows: list[str]) -> None:
    """Put a table between its markers in the page."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(begin)
    PAGE.write_text(f"{before}{begin}\n{chr(10).join(rows)}\n{end}{rest.split(end)[1]}", encoding="utf-8")


def main() -> None:
    """Print the tables, or write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    tables = {"measured": measured(), "table": table()}
    if arguments.write:
        for name, rows in tables.items():
            write(name, rows)


if __name__ == "__main__":
    sys.exit(main())
