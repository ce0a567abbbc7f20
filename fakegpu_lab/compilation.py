"""`compiled()`: what torch.compile made of a function, its kernels beside the lines that they were made from."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fakegpu_lab import session
from fakegpu_lab.formatting.table import Table
from fakegpu_lab.formatting.units import duration, several, size
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.user_code.frames import OWN, kind, place, quoted

if TYPE_CHECKING:
    from fakegpu_lab.driver.compile.compilations import Compilation, Part
    from fakegpu_lab.hardware.time.records import Kernel

_COLUMN = "flex: 1 1 22em; min-width: 0; overflow-x: auto; margin: 0; padding: 6px 8px"
_PRE = f"{_COLUMN}; font-family: var(--jp-code-font-family, monospace); font-size: 90%; background: transparent"
_CARD = "border: 1px solid var(--jp-border-color2, #9a9a9a); margin: 8px 0; padding: 4px 8px"


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel of a compiled graph, as its first call launched it.

    Attributes
    ----------
    name
        Its name on a card, such as ``triton_poi_fused_add_sin_0``, or the op whose library kernel runs, such as
        ``aten::mm``.
    graph
        The number of its graph, from 1.
    backward
        Whether the backward pass launches it.
    lines
        The program's lines that it was made from, as ``file:number``. Empty if there are none, as in ``nn.Sequential``,
        or if Inductor does not say.
    ops
        The ops that it was made from, such as ``relu``.
    code
        Its function in Triton's language; empty if it is a library's.
    call
        The line of Inductor's code that launches it; empty if it is not known.
    ns
        Its time on the simulated card, nanoseconds; None if its graph has not been called yet.
    nbytes
        Bytes read and written; None if its graph has not been called yet.
    read_bytes, written_bytes
        Bytes read of DRAM, and written; None where only `nbytes` is known, as for a library's kernels.
    """

    name: str
    graph: int
    backward: bool
    lines: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    code: str = ""
    call: str = ""
    ns: int | None = None
    nbytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None


@dataclass(frozen=True)
class GraphBreak:
    """A place where a graph ends early, and Python runs a part of the program.

    Attributes
    ----------
    line
        As ``file:number``.
    reason
        What Dynamo says of it.
    """

    line: str
    reason: str

    def __str__(self) -> str:
        return f"The graph breaks at {quoted(self.line)}\n  {self.reason}"


@dataclass(frozen=True)
class CompiledGraph:
    """A graph that torch.compile has captured.

    Attributes
    ----------
    number
        From 1, in the order of compiling.
    name, line
        The function that it is of, and the line where it begins, as ``file:number``.
    operations
        How many operations were captured.
    backend
        The compiler's name, such as ``"inductor"``.
    recompiled
        The guard whose failure led to this recompilation; empty if it is the first graph of its function.
    kernels
        Those of the forward and of the backward pass, in the order of their launches.
    sources
        The modules that Inductor has written, which allocate memory and launch kernels.
    note
        Why it has no kernels on a card, in a sentence; else empty.
    """

    number: int
    name: str
    line: str
    operations: int
    backend: str
    recompiled: str
    kernels: tuple[CompiledKernel, ...]
    sources: tuple[str, ...]
    note: str


