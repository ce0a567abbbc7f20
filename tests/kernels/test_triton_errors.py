"""Kernels that are wrong, and what Triton, CUDA or the simulation says of them."""

from __future__ import annotations

import sys

import pytest
import torch

pytest.importorskip("triton", "3.9", reason="Triton 3.9 is not installed: pip install 'triton>=3.9' (Linux)")

import triton
import triton.language as tl
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources
from triton_kernels import add_kernel, matmul_kernel

import fakegpu_lab as lab
from fakegpu_lab.course.checks import checking

pytestmark = pytest.mark.usefixtures("machine")
notes = pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have notes from Python 3.11 on")


@triton.jit
def without_mask(x_ptr, o_ptr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o_ptr + i, tl.load(x_ptr + i))


@triton.jit
def wrong_stride(x_ptr, o_ptr, stride, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o_ptr + tl.program_id(0) * B + i, tl.load(x_ptr + tl.program_id(0) * stride + i))


@triton.jit
def negative_index(x_ptr, o_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o_ptr + i, tl.load(x_ptr + i - 1))


def notes_of(call):
    """What is said of an illegal access."""
    call()  # returns, as on CUDA
    with pytest.raises(torch.AcceleratorError, match="CUDA error: an illegal memory access was encountered") as caught:
        torch.cuda.synchronize()
    assert caught.value.error_code == 700
    with pytest.raises(torch.AcceleratorError, match="illegal memory access"):  # and so does every later call
        torch.ones(1, device="cuda") + 1
    return " ".join((str(caught.value), *getattr(caught.value, "__notes__", ())))


def test_a_missing_mask():
    x, out = torch.rand(100, device="cuda"), torch.empty(100, device="cuda")
    said = notes_of(lambda: without_mask[(2,)](x, out, B=64))
    assert "Program 1 loads x_ptr[100] at " in said
    assert "elements 0 to 99 (27 more elements are outside, too): is the mask missing or too wide, or does" in said
    lab.reset()
    assert torch.ones(1, device="cuda").item() == 1


def test_a_wrong_stride():
    x, out = torch.rand(4, 64, device="cuda"), torch.empty(4, 64, device="cuda")
    said = notes_of(lambda: wrong_stride[(4,)](x, out, 128, B=64))
    assert "Program 2 loads x_ptr[256]" in said


def test_an_index_below_zero():
    x, out = torch.rand(64, device="cuda"), torch.empty(64, device="cuda")
    assert "Program 0 loads x_ptr[-1]" in notes_of(lambda: negative_index[(1,)](x, out, B=64))


def test_indices_count_from_where_a_view_begins():
    x, out = torch.rand(100, device="cuda")[40:], torch.empty(64, device="cuda")
    said = notes_of(lambda: without_mask[(1,)](x, out, B=64))
    assert "Program 0 loads x_ptr[60]" in said
    assert "elements -40 to 59 (3 more elements are outside, too)" in said


def test_a_store_beyond_the_output_writes_nothing_else():
    x, out = torch.rand(128, device="cuda"), torch.empty(100, device="cuda")
    beside = torch.zeros(1000, device="cuda")
    assert "stores o_ptr[100]" in notes_of(lambda: without_mask[(2,)](x, out, B=64))
    assert beside._inner.sum() == 0


def test_blocking_launches_raise_at_the_launch(monkeypatch):
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    lab.enable("a100", memory="2GiB")
    x, out = torch.rand(100, device="cuda"), torch.empty(100, device="cuda")
    with pytest.raises(torch.AcceleratorError, match="illegal memory access"):
        without_mask[(2,)](x, out, B=64)
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING")


@pytest.mark.parametrize("where", ["cpu", "cuda:1"])
def test_a_pointer_to_other_memory(where):
    x = torch.rand(100, device="cuda:0")
    with pytest.raises(ValueError, match=r"Pointer argument.* cannot be accessed from Triton \(cpu tensor\?\)"):
        add_kernel[(1,)](x, torch.rand(100, device=where), x, 100, BLOCK=128)


