"""Launchers of processes in a notebook: the launched functions run as ranks of the kernel's own process instead.

A new process cannot run functions of a cell: ``spawn`` does not find them, and ``fork`` fails once CUDA is initialised.
In scripts the launchers are unchanged.
"""

from __future__ import annotations

import sys
import traceback
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.changes import imported, replaced
from fakegpu_lab.ranks.scheduling.scheduler import current_rank
from fakegpu_lab.user_code.environment import shell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fakegpu_lab.driver.base.changes import Change


_spawn_module: Any = sys.modules["torch.multiprocessing.spawn"]
_start_processes: Any = _spawn_module.start_processes


def in_notebook() -> bool:
    """Whether this is a kernel (or IPython) with a machine, outside ranks."""
    return shell() is not None and current.machine is not None and current_rank() is None


class _Finished:
    """What `start_processes` returns with ``join=False``: the ranks have already run."""

    processes: tuple[Any, ...] = ()

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Nothing to wait for."""
        return True


def start_processes(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> Any:
    """`torch.multiprocessing.start_processes`."""
    if not in_notebook():
        return _start_processes(fn, args, nprocs, join, daemon, start_method)
    from fakegpu_lab.ranks.launching.in_process import run_programs

    failed = -1

    def program(rank: int) -> None:
        nonlocal failed
        try:
            fn(rank, *args)
        except Exception:
            failed = rank
            raise

    try:
        run_programs([partial(program, rank) for rank in range(nprocs)], environment=lambda rank, count: {})
    except Exception as error:
        if failed < 0:
            raise
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        raise _spawn_module.ProcessRaisedException(
            f"\n\n-- Process {failed} terminated with the following error:\n{text}", failed, 0
        ) from error
    return None if join else _Finished()


@wraps(_spawn_module.spawn)
def spawn(*args: Any, **kwargs: Any) -> Any:
    """`torch.multiprocessing.spawn`, which takes the same arguments."""
    return start_processes(*args, **kwargs)


def _of_accelerate(module: Any) -> list[Change]:
    real = module.notebook_launcher

    def notebook_launcher(
        function: Callable[..., Any],
        args: Sequence[Any] = (),
        num_processes: int | None = None,
        mixed_precision: str = "no",
        use_port: str = "29500",
        master_addr: str = "127.0.0.1",
        **more: Any,
    ) -> Any:
        if not in_notebook() or num_processes is None or num_processes < 2:
            return real(function, args, num_processes, mixed_precision, use_port, master_addr, **more)
        from fakegpu_lab.ranks.launching.in_process import run_programs
        from fakegpu_lab.ranks.scheduling.environment import variables

        if module.AcceleratorState._shared_state:
            raise ValueError(
                "To launch a multi-device training from your notebook, the `Accelerator` should only be initialized "
                "inside your training function. Restart your notebook and make sure no cells initializes an "
                "`Accelerator`."
            )

        def environment(rank: int, count: int) -> dict[str, str]:
            return {
                **variables(rank, count),
                "MASTER_ADDR": master_addr,
                "MASTER_PORT": str(use_port),
                "ACCELERATE_MIXED_PRECISION": str(mixed_precision),
                "FORK_LAUNCHED": "1",
            }

        print(f"Launching training on {num_processes} GPUs.")
        run_programs([partial(function, *args)] * num_processes, environment=environment)
        return None

    paths = ("accelerate.launchers.notebook_launcher", "accelerate.notebook_launcher")
    return [replaced(path, notebook_launcher, _WHY, optional=True) for path in paths]


_WHY = "a notebook's processes are ranks"
CHANGES = [
    *(
        replaced(f"{module}.{function.__name__}", function, _WHY)
        for module in ("torch.multiprocessing", "torch.multiprocessing.spawn")
        for function in (start_processes, spawn)
    ),
    imported("accelerate.launchers", _of_accelerate, _WHY),
]
