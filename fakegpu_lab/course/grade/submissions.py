"""Finds submissions: in nbgrader's folders, as loose notebooks, or in a learning platform's zip."""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from pydantic import BaseModel

from fakegpu_lab.course.grade.sandbox.limits import LARGEST
from fakegpu_lab.formatting.printable import encodable
from fakegpu_lab.hardware.errors import FakeGpuError

TIMESTAMP = "timestamp.txt"
"""Where nbgrader collect puts the time of a submission."""
SECRET = "submission_secret.txt"
"""Where nbgrader collect puts a submission's secret."""
MOST_FILES = 2000
"""In a zip that a student made."""
_PLATFORM = re.compile(r"(_assignsubmission_file(_.*)?|_onlinetext(_.*)?)$")  # at the end of Moodle's folder names
_CANVAS = re.compile(r"([^\W_]+)(_LATE)?_(\d+)_(\d+)_.+")
"""``lovelaceada_LATE_4711_90210_notebook-1.ipynb``: the student, and the number of the file, which no other has."""


class Submission(BaseModel):
    """What one student handed in.

    Attributes
    ----------
    student
        The name, from the folder's or the file's.
    notebook
        The file's bytes.
    files
        The other files, by relative path.
    secret
        What nbgrader's exchange knows it by, so that feedback reaches only its student.
    problem
        Why there is nothing to grade; empty if there is a notebook.
    """

    student: str
    notebook: bytes = b""
    files: dict[str, bytes] = {}
    timestamp: str = ""
    secret: str = ""
    problem: str = ""
    notes: list[str] = []

    @property
    def digest(self) -> str:
        """A hash of everything that the outcome depends on."""
        found = hashlib.sha256(self.student.encode() + b"\0" + self.problem.encode() + b"\0" + self.notebook)
        for name in sorted(self.files):
            found.update(name.encode("utf-8", "surrogateescape") + b"\0" + hashlib.sha256(self.files[name]).digest())
        return found.hexdigest()


def collect(path: Path, assignment: str, notebook: str, pattern: str | None = None) -> list[Submission]:
    """Find every submission in a folder or a zip, sorted by student.

    Parameters
    ----------
    path
        nbgrader's folder (``student/assignment/notebook.ipynb``), folders of students, loose notebooks named after
        them, or a zip of any of these.
    assignment, notebook
        The lesson's name and its notebook's.
    pattern
        A regular expression whose one group finds the student in the notebook's relative path.

    Raises
    ------
    FakeGpuError
        There is no such folder, it is empty, or the zip cannot be read.
    """
    if path.is_dir():
        tree = _read_folder(path)
    elif path.is_file() and zipfile.is_zipfile(path):
        tree = _read_zip(path.read_bytes(), str(path))
    elif path.is_file() and path.suffix == ".ipynb":
        tree = {path.name: path.read_bytes()}
    elif path.exists():
        raise FakeGpuError(f"{path} is neither a folder nor a zip.")
    else:
        raise FakeGpuError(f"{path} does not exist.")
    found = _grouped(_unpacked(tree), assignment, notebook, pattern)
    if not found:
        raise FakeGpuError(f"There are no submissions in {path}: it is empty.")
    return sorted(found, key=lambda one: one.student)


def _read_folder(path: Path) -> dict[str, bytes]:
    tree: dict[str, bytes] = {}
    for file in sorted(path.rglob("*")):
        inside = file.relative_to(path)
        if any(part.startswith(".") or part == "__MACOSX" for part in inside.parts) or file.is_symlink():
            continue
        if any(parent.is_symlink() for parent in file.parents if path in parent.parents):
            continue
        if file.is_file():
            tree[inside.as_posix()] = file.read_bytes() if file.stat().st_size <= LARGEST else b"\0" * (LARGEST + 1)
        elif file.is_dir() and not any(file.iterdir()):
            tree[inside.as_posix() + "/"] = b""
    return tree


