"""Inside a submission's process: runs the cells that the grader sends, one by one, and reports their results.

The cells run in the main thread, as in a notebook. The channel's key is in another thread, in one local variable: no
frame below a cell leads there. Before that thread accepts a result, it makes sure that no code of the submission is
still running in the main thread.
"""

from __future__ import annotations

import _thread
import ast
import builtins
import contextlib
import functools
import gc
import importlib
import itertools
import json
import math
import os
import queue
import re
import signal
import sys
import threading
import time
from types import FunctionType
from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.cell_text.source import bound_names, transformed, tree_of
from fakegpu_lab.course.flags import files, given_values, left_behind, measured_memory, tampering
from fakegpu_lab.course.flags.class_versions import ClassVersions
from fakegpu_lab.course.flags.evaluated import OF_CHECKS, is_lessons
from fakegpu_lab.course.grade.sandbox import sealed_channel
from fakegpu_lab.course.grade.sandbox.shell import GradingShell, Outputs, Stream, capture, drain, frames, start
from fakegpu_lab.user_code.frames import steps, walk

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_dumps = json.dumps
"""Kept before the submission runs, which could replace it."""
_STARTED = 4
"""A notebook may start this many times as many processes as it may have at once: each loader starts its workers."""
PRELOAD = (
    "torch",
    "fakegpu_lab.session",
    "fakegpu_lab.trace",
    "fakegpu_lab.recording_views.tables",
    "fakegpu_lab.report.run_tables",
    "fakegpu_lab.driver.install",
    "fakegpu_lab.notebook.gpu_magics",
    "fakegpu_lab.course.lesson_magics",
    "fakegpu_lab.course.expect",
    "fakegpu_lab.course.checks.observe",
    "fakegpu_lab.course.checks.card",
)
"""The modules that checks rely on, imported before any code of the submission runs."""


_MEASURES = re.compile(r"fakegpu_lab\.(hardware|recording|trace|driver\.recorder)\b").match
"""Where the classes are with which a check measures."""


