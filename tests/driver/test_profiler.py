"""torch.profiler on a simulated machine: its tables, ranges, schedules and traces hold the simulated kernels."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function, schedule, tensorboard_trace_handler

import fakegpu_lab as lab
from fakegpu_lab.driver.base.cuda_messages import TORCH_VERSION
from fakegpu_lab.hardware.time import host_costs

if TYPE_CHECKING:
    from pathlib import Path

    from fakegpu_lab.hardware.time.host_costs import OpCost

pytestmark = pytest.mark.usefixtures("machine")

BOTH = [ProfilerActivity.CPU, ProfilerActivity.CUDA]


def _rows(profiler: Any, **grouping: Any) -> dict[str, Any]:
    """Averages of the host's events by name."""
    return {row.key: row for row in profiler.key_averages(**grouping) if row.device_type == DeviceType.CPU}


def _device_rows(profiler: Any) -> dict[str, Any]:
    return {row.key: row for row in profiler.key_averages() if row.device_type == DeviceType.CUDA}


def _step(model: nn.Module, x: torch.Tensor) -> None:
    with record_function("forward"):
        loss = model(x).square().mean()
    with record_function("backward"):
        loss.backward()


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 16)).cuda()


def test_kernels_belong_to_the_ops_that_launched_them() -> None:
    x = torch.randn(256, 256, device="cuda")
    with profile(activities=BOTH) as profiler, lab.record() as trace:
        for _ in range(3):
            x @ x
        x + 1
    rows = _rows(profiler)
    seconds: dict[str, float] = {}
    for kernel in trace.kernels:
        seconds[kernel.name] = seconds.get(kernel.name, 0.0) + kernel.duration
    assert rows["aten::mm"].count == 3
    assert rows["aten::mm"].self_device_time_total == pytest.approx(seconds["aten::mm"] * 1e6)
    assert rows["aten::matmul"].self_device_time_total == 0
    assert rows["aten::matmul"].device_time_total == pytest.approx(seconds["aten::mm"] * 1e6)
    assert rows["aten::add"].device_time == pytest.approx(seconds["aten::add"] * 1e6)
    kernels = _device_rows(profiler)
    assert kernels["gemm_kernel<mm>"].count == 3
    assert kernels["gemm_kernel<mm>"].self_device_time_total == pytest.approx(seconds["aten::mm"] * 1e6)
    total = sum(row.self_device_time_total for row in kernels.values())
    assert total == pytest.approx(sum(seconds.values()) * 1e6)


def op_us(cost: OpCost) -> float:
    """What an op takes the host: Python and PyTorch, and one launch."""
    host = lab.machine().host
    return host.ns(cost.forward) / 1e3 + host.launch_us


def test_the_host_shows_simulated_time_and_the_runtimes_calls() -> None:
    x = torch.randn(4096, 4096, device="cuda")
    with profile(activities=BOTH) as profiler:
        y = x @ x
        y.sum().item()
    rows = _rows(profiler)
    assert rows["cudaLaunchKernel"].count == 2
    assert rows["cudaLaunchKernel"].cpu_time == pytest.approx(5)  # a launch's cost on the host
    assert rows["aten::mm"].cpu_time_total == pytest.approx(op_us(host_costs.PRODUCT))
    assert rows["cudaMemcpyAsync"].count == 1
    # The host waits in .item() for the product.
    assert rows["aten::item"].cpu_time_total > 0.9 * rows["aten::mm"].device_time_total
    assert rows["cudaStreamSynchronize"].self_cpu_time_total > 0.9 * rows["aten::mm"].device_time_total
    assert rows["cudaDeviceSynchronize"].count == 1  # the profiler's own, at the end
    assert _device_rows(profiler)["Memcpy DtoH (Device -> Pageable)"].count == 1


