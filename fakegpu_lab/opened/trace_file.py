"""The events of a trace that torch.profiler wrote (Kineto's libkineto/src/output_json.cpp), read and checked.

Events are read one by one into small tuples, so that a file of 200 MB does not become gigabytes of dictionaries.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import msgspec

from fakegpu_lab.formatting.printable import printable
from fakegpu_lab.formatting.units import several
from fakegpu_lab.opened.content import broken, refusal

if TYPE_CHECKING:
    from pathlib import Path

Thread = tuple[str, str]
"""The process and the thread, as the file has them."""

_MOST_US = 1e15
"""The longest duration, µs: 31 years."""
_LATEST_US = 4.2e15
"""The latest time, µs: in 2103, counted from 1970."""
_MOST_CORRELATION = 2**63

DEVICE = frozenset({"kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset"})
_CALLS = frozenset({"cuda_runtime", "cuda_driver", "Runtime"})
_OPS = frozenset({"cpu_op", "Operator", "user_annotation", "cpu_instant_event"})
_NO_OP = re.compile(r"^(?!.*(::|Backward\d*$))")
"""An annotation in files of profilers before 2022, which do not tell it from an op."""
_ACCELERATORS = {
    "mtia": "Meta's MTIA", "xpu": "an Intel GPU", "hpu": "Intel's Gaudi", "npu": "Huawei's Ascend",
    "musa": "a Moore Threads GPU",
}  # fmt: skip

_Name = TypeVar("_Name", str, bytes)
_READ = msgspec.Raw(b"")
_CUDA = "lab.open reads traces of NVIDIA GPUs (CUDA)"


class Call(NamedTuple):
    """A call of CUDA's runtime or driver by a host thread; times in µs."""

    ts: float
    dur: float
    thread: Thread
    name: str
    correlation: int


class Op(NamedTuple):
    """An op, an annotation, or a Python function; `shapes`, `stack` and `comms` as the file has them."""

    ts: float
    dur: float
    thread: Thread
    name: str
    python: bool
    sequence: int = -1
    shapes: bytes | None = None
    types: bytes | None = None
    stack: str = ""
    comms: Any = None
    annotation: bool = False


class Work(NamedTuple):
    """A kernel, a copy or a memset on a device."""

    ts: float
    dur: float
    kind: str
    name: str
    device: int
    stream: int
    correlation: int
    nbytes: int
    comms: Any


class Memory(NamedTuple):
    """Memory of a device that was taken, or given back (`nbytes` below 0); totals are -1 if unknown."""

    ts: float
    thread: Thread
    device: int
    address: int
    nbytes: int
    allocated: int
    reserved: int


@dataclass
class TraceFile:
    """What a file says.

    Attributes
    ----------
    cards
        The names of the devices, by their ordinals.
    rank, world_size
        None and 0 if unknown.
    base_us
        What times are counted from, µs since 1970; 0 if they are counted from 1970 or unknown.
    groups
        The ranks of each process group, by name.
    raw, other
        The events themselves, and what stands beside them under ``otherData``.
    """

    path: Path
    cards: dict[int, str] = field(default_factory=dict)
    rank: int | None = None
    world_size: int = 0
    base_us: float = 0.0
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)
    memories: list[Memory] = field(default_factory=list)
    raw: list[msgspec.Raw] = field(default_factory=list)
    other: dict[str, Any] = field(default_factory=dict)
    _names: dict[Any, Any] = field(default_factory=dict)

    def thread(self, event: Event) -> Thread:
        """An event's thread; there is one object for each."""
        key = event.pid, event.tid
        try:
            known = self._names.get(key)
        except TypeError:
            raise WrongEventError("has no process or thread number") from None
        if known is None:
            known = self._names[key] = (printable(str(event.pid))[:64], printable(str(event.tid))[:64])
        return cast("Thread", known)

    def name(self, name: _Name) -> _Name:
        """The one object of all equal names: a file has few, and each of them many times."""
        return cast("_Name", self._names.setdefault(name, name))


class _Top(msgspec.Struct, gc=False):
    events: Any = msgspec.field(default=None, name="traceEvents")
    devices: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name="deviceProperties")
    distributed: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name="distributedInfo")
    base: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name="baseTimeNanoseconds")
    other: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name="otherData")
    hip: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name="hip_runtime_version")
    roctracer: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name="roctracer_version")
    nodes: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name="nodes")


class _Events(_Top, gc=False):
    events: list[msgspec.Raw] = msgspec.field(default_factory=list, name="traceEvents")


class Event(msgspec.Struct, gc=False):
    """An event's own fields; its arguments are read when its kind is known."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Any = 0
    tid: Any = 0
    ts: float = 0.0
    dur: float | None = None
    id: Any = 0
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _CallArgs(msgspec.Struct, gc=False):
    correlation: int = 0


class Comms(msgspec.Struct, gc=False):
    """What NCCL's events say about a collective."""

    collective: str = msgspec.field(default="", name="Collective name")
    elements_in: int = msgspec.field(default=0, name="In msg nelems")
    elements_out: int = msgspec.field(default=0, name="Out msg nelems")
    group_size: int = msgspec.field(default=0, name="Group size")
    dtype: str = msgspec.field(default="", name="dtype")
    group: str = msgspec.field(default="", name="Process Group Name")
    ranks: Any = msgspec.field(default="", name="Process Group Ranks")
    number: int = msgspec.field(default=0, name="Seq")


