"""Servers that tests start: a port that is free, and waiting until they answer."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.request import urlopen

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path


def free_port() -> int:
    """A port of this computer that nobody uses now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def wait_until_it_answers(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for a server's first answer; fail with its log if it ends, or says nothing for two minutes."""
    until = time.monotonic() + 120
    while True:
        try:
            with urlopen(address, timeout=5):
                return
        except (URLError, OSError):  # noqa: PERF203 - it waits
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.2)
