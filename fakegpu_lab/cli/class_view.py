"""``fakegpu-lab class FOLDER``: a page that shows which exercise each student is at, from what students share."""

from __future__ import annotations

import os
import time
from pathlib import Path

from rich.console import Group
from rich.live import Live
from rich.table import Table

from fakegpu_lab.cli.plain_console import PlainConsole
from fakegpu_lab.course import class_view, whole_file
from fakegpu_lab.formatting.units import several
from fakegpu_lab.hardware.errors import FakeGpuError

TO_SHARE = "Students share their progress with %share {}"


def show(folder: str, written: str | None, seconds: float, *, once: bool) -> int:
    """Show the class in the terminal and, with `written`, on a page, again and again until Ctrl-C.

    Raises
    ------
    FakeGpuError
        There is no such folder, or it cannot be read.
    """
    place = Path(folder)
    if not place.is_dir():
        raise FakeGpuError(
            f"There is no folder {folder}. Make one that everyone may write to and only you may list: "
            f"mkdir {folder} && chmod 1733 {folder}"
        )
    console = PlainConsole()
    try:
        os.listdir(place)  # noqa: PTH208 - only whether it may be listed
        if once:
            console.print(_look(place, written, seconds))
            return 0
        with Live(_look(place, written, seconds), console=console, auto_refresh=False) as live:
            while True:
                time.sleep(seconds)
                live.update(_look(place, written, seconds), refresh=True)
    except PermissionError as error:
        raise FakeGpuError(f"{error.filename}: you may not read or write here.") from None
    except KeyboardInterrupt:
        return 0


def _look(place: Path, written: str | None, seconds: float) -> Group:
    view = class_view.look(place)
    if written:
        with whole_file.writing(Path(written)) as file:
            file.write(class_view.page(view, str(place), seconds))
    students = Table(title=f"{several(len(view.students), 'student')} in {place}", title_justify="left")
    for head in class_view.STUDENT_HEADS:
        students.add_column(head.lower(), justify="right" if head == "Attempts" else "left")
    for row in view.students:
        name, *others = row.cells
        students.add_row(f"● {name}" if row.stuck else name, *others)
    exercises = Table(title="Exercises", title_justify="left")
    for head in class_view.EXERCISE_HEADS:
        exercises.add_column(head.lower())
    for each in view.exercises:
        exercises.add_row(*each.cells)
    return Group(students, exercises) if view.students else Group(TO_SHARE.format(place))