def _read_zip(raw: bytes, name: str, most: int | None = None) -> dict[str, bytes]:
    """Unpack in memory: no name in a zip can reach a file of this computer, no file in it grows without bounds.

    With `most`, all of them together have at most that many bytes, and there are at most `MOST_FILES`.
    """
    tree: dict[str, bytes] = {}
    total = 0
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            for member in archive.infolist():
                inside = PurePosixPath(member.filename.replace("\\", "/"))
                if ".." in inside.parts or inside.is_absolute() or "__MACOSX" in inside.parts or ":" in str(inside):
                    continue
                if any(part.startswith(".") for part in inside.parts):
                    continue
                if member.is_dir():
                    tree[inside.as_posix() + "/"] = b""
                    continue
                with archive.open(member) as file:
                    tree[inside.as_posix()] = file.read(LARGEST + 1)
                total += len(tree[inside.as_posix()])
                if most is not None and (total > most or len(tree) > MOST_FILES):
                    raise FakeGpuError(f"The zip {name} cannot be read: its contents are too large.")
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError) as error:  # also: encrypted
        raise FakeGpuError(f"The zip {name} cannot be read: {error}.") from None
    return tree


def _unpacked(tree: dict[str, bytes]) -> dict[str, bytes]:
    """Open zips inside: students hand them in."""
    found: dict[str, bytes] = {}
    for name, content in tree.items():
        if name.endswith(".zip"):
            try:
                inner = _read_zip(content, name, 2 * LARGEST)
            except FakeGpuError:
                found[name] = content
                continue
            base = name.removesuffix(".zip")
            found |= {
                f"{base}/{inside}": raw
                for inside, raw in inner.items()
                if inside.rpartition("/")[2] not in (TIMESTAMP, SECRET)  # what a student packed proves nothing
            }
        else:
            found[name] = content
    return found


class _Entry(NamedTuple):
    """One student's part of what was handed in: a top-level folder, or a loose notebook.

    Attributes
    ----------
    name
        The folder's name or the file's.
    loose
        Whether it is a notebook outside folders.
    files
        Contents by path in the folder; the path of an empty folder ends with a slash.
    """

    name: str
    loose: bool
    files: dict[str, bytes]


def _entries(tree: dict[str, bytes]) -> list[_Entry]:
    entries: dict[tuple[str, bool], _Entry] = {}
    for path, content in tree.items():
        name, slash, inside = path.partition("/")
        if slash:
            entries.setdefault((name, False), _Entry(name, False, {})).files[inside] = content
        elif name.endswith(".ipynb"):
            entries.setdefault((name, True), _Entry(name, True, {})).files[name] = content
    return list(entries.values())


def _grouped(tree: dict[str, bytes], assignment: str, notebook: str, pattern: str | None) -> list[Submission]:
    """A submission for each student, with unique names."""
    entries = _entries(tree)
    others = {name: raw for name, raw in tree.items() if "/" not in name and not name.endswith(".ipynb")}
    if len(entries) == 1 and pattern is None and _is_wrapper(entries[0], assignment):
        return _grouped(others | entries[0].files, assignment, notebook, None)
    found = [_submission(entry, assignment, notebook, pattern) for entry in entries]
    if pattern is None:
        _as_canvas_knows_them(found, entries, list(others))
    for name in others:
        _add_without_notebook(found, name, notebook, pattern)
    counts: dict[str, int] = {}
    for one in found:
        counts[one.student] = count = counts.get(one.student, 0) + 1
        if count > 1:
            one.notes.append(f"there is more than one submission of {one.student}")
            one.student = f"{one.student} ({count})"
    return found


def _as_canvas_knows_them(found: list[Submission], entries: list[_Entry], others: list[str]) -> None:
    """If all files have Canvas's names, call students by what stays the same when they hand in again."""
    names = [_CANVAS.fullmatch(name) for name in (*(entry.name for entry in entries), *others)]
    if all(names) and len({name[4] for name in names if name}) == len(names):
        for one, name in zip(found, names, strict=False):
            one.student = f"{name[1]}_{name[3]}" if name else one.student


def _is_wrapper(entry: _Entry, assignment: str) -> bool:
    """Whether it is no student's, but a folder around everything, as zips often have."""
    folders = {path.split("/")[0] for path in entry.files if "/" in path}
    notebooks = [path for path in entry.files if path.endswith(".ipynb") and "/" not in path]
    return not entry.loose and assignment not in folders and (len(folders) > 1 or len(notebooks) > 1)


