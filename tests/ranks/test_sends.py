"""Sends are over when they are received: which programs hang for that, where, and what is said."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.ranks.conftest import on_ranks
from tests.ranks.test_broken import _imported, contains, message, ones  # noqa: F401 - a fixture

pytestmark = pytest.mark.usefixtures("gpus")


def send(other: int) -> None:
    dist.send(ones(), dst=other)


def recv(other: int) -> None:
    dist.recv(ones(), src=other)


def test_both_send_first() -> None:
    def program() -> None:
        other = 1 - dist.get_rank()
        send(other)
        recv(other)

    contains(
        message(program, kind=dist.DistBackendError),
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(",
        "rank 0 waits in recv of [4] float32 from rank 1 (tests/ranks/test_sends.py:",
        "behind its send of [4] float32 to rank 1 (tests/ranks/test_sends.py:",
        "Likely cause: rank 0's send of [4] float32 to rank 1",
        "does not finish before rank 1 receives it, and rank 1 first waits for its own send",
        "batch_isend_irecv",
    )


@pytest.mark.parametrize("call", [dist.isend, dist.irecv, dist.send])
@pytest.mark.parametrize("batched", [False, True])
def test_a_message_to_a_rank_that_does_not_exist(call: Any, batched: bool) -> None:
    def program() -> None:
        other = dist.get_rank() + 2
        if batched and call is not dist.send:
            dist.batch_isend_irecv([dist.P2POp(call, ones(), other)])
        else:
            call(ones(), other)

    contains(
        message(program, kind=dist.DistBackendError),
        "invalid argument (run with NCCL_DEBUG=WARN for details)",
        f"{'Recv' if call is dist.irecv else 'Send'} : invalid root 2 (root should be in the 0..2 range)",
        f"Rank 0 calls {'recv from' if call is dist.irecv else 'send to'} rank 2 (tests/ranks/test_sends.py:",
        "and the group has the ranks 0 to 1.",
    )


def test_three_ranks_send_around_a_ring() -> None:
    def program() -> None:
        rank = dist.get_rank()
        dist.send(ones(), dst=(rank + 1) % 3)
        dist.recv(ones(), src=(rank - 1) % 3)

    contains(message(program, world=3), "rank 2 waits in recv", "rank 0's send", "rank 1 first waits")


def test_one_of_them_receives_first_or_both_are_batched() -> None:
    def program() -> None:
        rank, other = dist.get_rank(), 1 - dist.get_rank()
        sent, got = ones() * rank, ones()
        for call in (send, recv) if rank else (recv, send):
            call(other)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, other), dist.P2POp(dist.irecv, got, other)]):
            work.wait()
        assert got.tolist() == [other] * 4

    on_ranks(2, program)


def test_isend_and_irecv_that_are_not_batched_wait_for_each_other_on_their_stream() -> None:
    def program() -> None:
        other = 1 - dist.get_rank()
        works = [dist.isend(ones(), other), dist.irecv(ones(), other)]
        for work in works:
            work.wait()

    contains(message(program), "Likely cause: rank 0's send", "batch_isend_irecv")


def test_the_host_goes_on_after_a_send_until_it_waits_for_the_device() -> None:
    came: list[str] = []

    def program() -> None:
        if dist.get_rank() == 0:
            dist.send(ones(), dst=1)
            came.append("after send")
            x = ones() + 1
            came.append("after add")
            x.sum().item()
            came.append("after item")

    contains(
        message(program),
        "OpType=SEND",
        "rank 0 waits in send of [4] float32 to rank 1",
        "rank 1 has ended",
        "every send needs a recv",
    )
    assert came == ["after send", "after add"]


def test_a_collective_behind_a_send_hangs_with_it() -> None:
    def program() -> None:
        if dist.get_rank() == 0:
            dist.send(ones(), dst=1)
            dist.all_reduce(ones())
        else:
            dist.all_reduce(ones())
            dist.recv(ones(), src=0)

    contains(
        message(program),
        "rank 0 waits in all_reduce of [4] float32",
        "behind its send of [4] float32 to rank 1",
        "Likely cause: rank 0's send",
        "rank 1 waits in all_reduce",
    )


def test_a_send_takes_until_its_receiver_comes() -> None:
    def program() -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if dist.get_rank() == 0:
            start.record()
            dist.send(ones(), dst=1)
            end.record()
        else:
            busy = torch.ones(2048, 2048, device="cuda")
            for _ in range(20):
                busy = busy @ busy
            dist.recv(ones(), src=0)
            return 0.0
        torch.cuda.synchronize()
        return start.elapsed_time(end)

    assert on_ranks(2, program)[0] > 5


def test_gloo_sends_wait_in_the_call() -> None:
    def program() -> None:
        other = 1 - dist.get_rank()
        dist.send(torch.ones(4), dst=other)
        dist.recv(torch.ones(4), src=other)

    contains(
        message(program, backend="gloo"),
        "rank 0 waits in send of [4] float32 to rank 1",
        "rank 1 waits in send of [4] float32 to rank 0",
        "batch_isend_irecv",
    )


def test_a_tensor_that_is_not_contiguous_is_sent_as_it_lies_in_memory() -> None:
    """check_gpu_single_tensor (ProcessGroupNCCL.cpp) only warns: NCCL reads as many numbers as the tensor has."""

    def program() -> Any:
        me = dist.get_rank()
        square = torch.arange(9.0, device="cuda").view(3, 3)
        found = []
        for strided, target in ((square[:, 1], torch.zeros(3, device="cuda")), (square.T, torch.zeros_like(square))):
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                works = [dist.P2POp(dist.isend, strided, 1 - me), dist.P2POp(dist.irecv, target, 1 - me)]
                for work in dist.batch_isend_irecv(works):
                    work.wait()
            found.append(target.flatten().tolist())
        there = torch.zeros(3, 3, device="cuda").T
        works = [dist.P2POp(dist.isend, square, 1 - me), dist.P2POp(dist.irecv, there, 1 - me)]
        for work in dist.batch_isend_irecv(works):
            work.wait()
        return found, there.tolist(), square.T.tolist(), len(told)

    found, there, turned, told = on_ranks(2, program)[0]
    assert found == [[1, 2, 3], [0, 1, 2, 3, 4, 5, 6, 7, 8]]
    assert there == turned
    assert told == 0  # the first told it
