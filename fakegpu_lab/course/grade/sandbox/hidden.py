"""What a submission must not see, and what it needs nevertheless: the paths, for `confine`."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path


def needed() -> list[str]:
    """The folders without which Python and this package do not run, as they are named and where they really are."""
    named = [sys.prefix, sys.base_prefix, sys.exec_prefix, str(Path(sys.executable).parent), *sys.path]
    named += [str(Path(__file__).parents[4])]
    paths = {one for name in named if name and Path(name).is_absolute() for one in (Path(name), Path(name).resolve())}
    return sorted(str(path) for path in paths - set(map(Path, _own_homes())) if not paths & set(path.parents))


def _own_homes() -> list[str]:
    """The home folder of whoever grades."""
    with contextlib.suppress(RuntimeError, OSError):
        return sorted({str(Path.home()), str(Path.home().resolve())})
    return []


def homes() -> list[str]:
    """The home folder, which has keys and passwords, if the package itself is not right there."""
    package = Path(__file__).resolve().parents[4]
    real = {Path(home).resolve() for home in _own_homes()}
    return sorted(str(home) for home in real if home.is_dir() and home != package and home not in _ROOTS)


_ROOTS = (Path("/"), Path("/tmp"), Path("/home"), Path("/usr"))
"""What some accounts have for a home."""


def hideable(hide: list[str], folder: Path) -> list[str]:
    """The paths in `hide` that exist and do not contain Python itself."""
    inside = [folder, *(Path(path).resolve() for path in (sys.prefix, sys.base_prefix, sys.executable))]
    inside += [Path(path).resolve() for path in sys.path if path and Path(path).is_absolute()]
    found = {Path(path).resolve() for path in hide}
    return sorted(str(p) for p in found if p.exists() and not any(n == p or p in n.parents for n in inside))