class Compiled:
    """What torch.compile made of a function. The last line of a cell shows it, and `print` writes it. See `compiled`.

    Attributes
    ----------
    name
        The function's or the module's.
    graphs
        Its graphs, in the order of compiling, those of recompilations included.
    breaks
        Where graphs break.
    kernels
        The kernels of all graphs, in the order in which first calls launched them; last, those that were not launched.
    eager
        Why functions, or what follows a graph break, run without being compiled: sentences.
    """

    def __init__(self, name: str, compilations: list[Compilation], card: str) -> None:
        captured = [one for one in compilations if one.operations is not None]
        kernels: list[tuple[int, list[CompiledKernel]]] = []
        graphs = []
        for number, one in enumerate(captured, 1):
            parts = [(part.called, _kernels(one, part, number)) for part in one.parts]
            kernels += parts
            graphs.append(_graph(number, name, one, [kernel for _, made in parts for kernel in made]))
        kernels.sort(key=lambda part: part[0] or float("inf"))
        self.name = name
        self.graphs: tuple[CompiledGraph, ...] = tuple(graphs)
        found = dict.fromkeys(GraphBreak(*broken) for one in compilations for broken in one.breaks)
        self.breaks: tuple[GraphBreak, ...] = tuple(found)
        self.kernels: tuple[CompiledKernel, ...] = tuple(kernel for _, made in kernels for kernel in made)
        self.eager: tuple[str, ...] = tuple(dict.fromkeys(_eager(one) for one in compilations if one.gave_up))
        self._card = card

    @property
    def recompilations(self) -> tuple[CompiledGraph, ...]:
        """The graphs that were compiled because a guard of an earlier one had failed."""
        return tuple(graph for graph in self.graphs if graph.recompiled)

    @property
    def table(self) -> Table:
        """A row for each kernel: its graph, time, bytes, ops and lines."""
        headers = ["graph", "kernel", "time", "bytes", "read", "written", "made from", "lines"]
        return Table(
            headers, [_row(one) for one in self.kernels], numbers=frozenset((2, 3, 4, 5)), code=frozenset((1,))
        )

    @property
    def _heading(self) -> str:
        parts = [
            several(len(self.graphs), "graph"),
            several(len(self.breaks), "graph break"),
            several(len(self.recompilations), "recompilation"),
        ]
        text = f"torch.compile made of {self.name}: {', '.join(parts)}"
        took = sum(one.ns or 0 for one in self.kernels)
        launched = f", {several(len(self.kernels), 'kernel')}, {duration(took)} on {self._card}"
        return text + (launched if self.kernels else "") + "."

    @property
    def _notes(self) -> list[str]:
        """What the table does not say: breaks, recompilations, and graphs without kernels."""
        notes = [str(one) for one in self.breaks]
        notes += [
            f"Graph {one.number} is a recompilation of {one.name} ({place(one.line).label}), because a guard failed:\n"
            f"  {one.recompiled}"
            for one in self.recompilations
        ]
        notes += [f"Graph {one.number}: {one.note}" for one in self.graphs if one.note]
        return [*notes, *self.eager]

    @property
    def _distinct(self) -> list[CompiledKernel]:
        """The kernels that have code, each once."""
        return list({(one.name, one.code): one for one in reversed(self.kernels) if one.code}.values())[::-1]

    def __str__(self) -> str:
        parts = [self._heading, str(self.table)] if self.kernels else [self._heading]
        parts += ["\n".join(self._notes)] if self._notes else []
        for one in self._distinct:
            lines = [f"  {quoted(line)}" for line in one.lines]
            code = [f"    {line}".rstrip() for line in one.code.splitlines()]
            parts.append("\n".join([one.name, *lines, *code]))
        return "\n\n".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        notes = "".join(f"<li style='white-space: pre-wrap'>{html.escape(note)}</li>" for note in self._notes)
        table = self.table._repr_html_() if self.kernels else ""
        cards = "".join(_beside(one) for one in self._distinct)
        return (
            f"<section aria-label='{html.escape(self._heading, quote=True)}'><p><b>{html.escape(self._heading)}</b></p>"
            f"{table}{f'<ul>{notes}</ul>' if notes else ''}{cards}</section>"
        )


def _kernels(one: Compilation, part: Part, number: int) -> list[CompiledKernel]:
    from fakegpu_lab.driver.compile.compilations import matched

    if not part.on_device:
        return []
    codes = part.kernels
    made = []
    for site, launch in matched(part):
        name = launch.name if launch is not None else site.name if site is not None else ""
        lines = one.lines(part.traces.get(site.handle, [])) if site is not None else ()
        about = (lines, site.ops, codes.get(name, ""), site.text) if site is not None else ((), (), "", "")
        made.append(CompiledKernel(name, number, part.backward, *about, *_figures(launch)))
    return made


def _figures(launch: Kernel | None) -> tuple[int | None, int | None, int | None, int | None]:
    """Time, bytes, bytes read, bytes written."""
    if launch is None:
        return None, None, None, None
    access = launch.access
    split = (access.dram_read_bytes, access.dram_written_bytes) if access is not None else (None, None)
    return launch.end_ns - launch.start_ns, launch.nbytes, *split


