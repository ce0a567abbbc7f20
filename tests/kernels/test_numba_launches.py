"""`numba.cuda` around kernels: arguments, device arrays, streams, events, devices, recordings, and when it is there."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import torch

import fakegpu_lab as lab

pytest.importorskip("numba", reason="the extra `numba` is not installed")
pytest.importorskip("greenlet", reason="the extra `numba` is not installed")

import numba
from numba import cuda, float32, int32
from numba.cuda.cudadrv.driver import CudaAPIError

from fakegpu_lab.kernels import sampling

pytestmark = pytest.mark.usefixtures("machine")


@cuda.jit
def double(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = 2 * x[i]


@cuda.jit
def number_elements(x):
    i, j, k = cuda.grid(3)
    if i < x.shape[0] and j < x.shape[1] and k < x.shape[2]:
        x[i, j, k] = i * 100 + j * 10 + k


def test_a_view_is_written_in_place():
    base = torch.zeros(4, 6, device="cuda")
    base[:, 2] = 1
    double[1, 32](base[:, 2])
    assert base.sum().item() == 8
    assert base[:, 2].tolist() == [2, 2, 2, 2]


def test_three_dimensions_and_a_transposed_argument():
    x = torch.zeros(2, 3, 5, device="cuda")
    number_elements[(1, 2, 3), (2, 2, 2)](x)
    assert x[1, 2, 4].item() == 124
    assert x[0, 1, 3].item() == 13
    y = torch.zeros(5, 3, 2, device="cuda")
    number_elements[(1, 2, 3), (2, 2, 2)](y.permute(2, 1, 0))
    assert torch.equal(y.permute(2, 1, 0), x)


@cuda.jit(device=True)
def twice_plus(value, offset):
    return 2 * value + offset


@cuda.jit
def with_functions(x, offset):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = twice_plus(math.sqrt(x[i]), offset)


def test_device_functions_and_math():
    x = torch.tensor([4.0, 9.0, -1.0], device="cuda")
    with_functions[1, 4](x, 1)
    assert x[:2].tolist() == [5.0, 7.0]
    assert x[2].isnan()


@cuda.jit
def integers(x):
    i = cuda.grid(1)
    x[i] = x[i] // 2 + cuda.popc(i) + int32(1)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8, torch.float16, torch.float64])
def test_types_of_elements(dtype):
    x = torch.arange(8, device="cuda").to(dtype)
    integers[1, 8](x)
    assert x.tolist() == [i // 2 + i.bit_count() + 1 for i in range(8)]


@cuda.jit
def warp_sum(x, out):
    value = x[cuda.grid(1)]
    delta = 16
    while delta > 0:
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, delta)
        delta //= 2
    if cuda.laneid == 0:
        cuda.atomic.add(out, 0, value)


def test_numbas_own_reduction():
    add = cuda.reduce(lambda a, b: a + b)
    assert add(cuda.as_cuda_array(torch.arange(1000, dtype=torch.float64, device="cuda"))) == 499_500
    assert add(cuda.to_device(np.arange(1000.0))) == 499_500


@cuda.jit
def votes(x, out):
    i = cuda.threadIdx.x
    ballot = cuda.ballot_sync(0xFFFFFFFF, x[i] > 0)
    if i == 0:
        out[0] = cuda.popc(ballot)
    count = cuda.syncthreads_count(int32(x[i] > 0))
    if i == 1:
        out[1] = count


def test_functions_of_a_warp():
    x, out = torch.arange(128.0, device="cuda"), torch.zeros(1, device="cuda")
    warp_sum[2, 64](x, out)
    assert out.item() == x.sum().item()
    found = torch.zeros(2, dtype=torch.int64, device="cuda")
    votes[1, 64](torch.arange(64.0, device="cuda") - 10.5, found)
    assert found.tolist() == [21, 53]


@cuda.jit
def locked_increment(lock, counter):
    while cuda.atomic.cas(lock, 0, 0, 1) != 0:
        pass
    cuda.atomic.add(counter, 0, 1)
    cuda.atomic.exch(lock, 0, 0)


def test_a_lock_that_is_released_lets_every_thread_in():
    lock, counter = (torch.zeros(1, dtype=torch.int32, device="cuda") for _ in range(2))
    locked_increment[2, 40](lock, counter)
    assert counter.item() == 80


@cuda.jit
def reverse(x):
    tile = cuda.shared.array(0, float32)
    i, n = cuda.threadIdx.x, cuda.blockDim.x
    tile[i] = x[i]
    cuda.syncthreads()
    x[i] = tile[n - 1 - i]


@cuda.jit
def local_and_constant(x):
    powers = cuda.local.array(4, float32)
    weights = cuda.const.array_like(WEIGHTS)
    i = cuda.grid(1)
    powers[0] = 1
    for k in range(3):
        powers[k + 1] = powers[k] * x[i]
    total = float32(0)
    for k in range(4):
        total += weights[k] * powers[k]
    x[i] = total


WARP = 32


@cuda.jit
def with_a_constant(x):
    tile = cuda.shared.array(WARP, float32)
    tile[cuda.laneid] = x[cuda.laneid]
    x[cuda.laneid] = tile[cuda.laneid] + cuda.warpsize + WARP


def test_a_constant_of_the_users_may_be_the_warps_size():
    x = torch.zeros(32, device="cuda")
    with_a_constant[1, 32](x)
    assert x.sum().item() == 32 * 64


WEIGHTS = np.array([1, 2, 3, 4], np.float32)


def test_dynamic_shared_local_and_constant_arrays():
    x = torch.arange(4.0, device="cuda")
    with lab.record() as trace:
        reverse[1, 4, 0, 16](x)
        local_and_constant[1, 4](x)
    assert x.tolist() == [1 + 2 * v + 3 * v**2 + 4 * v**3 for v in (3.0, 2.0, 1.0, 0.0)]
    first, second = (kernel.access for kernel in trace.kernels)
    assert first.shared_bytes == 16
    assert second.bytes_loaded == 3 * 4 * 4  # local and constant arrays move nothing here


def test_device_arrays_are_the_drivers_memory_and_not_torchs(machine):
    free, allocated = torch.cuda.mem_get_info()[0], torch.cuda.memory_allocated()
    x = cuda.to_device(np.arange(1 << 20, dtype=np.float32))
    assert free - torch.cuda.mem_get_info()[0] == 4 << 20
    assert torch.cuda.memory_allocated() == allocated
    double[1, 32](x[:32])
    assert x[31] == 62
    y = cuda.device_array_like(x)
    y.copy_to_device(x)
    assert np.array_equal(y.copy_to_host(), x.copy_to_host())
    del x, y
    assert torch.cuda.mem_get_info()[0] == free
    with pytest.raises(CudaAPIError, match=r"\[2\] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY"):
        cuda.device_array((1 << 40,), np.float32)


def test_a_tensor_as_a_device_array_shares_its_memory():
    x = torch.ones(4, device="cuda")
    double[1, 4](cuda.as_cuda_array(x))
    assert x.tolist() == [2, 2, 2, 2]
    with pytest.raises(TypeError, match="doesn't implement the cuda array interface"):
        cuda.as_cuda_array(torch.ones(4))


def test_kernels_go_to_the_stream_that_they_name():
    x = torch.ones(4, device="cuda")
    own, theirs = cuda.stream(), torch.cuda.Stream()
    with lab.record() as trace:
        double[1, 4, own](x)
        with torch.cuda.stream(theirs):
            double[1, 4](x)  # stream 0, whatever is current in torch
            double[1, 4, cuda.external_stream(theirs.cuda_stream)](x)
        own.synchronize()
    first, default, other = (kernel.stream for kernel in trace.kernels)
    assert default == 0
    assert first != 0
    assert other == theirs.stream_id
    assert trace.races  # nothing orders the three


def test_events_measure_simulated_time():
    x = torch.ones(4, device="cuda")
    start, end = cuda.event(), cuda.event()
    start.record()
    double[1, 4](x)
    end.record()
    end.synchronize()
    assert 0 < cuda.event_elapsed_time(start, end) < 1


def test_devices():
    assert cuda.is_available()
    assert len(cuda.gpus) == 2
    assert cuda.get_current_device().name == b"NVIDIA A100-SXM4-80GB"
    assert cuda.get_current_device().MULTIPROCESSOR_COUNT == 108
    with cuda.gpus[1]:
        x = cuda.device_array(4)
    assert x.tensor.device == torch.device("cuda:1")
    assert torch.cuda.current_device() == 0


def test_a_captured_launch_runs_when_the_graph_is_replayed():
    x = torch.ones(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        double[1, 4, cuda.external_stream(torch.cuda.current_stream().cuda_stream)](x)
    x.fill_(1)
    graph.replay()
    graph.replay()
    assert x.tolist() == [4, 4, 4, 4]


@cuda.jit
def racing(x):
    x[0] = x[0] + cuda.threadIdx.x


def test_a_race_has_the_same_outcome_in_every_run():
    outcomes = set()
    for _ in range(3):
        x = torch.zeros(1, device="cuda")
        racing[2, 64](x)
        outcomes.add(x.item())
    assert len(outcomes) == 1


def test_some_blocks_stand_for_all():
    x = torch.ones(32 * 100, device="cuda")
    with lab.record() as trace, lab.sample_programs(10):
        double[100, 32](x)
    assert x.sum().item() == 3200 + 320
    assert trace.kernels[0].access.sampled == 0.1
    assert trace.kernels[0].access.bytes_loaded == 32 * 100 * 4


def test_a_launch_that_takes_long_says_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr(sampling, "PATIENCE", 0.0)
    double[4, 32](torch.ones(128, device="cuda"))
    said = capsys.readouterr()
    assert "double: 1 of 4 blocks in 0 s" in said.out
    assert not said.err


def test_forall_covers_all_elements():
    x = torch.ones(1000, device="cuda")
    double.forall(1000)(x)
    assert x.sum().item() == 2000


def test_without_values_a_launch_takes_time_and_nothing_runs():
    lab.enable("a100", compute="meta")
    x = torch.ones(1 << 30, device="cuda")
    with lab.record() as trace:
        double[1 << 20, 1024](x)
    assert trace.kernels[0].name == "double"


def test_switching_off_restores_numba():
    lab.disable()
    before = {name: value for name, value in vars(cuda).items() if not name.startswith("__")}
    lab.enable("a100")
    assert vars(cuda)["to_device"] is not before["to_device"]
    lab.disable()
    assert {name: value for name, value in vars(cuda).items() if not name.startswith("__")} == before


@pytest.mark.parametrize("first", ["pass", "import os; os.environ['NUMBA_ENABLE_CUDASIM'] = '1'"])
def test_numba_may_be_imported_after_the_machine_is_there(first):
    """Before it is what the other tests here do."""
    program = f"""