@notes
def test_a_pointer_to_other_memory_is_named():
    x = torch.rand(100, device="cuda:0")
    with pytest.raises(ValueError, match="Pointer argument") as caught:
        add_kernel[(1,)](x, torch.rand(100), x, 100, BLOCK=128)
    assert caught.value.__notes__ == ["The argument y_ptr is on cpu, but the kernel was launched on cuda:0."]


@notes
def test_a_kernel_that_is_called_without_a_grid():
    x = torch.rand(100, device="cuda:0")
    with pytest.raises(RuntimeError, match="outside of the scope of a kernel") as caught:
        without_mask(x, x, B=64)
    (note,) = caught.value.__notes__
    assert note.startswith("To launch a kernel, give it a grid: without_mask[(programs,)](…)")


def test_a_check_s_card_shows_the_line_and_the_reason_of_a_compiler_s_error():
    """Triton's text begins with the kernel, and may leave its reason to an inner error."""

    @triton.jit
    def sizes_that_differ(x_ptr, B: tl.constexpr):
        i = tl.arange(0, B)
        tl.store(x_ptr + i, tl.load(x_ptr + i) + tl.arange(0, 2 * B))

    x = torch.rand(64, device="cuda:0")
    cell = "expect.run(launch)"
    outcome = checking.run(cell, {"launch": lambda: sizes_that_differ[(1,)](x, B=64)}, "kernel").record.parts[0]
    assert (
        "`tl.store(x_ptr + i, tl.load(x_ptr + i) + tl.arange(0, 2 * B))`: Cannot make_shape_compatible" in outcome.found
    )


def test_too_much_shared_memory():
    a = torch.rand(512, 512, device="cuda").half()
    with pytest.raises(OutOfResources) as caught:
        matmul_kernel[(4,)](
            a, a, a, 512, 512, 512, 512, 1, 512, 1, 512, 1,
            BLOCK_M=256, BLOCK_N=256, BLOCK_K=64, GROUP_M=8, num_warps=8, num_stages=4,
        )  # fmt: skip
    assert str(caught.value) == (
        "out of resource: shared memory, Required: 196608, Hardware limit: 166912. "
        "Reducing block sizes or `num_stages` may help."
    )


def test_too_many_threads():
    x = torch.rand(100, device="cuda")
    with pytest.raises(OutOfResources, match="out of resource: threads, Required: 2048, Hardware limit: 1024"):
        add_kernel[(1,)](x, x, x, 100, BLOCK=128, num_warps=64)


def test_a_block_that_is_no_power_of_two():
    x = torch.rand(100, device="cuda")
    with pytest.raises(CompilationError, match="arange's range must be a power of 2"):
        add_kernel[(1,)](x, x, x, 100, BLOCK=100)


@triton.jit
def shapes_do_not_fit(x_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x_ptr + i, tl.load(x_ptr + i) + tl.arange(0, 2 * B))


def test_shapes_that_do_not_fit():
    x = torch.rand(128, device="cuda")
    with pytest.raises(CompilationError, match="incompatible dimensions at index 0: 64 and 128"):
        shapes_do_not_fit[(1,)](x, B=64)


def test_an_argument_that_does_not_exist():
    x = torch.rand(100, device="cuda")
    with pytest.raises(KeyError, match="Keyword argument BLOK was specified but unrecognised"):
        add_kernel[(1,)](x, x, x, 100, BLOCK=128, BLOK=1)


def test_a_call_without_a_grid():
    x = torch.rand(100, device="cuda")
    with pytest.raises(RuntimeError, match=r"Cannot call @triton\.jit'd outside of the scope of a kernel"):
        add_kernel(x, x, x, 100, BLOCK=128)


@triton.jit
def locked_increment(lock_ptr, x_ptr):
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(x_ptr, tl.load(x_ptr) + 1)
    tl.atomic_xchg(lock_ptr, 0)


