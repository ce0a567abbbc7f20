"""What was handed in: nbgrader's folders, loose notebooks, or the zip of a learning platform."""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from pathlib import Path, PurePosixPath

from pydantic import BaseModel

from fakegpu_lab.course.grade.sandbox.limits import LARGEST
from fakegpu_lab.hardware.errors import FakeGpuError

_PLATFORM = re.compile(r"(_assignsubmission_file(_.*)?|_onlinetext(_.*)?)$")  # Moodle's folders


class Submission(BaseModel):
    """What one student handed in.

    Attributes
    ----------
    student
        From the folder's or the file's name.
    notebook
        The file's bytes.
    files
        What else lies beside it, by relative path.
    problem
        Why there is no notebook to grade; empty if there is one.
    """

    student: str
    notebook: bytes = b""
    files: dict[str, bytes] = {}
    timestamp: str = ""
    problem: str = ""
    notes: list[str] = []

    @property
    def digest(self) -> str:
        """What the outcome depends on."""
        found = hashlib.sha256(self.student.encode() + b"\0" + self.problem.encode() + b"\0" + self.notebook)
        for name in sorted(self.files):
            found.update(name.encode() + b"\0" + hashlib.sha256(self.files[name]).digest())
        return found.hexdigest()


def collect(path: Path, assignment: str, notebook: str, pattern: str | None = None) -> list[Submission]:
    """Find every submission in a folder or a zip, sorted by student.

    Parameters
    ----------
    path
        A folder as nbgrader has it (``student/assignment/notebook.ipynb``), folders of students, loose notebooks
        named after them, or a zip of any of these.
    assignment, notebook
        The lesson's name and its notebook's.
    pattern
        A regular expression with one group, which finds the student in the notebook's relative path.

    Raises
    ------
    FakeGpuError
        There is no such folder, it is empty, or the zip cannot be read.
    """
    if path.is_dir():
        tree = _folder(path)
    elif path.is_file() and zipfile.is_zipfile(path):
        tree = _zip(path.read_bytes(), str(path))
    elif path.is_file() and path.suffix == ".ipynb":
        tree = {path.name: path.read_bytes()}
    elif path.exists():
        raise FakeGpuError(f"{path} is neither a folder nor a zip.")
    else:
        raise FakeGpuError(f"There are no submissions in {path}: there is no such folder.")
    found = _grouped(_unpacked(tree), assignment, notebook, pattern)
    if not found:
        raise FakeGpuError(f"There are no submissions in {path}: it is empty.")
    return sorted(found, key=lambda one: one.student)


def _folder(path: Path) -> dict[str, bytes]:
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


def _zip(raw: bytes, name: str) -> dict[str, bytes]:
    """Unpack in memory: no name in a zip can reach a file of this computer, and no file in it grows without bounds."""
    tree: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            for member in archive.infolist():
                inside = PurePosixPath(member.filename.replace("\\", "/"))
                if ".." in inside.parts or inside.is_absolute() or "__MACOSX" in inside.parts:
                    continue
                if any(part.startswith(".") for part in inside.parts):
                    continue
                if member.is_dir():
                    tree[inside.as_posix() + "/"] = b""
                    continue
                with archive.open(member) as file:
                    tree[inside.as_posix()] = file.read(LARGEST + 1)
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError) as error:  # also: encrypted
        raise FakeGpuError(f"The zip {name} cannot be read: {error}.") from None
    return tree


def _unpacked(tree: dict[str, bytes]) -> dict[str, bytes]:
    """Open zips within: students hand them in."""
    found: dict[str, bytes] = {}
    for name, content in tree.items():
        if name.endswith(".zip"):
            try:
                inner = _zip(content, name)
            except FakeGpuError:
                found[name] = content
                continue
            base = name.removesuffix(".zip")
            found |= {f"{base}/{inside}": raw for inside, raw in inner.items()}
        else:
            found[name] = content
    return found


def _grouped(tree: dict[str, bytes], assignment: str, notebook: str, pattern: str | None) -> list[Submission]:
    groups: dict[str, dict[str, bytes]] = {}
    for name, content in tree.items():
        parts = name.split("/")
        if len(parts) == 1:
            if name.endswith(".ipynb"):
                groups.setdefault(f"\0{name}", {})[name] = content
        else:
            groups.setdefault(parts[0], {})["/".join(parts[1:])] = content
    if len(groups) == 1 and pattern is None:  # a zip often has one folder around everything
        (only, inside), *_ = groups.items()
        students = {name.split("/")[0] for name in inside if "/" in name}
        notebooks = [name for name in inside if name.endswith(".ipynb") and "/" not in name]
        if not only.startswith("\0") and assignment not in students and (len(students) > 1 or len(notebooks) > 1):
            return _grouped(inside, assignment, notebook, None)
    found = []
    for key, files in groups.items():
        found += _submission(key, files, assignment, notebook, pattern)
    names: dict[str, int] = {}
    for one in found:
        names[one.student] = count = names.get(one.student, 0) + 1
        if count > 1:
            one.notes.append(f"there is more than one submission of {one.student}")
            one.student = f"{one.student} ({count})"
    return found


def _submission(
    key: str, files: dict[str, bytes], assignment: str, notebook: str, pattern: str | None
) -> list[Submission]:
    loose = key.startswith("\0")
    student = _student(key[1:].removesuffix(".ipynb"), notebook) if loose else _PLATFORM.sub("", key)
    mine = {name.split("/", 1)[1]: raw for name, raw in files.items() if name.startswith(f"{assignment}/")}
    others = {name.split("/")[0] for name in files if "/" in name}
    if not mine and not loose and others and not any(name.endswith(".ipynb") for name in files if "/" not in name):
        deep = [name for name in files if name.endswith(".ipynb")]
        if len(deep) == 1:
            folder = deep[0].rsplit("/", 1)[0] + "/"
            mine = {name.removeprefix(folder): raw for name, raw in files.items() if name.startswith(folder)}
    files = {name: raw for name, raw in (mine or files).items() if not name.endswith("/")}
    stamp = files.pop("timestamp.txt", b"").decode("utf-8", "replace").strip()[:100]
    made = Submission(student=student, timestamp=stamp)
    notebooks = [name for name in files if name.endswith(".ipynb")]
    named = [name for name in notebooks if Path(name).stem == notebook]
    if len(notebooks) == 0:
        made.problem = "there is no notebook in it"
        return [made]
    chosen = min(named or notebooks, key=lambda name: (name.count("/"), len(name), name))
    if len(notebooks) > 1:
        made.notes.append(f"it has {len(notebooks)} notebooks: {chosen} was graded")
    if pattern is not None:
        found = re.search(pattern, f"{key.strip(chr(0))}" if loose else f"{key}/{chosen}")
        made.student = found.group(1) if found and found.groups() else student
    made.notebook = files[chosen]
    total = 0
    for name, raw in sorted(files.items()):
        total += len(raw)
        if name not in notebooks:
            if total > LARGEST:
                made.notes.append("it has more files than 50 MiB: some were left behind")
                break
            made.files[name] = raw
    return [made]


def _student(stem: str, notebook: str) -> str:
    """Who handed in a loose notebook: its name, without the lesson's."""
    for affix in (f"{notebook}_", f"{notebook}-"):
        stem = stem.removeprefix(affix)
    for affix in (f"_{notebook}", f"-{notebook}"):
        stem = stem.removesuffix(affix)
    return stem or notebook
