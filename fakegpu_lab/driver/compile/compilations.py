"""What torch.compile has made of the program's functions, for those who ask (`fakegpu_lab.compilation`).

Dynamo compiles a function once for each set of assumptions, and what follows a graph break as a function of its own:
each time is a `Compilation`. Inductor makes the code of its graphs, forward and backward: a `Part` each. The first call
of a part is recorded, so that its kernels are known by their order, traffic and time.

Inductor keeps the lines that kernels were made from with the code (``trace.provenance_tracking_level``), in its cache,
too. A line of the cache may have moved since: it is looked up in the graph that Dynamo has just captured.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial, wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils.weak import WeakIdKeyDictionary

from fakegpu_lab.driver.base import current, graph_capture
from fakegpu_lab.driver.base.patches import when_imported
from fakegpu_lab.driver.compile import triton_version
from fakegpu_lab.driver.recorder import recording
from fakegpu_lab.hardware.time.clock import here
from fakegpu_lab.hardware.time.records import LIMIT
from fakegpu_lab.user_code.frames import SHOWN, kind, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from types import CodeType

    from fakegpu_lab.driver.base.patches import Patches
    from fakegpu_lab.hardware.time.recorder import Recorder
    from fakegpu_lab.hardware.time.records import Kernel

CALLS = "forward"
"""The name of what a module's call runs."""
_OF_CALLS = {"_call_impl", "_wrapped_call_impl", "__call__", CALLS}
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)")
_FRAME = re.compile(r'File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)\n\s*(?P<text>.*)')
_EXPLANATION = re.compile(r"Explanation: (.+?)\n(?:  Hint:|\n|$)", re.DOTALL)
_COMMENT = re.compile(r"\s{2,}#.*")
_KERNEL = re.compile(r"^(\w+) = async_compile\.triton\('\w+', '''\n(.*?)'''", re.DOTALL | re.MULTILINE)
_ATEN = re.compile(r"# Topologically Sorted Source Nodes: \[.*\], Original ATen: \[(.*)\]")
_HANDLE = re.compile(r"# \[Provenance debug handles\] (.+)")
_CALL = re.compile(r"(?:^|= )(\w+)\.run\(|(?:^|= )((?:extern_kernels|torch\.ops|aten|inductor_ops)\.[\w.]+)\(")


class Frame(NamedTuple):
    """A frame of a captured operation: file, line, function, and the line's text."""

    file: str
    line: int
    function: str
    text: str

    @property
    def place(self) -> str:
        """``file:number``."""
        return f"{self.file}:{self.line}"


class Site(NamedTuple):
    """A call of a kernel in the code that Inductor has written.

    Attributes
    ----------
    name
        The Triton kernel's name, or the function that is called, such as ``extern_kernels.addmm``.
    handle
        Inductor's name of this call; empty if it has none.
    ops
        The ops that the kernel was made from, such as ``relu``.
    text
        The line of the code.
    triton
        Whether it is a Triton kernel.
    """

    name: str
    handle: str
    ops: tuple[str, ...]
    text: str
    triton: bool


@dataclass(eq=False)
class Part:
    """A graph that Inductor has compiled.

    Attributes
    ----------
    backward
        Whether it is the backward pass.
    source
        The whole module that Inductor has written.
    traces
        By handle, the stacks of the operations that a kernel was made from.
    on_device
        Whether it runs on a simulated card.
    launches
        The kernels of its first call, in order; None if it has not been called.
    called
        The place of that call among the first calls of all parts.
    """

    backward: bool
    source: str
    traces: dict[str, list[str]]
    on_device: bool
    launches: list[Kernel] | None = None
    called: int = 0

    @cached_property
    def kernels(self) -> dict[str, str]:
        """The Triton kernels that it has, by name: their functions in Triton's language."""
        return {name: text[text.find("@triton.jit") :].strip() for name, text in _KERNEL.findall(self.source)}

    @property
    def sites(self) -> list[Site]:
        """The calls of kernels, in the order of the code."""
        found: list[Site] = []
        ops: tuple[str, ...] = ()
        handle = ""
        for line in _KERNEL.sub("", self.source).splitlines():
            text = line.strip()
            if "async_compile" in text:
                ops, handle = (), ""
            elif (about := _ATEN.match(text)) is not None:
                ops, handle = tuple(dict.fromkeys(_op(one) for one in about[1].split(", ") if one)), ""
            elif (about := _HANDLE.match(text)) is not None:
                handle = about[1]
            elif (call := _CALL.search(text)) is not None and not text.startswith("#"):
                triton = call[1] is not None
                if triton or handle or ops:
                    found.append(Site(call[1] or call[2], handle, ops, text, triton))
                ops, handle = (), ""
        return found


