"""Asking the processes with simulated GPUs about their machines."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from multiprocessing.connection import Client
from typing import TYPE_CHECKING, Any

from fakegpu_lab.nvml import runtime_folder
from fakegpu_lab.nvml.runtime_folder import runtime
from fakegpu_lab.nvml.view import Document, View, document, joined
from fakegpu_lab.user_code import environment

if TYPE_CHECKING:
    from pathlib import Path


_PATIENCE_S = 5.0
"""How long a process may take to answer; one that was stopped never does."""

_FRESH_S = 0.1
"""How long an answer of another process is good for: tools ask sixty things in a row."""

_cache: tuple[float, str, list[Document]] | None = None


def documents(identity: str = "") -> list[Document]:
    """What other processes tell of their machines; of that machine alone, if it is named. In the order of their ids."""
    place = runtime()
    asked: list[tuple[threading.Thread, list[Document]]] = []
    for file in sorted(place.glob("*.json")) if place is not None else []:
        try:
            told: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # it was taken away, or is no file of ours
            continue
        if told.get("pid") == os.getpid() or (identity and told.get("machine") != identity):
            continue
        answers: list[Document] = []
        thread = threading.Thread(target=_ask, args=(file, told, answers), daemon=True)
        thread.start()
        asked.append((thread, answers))
    until = time.monotonic() + _PATIENCE_S
    for thread, _ in asked:
        thread.join(max(0.0, until - time.monotonic()))
    found = [answer for _, answers in asked for answer in answers if answer]
    return sorted(found, key=lambda one: int(one["pid"]))


def _ask(file: Path, told: dict[str, Any], answers: list[Document]) -> None:
    address = told["address"]
    try:
        where = tuple(address) if isinstance(address, list) else address
        with Client(where, authkey=told["key"].encode()) as connection:
            answers.append(json.loads(connection.recv_bytes()))
    except (FileNotFoundError, ConnectionRefusedError):  # its process is gone
        for left in (file, file.with_suffix(".sock")):
            with contextlib.suppress(OSError):
                left.unlink()
    except Exception:
        return


def machines() -> list[View]:
    """All machines of this user's processes, those of one notebook or run joined."""
    families: dict[str, list[Document]] = {}
    for one in documents():
        families.setdefault(one["machine"], []).append(one)
    return [joined(family) for family in families.values()]


def present() -> bool:
    """Whether this process has a machine, or was left one."""
    from fakegpu_lab.nvml import publish

    return publish.machine is not None or bool(runtime_folder.identity())


def current() -> View | None:
    """The machine of this process and of those that share it; idle before torch is imported; None without one."""
    global _cache
    from fakegpu_lab.nvml import publish

    if not present():
        return None
    identity = runtime_folder.identity()
    now = time.monotonic()
    if _cache is None or now - _cache[0] > _FRESH_S or _cache[1] != identity:
        _cache = (now, identity, documents(identity) if identity else [])
    found = list(_cache[2])
    if publish.machine is not None:
        found.append(document(publish.machine, identity))
    if not found:
        found = [_idle(identity)]
    return joined(sorted(found, key=lambda one: int(one["pid"])))


def _idle(identity: str) -> Document:
    """The machine of the environment, which nobody has used yet."""
    from fakegpu_lab.hardware.catalogue.spec import parse_spec
    from fakegpu_lab.hardware.machine import Machine

    wanted = json.loads(os.environ[environment.MACHINE])
    told = document(Machine(parse_spec(wanted["spec"], memory=wanted["memory"])), identity, 0)
    return {**told, "pid": 0}
