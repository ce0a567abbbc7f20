"""``fakegpu-lab lesson new``, ``exercise``, ``check`` and ``release``: writing lessons."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from fakegpu_lab.course.authoring import add
from fakegpu_lab.course.authoring import check as checks
from fakegpu_lab.course.authoring import new as begin
from fakegpu_lab.course.grade import graded_lesson as graded
from fakegpu_lab.course.lessons import progress
from fakegpu_lab.course.lessons import release as releases
from fakegpu_lab.course.lessons.lesson import FILE
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from fakegpu_lab.course.authoring.check import Finding


def _course_root() -> Path:
    """The folder with ``source/``: here, or ``lessons``; without one, here."""
    for root in (Path(), Path("lessons")):
        if (root / "source").is_dir():
            return root
    return Path()


def _folder(path: str) -> Path:
    """A lesson's source folder, named by a path, or by its name in the course, or the beginning of one (``03``).

    Raises
    ------
    FakeGpuError
        There is none.
    """
    if Path(path).is_file():
        path = str(Path(path).parent)
    folder = Path(path) if (Path(path) / FILE).is_file() else graded.find(path, [_course_root()])
    if not (folder / FILE).is_file():
        raise FakeGpuError(f"{folder} has no {FILE}: a lesson is a folder with a {FILE} and a notebook.")
    return folder


def _all(paths: tuple[str, ...]) -> list[Path]:
    if paths:
        return [_folder(path) for path in paths]
    found = sorted(path.parent for path in (_course_root() / "source").glob(f"*/{FILE}"))
    if not found:
        raise FakeGpuError("There are no lessons in source/ here: name the folder of one.")
    return found


def new(name: str) -> None:
    """Make a lesson, and say what to do with it."""
    folder = begin.write(name, _course_root() / "source")
    print(f"Made {folder}: open {folder / f'{name}.ipynb'} in JupyterLab, and write.")
    print(f"Then: fakegpu-lab lesson check {name}, and fakegpu-lab lesson release {name}.")


def exercise(path: str, name: str) -> None:
    """Add an exercise, and say what to do with it."""
    notebook = add.add(_folder(path), name)
    print(f"Added {name} to {notebook} and to the {FILE} beside it: if the notebook is open, reload it. Then write.")


def check(paths: tuple[str, ...], jobs: int, nbval: bool) -> int:
    """Check lessons; 1 if something is wrong."""
    console = Console(highlight=False, soft_wrap=True)
    well = True
    for folder in _all(paths):
        console.print(folder.resolve().name, style="bold", markup=False)

        def tell(finding: Finding) -> None:
            sign, style = ("✗", "red") if finding.wrong else ("✓", "green")
            console.print(f"  [{style}]{sign}[/] ", end="")
            console.print(finding.what, markup=False)
            for sentence in finding.wrong:
                console.print(f"      {sentence}", markup=False)

        well &= checks.check(folder, tell, jobs=jobs, nbval=nbval)
    return 0 if well else 1


def clean(paths: tuple[str, ...]) -> None:
    """Take out of the notebooks what running them left there, and their author's own progress beside them."""
    for folder in _all(paths):
        for notebook in sorted(folder.glob("*.ipynb")):
            if releases.clean(notebook):
                print(f"Cleaned {notebook}")
        kept = folder.resolve().parent / progress.FILE
        if progress.forget(kept, folder.resolve().name):
            print(f"Took {folder.resolve().name} out of {kept.name}")


def release(paths: tuple[str, ...], into: str | None) -> None:
    """Make lessons as students get them."""
    for folder in _all(paths):
        target = (Path(into) if into else folder.resolve().parent.parent / "release") / folder.resolve().name
        releases.release(folder, target)
        print(f"Released {target}")