class _Runner:
    """Runs cells and checks in the process's IPython."""

    def __init__(self, settings: dict[str, Any], report: Callable[[str], None]) -> None:
        tampering.lock_books(report)
        with contextlib.suppress(ImportError):  # torch loads it, with sympy, at the first op: that time is not a cell's
            importlib.import_module("torch.distributed.tensor")
        self.pristine = tampering.Pristine(PRELOAD)
        self.measures = tampering.Measures(filter(_MEASURES, self.pristine.modules), report)
        self.versions = ClassVersions()
        self.outputs = Outputs(settings["limits"]["output_chars"])
        self.shell: GradingShell = start(self.outputs)
        from fakegpu_lab import session
        from fakegpu_lab.course import lesson_magics
        from fakegpu_lab.course.checks import observe
        from fakegpu_lab.course.expect import runs
        from fakegpu_lab.course.expect.plain_data import held, in_place
        from fakegpu_lab.driver.recorder import results

        results.follow()
        self.left_behind, self.surroundings = left_behind.LeftBehind(), left_behind.Surroundings()
        self.files = files.LessonFiles(settings["given_files"])
        self._magics_class, self._gpus = lesson_magics.CourseMagics, session.enabled
        self._observation, self._observe_tried = observe.Observation, observe.tried
        self._wait = runs.synchronize
        self.values, self.read = given_values.GivenValues(settings["read"], observe.plainly), settings["read"]
        self._in_place, self._tensors_in = in_place.InPlace, held.tensors_in
        self.magics: Any = None
        self.tried: dict[str, Any] = {}
        self.bound: dict[str, Any] = {}  # what locked cells imported or defined
        self.helpers: dict[str, Any] = {}  # functions and classes that checks define, and later ones may call
        self.lesson = set[str]()  # the names of the lesson's own cells, as IPython compiles them
        self.memory = measured_memory.MeasuredMemory(self.lesson)
        self.memory.close()
        self.observation: Any = None  # the check that is running, with its names, and those before it
        self.names, self.before, self.fixed = dict[str, Any](), dict[str, Any](), dict[str, Any]()
        self.asked: list[str] = []  # names that answers are to give a value
        self.made, self.statements = set[str](), itertools.count(1)  # names to look at; its statements' numbers

    def cell(self, job: dict[str, Any]) -> dict[str, Any]:
        """Run one cell of the notebook; report what exercises' cells in it did."""
        own = job["kind"] in ("locked", "given")
        if own:
            self._synchronize()
        changed = self.files.put_back() if own else []
        left = self.surroundings.restore(any_gpus=job["any_gpus"]) if own else []
        if own:
            count, text = self.shell.execution_count, self.shell.transform_cell(job["source"])
            self.lesson.add(self.shell.compile.get_code_name(job["source"], text, count))
        known = self._in_place(self._is_lessons)
        held = dict[str, int]()  # not the values: the memory of one that is replaced is needed
        for name in self.read if not own else ():
            held[name] = id(self.shell.user_ns.get(name))
            known.look(self.shell.user_ns.get(name), name)
        remembered = self._remembered()
        machine = left_behind.machine()
        failed = left_behind.gpus() if machine is not None and machine.failed else None
        ran = self.shell.run_cell(job["source"], store_history=job["kind"] in ("student", "given"))
        registered = self.shell.magics_manager.registry.get("CourseMagics")
        if self.magics is None and type(registered) is self._magics_class:
            self.magics = registered
        before = self.tried
        self.tried = dict(self.magics.room.attempts) if self.magics is not None else {}
        new = [one for name, one in self.tried.items() if before.get(name) is not one]
        for function, size in self._remembered().items() if not own else ():
            if size != remembered.get(function):
                function.cache_clear()
        bound = bound_names(job["source"])
        if own:
            self.surroundings.keep()
            self.values.keep(job["source"], self.shell.user_ns)
            names = bound_names(job["source"], definitions_only=True)
            self.bound |= {name: self.shell.user_ns[name] for name in names if name in self.shell.user_ns}
            for name in bound:
                self.helpers.pop(name, None)  # from here on, it is the cell's
        reset = failed is not None and left_behind.gpus() == failed  # after a kernel that failed, by the magic
        if new and left_behind.machine() is not machine and not reset and not job["any_gpus"]:
            left.append("the GPUs had been replaced while the exercise was recorded")
        tried = [self._observe_tried(one) for one in new]
        hidden = {name for name, number in held.items() if id(self.shell.user_ns.get(name)) != number} - bound
        if hidden:
            hidden -= _of_libraries(job["source"], {name: self.shell.user_ns.get(name) for name in hidden})
        altered = [[0, name] for name in sorted({*known.changed()} | hidden)]
        error = ran.error_before_exec or ran.error_in_exec
        about = {"restored": changed, "left": left, "altered": altered, "unreadable": _is_unreadable(error)}
        return {"tried": tried, "gpus": self._gpus(), **about}

    def _is_lessons(self, file: str) -> bool:
        return is_lessons(file, self.lesson)

    def _remembered(self) -> dict[Any, int]:
        """How many results the lesson's cached functions have: those of a student's cell may be others."""
        functions = [one for one in self.bound.values() if isinstance(one, functools._lru_cache_wrapper)]
        return {one: one.cache_info().currsize for one in functions}

    def _synchronize(self) -> None:
        """What a student's cells have left in a queue takes no time of what the lesson measures."""
        if self._gpus():
            with contextlib.suppress(Exception):  # a card on which a kernel has failed
                self._wait()

    def check(self, job: dict[str, Any], tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Prepare a check on the notebook's names: with plain Python, not IPython's tools.

        Imports, functions and classes of locked cells, and builtins that a cell gave another meaning, have their
        original values. `tell` is called with what is seen, while it is seen.
        """
        self._synchronize()
        found, restored = self.left_behind.disarm(), [*self.pristine.restore(), *self.files.put_back()]
        found += self.surroundings.restore(any_gpus=job["any_gpus"])
        found += [
            f"{name}, which the lesson made, had been changed"
            for name in self.values.put_back(self.shell.user_ns, job["given_by_solution"])
        ]
        notebook = self.shell.user_ns
        names, rebound = dict(notebook), []
        for name, value in self.bound.items():
            if name not in job["given_by_solution"] and notebook.get(name) is not value:
                names[name] = value
                rebound.append(name)
        names |= {name: value for name, value in self.helpers.items() if name not in job["given_by_solution"]}
        for name in vars(builtins):
            if callable(names.get(name)) and name not in self.bound and name not in job["given_by_solution"]:
                rebound += [name] if tampering.from_cell(names[name]) else []
                del names[name]
        name = job["exercise"]
        attempt = self.magics.room.attempts.get(name) if name and self.magics is not None else None
        self.names, self.before = names, dict(names)
        self.fixed = {name: names[name] for name in self.bound if name in names}
        self.made, self.statements, self.asked = set(self.read), itertools.count(1), job["given_by_solution"]
        self.observation = self._observation(names, attempt, f"{OF_CHECKS}{job['id']}>", tell, self._is_lessons)
        self.memory.close()  # of a check that was interrupted
        self.memory = measured_memory.MeasuredMemory(self.lesson)
        return {"left": found, "restored": restored, "rebound": rebound, "has_value": False}

    def statement(self, job: dict[str, Any]) -> dict[str, Any]:
        """Run a statement of the check that was prepared; names of the lesson keep their meaning for each of them."""
        self.names.update(self.fixed)
        before = left_behind.settings()
        gc.collect(1)  # what an answer has left to be freed is freed now, not while the check measures
        self.memory.keep(lambda: self._tensors_in(self._of_the_check()))
        self.versions.keep()
        machine = left_behind.machine()
        altered = self.observation.run(job["text"], canary=job["canary"], made=self.made, asked=self.asked)
        same = left_behind.machine() is machine  # another one changes torch's classes
        classes = [*self.measures.changed(), *(self.versions.changed() if same else ())]
        altered += [*before.changed(), *(f"the class {name}" for name in classes)]
        number = 0 if job["canary"] else next(self.statements)
        for name in bound_names(job["text"]):
            self.fixed.pop(name, None)
            self.made.add(name)
        self.observation.changed([name for name, value in self.fixed.items() if self.names.get(name) is not value])
        for_show = [[number, self.observation.for_show]] if self.observation.for_show else []
        memory = [[number, what] for what in self.memory.noticed()]
        about = {"altered": [[number, name] for name in altered], "for_show": for_show, "memory": memory}
        return {"ran": True, **about}

    def _of_the_check(self) -> list[Any]:
        """What the names stand for that the check has made, reads or asks for; not what other names of the answer."""
        mine = self.made | set(self.asked)
        return [value for name, value in self.names.items() if name in mine or self.before.get(name) is not value]

    def end_of_check(self, job: dict[str, Any]) -> dict[str, Any]:
        """Let the notebook have what the check's visible lines made; remove what was left behind."""
        notebook, names, result = self.shell.user_ns, self.names, dict[str, Any]()
        self.memory.close()
        try:
            own = {
                (kind.__qualname__, attribute)
                for kind, attribute in self.observation.end()
                if kind.__qualname__ not in job["classes"] or self.bound.get(kind.__qualname__, kind) is not kind
            }
            result["left"] = [
                f"the check read .{attribute} of an object of the answer's own class {name}"
                for name, attribute in sorted(own)
            ]
            if not job["exercise"]:
                value = _value(job, names)
                result |= {"has_value": value is not None, "score": _score_of(value)}
                _show(self.shell, value)
            result["ended"] = True
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.outputs.error(type(error).__name__, str(error), frames(error))
        for name in bound_names(job["visible"]):
            if name in names and names[name] is not self.before.get(name):
                notebook[name] = names[name]
                if isinstance(names[name], (FunctionType, type)):
                    self.helpers[name] = names[name]
        self.values.keep(job["visible"], notebook)
        result["left"] = result.get("left", []) + self.left_behind.disarm()
        result["restored"] = self.pristine.restore()
        self.surroundings.keep()
        return result


def _of_libraries(source: str, names: dict[str, Any]) -> set[str]:
    """Those of `names` that a cell's star imports took from Python, torch or NumPy: ``from math import *``."""
    tree = tree_of(source)
    stars = [
        node for node in (tree.body if tree else ()) if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
    ]
    known = {*sys.stdlib_module_names, "torch", "numpy"}
    modules = [sys.modules.get(node.module) for node in stars if node.module and node.module.split(".")[0] in known]
    return {name for name, value in names.items() if any(vars(one).get(name) is value for one in modules if one)}


def _is_unreadable(error: BaseException | None) -> bool:
    """Whether a cell is no Python, so that nothing in it ran: at most the line that IPython makes of ``%%exercise``."""
    codes = [step.tb_frame.f_code for step in steps(error.__traceback__)] if error is not None else []
    ran = [one for one in codes if not tampering.trusted(one) and not {*one.co_names} <= _OF_MAGICS]
    return type(error) in (SyntaxError, IndentationError, TabError) and not ran


_OF_MAGICS = frozenset({"get_ipython", "run_cell_magic"})


def _value(job: dict[str, Any], names: dict[str, Any]) -> object:
    """The value of the last line of a check that has no ``%%check``."""
    file = f"{OF_CHECKS}{job['id']}>"
    tree = ast.parse(transformed(job["source"]), file)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, file, "exec"), names)
    return eval(compile(ast.Expression(last.value), file, "eval"), names) if isinstance(last, ast.Expr) else None


