"""The grader's side of a submission's process: starts, watches, interrupts and ends it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from fakegpu_lab.course.grade.sandbox import hidden, measures, sealed_channel
from fakegpu_lab.course.grade.sandbox.bubblewrap import IN_FORCE, command
from fakegpu_lab.course.grade.sandbox.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

    from fakegpu_lab.course.grade.sandbox.limits import Limits

START_SECONDS = 900.0
"""How long Python, torch and this package may take to start, by the clock; a submission is not charged for it."""
GRACE_SECONDS = 3.0
"""How long a cell may continue after Ctrl-C, on processors and asleep together."""
ASLEEP = 3.0
"""Seconds asleep allowed for each second of processor time."""
TOLD_BYTES = 256 * MIB
"""The most that one check may report of what it saw,"""
TOLD_ITEMS = 2_000_000
"""and of how many numbers and texts: each takes a hundred times its place when it is read."""
_ENVIRONMENT = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "SYSTEMROOT", "VIRTUAL_ENV", "COVERAGE_PROCESS_START")


class EndedError(Exception):
    """The submission's process ended before its notebook did.

    Attributes
    ----------
    status
        ``"crashed"``, ``"timeout"``, ``"memory"``, ``"processes"``, ``"output"`` or ``"disk"``.
    reason
        A sentence.
    """

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


_live: set[Sandbox] = set()


def _runs(process: psutil.Process) -> bool:
    """Whether a process has not ended; one whose parent has not asked for its status yet has."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def stop_all() -> None:
    """End every submission that this process runs, because the grader was interrupted."""
    for sandbox in list(_live):
        sandbox._kill()


