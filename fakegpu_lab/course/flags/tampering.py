"""Inside a submission's process: detects and undoes changes to what a check relies on.

`Pristine` remembers functions and classes of this package, of Python's builtins, and of the libraries that checks
compare with; before each check it restores what was changed. `watch` installs an audit hook, which cannot be removed,
against what no exercise needs. Neither can stop everything in one process: see docs/grading.md.
"""

from __future__ import annotations

import _thread
import abc
import bdb
import builtins
import collections
import contextlib
import importlib.util
import inspect
import mmap
import os
import sys
import threading
import traceback
import types
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.flags import evaluated
from fakegpu_lab.course.flags.contents import CODE_PARTS, Contents
from fakegpu_lab.user_code.frames import OURS, OWN, PYTHON, TORCH, classified, package, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

COMPARED = (
    "math", "time", "secrets", "random", "random.SystemRandom", "numpy", "numpy.testing", "torch",
    "torch.testing", "torch.nn.functional", "torch.Tensor", "torch.cuda", "torch.cuda.memory", "torch.distributed",
    "re", "io", "os", "os.path", "contextlib", "collections", "itertools", "functools", "shutil", "tempfile", "gc",
)  # fmt: skip
"""What checks compare, measure and draw with, beside builtins and this package. (Our driver patches torch, too.)"""
BUILT_WITH = ("torch.nn", "torch.optim", "torch.amp", "torch.utils.data", "torch.nn.parallel", "torch.nn.utils",
              "torch.nn.init", "torch.utils.checkpoint")  # fmt: skip
"""What checks build their own models with: of these, the methods of the classes are kept as well."""
_JUDGING = tuple(f"fakegpu_lab.course.{room}" for room in ("expect", "checks", "cell_text", "flags", "grade.sandbox"))
"""What sees and reports: of these modules, every value is kept, with what is in tables and closures."""


def _is_kept(value: object) -> bool:
    return issubclass(type(value), (types.FunctionType, types.BuiltinFunctionType, type))  # `isinstance` asks the value


def _owner(name: str) -> Any:
    owner = sys.modules.get(name)
    if owner is None and "." in name:
        parent, last = name.rsplit(".", 1)
        owner = getattr(sys.modules.get(parent), last, None)
    return owner


class Pristine:
    """Functions, classes and methods as they were before the submission ran.

    Parameters
    ----------
    preload
        Modules to import now, before the submission can change them.
    """

    def __init__(self, preload: tuple[str, ...]) -> None:
        for name in preload:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        self._kept: list[tuple[Any, str, Any, tuple[Any, ...] | None]] = []
        self._inside = Contents(trusted)
        self._names: list[tuple[type, frozenset[str]]] = []
        self.modules = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "fakegpu_lab"}
        for module in self.modules.values():
            self._keep(module, own=True)
        self._builtins = dict(vars(builtins))
        self._restore_all = vars(builtins).update
        for name in COMPARED + BUILT_WITH:
            owner = _owner(name)
            if owner is not None:
                self._keep(owner, own=False, classes=name in BUILT_WITH)
            if isinstance(owner, type):
                self._names.append((owner, frozenset(vars(owner))))

    def _keep(self, owner: Any, *, own: bool, classes: bool = False) -> None:
        judging = own and owner.__name__.startswith(_JUDGING)
        for name, value in list(vars(owner).items()):
            if judging and not name.startswith("__"):
                self._inside.keep(f"{owner.__name__}.{name}", value)
            if issubclass(type(value), types.FunctionType):
                self._kept.append((owner, name, value, tuple(getattr(value, part) for part in CODE_PARTS)))
            elif ((judging or (own and name.isupper())) and not name.startswith("__")) or (
                _is_kept(value) and not (owner.__name__ == "torch" and name == "Storage")  # set_default_dtype sets it
            ):
                self._kept.append((owner, name, value, None))
                home = value.__module__ if isinstance(value, type) else ""
                if (own and home == owner.__name__) or (classes and home.startswith("torch.")):
                    self._keep_class(value)

    def _keep_class(self, owner: type) -> None:
        self._names.append((owner, frozenset(vars(owner))))
        for name, value in list(vars(owner).items()):
            inner = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
            if isinstance(inner, types.FunctionType):
                self._kept.append((owner, name, value, None))
                self._kept.append((owner, "", inner, tuple(getattr(inner, part) for part in CODE_PARTS)))

    def restore_builtins(self) -> list[str]:
        """Restore Python's builtins, and return the names of those that were changed. Calls none before that."""
        changed, now = [], builtins.__dict__
        for name, value in self._builtins.items():
            if name != "_" and (name not in now or now[name] is not value):
                changed += [f"builtins.{name}"]
        self._restore_all(self._builtins)
        return changed

    def restore(self) -> list[str]:
        """Restore what was changed, and return the names."""
        restored = []
        for owner, name, value, code in self._kept:
            where = f"{owner.__module__}.{owner.__name__}" if isinstance(owner, type) else owner.__name__
            now, right = (vars(owner).get(name), _with_driver(owner, name, value)) if name else (value, value)
            if now is not right and not _by_torch(now, right):
                setattr(owner, name, right)
                restored.append(f"{where}.{name}")
            if code is not None:
                for part, kept in zip(CODE_PARTS, code, strict=True):
                    now = getattr(value, part)
                    if now is not kept and not (isinstance(now, types.CodeType) and trusted(now)):
                        setattr(value, part, kept)
                        restored.append(f"{where}.{value.__name__}.{part}")
        restored += self._inside.put_back()
        for kind, names in self._names:
            for name, now in [(one, now) for one, now in vars(kind).items() if one not in names]:
                right = _with_driver(kind, name, None)
                if right is not None and now is not right:
                    setattr(kind, name, right)
                elif right is None and (from_cell(now) or _hides_a_method(kind, name, now)):
                    delattr(kind, name)
                else:
                    continue
                restored.append(f"{kind.__module__}.{kind.__name__}.{name}")
        for name, module in self.modules.items():
            if sys.modules.get(name) is not module:
                sys.modules[name] = module
                restored.append(f"sys.modules[{name!r}]")
        return restored