def _op(name: str) -> str:
    """The name of an op as kernels have it: without its library."""
    return name.removeprefix("aten.").removeprefix("prims.")


@dataclass(eq=False)
class Compilation:
    """One time that Dynamo compiled a function.

    Attributes
    ----------
    code
        The function's code.
    number
        Dynamo's: the function's, and how many times it has been compiled, as ``"0/1"``.
    recompiled
        The guard that had failed; empty the first time.
    breaks
        Where the graph ends early: the line, as ``file:number``, and why.
    operations
        The operations of its graph; None if it has none.
    backend
        The compiler of the graph.
    gave_up
        Why the function runs as it is; empty if it was compiled.
    parts
        What Inductor has made of the graph.
    """

    code: CodeType
    number: str
    recompiled: str = ""
    breaks: list[tuple[str, str]] = field(default_factory=list)
    operations: int | None = None
    backend: str = ""
    gave_up: str = ""
    parts: list[Part] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The function's; what follows a graph break has the name of the function that breaks."""
        resumed = _RESUMED.fullmatch(self.code.co_name)
        return resumed[1] if resumed else self.code.co_name

    @property
    def line(self) -> str:
        """The line where it begins, as ``file:number``."""
        resumed = _RESUMED.fullmatch(self.code.co_name)
        return f"{self.code.co_filename}:{resumed[2] if resumed else self.code.co_firstlineno}"

    def lines(self, traces: Sequence[str]) -> tuple[str, ...]:
        """The program's lines that stacks of operations are of, as ``file:number``, in the program's order."""
        found = {self._moved(frame) for frame in map(innermost, traces) if frame is not None}
        order = {frame: place for place, frame in enumerate(self.frames)}
        known = sorted((frame for frame in found if frame is not None), key=lambda frame: order[frame])
        return tuple(dict.fromkeys(frame.place for frame in known))

    def _moved(self, frame: Frame) -> Frame | None:
        """Where a frame is in the graph that was captured; None if it is not there."""
        if frame in self.frames:
            return frame
        same = [one for one in self.frames if (one.function, one.text) == (frame.function, frame.text)]
        return same[0] if len({one.place for one in same}) == 1 else None


def innermost(trace: str) -> Frame | None:
    """The innermost line of the program in a stack that torch has kept as a text."""
    found = [
        Frame(one["file"], int(one["line"]), _RESUMED.sub(r"\1", one["function"]), one["text"].strip())
        for one in _FRAME.finditer(trace)
    ]
    return next((one for one in reversed(found) if kind(one.file) & SHOWN), None)


# ------------------------------------------------------------------- what is known

_known: Any = WeakIdKeyDictionary()
"""By function or object, and by the method's name: its compilations."""


_calls = itertools.count(1)


class _Thread(threading.local):
    def __init__(self) -> None:
        self.compiling: list[Compilation] = []
        self.running: list[tuple[Recorder, list[range]]] = []


_thread = _Thread()


def of(thing: Any) -> list[Compilation] | None:
    """The compilations of a function or module that torch.compile has returned; None if it is none of these."""
    compiled = _compiled(thing)
    if compiled is not None:
        owner, name = _key(compiled)
    elif isinstance(thing, type) or not callable(thing):
        return None
    else:
        owner, name = _key(thing.__call__ if isinstance(thing, torch.nn.Module) else thing)
    found = _known.get(owner, {}).get(name) or _with_code(owner, name)
    return list(found) if found or compiled is not None else None


def breaks(kernels: Collection[str]) -> dict[str, str]:
    """Where graphs of the functions that launch these kernels break: the lines, as ``file:number``, and why."""
    launching = [
        known
        for known in _every()
        if any(not part.kernels.keys().isdisjoint(kernels) for one in known for part in one.parts)
    ]
    return {line: why for known in launching for one in known for line, why in one.breaks}


def _with_code(owner: Any, name: str) -> list[Compilation]:
    """Compilations for another object or wrapper, which Dynamo uses for all that has the same code."""
    function = getattr(owner, name, None) if isinstance(owner, torch.nn.Module) else owner
    code = getattr(function, "__code__", None)
    return next((known for known in _every() if known[0].code is code), [])


def _every() -> Iterator[list[Compilation]]:
    """The compilations of each function."""
    return (known for names in _known.values() for known in names.values())


def _compiled(thing: Any) -> Any:
    """What is compiled when something is called; None if that is not known."""
    candidates = [thing]
    if isinstance(thing, torch.nn.Module):
        candidates = [vars(thing).get("_compiled_call_impl"), vars(thing).get("_forward"), thing.forward]
    for one in candidates:
        found = getattr(one, "_torchdynamo_orig_callable", None)
        if found is not None and not getattr(one, "_torchdynamo_disable", False):
            return found
    return None


