"""Runs a script, a module or code as ``python`` does: in a fresh ``__main__``, with the tracebacks of python."""

from __future__ import annotations

import builtins
import importlib.machinery
import importlib.util
import io
import os
import re
import shlex
import shutil
import sys
import types
from importlib import metadata
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING

from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.user_code import frames

if TYPE_CHECKING:
    from collections.abc import Callable

INTERRUPTED = 130
"""The exit status of a program that Ctrl-C ended: 128 + SIGINT, as in a shell."""


class Program:
    """A program to run.

    Attributes
    ----------
    main
        The module that becomes ``__main__``, before its code has run.
    argv
        The program's ``sys.argv``.
    """

    def __init__(self, main: types.ModuleType, code: Callable[[], types.CodeType], argv: list[str]) -> None:
        self.main = main
        self.argv = argv
        self._code = code

    def execute(self) -> int:
        """Run the program and return its exit status; ``SystemExit`` passes through."""
        sys.argv[:] = self.argv
        sys.modules["__main__"] = self.main  # for good: the program's exit handlers and threads need it
        try:
            code = self._code()
        except Exception as error:  # a SyntaxError, most likely
            return _report(error.with_traceback(None))
        try:
            exec(code, vars(self.main))
        except SystemExit:
            raise
        except KeyboardInterrupt as interrupt:
            frame = interrupt.__traceback__ and interrupt.__traceback__.tb_next
            where = f" in line {frame.tb_lineno} of {self.argv[0]}" if frame else ""
            print(f"fakegpu-lab: interrupted{where}", file=sys.stderr)
            return INTERRUPTED
        except BaseException as error:
            frames.trim(error)
            return _report(error)
        return 0


def _report(error: BaseException) -> int:
    sys.excepthook(type(error), error, error.__traceback__)
    postmortem = sys.modules.get("fakegpu_lab.notebook.out_of_memory.postmortem")  # imported unless --quiet
    found = postmortem.take() if postmortem is not None and postmortem.caused(error) else None
    if found is not None:
        print(f"\n{found}", file=sys.stderr)  # below the traceback
    return 1


def load(command: tuple[str, ...], *, module: bool = False, code: bool = False) -> Program:
    """The program that ``python command``, ``python -m command`` or ``python -c command`` would run.

    If the command itself begins with ``python``, the rest of it counts.

    Raises
    ------
    FakeGpuError
        If there is no such program.
    """
    name, args = command[0], command[1:]
    if module and code:
        raise FakeGpuError("-m runs a module, -c runs code: choose one of them.")
    if module:
        return _module(name, args)
    if code:
        return _code(name, args)
    if name == "-":
        return _stdin(args)
    if _PYTHON.fullmatch(Path(name).name) and (os.sep in name or not Path(name).is_file()):
        return _python(name, args)
    return _script(name, args)


_PYTHON = re.compile(r"python(\d+(?:\.\d+)?)?(?:\.exe)?")
_WITH_VALUE = ("-W", "-X")
"""Options of ``python`` whose value may be the next argument."""


def _python(name: str, args: tuple[str, ...]) -> Program:
    """The program that ``name args`` would run, where `name` is the Python that runs this."""
    version = _PYTHON.fullmatch(Path(name).name)[1] or ""  # type: ignore[index]
    elsewhere = os.sep in name and Path(name).absolute().parent != Path(sys.executable).parent
    if elsewhere or not f"{sys.version_info.major}.{sys.version_info.minor}.".startswith(
        f"{version}." if version else ""
    ):
        raise FakeGpuError(
            f"{name} is not the Python that runs fakegpu-lab ({sys.executable}): leave it out, or install fakegpu_lab "
            "there, too."
        )
    if not args:
        raise FakeGpuError(f"{name} alone would open a prompt: name a script, as in fakegpu-lab run {name} train.py.")
    first, rest = args[0], args[1:]
    if first in ("-m", "-c") and rest:
        return load(rest, module=first == "-m", code=first == "-c")
    if first != "-" and first.startswith("-"):
        own = 0  # how many of the arguments are Python's options
        while own < len(args) and args[own].startswith("-") and args[own] not in ("-m", "-c", "-"):
            own += 2 if args[own] in _WITH_VALUE else 1
        before = sys.argv[1 : -1 - len(args)]
        typed = shlex.join([name, *args[:own], "-m", "fakegpu_lab", *before, *args[own:]])
        raise FakeGpuError(f"{name} has started already, too early for its option {first}. Type this instead: {typed}")
    return load(args)


