"""The website: what its pages show is true, and no page shows a solution."""

from __future__ import annotations

import contextlib
import html
import io
import re
import runpy
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import nbformat
import pytest
import yaml

import fakegpu_lab
from fakegpu_lab.hardware.catalogue.lookup import catalogue, gpu

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
LESSONS = sorted((ROOT / "lessons" / "source").glob("*/*.ipynb"))


@pytest.fixture(autouse=True)
def of_the_website(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    yield
    fakegpu_lab.disable()


def test_the_first_program_prints_what_the_front_page_says() -> None:
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (printed,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(compile(program, "index.md", "exec"), {})
    assert said.getvalue() == printed


def planted(source: Path) -> tuple[Any, list[str]]:
    """A lesson's notebook in which each cell printed all solutions, and the lines of these."""
    from website import executed

    run = nbformat.read(source, as_version=4)
    secrets = executed.solution_lines(run)
    text = "\n".join(secrets)
    for cell in run.cells:
        if cell.cell_type == "code":
            figure = {"data": [{"hovertext": [text, text[:60]]}], "layout": {}}
            data = {"text/html": f"<b>{html.escape(text)}</b>", "application/vnd.plotly.v1+json": figure}
            cell.outputs = [
                nbformat.v4.new_output("stream", text=text),
                nbformat.v4.new_output("display_data", data=data),
                nbformat.v4.new_output("display_data", data={"text/html": data["text/html"]}),
            ]
    return run, secrets


@pytest.mark.parametrize("source", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_s_page_has_its_outputs_and_no_line_of_a_solution(source: Path) -> None:
    pytest.importorskip("nbgrader")
    from website import executed, lessons

    from fakegpu_lab.course.lessons import lesson

    run, secrets = planted(source)
    shown = executed.without_solutions(run, nbformat.read(source, as_version=4))
    page = lessons.page(shown, lesson.load(source.parent))
    text = html.unescape(str([dict(cell) for cell in page.cells])).replace("\\'", "'")
    assert [line for line in secrets if line in text] == []
    assert (executed.HIDDEN in text) == bool(secrets)
    for cell in page.cells:
        assert not cell.source.startswith(("%predict", "# Stuck?"))
        if cell.source.startswith(("%%exercise", "%%check")):
            assert cell.outputs == []
    assert any(cell.get("outputs") for cell in page.cells)


def test_a_page_does_not_say_where_it_was_made() -> None:
    from website.executed import without_folders

    row = f"| 0  C  {sys.prefix}/bin/python   504MiB |"
    assert without_folders(row) == "| 0  C  .venv/bin/python".ljust(row.index("504")) + "504MiB |"
    assert without_folders(f"File {sys.prefix}/lib/torch/nn.py:3, in f") == "File .venv/lib/torch/nn.py:3, in f"


def test_a_solution_is_found_on_a_page_however_its_code_is_colored(tmp_path: Path) -> None:
    pytest.importorskip("nbgrader")
    from website import audit, executed

    source = ROOT / "lessons/source/01-device-placement/01-device-placement.ipynb"
    line = executed.solution_lines(nbformat.read(source, as_version=4))[0]
    colored = "".join(f'<span class="n">{html.escape(letter)}</span>' for letter in line)
    page = tmp_path / "lessons" / f"{source.stem}.html"
    page.parent.mkdir()
    page.write_text("<p>Nothing here.</p>", encoding="utf-8")
    assert audit.found(tmp_path, [source]) == []
    page.write_text(f"<pre>{colored}</pre>", encoding="utf-8")
    assert audit.found(tmp_path, [source]) == [f"lessons/{source.stem}.html: {line}"]


def test_a_lesson_whose_packages_are_missing_is_shown_without_outputs_and_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("nbgrader")
    from website import executed

    source = ROOT / "lessons/source/11-compile/11-compile.ipynb"
    monkeypatch.setattr(executed, "_run", lambda source: nbformat.read(source, as_version=4))
    monkeypatch.setattr(executed, "CACHE", tmp_path)
    monkeypatch.setattr(executed.extras, "missing", lambda needs: [*needs])
    page, note = executed.executed(source)
    assert note == "This page has no outputs: triton is not installed where it was made."
    assert not any(cell.get("outputs") for cell in page.cells)
    monkeypatch.setattr(executed.extras, "missing", lambda needs: [])
    assert executed.executed(source)[1] == ""


def test_the_catalogue_has_every_gpu_with_its_figures_and_says_which_are_estimated() -> None:
    pytest.importorskip("docutils")
    from website.catalogue import gpu_row, table

    assert table("gpus").count("<tr>") == len(catalogue("gpus")) + 1
    assert table("nodes").count("<tr>") == len(catalogue("nodes")) + 1
    shown = [text for text, _ in gpu_row(gpu("a100"))]
    assert shown == ["a100", "NVIDIA A100-SXM4-80GB", "datacenter", "8.0", "79.25 GiB", "2,039", "108",
                     "9.7", "19.5", "156", "312", "", "40.00 MiB", "600", "400"]  # fmt: skip
    assert "total_memory" in gpu("a40").estimated
    assert any(text.startswith("≈ ") and text.endswith("GiB") for text, _ in gpu_row(gpu("a40")))


def test_the_repository_s_address_is_written_in_one_go_and_removed_again(tmp_path: Path) -> None:
    from website import address

    workflow = tmp_path / "docs/examples/test-cuda.yml"
    workflow.parent.mkdir(parents=True)
    names = ("pyproject.toml", "README.md", "CITATION.cff", "docs/examples/test-cuda.yml")
    for name in names:
        shutil.copy(ROOT / name, tmp_path / name)
    address.write("https://github.com/someone/fork.git", tmp_path)
    assert address.repository(tmp_path) == "https://github.com/someone/fork"
    assert "git clone https://github.com/someone/fork && cd fork\nmake lab\n" in (tmp_path / "README.md").read_text()
    assert "mybinder.org/v2/gh/someone/fork/HEAD?urlpath=" in (tmp_path / "README.md").read_text(encoding="utf-8")
    assert 'repository-code: "https://github.com/someone/fork"' in (tmp_path / "CITATION.cff").read_text()
    assert yaml.safe_load(workflow.read_text())["env"] == {"FAKEGPU_LAB": "git+https://github.com/someone/fork"}
    before = {name: (tmp_path / name).read_text(encoding="utf-8") for name in names}
    address.write("https://github.com/someone/fork", tmp_path)
    assert before == {name: (tmp_path / name).read_text(encoding="utf-8") for name in names}
    address.write("", tmp_path)
    assert address.repository(tmp_path) == ""
    for name, text in before.items():
        assert "someone" in text
        assert "someone" not in (tmp_path / name).read_text(encoding="utf-8")
    assert yaml.safe_load(workflow.read_text())["env"] == {"FAKEGPU_LAB": "git+${{ vars.FAKEGPU_LAB_REPOSITORY }}"}


def test_nothing_that_people_read_links_to_a_placeholder() -> None:
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/*.py"), *ROOT.glob("lessons/*/*/*.ipynb")]
    assert [page.name for page in pages if re.search(r"/OWNER/|%2FOWNER%2F", page.read_text(encoding="utf-8"))] == []


def test_links_that_open_a_fork_of_the_lessons_name_its_repository_and_file() -> None:
    if not (ROOT / "binder").is_dir():
        pytest.skip("an sdist has no binder/")
    link: dict[str, Any] = runpy.run_path(str(ROOT / "binder" / "link.py"))
    made = urlsplit(link["pull"]("https://hub.example.edu/", "https://github.com/prof/course", "a b.ipynb", "spring"))
    assert made.path == "/hub/user-redirect/git-pull"
    assert parse_qs(made.query) == {  # as nbgitpuller's documentation has it
        "repo": ["https://github.com/prof/course"], "urlpath": ["lab/tree/course/a b.ipynb"], "branch": ["spring"],
    }  # fmt: skip
    opened = urlsplit(link["binder"]("https://github.com/prof/course", "a b.ipynb"))
    assert (opened.path, parse_qs(opened.query)) == ("/v2/gh/prof/course/HEAD", {"urlpath": ["lab/tree/a b.ipynb"]})
    with pytest.raises(SystemExit, match="is not the address of a repository"):
        link["binder"]("my course", "a.ipynb")
