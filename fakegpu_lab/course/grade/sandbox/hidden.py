"""What a submission must not see, and what it needs nevertheless: the paths, for `confine`."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path


def needed() -> list[str]:
    """The folders without which Python and this package do not run, as they are named and where they really are.

    Not the current folder, which ``python -m`` puts on `sys.path` and where grades and other submissions lie; and of
    a checkout, which has the lessons' solutions, only the package and its profiles.
    """
    package = Path(__file__).resolve().parents[3]
    installed = package.parent.name in ("site-packages", "dist-packages")
    own = [package.parent] if installed else [package, package.parent / "profiles"]
    left_out = set() if installed else {package.parent}
    left_out |= {Path.cwd(), Path.cwd().resolve()} - set(own)
    named = [sys.prefix, sys.base_prefix, sys.exec_prefix, str(Path(sys.executable).parent)]
    named += [path for path in sys.path if path and not {Path(path), Path(path).resolve()} & left_out]
    named += [*map(str, own), *os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)]
    paths = {one for name in named if name and Path(name).is_absolute() for one in (Path(name), Path(name).resolve())}
    return sorted(str(path) for path in paths - set(map(Path, _own_homes())) if not paths & set(path.parents))


def _own_homes() -> list[str]:
    """The home folder of whoever grades."""
    with contextlib.suppress(RuntimeError, OSError):
        return sorted({str(Path.home()), str(Path.home().resolve())})
    return []


def others() -> list[str]:
    """All folders that are not the system's: homes, exchanges, shared folders, other disks, whoever owns them.

    What is needed inside of them stays. A home outside of them (``/usr/local/hub``) is hidden, too.
    """
    package = Path(__file__).resolve().parents[4]
    real = {Path(home).resolve() for home in _own_homes()}
    found = {home for home in real if home.is_dir() and home != package and home not in (Path("/"), Path("/usr"))}
    with contextlib.suppress(OSError):
        found |= {
            one for one in Path("/").iterdir() if one.is_dir() and not one.is_symlink() and one.name not in SYSTEM
        }
    return sorted(str(one) for one in found if one != package)


SYSTEM = frozenset(["bin", "sbin", "usr", "lib", "lib32", "lib64", "libx32", "etc", "dev", "proc", "sys", "nix", "gnu"])
"""Folders with programs, libraries and their settings, which every process may read."""


def hideable(hide: list[str], folder: Path) -> list[str]:
    """The paths in `hide` that exist and do not contain Python itself."""
    inside = [folder, *(Path(path).resolve() for path in (sys.prefix, sys.base_prefix, sys.executable))]
    inside += [Path(path).resolve() for path in sys.path if path and Path(path).is_absolute()]
    found = {Path(path).resolve() for path in hide}
    return sorted(str(p) for p in found if p.exists() and not any(n == p or p in n.parents for n in inside))
