"""``%fakegpu``: enables and shows simulated GPUs in a notebook or at IPython's prompt."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments
from IPython.display import display

from fakegpu_lab import session
from fakegpu_lab.hardware.catalogue.lookup import catalogue
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.notebook import cell_hooks, footer, panel
from fakegpu_lab.notebook.gpuprofile import GpuProfileMagics
from fakegpu_lab.notebook.kernel import KernelMagics
from fakegpu_lab.notebook.ranks import RanksMagics
from fakegpu_lab.notebook.telemetry import publisher
from fakegpu_lab.report import gpu_list, run_tables
from fakegpu_lab.user_code import magic_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import SimpleNamespace

    from IPython.core.interactiveshell import InteractiveShell

    from fakegpu_lab.formatting.table import Table
    from fakegpu_lab.notebook.panel import Panel


def _off(_: list[str]) -> None:
    real = session.watched() is not None
    session.disable()
    print("The panel no longer shows the real GPUs." if real else "The simulated GPUs are off.")


def _reset(_: list[str]) -> Table:
    had_fault = session.enabled() and session.machine().failed
    session.reset()
    if had_fault:
        print("The error of the failed kernel is gone: these GPUs are new. Create your tensors again, too.")
    return run_tables.status(session.snapshot())


def _panel(_: list[str]) -> Panel:
    return panel.panel()


def _real(_: list[str]) -> Panel:
    return panel.watch()


def _profiles(words: list[str]) -> None:
    display(*gpu_list.tables(" ".join(words)))


def _footer(words: list[str]) -> None:
    if words not in (["on"], ["off"]):
        raise UsageError("%fakegpu footer on prints a line after each cell; %fakegpu footer off stops it.")
    footer.switch(words == ["on"])


_VERBS: dict[str, Callable[[list[str]], Table | Panel | None]] = {
    "footer": _footer,
    "off": _off,
    "panel": _panel,
    "profiles": _profiles,
    "real": _real,
    "reset": _reset,
}
WORDS = tuple(_VERBS)
"""The words that may stand after ``%fakegpu`` in place of GPUs."""

_ELSEWHERE = {
    "disable": "%fakegpu off", "stop": "%fakegpu off",
    "enable": "%fakegpu a100", "on": "%fakegpu a100", "start": "%fakegpu a100",
    "gpuprofile": "%%gpuprofile", "profile": "%%gpuprofile",
    "help": "%fakegpu?",
    "kernel": "%%kernel",
    "lesson": "%lesson",
    "list": "%fakegpu profiles", "gpus": "%fakegpu profiles",
    "nvidia-smi": "!nvidia-smi", "smi": "!nvidia-smi",
    "plan": "!fakegpu-lab plan", "run": "!fakegpu-lab run", "doctor": "!fakegpu-lab doctor",
    "ranks": "%%ranks",
    "show": "%fakegpu", "status": "%fakegpu",
}  # fmt: skip
"""Words that people try after ``%fakegpu``, and what does it instead."""


@magics_class
class FakeGpuMagics(Magics):
    """The ``%fakegpu`` magic."""

    @magic_arguments()
    @argument(
        "spec",
        nargs="*",
        help="the GPUs to enable, or real, off, reset, panel, footer on|off, profiles [WORD]; nothing: show them",
    )
    @argument("--memory", metavar="SIZE", help="limit the memory of every GPU, such as 2GiB")
    @argument("--compute", choices=["real", "meta"], help="real (default): values; meta: shapes and memory only")
    @argument(
        "--clock", choices=["real", "simulated"], help="simulated: time.time() and its relatives follow simulated time"
    )
    @argument("--host", metavar="NAME", help="the host's processor, such as dgx-a100, cloud-t4, desktop-2023, measured")
    @line_magic
    def fakegpu(self, line: str) -> Table | Panel | None:
        """Give this notebook simulated CUDA GPUs.

        %fakegpu a100:2                 two A100s; also a100:1,t4:2, dgx-a100, ./my-gpu.yaml
        %fakegpu a100 --memory 2GiB     an A100 that has only 2 GiB
        %fakegpu a100 --clock simulated time.time() in your cells follows simulated time
        %fakegpu t4 --host desktop-2023 a T4 in a desktop with a fast processor
        %fakegpu                        the GPUs, their memory, what they did
        %fakegpu reset                  the same GPUs from scratch: empty memory, counters at 0
        %fakegpu real                   show this computer's real GPUs in the same panel, while you use them
        %fakegpu off                    no simulated GPUs: torch as it was
        %fakegpu profiles h100          the available GPUs with h100 in their name
        %fakegpu panel                  a panel that shows them while they work
        %fakegpu footer on              after each cell, a line about what it did; footer off stops it
        """
        args = magic_line.parse(self.fakegpu, line)
        verb, *rest = args.spec or [""]
        if (args.memory or args.compute or args.clock or args.host) and verb in ("", *WORDS):
            raise UsageError(
                "--memory, --compute, --clock and --host go with the GPUs to enable: %fakegpu a100 --memory 2GiB"
            )
        if verb in ("off", "panel", "real", "reset") and rest:
            raise UsageError(f"%fakegpu {verb} takes no arguments, but got {' '.join(rest)!r}.")
        try:
            if verb in _VERBS:
                return _VERBS[verb](rest)
            if verb:
                session.enable(
                    " ".join(args.spec),
                    memory=args.memory,
                    compute=args.compute or "real",
                    clock=args.clock or "real",
                    host=args.host,
                )
            elif session.shown() is None:
                print("No simulated GPU is enabled; %fakegpu a100 enables one.")
                return None
            return run_tables.status(session.snapshot())
        except FakeGpuError as error:
            if verb in _ELSEWHERE:
                raise UsageError(f"%fakegpu {verb} does not exist. Did you mean {_ELSEWHERE[verb]}?") from None
            near = difflib.get_close_matches(verb, WORDS, 1)
            hint = f" Did you mean %fakegpu {near[0]}?" if near else ""
            raise UsageError(f"{error}{hint}") from None


def load(shell: InteractiveShell) -> None:
    """Register the magics with `shell`."""
    shell.register_magics(FakeGpuMagics, GpuProfileMagics, KernelMagics, RanksMagics)
    cell_hooks.register(shell)
    publisher.register(shell)
    shell.set_hook("complete_command", _complete, str_key="%fakegpu")


def unload(shell: InteractiveShell) -> None:
    """Remove the magics. The GPUs stay, so that ``%reload_ext`` loses nothing; ``%fakegpu off`` ends them."""
    cell_hooks.unregister(shell)
    shell.magics_manager.magics["line"].pop("fakegpu", None)
    shell.magics_manager.magics["cell"].pop("gpuprofile", None)
    shell.magics_manager.magics["cell"].pop("kernel", None)
    shell.magics_manager.magics["cell"].pop("ranks", None)


def _complete(shell: InteractiveShell, event: SimpleNamespace) -> list[str]:
    """The completions that Tab offers after ``%fakegpu``."""
    words = [*WORDS, *catalogue("gpus"), *catalogue("nodes"), "--memory", "--compute", "--clock", "--host"]
    return [word for word in words if word.startswith(event.symbol)]
