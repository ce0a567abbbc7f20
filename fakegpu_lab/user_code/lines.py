"""Lines of a program, as people know them: a notebook's cell by its prompt, a file by its path from here."""

from __future__ import annotations

import linecache
import os
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from fakegpu_lab.user_code import environment


class Place(NamedTuple):
    """A line of a program: its name for people, and its text (empty if the file cannot be read)."""

    label: str
    text: str


def place(line: str) -> Place:
    """Where a record's `line` (``file:number``) is.

    A notebook's cell is called by its prompt, a file below the current folder by its path from there, any other file by
    its name.
    """
    if not line:
        return Place("", "")
    name, _, number = line.rpartition(":")
    text = linecache.getline(name, int(number)).strip()
    cell = _cell(name)
    if cell:
        return Place(f"{cell} line {number}", text)
    return Place(f"{_short(name, os.getcwd())}:{number}", text)  # noqa: PTH109 - a string, and faster


@lru_cache(maxsize=1024)
def _short(name: str, folder: str) -> str:
    path = Path(name)
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name


def _cell(name: str) -> str:
    """IPython's name of a cell, such as ``In[3]``; empty if the file is not a cell."""
    shell = environment.shell()
    found = shell.compile.format_code_name(name) if shell is not None else None
    return str(found[1]) if found else ""