def _show(shell: GradingShell, value: object) -> None:
    """Display a check's value with a new formatter, which the submission cannot have changed."""
    from IPython.core.formatters import DisplayFormatter

    if value is not None:
        data, _ = DisplayFormatter().format(value, include={"text/plain", "text/html"})
        shell.kept.data("execute_result", data)


def _score_of(value: object) -> float | None:
    """The score that nbgrader would read from a cell's last value; None if it is not a number."""
    try:
        number = float(value if isinstance(value, (int, float)) else repr(value))
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else -1.0


def serve(report: Any, commands: int, settings: dict[str, Any], in_force: list[str]) -> None:
    """Run the cells that arrive, until the pipe is closed. Does not return."""
    streams = capture(settings["folder"])
    source = os.fdopen(commands, "rb", buffering=0)
    jobs: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    results: queue.SimpleQueue[Any] = queue.SimpleQueue()
    notes: queue.SimpleQueue[str] = queue.SimpleQueue()
    runner = _Runner(settings, notes.put)
    sys.path.insert(0, "")  # the notebook's folder, as in a notebook
    shared = (report, source, jobs, results, notes, threading.get_ident(), runner.outputs, in_force, streams)
    _thread.start_new_thread(_controlled, shared)
    files.watch_imports(notes.put, settings["folder"], settings["modules"])
    of_children = tampering.watch(
        notes.put,
        settings["hide"],
        _STARTED * settings["limits"]["processes"],
        "no network" not in in_force,
        threads="threading" not in settings["allow"],
        lesson=runner.lesson,
        read=frozenset(settings["texts"]),
    )
    del report, commands, settings, in_force, streams, source, notes, shared  # a cell's frames lead to this one
    while True:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        serial, job = None, jobs.get()
        with contextlib.suppress(KeyError, TypeError):
            serial = job["serial"]
        if serial is None:
            continue  # not a job from the control thread
        try:
            results.put((serial, _run(runner, job, results, of_children)))
        except KeyboardInterrupt:  # between the cell's end and here
            results.put((serial, {}))


