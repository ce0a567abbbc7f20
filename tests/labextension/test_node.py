"""The extension's own tests, of its model, where npm's packages are installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

EXTENSION = Path(__file__).parents[2] / "labextension"


def test_the_model_in_jest() -> None:
    node, jest = shutil.which("node"), EXTENSION / "node_modules" / "jest" / "bin" / "jest.js"
    if node is None or not jest.is_file():
        pytest.skip("there is no Node with npm's packages: make extension fetches them")
    done = subprocess.run([node, str(jest), "--ci"], cwd=EXTENSION, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


def test_the_lockfile_names_no_host() -> None:
    text = (EXTENSION / "package-lock.json").read_text(encoding="utf-8")
    assert '"resolved"' not in text
    assert '"integrity": "sha512-' in text