def _code(source: str, args: tuple[str, ...]) -> Program:
    _search_first("")
    main = _main(None, importlib.machinery.BuiltinImporter, package=None)
    return Program(main, lambda: compile(source, "<string>", "exec", dont_inherit=True), ["-c", *args])


def _stdin(args: tuple[str, ...]) -> Program:
    source = sys.stdin.buffer.read()
    _search_first("")
    main = _main(None, importlib.machinery.BuiltinImporter, package=None)
    return Program(main, lambda: compile(source, "<stdin>", "exec", dont_inherit=True), ["-", *args])


def _script(path: str, args: tuple[str, ...]) -> Program:
    """The program that ``python path args`` would run; of a command's name, the one that a shell would run.

    Raises
    ------
    FakeGpuError
        If there is neither such a file nor such a command of a Python package.
    """
    if not Path(path).exists() and (installed := _command(path, args)) is not None:
        return installed
    if Path(path).is_dir():
        raise FakeGpuError(f"{path} is a folder: name the script in it, or run a package with -m.")
    try:
        with io.open_code(str(Path(path).absolute())) as file:
            source = file.read()
    except FileNotFoundError:
        raise FakeGpuError(f"There is no script {path} in {Path.cwd()}: check the spelling, or the folder.") from None
    except OSError as error:
        raise FakeGpuError(f"The script {path} cannot be read: {error.strerror}.") from None
    file_name = os.path.abspath(path)  # noqa: PTH100 - as python does: without following links
    main = _main(file_name, SourceFileLoader("__main__", file_name), package=None)
    _search_first(str(Path(path).resolve().parent))
    return Program(main, lambda: compile(source, file_name, "exec", dont_inherit=True), [path, *args])


def _command(name: str, args: tuple[str, ...]) -> Program | None:
    """An installed package's command, such as ``torchrun``: what its script in ``bin`` runs."""
    found = next(iter(metadata.entry_points(group="console_scripts", name=name)), None)
    if found is None:
        return None
    source = f"import sys\nfrom {found.module} import {found.attr.partition('.')[0]}\nsys.exit({found.attr}())\n"
    path = shutil.which(name) or name
    main = _main(path, SourceFileLoader("__main__", path), package=None)
    return Program(main, lambda: compile(source, path, "exec", dont_inherit=True), [path, *args])


def _module(name: str, args: tuple[str, ...]) -> Program:
    """The program that ``python -m name args`` would run.

    Raises
    ------
    FakeGpuError
        If there is no such module, or it cannot be run.
    """
    _search_first(str(Path.cwd()))
    spec = _find(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = _find(f"{name}.__main__")
        if spec is None:
            raise FakeGpuError(f"{name} is a package without a __main__ module: name one of its modules.")
    loader = spec and spec.loader
    if spec is None or spec.origin is None or not isinstance(loader, importlib.abc.InspectLoader):
        raise FakeGpuError(f"There is no module {name} to run: check the spelling, or whether it is installed here.")
    main = _main(spec.origin, loader, package=spec.parent)
    main.__spec__ = spec

    def code() -> types.CodeType:
        found = loader.get_code(spec.name)
        if found is None:
            raise SyntaxError(f"{name} has no Python code")
        return found

    return Program(main, code, [spec.origin, *args])


def _find(name: str) -> importlib.machinery.ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, AttributeError, TypeError, ValueError) as error:  # the errors that runpy catches
        raise FakeGpuError(f"The module {name} cannot be run: {error}.") from None


def _main(file_name: str | None, loader: object, package: str | None) -> types.ModuleType:
    main = types.ModuleType("__main__")
    names = vars(main)
    names.update(__loader__=loader, __package__=package, __builtins__=builtins)
    if file_name is not None:
        names.update(__file__=file_name, __cached__=None)
    if sys.version_info < (3, 14):
        names["__annotations__"] = {}
    return main


def _search_first(folder: str) -> None:
    """Put the program's folder first on ``sys.path``, in place of ours, as python would."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = folder