class _WorkArgs(Comms, gc=False):
    device: int | None = None
    stream: int | None = None
    correlation: int = 0
    nbytes: int = msgspec.field(default=0, name="bytes")


class _OpArgs(msgspec.Struct, gc=False):
    sequence: int = msgspec.field(default=-1, name="Sequence number")
    shapes: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input type")
    stack: str = msgspec.field(default="", name="Call stack")


class _MemoryArgs(msgspec.Struct, gc=False):
    kind: int = msgspec.field(default=0, name="Device Type")
    device: int = msgspec.field(default=-1, name="Device Id")
    address: int = msgspec.field(default=0, name="Addr")
    nbytes: int = msgspec.field(default=0, name="Bytes")
    allocated: int = msgspec.field(default=-1, name="Total Allocated")
    reserved: int = msgspec.field(default=-1, name="Total Reserved")


_event = msgspec.json.Decoder(Event).decode
_call_args = msgspec.json.Decoder(_CallArgs).decode
_work_args = msgspec.json.Decoder(_WorkArgs).decode
_op_args = msgspec.json.Decoder(_OpArgs).decode
_comms = msgspec.json.Decoder(Comms).decode
_memory_args = msgspec.json.Decoder(_MemoryArgs).decode
_top = msgspec.json.Decoder(_Events).decode
_anything = msgspec.json.Decoder(Any).decode

ERRORS = (msgspec.DecodeError, RecursionError, UnicodeDecodeError, OverflowError)


def read(path: Path, data: bytes) -> TraceFile:
    """The events of a trace.

    Raises
    ------
    FakeGpuError
        It is no JSON, no trace, or a trace of something else than CUDA devices.
    """
    top = _opened(path, data)
    found = TraceFile(path, raw=top.events)
    found.other = _plain(top.other, dict)
    if found.other.get("producer") == "fakegpu_lab":
        return found
    _describe(found, top)
    categories: dict[str, int] = {}
    number = -1
    try:
        for number, raw in enumerate(top.events):
            text = bytes(raw)
            top.events[number] = _READ
            if b'"X"' in text or b'"[memory]"' in text:
                _take(found, _event(text), categories)
    except WrongEventError as wrong:
        raise broken(path, f"event {number:,} {wrong}") from None
    except ERRORS as error:
        raise broken(path, f"event {number:,} is not as torch.profiler writes it ({said(error)})") from None
    _check(found, top, categories)
    return found


class WrongEventError(Exception):
    """An event that cannot be; the message continues a sentence."""


def _opened(path: Path, data: bytes) -> _Events:
    start = data[:64].lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if start not in (b"{", b"["):
        raise refusal(path, "not JSON")
    try:
        alone = start == b"["  # the format allows the list of events alone
        top = _Events(events=msgspec.json.decode(data, type=list[msgspec.Raw])) if alone else _top(data)
    except msgspec.ValidationError:
        raise refusal(path, "JSON, but no trace: its traceEvents are not a list of events") from None
    except ERRORS as error:
        near = _constant(data)
        reason = f"it has {near} where JSON needs a number" if near else f"it is not valid JSON ({said(error)})"
        raise broken(path, reason) from None
    if not top.events:
        kind = "JSON, but no trace: it has no traceEvents"
        if bytes(top.nodes) != b"null":
            kind = "an execution trace (ExecutionTraceObserver), which has no times"
        raise refusal(path, kind)
    return top