def test_the_table() -> None:
    x = torch.randn(256, 256, device="cuda")
    with profile(activities=BOTH) as profiler:
        torch.relu(x @ x)
    table = profiler.key_averages().table(sort_by="cuda_time_total", row_limit=4)
    lines = [line.split() for line in table.splitlines() if line and not line.startswith("-")]
    assert "Self CUDA" in table
    assert "CUDA time avg" in table
    assert [line[0] for line in lines[1:5]] == ["aten::matmul", "aten::mm", "gemm_kernel<mm>", "aten::relu"]
    product = next(line for line in lines if line[0] == "gemm_kernel<mm>")
    assert product[1:6] == ["0.00%", "0.000us", "0.00%", "0.000us", "0.000us"]
    assert float(product[7].rstrip("%")) > 50  # of the device's time
    assert lines[-2][:4] == ["Self", "CPU", "time", "total:"]
    waited = _rows(profiler)["cudaDeviceSynchronize"].cpu_time_total
    ops = op_us(host_costs.PRODUCT) + op_us(host_costs.POINTWISE)
    assert lines[-2][4] == f"{ops + waited:.3f}us"  # two ops, and the profiler's own synchronisation
    for key in ("self_cuda_time_total", "cuda_time", "cpu_time_total", "self_cpu_time_total", "count"):
        assert "gemm_kernel<mm>" in profiler.key_averages().table(sort_by=key, row_limit=20)


_SCRIPT = """
import torch, json, sys
import fakegpu_lab as lab
from torch.profiler import profile, ProfilerActivity, record_function
lab.enable("a100")
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
with profile(activities=both, record_shapes=True, profile_memory=True, acc_events=True) as p:
    for _ in range(2):
        with record_function("step"):
            loss = model(torch.randn(32, 64).cuda()).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
print(p.key_averages(group_by_input_shape=True).table(sort_by="cuda_time_total", row_limit=-1))
p.export_chrome_trace(sys.argv[1])
"""


@pytest.mark.long
def test_two_runs_are_equal(tmp_path: Path) -> None:
    told = []
    path = tmp_path / "trace.json"
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT, str(path)], capture_output=True, text=True, check=True, timeout=300
        )
        assert done.stderr == ""
        told.append((done.stdout, path.read_text()))
    assert told[0] == told[1]
    assert "gemm_kernel<addmm>" in told[0][0]
    assert "multi_tensor_apply_kernel" in told[0][0]


def test_ranges_have_the_device_time_of_what_is_in_them() -> None:
    model, x = _model(), torch.randn(128, 256, device="cuda")
    with profile(activities=BOTH) as profiler, lab.record() as trace:
        _step(model, x)
    rows = _rows(profiler)
    forward = sum(k.duration for k in trace.kernels if not k.backward and k.name != "aten::ones_like")
    assert rows["forward"].device_time_total == pytest.approx(forward * 1e6)
    assert rows["backward"].device_time_total == pytest.approx(
        sum(k.duration for k in trace.kernels) * 1e6 - forward * 1e6
    )
    on_device = _device_rows(profiler)["forward"]
    assert on_device.is_user_annotation
    assert on_device.self_device_time_total >= rows["forward"].device_time_total  # with the gaps between
    # Composite ops and autograd's nodes are where CUDA's profiler has them.
    assert rows["aten::linear"].count == rows["aten::addmm"].count == 2
    assert rows["aten::linear"].device_time_total == rows["aten::addmm"].self_device_time_total
    assert rows["ReluBackward0"].device_time_total > 0
    assert not any(name.startswith(("fakegpu", "PythonSubclass")) for name in rows)


def test_a_range_covers_what_the_host_did_in_simulated_time() -> None:
    with profile(activities=BOTH) as profiler:
        with record_function("loading"):
            lab.host_work(0.25)
        lab.host_work(1)
        with record_function("waiting"):
            torch.cuda._sleep(1_000_000)
            torch.cuda.synchronize()
    rows = _rows(profiler)
    assert rows["loading"].cpu_time_total == pytest.approx(250_000)
    assert 100 < rows["waiting"].cpu_time_total < 10_000
    assert rows["cudaDeviceSynchronize"].cpu_parent.name == "waiting"


