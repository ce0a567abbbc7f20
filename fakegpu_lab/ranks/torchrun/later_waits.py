"""Waits that a rank puts off until its next op, because the program handles the errors of its operations itself.

On a card, `Work.wait` only makes the stream wait. The watchdog ends the process of a rank whose operation fails, unless
TORCH_NCCL_ASYNC_ERROR_HANDLING is 0. Then the host continues until it needs something of the card, and hangs there
until the program aborts the group; what the operation should have written is left as it was.

Here the rank waits before its next op, whatever it reads. Simplified: waiting for the card itself
(`torch.cuda.synchronize`) waits for the operation, and raises its error.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.recorder import recording

if TYPE_CHECKING:
    from collections.abc import Callable

_waits: list[Callable[[], None]] = []


def wanted() -> bool:
    """Whether the program handles errors itself, and `Work.wait` does not block (ProcessGroupNCCL.hpp)."""
    blocking = os.environ.get("TORCH_NCCL_BLOCKING_WAIT", "0").lower() not in ("0", "n", "no", "f", "false")
    return os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING") == "0" and not blocking


def put_off(wait: Callable[[], None]) -> None:
    """Call `wait` before the next op."""
    _waits.append(wait)
    recording.refuse_by(_run)


def _run(func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
    """In place of the dispatch path: wait first."""
    __tracebackhide__ = True
    recording.refuse_by(None)
    waits, _waits[:] = list(_waits), []
    for wait in waits:
        with contextlib.suppress(RuntimeError):  # nobody is told
            wait()
    return FakeCudaTensor.__torch_dispatch__(func, types, args, kwargs or {})