def _hides_a_method(kind: type, name: str, now: object) -> bool:
    """Whether a class inherits a method or a property of that name: what it has itself is in the way."""
    inherited = next((vars(base)[name] for base in type.mro(kind)[1:] if name in vars(base)), None)
    return hasattr(type(inherited), "__get__") and not _by_torch(now, inherited)


def _with_driver(owner: Any, name: str, value: object) -> object:
    """What stands there while the simulated machine is on: the driver's own, where that replaces `value`."""
    install = sys.modules.get("fakegpu_lab.driver.install")
    return value if install is None else install.patches.made(owner, name, value)


def _by_torch(now: object, kept: object) -> bool:
    """Whether torch itself wrapped a function: ``torch.manual_seed`` for Dynamo, ``step`` of an optimizer's class.

    Dynamo also puts functions of its own in the place of methods, such as ``Module.__init__``.
    """
    if isinstance(now, types.FunctionType) and trusted(now.__code__) and "/torch/_dynamo/" in _file(now):
        return True
    while isinstance(now, types.FunctionType) and classified(now.__code__.co_filename) & TORCH:
        now = getattr(now, "__wrapped__", None)
        if now is kept:
            return True
    return False


def _file(function: types.FunctionType) -> str:
    return function.__code__.co_filename.replace(os.sep, "/")


def from_cell(value: object) -> bool:
    """Whether a function was written in a notebook's cell or made by `exec`."""
    value = value.fget if isinstance(value, property) else value
    code = getattr(getattr(value, "__func__", value), "__code__", None)
    return isinstance(code, types.CodeType) and not trusted(code)


_PREFIXES = tuple({os.path.realpath(path) + os.sep for path in (sys.prefix, sys.base_prefix, sys.exec_prefix)})
_PACKAGE = os.path.realpath(os.path.join(__file__, *[os.pardir] * 3)) + os.sep  # noqa: PTH118


def trusted(code: types.CodeType) -> bool:
    """Whether code comes from Python, an installed library or this package."""
    return code.co_filename.startswith("<frozen") or installed(code.co_filename)


def installed(file: str) -> bool:
    """Whether a file belongs to Python, an installed library or this package, and lies in Python's own folders.

    `classified` alone goes by the names of folders, which a submission could choose.
    """
    lies_there = file.startswith((_PACKAGE, *_PREFIXES)) or os.path.realpath(file).startswith(_PREFIXES)
    return lies_there and not classified(file) & OWN


@contextlib.contextmanager
def _unwatched(state: dict[str, bool]) -> Iterator[None]:
    state["quiet"] = True
    try:
        yield
    finally:
        state["quiet"] = False


