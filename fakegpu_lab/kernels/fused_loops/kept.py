"""What is known of a compiled kernel, in Inductor's cache folder: the next process need not find it out again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    T = TypeVar("T")
else:
    T = TypeVar("T")

_PACKAGE = Path(__file__).parents[2]
_ROOMS = "kernels", "hardware/kernel_model", "hardware/time"


def place(source: str, about: object = (), suffix: str = ".py") -> Path:
    """Where it is kept: by the kernel's parameters and body, since its name comes later, and by this package's code."""
    kernel = re.split(r"^def [^\s(]+\(", source, maxsplit=1, flags=re.MULTILINE)[-1]
    key = hashlib.sha256(_package() + kernel.rstrip().encode() + repr(about).encode()).hexdigest()
    folder = import_module("torch._inductor.runtime.cache_dir_utils").cache_dir()
    return Path(folder) / "fakegpu_lab" / key[:2] / f"{key}{suffix}"


def write(path: Path, content: bytes) -> None:
    """Write a file whole: other processes may read it at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_suffix(f".{os.getpid()}")
    written.write_bytes(content)
    written.replace(path)


def remembered(source: str, about: object, find: Callable[[], T]) -> T:
    """What `find` returns, which depends on the kernel's source and on `about` only; kept for later processes."""
    path = place(source, about, ".pickle")
    with contextlib.suppress(OSError, pickle.UnpicklingError, EOFError, AttributeError, ImportError, TypeError):
        found: T = pickle.loads(path.read_bytes())
        return found
    found = find()
    with contextlib.suppress(OSError):
        write(path, pickle.dumps(found))
    return found


@cache
def _package() -> bytes:
    """The code that prints, runs and times kernels: another version of it finds other things."""
    digest = hashlib.sha256()
    for path in sorted(path for room in _ROOMS for path in (_PACKAGE / room).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.digest()
