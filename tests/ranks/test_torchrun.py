"""Ranks that are real processes, started by the real torchrun: they do what ranks of one process do, to the last digit.

Each test starts processes, and is slow; so each does much.
"""

from __future__ import annotations

import json
import runpy
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

import fakegpu_lab as lab
from tests.test_cli import lab as fakegpu_lab

if TYPE_CHECKING:
    import subprocess

PROGRAMS = Path(__file__).parents[1] / "programs"

pytestmark = pytest.mark.slow


def torchrun(*args: str, cwd: Path, devices: str = "a100:2", **env: str) -> subprocess.CompletedProcess[str]:
    env = {"OMP_NUM_THREADS": "1", **env}
    return fakegpu_lab("run", "-d", devices, "--report", "out.json", "torchrun", *args, cwd=cwd, **env)


def losses(said: str) -> list[float]:
    return [float(line.split()[1]) for line in said.splitlines() if line.startswith("loss:")]


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.mark.long
def test_ddp_trains_on_two_nodes_as_one_device_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = str(PROGRAMS / "ddp.py")
    for name, value in (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "localhost")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_PORT", free_port())
    lab.enable("a100")
    try:
        with pytest.raises(SystemExit):
            runpy.run_path(program, run_name="__main__")
    finally:
        lab.disable()
    alone = losses(capsys.readouterr().out)
    assert len(alone) == 8

    # Two agents on this computer: each rank has device 0 of a node of its own.
    port = free_port()
    nodes = []
    for node in range(2):
        (tmp_path / str(node)).mkdir()
        where = ["--nnodes", "2", "--node-rank", str(node), "--master-addr", "127.0.0.1", "--master-port", port]
        nodes.append([*where, "--nproc-per-node", "1", program])
    with ThreadPoolExecutor() as pool:
        both = list(pool.map(lambda i: torchrun(*nodes[i], cwd=tmp_path / str(i), devices="a100"), range(2)))
    assert [one.returncode for one in both] == [0, 0], both[0].stderr + both[1].stderr
    assert losses(both[0].stdout) == pytest.approx(alone, abs=1e-5)
    assert losses(both[1].stdout) == []
    assert "equal: True" in both[0].stdout
    for rank in range(2):  # each agent reports of its own ranks
        (one,) = json.loads((tmp_path / str(rank) / "out.json").read_text())["processes"]
        assert (one["name"], one["world_size"], one["ended"]) == (f"rank {rank}", 2, True)
        assert one["snapshot"]["devices"][0]["counters"]["collective_count"] == 22


@pytest.mark.long
def test_every_operation_gives_the_digits_and_the_times_of_ranks_in_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = PROGRAMS / "conversation.py"
    watched = tmp_path / "watched.py"
    watched.write_text(WATCHED.format(program=str(program)))
    ran = torchrun("--nproc-per-node", "2", str(watched), str(tmp_path), cwd=tmp_path, PYTHONWARNINGS="ignore")
    assert ran.returncode == 0, ran.stderr
    lab.enable("a100:2")
    try:
        together = lab.run_ranks(runpy.run_path(str(program))["main"], 2, show=())
    finally:
        lab.disable()
    ranks = json.loads((tmp_path / "out.json").read_text())["processes"]
    assert [one["name"] for one in ranks] == ["rank 0", "rank 1"]
    assert "2 ranks" in ran.stderr
    for rank, one in enumerate(ranks):
        assert torch.load(tmp_path / f"{rank}.pt") == together[rank]
        mine, other = (one["snapshot"]["devices"][index] for index in (rank, 1 - rank))
        assert mine["counters"]["collective_count"] > 60
        assert mine["memory"]["peak_allocated"] > 4 << 20
        assert not any(other["counters"].values())


WATCHED = """
import atexit, os, pathlib, runpy, sys

def no_thread_of_gloo_is_left():  # it may need Python when Python has ended, and then the process aborts
    comms = pathlib.Path("/proc/self/task").glob("*/comm")
    if left := [name for comm in comms if "gloo_run" in (name := comm.read_text())]:
        print("still running:", *left, file=sys.stderr, flush=True)
        os._exit(1)

atexit.register(no_thread_of_gloo_is_left)  # first, so that it is called last
runpy.run_path({program!r}, run_name="__main__")
"""


@pytest.mark.long
def test_fsdp2_tensor_parallel_and_checkpoints(tmp_path: Path) -> None:
    ran = torchrun("--nproc-per-node", "2", str(PROGRAMS / "sharded.py"), cwd=tmp_path, PYTHONWARNINGS="ignore")
    assert ran.returncode == 0, ran.stderr
    assert "all equal 66176 [3.0, 3.0, 3.0] 2" in ran.stdout


BESIDE = """
import os, time, torch, torch.distributed as dist, fakegpu_lab as lab
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
x = torch.full((4,), 1.0 + rank, device="cuda")
dist.barrier(device_ids=[rank])
if rank:
    time.sleep(1.0)  # rank 0 is there long before
    torch.cuda._sleep(10**7)
dist.all_reduce(x, async_op=True)  # nobody calls wait()
torch.cuda.synchronize()
came = lab.clock()
os.write(1, f"{came} {x.tolist()}\\n".encode())
dist.destroy_process_group()
"""


