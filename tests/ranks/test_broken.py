"""Programs that are wrong: each ends at once, with a message that says what to do about it."""

from __future__ import annotations

import linecache
import os
import sys
import textwrap
import time
import traceback
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import fakegpu_lab as lab
from fakegpu_lab.user_code import frames
from tests.ranks.conftest import on_ranks

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("gpus")


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """What torch imports at the first collective and the first DDP (300 modules of Dynamo's) is not our second."""
    lab.enable("a100")

    def program() -> None:
        dist.all_reduce(ones())
        DistributedDataParallel(nn.Linear(1, 1).cuda())

    on_ranks(1, program)
    lab.disable()


def message(program: Callable[[], Any], world: int = 2, kind: type[BaseException] = Exception, **more: Any) -> str:
    """What the program ends with, within a second: of the processor's time, for others may be busy on it, too."""
    began = time.process_time()
    with pytest.raises(kind) as caught:
        on_ranks(world, program, **more)
    assert time.process_time() - began < 1
    return str(caught.value)


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape or (4,), device="cuda", dtype=dtype)


def contains(text: str, *parts: str) -> None:
    place = 0
    for part in parts:
        found = text.find(part, place)
        assert found >= 0, f"{part!r} is not in (the rest of)\n{text}"
        place = found + len(part)


def test_a_collective_that_only_some_ranks_call() -> None:
    def program() -> None:
        rank = dist.get_rank()
        dist.all_reduce(ones())
        if rank == 0:
            dist.all_reduce(ones(8))

    contains(
        message(program, kind=dist.DistBackendError),
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=8, "
        "NumelOut=8, Timeout(ms)=600000) ran for 600000 milliseconds before timing out.",
        "No rank can continue.",
        "rank 0 waits in all_reduce of [8] float32, operation 2 of the default group (tests/ranks/test_broken.py:",
        "dist.all_reduce(ones(8)))",
        "rank 1 has ended; its last call was all_reduce of [4] float32, operation 1 of the default group",
        "Likely cause: rank 1 has ended without calling all_reduce, operation 2",
        "is inside `if rank == 0`",
    )


def test_a_hang_can_be_told_as_nccl_tells_it() -> None:
    def program() -> None:
        dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["RANK"])))
        if dist.get_rank() == 0:
            dist.recv(ones(), src=1)

    with pytest.raises(dist.DistBackendError, match="we are taking the entire process down") as caught:
        lab.run_ranks(program, 2, timeout_like_nccl=True)
    assert "OpType=RECV, NumelIn=4, NumelOut=4" in str(caught.value)
    assert "No rank can continue" not in str(caught.value)


def test_batches_that_are_not_equally_many() -> None:
    def program() -> None:
        for _ in range(3 + dist.get_rank()):
            dist.all_reduce(ones())

    contains(
        message(program),
        "rank 0 has ended; its last call was all_reduce of [4] float32, operation 3",
        "rank 1 waits in all_reduce of [4] float32, operation 4",
        "fewer times than rank 1",
        "DistributedSampler",
        "join()",
    )


def test_operations_in_another_order() -> None:
    def program() -> None:
        if dist.get_rank() == 0:
            dist.all_reduce(ones())
            dist.broadcast(ones(), 0)
        else:
            dist.broadcast(ones(), 0)
            dist.all_reduce(ones())

    contains(
        message(program),
        "Detected mismatch between collectives on ranks. Rank 1 is running collective: CollectiveFingerPrint("
        "SequenceNumber=1, OpType=BROADCAST, TensorShape=[4], TensorDtypes=Float, TensorDeviceTypes=TensorOptions("
        "dtype=float (default), device=cuda,",
        "but Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=1, OpType=ALLREDUCE",
        "Collectives differ in the following aspects:   Op type: BROADCASTvs ALLREDUCE",
        "rank 0 calls all_reduce of [4] float32 (tests/ranks/test_broken.py:",
        "rank 1 broadcast of [4] float32",
        "same order",
    )


def test_an_operation_that_only_some_ranks_call_before_another() -> None:
    cell = textwrap.dedent("""\
        %%exercise first
        def program():
            if dist.get_rank() != 0:
                dist.barrier()
            dist.all_reduce(ones())
    """)
    names: dict[str, Any] = {"dist": dist, "ones": ones}
    linecache.cache["<cell>"] = (len(cell), None, cell.splitlines(keepends=True), "<cell>")
    exec(compile(cell.replace("%%exercise first", ""), "<cell>", "exec"), names)
    contains(
        message(names["program"]),
        "Detected mismatch between collectives",
        "<cell>:4 is inside `if dist.get_rank() != 0` (line 3): does every rank enter it?",
        "same order",
    )


