"""A launch of a Triton kernel is a kernel of the simulated device, like any op's."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", "3.9", reason="Triton 3.9 is not installed: pip install 'triton>=3.9' (Linux)")

import triton
import triton.language as tl
from triton_kernels import add_kernel, softmax_kernel

import fakegpu_lab as lab

pytestmark = pytest.mark.usefixtures("machine")


def add(x, y, out=None):
    out = torch.empty_like(x) if out is None else out
    add_kernel[(triton.cdiv(x.numel(), 128),)](x, y, out, x.numel(), BLOCK=128)
    return out


def test_a_recording_has_the_launch_with_its_line():
    x = torch.rand(1000, device="cuda")
    with lab.record() as trace:
        add(x, x)
    (kernel,) = trace.kernels
    assert (kernel.name, kernel.stream, kernel.flops) == ("add_kernel", 0, 1024)
    assert "test_triton_launches.py" in kernel.line
    assert kernel.nbytes == kernel.access.dram_bytes
    assert "add_kernel" in str(trace.summary())
    assert kernel.access.bank_conflicts is None  # Triton's compiler decides on shared memory: not counted
    assert kernel.access.registers > 0


def test_it_reads_the_values_of_a_tensor_whose_storage_somebody_holds():
    x = torch.arange(1000.0, device="cuda")
    storage = x.untyped_storage()
    assert add(x, x).tolist() == [2.0 * number for number in range(1000)]
    assert storage.data_ptr() == x.data_ptr()


@triton.jit
def copy_from_table(table, out, N: tl.constexpr):
    source = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    offsets = tl.arange(0, N)
    tl.store(out + tl.program_id(0) * N + offsets, tl.load(source + offsets))


def test_it_follows_pointers_that_it_has_loaded():
    sources = [torch.full((8,), float(number), device="cuda") for number in range(3)]
    table = torch.tensor([source.data_ptr() for source in sources], device="cuda")
    out = torch.zeros(24, device="cuda")
    copy_from_table[(3,)](table, out, N=8)
    assert out.tolist() == [0.0] * 8 + [1.0] * 8 + [2.0] * 8
    copy_from_table[(1,)](table + 512 * 1024**2, out, N=8)
    with pytest.raises(torch.AcceleratorError, match="an illegal memory access"):
        torch.cuda.synchronize()


def test_the_profiler_shows_its_name():
    x = torch.rand(1000, device="cuda")
    with torch.profiler.profile() as profiler:
        add(x, x)
        torch.cuda.synchronize()
    assert "add_kernel" in {event.key for event in profiler.key_averages()}


def test_events_measure_it_on_its_stream():
    x = torch.rand(1 << 20, device="cuda")
    stream = torch.cuda.Stream()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.stream(stream), lab.record() as trace:
        begin.record()
        add(x, x, torch.empty_like(x))
        end.record()
    torch.cuda.synchronize()
    assert trace.kernels[0].stream == stream.stream_id
    assert begin.elapsed_time(end) * 1e-3 >= trace.kernels[0].duration


def test_two_streams_without_order_are_a_race():
    x, out = torch.rand(1000, device="cuda"), torch.empty(1000, device="cuda")
    with lab.record() as trace:
        for _ in range(2):
            with torch.cuda.stream(torch.cuda.Stream()):
                add(x, x, out)
    assert [race.kind for race in trace.races] == ["write after write"]  # both read x, which is no race


class Doubling(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return add(x, x)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        return add(gradient, gradient)


def test_an_autograd_function_around_it_and_versions():
    x = torch.nn.Parameter(torch.rand(100, device="cuda"))
    with lab.record() as trace:
        Doubling.apply(x).sum().backward()
    assert x.grad.tolist() == [2.0] * 100
    assert [kernel.backward for kernel in trace.kernels if kernel.name == "add_kernel"] == [False, True]
    version = x._version
    add(x, x, x)
    assert x._version == version  # a launch is nothing that autograd sees


def test_an_op_of_torchs_library_around_it():
    with torch.library._scoped_library("triton_launches", "FRAGMENT"):

        @torch.library.triton_op("triton_launches::add", mutates_args={})
        def add_op(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            out = torch.empty_like(x)
            torch.library.wrap_triton(add_kernel)[(1,)](x, y, out, x.numel(), BLOCK=128)
            return out

        x = torch.rand(100, device="cuda")
        assert torch.equal(add_op(x, x), 2 * x)


def test_a_cuda_graph_runs_it_again():
    x, out = torch.ones(100, device="cuda"), torch.zeros(100, device="cuda")
    add(x, x, out)
    out.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        add(x, x, out)
    assert out.sum().item() == 0  # captured, not run
    x.fill_(3)
    with lab.record() as trace:
        graph.replay()
    assert out.tolist() == [6.0] * 100
    assert trace.kernels[0].access.bytes_loaded == 800


def test_threads_launch_at_the_same_time():
    x = torch.rand(10_000, device="cuda")
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda number: add(x, x * number), range(8)))
    for number, result in enumerate(results):
        assert torch.equal(result, x + x * number)


def test_two_ranks():
    def program():
        import torch.distributed as dist

        dist.init_process_group("nccl")
        torch.cuda.set_device(dist.get_rank())
        mine = torch.full((100,), float(dist.get_rank() + 1), device="cuda")
        total = add(mine, mine)
        dist.all_reduce(total)
        return total.sum().item()

    assert lab.run_ranks(program, 2) == [600.0, 600.0]


def test_the_kernel_is_compiled_for_the_card():
    x = torch.rand(100, device="cuda")
    for card, shared in (("a100", 163 * 1024), ("h100", 227 * 1024), ("rtx4090", 99 * 1024)):
        lab.enable(card, memory="2GiB")
        x = torch.rand(100, device="cuda")
        compiled = add_kernel.warmup(x, x, x, 100, BLOCK=128, grid=(1,))
        assert triton.runtime.driver.active.utils.get_device_properties(0)["max_shared_mem"] == shared
        major, minor = torch.cuda.get_device_capability()
        assert compiled.metadata.target.arch == 10 * major + minor
        compiled._init_handles()
        assert 8 <= compiled.n_regs <= 64
        assert torch.equal(add(x, x), 2 * x)


def test_without_a_machine_triton_is_as_it_was():
    lab.disable()
    with pytest.raises(RuntimeError, match="active drivers"):
        add(torch.rand(4), torch.rand(4))


def test_without_values_a_launch_takes_time_all_the_same():
    lab.enable("a100", compute="meta")
    x = torch.rand(1 << 20, device="cuda")
    with lab.record() as trace:
        add(x, x)
    (kernel,) = trace.kernels
    assert (kernel.name, kernel.access) == ("add_kernel", None)
    assert kernel.duration > 3e-6


def test_a_sample_of_the_programs_shows_the_traffic_of_all():
    x = torch.rand(1 << 14, device="cuda")
    out = torch.zeros_like(x)
    with lab.record() as trace, lab.sample_programs(16):
        add(x, x, out)
    access = trace.kernels[0].access
    assert access.sampled == 1 / 8
    assert access.bytes_loaded == 2 * x.nbytes
    assert int((out != 0).sum()) <= 16 * 128
    with pytest.raises(lab.FakeGpuError, match="1 or more"), lab.sample_programs(0):
        pass


def test_a_program_writes_nothing_to_stderr(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        "import fakegpu_lab as lab, sys, torch\n"
        "lab.enable('a100')\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from triton_kernels import add_kernel\n"
        "x = torch.ones(100, device='cuda')\n"
        "add_kernel[(1,)](x, x, x, 100, BLOCK=128)\n"
        "print(x.sum().item())\n"
        "lab.disable()\n"
        "del add_kernel.device_caches, add_kernel\n"
    )
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, timeout=120)
    assert (ran.stdout, ran.stderr) == ("200.0\n", "")


def test_do_bench_measures_simulated_time():
    x = torch.rand(1 << 20, device="cuda")
    with lab.record() as trace:
        add(x, x)
    assert triton.testing.do_bench(lambda: add(x, x)) == pytest.approx(1e3 * trace.kernels[0].duration, rel=0.01)


@triton.jit
def column_copy(x_ptr, o_ptr, stride, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o_ptr + tl.program_id(0) * B + i, tl.load(x_ptr + tl.program_id(0) + i * stride))


def test_a_strided_load_moves_a_sector_for_each_element_and_takes_longer():
    x = torch.rand(1024, 1024, device="cuda")
    out = torch.empty_like(x)
    with lab.record() as trace:
        column_copy[(1024,)](x, out, 1024, B=1024)
        softmax_kernel[(1024,)](out, x, 1024, 1024, 1024, 1024, BLOCK=1024, STAGES=1)
    assert torch.equal(out, torch.softmax(x, 1)) or torch.allclose(out, torch.softmax(x, 1), atol=1e-6)
    strided, rows = (kernel.access for kernel in trace.kernels)
    load = strided.lines[0]
    assert (load.kind, load.sectors_per_request, load.efficiency) == ("load", 32.0, 1 / 8)
    assert rows.lines[0].efficiency == 1.0
    assert trace.kernels[0].duration > 2 * trace.kernels[1].duration


def test_a_thousand_rows_take_less_than_a_second_of_the_host():
    import time

    x = torch.rand(1024, 1024, device="cuda")
    out = torch.empty_like(x)
    softmax_kernel[(1024,)](out, x, 1024, 1024, 1024, 1024, BLOCK=1024, STAGES=1)
    began = time.process_time()
    softmax_kernel[(1024,)](out, x, 1024, 1024, 1024, 1024, BLOCK=1024, STAGES=1)
    assert time.process_time() - began < 2  # one program at a time would take three times as long
