"""What a kernel moves, equal to what is computed by hand: sectors of 32 bytes for each request, conflicts, FLOPs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fakegpu_lab as lab

pytest.importorskip("numba", reason="the extra `numba` is not installed")
pytest.importorskip("greenlet", reason="the extra `numba` is not installed")

from numba import cuda, float32

pytestmark = pytest.mark.usefixtures("machine")

N = 32
TILE = 16


@cuda.jit
def naive(a, b, c):
    x, y = cuda.grid(2)
    total = float32(0)
    for k in range(a.shape[1]):
        total += a[y, k] * b[k, x]
    c[y, x] = total


@cuda.jit
def tiled(a, b, c):
    left = cuda.shared.array((TILE, TILE), float32)
    right = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for start in range(0, a.shape[1], TILE):
        left[ty, tx] = a[y, start + tx]
        right[ty, tx] = b[start + ty, x]
        cuda.syncthreads()
        for k in range(TILE):
            total += left[ty, k] * right[k, tx]
        cuda.syncthreads()
    c[y, x] = total


def transpose(width: int) -> Any:
    """A transposition through a tile of `width` columns."""

    @cuda.jit
    def transpose(source, target):
        tile = cuda.shared.array((32, width), float32)
        x, y = cuda.grid(2)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        tile[ty, tx] = source[y, x]
        cuda.syncthreads()
        target[cuda.blockIdx.x * 32 + ty, cuda.blockIdx.y * 32 + tx] = tile[tx, ty]

    return transpose


@cuda.jit
def strided_copy(source, target, stride):
    i = cuda.grid(1)
    target[i] = source[i * stride]


@cuda.jit
def misaligned_copy(source, target, offset):
    i = cuda.grid(1)
    target[i] = source[i + offset]


@cuda.jit
def in_double(x):
    i = cuda.grid(1)
    x[i] = x[i] * 2.0 + 1.0


@cuda.jit
def in_single(x):
    i = cuda.grid(1)
    x[i] = x[i] * float32(2.0) + float32(1.0)


def access(kernel: Any, config: tuple[Any, ...], *args: Any) -> Any:
    with lab.record() as trace:
        kernel[config](*args)
    (launch,) = trace.kernels
    return launch.access


def product(kernel: Any, block: tuple[int, int]) -> Any:
    a, b, c = (torch.randn(N, N, device="cuda") for _ in range(3))
    found = access(kernel, ((N // block[0], N // block[1]), block), a, b, c)
    assert torch.allclose(c.cpu(), (a @ b).cpu(), atol=1e-4)
    return found


def test_naive_matmul_reads_every_operand_n_times():
    found = product(naive, (32, 8))
    assert found.bytes_loaded == 2 * 4 * N**3
    assert found.bytes_stored == 4 * N**2
    # A warp reads one element of a, which all lanes share, and 32 neighbours of b: 1 and 4 sectors.
    steps = N**3 // 32
    assert found.requests == 2 * steps + N**2 // 32
    assert found.sectors == 5 * steps + 4 * N**2 // 32
    assert found.flops == 2 * N**3


def test_tiled_matmul_reads_every_operand_n_by_tile_times():
    found = product(tiled, (TILE, TILE))
    assert found.bytes_loaded == 2 * 4 * N**3 // TILE
    assert found.flops == 2 * N**3
    assert found.bank_conflicts == 0
    # Each step of the product reads shared memory twice; each tile is written once.
    assert found.shared_requests == 2 * N**3 // 32 + 2 * (N**3 // TILE) // 32


@pytest.mark.parametrize(("width", "ways"), [(32, 32), (33, 1), (34, 2)])
def test_a_column_of_a_tile_lies_in_one_bank_unless_rows_are_padded(width, ways):
    source, target = torch.randn(64, 64, device="cuda"), torch.empty(64, 64, device="cuda")
    found = access(transpose(width), ((2, 2), (32, 32)), source, target)
    assert torch.equal(target.cpu(), source.cpu().T)
    assert found.bank_conflicts == (ways - 1) * 64 * 64 // 32
    assert found.sectors_per_request == 4  # both global accesses are coalesced


@pytest.mark.parametrize(("stride", "sectors"), [(1, 4), (2, 8), (4, 16), (8, 32), (16, 32)])
def test_a_stride_spreads_a_warp_over_more_sectors(stride, sectors):
    source, target = torch.randn(128 * stride, device="cuda"), torch.empty(128, device="cuda")
    found = access(strided_copy, (1, 128), source, target, stride)
    assert found.lines[0].sectors_per_request == sectors
    assert torch.equal(target.cpu(), source.cpu()[::stride])


def test_a_misaligned_copy_touches_one_sector_more():
    source, target = torch.randn(160, device="cuda"), torch.empty(128, device="cuda")
    assert access(misaligned_copy, (1, 128), source, target, 1).lines[0].sectors_per_request == 5
    assert access(misaligned_copy, (1, 128), source, target, 8).lines[0].sectors_per_request == 4


def test_a_literal_makes_the_arithmetic_double():
    x = torch.ones(64, device="cuda")
    assert access(in_double, (2, 32), x).flops_by_format == {("fp64", False): 128.0}
    assert access(in_single, (2, 32), x).flops_by_format == {("fp32", False): 128.0}


def test_the_kernel_has_its_shape_its_line_and_its_memory():
    with lab.record() as trace:
        transpose(32)[(2, 2), (32, 32)](torch.zeros(64, 64, device="cuda"), torch.zeros(64, 64, device="cuda"))
    kernel = trace.kernels[-1]
    assert kernel.name == "transpose"
    assert kernel.line.startswith(__file__)
    assert kernel.access.grid == (2, 2, 1)
    assert kernel.access.threads == 1024
    assert kernel.access.shared_bytes == 32 * 32 * 4
    assert kernel.access.occupancy.warps == 64