def test_ranks_that_failed_leave_no_memory_to_the_next_run() -> None:
    def allocated(card: int) -> int:
        return lab.snapshot().devices[card].memory.allocated

    def program(*, broken: bool) -> int:
        dist.init_process_group("nccl")
        torch.cuda.set_device(dist.get_rank())
        held = torch.ones(2**20, device="cuda")
        if broken and dist.get_rank() == 1:
            raise ValueError(held.shape)
        dist.all_reduce(held)  # rank 0 waits here when rank 1 raises
        return allocated(dist.get_rank())

    def after(failed: BaseException | None) -> list[int]:
        sys.last_value = failed  # IPython keeps the error that it showed here, for %debug
        return lab.run_ranks(lambda: program(broken=False), 2)

    try:
        clean = after(None)
        with pytest.raises(ValueError, match="1048576") as shown:
            lab.run_ranks(lambda: program(broken=True), 2)
        assert allocated(1) >= 2**22, "as long as a debugger may look at it"
        for frame, _ in traceback.walk_tb(shown.tb):
            assert frame.f_locals is not None  # as IPython reads them to show the error
        frames.trim(shown.value)  # as notebooks show it: without this package's frames
        assert after(shown.value) == clean
    finally:
        del sys.last_value


def test_two_groups_in_another_order() -> None:
    def program() -> None:
        first, second = dist.new_group([0, 1]), dist.new_group([0, 1])
        for group in (first, second) if dist.get_rank() == 0 else (second, first):
            dist.all_reduce(ones(), group=group)

    contains(
        message(program),
        "rank 0 waits in all_reduce of [4] float32, operation 1 of group '1' of ranks 0, 1",
        "rank 1 waits in all_reduce of [4] float32, operation 1 of group '2' of ranks 0, 1",
        "Likely cause: rank 0 waits for rank 1",
        "different orders",
    )


def test_another_shape() -> None:
    contains(
        message(lambda: dist.all_reduce(ones(4 + dist.get_rank()))),
        "Detected mismatch between collectives",
        "Tensor Tensor shapes: 5vs 4",
        "rank 0 calls all_reduce of [4] float32",
        "rank 1 all_reduce of [5] float32",
        "same size",
    )


def test_parts_of_an_all_to_all_that_do_not_match() -> None:
    def program() -> None:
        rows = 2 + dist.get_rank()
        dist.all_to_all_single(torch.empty(2 * rows, 3, device="cuda"), torch.ones(2 * rows, 3, device="cuda"))

    said = message(program)
    contains(
        said,
        "Rank 1 expects 9 elements from rank 0, which sends it 6. ",
        "Rank 0 expects 6 elements from rank 1, which sends it 9.",
        "What rank i receives from rank j must be as large as what rank j sends to rank i.",
    )
    assert "same size" not in said


def test_another_dtype() -> None:
    def program() -> None:
        dist.all_reduce(ones(dtype=torch.float16 if dist.get_rank() else torch.float32))

    contains(message(program), "Tensor Tensor dtypes: Halfvs Float", "float32", "float16")


def test_another_root() -> None:
    contains(message(lambda: dist.broadcast(ones(), src=dist.get_rank())), "root: 1vs 0")


def test_a_place_in_a_gathered_list_that_is_too_small() -> None:
    def program() -> None:
        dist.all_gather([ones(3), ones(3)], ones(3 if dist.get_rank() == 0 else 5))

    contains(message(program), "Tensor Tensor shapes")


def test_recv_without_send() -> None:
    def program() -> None:
        if dist.get_rank() == 0:
            dist.recv(ones(), src=1)

    contains(
        message(program),
        "OpType=RECV",
        "rank 0 waits in recv of [4] float32 from rank 1 (tests/ranks/test_broken.py:",
        "rank 1 has ended",
        "Likely cause: rank 1 has ended and has sent nothing more to rank 0: every recv needs a send.",
    )


def test_both_receive_first() -> None:
    def program() -> None:
        other = 1 - dist.get_rank()
        dist.recv(ones(), src=other)
        dist.send(ones(), dst=other)

    contains(message(program), "rank 0 receives from rank 1 while rank 1 waits in recv", "batch_isend_irecv")


