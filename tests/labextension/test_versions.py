"""Which JupyterLab takes the extension: every one that pyproject.toml promises, and the installed one."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "labextension" / "built" / "package.json"

OLDEST = {
    "@jupyterlab/apputils": "^4.3.0",
    "@jupyterlab/coreutils": "^6.2.0",
    "@jupyterlab/services": "^7.2.0",
}
"""The versions in JupyterLab 4.2 of the packages that have numbers of their own."""


def test_it_takes_the_oldest_jupyterlab_that_is_promised() -> None:
    """``jupyter labextension list`` compares these ranges with JupyterLab's own packages."""
    (promised,) = re.findall(r'"jupyterlab>=([\d.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert promised == "4.2", "OLDEST is for 4.2"
    ranges = json.loads(BUILT.read_text(encoding="utf-8"))["dependencies"]
    shared = {name: bound for name, bound in ranges.items() if name.startswith("@jupyterlab/")}
    assert len(shared) > 10
    assert shared == {name: OLDEST.get(name, f"^{promised}.0") for name in shared}


@pytest.mark.long
def test_the_installed_jupyterlab_takes_it(tmp_path: Path) -> None:
    pytest.importorskip("jupyterlab", reason="JupyterLab is not installed")
    shutil.copytree(BUILT.parent, tmp_path / "labextensions" / "fakegpu-lab")
    listed = subprocess.run(
        [sys.executable, "-m", "jupyter", "labextension", "list"],
        env=os.environ | {"JUPYTER_DATA_DIR": str(tmp_path), "JUPYTER_PREFER_ENV_PATH": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = re.sub(r"\x1b\[\d*m", "", listed.stdout + listed.stderr).splitlines()
    (told,) = [line.split()[1:] for line in lines if line.split()[:1] == ["fakegpu-lab"]]
    assert told[1:] == ["enabled", "OK"], listed.stderr
