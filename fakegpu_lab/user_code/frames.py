"""Frames and lines of a program: whose code a file is, walking over frames, naming a line, trimming a traceback.

`kind` is the one answer to "whose code is it?"; the questions that are asked of it are sums of kinds:

- `OWN`, the program itself: whose clock is simulated, who called ``torch.compile``, what a submission wrote.
- `SHOWN`, the program and the libraries that it uses, but torch: a record's line is the innermost of these. So a step
  of a library's training loop shows the library's lines, and below them the program's (`stack`).

A file's kind goes by its folder. The frames of a traceback that `trim` removes are ours and IPython's; the rest is what
the same error shows on a real GPU: the cell's lines, those of libraries in between, and CUDA's message.
"""

from __future__ import annotations

import linecache
import os
import sys
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from fakegpu_lab.user_code import environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType

OURS, TORCH, PYTHON, PLUMBING, LAUNCHER, LIBRARY, PROGRAM, CELL = (1 << place for place in range(8))
"""Kinds of files: this package; torch; Python's own modules, and code that Python, `timeit` and NumPy generate; IPython
and its kernel; what runs the user's kernels (Triton, numba); any other installed package; the program's scripts and
modules; a cell of the notebook."""
OWN = PROGRAM | CELL
SHOWN = OWN | LIBRARY

OUR_FOLDER = os.path.realpath(environment.PACKAGE) + os.sep
STANDARD_LIBRARY = os.path.realpath(Path(os.__file__).parent) + os.sep
_PACKAGE_FOLDERS = ("site-packages", "dist-packages")
_GENERATED = ("<frozen ", "<timeit-src>", "<magic-timeit>", "<__array_function__")
"""How the names of code begin that has no file, and that the program did not write."""
_PACKAGES = {
    "torch": TORCH, "functorch": TORCH, "typing_extensions": PYTHON, "IPython": PLUMBING, "ipykernel": PLUMBING,
    "triton": LAUNCHER, "numba": LAUNCHER, "numba_cuda": LAUNCHER,
}  # fmt: skip
_MAGICS = frozenset({"run_cell_magic", "run_line_magic"})
_DEEPEST = 12
"""The most frames of a stack that are kept."""

_kinds: dict[str, int] = {}


def kind(file: str) -> int:
    """The kind of a file of code (``co_filename``)."""
    known = _kinds.get(file)
    if known is None:
        known = _kinds[file] = classified(file)
    return known


def classified(file: str) -> int:
    """`kind`, from scratch: no earlier answer counts."""
    if file.startswith(_GENERATED):
        return PYTHON
    real = file if file.startswith("<") else os.path.realpath(file)
    if real.startswith(_cache_of_inductor()):
        return TORCH
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    if real.startswith(OUR_FOLDER):
        return OURS
    if torch is not None and real.startswith(os.path.realpath(Path(torch).parent) + os.sep):
        return TORCH
    installed = package(file) or package(real)
    if installed is not None:
        return _PACKAGES.get(installed, LIBRARY)
    if real.startswith(STANDARD_LIBRARY):
        return PYTHON
    return CELL if cell(file) else PROGRAM


def _cache_of_inductor() -> tuple[str, ...]:
    """Where torch.compile writes the code that it generates."""
    folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR")  # Inductor sets it before it writes
    return (os.path.realpath(folder) + os.sep,) if folder else ()


def package(file: str) -> str | None:
    """The installed package that a file belongs to."""
    parts = Path(file).parts
    places = [place for place, part in enumerate(parts[:-1]) if part in _PACKAGE_FOLDERS]
    return parts[places[-1] + 1].removesuffix(".py") if places else None


# ------------------------------------------------------------------- frames