def test_a_batch_that_sends_to_another_rank_than_the_one_that_waits() -> None:
    def program() -> None:
        rank, ranks = dist.get_rank(), dist.get_world_size()
        x, got, after = ones(), ones(), (rank + 1) % ranks
        calls = [dist.P2POp(dist.isend, x, after), dist.P2POp(dist.irecv, got, after)]  # from the one before
        for work in dist.batch_isend_irecv(calls):
            work.wait()
        got.tolist()

    contains(message(program, 3), "rank 0 receives from rank 1, and rank 1's batch sends to rank 2 instead")


def test_send_without_recv(capsys: pytest.CaptureFixture[str]) -> None:
    def program() -> None:
        if dist.get_rank() == 0:
            dist.send(ones(), dst=1)

    on_ranks(2, program)
    contains(capsys.readouterr().out, "Rank 0's send of [4] float32 to rank 1", "never received")


def test_what_is_received_is_larger_than_what_was_sent() -> None:
    def program() -> None:
        if dist.get_rank() == 0:
            dist.send(ones(4), dst=1)
        else:
            dist.recv(ones(6), src=0)

    said = message(program)
    contains(said, "Tensor Tensor shapes: [6]vs [4]", "The two ends of a message must have the same number of elements")
    assert "does every rank enter it?" not in said


def test_two_ranks_on_one_device() -> None:
    def program() -> None:
        torch.cuda.set_device(0)
        dist.all_reduce(ones())

    contains(
        message(program, kind=dist.DistBackendError),
        "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\n"
        "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device ",
        "Ranks 0 and 1 both use cuda:0",
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))",
    )


def test_a_cpu_tensor() -> None:
    text = message(lambda: dist.all_reduce(torch.ones(4)), kind=RuntimeError)
    contains(text, "No backend type associated with device type cpu")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no notes below an error")
def test_one_rank_raises(capsys: pytest.CaptureFixture[str]) -> None:
    def program() -> None:
        if dist.get_rank() == 1:
            raise ZeroDivisionError("batch 7 is empty")
        dist.all_reduce(ones())

    with pytest.raises(ZeroDivisionError, match="batch 7 is empty") as caught:
        on_ranks(3, program)
    assert caught.traceback[-1].name == "program"
    contains(
        "\n".join(getattr(caught.value, "__notes__", [])),
        "Rank 1 raised this",
        "rank 0 was stopped in all_reduce of [4] float32, operation 1 of the default group",
    )


def test_parameters_in_another_order() -> None:
    def program() -> None:
        first, second = nn.Linear(4, 8), nn.Linear(8, 4)
        net = nn.Sequential(first, second) if dist.get_rank() == 0 else nn.Sequential(second, first)
        DistributedDataParallel(net.cuda())

    contains(
        message(program, kind=RuntimeError),
        "params[0] in this process with sizes [4, 8] appears not to match sizes of the same param in process 0",
    )


def test_another_number_of_parameters() -> None:
    def program() -> None:
        DistributedDataParallel(nn.Sequential(*[nn.Linear(2, 2) for _ in range(2 + dist.get_rank())]).cuda())

    contains(message(program, kind=RuntimeError), "DDP expects same model across all ranks")


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


def test_an_unused_parameter() -> None:
    def program() -> None:
        net = DistributedDataParallel(Branches().cuda())
        for _ in range(2):
            net(ones(3, 2)).sum().backward()

    contains(
        message(program, kind=RuntimeError),
        "Expected to have finished reduction in the prior iteration before starting a new one",
        "find_unused_parameters=True",
    )


def test_a_forgotten_set_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    def program(remembered: bool) -> None:
        data = TensorDataset(torch.arange(8))
        sampler = DistributedSampler(data)
        loader = DataLoader(data, sampler=sampler, batch_size=2)
        for epoch in range(3):
            if remembered:
                sampler.set_epoch(epoch)
            list(loader)

    on_ranks(2, program, True)
    assert "set_epoch" not in capsys.readouterr().out
    on_ranks(2, program, False)
    text = capsys.readouterr().out
    contains(text, "DistributedSampler repeats the previous epoch's order", "sampler.set_epoch(epoch)")
    assert text.count("set_epoch") == 1


def test_a_forgotten_no_sync(capsys: pytest.CaptureFixture[str]) -> None:
    def program(remembered: bool) -> None:
        net = DistributedDataParallel(nn.Linear(2, 2).cuda())
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for step in range(6):
            if step % 3 < 2 and remembered:
                with net.no_sync():
                    net(ones(1, 2)).sum().backward()
            else:
                net(ones(1, 2)).sum().backward()
            if step % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()

    on_ranks(2, program, True)
    assert "no_sync" not in capsys.readouterr().out
    on_ranks(2, program, False)
    text = capsys.readouterr().out
    contains(text, "gradients were reduced 2 times", "no_sync()")
    assert text.count("no_sync") == 1