def _caller(state: dict[str, bool]) -> str:
    """The file of the code that caused the event that the hook is called with."""
    with _unwatched(state):
        return sys._getframe(2).f_code.co_filename


def lock_books(report: Callable[[str], None]) -> None:
    """Let only this package and installed libraries write to the devices' ledgers."""
    from fakegpu_lab.hardware.time.ledger import Ledger

    known: set[types.CodeType] = set()
    put = object.__setattr__
    caller = sys._getframe

    def write(self: Ledger, name: str, value: object) -> None:
        code = caller(1).f_code
        if code not in known:
            new = code is Ledger.__init__.__code__ and not hasattr(
                self, name
            )  # the dataclass generates its __init__ from text
            if not (trusted(code) or new):
                report("tried to change a device's ledger")
                raise AttributeError("A ledger cannot be written by hand.")
            if not new:
                known.add(code)
        put(self, name, value)

    Ledger.__setattr__ = write  # type: ignore[method-assign,assignment]


class Measures:
    """The classes of this package with which a check measures: they stay as they are while its statements run.

    Recordings refuse to be changed. Of the others, changes are found after a statement; to refuse them, too, they would
    all need a metaclass.

    Parameters
    ----------
    modules
        Where the classes are.
    report
        Called with what was tried.
    """

    def __init__(self, modules: Iterable[str], report: Callable[[str], None]) -> None:
        caller = sys._getframe

        def refuse(owner: type, name: str) -> None:
            if not classified(caller(2).f_code.co_filename) & OURS:
                report(f"tried to change the class {owner.__name__}")
                raise AttributeError(f"{owner.__name__}.{name} cannot be changed here.")

        class Sealed(abc.ABCMeta):
            def __setattr__(cls, name: str, value: object) -> None:
                refuse(cls, name)
                super().__setattr__(name, value)

            def __delattr__(cls, name: str) -> None:
                refuse(cls, name)
                super().__delattr__(name)

        self._kept: list[tuple[type, dict[str, Any]]] = []
        for module in modules:
            for kind in [one for one in vars(sys.modules[module]).values() if issubclass(type(one), type)]:
                if type(kind) is abc.ABCMeta and kind.__module__ == module:
                    kind.__class__ = Sealed
                elif type(kind) is type and kind.__module__ == module:
                    self._kept.append((kind, dict(vars(kind))))

    def changed(self) -> list[str]:
        """The names of the classes that have changed, which are put back."""
        found = []
        for kind, kept in self._kept:
            now = vars(kind)
            other = {name: value for name, value in kept.items() if now.get(name) is not value}
            other = {name: value for name, value in other.items() if type(value) is not int}  # what a class counts
            new = now.keys() - kept.keys()
            for name in new:
                delattr(kind, name)
            for name, value in other.items():
                setattr(kind, name, value)
            found += [kind.__name__] if new or other else []
        return found


_REFUSED = frozenset({"sys._current_frames", "sys._current_exceptions", "sys.addaudithook"})
_THREADS = frozenset({"_thread.start_new_thread", "_thread.start_joinable_thread"})
_NEVER_NEEDED = _THREADS | {
    "gc.get_objects",
    "gc.get_referrers",
    "gc.get_referents",
    "object.__setattr__",
    "object.__delattr__",
    "code.__new__",
    "function.__new__",
    "sys.setprofile",
    "sys.settrace",
    "sys.unraisablehook",
    "signal.pthread_kill",
    "resource.setrlimit",
    "cpython.run_interactivehook",
}
"""Events of Python's audit hooks that no exercise causes by itself; libraries do."""
_MEMORY = ("/mem", "/maps", "/smaps", "/pagemap", "/map_files")
"""Files of a process by which its memory is read, or that tell where it lies."""
_FRAMES = frozenset({"gi_frame", "cr_frame", "ag_frame", "tb_frame"})
_LOOKING = (inspect.__file__, traceback.__file__)
"""Modules of Python's with which a cell would look at the frames below it."""
_FORMATTING = (os.path.join("logging", "__init__.py"), "string.py")  # noqa: PTH118
_OF_FORMATS = (*_FORMATTING, *(f"{os.sep}{library}{os.sep}" for library in ("rich", "tqdm")))
"""Files whose code reads of functions what a format string says."""
_OF_FUNCTIONS = (*CODE_PARTS, "__class__", "__bases__", "__globals__")

