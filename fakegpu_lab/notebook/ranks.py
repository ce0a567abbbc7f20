"""``%%ranks``: runs a cell on several ranks, each with its own names, random states and current device."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.user_code import cell_code, magic_line

if TYPE_CHECKING:
    from collections.abc import Callable


@magics_class
class RanksMagics(Magics):
    """The ``%%ranks`` magic."""

    @magic_arguments()
    @argument("count", type=int, help="how many ranks run the cell")
    @argument("--backend", help="make the default process group first, and take the rank's device: nccl, gloo")
    @argument("--show", default="all", help="the ranks whose output is shown: all (default), 0, or 0,3")
    @argument("--keep", action="store_true", help="bring what rank 0 made or changed back into the notebook")
    @argument("--timeout-like-nccl", action="store_true", help="report a hang in NCCL's own words only")
    @cell_magic
    def ranks(self, line: str, cell: str) -> None:
        """Run this cell on several ranks of a simulated torchrun, inside this kernel.

        %%ranks 4                           four ranks, each with RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, …
        %%ranks 4 --backend nccl            init_process_group("nccl") and torch.cuda.set_device are done
        %%ranks 4 --show 0                  only what rank 0 prints
        %%ranks 4 --keep                    afterwards, the notebook has rank 0's names

        Every rank has its own copy of the notebook's names; one rank runs at a time, in an order that is the same in
        every run. A hang is reported at once, with where each rank waits.
        """
        __tracebackhide__ = True
        args = magic_line.parse(self.ranks, line)
        try:
            from fakegpu_lab.ranks.launching.in_process import check, run_programs

            check(args.count)
            shown = _shown(args.show, args.count)
        except FakeGpuError as error:
            raise UsageError(str(error)) from None
        from fakegpu_lab.notebook import rank_names

        shell: Any = self.shell
        parsed = cell_code.parse(shell, cell)
        code = shell.compile(parsed.tree, parsed.name, "exec")
        notebook = shell.user_ns
        namespaces = [rank_names.of_rank(notebook, code) for _ in range(args.count)]
        starts = dict(namespaces[0])
        programs: list[Callable[[], None]] = [partial(_run, shell, parsed, names, args.backend) for names in namespaces]
        run_programs(programs, shown, timeout_like_nccl=args.timeout_like_nccl)
        if args.keep:
            notebook.update(rank_names.changed(namespaces[0], starts, notebook))


def _shown(text: str, count: int) -> set[int] | None:
    """The ranks to show, from ``all``, ``0`` or ``0,3``."""
    if text == "all":
        return None
    try:
        ranks = {int(part) for part in text.split(",")}
    except ValueError:
        ranks = {-1}
    if not all(0 <= rank < count for rank in ranks):
        raise UsageError(f"--show {text}: say all, or ranks from 0 to {count - 1}, as in --show 0,1.")
    return ranks


def _run(shell: Any, cell: cell_code.Cell, names: dict[str, Any], backend: str | None) -> None:
    """Run the cell as one rank, and print its last expression."""
    __tracebackhide__ = True
    if backend is not None:
        import torch
        import torch.distributed as dist

        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group(backend, device_id=torch.device("cuda", torch.cuda.current_device()))
    value = cell_code.run(shell, cell, names)
    if value is not None:
        print(repr(value))
