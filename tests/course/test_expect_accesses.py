"""What can be expected of kernels that students write: bytes, coalescing, bank conflicts, races.

The kernels here log accesses by hand, so that neither numba nor Triton is needed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import fakegpu_lab as lab
from fakegpu_lab import expect
from fakegpu_lab.course.checks import checking
from fakegpu_lab.course.expect.plain_data import codec
from fakegpu_lab.course.expect.plain_data.conversion import trace as seen_trace
from fakegpu_lab.driver.base import current
from fakegpu_lab.kernels.launch import Ran, launch
from tests.course.conftest import told

if TYPE_CHECKING:
    from fakegpu_lab.hardware.kernel_model.accesses import AccessLog
    from fakegpu_lab.trace import Trace

pytestmark = pytest.mark.usefixtures("gpus")
LANES = np.arange(32)[None]
HERE = (__file__, 7)


def recorded(*loads: Any, space: str = "global", name: str = "mine", races: tuple[str, ...] = ()) -> Trace:
    """A recording of one kernel that makes these requests, each given by the addresses of its 32 lanes."""
    x = torch.zeros(8192, device="cuda")

    def run(log: AccessLog) -> Ran:
        for addresses in loads:
            log.add("load", space, np.asarray(addresses) + (x.data_ptr() if space == "global" else 0), 4, HERE)  # type: ignore[arg-type]
        return Ran(written=[x], grid=(2,), threads=64, races=list(races))  # type: ignore[list-item]

    with lab.record() as trace:
        launch(current.device(), name, [x], run)  # type: ignore[list-item]
    return trace


def test_bytes_are_counted_where_they_move() -> None:
    trace = recorded(4 * LANES, 4 * LANES, 32 * LANES)
    assert expect.moves(at_most=3 * 128, at_least=3 * 128, where="threads", trace=trace)
    assert expect.moves(at_most="1 KiB", at_least=1000, trace=trace)
    said = told(lambda: expect.moves(at_most=100, where="threads", trace=trace))
    assert "the kernels load and store at most 100 B of global memory" in said
    assert "384 B" in said
    told(lambda: expect.moves(at_least="1 MiB", trace=trace))


def test_dram_counts_torch_s_kernels_too_and_threads_only_one_s_own() -> None:
    with lab.record() as trace:
        torch.ones(1024, device="cuda") + 1
    assert expect.moves(at_least=8192, trace=trace)
    said = told(lambda: expect.moves(at_most=8192, where="threads", trace=trace))
    assert "no kernel of your own was launched, only aten::add, aten::fill_" in said
    assert "in 2 kernels, most in aten::add: 8.00 KiB" in told(lambda: expect.moves(at_most=1, trace=trace))


@pytest.mark.parametrize(("stride", "met"), [(0, True), (4, True), (8, False), (128, False)])
def test_neighbors_must_access_neighbors(stride: int, met: bool) -> None:
    trace = recorded(stride * LANES)
    if met:
        assert expect.coalesced(trace=trace)
        assert expect.coalesced(sectors=4, trace=trace)
    else:
        sectors = min(32, stride)
        said = told(lambda: expect.coalesced(trace=trace))
        assert (
            f"a load touches {sectors} sectors for each request; the 128 bytes that it requests fill 4 sectors" in said
        )
        assert "test_expect_accesses.py:7" in said
        assert "at most 4 sectors of 32 bytes" in told(lambda: expect.coalesced(sectors=4, trace=trace))


def test_one_sector_more_is_allowed_unless_sectors_are_counted() -> None:
    assert expect.coalesced(trace=recorded(4 + 4 * LANES))
    told(lambda: expect.coalesced(sectors=4, trace=recorded(4 + 4 * LANES)))


def test_bank_conflicts_are_counted_in_cycles() -> None:
    assert expect.no_bank_conflicts(trace=recorded(4 * 33 * LANES, space="shared"))
    bad = recorded(4 * 32 * LANES, 4 * LANES, space="shared")
    said = told(lambda: expect.no_bank_conflicts(trace=bad))
    assert "31 cycles lost, most by a load: each of its requests takes 16.5 cycles" in said
    assert expect.no_bank_conflicts(at_most=31, trace=bad)
    said = told(lambda: expect.no_bank_conflicts(trace=recorded(4 * LANES)))
    assert "the kernel uses no shared memory" in said
    assert "no kernel of your own" in told(lambda: expect.no_bank_conflicts(trace=lambda: torch.ones(2, device="cuda")))


def test_a_race_of_threads_has_its_own_words() -> None:
    said = told(lambda: expect.no_races(trace=recorded(4 * LANES, races=("thread 0 writes what thread 1 reads.",))))
    assert "what threads share is in order" in said
    assert "1 race: Race on cuda:0 in mine: thread 0 writes what thread 1 reads." in said
    assert "a barrier or an atomic operation" in said


def test_what_a_kernel_did_reaches_the_grader_whole() -> None:
    """Grading reads a recording in another process: `codec` must keep what was accessed, and a race's sentence."""
    trace = recorded(32 * LANES, races=("a and b race.",))
    there = codec.decode(json.loads(json.dumps(codec.encode(seen_trace(trace)))))
    assert there.kernels == trace.kernels
    assert there.kernels[0].access.lines[0].sectors_per_request == 32
    assert there.kernels[0].access.occupancy.warps == trace.kernels[0].access.occupancy.warps
    assert str(there.races[0]) == "Race on cuda:0 in mine: a and b race."


def test_a_part_that_fails_in_a_kernel_says_which_thread_it_was() -> None:
    def fails() -> None:
        error = RuntimeError("CUDA error: an illegal memory access was encountered\nSearch for it in the manual.")
        error.__notes__ = ["Thread 3 writes x[5]."]  # what Python 3.11's add_note does
        raise error

    result = checking.run("expect.equal(fails(), 1)", {"fails": fails}, "one")
    (part,) = result.record.parts
    assert "an illegal memory access was encountered. Thread 3 writes x[5]." in part.found
    assert "manual" not in part.found


def test_tensors_that_differ_are_told_apart_by_place() -> None:
    said = told(lambda: expect.equal(torch.arange(100.0), torch.zeros(100)))
    assert "99 of 100 are wrong, the first at [1]: 1, not 0" in said
    one = torch.zeros(4, 5)
    one[2, 3] = float("nan")
    assert "1 of 20 are wrong, the first at [2, 3]: nan, not 0" in told(lambda: expect.close(one, torch.zeros(4, 5)))


def test_tensors_that_are_equal_are_not_called_other_numbers() -> None:
    result = checking.run("expect.equal(x, x)", {"x": torch.zeros(100)}, "one")
    assert result.record.parts[0].met
    assert "other numbers" not in result.record.parts[0].found