def _run(
    runner: _Runner, job: dict[str, Any], results: queue.SimpleQueue[Any], of_children: Callable[[], None]
) -> dict[str, Any]:
    kept = runner.outputs
    sys.stdout, sys.stderr = Stream(kept, "stdout"), Stream(kept, "stderr")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    put, serial = results.put, job["serial"]
    try:
        if job["kind"] == "check":
            result = runner.check(job, lambda message: put((serial, _dumps(message))))
        elif job["kind"] == "statement":
            result = runner.statement(job)
        elif job["kind"] == "end":
            result = runner.end_of_check(job)
        else:
            result = runner.cell(job)
    except KeyboardInterrupt as stopped:
        kept.error("KeyboardInterrupt", "", frames(stopped))
        result = {}
    except BaseException as error:  # SystemExit in one of IPython's threads, or a changed IPython
        kept.error(type(error).__name__, str(error), frames(error))
        result = {}
    of_children()
    changed = runner.pristine.restore_builtins()
    result["restored"] = result.get("restored", []) + changed
    with contextlib.suppress(KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    result["threads"] = _own_threads()
    return result


def _own_threads() -> int:
    """How many threads other than the main one run code of the notebook."""
    main, count = threading.main_thread().ident, 0
    for number, frame in sys._current_frames().items():
        count += number != main and any(not tampering.trusted(one.f_code) for one in walk(frame))
    return count


def _controlled(*arguments: Any) -> None:
    """Run `_control`, and end the process when it ends: nothing could reach the process then."""
    try:
        _control(*arguments)
    finally:
        os._exit(70)


def _control(
    report: Any,
    source: Any,
    jobs: queue.SimpleQueue[dict[str, Any]],
    results: queue.SimpleQueue[Any],
    notes: queue.SimpleQueue[str],
    main: int,
    outputs: Outputs,
    in_force: list[str],
    streams: dict[str, int],
) -> None:
    """Pass commands to the main thread and report their results. The key is here and nowhere else."""
    lines = _Lines(source)
    key = bytes.fromhex(json.loads(lines.next())["key"])
    unseal, seal, current = sealed_channel.unseal, sealed_channel.seal, sys._current_frames
    received = sent = 0

    def say(message: dict[str, Any]) -> None:
        nonlocal sent
        report.write(seal(key, b"up", sent, message))
        sent += 1

    def run(flags: set[str], part: dict[str, Any]) -> dict[str, Any]:
        """Let the main thread run a cell or a part of a check; pass on what it reports."""
        jobs.put(part | {"serial": received})
        while True:
            try:
                serial, result = results.get(timeout=0.02)
            except queue.Empty:
                serial, result = 0, None
            except (TypeError, ValueError):
                serial, result = 0, {}
            if serial == received and type(result) is str:
                say({"told": result, "flags": []})
                continue
            while not notes.empty():
                flags.add(str(notes.get())[:500])
                say({"flags": sorted(flags)})
            if result is not None:
                if serial == received and type(result) is dict and _idle(current, main):
                    return result
                flags.add("sent a result while its own code was still running")

    say({"ready": True, "in_force": in_force})
    while True:
        line = lines.next()
        job = unseal(key, b"down", received, line) if line else None
        if job is None:
            os._exit(0)
        received += 1
        flags: set[str] = set()
        run_part = functools.partial(run, flags)
        result = _run_check(job, run_part) if job["kind"] == "check" else run_part(job)
        drain(streams, outputs)
        say({"cell": job["id"], "outputs": outputs.end(), "over": outputs.over, "flags": sorted(flags), **result})


def _run_check(job: dict[str, Any], run: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Let the main thread run a check, statement by statement: it has the text of none before its turn, or after it."""
    about = {name: job[name] for name in ("id", "visible", "given_by_solution", "any_gpus", "classes", "exercise")}
    result = run(about | {"kind": "check"})
    if "left" not in result:  # it was interrupted
        return result
    for text, canary in job["statements"]:
        done = run({"kind": "statement", "text": text, "canary": canary})
        result = _together(result, done)
        if not done.get("ran"):
            return result
    source = {} if job["exercise"] else {"source": job["source"]}
    return _together(result, run(about | {"kind": "end"} | source))


def _together(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Two results as one: lists are joined."""
    both = {name: [*one[name], *other[name]] for name in one.keys() & other.keys() if isinstance(one[name], list)}
    return one | other | both


def _idle(current: Callable[[], dict[int, FrameType]], main: int) -> bool:
    """Whether the main thread is back in `serve`, waiting for its next job, within half a second."""
    for _ in range(500):
        if current()[main].f_code is serve.__code__:
            return True
        time.sleep(0.001)
    return False


class _Lines:
    """Reads lines from an unbuffered pipe."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._rest = b""

    def next(self) -> bytes:
        """The next line; b"" at the end."""
        while b"\n" not in self._rest:
            try:
                more = self._source.read(1 << 16)
            except OSError:
                return b""
            if not more:
                return b""
            self._rest += more
        line, self._rest = self._rest.split(b"\n", 1)
        return line
