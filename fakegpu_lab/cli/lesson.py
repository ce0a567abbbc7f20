"""``fakegpu-lab lesson``: ``new``, ``exercise``, ``rename``, ``points``, ``check``, ``clean`` and ``release``.

Each imports what it needs: ``new`` and ``exercise`` answer at once, without nbformat, which takes seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fakegpu_lab.course.lessons.lesson import FILE, find_source
from fakegpu_lab.formatting.units import several
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from fakegpu_lab.course.authoring.check import Finding


def _course_root() -> Path:
    """The folder that has ``source/``: this one or ``lessons``; if neither has, this one."""
    for root in (Path(), Path("lessons")):
        if (root / "source").is_dir():
            return root
    return Path()


def _folder(path: str) -> Path:
    """A lesson's source folder, given its path, its name in the course, or the beginning of that name (``03``).

    Raises
    ------
    FakeGpuError
        There is no such lesson.
    """
    if Path(path).is_file():
        path = str(Path(path).parent)
    folder = Path(path) if (Path(path) / FILE).is_file() else find_source(path, [_course_root()])
    if not (folder / FILE).is_file():
        raise FakeGpuError(f"{folder} has no {FILE}: a lesson is a folder with a {FILE} and a notebook.")
    return folder


def _folders(paths: tuple[str, ...]) -> list[Path]:
    if paths:
        return [_folder(path) for path in paths]
    found = sorted(path.parent for path in (_course_root() / "source").glob(f"*/{FILE}"))
    if not found:
        raise FakeGpuError("There are no lessons in source/ here: name the folder of one.")
    return found


def new(name: str) -> None:
    """Make a lesson, and print what to do next."""
    from fakegpu_lab.course.authoring import new as begin

    folder = begin.write(name, _course_root() / "source")
    print(f"Created {folder}. Open {folder / f'{name}.ipynb'} in JupyterLab to write it.")
    print(f"Then: fakegpu-lab lesson check {name}, and fakegpu-lab lesson release {name}.")


def exercise(path: str, name: str) -> None:
    """Add an exercise, and print what to do next."""
    from fakegpu_lab.course.authoring import add

    notebook = add.add(_folder(path), name)
    print(f"Added {name} to {notebook} and to the {FILE} next to it. If the notebook is open, reload it.")


def rename(path: str, old: str, new: str) -> None:
    """Give an exercise another name everywhere."""
    from fakegpu_lab.course.authoring import rename as renaming

    folder = _folder(path)
    cells = renaming.rename(folder, old, new)
    print(f"Renamed {old} to {new} in {cells} cells of {folder.name}.ipynb and in {FILE}.")
    print("If the notebook is open, reload it. Texts that mention the exercise are not changed.")


def points(paths: tuple[str, ...]) -> None:
    """Take the points of exercises from their checks."""
    from fakegpu_lab.course.authoring import rename as renaming

    for folder in _folders(paths):
        for sentence in renaming.points(folder) or ["all points agree"]:
            print(f"{folder.name}: {sentence}")


def check(paths: tuple[str, ...], jobs: int, nbval: bool, only: str | None) -> int:
    """Check lessons, and return the exit status: 1 if something is wrong."""
    from rich.console import Console

    from fakegpu_lab.course.authoring import check as checks

    console = Console(highlight=False, soft_wrap=True)
    all_right = True
    for folder in _folders(paths):
        console.print(folder.resolve().name, style="bold", markup=False)

        def show(finding: Finding) -> None:
            sign, style = ("✗", "red") if finding.wrong else ("✓", "green")
            console.print(f"  [{style}]{sign}[/] ", end="")
            console.print(finding.what, markup=False)
            for sentence in finding.wrong:
                console.print(f"      {sentence}", markup=False)

        def begun(what: str) -> None:
            console.print(f"  … {what}", style="dim", markup=False)

        all_right &= checks.check(folder, show, jobs=jobs, nbval=nbval, only=only, begun=begun)
    return 0 if all_right else 1


def clean(paths: tuple[str, ...]) -> None:
    """Remove outputs and widget state from the notebooks, and the author's own progress from the file beside them."""
    from fakegpu_lab.course.lessons import progress
    from fakegpu_lab.course.lessons import release as releases

    for folder in _folders(paths):
        for notebook in sorted(folder.glob("*.ipynb")):
            if releases.clean(notebook):
                print(f"Cleaned {notebook}")
        kept = folder.resolve().parent / progress.FILE
        if progress.forget(kept, folder.resolve().name):
            print(f"Removed {folder.resolve().name} from {kept.name}")


def release(paths: tuple[str, ...], into: str | None) -> None:
    """Write the lessons as students get them."""
    from fakegpu_lab.course.lessons import release as releases

    for folder in _folders(paths):
        target = (Path(into) if into else folder.resolve().parent.parent / "release") / folder.resolve().name
        releases.release(folder, target)
        before = {one.digest for one in releases.kept(folder)}
        version = releases.keep(folder)
        print(f"Released {target}" + (f"; kept as version {version}" if version else ""))
        if others := before - {version}:
            print(f"  Notebooks of {several(len(others), 'earlier version')} are still graded by what they came from.")