class Sandbox:
    """One submission's process and folder.

    Parameters
    ----------
    files
        The folder's files when the notebook starts, by relative path.
    limits
        The resources that it may use.
    hide
        Files and folders that it must not see.
    name
        The folder's name.
    given
        Those of the files that are the lesson's.
    read
        Names that the lesson's cells make and its checks read.
    allow
        What the lesson lets exercises use that is reported otherwise: ``"threading"``.
    texts
        What the policy has read of the texts that libraries run, without spaces and line breaks.
    bubblewrap, namespaces
        Whether to confine it by these, the first that works (Linux).
    """

    def __init__(
        self,
        files: dict[str, bytes],
        limits: Limits,
        hide: list[str],
        *,
        name: str = "submission",
        given: Sequence[str] = (),
        read: Sequence[str] = (),
        allow: Sequence[str] = (),
        texts: Sequence[str] = (),
        bubblewrap: bool = True,
        namespaces: bool = True,
    ) -> None:
        self.limits = limits
        self.flags: set[str] = set()
        self.in_force: list[str] = []
        self.peak_bytes = 0
        self._around = tempfile.mkdtemp(prefix="fakegpu-grade-")
        self.folder = Path(self._around).resolve() / name  # where %lesson finds its lesson.yaml
        for inside, content in files.items():
            path = self.folder / inside
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self.folder.mkdir(exist_ok=True)
        paths = {"hide": hidden.hideable(hide, self.folder), "others": hidden.others(), "needed": hidden.needed()}
        self._wrapped = command(self.folder, **paths) if bubblewrap and sys.platform == "linux" else None
        self._settings = {
            "folder": str(self.folder),
            **paths,
            "in_force": IN_FORCE if self._wrapped else (),
            "namespaces": namespaces,
            "allow": list(allow),
            "given_files": list(given),
            "read": list(read),
            "texts": list(texts),
            "modules": {path: sha256(text).hexdigest() for path, text in files.items() if path.endswith(".py")},
            "path": [path for path in sys.path if path and Path(path).is_absolute()],
            "limits": limits.model_dump(),
        }
        self._lines: queue.Queue[bytes | None] = queue.Queue(maxsize=1000)
        self._numbers = {"up": 0, "down": 0}
        self._key = secrets.token_bytes(32)
        self._watched: psutil.Process | None = None
        self.spent = measures.Spent()
        self._disk_seen = 0.0

    def __enter__(self) -> Self:
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        home = str(self.folder)
        environment |= {"HOME": home, "USERPROFILE": home, "TMPDIR": home, "TEMP": home, "TMP": home}
        environment |= {"IPYTHONDIR": str(self.folder / ".ipython"), "PYTHONNOUSERSITE": "1", "PYTHONHASHSEED": "0"}
        environment |= {"MALLOC_ARENA_MAX": "1"}  # with a heap for each rank's thread, a lesson takes 50 MiB more
        environment |= {"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", "PLOTLY_RENDERER": "plotly_mimetype"}
        environment |= {"NBGRADER_EXECUTION": "autograde", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1"}
        environment |= {"TORCHINDUCTOR_CACHE_DIR": str(self.folder / ".inductor")}  # hidden files are not handed in
        script = str(Path(__file__).with_name("confine.py"))
        self._log = tempfile.TemporaryFile()
        told, tell = os.pipe() if self._wrapped else (-1, -1)
        wrapped = [*self._wrapped, "--info-fd", str(tell), "--"] if self._wrapped else []
        self._process = subprocess.Popen(
            [*wrapped, sys.executable, script, json.dumps(self._settings)],
            pass_fds=[tell] if wrapped else [],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=self._around,
            env=environment,
            start_new_session=True,
        )
        outside = b"{}"
        if wrapped:  # the process's own number is another one in its namespace
            os.close(tell)
            with os.fdopen(told, "rb") as pipe:
                outside = pipe.read()
        _live.add(self)
        threading.Thread(target=self._read, daemon=True).start()
        try:
            self._send_raw(json.dumps({"key": self._key.hex()}).encode() + b"\n")
            deadline = time.monotonic() + START_SECONDS
            pid = int(json.loads(self._line(deadline) or b'{"pid": 0}')["pid"])
            self._watched = psutil.Process(json.loads(outside)["child-pid"] if wrapped else pid)
            self.in_force = self._message(deadline)["in_force"]
        except (EndedError, psutil.Error, ValueError, KeyError, TypeError):
            self._log.seek(0)
            stderr = self._log.read()[-2000:].decode(errors="replace").strip()
            self.__exit__()
            raise RuntimeError(f"A process for a submission could not be started. {stderr}") from None
        return self

    def __exit__(self, *_: object) -> None:
        _live.discard(self)
        self._kill()
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        shutil.rmtree(self._around, ignore_errors=True)

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        """Run a cell or a check, and return its outputs and result.

        Raises
        ------
        EndedError
            The process ended, or was ended because it exceeded a limit.
        """
        number = self._numbers["down"]
        self._numbers["down"] += 1
        told: list[str] = []
        items = length = 0
        self.spent.look(self._tree())
        used, asleep = self.spent.processor, self.spent.asleep
        try:
            self._send_raw(sealed_channel.seal(self._key, b"down", number, job))
        except OSError:
            raise self._ended() from None
        interrupted: float | None = None  # how much the cell had spent then
        while True:
            try:
                message = self._message(time.monotonic() + 0.1)
            except TimeoutError:
                message = None
            if message is not None:
                self.flags |= set(message["flags"])
                if "cell" in message:
                    break
                if "told" in message:
                    told.append(message["told"])
                    length += len(message["told"])
                    items += str(message["told"]).count(",")
                    if length > TOLD_BYTES or items > TOLD_ITEMS:
                        self._kill()
                        raise EndedError("output", "a check saw more than can be reported")
                continue
            self._enforce_limits()
            spent, slept = self.spent.processor - used, self.spent.asleep - asleep
            if interrupted is None:
                if spent > self.limits.cell_seconds or slept > ASLEEP * self.limits.cell_seconds:
                    interrupted = spent + slept
                    self._interrupt()
            elif spent + slept - interrupted > GRACE_SECONDS:
                self._kill()
                raise EndedError("timeout", f"a cell ran for more than {self.limits.cell_seconds:g} s and did not stop")
        message["interrupted"] = interrupted is not None
        message["told"] = [sealed_channel.data(text) for text in told]
        if message["over"]:
            self._kill()
            raise EndedError("output", f"it printed more than {self.limits.output_chars:,} characters")
        self._enforce_limits()
        return message

    def _enforce_limits(self) -> None:
        """End the process if it and its children exceed a limit."""
        tree = self._tree()
        memory = measures.memory(tree, self.peak_bytes)  # exact for a new peak
        self.peak_bytes = max(self.peak_bytes, memory)
        self.spent.look(tree)
        exceeded = None
        if len(tree) > self.limits.processes:
            exceeded = ("processes", f"it had more than {self.limits.processes} processes at once")
        elif memory > self.limits.memory_bytes:
            exceeded = ("memory", f"it held more than {self.limits.memory_bytes / 2**30:.3g} GiB of memory")
        elif self.spent.processor > self.limits.total_seconds or self.spent.asleep > ASLEEP * self.limits.total_seconds:
            exceeded = ("timeout", f"the notebook ran for more than {self.limits.total_seconds:g} s")
        elif time.monotonic() - self._disk_seen > 0.5:
            self._disk_seen = time.monotonic()
            if measures.size(self.folder, self.limits.folder_bytes) > self.limits.folder_bytes:
                exceeded = ("disk", f"it wrote more than {self.limits.folder_bytes / MIB:.0f} MiB of files")
        if exceeded is not None:
            self._kill()
            raise EndedError(*exceeded)

    def _tree(self) -> list[psutil.Process]:
        if self._watched is None:
            return []
        with contextlib.suppress(psutil.Error):
            return [self._watched, *self._watched.children(recursive=True)]
        return []

    def _interrupt(self) -> None:
        if self._watched is not None and os.name == "posix":
            with contextlib.suppress(psutil.Error):
                self._watched.send_signal(signal.SIGINT)

    def _kill(self) -> None:
        """End the process and everything that it started."""
        for _ in range(20):
            tree = self._tree()
            for process in tree:  # the first is the parent: in its own namespace, all end with it
                with contextlib.suppress(psutil.Error):
                    process.kill()
            if os.name == "posix":
                with contextlib.suppress(OSError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
            deadline = time.monotonic() + 0.5
            while (alive := any(map(_runs, tree))) and time.monotonic() < deadline:
                time.sleep(0.005)
            if not alive:
                break
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)

    def _ended(self) -> EndedError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        code = self._process.returncode
        if code in (-signal.SIGSEGV, 128 + signal.SIGSEGV):
            return EndedError("crashed", "its process crashed")
        if code in (-9, 137):
            return EndedError("memory", "the system ended its process, most likely for its memory")
        return EndedError("crashed", f"its process ended by itself, with status {code}")

    def _message(self, deadline: float) -> dict[str, Any]:
        while True:
            line = self._line(deadline)
            if line is None:
                raise self._ended()
            message = sealed_channel.unseal(self._key, b"up", self._numbers["up"], line)
            if message is not None:
                self._numbers["up"] += 1
                return message
            self.flags.add("wrote into the grader's own pipe")

    def _line(self, deadline: float) -> bytes | None:
        try:
            return self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise TimeoutError from None

    def _read(self) -> None:
        """Read the pipe in a thread, because pipes have no timeouts on Windows."""
        longest = 8 * self.limits.output_chars + TOLD_BYTES
        pipe = self._process.stdout
        with contextlib.suppress(OSError, ValueError):
            while pipe is not None and (line := pipe.readline(longest)):
                self._lines.put(line)
        self._lines.put(None)

    def _send_raw(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()
