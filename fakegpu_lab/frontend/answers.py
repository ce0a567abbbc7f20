"""Answers for front ends, as JSON: JupyterLab's sidebar asks the kernel, and no server needs to know of it.

`answer` takes and gives text. A question is an object with ``ask``:

- ``profiles``: the GPUs and machines that can be chosen;
- ``lessons``: all lessons with the student's copies and progress in ``folder``; without it, in the present folder if
  there are copies, and else in `FOLDER`;
- ``fetch``: copy lesson ``name`` to ``folder`` if it is not there (``newer``: also where there is an older edition);
- ``start over``: give ``name`` a fresh notebook in ``folder``, and keep the old one;
- ``notebook``: what is known of lesson ``name`` for a notebook in ``folder``: its exercises, hints, progress, and
  whether this kernel has run its ``%lesson``;
- ``hint``: the next hint of ``exercise`` of lesson ``name``, which is noted in the student's progress.

An answer is ``{"version": 1, "ok": true, "told": …}``, or ``{"version": 1, "ok": false, "why": "one sentence"}``.
The kernel and the student's notebooks share a file system, as they do under Binder and JupyterHub.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.user_code import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fakegpu_lab.course.lessons.classroom import Classroom

VERSION = 1
"""Of questions and answers; grows when a field changes its meaning."""

FOLDER = "fakegpu-lessons"
"""Where a student's lessons are, unless they say otherwise."""


def answer(question: str) -> str:
    """Answer a question; what cannot be answered is told, never raised."""
    try:
        asked = json.loads(question)
        known = _ANSWERS[asked["ask"]]
        return json.dumps({"version": VERSION, "ok": True, "told": known(asked)})
    except FakeGpuError as error:
        why = str(error)
    except OSError as error:
        why = f"{error.filename}: {error.strerror}."
    except (ValueError, KeyError, TypeError):
        why = "This question is not understood: fakegpu-lab of the kernel and of JupyterLab differ too much."
    return json.dumps({"version": VERSION, "ok": False, "why": why})


def _profiles(_: Mapping[str, Any]) -> list[dict[str, Any]]:
    from fakegpu_lab.hardware.catalogue.lookup import catalogue, gpu, node

    single = [
        {"id": card.id, "name": card.name, "architecture": card.architecture, "memory": card.memory_bytes, "cards": 1}
        for card in map(gpu, catalogue("gpus"))
    ]
    machines = [
        {
            "id": machine.id,
            "name": machine.name,
            "architecture": "",
            "memory": sum(gpu(part.gpu).memory_bytes * part.count for part in machine.gpus),
            "cards": sum(part.count for part in machine.gpus),
        }
        for machine in map(node, catalogue("nodes"))
    ]
    return single + machines


def _lessons(asked: Mapping[str, Any]) -> dict[str, Any]:
    from fakegpu_lab.course.lessons import lesson_library

    folder = _text(asked, "folder", "")
    listed = lesson_library.listing(folder or ".")
    if not folder:
        folder = "."
        if not any(entry.notebook for entry in listed):
            folder, listed = FOLDER, lesson_library.listing(FOLDER)
    return {"folder": folder, "lessons": [entry.model_dump(mode="json") for entry in listed]}


def _fetch(asked: Mapping[str, Any]) -> dict[str, str]:
    from fakegpu_lab.course.lessons import lesson_library

    name, folder = _text(asked, "name"), _text(asked, "folder", ".")
    return {"notebook": lesson_library.fetch(name, folder, newer=bool(asked.get("newer")))}


def _start_over(asked: Mapping[str, Any]) -> dict[str, str]:
    from fakegpu_lab.course.lessons import lesson_library

    return {"backup": lesson_library.start_over(_text(asked, "name"), _text(asked, "folder", "."))}


def _notebook(asked: Mapping[str, Any]) -> dict[str, Any]:
    from fakegpu_lab.course.lessons import lesson, progress

    name, folder = _text(asked, "name"), _text(asked, "folder", ".")
    about = lesson.find(name, folder)
    path = progress.path_for(name, folder)
    done = progress.read(path).lessons.get(name) if path is not None else None
    room = _room()
    exercises = []
    for one in about.exercises:
        own = (done.exercises.get(one.id) if done is not None else None) or progress.ExerciseProgress()
        exercises.append(
            {
                "id": one.id, "title": one.title, "points": one.points, "hints": len(one.hints),
                "seen": own.hints, "best": own.best, "attempts": own.attempts, "solved": own.solved,
            }
        )  # fmt: skip
    loaded = room is not None and room.lesson is not None and room.lesson.name == name
    return {"name": name, "title": about.title, "goal": about.goal, "loaded": loaded, "exercises": exercises}


def _hint(asked: Mapping[str, Any]) -> dict[str, Any]:
    from fakegpu_lab.course.lessons import lesson
    from fakegpu_lab.course.lessons.classroom import Classroom

    name, folder = _text(asked, "name"), _text(asked, "folder", ".")
    room = _room()
    if room is None or room.lesson is None or room.lesson.name != name:
        room = Classroom(lesson.find(name, folder), folder)
    hints, left = room.next_hint(_text(asked, "exercise"))
    return {"hints": list(hints), "left": left}


def _room() -> Classroom | None:
    """What this kernel knows of the lesson that its notebook is."""
    shell = environment.shell()
    magics = shell.magics_manager.registry.get("CourseMagics") if shell is not None else None
    room: Classroom | None = getattr(magics, "room", None)
    return room


def _text(asked: Mapping[str, Any], name: str, otherwise: str | None = None) -> str:
    value = asked.get(name, otherwise)
    if not isinstance(value, str):
        raise TypeError(name)
    return value


_ANSWERS: dict[str, Callable[[Mapping[str, Any]], object]] = {
    "profiles": _profiles, "lessons": _lessons, "fetch": _fetch, "start over": _start_over, "notebook": _notebook,
    "hint": _hint,
}  # fmt: skip
