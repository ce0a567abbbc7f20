"""Handles of operations under way: what ``async_op=True`` returns."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.ranks.collectives import cost
from fakegpu_lab.ranks.dist import cpp, dist
from fakegpu_lab.ranks.scheduling.scheduler import Waiting, current_rank

if TYPE_CHECKING:
    import datetime as dt

    from fakegpu_lab.ranks.collectives.operation import Operation


class RankWork(cpp.Work):  # type: ignore[misc]
    """One rank's part in an operation, or in several that were coalesced.

    As with NCCL, `wait` does not make the host wait: it makes the current stream wait for the operation. But the values
    have to be there when the rank continues, so other ranks run until they are.
    """

    def __init__(self, operations: list[Operation], result: Any) -> None:
        super().__init__()
        self._operations = operations
        self._result = result

    def _done(self) -> bool:
        return all(operation.done for operation in self._operations)

    def _finish(self, seconds: float | None = None) -> None:
        for operation in self._operations:
            operation.channel.finish(operation, seconds)

    def wait(self, timeout: dt.timedelta | None = None) -> bool:
        """Wait for the operation; raises what it failed with, or that it has timed out."""
        put_off = self._operations[0].channel.put_off if self._operations else None
        if put_off is not None and not timeout:
            put_off(self._wait)
        else:
            self._wait(timeout.total_seconds() if timeout else None)
        return True

    def _wait(self, seconds: float | None = None) -> None:
        self._finish(seconds)
        _wait_for_all(self._operations)

    def synchronize(self) -> None:
        """As `wait`."""
        self.wait()

    def block_current_stream(self) -> None:
        """As `wait`."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether it is done; lets other ranks run first, so that a loop that polls it ends."""
        me = current_rank()
        if me is not None and not self._done():
            first = next(operation for operation in self._operations if not operation.done)
            me.give_way(Waiting(lambda: first.done, first))
        elif me is None:
            self._finish()
        return self._done()

    def is_success(self) -> bool:
        """Whether it is done."""
        return self._done()

    def exception(self) -> Any:
        """None: errors are raised in `wait`."""
        return None

    def result(self) -> Any:
        """The tensors that were written."""
        return self._result

    def source_rank(self) -> int:
        """The rank that sent what was received."""
        return self._operations[-1].peer

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future[Any]:
        """The tensors that will be written, as a future.

        The future is complete: other ranks run here until it is, since C++ (DDP's reducer) waits for futures where no
        other rank can run. Waiting for it makes the current stream wait for the operation.
        """
        self._finish()
        future = RankFuture()
        future._operations = self._operations
        future.set_result(self._result)
        if torch._C._current_graph_task_id() != -1:
            # DDP's reducer waits for it in C++, in a callback of the same backward that runs after this one.
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(partial(_wait_for_all, self._operations))
        return future

    def get_future_result(self) -> torch.futures.Future[Any]:
        """As `get_future`, with the number of a WorkResult: success, timeout, or communication error."""
        result = 0
        try:
            self._finish()
        except dist.DistBackendError as error:
            result = 1 if "before timing out" in str(error) else 2
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(result)
        return future

    def __repr__(self) -> str:
        return f"<RankWork {', '.join(map(str, self._operations))}>"


class RankFuture(torch.futures.Future[Any]):
    """A complete future of operations: waiting for it makes the current stream wait for them."""

    _operations: list[Operation]

    def wait(self) -> Any:
        """The tensors."""
        _wait_for_all(self._operations)
        return super().wait()


def _wait_for_all(operations: list[Operation]) -> None:
    for operation in operations:
        cost.wait(operation)
