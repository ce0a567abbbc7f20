"""Makes a page of each lesson in lessons/source, in docs/lessons, and a list of them."""

from __future__ import annotations

import logging
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat

from fakegpu_lab.course.lessons import lesson
from website import address, executed, figures

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.course.lessons.lesson import Lesson

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "lessons"
FACTS = "facts.md"
"""In a lesson's folder: where its statements about real hardware come from."""

_TO_LESSON = re.compile(r"\]\(\.\./[\w-]+/([\w-]+\.ipynb)\)")
"""A link from one lesson's folder to another's."""

_LIST = """\
# The lessons

{prose}

| Lesson | | Minutes | Points |
| --- | --- | ---: | ---: |
{rows}

```{{toctree}}
:hidden:

{names}
```
"""
_PROSE = """\
These are the lessons as students get them, executed: text, code, and the outputs of everything but the exercises.
Solutions are not shown, and each check can be unfolded. [For instructors](../instructors.md) explains how to hand
the lessons out, [A seminar](../course.md) is a syllabus that uses all of them."""


def sources(root: Path = ROOT) -> list[Path]:
    """The notebooks of all lessons, in their order."""
    return [path for path in sorted((root / "lessons" / "source").glob("*/*.ipynb")) if path.stem == path.parent.name]


def write(*, execute: bool, says: Callable[[str], None] = print) -> None:
    """Write the pages; without `execute`, they have no outputs."""
    logging.getLogger("traitlets").setLevel(logging.WARNING)  # else nbclient reports each lesson
    found = sources()
    PAGES.mkdir(exist_ok=True)
    for old in PAGES.iterdir():
        if old.stem.removesuffix("-facts") not in {path.stem for path in found}:
            old.unlink()

    def make(source: Path) -> Lesson:
        notebook, missing = executed.executed(source) if execute else (executed.unexecuted(source), "")
        if missing:
            says(f"{source.stem}: {missing}")
        about = lesson.load(source.parent)
        _write(PAGES / source.name, nbformat.writes(page(notebook, about, missing)))
        if (facts := source.with_name(FACTS)).is_file():
            _write(PAGES / f"{about.name}-{FACTS}", f"---\norphan: true\n---\n\n{facts.read_text(encoding='utf-8')}")
        return about

    with ThreadPoolExecutor(max_workers=min(os.cpu_count() or 1, 4)) as several:
        lessons = list(several.map(make, found))
    rows = "\n".join(
        f"| [{one.name[:2]} · {one.title}]({one.name}.ipynb) | {one.goal} | {one.minutes} | {one.points:g} |"
        for one in lessons
    )
    names = "\n".join(f"{one.name[:2]} · {one.title} <{one.name}>" for one in lessons)
    _write(PAGES / "index.md", _LIST.format(prose=_PROSE, rows=rows, names=names))


def page(notebook: Any, about: Lesson, missing: str = "") -> Any:
    """A notebook as a page: what only works in Jupyter is left out, checks are folded, figures can be zoomed."""
    cells = []
    for cell in notebook.cells:
        text = cell.source
        if cell.cell_type == "code":
            if text.startswith("%predict ") or re.search(r"(?m)^# %hint ", text):
                continue
            if text.startswith("%%check "):
                cell.metadata["tags"] = [*cell.metadata.get("tags", []), "hide-input"]
                cell.metadata["mystnb"] = {"code_prompt_show": "Show the check", "code_prompt_hide": "Hide the check"}
            cell.outputs = _shown(cell.outputs)
        else:
            cell.source = _TO_LESSON.sub(r"](\1)", text).replace(f"]({FACTS})", f"]({about.name}-{FACTS})")
        cells.append(cell)
    head = nbformat.v4.new_markdown_cell(_head(about, missing), id="about-this-lesson")
    notebook.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    notebook.cells = [cells[0], head, *cells[1:]]
    return notebook


def _head(about: Lesson, missing: str) -> str:
    parts = [f"**{about.minutes} minutes**", f"GPUs: `{about.hardware}`"]
    if about.points:
        parts.append(f"{len(about.exercises)} exercises, {about.points:g} points")
    if about.prerequisites:
        parts.append("after " + ", ".join(f"[{name}]({name}.ipynb)" for name in about.prerequisites))
    notebook = f"../../lessons/release/{about.name}/{about.name}.ipynb"
    here = [f"{{download}}`the notebook <{notebook}>`"] if (PAGES / notebook).is_file() else []
    link = address.binder(address.repository(), f"lab/tree/lessons/release/{about.name}/{about.name}.ipynb")
    here += [f"[on Binder]({link})"] if link else []
    work = f" Work on it in Jupyter: {', '.join(here)}." if here else ""
    note = f"\n\n{missing}" if missing else ""
    return f":::{{admonition}} About this lesson\n:class: note\n\n{' · '.join(parts)}.{work}{note}\n:::"


def _shown(outputs: list[Any]) -> list[Any]:
    """Outputs that a page can show: widgets as their text, figures as HTML with what belongs above them."""
    made: list[Any] = []
    for output in outputs:
        data = output.get("data", {})
        data.pop("application/vnd.jupyter.widget-view+json", None)
        figure = data.pop(figures.MIME, None)
        if figure is not None:
            above = ""
            if made and "fakegpu-figure" in made[-1].get("data", {}).get("text/html", ""):
                above = made.pop()["data"]["text/html"]
            data.clear()
            data["text/html"] = figures.figure_html(figure, above)
        elif "text/html" in data:
            data["text/html"] = f'<div class="jp-OutputArea">{data["text/html"]}</div>'
        made.append(output)
    return made


def _write(path: Path, text: str) -> None:
    """Write a page if it has changed: Sphinx reads again what is newer."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8", newline="\n")