def said(error: BaseException) -> str:
    """What is wrong with the JSON, to stand in a sentence."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    text = printable(str(error)).rstrip(".")
    return text.removeprefix("JSON is malformed: ")[:160]


def _constant(data: bytes) -> str:
    found = re.search(rb"[:\[,]\s*(-?(?:NaN|nan|Infinity|inf))\b", data)
    return found[1].decode() if found else ""


def _plain(raw: msgspec.Raw, kind: type) -> Any:
    """A part of the head, or an empty one if it is something else."""
    with contextlib.suppress(*ERRORS):
        value = _anything(raw)
        if isinstance(value, str) and kind is not str:
            value = _anything(value)
        if isinstance(value, kind):
            return value
    return kind()


def _describe(found: TraceFile, top: _Events) -> None:
    """Read the head: the cards, the rank, the groups."""
    for card in _plain(top.devices, list):
        if isinstance(card, dict) and type(card.get("id")) is int and isinstance(card.get("name"), str):
            found.cards[card["id"]] = printable(card["name"])
    about = _plain(top.distributed, dict)
    rank, world = about.get("rank"), about.get("world_size")
    found.rank = rank if type(rank) is int and 0 <= rank < 2**31 else None
    found.world_size = world if type(world) is int and 0 < world < 2**31 else 0
    groups = about.get("pg_config")
    for group in groups if isinstance(groups, list) else []:
        if isinstance(group, dict) and isinstance(group.get("ranks"), list):
            found.groups[str(group.get("pg_name", ""))] = tuple(r for r in group["ranks"] if type(r) is int)
    base = _plain(top.base, int)
    found.base_us = base / 1e3 if 0 <= base < _LATEST_US * 1e3 else 0.0


def _take(found: TraceFile, event: Event, categories: dict[str, int]) -> None:
    kind = event.ph
    if kind == "X":
        category = event.cat
        categories[category] = categories.get(category, 0) + 1
        if category not in DEVICE and category not in _CALLS and category not in _OPS and category != "python_function":
            return
        check_times(event)
        dur = event.dur
        assert dur is not None
        thread = found.thread(event)
        name = found.name(event.name)
        if category == "python_function":
            found.ops.append(Op(event.ts, dur, thread, name, True))
        elif category in DEVICE:
            found.works.append(_work(event, name, _work_args(event.args)))
        elif category in _CALLS:
            correlation = _call_args(event.args).correlation
            found.calls.append(Call(event.ts, dur, thread, name, correlation))
        else:
            args = _op_args(event.args)
            comms = _comms(event.args) if name == "record_param_comms" else None
            shapes = found.name(bytes(args.shapes)) if len(args.shapes) > 2 else None
            types = found.name(bytes(args.types)) if comms or name.startswith("nccl:") else None
            around = category == "user_annotation" or (category == "Operator" and _NO_OP.match(name) is not None)
            stack = found.name(args.stack)
            found.ops.append(
                Op(event.ts, dur, thread, name, False, args.sequence, shapes, types, stack, comms, around)
            )  # fmt: skip
    elif kind == "i" and event.name == "[memory]":
        memory = _memory_args(event.args)
        if memory.kind == 1 and memory.device >= 0:
            check_times(event)
            thread = found.thread(event)
            found.memories.append(
                Memory(event.ts, thread, memory.device, memory.address, memory.nbytes, memory.allocated,
                       memory.reserved)
            )  # fmt: skip


def check_times(event: Event) -> None:
    """Check that an event's times can be."""
    if not -_LATEST_US < event.ts < _LATEST_US:  # also NaN
        raise WrongEventError(f"has the time {event.ts:g} µs")
    if event.ph == "X":
        if event.dur is None:
            raise WrongEventError("has no duration")
        if event.dur < 0:
            raise WrongEventError(f"has a negative duration ({event.dur:g} µs)")
        if not event.dur < _MOST_US:
            raise WrongEventError(f"has a duration of {event.dur:g} µs")


def _work(event: Event, name: str, args: _WorkArgs) -> Work:
    device = args.device if args.device is not None else _number(event.pid)
    stream = args.stream if args.stream is not None else _number(event.tid)
    if not 0 <= device < 2**16:
        raise WrongEventError(f"runs on device {device}")
    if not 0 <= args.nbytes < 2**63 or not -(2**63) <= args.correlation < _MOST_CORRELATION:
        raise WrongEventError("has a size or a correlation that no computer has")
    comms = None
    if args.collective:
        comms = args
    kind = "memcpy" if "emcpy" in event.cat else "memset" if "emset" in event.cat else "kernel"
    return Work(event.ts, event.dur or 0.0, kind, name, device, stream, args.correlation, args.nbytes, comms)


def _number(value: Any) -> int:
    """A number, also of ``stream 7``."""
    if type(value) is int:
        return value
    found = re.search(r"\d{1,9}", value) if isinstance(value, str) else None
    return int(found[0]) if found else -1


def _check(found: TraceFile, top: _Events, categories: dict[str, int]) -> None:
    """Refuse what is no recording of CUDA devices, with a sentence that says what it is."""
    amd = any(re.search(r"\bAMD\b|Radeon|Instinct", name) for name in found.cards.values())
    hip = any(call.name.startswith("hip") for call in found.calls)
    if amd or hip or bytes(top.hip) != b"null" or bytes(top.roctracer) != b"null":
        raise refusal(found.path, "a trace of an AMD GPU (ROCm)", _CUDA)
    for category in categories:
        maker = _ACCELERATORS.get(category.partition("_")[0].lower())
        if maker is not None and not found.works:
            raise refusal(found.path, f"a trace of {maker}", _CUDA)
    if found.works:
        return
    if found.ops or found.calls:
        raise refusal(
            found.path,
            "a trace without a kernel or a copy: it was recorded on the CPU alone, or its device events were left out",
            "record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
        )
    listed = ", ".join(repr(printable(name))[:40] for name in sorted(categories)[:4]) or "none"
    raise refusal(
        found.path,
        f"a trace, but not of torch.profiler: none of its {several(len(top.events), 'event')} is an op, a launch or a "
        f"kernel (categories: {listed})",
    )