import sys
{first}
import fakegpu_lab as lab
lab.enable("a100")
assert "numba" not in sys.modules
import torch
from numba import cuda
@cuda.jit
def add(x):
    x[cuda.grid(1)] += 1
x = torch.zeros(4, device="cuda")
add[1, 4](x)
print(x.tolist())
"""
    path = f"import sys; sys.path[:0] = {sys.path!r}\n"
    ran = subprocess.run([sys.executable, "-c", path + program], capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == "[1.0, 1.0, 1.0, 1.0]", ran.stderr


def test_a_tensor_of_torch_as_an_array_of_numba(machine):
    x = torch.arange(4, device="cuda")
    assert isinstance(cuda.as_cuda_array(x), cuda.devicearray.DeviceNDArray)
    assert cuda.is_cuda_array(x)
    assert not cuda.is_cuda_array(x.cpu())
    assert not cuda.is_cuda_array(x.to_sparse())
    weight = torch.ones(4, device="cuda", requires_grad=True)
    for call in (cuda.is_cuda_array, cuda.as_cuda_array):
        with pytest.raises(RuntimeError, match="requires grad"):
            call(weight)
    other = torch.ones(4, device="cuda:1")
    with pytest.raises(cuda.driver.CudaAPIError, match="cuPointerGetAttribute"):
        cuda.as_cuda_array(other)
    with cuda.devices.gpus[1]:
        assert cuda.as_cuda_array(other).copy_to_host().sum() == 4


@pytest.mark.filterwarnings("ignore:Host array")
def test_records_as_arguments_and_in_shared_memory(machine):
    kind = np.dtype([("a", np.float64), ("b", np.int32)], align=True)
    element = numba.from_dtype(kind)
    host = np.array([(1.5, 2), (2.5, 3)], dtype=kind)

    @cuda.jit
    def exchange(record, found):
        found[0] = record.a
        record.b = 7

    @cuda.jit
    def copied(x, y):
        mine = cuda.shared.array(2, dtype=element)
        i = cuda.grid(1)
        mine[i] = x[i]
        cuda.syncthreads()
        y[i] = mine[1 - i]

    found = np.zeros(1)
    exchange[1, 1](host[1], found)
    assert (found[0], host[1]["b"]) == (2.5, 7)
    other = np.zeros_like(host)
    copied[1, 2](host, other)
    assert other.tolist() == host[::-1].tolist()
    assert cuda.to_device(np.zeros((2, 3), order="F")).flags == {"C_CONTIGUOUS": False, "F_CONTIGUOUS": True}
