"""Kernels after Triton's tutorials: right results, and the traffic that one works out by hand."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton", "3.9", reason="Triton 3.9 is not installed: pip install 'triton>=3.9' (Linux)")

import triton
import triton_kernels as kernels

import fakegpu_lab as lab

pytestmark = pytest.mark.usefixtures("machine")
SMALL = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8, "num_warps": 4, "num_stages": 3}


def launched(call):
    """The access of the one kernel that `call` launches."""
    with lab.record() as trace:
        call()
    (kernel,) = trace.kernels
    return kernel.access


def test_vector_addition():
    n = 10_000
    x, y = torch.rand(n, device="cuda"), torch.rand(n, device="cuda")
    out = torch.empty_like(x)
    access = launched(lambda: kernels.add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024))
    assert torch.equal(out, x + y)
    assert (access.bytes_loaded, access.bytes_stored) == (2 * 4 * n, 4 * n)
    assert (access.dram_read_bytes, access.dram_written_bytes) == (2 * 4 * n, 4 * n)
    # 16 bytes a lane: 16 sectors a request, and the last request of each line has 16 elements only
    assert access.sectors == 3 * 4 * n // 32
    assert access.requests == 3 * (n // 128 + 1)
    assert (access.grid, access.threads) == ((10, 1, 1), 128)


def test_softmax_by_programs_that_take_several_rows():
    x = torch.randn(183, 781, device="cuda")
    out = torch.empty_like(x)
    access = launched(
        lambda: kernels.softmax_kernel[(50,)](out, x, x.stride(0), out.stride(0), *x.shape, BLOCK=1024, STAGES=2)
    )
    assert torch.allclose(out, torch.softmax(x, 1), atol=1e-6)
    assert (access.bytes_loaded, access.bytes_stored) == (x.nbytes, x.nbytes)
    assert access.dram_bytes == pytest.approx(2 * x.nbytes, abs=64)  # both ends lie within a sector


def matmul(a, b, kernel=kernels.matmul_kernel, **options):
    m, k = a.shape
    n = b.shape[1]
    c = torch.empty(m, n, device=a.device, dtype=a.dtype)

    def grid(meta):
        return (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)

    kernel[grid](a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(), **options)
    return c


def test_matrix_product():
    m, n, k = 256, 128, 192
    a = torch.randn(m, k, device="cuda", dtype=torch.float16)
    b = torch.randn(k, n, device="cuda", dtype=torch.float16)
    results = []
    access = launched(lambda: results.append(matmul(a, b, **SMALL)))
    assert torch.allclose(results[0], a @ b, atol=0.1)
    assert access.flops_by_format == {("fp16", True): 2 * m * n * k}
    # Each tile of 64 columns reads all of A, each tile of 64 rows all of B; DRAM sees each matrix once.
    assert access.bytes_loaded == 2 * m * k * (n // 64) + 2 * k * n * (m // 64)
    assert access.dram_bytes == 2 * (m * k + k * n + m * n)
    assert access.shared_bytes == 16384  # two stages of 4 KiB + 4 KiB, as Triton's compiler allocates them
    assert access.intensity == pytest.approx(2 * m * n * k / (2 * (m * k + k * n + m * n)))


def test_matrix_product_with_edges_and_an_activation():
    a = torch.randn(100, 70, device="cuda", dtype=torch.float16)
    b = torch.randn(70, 90, device="cuda", dtype=torch.float16)
    assert torch.allclose(matmul(a, b, ACTIVATION="leaky_relu", **SMALL), F.leaky_relu(a @ b), atol=0.05)


def test_the_autotuner_takes_the_config_that_is_faster_in_simulated_time():
    a = torch.randn(512, 512, device="cuda", dtype=torch.float16)
    c = matmul(a, a, kernels.tuned_matmul_kernel)
    assert torch.allclose(c, a @ a, atol=0.1)
    timings = kernels.tuned_matmul_kernel.configs_timings
    best = kernels.tuned_matmul_kernel.best_config
    assert best.kwargs["BLOCK_M"] == 64
    assert len(timings) == 2
    assert timings[best] == min(timings.values())


def layer_norm(x, weight, bias, block=256):
    rows, columns = x.shape
    y, mean, rstd = torch.empty_like(x), torch.empty(rows, device="cuda"), torch.empty(rows, device="cuda")
    kernels.layer_norm_forward[(rows,)](x, y, weight, bias, mean, rstd, x.stride(0), columns, 1e-5, BLOCK=block)
    return y, mean, rstd


def test_layer_norm():
    x = torch.randn(64, 1024, device="cuda")
    weight, bias = torch.rand(1024, device="cuda"), torch.rand(1024, device="cuda")
    results = []
    access = launched(lambda: results.append(layer_norm(x, weight, bias)))
    assert torch.allclose(results[0][0], F.layer_norm(x, (1024,), weight, bias), atol=1e-5)
    # Each row is read three times (once from DRAM), weight and bias once for each row.
    assert access.bytes_loaded == 3 * x.nbytes + 64 * 2 * weight.nbytes
    assert access.dram_read_bytes == x.nbytes + 2 * weight.nbytes


def test_layer_norm_backward_with_locks():
    rows, columns, group = 40, 300, 16
    x = torch.randn(rows, columns, device="cuda")
    weight, bias = torch.rand(columns, device="cuda"), torch.rand(columns, device="cuda")
    _, mean, rstd = layer_norm(x, weight, bias)
    dy, dx = torch.randn_like(x), torch.empty_like(x)
    locks = torch.zeros(2 * group, dtype=torch.int32, device="cuda")
    dw, db = torch.zeros(group, columns, device="cuda"), torch.zeros(group, columns, device="cuda")
    with lab.record() as trace:
        kernels.layer_norm_backward_x[(rows,)](
            dx, dy, dw, db, x, weight, mean, rstd, locks, x.stride(0), columns, GROUP=group, BLOCK=512
        )
    assert trace.races == []  # the locks order the programs
    assert locks[:group].sum() == 0
    weight_grad, bias_grad = torch.empty_like(weight), torch.empty_like(bias)
    kernels.layer_norm_backward_w[(triton.cdiv(columns, 128),)](
        dw, db, weight_grad, bias_grad, group, columns, BLOCK_M=32, BLOCK_N=128
    )
    x, weight, bias = (one.detach().clone().requires_grad_() for one in (x, weight, bias))
    F.layer_norm(x, (columns,), weight, bias).backward(dy)
    assert torch.allclose(dx, x.grad, atol=1e-5)
    assert torch.allclose(weight_grad, weight.grad, atol=1e-4)
    assert torch.allclose(bias_grad, bias.grad, atol=1e-4)


@pytest.mark.parametrize("causal", [False, True])
def test_flash_attention(causal):
    batch, heads, length, width, block = 1, 3, 256, 64, 64
    q, k, v = (torch.randn(batch, heads, length, width, device="cuda", dtype=torch.float16) for _ in range(3))
    out, m = torch.empty_like(q), torch.empty(batch, heads, length, device="cuda")
    access = launched(
        lambda: kernels.attention_forward[(length // block, batch * heads)](
            q, k, v, m, out, width**-0.5, length, D=width, BLOCK_M=block, BLOCK_N=32, CAUSAL=causal
        )
    )
    assert torch.allclose(out, F.scaled_dot_product_attention(q, k, v, is_causal=causal), atol=2e-3)
    blocks = length // block
    columns = sum(range(1, blocks + 1)) * block if causal else blocks * length  # that all row blocks of a head see
    assert access.bytes_loaded == heads * (length + 2 * columns) * width * 2
    assert access.dram_read_bytes == 3 * q.nbytes
    assert access.flops_by_format["fp16", True] == heads * 2 * 2 * block * width * columns