def test_a_loop_that_asks_for_ever() -> None:
    def program() -> None:
        if dist.get_rank() == 0:
            work = dist.all_reduce(ones(), async_op=True)
            while not work.is_completed():
                pass

    contains(message(program), "rank 0 waits in all_reduce", "rank 1 has ended")


def test_no_device_for_a_rank() -> None:
    lab.enable("a100:2")
    text = message(lambda: None, world=3)
    contains(text, "CUDA error: invalid device ordinal")


def test_no_default_group() -> None:
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        lab.run_ranks(lambda: dist.all_reduce(torch.ones(1, device="cuda")), 2)


def test_rank_one_never_makes_the_group() -> None:
    def program() -> None:
        import os

        rank = int(os.environ["RANK"])
        torch.cuda.set_device(rank)
        if rank == 0:
            dist.init_process_group("nccl")
            dist.barrier()

    with pytest.raises(dist.DistBackendError) as caught:
        lab.run_ranks(program, 2)
    contains(str(caught.value), "rank 1 has ended without calling any operation of the default group")


def test_ranks_without_a_machine_and_impossible_numbers() -> None:
    with pytest.raises(lab.FakeGpuError, match="must be from 1 to 64"):
        lab.run_ranks(lambda: None, 0)
    with pytest.raises(lab.FakeGpuError, match=r"show=\[1, 9\] names ranks that do not exist: they are 0 to 1"):
        lab.run_ranks(lambda: None, 2, show=[1, 9])
    lab.disable()
    with pytest.raises(lab.FakeGpuError, match="%fakegpu a100:4"):
        lab.run_ranks(lambda: None, 2)


def test_greenlets_are_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    gevent = SimpleNamespace(is_module_patched={"_thread": True}.__getitem__)
    monkeypatch.setitem(sys.modules, "gevent.monkey", gevent)
    with pytest.raises(lab.FakeGpuError, match=r"gevent\.monkey\.patch_all\(thread=False, socket=False\)"):
        lab.run_ranks(lambda: None, 2)


def test_a_rank_that_starts_ranks() -> None:
    with pytest.raises(lab.FakeGpuError, match="cannot start other ranks"):
        lab.run_ranks(lambda: lab.run_ranks(lambda: None, 2), 2)


REFUSED: list[tuple[Callable[[], Any], type[BaseException], str]] = [
    (
        lambda: dist.all_reduce(ones(dtype=torch.int16)),
        TypeError,
        "data type is not supported for NCCL process group: Short",
    ),
    (
        lambda: dist.all_reduce(ones(dtype=torch.int32), dist.ReduceOp.BXOR),
        ValueError,
        "Cannot use ReduceOp.BXOR with NCCL",
    ),
    (
        lambda: dist.all_reduce(ones(dtype=torch.bool), dist.ReduceOp.AVG),
        TypeError,
        "Cannot use ReduceOp.AVG with boolean",
    ),
    (lambda: dist.all_reduce(ones(4, 4).t()[:2]), ValueError, "Tensors must be contiguous"),
    (
        lambda: dist.all_gather_into_tensor(ones(7), ones(4)),
        ValueError,
        "output tensor size must be equal to world_size",
    ),
    (lambda: dist.all_to_all_single(ones(3), ones(3)), RuntimeError, "does not divide equally across group size"),
    (
        lambda: dist.all_to_all_single(ones(4), ones(4), [1, 2], [2, 2]),
        RuntimeError,
        "Split sizes doesn't match total dim 0",
    ),
    (
        lambda: dist.scatter(ones(2), [ones(2)] if dist.get_rank() == 0 else None),
        ValueError,
        "Incorrect input list size 1",
    ),
    (lambda: dist.recv(ones()), NotImplementedError, "ProcessGroupNCCL does not support recvAnysource"),
    (lambda: dist.monitored_barrier(), ValueError, "GLOO"),  # "only implemented for GLOO", and since torch 2.15 longer
]


@pytest.mark.parametrize(("program", "kind", "words"), REFUSED)
def test_what_nccl_refuses(program: Callable[[], Any], kind: type[BaseException], words: str) -> None:
    assert words in message(program, kind=kind)