def _submission(entry: _Entry, assignment: str, notebook: str, pattern: str | None) -> Submission:
    stem = entry.name.removesuffix(".ipynb")
    student = _student_of_file(stem, notebook) if entry.loose else _PLATFORM.sub("", entry.name)
    files = _files_of_assignment(entry.files, assignment)
    timestamp = files.pop(TIMESTAMP, b"").decode("utf-8", "replace").strip()[:100]
    secret = files.pop(SECRET, b"").decode("utf-8", "replace")[:1000]
    made = Submission(student=str(encodable(student)))
    collected = any(path in entry.files for path in (f"{assignment}/{TIMESTAMP}", f"{assignment}/{SECRET}"))
    if collected and not _PLATFORM.search(entry.name):
        made.timestamp, made.secret = timestamp, secret
    elif timestamp:
        made.notes.append(f"it came with a {TIMESTAMP}: only nbgrader's, in its own folders, is trusted")
    if re.search(r"_LATE_\d+", entry.name):
        made.notes.append("Canvas marked it as late")
    notebooks = [path for path in files if path.endswith(".ipynb")]
    if not notebooks:
        made.problem = "it contains no notebook"
        return made
    named = [path for path in notebooks if Path(path).stem == notebook]
    chosen = min(named or notebooks, key=lambda path: (path.count("/"), len(path), path))
    if len(notebooks) > 1:
        made.notes.append(f"it has {len(notebooks)} notebooks: {chosen} was graded")
    if pattern is not None:
        match = re.search(pattern, entry.name if entry.loose else f"{entry.name}/{chosen}")
        made.student = str(encodable(match.group(1) if match and match.groups() else student))
    made.notebook = files[chosen]
    _add_other_files(made, files)
    return made


def _add_without_notebook(found: list[Submission], name: str, notebook: str, pattern: str | None) -> None:
    """Add a file outside folders that is not a notebook: with whose notebook it came, or as all of a submission."""
    match = re.search(pattern, name) if pattern is not None else None
    stem = _PLATFORM.sub("", PurePosixPath(name).stem)
    student = str(encodable(match[1] if match and match.groups() else _student_of_file(stem, notebook)))
    number = number_in(student)
    for one in found:
        if one.student == student or (number and number_in(one.student) == number):
            one.notes.append(f"{encodable(name)} was handed in, too: it is not a notebook, and was left out")
            return
    found.append(Submission(student=student, problem=f"{encodable(name)} is not a notebook"))


def number_in(name: str) -> str:
    """A student's number in the name of a folder or a file that a platform made; empty if there is none.

    It is behind the first underscore: ``Ada Lovelace_4711`` (Moodle), ``lovelaceada_4711_90210`` (Canvas; the second is
    the submission's). Digits before that are the student's own choice.
    """
    found = re.search(r"_(\d+)(?=_|$)", name)
    return found[1] if found else ""


def _files_of_assignment(files: dict[str, bytes], assignment: str) -> dict[str, bytes]:
    """The files in the assignment's folder; without one, those beside the only notebook; else all."""
    folder = f"{assignment}/"
    notebooks = [path for path in files if path.endswith(".ipynb")]
    if not any(path.startswith(folder) for path in files) and len(notebooks) == 1:
        folder = notebooks[0].rpartition("/")[0] + "/"
    mine = {path.removeprefix(folder): content for path, content in files.items() if path.startswith(folder)}
    return {  # a zip's entry for the folder itself has an empty path here
        path: content for path, content in (mine or files).items() if path and not path.endswith("/")
    }


def _add_other_files(submission: Submission, files: dict[str, bytes]) -> None:
    """Keep what is not a notebook, up to `LARGEST` bytes together with the notebooks."""
    total = 0
    for path, content in sorted(files.items()):
        total += len(content)
        if path.endswith(".ipynb"):
            continue
        if total > LARGEST:
            submission.notes.append("it has more than 50 MiB of files: some were left out")
            break
        submission.files[path] = content


def _student_of_file(stem: str, notebook: str) -> str:
    """The student's name from that of a loose notebook, without the lesson's."""
    for affix in (f"{notebook}_", f"{notebook}-"):
        stem = stem.removeprefix(affix)
    for affix in (f"_{notebook}", f"-{notebook}"):
        stem = stem.removesuffix(affix)
    return stem or notebook
