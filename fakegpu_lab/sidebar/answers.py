"""Answers to JupyterLab's sidebar, as JSON: it asks the kernel directly, without a server extension.

`answer` takes and returns text. A question is an object with ``ask``:

- ``profiles``: the GPUs and machines to choose from;
- ``lessons``: all lessons, with the student's copies and progress in ``folder``; by default that is the current folder
  if it has copies, and otherwise `FOLDER`;
- ``fetch``: copy lesson ``name`` to ``folder`` if it is not there (with ``newer``, also if an older edition is);
- ``start over``: give lesson ``name`` a fresh notebook in ``folder``, and keep the old one as a backup;
- ``notebook``: lesson ``name`` as a notebook in ``folder`` sees it: its exercises, hints and progress, and whether this
  kernel has run its ``%lesson``;
- ``hint``: the next hint of ``exercise`` in lesson ``name``; the student's progress counts it.

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
"""The version of questions and answers; it grows when a field changes its meaning."""

FOLDER = "fakegpu-lessons"
"""The default folder of a student's lessons."""


def answer(question: str) -> str:
    """Answer a question. Errors become answers with ``why``; nothing is raised."""
    try:
        request = json.loads(question)
        find = _ANSWERS[request["ask"]]
        return json.dumps({"version": VERSION, "ok": True, "told": find(request)})
    except FakeGpuError as error:
        why = str(error)
    except OSError as error:
        why = f"{error.filename}: {error.strerror}."
    except (ValueError, KeyError, TypeError):
        why = "The kernel does not understand this request: its fakegpu-lab and JupyterLab's differ too much."
    return json.dumps({"version": VERSION, "ok": False, "why": why})


def _profiles(_: Mapping[str, Any]) -> list[dict[str, Any]]:
    from fakegpu_lab.hardware.catalogue.lookup import catalogue, gpu, node

    single = [
        {
            "id": card.id,
            "name": card.name,
            "architecture": card.architecture,
            "memory": card.memory_bytes,  # the name that it is sold under: people look for 80 GB
            "total": card.total_memory_bytes,
            "cards": 1,
        }
        for card in map(gpu, catalogue("gpus"))
    ]
    machines = [
        {
            "id": machine.id,
            "name": machine.name,
            "architecture": "",
            "memory": sum(gpu(part.gpu).memory_bytes * part.count for part in machine.gpus),
            "total": sum(gpu(part.gpu).total_memory_bytes * part.count for part in machine.gpus),
            "cards": sum(part.count for part in machine.gpus),
        }
        for machine in map(node, catalogue("nodes"))
    ]
    return single + machines


def _lessons(request: Mapping[str, Any]) -> dict[str, Any]:
    from fakegpu_lab.course.lessons import lesson_library

    folder = _text(request, "folder", "")
    listed = lesson_library.listing(folder or ".")
    if not folder:
        folder = "."
        if not any(entry.notebook for entry in listed):
            folder, listed = FOLDER, lesson_library.listing(FOLDER)
    return {"folder": folder, "lessons": [entry.model_dump(mode="json") for entry in listed]}


def _fetch(request: Mapping[str, Any]) -> dict[str, str]:
    from fakegpu_lab.course.lessons import lesson_library

    name, folder = _text(request, "name"), _text(request, "folder", ".")
    return {"notebook": lesson_library.fetch(name, folder, newer=bool(request.get("newer")))}


def _start_over(request: Mapping[str, Any]) -> dict[str, str]:
    from fakegpu_lab.course.lessons import lesson_library

    return {"backup": lesson_library.start_over(_text(request, "name"), _text(request, "folder", "."))}


def _notebook(request: Mapping[str, Any]) -> dict[str, Any]:
    from fakegpu_lab.course.lessons import lesson, progress

    name, folder = _text(request, "name"), _text(request, "folder", ".")
    about = lesson.find(name, folder)
    path = progress.path_for(name, folder)
    done = progress.read(path).lessons.get(name) if path is not None else None
    room = _room()
    exercises = []
    for exercise in about.exercises:
        own = (done.exercises.get(exercise.id) if done is not None else None) or progress.ExerciseProgress()
        exercises.append(
            {
                "id": exercise.id, "title": exercise.title, "points": exercise.points, "hints": len(exercise.hints),
                "seen": own.hints, "best": own.best, "attempts": own.attempts, "solved": own.solved,
            }
        )  # fmt: skip
    loaded = room is not None and room.lesson is not None and room.lesson.name == name
    return {"name": name, "title": about.title, "goal": about.goal, "loaded": loaded, "exercises": exercises}


def _hint(request: Mapping[str, Any]) -> dict[str, Any]:
    from fakegpu_lab.course.lessons import lesson
    from fakegpu_lab.course.lessons.classroom import Classroom

    name, folder = _text(request, "name"), _text(request, "folder", ".")
    room = _room()
    if room is None or room.lesson is None or room.lesson.name != name:
        room = Classroom(lesson.find(name, folder), folder)
    hints, left = room.next_hint(_text(request, "exercise"))
    return {"hints": list(hints), "left": left}


def _room() -> Classroom | None:
    """The lesson that this kernel's notebook has loaded with ``%lesson``, if any."""
    shell = environment.shell()
    magics = shell.magics_manager.registry.get("CourseMagics") if shell is not None else None
    room: Classroom | None = getattr(magics, "room", None)
    return room


def _text(request: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = request.get(name, default)
    if not isinstance(value, str):
        raise TypeError(name)
    return value


_ANSWERS: dict[str, Callable[[Mapping[str, Any]], object]] = {
    "profiles": _profiles, "lessons": _lessons, "fetch": _fetch, "start over": _start_over, "notebook": _notebook,
    "hint": _hint,
}  # fmt: skip