def _key(function: Any) -> tuple[Any, str]:
    plain = getattr(function, "__func__", function)
    owner = getattr(function, "__self__", None)
    name = str(getattr(plain, "__name__", ""))
    if owner is None or not hasattr(function, "__func__"):
        return plain, name
    return owner, CALLS if isinstance(owner, torch.nn.Module) and name in _OF_CALLS else name


def _remember(one: Compilation) -> None:
    """Remember a compilation for each compiled function that is being called."""
    for frame in walk(sys._getframe(1)):
        if frame.f_code.co_name == "compile_wrapper" and "fn" in frame.f_code.co_freevars:
            owner, name = _key(frame.f_locals["fn"])
            known = _known.setdefault(owner, {}).setdefault(name, [])
            if one not in known:
                known.append(one)


# ------------------------------------------------------------------------- hooks


def install(patches: Patches) -> None:
    """Note what Dynamo and Inductor compile, as soon as the program imports them."""
    patches.later(_known.clear)
    for name, action in {
        "_dynamo": _note_resets,
        "_dynamo.convert_frame": _note_compilations,
        "_dynamo.symbolic_convert": _note_breaks,
        "_dynamo.output_graph": _note_graphs,
        "_inductor.config": _keep_lines,
        "_inductor.output_code": _note_parts,
        "_inductor.runtime.triton_heuristics": _leave_out_benchmarks,
    }.items():
        when_imported(f"torch.{name}", patches, partial(action, patches))


def _note_resets(patches: Patches, module: Any) -> None:
    reset = module.reset

    @wraps(reset)
    def forgetting() -> None:
        reset()
        _known.clear()

    patches.set(module, "reset", forgetting)


def _note_compilations(patches: Patches, module: Any) -> None:
    compile_frame, reasons_of = module._compile, module.get_and_maybe_log_recompilation_reasons

    @wraps(compile_frame)
    def noting(code: CodeType, *args: Any, **kwargs: Any) -> Any:
        one = Compilation(code, str(kwargs.get("compile_id") or ""))
        _remember(one)
        _thread.compiling.append(one)
        try:
            return compile_frame(code, *args, **kwargs)
        except Exception as error:
            one.gave_up = _why(error)
            raise
        finally:
            _thread.compiling.pop()

    @wraps(reasons_of)
    def reasons(*args: Any, **kwargs: Any) -> Any:
        found = reasons_of(*args, **kwargs)
        if _thread.compiling:
            _thread.compiling[-1].recompiled = _guard(str(found[0])) if found else "a guard that Dynamo does not name"
        return found

    patches.set(module, "_compile", noting)
    patches.set(module, "get_and_maybe_log_recompilation_reasons", reasons)


def _guard(reason: str) -> str:
    """The guard that failed, without the number of the compilation in front of it and the line behind it."""
    text = reason.strip().partition("\n")[0]
    return _COMMENT.sub("", text.partition(": ")[2] or text).strip()


def _note_breaks(patches: Patches, module: Any) -> None:
    translator = module.InstructionTranslatorBase
    log = getattr(translator, "log_graph_break", None)
    if log is None:
        return

    @wraps(log)
    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        error = kwargs.get("exc") or next((one for one in args if isinstance(one, BaseException)), None)
        if error is not None and _thread.compiling:
            stack = getattr(error, "real_stack", None) or torch._guards.TracingContext.extract_stack()
            shown = [one for one in stack if kind(one.filename) & SHOWN]
            where = f"{shown[-1].filename}:{shown[-1].lineno}" if shown else ""
            one = where, _why(error)
            if where and one not in _thread.compiling[-1].breaks:  # else it is in torch, as in an optimizer's step
                _thread.compiling[-1].breaks.append(one)
        return log(self, *args, **kwargs)

    patches.set(translator, "log_graph_break", noting)


def _why(error: BaseException) -> str:
    """Dynamo's reason, in a line: what it met, and its explanation."""
    text = str(error)
    what = text.strip().partition("\n")[0]
    explained = _EXPLANATION.search(text)
    reason = " ".join(explained[1].split()) if explained else ""
    return f"{what}: {reason}" if reason and reason != what else what


def _note_graphs(patches: Patches, module: Any) -> None:
    compile_graph = module.OutputGraph.call_user_compiler

    @wraps(compile_graph)
    def noting(self: Any, gm: Any, *args: Any, **kwargs: Any) -> Any:
        if _thread.compiling:
            one, nodes = _thread.compiling[-1], list(_operations(gm))
            backend = self.compiler_fn
            one.backend = str(getattr(backend, "compiler_name", None) or getattr(backend, "__name__", "") or "")
            one.operations = len(nodes)
            stacks = (innermost(node.stack_trace) for node in nodes if node.stack_trace)
            one.frames = list(dict.fromkeys(frame for frame in stacks if frame is not None))
        return compile_graph(self, gm, *args, **kwargs)

    patches.set(module.OutputGraph, "call_user_compiler", noting)


