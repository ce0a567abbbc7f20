"""The layout of the package: rooms of a readable size, and no circles of files."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import grimp
import networkx as nx
import pytest

PACKAGE = Path(__file__).parents[1] / "fakegpu_lab"

ALLOWED: dict[frozenset[str], str] = {}
"""Circles that may stay, each with the reason why opening it would read worse."""


def circles(graph: grimp.ImportGraph) -> list[frozenset[str]]:
    """Sets of files that import each other; imports for types and imports inside functions count."""
    net: Any = nx.DiGraph()
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            net.add_edge(module, imported)
    return [frozenset(part) for part in nx.strongly_connected_components(net) if len(part) > 1]


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("fakegpu_lab", cache_dir=None)


def test_no_circle_of_files(graph: grimp.ImportGraph) -> None:
    assert [sorted(circle) for circle in circles(graph) if circle not in ALLOWED] == []
    assert set(ALLOWED) <= set(circles(graph)), "a circle that is allowed has been opened: take it from the list"


def test_a_circle_is_noticed_also_through_types_and_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "three_rooms"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("from three_rooms import b\n")
    (package / "b.py").write_text(
        "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from three_rooms.c import C\n"
    )
    (package / "c.py").write_text("class C:\n    def late(self):\n        from three_rooms import a\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    drawn = grimp.build_graph("three_rooms", cache_dir=None)
    assert circles(drawn) == [frozenset({"three_rooms.a", "three_rooms.b", "three_rooms.c"})]
    drawn.remove_import(importer="three_rooms.c", imported="three_rooms.a")
    assert circles(drawn) == []


FOLDERS = sorted({path.parent for path in PACKAGE.rglob("*.py")})
ROOMS = [
    folder for folder in FOLDERS if folder != PACKAGE / "nvml" / "injected"
]  # one file, for other programs to find


def test_folders_and_files_stay_small() -> None:
    crowded = {str(folder): count for folder in FOLDERS if (count := len(list(folder.glob("*.py")))) > 15}
    assert crowded == {}
    long = {str(path) for path in PACKAGE.rglob("*.py") if len(path.read_text(encoding="utf-8").splitlines()) > 350}
    assert long == set(), "a file that passes 350 lines is asked whether it is two"


@pytest.mark.parametrize("room", [pytest.param(room, id=str(room.relative_to(PACKAGE.parent))) for room in ROOMS])
def test_each_room_says_what_it_is_for_and_where_to_start(room: Path) -> None:
    text = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))) or ""
    assert len(text.splitlines()) <= 16
    start = re.search(r"Start with (.*?)\.(?:\s|$)", text, re.DOTALL)
    assert start, "no file to start with"
    files = re.findall(r"`([\w.]+)`", start[1])
    for file in files:
        place = room.joinpath(*file.split("."))
        assert place.is_dir() or place.with_suffix(".py").is_file(), f"there is no {file} to start with"
    assert files


@pytest.mark.parametrize("document", ["docs/developers.md", "CONTRIBUTING.md"])
def test_the_places_that_a_document_names_are_there(document: str) -> None:
    text = (PACKAGE.parent / document).read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[\w.]+/)+[\w.]*)`", text))
    assert len(named) > 10
    missing = {name for name in named if not any((root / name).exists() for root in (PACKAGE, PACKAGE.parent))}
    assert missing <= {".venv/bin"}