_MAKE_CLASSES = frozenset([typing.__file__, collections.__file__])
"""Where Python itself sets such attributes, of named tuples and protocols."""

_PASSES_ON = os.path.join(_PACKAGE, "driver", "environment", "host_threads.py")  # noqa: PTH118
"""Where the driver stands in for a method of Python's own library, `threading.Thread.start`."""


def _asked_by_cell(frame: types.FrameType | None) -> bool:
    """Whether a cell did something, by itself or through Python's own library; not through another library."""
    for one in walk(frame):
        name = one.f_code.co_filename
        if name not in (__file__, _PASSES_ON) and not (trusted(one.f_code) and classified(name) == PYTHON):
            return not trusted(one.f_code)
    return False


def _writes(mode: object, flags: object) -> bool:
    """Whether a file is opened to be written, by Python's mode or by the system's flags."""
    by_mode = isinstance(mode, str) and bool(set("wax+") & set(mode))
    return by_mode or (isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR)))


def _looks_at_frames(code: types.CodeType) -> bool:
    """Whether code is of what reads frames by itself; others are made to by a format string."""
    name = code.co_filename
    if name == inspect.__file__:
        return False  # of what a cell asks it to read; a library may do so
    ours = classified(name) & (PYTHON | OURS) or package(name) in ("torch", "IPython", "numba", "triton")
    return trusted(code) and bool(ours) and not name.endswith(_FORMATTING)


def _tools() -> frozenset[str]:
    """The assembler of Triton's package, which its compiler starts once for each kernel."""
    package_of_triton = importlib.util.find_spec("triton")
    folders = package_of_triton.submodule_search_locations if package_of_triton is not None else None
    return frozenset(str(path) for folder in folders or () for path in Path(folder).glob("backends/nvidia/bin/ptxas*"))


_TOLD = 2**16
"""Bytes of what children have to report."""


