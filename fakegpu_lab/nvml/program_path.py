"""PATH and PYTHONPATH of child processes: they find our nvidia-smi, and pynvml with the simulated GPUs.

A folder with a program ``nvidia-smi`` is put first in ``PATH``, and one with a module `pynvml` (`injected`) first in
``PYTHONPATH``; both are removed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

from fakegpu_lab.nvml.publish import make_private, runtime

INJECTED = Path(__file__).with_name("injected")
_PACKAGE = Path(__file__).resolve().parents[1]

_SCRIPT = """#!/bin/sh
'''exec' '{python}' "$0" "$@"
' '''
import sys
sys.path.append({folder!r})
from fakegpu_lab.nvml.smi import main
sys.exit(main(sys.argv[1:]))
"""
_BATCH = """@echo off\r
"{python}" "{script}" %*\r
"""

_entered: list[tuple[str, str]] = []


def enter() -> None:
    """Put both folders first."""
    leave()
    program = programs()
    for variable, folder in (("PATH", program), ("PYTHONPATH", INJECTED)):
        if folder is None:
            continue
        others = [one for one in os.environ.get(variable, "").split(os.pathsep) if one and one != str(folder)]
        os.environ[variable] = os.pathsep.join([str(folder), *others])
        _entered.append((variable, str(folder)))


def leave() -> None:
    """Remove them; whatever else was added meanwhile stays."""
    while _entered:
        variable, folder = _entered.pop()
        rest = [one for one in os.environ.get(variable, "").split(os.pathsep) if one and one != folder]
        if rest:
            os.environ[variable] = os.pathsep.join(rest)
        else:
            os.environ.pop(variable, None)


def programs() -> Path | None:
    """The folder with nvidia-smi, made if it is missing.

    None if no folder can hold an executable file, and keep other users from replacing it.
    """
    digest = hashlib.sha256(f"{sys.executable}\n{_PACKAGE}".encode()).hexdigest()[:12]
    for place in (runtime(), Path.home() / ".cache" / "fakegpu_lab", Path(tempfile.gettempdir())):
        if place is None:
            continue
        with contextlib.suppress(OSError, RuntimeError):
            folder = place / f"bin-{digest}"
            if make_private(folder) and _make_program(folder):
                return folder
    return None


def _make_program(folder: Path) -> bool:
    """Write nvidia-smi into a folder, unless it is there; return whether it can be run."""
    script = folder / ("nvidia-smi.py" if os.name == "nt" else "nvidia-smi")
    text = _SCRIPT.format(python=sys.executable.replace("'", "'\"'\"'"), folder=str(_PACKAGE.parent))
    if not script.is_file() or script.read_text(encoding="utf-8") != text:
        draft = folder / f"draft-{os.getpid()}"
        draft.write_text(text, encoding="utf-8")
        draft.chmod(0o700)
        draft.replace(script)
    if os.name == "nt":
        (folder / "nvidia-smi.cmd").write_text(_BATCH.format(python=sys.executable, script=script), encoding="utf-8")
        _add_launcher(folder)
        return True
    return os.access(script, os.X_OK)  # false on a file system mounted noexec


def _add_launcher(folder: Path) -> None:
    """Copy pip's launcher of fakegpu-lab: on Windows, ``subprocess.run(["nvidia-smi"])`` finds only an .exe.

    `fakegpu_lab.cli.main` acts as nvidia-smi when it is called by that name.
    """
    launcher = Path(sys.executable).with_name("fakegpu-lab.exe")
    if not launcher.is_file():
        launcher = Path(sys.executable).parent / "Scripts" / "fakegpu-lab.exe"
    with contextlib.suppress(OSError):
        shutil.copy(launcher, folder / "nvidia-smi.exe")
