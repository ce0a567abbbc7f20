"""Inside a submission's process: the lesson's files, which stay as they are, and modules that come from the folder."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

COMPILED = (".so", ".pyd", ".dll", ".dylib", ".pyc", ".pyo", ".pth")
"""What the names of files end in that Python runs, and that cannot be read."""


class LessonFiles:
    """The lesson's own files in the folder, as they were before the submission ran."""

    def __init__(self, names: Iterable[str]) -> None:
        self._files = {Path(name).absolute(): Path(name).read_bytes() for name in names}
        self._folder = Path.cwd()

    def put_back(self) -> list[str]:
        """Restore files that were changed or removed, and return their names."""
        return [
            path.relative_to(self._folder).as_posix() for path, kept in self._files.items() if _restored(path, kept)
        ]


def _restored(path: Path, kept: bytes) -> bool:
    with contextlib.suppress(OSError):
        if not path.is_symlink() and path.read_bytes() == kept:
            return False
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(kept)
    return True


def watch_imports(report: Callable[[str], None], folder: str, handed_in: Mapping[str, str]) -> None:
    """Report modules that are imported from the folder, and are not as they were handed in.

    Modules that were handed in have been read by the policy; others were written by a cell. This lasts until the
    process ends.

    Parameters
    ----------
    handed_in
        By relative path, the SHA-256 of each module.
    """
    around = os.path.realpath(folder) + os.sep
    known = {os.path.join(around, *name.split("/")): digest for name, digest in handed_in.items()}  # noqa: PTH118
    reported: set[str] = set()
    state = {"quiet": False}

    def look(path: str) -> None:
        real = os.path.realpath(path)
        if real.startswith(around) and real not in reported and os.path.exists(real):  # noqa: PTH110
            with open(real, "rb") as file:  # noqa: PTH123
                digest = hashlib.sha256(file.read()).hexdigest()
            if known.get(real) != digest:
                reported.add(real)
                report(f"imported {real.removeprefix(around)}, which is not as it was handed in")

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if state["quiet"] or event not in ("open", "import"):
            return
        path = arguments[0] if event == "open" else arguments[1]
        if not isinstance(path, str) or not path.endswith((".py", *COMPILED)):
            return
        if event == "open" and not sys._getframe(1).f_code.co_filename.startswith("<frozen importlib"):
            return  # a file that is read or written, not imported
        state["quiet"] = True
        try:
            look(path)
        except OSError:
            pass
        finally:
            state["quiet"] = False

    sys.addaudithook(hook)