def test_a_lock_that_nobody_releases_is_reported():
    lock, x = torch.zeros(1, dtype=torch.int32, device="cuda"), torch.zeros(1, device="cuda")
    locked_increment[(20,)](lock, x)
    assert (lock.item(), x.item()) == (0, 20)
    lock.fill_(1)
    with pytest.raises(lab.FakeGpuError, match=r"nothing changes in memory: .* would hang on a GPU"):
        locked_increment[(20,)](lock, x)


@triton.jit
def sums_in_steps(x_ptr, o_ptr, n, rounds, STEP: tl.constexpr, B: tl.constexpr):
    i, first, total, again = tl.arange(0, B), 0, tl.zeros((B,), tl.float32), 0
    while first < n and again < rounds:
        total += tl.load(x_ptr + i + first)
        first += STEP
        again += 1
    tl.store(o_ptr + i, total)


def test_a_loop_whose_rounds_are_alike_ends_early_and_does_not_fill_memory():
    x, o = torch.ones(8 * 5000, device="cuda"), torch.zeros(8, device="cuda")
    sums_in_steps[(1,)](x, o, len(x), 10**6, STEP=8, B=8)
    assert o.tolist() == [5000] * 8, "more rounds than are looked at, and each reads other places"
    sums_in_steps[(1,)](x, o, len(x), 1500, STEP=0, B=8)
    assert o.tolist() == [1500] * 8
    message = r"2,000 times around the loop at .*while first < n.* Does each round change what its condition asks\?"
    with pytest.raises(lab.FakeGpuError, match=message):
        sums_in_steps[(1,)](x, o, len(x), 10**6, STEP=0, B=8)


