"""The process answers who asks about its machine: on a local socket, in a thread that waits until somebody does.

A file in the runtime folder says where. Nothing is written or computed while nobody asks.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import secrets
import threading
import time
from multiprocessing import AuthenticationError
from multiprocessing.connection import Listener
from typing import TYPE_CHECKING

from fakegpu_lab.hardware.time import clock
from fakegpu_lab.nvml.runtime_folder import identity, runtime
from fakegpu_lab.nvml.view import VERSION, document, forget

if TYPE_CHECKING:
    from pathlib import Path

    from fakegpu_lab.hardware.machine import Machine

_LONGEST = 100
"""Bytes of a Unix socket's address, with some to spare (108 on Linux, 104 on macOS)."""

machine: Machine | None = None
"""The machine of this process."""
_server: _Server | None = None


class _Server:
    """Answers on a socket, for as long as the process lives; its file is there while there is a machine."""

    def __init__(self, folder: Path) -> None:
        self.process = os.getpid()
        self.file = folder / f"{self.process}.json"
        self.key = secrets.token_hex(16)
        address = str(folder / f"{self.process}.sock")
        if os.name == "posix" and len(os.fsencode(address)) <= _LONGEST:
            with contextlib.suppress(FileNotFoundError):
                (folder / f"{self.process}.sock").unlink()  # of a process long gone that had our number
            self.listener = Listener(address, "AF_UNIX", backlog=8, authkey=self.key.encode())
        else:
            self.listener = Listener(("127.0.0.1", 0), "AF_INET", backlog=8, authkey=self.key.encode())
        threading.Thread(target=self._answer, name="fakegpu-lab nvml", daemon=True).start()

    def tell(self) -> None:
        """Write the file that says where to ask."""
        told = {
            "version": VERSION,
            "pid": self.process,
            "machine": identity(),
            "address": self.listener.address,
            "key": self.key,
        }
        draft = self.file.with_suffix(".draft")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump(told, file)
        draft.replace(self.file)

    def hush(self) -> None:
        """Take the file away."""
        with contextlib.suppress(OSError):
            self.file.unlink()

    def _answer(self) -> None:
        while True:
            try:
                with self.listener.accept() as connection:
                    connection.send_bytes(_told())
            except (AuthenticationError, EOFError, ConnectionError):  # noqa: PERF203 - one who asks must not end it for all
                continue
            except OSError:
                if getattr(self.listener, "_listener", None) is None:
                    return
                time.sleep(0.1)

    def close(self) -> None:
        """Stop listening."""
        self.hush()
        with contextlib.suppress(OSError):
            self.listener.close()


def _told() -> bytes:
    """The document, read beside a thread that goes on with its work."""
    for _ in range(20):
        found = machine
        if found is None:
            return b"{}"
        with contextlib.suppress(RuntimeError):  # a table changed its size while it was read
            return json.dumps(document(found, identity(), clock.latest())).encode()
    return b"{}"


def begin(new: Machine) -> None:
    """Let this process answer for a machine; where it cannot, it does not, and all else works."""
    global machine, _server
    machine = new
    forget()
    with contextlib.suppress(OSError):
        if _server is None:
            folder = runtime()
            if folder is None:
                return
            _server = _Server(folder)
        _server.tell()


def end() -> None:
    """There is no machine any more."""
    global machine
    machine = None
    forget()
    if _server is not None:
        _server.hush()


def _forked() -> None:
    """In a forked child: the parent's socket is the parent's."""
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