def walk(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and its callers, innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def steps(traceback: TracebackType | None) -> Iterator[TracebackType]:
    """The steps of a traceback, outermost first."""
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def position(code: CodeType, instruction: int) -> tuple[int | None, int | None] | None:
    """The line and column of what code calls at an instruction (``f_lasti``), which Python 3.10 does not know."""
    positions = getattr(code, "co_positions", None)
    if positions is None:
        return None
    line, _, column, _ = next(islice(positions(), instruction // 2, None))
    return line, column


def innermost(frame: FrameType | None, kinds: int = SHOWN) -> FrameType | None:
    """The innermost frame of some kinds, from `frame` outwards."""
    while frame is not None and not kind(frame.f_code.co_filename) & kinds:
        frame = frame.f_back
    return frame


def line_of(frame: FrameType | None) -> str:
    """The line that a frame is running, as ``file:number``; empty without a frame."""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


def user_line() -> str:
    """The innermost line of the user's program on the calling thread's stack, as ``file:number``; or empty."""
    return line_of(innermost(sys._getframe(1)))


def stack(frame: FrameType | None) -> tuple[tuple[str, str], ...]:
    """The program's lines and functions from `frame` outwards, up to the cell or the script that was started."""
    found: list[tuple[str, str]] = []
    while len(found) < _DEEPEST and (frame := innermost(frame)) is not None:
        name = frame.f_code.co_name
        found.append((line_of(frame), name))
        if name == "<module>":
            break
        frame = frame.f_back
    return tuple(found)


# -------------------------------------------------------------------- lines


class Place(NamedTuple):
    """A line of a program: its name for people, and its text (empty if the file cannot be read)."""

    label: str
    text: str


def place(line: str) -> Place:
    """Where a record's `line` (``file:number``) is: ``In[4], line 3``, or ``train.py:3``.

    A notebook's cell is called by its prompt, a file below the current folder by its path from there, any other file by
    its name. What is not a ``file:number``, as in recordings that were made on another computer, is a place itself.
    """
    name, _, number = line.rpartition(":")
    if not (name and number.isdecimal()):
        return Place(line, "")
    text = linecache.getline(name, int(number)).strip()
    prompt = cell(name)
    label = f"{prompt}, line {number}" if prompt else f"{_short(name, os.getcwd())}:{number}"  # noqa: PTH109 - a string
    return Place(label, text)


def quoted(line: str) -> str:
    """A line given as ``file:number``, as messages quote it: its place and its text."""
    where = place(line)
    return ": ".join(part for part in where if part) or "not in your program"


def cell(file: str) -> str:
    """IPython's name of a cell, such as ``In[3]``; empty if the file is not a cell."""
    shell = environment.shell()
    found = shell.compile.format_code_name(file) if shell is not None else None
    return str(found[1]) if found else ""


@lru_cache(maxsize=1024)
def _short(name: str, folder: str) -> str:
    path = Path(name)
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name


# --------------------------------------------------------------- tracebacks


def trim(error: BaseException, *, to_users_line: bool = False) -> None:
    """Remove the frames of magics and of this package from the tracebacks of an error and of its causes.

    With `to_users_line`, also torch's below the user's last line: for errors that a real GPU does not have.
    A traceback that would have no frame left stays whole: the error is ours. ``FAKEGPU_LAB_DEBUG=1`` keeps all frames.
    """
    seen: set[int] = set()
    one: BaseException | None = None if environment.DEBUG else error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        one.__traceback__ = _trimmed(one.__traceback__, to_users_line)
        one = one.__cause__ or one.__context__


def _trimmed(traceback: TracebackType | None, to_users_line: bool) -> TracebackType | None:
    whole = _below_magic([(step, kind(step.tb_frame.f_code.co_filename)) for step in steps(traceback)])
    last = max((place for place, (_, its) in enumerate(whole) if not its & (OURS | PLUMBING | TORCH)), default=-1)
    # From our first frame after the user's last on, all frames (torch's too) stand for C++.
    ends = TORCH | OURS if to_users_line else OURS
    end = next((place for place in range(last + 1, len(whole)) if whole[place][1] & ends), len(whole))
    kept = [step for step, its in whole[:end] if not its & (OURS | PLUMBING)]
    if not kept:
        return traceback
    trimmed = None
    for step in reversed(kept):
        trimmed = TracebackType(trimmed, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return trimmed


def _below_magic(whole: list[tuple[TracebackType, int]]) -> list[tuple[TracebackType, int]]:
    """The steps after IPython's call of a magic: the line that calls it is Jupyter's, not the user's."""
    for place, (step, its) in enumerate(whole):
        if its == PLUMBING and step.tb_frame.f_code.co_name in _MAGICS:
            return whole[place + 1 :]
    return whole
