"""The memory and the processors that this process may use: the computer's, its container's, and the shell's limits.

Linux keeps them in files: /proc/meminfo, the control groups of version 1 (memory.limit_in_bytes) and 2 (memory.max), in
which a container, a systemd unit and a server of a hub run. Elsewhere nothing is known, and nothing is limited.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60
"""Above this, a limit is none: version 1 writes the largest number of pages instead of "max"."""


class MemoryLimit(NamedTuple):
    """How much memory somebody lets this process have.

    Attributes
    ----------
    whose
        ``"computer"``, ``"container"`` or ``"ulimit"``.
    total, left
        In bytes. What the system can take back at once, such as files' pages, counts as left.
    """

    whose: str
    total: int
    left: int

    @property
    def owner(self) -> str:
        """Whose the limit is, in words: something may use so much memory."""
        return {
            "computer": "this computer",
            "container": "the container or server that this runs in",
            "ulimit": "this process (ulimit)",
        }[self.whose]


def memory() -> list[MemoryLimit]:
    """The limits that are known, the tightest first."""
    return sorted([*_computer(), *_groups(), *_shell()], key=lambda limit: limit.left)


def processors() -> float:
    """How many processors this process may keep busy; a container may have 1.5 of them."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS and Windows
    count = float(len(affinity(0)) if affinity else os.cpu_count() or 1)
    for group in _folders("cpu"):
        quota, _, period = _text(group / "cpu.max").partition(" ")  # version 2: "150000 100000" or "max 100000"
        if not quota:
            quota, period = _text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")  # version 1
        with contextlib.suppress(ValueError, ZeroDivisionError):
            if (allowed := int(quota) / int(period)) > 0:  # version 1 writes -1 for no limit
                count = min(count, allowed)
    return count


def _computer() -> Iterator[MemoryLimit]:
    """What Linux estimates that a new program can get without swapping (Documentation/filesystems/proc.rst)."""
    found = _table(PROC / "meminfo")
    if "MemAvailable" in found:
        left = found["MemAvailable"] + found.get("SwapFree", 0)
        yield MemoryLimit("computer", found["MemTotal"] * 1024, left * 1024)


def _groups() -> Iterator[MemoryLimit]:
    """Each group around this process that has a limit of its own."""
    for group in _folders("memory"):
        for limit, used, reclaimable in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            with contextlib.suppress(ValueError):  # "max", or no such file
                total, taken = int(_text(group / limit)), int(_text(group / used))
                if total < _UNLIMITED:
                    files = _table(group / "memory.stat").get(reclaimable, 0)
                    yield MemoryLimit("container", total, max(0, total - taken + files))


def _folders(controller: str) -> Iterator[Path]:
    """The folders of this process's group and those around it, for one controller.

    A container sees its own group as the root, under whatever path the host knows it.
    """
    for line in _text(PROC / "self" / "cgroup").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if names and controller not in names.split(","):
            continue
        root = GROUPS / controller if names else GROUPS
        here = root / path.lstrip("/")
        while True:
            if here.is_dir():
                yield here
            if here == root or here == here.parent:
                break
            here = here.parent


def _shell() -> Iterator[MemoryLimit]:
    """Limits as ``ulimit -v`` and ``-d`` set them; the first counts addresses, the second memory of one's own."""
    try:
        import resource

        pages = [int(count) for count in _text(PROC / "self" / "statm").split()]
    except (ImportError, ValueError):
        return
    for kind, place in ((resource.RLIMIT_AS, 0), (resource.RLIMIT_DATA, 5)):
        total, _ = resource.getrlimit(kind)
        if total != resource.RLIM_INFINITY and total < _UNLIMITED and len(pages) > place:
            yield MemoryLimit("ulimit", total, max(0, total - pages[place] * resource.getpagesize()))


def _table(path: Path) -> dict[str, int]:
    """Lines such as ``MemTotal:  16301864 kB`` or ``inactive_file 4096``, by name."""
    rows = (line.replace(":", " ").split() for line in _text(path).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def _text(path: Path) -> str:
    """A file's text; empty if it cannot be read, as in a sandbox."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