def _operations(gm: Any) -> Iterator[Any]:
    """The operations of a graph, and of graphs in it."""
    for module in gm.modules():
        if isinstance(module, torch.fx.GraphModule):
            yield from (node for node in module.graph.nodes if node.op.startswith("call"))


def _keep_lines(patches: Patches, module: Any) -> None:
    """Let Inductor keep the lines that kernels are made from, unless the program wants to know even more."""
    if module.trace.provenance_tracking_level == 0:
        module.trace.provenance_tracking_level = 2  # "basic"

        def restore() -> None:
            module.trace.provenance_tracking_level = 0

        patches.later(restore)


def _note_parts(patches: Patches, module: Any) -> None:
    finish = module.CompiledFxGraph.post_compile

    @wraps(finish)
    def noting(self: Any, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        finish(self, example_inputs, constants, graph_kwargs)
        number = torch._guards.CompileContext.current_compile_id()
        one = _thread.compiling[-1] if _thread.compiling else _by_number(number)
        if one is None:
            return
        traces = json.loads(getattr(self, "inductor_provenance_stack_traces_str", None) or "{}")
        part = Part(bool(graph_kwargs.get("is_backward")), self.source_code, traces, "cuda" in self.device_types)
        one.parts.append(part)
        if part.on_device and self.current_callable is not None:
            self.current_callable = _recorded_once(part, self, self.current_callable)

    patches.set(module.CompiledFxGraph, "post_compile", noting)


def _by_number(number: Any) -> Compilation | None:
    """The compilation of a graph whose backward pass is compiled when it is needed."""
    return next((one for known in _every() for one in known if one.number == str(number)), None)


def _recorded_once(part: Part, graph: Any, call: Callable[..., Any]) -> Callable[..., Any]:
    """Record the first call of a part."""

    def first(inputs: Any) -> Any:
        if part.launches is not None or current.machine is None or graph_capture.current_capture() is not None:
            return call(inputs)
        with _recording(part):
            result = call(inputs)
        if graph.current_callable is first:
            graph.current_callable = call
        return result

    return first


@contextmanager
def _recording(part: Part) -> Iterator[None]:
    machine, host = current.machine, here.host
    assert machine is not None
    recorder = recording.new_recorder(host.now, LIMIT)
    left_out: list[range] = []
    _thread.running.append((recorder, left_out))
    recording.start(machine, recorder)
    try:
        yield
        part.called = next(_calls)
        launches = enumerate(recorder.kernels)
        part.launches = [
            one for place, one in launches if one.thread == host.name and not any(place in some for some in left_out)
        ]
    finally:
        recording.stop(machine, recorder)
        _thread.running.pop()


def _leave_out_benchmarks(patches: Patches, module: Any) -> None:
    """Leave out the launches with which Inductor finds the best configuration of a kernel."""
    bench = module.CachingAutotuner.bench

    @wraps(bench)
    def leaving_out(*args: Any, **kwargs: Any) -> Any:
        if not _thread.running:
            return bench(*args, **kwargs)
        recorder, left_out = _thread.running[-1]
        before = len(recorder.kernels)
        try:
            return bench(*args, **kwargs)
        finally:
            left_out.append(range(before, len(recorder.kernels)))

    patches.set(module.CachingAutotuner, "bench", leaving_out)


# ------------------------------------------------------------------------ reading


def matched(part: Part) -> list[tuple[Site | None, Kernel | None]]:
    """The kernels of a part in the order of their launches, each with its call; without launches, its calls.

    A kernel of a library is matched with the next call that has its op's name.
    """
    left = part.sites
    if part.launches is None:
        return [(site, None) for site in left]
    pairs: list[tuple[Site | None, Kernel | None]] = []
    for launch in part.launches:
        site = next((one for one in left if _launches(one, launch.name)), None)
        if site is not None:
            left.remove(site)
        pairs.append((site, launch))
    return pairs


def _launches(site: Site, name: str) -> bool:
    """Whether a call launches a kernel of that name."""
    if site.triton:
        return site.name == name
    parts = site.name.split(".")
    op = parts[-2] if parts[-1] in ("default", "out", "Tensor") and len(parts) > 2 else parts[-1]
    return name.rpartition("::")[2].strip("_") == op.strip("_")


def without_code(one: Compilation) -> str:
    """Why there is no code of a graph, in a sentence; empty if there is, or no graph."""
    if one.operations is None or one.parts:
        return ""
    if one.backend != "inductor":
        return f"The backend {one.backend!r} runs its graph without code that Inductor has generated."
    missing = triton_version.missing()
    return f"It runs op by op: {missing}" if missing else "Inductor has not compiled its graph yet."