def watch(
    report: Callable[[str], None],
    hide: list[str],
    forks: int,
    network: bool,
    *,
    threads: bool = True,
    lesson: Collection[str] = (),
    read: Collection[str] = (),
) -> Callable[[], None]:
    """Report, and mostly refuse, what an exercise never needs. This lasts until the process ends.

    Returns what is called to report what was noticed in its children, such as the workers of a DataLoader.

    Parameters
    ----------
    report
        Called with each new sentence, before the event that it reports happens.
    hide
        Files and folders that the submission must not open.
    forks
        How many processes the submission may start in all, counting children of children.
    network
        Whether to refuse connections to other computers here, because the system does not.
    threads
        Whether to report threads of the notebook's own.
    lesson
        The names of the lesson's own cells, which may run text; more may be added to it.
    read
        The texts that the policy has read: libraries may run these.
    """
    started = mmap.mmap(-1, 8)  # shared with every forked child
    told = mmap.mmap(-1, _TOLD)  # by children: one after another, a line each
    state = {"quiet": False, "debugger": False}
    reported: set[tuple[str, bool]] = set()  # sentences, and whether they are of a child
    looks: dict[int, types.CodeType] = {}  # code of libraries that asks for its own frame
    hidden = tuple(os.path.realpath(path) for path in hide)
    folder = os.path.realpath(os.curdir) + os.sep
    compiled = os.path.join(folder, ".inductor", "")  # noqa: PTH118
    pid = os.getpid()
    evaluated_by = evaluated.reports(trusted, lesson, read)
    tools = _tools()

    def report_once(sentence: str) -> None:
        child = os.getpid() != pid
        if (sentence, child) in reported:
            return
        reported.add((sentence, child))
        if not child:
            report(sentence)
        else:
            line = f"{sentence}\n".encode()
            at = told.find(b"\0", 0)
            if at + len(line) < _TOLD:
                told[at : at + len(line)] = line

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if state["quiet"]:
            return
        if event in ("os.fork", "os.forkpty", "subprocess.Popen", "os.posix_spawn", "os.system"):
            if arguments and arguments[0] in tools:
                return
            count = int.from_bytes(started[:8], "little") + 1
            started[:8] = count.to_bytes(8, "little")
            if count > forks:
                report_once(f"started more than {forks} processes")
                raise RuntimeError(f"Grading lets a notebook start {forks} processes in all, and this is one more.")
        elif event == "open":
            path = arguments[0]
            if isinstance(path, (str, bytes, os.PathLike)):
                with _unwatched(state):
                    real = os.path.realpath(os.fsdecode(path))
                if real.startswith(hidden) and hidden:
                    report_once("tried to open a file of the course")
                    raise PermissionError(13, "Permission denied: this file is not part of the exercise", real)
                if real.startswith(compiled) and _writes(*arguments[1:3]) and _asked_by_cell(sys._getframe(1)):
                    report_once("wrote where compiled kernels are kept")
                if real.startswith("/proc/") and real.endswith(_MEMORY):
                    report_once("tried to open the memory of a process")
                    raise PermissionError(13, "Permission denied", real)
        elif event in ("os.rename", "os.link", "os.symlink"):
            with _unwatched(state):
                real = os.path.realpath(os.fsdecode(arguments[1]))
                if real.startswith(compiled) and _asked_by_cell(sys._getframe(1)):
                    report_once("wrote where compiled kernels are kept")
        elif event == "ctypes.dlopen" and isinstance(arguments[0], str) and os.sep in arguments[0]:
            with _unwatched(state):
                real = os.path.realpath(arguments[0])
            # Whoever asks for it: numba's loader takes a name with a path, too.
            if real.startswith(folder) and not real.startswith(compiled):
                report_once("loaded a library of its own")
                raise PermissionError(13, "Grading loads no library of a submission", real)
        elif event in evaluated.EVENTS:
            with _unwatched(state):
                sentence = evaluated_by(event, arguments, sys._getframe(1))
            if sentence:
                report_once(sentence)
        elif event == "object.__getattr__":
            if arguments[1] in _FRAMES:
                with _unwatched(state):
                    frame = sys._getframe(1)
                    odd = not _looks_at_frames(frame.f_code) and any(not trusted(one.f_code) for one in walk(frame))
                    odd &= frame.f_code.co_filename != inspect.__file__ or _asked_by_cell(frame)
                if odd:
                    report_once(f"read {arguments[1]}")
            elif arguments[1] == "__code__":
                file = _caller(state)
                if any(one in file for one in _OF_FORMATS):
                    report_once("read __code__")
        elif event == "sys._getframe":
            state["quiet"] = True
            frame = sys._getframe(1)
            if id(frame.f_code) not in looks:
                if trusted(frame.f_code) and frame.f_code.co_filename not in _LOOKING:
                    looks[id(frame.f_code)] = frame.f_code
                elif _asked_by_cell(frame):
                    report_once("looked at the frames below it")
            state["quiet"] = False
        elif event == "sys.settrace" and (_caller(state) == bdb.__file__ or state["debugger"]):
            state["debugger"] = _caller(state) == bdb.__file__  # pdb.set_trace() was left in; Python ends it once more
        elif event in _REFUSED or event in _NEVER_NEEDED or event.startswith("ctypes."):
            with _unwatched(state):
                theirs = _asked_by_cell(sys._getframe(1))
            if theirs and event in _REFUSED:
                report_once(f"used {event}")
                raise PermissionError(13, f"Grading refuses {event}")
            if theirs and event in _THREADS:
                if threads:
                    report_once("started a thread of its own")
            elif theirs and event.startswith("object."):
                if arguments[1] in _OF_FUNCTIONS and sys._getframe(1).f_code.co_filename not in _MAKE_CLASSES:
                    report_once(f"changed {type(arguments[0]).__name__}.{arguments[1]}")
            elif theirs:
                report_once("used ctypes" if event.startswith("ctypes.") else f"used {event}")
        elif event == "socket.connect" and network:
            address = arguments[1]
            if isinstance(address, tuple) and not str(address[0]).startswith(("127.", "::1", "localhost")):
                report_once("tried to reach the network")
                raise PermissionError(13, "Grading has no network")

    sys.addaudithook(hook)
    if sys.version_info < (3, 12):  # where Python has no audit event for it
        _report_threads(lambda: hook("_thread.start_new_thread", ()))

    def of_children() -> None:
        for line in told[: told.find(b"\0", 0)].decode("utf-8", "replace").splitlines():
            report_once(f"{line}, in a process that it started")

    return of_children


def _report_threads(starts: Callable[[], None]) -> None:
    """Call `starts` whenever a thread is about to be started."""
    start: Any = _thread.start_new_thread

    def started(*arguments: Any, **named: Any) -> Any:
        starts()
        return start(*arguments, **named)

    for module, name in ((_thread, "start_new_thread"), (_thread, "start_new"), (threading, "_start_new_thread")):
        setattr(module, name, started)
