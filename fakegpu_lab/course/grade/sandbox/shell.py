"""Inside a submission's process: IPython without a front end, which keeps cells' outputs up to a limit."""

from __future__ import annotations

import contextlib
import io
import os
import pdb  # noqa: T100 - to turn it off
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell

from fakegpu_lab.course.flags.tampering import trusted
from fakegpu_lab.user_code.frames import place, steps

SHOWN = ("text/plain", "text/html", "text/markdown", "text/latex", "image/png", "image/svg+xml", "image/jpeg")
"""What a feedback page can show; the rest (widgets, figures that need JavaScript) is left out."""


class Outputs:
    """One cell's outputs in nbformat's form, in order; at most `limit` characters over all cells."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.over = False
        self.items: list[dict[str, Any]] = []

    def _take(self, size: int) -> bool:
        if self.used + size > self.limit:
            self.over = True
            return False
        self.used += size
        return True

    def stream(self, name: str, text: str) -> None:
        """Add printed text."""
        room = self.limit - self.used
        if len(text) > room:
            self.over, text = True, text[: max(0, room)]
        self.used += len(text)
        if self.items and self.items[-1].get("name") == name:
            self.items[-1]["text"] += text
        elif text:
            self.items.append({"output_type": "stream", "name": name, "text": text})

    def data(self, kind: str, data: dict[str, Any]) -> None:
        """Add what was displayed."""
        kept = {mime: str(value) for mime, value in data.items() if mime in SHOWN}
        if self._take(sum(map(len, kept.values()))):
            self.items.append({"output_type": kind, "data": kept, "metadata": {}})

    def error(self, name: str, value: str, frames: list[str]) -> None:
        """Add an error."""
        self.items.append(
            {"output_type": "error", "ename": name, "evalue": value[:2000], "traceback": [f[:2000] for f in frames]}
        )

    def end(self) -> list[dict[str, Any]]:
        """Return the outputs so far, and start with none."""
        items, self.items = self.items, []
        return items


class Stream(io.TextIOBase):
    """A ``sys.stdout`` or ``sys.stderr`` that keeps what is written."""

    encoding = "utf-8"

    def __init__(self, outputs: Outputs, name: str) -> None:
        self._outputs = outputs
        self.name = f"<{name}>"
        self._stream = name

    def writable(self) -> bool:
        """Always true."""
        return True

    def write(self, text: str) -> int:
        """Keep `text`."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._outputs.stream(self._stream, text)
        if self._outputs.over:
            raise RuntimeError(f"Grading keeps {self._outputs.limit:,} characters of output, and this is more.")
        return len(text)

    def fileno(self) -> int:
        """The process's own stdout or stderr, as in ipykernel: subprocesses write there."""
        return {"stdout": 1, "stderr": 2}[self._stream]


class _Publisher(DisplayPublisher):
    """``display(…)``."""

    kept: Outputs

    def publish(self, data: Any, metadata: Any = None, source: Any = None, **_: Any) -> None:
        """Keep what is displayed; an update counts as another output."""
        self.kept.data("display_data", data)

    def clear_output(self, wait: bool = False) -> None:
        """``clear_output()``: forget the cell's outputs."""
        self.kept.items.clear()


class _Hook(DisplayHook):
    """The value of a cell's last line."""

    kept: Outputs

    def __call__(self, result: object = None) -> None:
        """Keep the value, and set ``_`` as IPython does."""
        if result is None or self.quiet():
            return
        shell: Any = self.shell
        data, _ = shell.display_formatter.format(result)
        self.kept.data("execute_result", data)
        shell.user_ns["_"] = result


class GradingShell(InteractiveShell):
    """IPython for cells that run unattended."""

    kept: Outputs

    def enable_gui(self, gui: Any = None) -> None:
        """Do nothing: without a GUI, ``%matplotlib inline`` and the like have no effect."""

    def _showtraceback(self, etype: Any, evalue: Any, stb: Any) -> None:
        self.kept.error(etype.__name__, str(evalue), frames(evalue))

    def ask_exit(self) -> None:
        """Do nothing: ``exit()`` in a cell does not end the process."""


def frames(error: BaseException) -> list[str]:
    """Return the notebook's own lines of an error's traceback."""
    shown = []
    for step in steps(error.__traceback__):
        code = step.tb_frame.f_code
        where = place(f"{code.co_filename}:{step.tb_lineno}")
        if where.text and not trusted(code):
            shown.append(": ".join(where))
    return shown[-8:] + traceback.format_exception_only(type(error), error)


def no_debugger(*_: object, **named: object) -> None:
    """Do nothing at a ``breakpoint()``: nobody is there, and ``PYTHONBREAKPOINT`` could name any function."""


def start(outputs: Outputs) -> GradingShell:
    """Make the process's IPython; `outputs` collects what cells print and display."""
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    shell: Any = GradingShell.instance(config=config, displayhook_class=_Hook, display_pub_class=_Publisher)
    shell.kept = shell.display_pub.kept = shell.displayhook.kept = outputs
    shell.display_formatter.active_types = list(SHOWN)
    sys.stdout, sys.stderr = Stream(outputs, "stdout"), Stream(outputs, "stderr")
    # A debugger reads a `.pdbrc`, in which an answer could have it print what runs around it.
    sys.breakpointhook = pdb.set_trace = pdb.Pdb.set_trace = no_debugger  # type: ignore[method-assign]
    shell.user_ns["__name__"] = "__main__"
    started: GradingShell = shell
    return started


def capture(folder: str) -> dict[str, int]:
    """Point the process's stdout and stderr to files, for what subprocesses and C code print."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    files = {}
    for name, number in (("stdout", 1), ("stderr", 2)):
        file, path = tempfile.mkstemp(dir=folder)
        with contextlib.suppress(OSError):
            Path(path).unlink()
        os.dup2(file, number)
        files[name] = file
    return files


def drain(streams: dict[str, int], outputs: Outputs) -> None:
    """Move what was printed to those files into the cell's outputs."""
    for name, file in streams.items():
        with contextlib.suppress(OSError):
            size = os.fstat(file).st_size
            if size:
                outputs.over |= size > outputs.limit
                os.lseek(file, 0, os.SEEK_SET)
                outputs.stream(name, os.read(file, min(size, outputs.limit)).decode(errors="replace"))
                os.ftruncate(file, 0)
                os.lseek(file, 0, os.SEEK_SET)
