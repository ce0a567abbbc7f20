"""Querying the processes with simulated GPUs about their machines."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from multiprocessing.connection import Client
from typing import TYPE_CHECKING, Any

from fakegpu_lab.nvml import publish
from fakegpu_lab.nvml.view import VERSION, Document, View, document, joined
from fakegpu_lab.user_code import environment

if TYPE_CHECKING:
    from pathlib import Path


_TIMEOUT_S = 5.0
"""How long a process may take to answer; a stopped process never does."""

_CACHE_S = 0.1
"""How long the answers of other processes are cached: tools make sixty queries in a row."""

_cache: tuple[float, str, list[Document]] | None = None


def documents(identity: str = "") -> list[Document]:
    """The documents of other processes, in the order of their ids; only of the named machine, if one is named."""
    folder = publish.runtime()
    queries: list[tuple[threading.Thread, list[Document]]] = []
    for file in sorted(folder.glob("*.json")) if folder is not None else []:
        try:
            contact: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # deleted meanwhile, or another program's file
            continue
        if contact.get("version") != VERSION or contact.get("pid") == os.getpid():
            continue
        if identity and contact.get("machine") != identity:
            continue
        answers: list[Document] = []
        thread = threading.Thread(target=_query, args=(file, contact, answers), daemon=True)
        thread.start()
        queries.append((thread, answers))
    until = time.monotonic() + _TIMEOUT_S
    for thread, _ in queries:
        thread.join(max(0.0, until - time.monotonic()))
    found = [answer for _, answers in queries for answer in answers if answer]
    return sorted(found, key=lambda one: int(one["pid"]))


def _query(file: Path, contact: dict[str, Any], answers: list[Document]) -> None:
    address = contact["address"]
    try:
        where = tuple(address) if isinstance(address, list) else address
        with Client(where, authkey=contact["key"].encode()) as connection:
            answers.append(json.loads(connection.recv_bytes()))
    except (FileNotFoundError, ConnectionRefusedError):  # its process is gone
        for left in (file, file.with_suffix(".sock")):
            with contextlib.suppress(OSError):
                left.unlink()
    except Exception:
        return


def machines() -> list[View]:
    """All machines of this user; the processes of one notebook or run share one."""
    by_machine: dict[str, list[Document]] = {}
    for one in documents():
        by_machine.setdefault(one["machine"], []).append(one)
    return [joined(group) for group in by_machine.values()]


def present() -> bool:
    """Whether this process has a machine, or inherited one."""
    return publish.machine is not None or bool(publish.identity())


def current() -> View | None:
    """The machine of this process and of those that share it; idle until torch is imported; None without a machine."""
    global _cache
    if not present():
        return None
    identity = publish.identity()
    now = time.monotonic()
    if _cache is None or now - _cache[0] > _CACHE_S or _cache[1] != identity:
        _cache = (now, identity, documents(identity) if identity else [])
    found = list(_cache[2])
    if publish.machine is not None:
        found.append(document(publish.machine, identity))
    if not found:
        found = [_idle(identity)]
    return joined(sorted(found, key=lambda one: int(one["pid"])))


def _idle(identity: str) -> Document:
    """The machine that the environment specifies, not used by any process yet."""
    from fakegpu_lab.hardware.catalogue.spec import parse_spec
    from fakegpu_lab.hardware.machine import Machine

    wanted = json.loads(os.environ[environment.MACHINE])
    unused = document(
        Machine(parse_spec(wanted["spec"], memory=wanted["memory"], host=wanted.get("host"))), identity, 0
    )
    return {**unused, "pid": 0}
