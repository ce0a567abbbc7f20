"""Broken kernels: each ends at once, in CUDA's or numba's words, with a sentence that says where."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import fakegpu_lab as lab
from fakegpu_lab.kernels.numba_cuda import endless, threads

pytest.importorskip("numba", reason="the extra `numba` is not installed")
pytest.importorskip("greenlet", reason="the extra `numba` is not installed")

from numba import cuda, float32
from numba.core import errors
from numba.cuda.cudadrv.driver import CudaAPIError, LinkerError

pytestmark = pytest.mark.usefixtures("machine")


def text(error: BaseException) -> str:
    """The message and the notes below it, as a traceback shows them."""
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


def ones(*shape: int, **options: Any) -> torch.Tensor:
    return torch.ones(*shape, device="cuda", **options)


notes = pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have notes from Python 3.11 on")


@cuda.jit
def unguarded(x, out):
    i = cuda.grid(1)
    out[i] = 2 * x[i]


@cuda.jit
def wrong_axis(x, out):
    column, row = cuda.grid(2)
    out[column, row] = x[row, column]


@notes
def test_an_index_outside_is_an_illegal_access_that_the_next_synchronisation_reports():
    x, out = ones(100), ones(100)
    unguarded[4, 32](x, out)
    with pytest.raises(torch.AcceleratorError, match="an illegal memory access was encountered") as caught:
        torch.cuda.synchronize()
    assert "Thread (4, 0, 0) of block (3, 0, 0) reads x[100] at" in text(caught.value)
    assert "test_numba_errors.py:" in text(caught.value)
    assert "but x has 100 elements" in text(caught.value)
    with pytest.raises(torch.AcceleratorError, match="an illegal memory access"):  # and so does every later call
        x + 1


@notes
def test_an_index_too_large_for_its_dimension_is_outside_too():
    wrong_axis[1, (4, 2)](ones(2, 4), ones(2, 4))
    with pytest.raises(torch.AcceleratorError) as caught:
        torch.cuda.synchronize()
    assert "writes out[2, 0]" in text(caught.value)
    assert "2 × 4 elements. Is a test such as `if row < out.shape[0]` missing, or are two indices swapped?" in text(
        caught.value
    )


def test_numba_reports_an_illegal_access_in_its_own_words():
    unguarded[1, 128](ones(100), ones(100))
    with pytest.raises(CudaAPIError, match=r"\[700\] Call to cuCtxSynchronize results in CUDA_ERROR_ILLEGAL_ADDRESS"):
        cuda.synchronize()


def test_a_block_of_too_many_threads_cannot_be_launched():
    with pytest.raises(CudaAPIError, match=r"\[1\] Call to cuLaunchKernel results in CUDA_ERROR_INVALID_VALUE"):
        unguarded[1, (64, 32)](ones(10), ones(10))
    assert ones(1).item() == 1  # the device can still be used


@notes
def test_what_is_wrong_with_a_launch_configuration_is_said():
    with pytest.raises(CudaAPIError) as caught:
        unguarded[1, 2048](ones(10), ones(10))
    assert "2048 × 1 × 1 threads has 2,048. A block can have 1,024" in text(caught.value)
    with pytest.raises(CudaAPIError) as caught:
        unguarded[0, 32](ones(10), ones(10))
    assert "A grid of 0 × 1 × 1 blocks" in text(caught.value)
    with pytest.raises(CudaAPIError) as caught:
        unguarded[1, 32, 0, 100 * 1024](ones(10), ones(10))
    assert "100 KiB of shared memory for a block; a block can have 48.0 KiB" in text(caught.value)


@cuda.jit
def too_much_shared(x):
    tile = cuda.shared.array(20_000, float32)
    tile[cuda.threadIdx.x] = x[cuda.threadIdx.x]


def test_shared_arrays_that_no_block_can_have():
    with pytest.raises(LinkerError, match=r"'too_much_shared' uses too much shared data .0x13880 bytes, 0xc000 max"):
        too_much_shared[1, 32](ones(32))


@cuda.jit
def no_barrier(x, out):
    tile = cuda.shared.array(64, float32)
    i = cuda.threadIdx.x
    tile[i] = x[i]
    out[i] = tile[63 - i]


def test_a_missing_barrier_is_a_race_in_shared_memory(capsys):
    no_barrier[1, 64](ones(64), ones(64))
    said = capsys.readouterr().out
    assert said.startswith("Race on cuda:0 in no_barrier: thread (0, 0, 0) of block (0, 0, 0) ")
    assert "tile[" in said
    assert "in shared memory" in said
    first = no_barrier.py_func.__code__.co_firstlineno
    assert f"test_numba_errors.py:{first + 4}" in said
    assert f"test_numba_errors.py:{first + 5}" in said
    assert "No cuda.syncthreads() comes between them." in said


@cuda.jit
def total(x, out):
    out[0] += x[cuda.grid(1)]


def test_blocks_that_add_to_one_element_race(capsys):
    total[2, 1](ones(2), ones(1))
    said = capsys.readouterr().out
    assert said.startswith("Race on cuda:0 in total: thread (0, 0, 0) of block (0, 0, 0) ")
    assert "out[0] in global memory" in said
    assert "thread (0, 0, 0) of block (1, 0, 0)" in said
    assert "use cuda.atomic, or a second kernel" in said


@cuda.jit
def everybody_writes(out):
    mine = cuda.local.array(1, float32)
    mine[0] = 0
    out[0] = cuda.grid(1) + mine[0]


def test_threads_that_write_different_values_race(capsys):
    everybody_writes[1, 64](ones(1))
    assert "writes out[0] in global memory" in capsys.readouterr().out


@cuda.jit
def raise_a_flag(x, flag):
    if x[cuda.grid(1)] > 0:
        flag[0] = 1


def test_threads_that_write_the_same_value_do_not_race(capsys):
    flag = torch.zeros(1, device="cuda")
    raise_a_flag[2, 64](ones(128), flag)
    assert flag.item() == 1
    assert not capsys.readouterr().out


@cuda.jit
def atomic_total(x, out):
    cuda.atomic.add(out, 0, x[cuda.grid(1)])


def test_atomic_operations_do_not_race(capsys):
    out = torch.zeros(1, device="cuda")
    atomic_total[4, 32](ones(128), out)
    assert out.item() == 128
    assert not capsys.readouterr().out


@cuda.jit
def begins_with_zero(x, out):
    i = cuda.grid(1)
    if i == 0:
        out[0] = 0
    cuda.atomic.add(out, 0, x[i])


@cuda.jit
def doubled_by_its_block(x, out):
    cuda.atomic.add(out, cuda.blockIdx.x, x[cuda.grid(1)])
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        out[cuda.blockIdx.x] *= 2


def test_a_store_races_with_atomic_operations_of_other_blocks(capsys):
    """Even one that leaves the value as it was: on a card, additions that came before it are lost."""
    doubled_by_its_block[4, 32](ones(128), torch.zeros(4, device="cuda"))
    assert not capsys.readouterr().out
    begins_with_zero[4, 32](ones(128), torch.zeros(1, device="cuda"))
    said = capsys.readouterr().out
    assert "of block (0, 0, 0) writes out[0]" in said
    assert "of block (1, 0, 0) updates it" in said


@cuda.jit
def divergent(x):
    i = cuda.threadIdx.x
    if i < 32:
        cuda.syncthreads()
    x[i] = 1


@cuda.jit
def two_barriers(x):
    if cuda.threadIdx.x < 32:
        cuda.syncthreads()
    else:
        cuda.syncthreads()
    x[cuda.threadIdx.x] = 1


@cuda.jit
def missing_lanes(x):
    i = cuda.threadIdx.x
    if i < 16:
        x[i] = cuda.shfl_down_sync(0xFFFFFFFF, x[i], 1)
    cuda.syncthreads()


def test_a_barrier_that_some_threads_never_reach():
    with pytest.raises(lab.FakeGpuError) as caught:
        divergent[1, 64](ones(64))
    assert "Threads 0–31 of block (0, 0, 0) wait in cuda.syncthreads() at " in str(caught.value)
    assert "threads 32–63 have ended without it. A card hangs here, or continues with wrong values." in str(
        caught.value
    )


@cuda.jit
def first_thread_alone(x):
    if cuda.threadIdx.x == 0:
        cuda.syncthreads()


def test_one_thread_waits():
    with pytest.raises(lab.FakeGpuError, match=r"Thread 0 of block \(0, 0, 0\) waits in .*; thread 1 has ended"):
        first_thread_alone[1, 2](ones(2))


def test_two_barriers_are_not_one():
    with pytest.raises(lab.FakeGpuError, match=r"threads 32–63 wait in cuda\.syncthreads"):
        two_barriers[1, 64](ones(64))


def test_a_shuffle_that_lanes_of_its_mask_do_not_make():
    with pytest.raises(lab.FakeGpuError, match=r"wait in cuda.shfl_down_sync\(\).*leave those lanes out of the mask"):
        missing_lanes[1, 32](ones(32))


@cuda.jit
def lock_never_released(lock):
    while cuda.atomic.cas(lock, 0, 0, 1) != 0:
        pass


def test_a_lock_that_nobody_releases():
    with pytest.raises(lab.FakeGpuError, match="take a lock forever"):
        lock_never_released[1, 2](torch.zeros(1, dtype=torch.int32, device="cuda"))


@cuda.jit
def without_end(x):
    i = cuda.grid(1)
    while i < x.size:
        x[i] = i


@cuda.jit
def counts_without_end(x):
    k = 0
    while k >= 0:
        k = 1 - k
    x[0] = k


@pytest.mark.parametrize(("kernel", "limit"), [(without_end, "MOST_ACCESSES"), (counts_without_end, "MOST_SECONDS")])
def test_a_loop_without_end_ends_the_launch(kernel, limit, monkeypatch):
    monkeypatch.setattr(endless, "_PAUSE", 0.05)
    monkeypatch.setattr(endless, limit, {"MOST_ACCESSES": 1000, "MOST_SECONDS": 0.5}[limit])
    with pytest.raises(lab.FakeGpuError, match=r"Thread 0 of block \(0, 0, 0\) never ends: it is at .*:\d+"):
        kernel[1, 2](ones(2))
    x = ones(2)
    many_rounds[1, 2](x)  # longer than the first look, and it ends
    assert x.tolist() == [400.0, 401.0]


@cuda.jit
def halves_without_end(x):
    half = 1
    while half >= 0:
        cuda.syncthreads()
        half //= 2
    x[0] = half


def test_a_loop_without_end_that_has_a_barrier_ends_the_launch(monkeypatch):
    """A student waited 240 s: each barrier gives the turn to another thread."""
    monkeypatch.setattr(threads, "MOST_TURNS", 8000)
    with pytest.raises(lab.FakeGpuError, match=r"Thread 0 of block \(0, 0, 0\) never ends: it is at .*:\d+"):
        halves_without_end[1, 2](ones(2))


def test_threads_that_access_nothing_have_their_time_each(monkeypatch):
    monkeypatch.setattr(endless, "MOST_SECONDS", 10)
    raised, now = [], [100.0]
    monkeypatch.setattr(endless, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=time.sleep))
    monkeypatch.setattr(endless.interrupts, "raise_in", lambda thread, error: raised.append(now[0]))
    launch = endless._Launch([])
    for number in range(4):
        monkeypatch.setattr(endless.threads.here, "thread", number, raising=False)
        now[0] += 6
        launch.look()
    assert raised == [], "another thread ran at each look"
    now[0] += 11
    launch.look()
    assert raised == [135.0]


@cuda.jit
def many_rounds(x):
    i = cuda.grid(1)
    for k in range(400):
        x[i] = k + 1 + i


def test_a_signature_refuses_other_types():
    @cuda.jit("void(float32[:], float32[:])")
    def for_float32(x, out):
        out[cuda.grid(1)] = x[cuda.grid(1)]

    with pytest.raises(TypeError, match=r"No matching definition for argument type\(s\) array\(float64, 1d, C\)"):
        for_float32[1, 4](ones(4, dtype=torch.float64), ones(4))
    for_float32[1, 4](ones(4), ones(4))


@cuda.jit
def with_a_dictionary(x):
    table = {"a": 1}
    x[0] = table["b"].nonsense


def test_numba_refuses_what_it_cannot_compile():
    with pytest.raises(errors.TypingError):
        with_a_dictionary[1, 1](ones(1))


def test_a_tensor_that_requires_a_gradient_is_not_given_away():
    with pytest.raises(RuntimeError, match="on Variable that requires grad"):
        unguarded[1, 4](ones(4, requires_grad=True), ones(4))


def test_a_tensor_on_the_cpu_is_no_pointer_of_the_card():
    # numba-cuda passes its address on; numba's own target refuses its type.
    def use() -> None:
        unguarded[1, 4](torch.ones(4), ones(4))
        torch.cuda.synchronize()

    with pytest.raises((ValueError, torch.AcceleratorError)) as caught:
        use()
    assert "Cannot determine Numba type" in str(caught.value) or "illegal memory access" in str(caught.value)


def test_an_array_of_the_host_is_copied_there_and_back_with_a_warning():
    out = np.zeros(4, np.float32)
    with pytest.warns(errors.NumbaPerformanceWarning, match="will incur copy overhead"):
        unguarded[1, 4](ones(4), out)
    assert out.tolist() == [2, 2, 2, 2]


def test_a_kernel_without_a_configuration():
    with pytest.raises(ValueError, match="Kernel launch configuration was not specified"):
        unguarded(ones(4), ones(4))


@cuda.jit
def unset(out):
    tile = cuda.shared.array(4, float32)
    out[cuda.threadIdx.x] = tile[cuda.threadIdx.x]


def test_shared_memory_that_was_never_written_is_not_zero():
    out = ones(4)
    unset[1, 4](out)
    assert out.isnan().all()