def _graph(number: int, name: str, one: Compilation, kernels: list[CompiledKernel]) -> CompiledGraph:
    from fakegpu_lab.driver.compile.compilations import without_code

    note = without_code(one)
    if one.parts and not any(part.on_device for part in one.parts):
        note = "It runs on the CPU, so it launches no kernels on a card."
    return CompiledGraph(
        number,
        one.name if kind(one.code.co_filename) & OWN else name,
        one.line,
        one.operations or 0,
        one.backend,
        one.recompiled,
        tuple(kernels),
        tuple(part.source for part in one.parts),
        note,
    )


def _eager(one: Compilation) -> str:
    """A sentence; the reason is left out if it is that of a graph break, which is shown by itself."""
    known = one.gave_up in {reason for _, reason in one.breaks}
    text = f"{one.name} ({place(one.line).label}) was not compiled, and runs op by op"
    return f"{text}." if known else f"{text}:\n  {one.gave_up}"


def _row(one: CompiledKernel) -> list[str]:
    sizes = ["" if value is None else size(value) for value in (one.nbytes, one.read_bytes, one.written_bytes)]
    return [
        f"{one.graph}, backward" if one.backward else str(one.graph),
        one.name,
        "not yet run" if one.ns is None else duration(one.ns),
        *sizes,
        ", ".join(one.ops),
        "; ".join(place(line).label for line in one.lines),
    ]


def _beside(one: CompiledKernel) -> str:
    """The program's lines on the left, the kernel's code on the right; on a narrow page, below."""
    lines = "\n".join(f"{html.escape(place(line).label)}\n    {html.escape(place(line).text)}" for line in one.lines)
    left = lines or html.escape(", ".join(one.ops))
    return (
        f"<details open style='{_CARD}'><summary><code style='overflow-wrap: anywhere'>{html.escape(one.name)}</code>"
        f"</summary><div style='display: flex; flex-wrap: wrap; gap: 8px'><pre style='{_PRE}' tabindex='0' "
        f"aria-label='Your lines'>{left}</pre><pre style='{_PRE}; flex-grow: 2' tabindex='0' aria-label='Triton code'>"
        f"{html.escape(one.code)}</pre></div></details>"
    )


def compiled(fn: Any) -> Compiled:
    """What torch.compile made of a function or a module, after it has been called.

    Its kernels in the order of their launches, each with the lines and ops that it was made from, its traffic and time
    on the simulated card in the first call, and the Triton code that Inductor has generated; where graphs break, and
    what was compiled again.

    >>> import fakegpu_lab as lab
    >>> lab.compiled(len)
    Traceback (most recent call last):
    fakegpu_lab.hardware.errors.FakeGpuError: No simulated GPU is enabled: ...

    Parameters
    ----------
    fn
        What ``torch.compile`` has returned, a module after ``module.compile()``, or what was given to
        ``torch.compile``.

    Raises
    ------
    FakeGpuError
        No machine is enabled, `fn` is not compiled, or it has not been called yet.
    """
    machine = session.machine()
    from fakegpu_lab.driver.compile import compilations  # imports torch, so only here

    name = _name(fn)
    found = compilations.of(fn)
    if found is None:
        raise FakeGpuError(
            f"compiled({name}): this is not a compiled function or module. Compile it with torch.compile, call the "
            "result once, and then pass it to compiled()."
        )
    if not found:
        raise FakeGpuError(
            f"compiled({name}): nothing has been compiled yet. torch.compile compiles at the first call, so call "
            f"{name} once. (The method compile() of a layer of torch.nn by itself compiles nothing.)"
        )
    return Compiled(name, found, machine.devices[0].profile.name)


def _name(fn: Any) -> str:
    """The name of a function, or of a module's class, without torch.compile's wrapper."""
    inner = getattr(fn, "_orig_mod", fn)
    name = getattr(inner, "__name__", None)
    if isinstance(name, str):
        return name
    return repr(fn) if isinstance(fn, (str, int, float, type(None))) else type(inner).__name__