def test_who_waits_for_the_device_waits_for_what_runs_beside_its_stream(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text(BESIDE)
    ran = torchrun("--nproc-per-node", "2", "beside.py", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    first, second = ran.stdout.splitlines()
    assert first == second, "rank 0 waits for rank 1, which came later"
    assert first.endswith(" [3.0, 3.0, 3.0, 3.0]")


BROKEN = """
import os, threading, torch, torch.distributed as dist
from datetime import timedelta
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
x = torch.ones(4, device="cuda")

def refused(call):
    try:
        call()
    except Exception as error:
        said = f"{rank}| {type(error).__name__}: {error}".replace("\\n", " ")
        os.write(1, f"{said}\\n".encode())  # in one piece: both ranks write to the same pipe
    else:
        print(rank, "not refused", flush=True)
    dist.barrier(device_ids=[rank])

refused(lambda: dist.all_reduce(torch.ones(4)))
refused(lambda: dist.all_reduce(torch.ones(4, dtype=torch.int16, device="cuda")))
refused(lambda: dist.all_reduce(torch.ones(3 + rank, device="cuda")))
refused(lambda: dist.all_reduce(x) if rank else dist.broadcast(x, 0))
refused(lambda: dist.all_reduce(x.long() if rank else x))
refused(lambda: dist.all_to_all_single(torch.empty(4, device="cuda"), x, [1, 3], [1, 3]))
refused(lambda: dist.all_reduce(torch.ones(4, device="cuda:0")))

for _ in range(600):  # nobody waits for them
    dist.all_reduce(torch.ones(1024, device="cuda"), async_op=True)
os.write(1, f"{rank}| {torch.cuda.memory_allocated() < 300 * 4096}\\n".encode())

late = dist.new_group([0, 1])  # only rank 1 uses it
for call in (
    lambda: dist.all_reduce(x, group=late, async_op=True).wait(timedelta(seconds=0.2)),
    lambda: dist.all_reduce(x, group=late),
):
    refused(call) if rank else dist.barrier(device_ids=[rank])

os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"  # then nobody ends a rank that is stuck
stuck = dist.new_group([0, 1])
dist.all_reduce(x, group=stuck)
before = x.tolist()
if rank:
    work = dist.all_reduce(x, group=stuck, async_op=True)
    work.wait()
    threading.Timer(0.2, stuck._get_backend(x.device).abort).start()
    os.write(1, f"1| {x.tolist() == before} {work.get_future_result().wait()}\\n".encode())  # stuck until the abort
dist.barrier(device_ids=[rank])

gone = dist.new_group([0, 1])
dist.all_reduce(x, group=gone)
if rank:
    raise ValueError("rank 1 gives up")
dist.broadcast(x, 0, group=gone)  # the root of a small broadcast does not notice
print("0 goes on", flush=True)
dist.all_reduce(x)
"""


def test_broken_programs_are_told_in_the_words_of_nccl(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    ran = torchrun("--nproc-per-node", "2", "broken.py", cwd=tmp_path)
    assert ran.returncode == 1
    mismatch = "DistBackendError: Detected mismatch between collectives on ranks. Rank {me} is running collective: "
    differs = "Collectives differ in the following aspects:   "
    for rank in range(2):
        said = [line.partition("| ")[2] for line in ran.stdout.splitlines() if line.startswith(f"{rank}| ")]
        cpu, short, shape, kind, dtype, splits, twice, released, *of_rank_1 = said
        assert released == "True"
        if rank:
            late, aborted, stuck = of_rank_1
            timed_out = "WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 200 "
            assert timed_out + "milliseconds before timing out." in late
            assert aborted.startswith("DistBackendError: NCCL communicator was aborted on rank 1.  Original reason for")
            assert timed_out in aborted
            assert stuck == "True 2"  # the values as before; WorkResult.COMM_ERROR
        assert cpu == "RuntimeError: No backend type associated with device type cpu"
        assert short == "TypeError: Input tensor data type is not supported for NCCL process group: Short"
        for text in (shape, kind, dtype, splits):
            assert text.startswith(mismatch.format(me=rank))
            assert "broken.py:" in text
        assert f"{differs}Tensor Tensor shapes: {3 + rank}vs {4 - rank}" in shape
        assert f"{differs}Op type: {'ALLREDUCEvs BROADCAST' if rank else 'BROADCASTvs ALLREDUCE'}" in kind
        assert f"{differs}Tensor Tensor dtypes: {'Longvs Float' if rank else 'Floatvs Long'}" in dtype
        assert "OpType=ALLTOALL_BASE" in splits
        assert twice.startswith("DistBackendError: NCCL error in: ")
        assert "ncclInvalidUsage: This usually reflects invalid usage of NCCL library." in twice
        assert "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 7000" in twice
    assert "not refused" not in ran.stdout
    assert "0 goes on" in ran.stdout
    assert "ValueError: rank 1 gives up" in ran.stderr
    assert "ChildFailedError" in ran.stderr
    assert ran.stderr.index("ChildFailedError") < ran.stderr.index("process  device  allocated")
    assert "\nrank 1   cuda:" in ran.stderr
