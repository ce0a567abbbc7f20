"""A function of this process as one rank of an implied world; afterwards, the process is as it was."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base import current
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.ranks.diagnosis import held_by_errors
from fakegpu_lab.ranks.dist import dist
from fakegpu_lab.ranks.planning import figures, implied_ranks
from fakegpu_lab.ranks.scheduling.process_state import ProcessState
from fakegpu_lab.ranks.scheduling.scheduler import current_rank

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.ranks.planning.figures import Plan, World


def run(world: World, program: Callable[..., Any], *args: Any) -> tuple[Any, Plan]:
    """What the program returned as a rank of this world, and what it needed.

    Raises
    ------
    FakeGpuError
        This process, or the calling thread, is a rank already.
    """
    __tracebackhide__ = True
    if current_rank() is not None or implied_ranks.world() is not None:
        raise FakeGpuError("A rank cannot plan other ranks: call plan outside the ranks.")
    if dist.is_initialized():
        raise FakeGpuError(
            "This process is already in a process group: call torch.distributed.destroy_process_group() before plan."
        )
    gc.collect()  # a new process would hold nothing
    assert current.machine is not None
    for card in current.machine.cards:
        card.allocator.empty_cache()
        card.allocator.reset_peak()
    outside, device, hook = ProcessState(), torch.cuda.current_device(), sys.excepthook
    implied_ranks.enter(world)
    try:
        result = program(*args)
        plan = figures.current
        assert plan is not None
    except BaseException as error:
        held_by_errors.forget(error)
        raise
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        implied_ranks.leave()
        figures.current = None
        outside.enter()
        sys.excepthook = hook  # init_process_group's names the rank
        torch.cuda.set_device(device)
        gc.collect()  # FSDP's states are cycles
    return result, plan
