"""The layout of the package: no circles of files, rooms with a place to start, documents that name what exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import grimp
import networkx as nx
import pytest
import torch

PACKAGE = Path(__file__).parents[1] / "fakegpu_lab"
REPOSITORY = PACKAGE.parent

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


def docstrings(file: Path) -> str:
    """All strings of a file that stand alone: its docstrings, and those of its constants."""
    expressions = (
        node.value for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.Expr)
    )
    return "\n".join(
        node.value for node in expressions if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def files_that_are_missing(text: str) -> set[str]:
    """Python files that a text names in backticks, and that neither this repository nor torch has.

    A path may be cut at the front: `allocator/blocks.py` means any file that ends with that.
    """
    named = set(re.findall(r"`([\w./-]+\.py)`", text))
    return {
        name
        for name in named
        if not any(f"/{file}".endswith(f"/{name}") for file in PYTHON_FILES) and not (TORCH / name).exists()
    }


TORCH = Path(torch.__file__).parents[1]
PYTHON_FILES = [
    file.relative_to(REPOSITORY).as_posix()
    for top in ("fakegpu_lab", "tests", "benchmarks", "docs", "lessons")
    for file in (REPOSITORY / top).rglob("*.py")
]
DOCUMENTS = [*sorted((REPOSITORY / "docs").glob("*.md")), REPOSITORY / "CONTRIBUTING.md", REPOSITORY / "README.md"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_files_that_a_document_names_exist(document: Path) -> None:
    assert files_that_are_missing(document.read_text(encoding="utf-8")) == set()


def test_the_files_that_docstrings_name_exist() -> None:
    missing = {
        str(file): names for file in PACKAGE.rglob("*.py") if (names := files_that_are_missing(docstrings(file)))
    }
    assert missing == {}


def test_a_file_that_does_not_exist_is_noticed() -> None:
    assert files_that_are_missing("`driver/dispatch/general.py` and `dispatch/dispatcher.py`") == {
        "driver/dispatch/general.py"
    }