def test_memory_columns_are_the_devices_allocations() -> None:
    x = torch.ones(1024, 1024, device="cuda")
    with profile(activities=BOTH, profile_memory=True) as profiler:
        y = x + 1
        del y
        z = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
        host = torch.zeros(1000)
    rows = _rows(profiler)
    assert rows["aten::add"].self_device_memory_usage == 4 << 20
    assert rows["aten::add"].cpu_memory_usage == 0  # the numbers on the host's side are no host memory of the program
    assert rows["aten::empty"].self_device_memory_usage == 1 << 20
    assert rows["aten::zeros"].cpu_memory_usage == 4000
    freed = [event for event in profiler.events() if event.name == "[memory]"]
    assert [n for event in freed if (n := event.device_memory_usage)] == [-(4 << 20)]
    table = profiler.key_averages().table(sort_by="cuda_memory_usage")
    assert "Self CUDA Mem" in table
    assert table.index("aten::add") < table.index("aten::zeros")
    del z, host


def test_device_memory_without_cuda_among_the_activities(tmp_path: Path) -> None:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        with record_function("taken"):
            x = torch.rand(10, 10).cuda()
        with record_function("given back"):
            del x
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(1 << 40, device="cuda")
    rows = _rows(profiler)
    assert (rows["taken"].device_memory_usage, rows["given back"].device_memory_usage) == (512, -512)
    assert rows["aten::empty_strided"].self_device_memory_usage == 512
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    names = [event["name"] for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]]
    assert "[OutOfMemory]" in names
    assert not any("cuda" in name or "fakegpu" in name for name in names)


def test_a_profile_of_the_host_alone_keeps_its_own_times() -> None:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        torch.randn(300, 300) @ torch.randn(300, 300)
    assert _rows(profiler)["aten::mm"].cpu_time_total > 0


def test_shapes_flops_and_lines() -> None:
    x, y = torch.randn(64, 32, device="cuda"), torch.randn(16, 32, device="cuda")
    layer = nn.Linear(32, 8).cuda()
    with profile(activities=BOTH, record_shapes=True, with_flops=True, with_stack=True) as profiler:
        layer(x)
        layer(y)
        x @ y.T
    shapes = {
        str(r.input_shapes): r for r in profiler.key_averages(group_by_input_shape=True) if r.key == "aten::addmm"
    }
    assert set(shapes) == {"[[8], [64, 32], [32, 8], [], []]", "[[8], [16, 32], [32, 8], [], []]"}
    rows = _rows(profiler)
    assert rows["aten::addmm"].flops == 2 * 8 * 32 * (64 + 16)
    assert rows["aten::mm"].flops == 2 * 64 * 32 * 16
    if TORCH_VERSION >= (2, 15):  # which leaves Python's functions out, unless it is asked for them
        rows = _rows(profiler, include_python_functions=True)
    if TORCH_VERSION >= (2, 13):  # 2.10 leaves them out in any case
        assert any("test_profiler.py" in name for name in rows)
    assert not any("fakegpu_lab/driver" in name for name in rows)


def _square(x: torch.Tensor) -> torch.Tensor:
    return x @ x


def test_stacks_are_grouped_and_exported(tmp_path: Path) -> None:
    from torch._C._profiler import _ExperimentalConfig

    x = torch.randn(512, 512, device="cuda")
    config = _ExperimentalConfig(verbose=True)
    with profile(activities=BOTH, with_stack=True, experimental_config=config) as profiler:
        _square(x)
        _square(x)
        x @ x
    found = {r.stack[0].rpartition(" ")[2]: r for r in profiler.key_averages(group_by_stack_n=3) if r.key == "aten::mm"}
    assert {name: row.count for name, row in found.items()} == {"_square": 2, "test_stacks_are_grouped_and_exported": 1}
    path = tmp_path / "stacks.txt"
    profiler.export_stacks(str(path), "self_cuda_time_total")
    assert "test_profiler.py" in path.read_text()


