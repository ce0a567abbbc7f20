"""What a kernel can say: Triton's language on many programs at a time."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton", "3.9", reason="Triton 3.9 is not installed: pip install 'triton>=3.9' (Linux)")

import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.libdevice import rsqrt
from triton.tools.tensor_descriptor import TensorDescriptor

import fakegpu_lab as lab

pytestmark = pytest.mark.usefixtures("machine")


@triton.jit
def block_functions(x_ptr, o_ptr, i_ptr, n, B: tl.constexpr):
    i = tl.arange(0, B)
    inside = i < n
    v = tl.load(x_ptr + i, mask=inside, other=0.0)
    tl.static_assert(B == 128)
    tl.store(o_ptr + i, tl.sort(v))
    tl.store(o_ptr + B + i, tl.cumsum(v, 0))
    tl.store(o_ptr + 2 * B + i, tl.flip(v))
    tl.store(o_ptr + 3 * B + i, tl.softmax(v))
    tl.store(o_ptr + 4 * B + i, tl.sigmoid(v) * tl.erf(v))
    a, b = tl.split(tl.join(v, v * 2))
    tl.store(o_ptr + 5 * B + i, a + b)
    for k in tl.static_range(2):
        if 0 <= k < 5 and not (k == 3):  # noqa: SIM201
            tl.store(o_ptr + 6 * B + k, k * 1.0)
    tl.store(o_ptr + 7 * B + i, libdevice.tanh(v))
    tl.store(i_ptr, tl.argmax(v, 0))
    tl.store(i_ptr + 1, tl.argmin(tl.where(inside, v, 2.0), 0))
    tl.store(i_ptr + 2 + tl.arange(0, 16), tl.histogram((v * 16).to(tl.int32), 16))
    tl.atomic_max(i_ptr + 18 + 0 * i, i, mask=inside)
    tl.device_assert(n > 0)


def test_functions_on_blocks():
    x = torch.rand(100, device="cuda")
    out, whole = torch.zeros(8, 128, device="cuda"), torch.zeros(20, dtype=torch.int32, device="cuda")
    block_functions[(1,)](x, out, whole, 100, B=128)
    v = F.pad(x, (0, 28))
    expected = [v.sort()[0], v.cumsum(0), v.flip(0), v.softmax(0), v.sigmoid() * v.erf(), 3 * v]
    for row, right in zip(out, expected, strict=False):
        assert torch.allclose(row, right, atol=1e-5)
    assert out[6, :3].tolist() == [0, 1, 0]
    assert torch.allclose(out[7], v.tanh(), atol=1e-6)
    assert whole[:2].tolist() == [x.argmax().item(), x.argmin().item()]
    assert torch.equal(whole[2:18], torch.bincount((v * 16).int(), minlength=16))
    assert whole[18] == 99


@triton.jit
def counter(x_ptr, n, total_ptr):
    pid = tl.program_id(0)
    steps = 0
    value = tl.load(x_ptr + pid)
    while value != 1:
        if value % 2 == 0:  # noqa: SIM108
            value = value // 2
        else:
            value = 3 * value + 1
        steps += 1
    tl.store(x_ptr + pid, steps)
    for _ in range(pid % 3):
        tl.atomic_add(total_ptr, 1)


def test_programs_that_go_different_ways():
    def collatz(n):
        steps = 0
        while n != 1:
            n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
        return steps

    x = torch.arange(1, 41, dtype=torch.int32, device="cuda")
    total = torch.zeros(1, dtype=torch.int32, device="cuda")
    counter[(40,)](x, 40, total)
    assert x.tolist() == [collatz(n) for n in range(1, 41)]
    assert total.item() == sum(n % 3 for n in range(40))


@triton.jit
def in_place_until_they_part(x_ptr):
    pid = tl.program_id(0)
    tl.store(x_ptr + pid, tl.load(x_ptr + pid) + 1)
    if pid % 2 == 0:
        tl.store(x_ptr + pid, tl.load(x_ptr + pid) * 10)


def test_what_was_stored_before_programs_part_is_stored_once():
    x = torch.zeros(6, device="cuda")
    in_place_until_they_part[(6,)](x)
    assert x.tolist() == [10, 1, 10, 1, 10, 1]


@triton.jit
def last_one_sums(x_ptr, partial_ptr, count_ptr, out_ptr, n, B: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * B + tl.arange(0, B)
    tl.store(partial_ptr + pid, tl.sum(tl.load(x_ptr + i, mask=i < n, other=0.0)))
    done = tl.atomic_add(count_ptr, 1)
    if done == tl.num_programs(0) - 1:
        total = 0.0
        for other in range(tl.num_programs(0)):
            total += tl.load(partial_ptr + other)
        tl.store(out_ptr, total)


def test_a_counter_finds_the_last_program():
    x = torch.rand(1000, device="cuda")
    partial, count = torch.zeros(8, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")
    out = torch.zeros(1, device="cuda")
    with lab.record() as trace:
        last_one_sums[(8,)](x, partial, count, out, 1000, B=128)
    assert out.item() == pytest.approx(x.sum().item())
    assert trace.races == []


@triton.jit
def copy_by_descriptor(source, target, B: tl.constexpr):
    at = tl.program_id(0) * B
    target.store([at, 0], source.load([at, 0]) * 3)


@triton.jit
def own_descriptor(x_ptr, o_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [BM, BN])
    target = tl.make_tensor_descriptor(o_ptr, [M, N], [N, 1], [BM, BN])
    at = tl.program_id(0) * BM
    target.store([at, 0], source.load([at, 0]) * 2)


def test_tensor_descriptors_stop_at_the_edges():
    x = torch.rand(30, 32, device="cuda")
    out = torch.zeros_like(x)
    copy_by_descriptor[(2,)](
        TensorDescriptor.from_tensor(x, [16, 32]), TensorDescriptor.from_tensor(out, [16, 32]), B=16
    )
    assert torch.equal(out, 3 * x)
    triton.set_allocator(lambda size, align, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    own_descriptor[(2,)](x, out, 30, 32, BM=16, BN=32)
    assert torch.equal(out, 2 * x)


@triton.heuristics({"EVEN": lambda args: args["n"] % args["B"] == 0})
@triton.jit
def doubled(x_ptr, o_ptr, n, B: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x_ptr + i) if EVEN else tl.load(x_ptr + i, mask=i < n)
    tl.store(o_ptr + i, v + v, mask=i < n)


@pytest.mark.parametrize("n", [100, 128])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64]
)
def test_dtypes_and_heuristics(n, dtype):
    x = (torch.rand(n, device="cuda") * 100).to(dtype)
    out = torch.empty_like(x)
    doubled[(2,)](x, out, n, B=64)
    assert torch.equal(out, x + x)


@triton.jit
def product(a, b):
    return a * b


@triton.jit
def factorials(o_ptr, B: tl.constexpr):
    i = tl.arange(0, B) + 1
    tl.store(o_ptr, tl.reduce(i, 0, product))
    tl.store(o_ptr + i, tl.associative_scan(i, 0, product))


def test_a_combining_function_of_ones_own():
    out = torch.zeros(9, dtype=torch.int32, device="cuda")
    factorials[(1,)](out, B=8)
    assert out.tolist() == [40320, 1, 2, 6, 24, 120, 720, 5040, 40320]


@triton.jit
def inverse_roots(x_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x_ptr + i, rsqrt(tl.load(x_ptr + i)))


@triton.jit
def bits(x_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x_ptr + i, libdevice.popc(tl.load(x_ptr + i)))


def test_functions_of_libdevice():
    x = torch.rand(64, device="cuda") + 0.1
    expected = x.rsqrt()
    inverse_roots[(1,)](x, B=64)
    assert torch.allclose(x, expected)
    with pytest.raises(lab.FakeGpuError, match=r"libdevice\.popc is not part of the simulation"):
        bits[(1,)](torch.ones(64, dtype=torch.int32, device="cuda"), B=64)


@triton.jit
def power(o_ptr, base, exponent, B: tl.constexpr):
    one = tl.full((1,), base, tl.float32)  # Inductor's constants
    tl.store(o_ptr + tl.arange(0, B), tl.broadcast_to(libdevice.pow(one, exponent), (B,)))


def test_functions_of_libdevice_take_numbers_without_a_warning():
    out = torch.empty(64, device="cuda")
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            power[(1,)](out, 0.5, 3.0, B=64)
    finally:
        torch.set_warn_always(False)
    assert out.tolist() == [0.125] * 64


def test_a_kernel_in_a_function_sees_its_variables():
    size = tl.constexpr(16)

    @triton.jit
    def fill(o_ptr):
        tl.store(o_ptr + tl.arange(0, size), tl.full((size,), 7.0, tl.float32))

    out = torch.zeros(16, device="cuda")
    fill[(1,)](out)
    assert out.tolist() == [7.0] * 16


def test_random_numbers_are_tritons():
    @triton.jit
    def draw(o_ptr):
        i = tl.arange(0, 1024)
        tl.store(o_ptr + i, tl.rand(42, i))

    out = torch.empty(1024, device="cuda")
    draw[(1,)](out)
    assert 0.45 < out.mean().item() < 0.55
    assert out.unique().numel() > 1000
