"""What the documents show is true: each block of Python in docs/ runs in its turn; the pages make a website."""

from __future__ import annotations

import ast
import io
import json
import linecache
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import click
import pytest
import yaml
from IPython.core.interactiveshell import InteractiveShell

import fakegpu_lab

DOCS = Path(__file__).parents[1] / "docs"
DOCUMENTS = sorted(DOCS.glob("*.md"))


def blocks(text: str) -> list[str]:
    return [code for kind, code in re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL) if kind == "python"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_python_of_the_documents_runs(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for number, code in enumerate(blocks(document.read_text(encoding="utf-8"))):
            name = f"<{document.name} {number}>"
            linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
            exec(compile(code, name, "exec"), names)
    finally:
        fakegpu_lab.disable()


def test_the_reference_of_what_is_typed_is_whole() -> None:
    """Every command, option, magic, key and variable: the page is what the code says now, and nothing is left out."""
    page = (DOCS / "commands.md").read_text(encoding="utf-8")
    made = runpy.run_path(str(DOCS / "commands.py"))
    assert page == made["page"](), "python docs/commands.py"
    rows = re.findall(r"(?m)^\| `([^`]+)`", page)
    commands = dict(made["commands"](made["cli"], "fakegpu-lab"))
    assert {f"fakegpu-lab {name}" for name in made["cli"].commands} < commands.keys()
    for path, command in commands.items():
        assert f"\n### {path}\n" in page
        assert {" ".join(one.opts) for one in command.params if isinstance(one, click.Option)} <= set(rows)
    shell = InteractiveShell()
    before = {kind: set(names) for kind, names in shell.magics_manager.magics.items()}
    shell.run_line_magic("load_ext", "fakegpu_lab")
    for kind, mark in (("line", "%"), ("cell", "%%")):
        for name in shell.magics_manager.magics[kind].keys() - before[kind]:
            assert f"\n### {mark}{name}\n" in page
    text = "".join(path.read_text(encoding="utf-8") for path in (DOCS.parent / "fakegpu_lab").rglob("*.py"))
    assert set(re.findall(r"FAKEGPU_LAB_[A-Z_]+", text)) == made["VARIABLES"].keys() <= set(rows)
    assert set(made["CUDAS"]) <= set(rows)
    assert all(f'"{name}"' in text for name in made["CUDAS"])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_of_the_documents_lead_somewhere(document: Path) -> None:
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)  # kernel[grid](x) is no link
    for link, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(#[^)]+)?\)", text):
        target = (document.parent / link) if link else document
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor[1:] in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")
def test_the_pages_make_a_website_without_a_warning(tmp_path: Path) -> None:
    """As ``make docs`` does, but the lessons are not executed, and no HTML is written."""
    pytest.importorskip("furo")
    pytest.importorskip("myst_nb")
    from sphinx.application import Sphinx

    docs, told = DOCUMENTS[0].parent, io.StringIO()
    Sphinx(
        str(docs),
        str(docs),
        str(tmp_path),
        str(tmp_path),
        "dummy",
        {"fakegpu_lab_execute": False},
        status=None,
        warning=told,
    ).build()
    assert told.getvalue() == ""


def test_the_lessons_of_the_students_page_are_those_that_there_are() -> None:
    text = (DOCUMENTS[0].parent / "students.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| (\d\d-[\w-]+) \| (.+) \| (\d+) \|$", text, re.MULTILINE)
    assert len(listed) >= 5
    for name, title, minutes in listed:
        lesson = yaml.safe_load((DOCUMENTS[0].parents[1] / "lessons/source" / name / "lesson.yaml").read_text("utf-8"))
        assert (lesson["title"], lesson["minutes"]) == (title, int(minutes))


def test_every_picture_is_made_by_a_program_of_the_repository() -> None:
    """``python docs/pictures.py`` makes them; it is read here and not run, because it needs a browser."""
    tree = ast.parse((DOCS / "pictures.py").read_text(encoding="utf-8"))
    made = {
        key.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("PAGES", "NOTEBOOKS")
        for key in cast("ast.Dict", node.value).keys
        if isinstance(key, ast.Constant)
    }
    documents = [DOCS.parent / "README.md", *DOCUMENTS]
    text = "".join(document.read_text(encoding="utf-8") for document in documents)
    shown = set(re.findall(r"\((?:docs/)?images/([\w.-]+)\.png\)", text))
    assert shown == made == {path.stem for path in (DOCS / "images").glob("*.png")}


@pytest.mark.long
def test_the_pictures_show_what_the_code_draws_now() -> None:
    """In a process of its own: figures are drawn for it, on machines of their own."""
    pytest.importorskip("playwright")
    program = "import json, pictures; print(json.dumps(pictures.drawn()))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(DOCS.parent), str(DOCS)])}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    now = json.loads(ran.stdout.splitlines()[-1])
    kept = json.loads((DOCS / "images" / "drawn.json").read_text(encoding="utf-8"))
    stale = sorted(name for name in now if now[name] != kept.get(name))
    assert not stale, f"python docs/pictures.py {' '.join(stale)}"


def test_each_promise_of_grading_names_a_test_that_exists() -> None:
    """A row names files of tests/course, and in them tests, or groups of attacks."""
    pytest.importorskip("nbgrader")
    from tests.course.attacks.test_attacks import GROUPS

    text = (DOCUMENTS[0].parent / "grading.md").read_text("utf-8").partition("## Promises, and the tests")[2]
    rows = re.findall(r"^\| (.+?) \| (`.+) \|$", text, re.MULTILINE)
    assert len(rows) >= 36
    for promise, tests in rows:
        for part in tests.split("; "):
            file, _, names = part.partition(": ")
            text = (DOCUMENTS[0].parents[1] / "tests" / "course" / file.strip("`")).read_text(encoding="utf-8")
            assert names, promise
            for name in names.split(", "):
                assert f"def {name}(" in text or (file == "`attacks/test_attacks.py`" and name in GROUPS), (
                    promise,
                    name,
                )


def test_the_page_on_grading_counts_its_attacks() -> None:
    pytest.importorskip("nbgrader")
    from tests.course.attacks.by_hand import BY_HAND
    from tests.course.attacks.test_attacks import GROUPS

    text = (DOCUMENTS[0].parent / "grading.md").read_text(encoding="utf-8")
    assert f"run {len(BY_HAND) + sum(map(len, GROUPS.values()))} hostile exercises" in text


def test_what_a_build_of_the_website_leaves_is_neither_committed_nor_read_by_the_next_one() -> None:
    clean = (DOCS.parent / "Makefile").read_text(encoding="utf-8").partition("\nclean:")[2]
    made = set(re.findall(r" docs/(\S+)", clean))
    assert {"_build", "jupyter_execute"} <= made
    ignored = (DOCS.parent / ".gitignore").read_text(encoding="utf-8").split()
    assert [name for name in made if f"docs/{name}/" not in ignored] == []
    read = {"lessons"}  # the lessons' pages are written there before each build
    settings = (DOCS / "conf.py").read_text(encoding="utf-8")
    excluded = re.search(r"^exclude_patterns = (\[.*\])", settings, re.MULTILINE)
    assert excluded is not None
    assert made - read <= set(ast.literal_eval(excluded[1]))