def test_the_chrome_trace(tmp_path: Path) -> None:
    model, host = _model(), torch.randn(128, 256)
    side = torch.cuda.Stream()
    with profile(activities=BOTH, record_shapes=True) as profiler, lab.record() as trace:
        profiler.add_metadata("who", "me")
        _step(model, host.cuda())
        with torch.cuda.stream(side):
            host.cuda() * 2
    path, packed = tmp_path / "trace.json", tmp_path / "trace.json.gz"
    profiler.export_chrome_trace(str(path))
    profiler.export_chrome_trace(str(packed))
    written = json.loads(path.read_text())
    with gzip.open(packed, "rt") as file:
        assert json.load(file)["traceEvents"] == written["traceEvents"]
    assert written["who"] == "me"
    assert written["deviceProperties"][0]["name"] == torch.cuda.get_device_name(0)
    events = written["traceEvents"]
    kernels = [e for e in events if e.get("cat") == "kernel"]
    assert len(kernels) == len(trace.kernels)
    for event, kernel in zip(sorted(kernels, key=lambda e: e["args"]["correlation"]), trace.kernels, strict=True):
        assert event["ts"] == pytest.approx(kernel.start_ns / 1000)
        assert event["dur"] == pytest.approx((kernel.end_ns - kernel.start_ns) / 1000)
        assert event["tid"] == kernel.stream
    assert {e["tid"] for e in kernels} == {0, side.stream_id}
    assert [e["name"] for e in events if e.get("cat") == "gpu_memcpy"] == ["Memcpy HtoD (Pageable -> Device)"] * 2
    # Every kernel and copy has an arrow from its launch, and an op that it belongs to.
    starts = {e["id"] for e in events if e["ph"] == "s"}
    ends = {e["id"] for e in events if e["ph"] == "f"}
    assert starts >= ends
    assert ends == {e["args"]["correlation"] for e in events if e.get("cat") in ("kernel", "gpu_memcpy")}
    ops = {e["args"]["External id"]: e["name"] for e in events if e.get("cat") == "cpu_op"}
    assert "aten::addmm" in {ops[e["args"]["External id"]] for e in kernels}
    assert {e["name"] for e in events if e.get("cat") == "gpu_user_annotation"} == {"forward", "backward"}
    for event in events:
        assert event["ph"] in ("X", "M", "s", "f", "i")
        assert event["ph"] != "X" or event["dur"] >= 0


def test_the_time_that_was_recorded_ends_no_sooner_than_its_span(tmp_path: Path) -> None:
    x, path = torch.ones(64, 128, device="cuda"), tmp_path / "trace.json"
    for _ in range(20):  # the sum of a start and a duration is rounded: the end must be that sum
        with profile(activities=BOTH) as profiler:
            x.T @ x
        profiler.export_chrome_trace(str(path))
        events = {event["name"]: event for event in json.loads(path.read_text())["traceEvents"]}
        span = events["PyTorch Profiler (0)"]
        assert span["ts"] + span["dur"] <= events["Record Window End"]["ts"]


def test_the_schedule(tmp_path: Path) -> None:
    x = torch.randn(64, 64, device="cuda")
    seen = []

    def ready(profiler: Any) -> None:
        seen.append(
            (profiler.step_num, _rows(profiler)["aten::mm"].count, _device_rows(profiler)["gemm_kernel<mm>"].count)
        )
        tensorboard_trace_handler(str(tmp_path), "worker")(profiler)

    steps = schedule(wait=1, warmup=1, active=2, repeat=2)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning: Profiler clears events")  # torch's own
        with profile(activities=BOTH, schedule=steps, on_trace_ready=ready) as profiler:
            for _ in range(10):
                x @ x
                profiler.step()
    assert seen == [(4, 2, 2), (8, 2, 2)]
    assert "ProfilerStep*" in _rows(profiler)
    traces = sorted(tmp_path.glob("worker.*.pt.trace.json"))
    assert len(traces) == 2
    names = [e["name"] for e in json.loads(traces[0].read_text())["traceEvents"] if e.get("cat") == "user_annotation"]
    assert names == ["ProfilerStep#2", "ProfilerStep#3"]


