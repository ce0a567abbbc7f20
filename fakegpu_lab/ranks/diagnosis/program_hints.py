"""Hints about common mistakes in programs that run: printed once, by rank 0, in one line."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DistributedSampler

from fakegpu_lab.ranks.dist import cpp
from fakegpu_lab.ranks.scheduling.scheduler import current_rank
from fakegpu_lab.user_code.frames import quoted, user_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.base.patches import Patches

_NO_UNUSED = "find_unused_parameters=True was specified in DDP constructor, but did not find any unused parameters"
"""The warning of reducer.cpp, `search_unused_parameters`: once in a process, on the process's stderr."""


def _hint(key: str, text: str) -> None:
    rank = current_rank()
    if rank is not None and rank.number == 0 and key not in rank.local:
        rank.local[key] = True
        print(f"hint: {text}")


def _without_stderr(call: Callable[[], None]) -> str:
    """Run a call, and return what C++ wrote to the process's stderr during it."""
    with tempfile.TemporaryFile() as file:
        before = os.dup(2)
        try:
            os.dup2(file.fileno(), 2)
            call()
        finally:
            os.dup2(before, 2)
            os.close(before)
        file.seek(0)
        return file.read().decode(errors="replace")


def _prepare_for_backward(self: Any, outputs: Any) -> None:
    """`Reducer.prepare_for_backward`, which warns of a needless search on stderr."""
    global _search_hint_given
    module = sys._getframe(1).f_locals.get("self")
    if _search_hint_given or not getattr(module, "find_unused_parameters", False):
        _real_prepare(self, outputs)
        return
    for line in _without_stderr(lambda: _real_prepare(self, outputs)).splitlines(keepends=True):
        if _NO_UNUSED in line:
            _search_hint_given = True
            print(
                "hint: find_unused_parameters=True, and every parameter was used. Leave it out: it makes DDP walk "
                "through the graph in every iteration."
            )
        else:
            os.write(2, line.encode())


_real_prepare: Any = cpp.Reducer.prepare_for_backward
_search_hint_given = False


def install(patches: Patches) -> None:
    """Look for common mistakes while ranks run."""
    iterate: Any = DistributedSampler.__iter__
    forward: Any = DistributedDataParallel._pre_forward

    def iterate_and_check_epoch(self: Any) -> Any:
        if self.shuffle and vars(self).get("_fakegpu_lab_epoch") == self.epoch:
            _hint(
                "set_epoch",
                "DistributedSampler repeats the previous epoch's order: call sampler.set_epoch(epoch) at "
                "the start of every epoch.",
            )
        self._fakegpu_lab_epoch = self.epoch
        return iterate(self)

    def count_and_forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        rank = current_rank()
        if rank is not None and self.require_backward_grad_sync and self.training:
            counts = rank.local.setdefault("reductions", {})
            counts[id(self)] = count = counts.get(id(self), 0) + 1
            if count == 3:  # two backward passes are done; a third begins
                _hint(
                    "no_sync",
                    f"gradients were reduced 2 times since the last optimizer.step() ({quoted(user_line())}): to "
                    "accumulate them, put `with ddp.no_sync():` around forward and backward of all but the last batch.",
                )
        return forward(self, *args, **kwargs)

    vars(count_and_forward)["_torchdynamo_inline"] = forward  # what Dynamo sees of it

    def reset_counts(*_: Any) -> None:
        rank = current_rank()
        if rank is not None:
            rank.local.pop("reductions", None)

    patches.set(DistributedSampler, "__iter__", iterate_and_check_epoch)
    patches.set(DistributedDataParallel, "_pre_forward", count_and_forward)
    patches.set(cpp.Reducer, "prepare_for_backward", _prepare_for_backward)
    patches.later(register_optimizer_step_post_hook(reset_counts).remove)
