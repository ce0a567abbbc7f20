"""``fakegpu-lab lesson exercise``: adds an exercise to a lesson, for its author to change."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import yaml

from fakegpu_lab.course.authoring.new import code, mark, markdown, text
from fakegpu_lab.course.lessons import lesson as lessons
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from pathlib import Path

_TASK = "### Exercise: {title}\n\nSay in one sentence what to do.\n\n*1 point*"
_ANSWER = '%%exercise {id}\n### BEGIN SOLUTION\nanswer = torch.ones(3, device="cuda")\n### END SOLUTION'
_CHECK = '%%check {id}\nexpect.on_device(answer, "cuda:0")'
_HINT = "# Stuck? Remove the # from the next line and run this cell: each run gives one more hint.\n# %hint {id}"


def add(folder: Path, name: str) -> Path:
    """Add an exercise at the end of a lesson: four cells in its notebook, an entry in its ``lesson.yaml``.

    Everything that the author wrote stays, even comments in the YAML.

    Returns
    -------
    Path
        The notebook.

    Raises
    ------
    FakeGpuError
        There is no lesson, or the name is not valid or taken.
    """
    lesson = lessons.load(folder)
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise FakeGpuError(
            f"{name!r} is not a name for an exercise: use lowercase letters, digits and hyphens, such as one-copy."
        )
    if any(one.id == name for one in lesson.exercises):
        raise FakeGpuError(f"The lesson {lesson.name} already has an exercise {name}.")
    path = folder / f"{folder.resolve().name}.ipynb"
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise FakeGpuError(f"There is no notebook {path}.") from None
    title = name.replace("-", " ").capitalize()
    cells = [
        markdown(_TASK.format(title=title), f"{name}-task"),
        code(_ANSWER.format(id=name), mark(name, solution=True), name),
        code(_CHECK.format(id=name), mark(f"{name}-check", points=1), f"{name}-check"),
        code(_HINT.format(id=name), name=f"{name}-hint"),
    ]
    there = notebook["cells"]
    last = "".join(there[-1]["source"]).strip() if there else ""
    place = len(there) - 1 if last == "%progress" else len(there)
    there[place:place] = cells
    new_yaml = _with_exercise((folder / lessons.FILE).read_text(encoding="utf-8"), name, title, lesson.points + 1)
    (folder / lessons.FILE).write_text(new_yaml, encoding="utf-8", newline="\n")
    path.write_text(text(notebook), encoding="utf-8", newline="\n")
    return path


def _with_exercise(source: str, name: str, title: str, points: float) -> str:
    """The source of a ``lesson.yaml`` with one more exercise."""
    entry = {
        "id": name,
        "title": title,
        "points": 1,
        "hints": ["Where to look.", "What to use.", "Nearly the answer."],
        "wrong": [{"why": "left on the CPU", "code": "answer = torch.ones(3)\n"}],
    }
    item = yaml.safe_dump([entry], sort_keys=False, allow_unicode=True, width=110)
    source, found = re.subn(r"(?m)^points:.*$", f"points: {points:g}", source, count=1)
    if not found:
        source = f"{source.rstrip()}\npoints: {points:g}\n"
    begins = re.search(r"(?m)^exercises:[ \t]*(\[\][ \t]*)?$\n?", source)
    if begins is None:
        if re.search(r"(?m)^exercises:", source):
            raise FakeGpuError("lesson.yaml has its exercises on one line: put each on its own lines first.")
        return f"{source.rstrip()}\nexercises:\n{item}"
    rest = source[begins.end() :]
    after = re.search(r"(?m)^[A-Za-z_]", rest)
    end = after.start() if after else len(rest)
    indent = re.match(r"[ \t]*", rest)[0] if rest.lstrip().startswith("-") else ""  # type: ignore[index]
    item = "".join(f"{indent}{line}\n" for line in item.splitlines())
    listed = rest[:end].rstrip("\n")
    return "\n".join([f"{source[: begins.start()]}exercises:", *([listed] if listed else []), item + rest[end:]])