def test_only_what_was_asked_for() -> None:
    x = torch.randn(8, 8, device="cuda")
    with profile(activities=[ProfilerActivity.CUDA]) as device_only:
        x @ x
    assert {row.key for row in device_only.key_averages()} == {
        "gemm_kernel<mm>",
        "cudaLaunchKernel",
        "cudaDeviceSynchronize",
    }
    with profile() as default:  # as on a CUDA build: everything there is
        x @ x
    assert "gemm_kernel<mm>" in _device_rows(default)
    assert ProfilerActivity.CUDA in torch.profiler.supported_activities()
    with profile(activities=BOTH) as switched:
        x @ x
        switched.toggle_collection_dynamic(False, [ProfilerActivity.CUDA])
        x + x
        switched.toggle_collection_dynamic(True, [ProfilerActivity.CUDA])
        x * x
    assert set(_device_rows(switched)) == {"gemm_kernel<mm>", "mul_kernel"}
    assert "aten::add" in _rows(switched)


def test_the_legacy_profiler_times_ops_with_events() -> None:
    x = torch.randn(2048, 2048, device="cuda")
    with torch.autograd.profiler.profile(use_device="cuda") as profiler:
        x @ x
    rows = _rows(profiler)
    assert set(rows) == {"aten::matmul", "aten::mm"}
    assert rows["aten::mm"].device_time_total > 100
    assert not _device_rows(profiler)
    with torch.autograd.profiler.profile(use_device="cuda", use_kineto=True) as kineto:
        x @ x
    assert "gemm_kernel<mm>" in _device_rows(kineto)


@pytest.mark.skipif(TORCH_VERSION >= (2, 15), reason="torch 2.15 has no `use_cuda` any more")
def test_the_older_argument_means_the_legacy_profiler() -> None:
    x = torch.randn(8, 8, device="cuda")
    with pytest.warns(FutureWarning, match="use_cuda"), torch.autograd.profiler.profile(use_cuda=True) as deprecated:
        x @ x
    assert "Self CUDA" in deprecated.key_averages().table()


def test_an_exception_ends_it_and_the_next_one_works() -> None:
    x = torch.randn(8, 8, device="cuda")
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), profile(activities=BOTH) as failed:
        x @ torch.ones(3, 3, device="cuda")
    assert "ones_kernel" in _device_rows(failed) or "fill_kernel" in _device_rows(failed)
    with profile(activities=BOTH) as profiler:
        x @ x
    assert list(_device_rows(profiler)) == ["gemm_kernel<mm>"]


def test_a_profiler_in_a_profiler_takes_over_as_ever() -> None:
    x = torch.randn(8, 8, device="cuda")
    outer, inner = profile(activities=BOTH), profile(activities=BOTH)
    outer.start()
    x @ x
    inner.start()
    x + x
    inner.stop()
    x * x
    if TORCH_VERSION < (2, 13):  # 2.10 says so on a CPU as well
        with pytest.raises(RuntimeError, match="Can't disable Kineto profiler when it's not running"):
            outer.stop()
        return
    outer.stop()
    assert list(_device_rows(inner)) == ["add_kernel"]
    assert not outer.events()
    with profile(activities=BOTH) as after:
        x @ x
    assert list(_device_rows(after)) == ["gemm_kernel<mm>"]


def test_recording_and_profiling_at_once() -> None:
    x = torch.randn(8, 8, device="cuda")
    with lab.record() as trace:
        with profile(activities=BOTH) as profiler:
            x @ x
        x + 1
    assert [k.name for k in trace.kernels] == ["aten::mm", "aten::add"]
    assert list(_device_rows(profiler)) == ["gemm_kernel<mm>"]
    with lab.record() as outer:
        x @ x
        with lab.record() as inner:
            x + 1
    assert [k.name for k in outer.kernels] == ["aten::mm", "aten::add"]
    assert [k.name for k in inner.kernels] == ["aten::add"]


def test_kernels_of_other_threads_are_seen() -> None:
    x = torch.randn(8, 8, device="cuda")

    def work() -> None:
        x @ x

    with profile(activities=BOTH) as profiler:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert _device_rows(profiler)["gemm_kernel<mm>"].count == 1


