"""Answering queries about this process's machine, on a local socket, in a thread of its own.

A *contact file* has the socket's address. It lies in a folder inside the system's runtime folder, where a user's
processes with simulated GPUs find each other. Nothing else is written or computed until a query comes.
"""

from __future__ import annotations

import atexit
import contextlib
import getpass
import json
import os
import secrets
import tempfile
import threading
import time
from multiprocessing import AuthenticationError
from multiprocessing.connection import Listener
from pathlib import Path
from typing import TYPE_CHECKING

from fakegpu_lab.hardware.time import clock
from fakegpu_lab.nvml.view import VERSION, document, forget
from fakegpu_lab.user_code.environment import IDENTITY, MACHINE

if TYPE_CHECKING:
    from fakegpu_lab.hardware.machine import Machine

VARIABLE = "FAKEGPU_LAB_RUNTIME"
"""Environment variable with another folder: for tests, and where the usual ones cannot be written."""
_MAX_ADDRESS_BYTES = 100
"""The longest address of a Unix socket, with some to spare (108 on Linux, 104 on macOS)."""

machine: Machine | None = None
"""The machine of this process."""
_server: _Server | None = None


def identity() -> str:
    """The name of the machine, the same in all processes that share it; empty without a machine."""
    return os.environ.get(IDENTITY, "") if MACHINE in os.environ else ""


def runtime() -> Path | None:
    """The folder, made if it is missing; None if there is none that only this user can write to."""
    if VARIABLE in os.environ:
        candidates = [Path(os.environ[VARIABLE])]
    else:
        candidates = [Path(os.environ["XDG_RUNTIME_DIR"]) / "fakegpu_lab"] if os.environ.get("XDG_RUNTIME_DIR") else []
        candidates.append(Path(tempfile.gettempdir()) / f"fakegpu_lab-{_user()}")
    for folder in candidates:
        with contextlib.suppress(OSError):
            if make_private(folder):
                return folder
    return None


def _user() -> str:
    try:
        return str(os.getuid()) if hasattr(os, "getuid") else getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "user"


def make_private(folder: Path) -> bool:
    """Make a folder if it is missing; return whether only this user can put files there.

    In a shared folder, another user could have made it, or a link to one that this user owns.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not hasattr(os, "getuid"):
        return os.access(folder, os.W_OK)
    stat, itself = folder.stat(), folder.lstat()
    own = stat.st_uid == itself.st_uid == os.getuid()
    return own and not stat.st_mode & 0o022 and os.access(folder, os.W_OK)


class _Server:
    """Answers on a socket until the process ends; its contact file exists while there is a machine."""

    def __init__(self, folder: Path) -> None:
        self.process = os.getpid()
        self.file = folder / f"{self.process}.json"
        self.key = secrets.token_hex(16)
        address = str(folder / f"{self.process}.sock")
        if os.name == "posix" and len(os.fsencode(address)) <= _MAX_ADDRESS_BYTES:
            with contextlib.suppress(FileNotFoundError):
                (folder / f"{self.process}.sock").unlink()  # left by an earlier process with the same id
            self.listener = Listener(address, "AF_UNIX", backlog=8, authkey=self.key.encode())
        else:
            self.listener = Listener(("127.0.0.1", 0), "AF_INET", backlog=8, authkey=self.key.encode())
        threading.Thread(target=self._answer, name="fakegpu-lab nvml", daemon=True).start()

    def announce(self) -> None:
        """Write the contact file."""
        contact = {
            "version": VERSION,
            "pid": self.process,
            "machine": identity(),
            "address": self.listener.address,
            "key": self.key,
        }
        draft = self.file.with_suffix(".draft")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump(contact, file)
        draft.replace(self.file)

    def withdraw(self) -> None:
        """Delete the contact file."""
        with contextlib.suppress(OSError):
            self.file.unlink()

    def _answer(self) -> None:
        while True:
            try:
                with self.listener.accept() as connection:
                    connection.send_bytes(_answer_bytes())
            except (AuthenticationError, EOFError, ConnectionError):  # noqa: PERF203 - one failed query must not stop it
                continue
            except OSError:
                if getattr(self.listener, "_listener", None) is None:
                    return
                time.sleep(0.1)

    def close(self) -> None:
        """Stop listening."""
        self.withdraw()
        with contextlib.suppress(OSError):
            self.listener.close()


def _answer_bytes() -> bytes:
    """The document, read while another thread may use the machine."""
    for _ in range(20):
        found = machine
        if found is None:
            return b"{}"
        with contextlib.suppress(RuntimeError):  # a dictionary changed its size during the read
            return json.dumps(document(found, identity(), clock.latest())).encode()
    return b"{}"


def begin(new: Machine) -> None:
    """Start to answer queries about a machine; if no socket can be made, there are no answers, and no error."""
    global machine, _server
    machine = new
    forget()
    with contextlib.suppress(OSError):
        if _server is None:
            folder = runtime()
            if folder is None:
                return
            _server = _Server(folder)
        _server.announce()


def end() -> None:
    """Stop answering: the machine is gone."""
    global machine
    machine = None
    forget()
    if _server is not None:
        _server.withdraw()


def _forked() -> None:
    """In a forked child, close the inherited socket: it is the parent's."""
    global machine, _server
    if _server is not None:
        with contextlib.suppress(OSError, AttributeError):
            _server.listener._listener._socket.close()  # type: ignore[attr-defined]
    machine = _server = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@atexit.register
def _close() -> None:
    if _server is not None and _server.process == os.getpid():
        _server.close()
