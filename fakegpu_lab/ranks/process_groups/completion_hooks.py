"""Hooks on completion: what a program has called for each operation of a group that finishes.

``ProcessGroup._register_on_completion_hook``. In NCCL's backend a watchdog thread calls it soon after an operation
finished (ProcessGroupNCCL::runHookLoop); here the program's own thread does, when the group's next operation is called
or the group waits for what is pending, as ``destroy_process_group`` does.
"""

from __future__ import annotations

import datetime as dt
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fakegpu_lab.ranks.dist import cpp, dist

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.ranks.collectives.operation import Operation

_EPOCH = dt.datetime(2000, 1, 1)


@dataclass(frozen=True)
class WorkInfo:
    """``torch._C._distributed_c10d.WorkInfo``, which only C++ can make; times are the simulated clock's."""

    op_type: Any
    seq: int
    time_started: dt.datetime
    time_finished: dt.datetime
    active_duration: dt.timedelta


class Hooks:
    """A group's hook, and the operations that it has not been called for."""

    def __init__(self, hook: Callable[[WorkInfo], object]) -> None:
        self._hook = hook
        self._pending: deque[Operation] = deque()

    def issued(self, operation: Operation) -> None:
        """The group has called an operation; calls the hook for those that are done."""
        self._pending.append(operation)
        while self._pending and self._pending[0].done:
            self._call(self._pending.popleft())

    def finish(self) -> None:
        """Wait for all operations, and call the hook for each."""
        while self._pending:
            operation = self._pending.popleft()
            operation.channel.finish(operation)
            self._call(operation)

    def _call(self, operation: Operation) -> None:
        start, end = (_EPOCH + dt.timedelta(microseconds=ns / 1000) for ns in (operation.start_ns, operation.end_ns))
        duration = dt.timedelta(microseconds=max((operation.end_ns - operation.start_ns) / 1000, 1))
        kind = getattr(cpp.OpType, operation.kind)
        self._hook(WorkInfo(kind, operation.number, start, end, duration))


def registered(hooks: Hooks | None, hook: Callable[[WorkInfo], object], backend: str) -> Hooks:
    """A group's hooks with a new one; raises where C++ does."""
    if backend != "nccl":
        raise RuntimeError(f"Only ProcessGrouppNCCL supports onCompletion hook, but got {backend} backend.")
    if hooks is not None:
        raise dist.DistBackendError("ProcessGroupNCCL OnCompletionHook already registered")
    return Hooks(hook)