def test_copies_have_cudas_names() -> None:
    host = torch.randn(1024).pin_memory()
    with profile(activities=BOTH) as profiler:
        x = host.to("cuda", non_blocking=True)
        y = x.clone()
        y.half()
        y.to("cuda:1")
        y.cpu()
    assert set(_device_rows(profiler)) == {
        "Memcpy HtoD (Pinned -> Device)",
        "Memcpy DtoD (Device -> Device)",
        "to_copy_kernel",
        "Memcpy PtoP (Device -> Device)",
        "Memcpy DtoH (Device -> Pageable)",
    }


def test_annotations_without_a_profiler() -> None:
    x = torch.ones(2, device="cuda")
    with torch.autograd.profiler.emit_nvtx() as nvtx:
        assert (x + 1).tolist() == [2.0, 2.0]
        with pytest.raises(RuntimeError, match="not reentrant"):
            nvtx.__enter__()
    with torch.cuda.profiler.profile():
        x + 1
    torch.cuda.profiler.start()
    torch.cuda.profiler.stop()
    with record_function("alone"):
        x + 1


def test_disabling_the_machine_gives_torchs_own_profiler_back() -> None:
    lab.disable()
    for _ in range(2):
        with profile(activities=[ProfilerActivity.CPU]) as plain:
            torch.ones(2) + 1
        assert {row.key for row in plain.key_averages()} >= {"aten::add", "aten::ones"}
        assert type(plain.profiler.kineto_results).__module__.startswith("torch")
        lab.enable("t4")
        x = torch.ones(2, device="cuda")
        with profile(activities=BOTH) as profiler:
            x + 1
        assert "add_kernel" in _device_rows(profiler)
        lab.disable()
    lab.enable("t4")
    left = profile(activities=BOTH)
    left.start()
    lab.disable()
    torch.autograd.profiler._disable_profiler()
    lab.enable("t4")
    with lab.record() as trace:
        torch.ones(2, device="cuda") + 1
    assert "aten::add" in {kernel.name for kernel in trace.kernels}


def test_a_trace_has_its_window_addresses_and_requests_that_failed(machine: Any, tmp_path: Path) -> None:
    with profile(profile_memory=True) as profiler:
        x = torch.ones(3, device="cuda")
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(1 << 40, device="cuda")
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    memory = [event["args"] for event in events if event["name"] == "[memory]" and event["args"]["Device Type"] == 1]
    assert {"Device Type": 1, "Device Id": 0, "Bytes": 512, "Addr": x.data_ptr(), "Total Allocated": 512} in memory
    (failed,) = (event["args"] for event in events if event["name"] == "[OutOfMemory]")
    assert failed == {"Device Type": 1, "Device Id": 0, "Bytes": 1 << 42}
    span, _, begin, end = events[-4:]
    assert span["name"] == "PyTorch Profiler (0)"
    assert (begin["ts"], end["ts"]) == (span["ts"], pytest.approx(span["ts"] + span["dur"]))
    assert all(begin["ts"] <= event["ts"] <= end["ts"] for event in events)
    orders = {event["pid"]: event["args"]["sort_index"] for event in events if event["name"] == "process_sort_index"}
    assert orders[1] == 5_000_000


def test_the_hosts_waits_on_the_device(machine: Any, tmp_path: Path) -> None:
    def syncs(config: Any) -> list[tuple[str, int]]:
        with profile(activities=BOTH, experimental_config=config) as profiler:
            x = torch.ones(2048, 2048, device="cuda")
            event = torch.cuda.Event()
            x @ x
            event.record()
            event.synchronize()
            torch.cuda.synchronize(1)
        profiler.export_chrome_trace(str(tmp_path / "trace.json"))
        events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        return [(event["name"], event["args"]["device"]) for event in events if event.get("cat") == "cuda_sync"]

    wanted = torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)
    assert syncs(wanted)[:2] == [("Event Sync", 0), ("Context Sync", 1)]
    assert syncs(None) == []
    torch._C._profiler._set_cuda_sync_enabled_val(True)
    assert ("Context Sync", 1) in syncs(None)


def test_the_kernels_of_a_replayed_graph_have_names(machine: Any) -> None:
    x, graph = torch.ones(3, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.add_(1)
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        graph.replay()
    assert "add_kernel" in {row.key for row in profiler.key_averages()}
