"""``%%ranks``: runs a cell on several ranks, each with its own names, random states and current device.

A rank has the names that a process of its own would have: what its cell changes, no other rank sees. Modules,
optimizers and containers that the cell, or a function that it calls, refers to are copied for each rank; functions
defined in the notebook are bound to the rank's names. Tensors on the host are shared, as `torch.multiprocessing` shares
them, and so is what cannot be copied.
"""

from __future__ import annotations

import copy
import os
import types
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
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

        shell: Any = self.shell
        parsed = cell_code.parse(shell, cell)
        code = shell.compile(parsed.tree, parsed.name, "exec")
        notebook = shell.user_ns
        namespaces = [of_rank(notebook, code) for _ in range(args.count)]
        starts = dict(namespaces[0])
        programs: list[Callable[[], None]] = [partial(_run, shell, parsed, names, args.backend) for names in namespaces]
        run_programs(programs, shown, timeout_like_nccl=args.timeout_like_nccl)
        if args.keep:
            notebook.update(changed(namespaces[0], starts, notebook))


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


_COPIED = (torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, list, dict, set, bytearray)
_LARGE = 16 << 20
"""A container with more bytes of host tensors than this is copied without its contents."""


def of_rank(names: dict[str, Any], code: types.CodeType) -> dict[str, Any]:
    """A rank's own names for a cell with this code."""
    mine = dict(names)
    memo: dict[int, Any] = {}
    for name in _referred(names, code):
        value = names[name]
        if isinstance(value, _COPIED) and not name.startswith("_") and name not in ("In", "Out"):
            mine[name] = _copy(value, memo)
    rebind(mine, names, mine)
    return mine


def _copy(value: Any, memo: dict[int, Any]) -> Any:
    try:
        if not isinstance(value, (torch.nn.Module, torch.optim.Optimizer)) and _tensor_bytes(value) > _LARGE:
            return copy.copy(value)
        return copy.deepcopy(value, memo)
    except Exception:
        return value


def _tensor_bytes(value: Any) -> int:
    leaves = torch.utils._pytree.tree_leaves(value)
    return sum(leaf.nbytes for leaf in leaves if isinstance(leaf, torch.Tensor))


def rebind(names: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> None:
    """Replace the functions in `names` whose globals are `before` by twins whose globals are `after`."""
    for name, value in list(names.items()):
        if isinstance(value, types.FunctionType) and value.__globals__ is before:
            twin = types.FunctionType(value.__code__, after, value.__name__, value.__defaults__, value.__closure__)
            twin.__kwdefaults__ = value.__kwdefaults__
            twin.__qualname__, twin.__doc__, twin.__module__ = value.__qualname__, value.__doc__, value.__module__
            twin.__annotations__ = value.__annotations__
            vars(twin).update(vars(value))
            names[name] = twin


def changed(mine: dict[str, Any], start: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    """The names that a rank's cell made, changed or got a copy of, with functions bound to the notebook's names."""
    found = {
        name: value
        for name, value in mine.items()
        if name not in ("In", "Out", "__builtins__")
        and (name not in names or names[name] is not value)
        and not (isinstance(value, types.FunctionType) and start.get(name) is value)  # only bound to the rank's names
    }
    rebind(found, mine, names)
    return found


def _referred(names: dict[str, Any], code: types.CodeType) -> list[str]:
    """The names that code refers to, directly or through functions and classes of the notebook."""
    found: dict[str, None] = {}
    to_visit = [code]
    while to_visit:
        one = to_visit.pop()
        to_visit += [constant for constant in one.co_consts if isinstance(constant, types.CodeType)]
        for name in one.co_names:
            if name in names and name not in found:
                found[name] = None
                to_visit += _codes(names[name])
    return list(found)


def _codes(value: Any) -> list[types.CodeType]:
    if isinstance(value, types.FunctionType):
        return [value.__code__] if value.__module__ == "__main__" else []
    if isinstance(value, type) and value.__module__ == "__main__":
        return [member.__code__ for member in vars(value).values() if isinstance(member, types.FunctionType)]
    return []
