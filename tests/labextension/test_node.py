"""JupyterLab's extension: what is built is of these sources; its own tests, of its model, where npm's packages are."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

from fakegpu_lab.hardware.memory_categories import COLOURS
from fakegpu_lab.recording_views.figures.theme import BARS, PHASES

EXTENSION = Path(__file__).parents[2] / "labextension"
PANEL = [EXTENSION.parent / "fakegpu_lab" / "notebook" / name for name in ("panel.js", "panel.css")]


def test_what_is_built_is_of_these_sources() -> None:
    assert runpy.run_path(str(EXTENSION / "build.py"))["fresh"](), "make extension builds it anew"


def test_panel_dashboard_and_figures_have_the_same_colors() -> None:
    """What a student learned to read in one of them means the same in the others."""
    style = (EXTENSION / "style" / "views.css").read_text()
    light = dict(re.findall(r"--fg-([\w-]+): (#[0-9a-f]{6});", style.partition("[data-jp-theme-light")[0]))
    for prefix, colors in (("kind-", BARS), ("phase-", PHASES), ("", COLOURS)):
        for name, color in colors.items():
            assert light[prefix + re.sub(r"\W+|_", "-", name)] == color.lower(), name


def test_wheels_take_only_what_jupyterlab_reads() -> None:
    assert sorted(path.name for path in (EXTENSION / "built").iterdir()) == ["package.json", "schemas", "static"]


def test_a_changed_source_is_told(tmp_path: Path) -> None:
    copy = tmp_path / "labextension"
    left_out = shutil.ignore_patterns("node_modules", "lib", "*.tsbuildinfo")
    shutil.copytree(EXTENSION, copy, ignore=left_out)
    notebook = tmp_path / "fakegpu_lab" / "notebook"
    notebook.mkdir(parents=True)
    for path in PANEL:
        shutil.copy(path, notebook)
    fresh = runpy.run_path(str(copy / "build.py"))["fresh"]
    assert fresh()
    source = copy / "src" / "index.ts"
    text = source.read_bytes()
    source.write_bytes(text.replace(b"\n", b"\r\n"))  # as Git may write it on Windows
    assert fresh()
    source.write_bytes(text + b"// changed\n")
    assert not fresh()
    source.write_bytes(text)
    assert fresh()
    with (notebook / "panel.js").open("a") as panel:
        panel.write("// written by hand\n")
    assert not fresh()


def test_what_is_built_names_no_host() -> None:
    hosts = {
        host
        for path in (*(EXTENSION / "built").rglob("*"), *PANEL)
        if path.is_file()
        for host in re.findall(rb"https?://([\w.-]+)", path.read_bytes())
    }
    assert hosts == {b"www.w3.org"}  # SVG's namespace


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