@triton.jit
def sum_without_atomics(x_ptr, o_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    total = tl.sum(tl.load(x_ptr + i, mask=i < n, other=0.0))
    tl.store(o_ptr, tl.load(o_ptr) + total)


@triton.jit
def shift_in_place(x_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x_ptr + i + 1, mask=i + 1 < n)
    tl.store(x_ptr + i, v, mask=i + 1 < n)


@triton.jit
def overlapping(o_ptr, B: tl.constexpr):
    i = tl.program_id(0) * (B // 2) + tl.arange(0, B)
    tl.store(o_ptr + i, tl.program_id(0) * 1.0)


@triton.jit
def no_race(x_ptr, o_ptr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x_ptr + i, tl.load(x_ptr + i) * 2)
    tl.store(o_ptr, 1.0)  # the same value by all
    tl.atomic_add(o_ptr + 1, tl.sum(tl.load(x_ptr + i)))


def test_an_argument_that_is_given_twice():
    x = torch.rand(1000, device="cuda")
    expected = 4 * x
    with lab.record() as trace:
        add_kernel[(8,)](x, x, x, 1000, BLOCK=128)
        add_kernel[(8,)](x, x, x, 1000, BLOCK=128)
        without_mask[(4,)](x[1:], x, B=128)
    assert torch.equal(x[512:], expected[512:])
    (race,) = trace.races
    assert "x_ptr[" in str(race)


def test_races_between_programs(capsys):
    x, out = torch.rand(1000, device="cuda"), torch.zeros(1000, device="cuda")
    with lab.record() as trace:
        no_race[(7,)](x, out, B=128)
    assert trace.races == []
    with lab.record() as trace:
        for _ in range(2):
            sum_without_atomics[(8,)](x, out, 1000, B=128)
        shift_in_place[(8,)](x, 1000, B=128)
        overlapping[(8,)](out, B=128)
    summing, shifting, storing = map(str, trace.races)
    assert "in sum_without_atomics: program 1 loads o_ptr[0]" in summing
    assert "which program 0 stores in the same line, and nothing orders the two" in summing
    assert "in shift_in_place: program 1 stores x_ptr[128]" in shifting
    assert "which program 0 loads (" in shifting
    assert "in overlapping: program 1 stores o_ptr[64]" in storing
    shown = capsys.readouterr()
    assert shown.out.count("Race on cuda:0") == 3  # at once, each once
    assert shown.err == ""


@triton.jit
def begins_with_zero(x_ptr, o_ptr):
    if tl.program_id(0) == 0:
        tl.store(o_ptr, 0.0)
    tl.atomic_add(o_ptr, tl.load(x_ptr + tl.program_id(0)))


@triton.jit
def doubled_by_its_program(x_ptr, o_ptr):
    at = o_ptr + tl.program_id(0)
    tl.atomic_add(at, tl.load(x_ptr + tl.program_id(0)))
    tl.store(at, 2 * tl.load(at))


def test_a_store_races_with_atomic_operations_of_other_programs(capsys):
    """The program that stores had forgotten it, once it had added something itself."""
    x = torch.rand(8, device="cuda")
    doubled_by_its_program[(8,)](x, torch.zeros(8, device="cuda"))
    assert not capsys.readouterr().out
    begins_with_zero[(8,)](x, torch.ones(1, device="cuda"))
    said = capsys.readouterr().out
    assert "program 1 updates o_ptr[0]" in said
    assert "which program 0 stores" in said


@triton.jit
def far_index(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr + tl.program_id(0) * n + tl.arange(0, B), 1.0)


@triton.jit
def strides_swapped(x_ptr, o_ptr, down, across, M: tl.constexpr, N: tl.constexpr):
    row, column = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    tl.store(o_ptr + row * N + column, tl.load(x_ptr + row * down + column * across))


def test_an_index_that_overflows_int32():
    x = torch.zeros(64, device="cuda")
    with lab.sample_programs(1):  # the middle one of three: 2 ** 31 is not an int32
        said = notes_of(lambda: far_index[(1 + 2 * 3,)](x, 2**30 - 2**28, B=16))
    assert "did an index overflow int32? Compute it in 64 bits: tl.program_id(0).to(tl.int64)." in said


def test_the_strides_of_another_layout():
    x, out = torch.rand(16, 32, device="cuda"), torch.empty(16, 32, device="cuda")
    said = notes_of(lambda: strides_swapped[(1,)](x, out, x.stride(1), x.stride(0), M=16, N=32))
    assert "is the mask missing or too wide, or a stride wrong?" in said


def test_a_grid_of_floats_is_refused_as_by_the_launcher():
    x = torch.zeros(64, device="cuda")
    with pytest.raises(TypeError, match="'float' object cannot be interpreted as an integer"):
        far_index[(64 / 16,)](x, 16, B=16)


@triton.jit
def square(x):
    return x * x


@triton.jit
def mapped(x_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x_ptr + i, tl.map_elementwise(square, tl.load(x_ptr + i)))


@triton.jit
def assembled(x_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    x = tl.load(x_ptr + i)
    y = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(x_ptr + i, y)


@pytest.mark.parametrize(("kernel", "name"), [(mapped, "map_elementwise"), (assembled, "inline_asm_elementwise")])
def test_what_the_simulation_does_not_know_is_named(kernel, name):
    with pytest.raises(lab.FakeGpuError, match=rf"^tl\.{name} is not part of the simulation\.$"):
        kernel[(1,)](torch.zeros(16, device="cuda"), B=16)


@triton.jit
def talks(x_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    print("value", tl.load(x_ptr + i))
    tl.device_print("at", tl.program_id(0), i)


def test_print_is_that_of_a_card(capsys):
    """The format of PrintOpToLLVM.cpp: program, index, prefix, operand, value."""
    talks[(2,)](torch.tensor([0.5, 2.0], device="cuda"), B=2)
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["pid (0, 0, 0) idx (0) value: 0.500000", "pid (0, 0, 0) idx (1) value: 2.000000"]
    assert "pid (1, 0, 0) idx () at: (operand 0) 1" in said
    assert "pid (1, 0, 0) idx (1) at: (operand 1) 1" in said


@pytest.mark.parametrize("grid", [(1, 65536), (1, 1, 65536)])
def test_a_grid_that_is_too_large(grid):
    x = torch.zeros(64, device="cuda")
    with pytest.raises(RuntimeError, match=r"^Triton Error \[CUDA\]: invalid argument"):
        without_mask[grid](x, x, B=64)
    without_mask[1,](x, x, B=64)
    torch.cuda.synchronize()
