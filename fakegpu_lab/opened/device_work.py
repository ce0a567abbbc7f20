"""The records of a file: kernels, copies, collectives, what launched them, and the waits and the work of the host."""

from __future__ import annotations

import contextlib
import math
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from fakegpu_lab.formatting.printable import printable
from fakegpu_lab.hardware.time.records import (
    LOADER_WAIT,
    Allocation,
    Collective,
    HostWork,
    Kernel,
    Total,
    Transfer,
    Wait,
    sum_up,
)
from fakegpu_lab.opened.threads import LOADER, LONG_US, NOWHERE, around, starts_work

if TYPE_CHECKING:
    from fakegpu_lab.hardware.time.happens_before import Race
    from fakegpu_lab.hardware.time.records import FirstUse, Shapes
    from fakegpu_lab.opened.threads import Around, Situation
    from fakegpu_lab.opened.trace_file import Call, Comms, Thread, TraceFile, Work

_SHAPES, _DIMS = 16, 16
"""The most shapes of an op, and the most dimensions of one, that are kept."""

_WAITS = frozenset({
    "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cuStreamSynchronize",
    "cuCtxSynchronize", "cuEventSynchronize", "cudaMemcpy",
})  # fmt: skip
_NCCL = re.compile(r"^nccl(?:Dev)?Kernel_?([A-Za-z]*)")
_ALGORITHM = re.compile(r"_(RING|TREE|NVLS_TREE|NVLS|COLLNET_DIRECT|COLLNET_CHAIN|COLLNET)(?=_|\(|$)")
_PROTOCOL = re.compile(r"_(LL128|LL|SIMPLE)(?=_|\(|$)")
_OPERATIONS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "_all_gather_base": "all_gather_into_tensor",
    "_allgather_base": "all_gather_into_tensor",
    "allgather_into_tensor_coalesced": "all_gather_into_tensor", "reducescatter": "reduce_scatter",
    "reduce_scatter": "reduce_scatter", "_reduce_scatter_base": "reduce_scatter_tensor", "broadcast": "broadcast",
    "reduce": "reduce", "sendrecv": "send_recv", "send": "send", "recv": "recv", "all_to_all": "all_to_all",
    "all_to_allv": "all_to_all_single", "alltoall": "all_to_all", "barrier": "barrier", "gather": "gather",
    "scatter": "scatter", "allreduce_coalesced": "all_reduce",
}  # fmt: skip
_BYTES = {
    "float": 4, "double": 8, "half": 2, "c10::half": 2, "bfloat16": 2, "c10::bfloat16": 2, "int": 4, "long": 8,
    "long int": 8, "byte": 1, "char": 1, "unsigned char": 1, "signed char": 1, "bool": 1, "short": 2,
    "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
_Common: TypeAlias = "tuple[int, int, int, int, str, str, str, str]"
"""Device, stream, start, end, thread, line, module, phase."""
_TRANSFERS = {"HtoD": "h2d", "DtoH": "d2h", "PtoP": "p2p"}


@dataclass
class HostTimes:
    """What launches took the host, as recorded.

    Attributes
    ----------
    launch_ns, op_ns
        What the median launch took; what 99% of the ops took before their launch.
    launches
        By correlation: when its thread began with Python, with PyTorch's C++, with the call.
    """

    launch_ns: int = 0
    op_ns: int = 0
    launches: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    def began(self, record: Kernel | Transfer | Collective) -> tuple[int, int, int]:
        """When a launch's thread began with it: with Python, with PyTorch's C++, with the launching call."""
        known = self.launches.get(record.correlation)
        return known if known is not None else (record.launched_ns, record.launched_ns, record.launched_ns)


@dataclass
class OpenedRecords:
    """The records that a file has, as a `Recorder` would have them; see `recorded.Records`."""

    began_ns: int = 0
    last_ns: int = 0
    first_use_ns: int = 0
    kernels: list[Kernel] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)
    allocations: list[Allocation] = field(default_factory=list)
    held_before: list[Allocation] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    host_work: list[HostWork] = field(default_factory=list)
    races: list[Race] = field(default_factory=list)
    first_uses: list[FirstUse] = field(default_factory=list)
    peaks: dict[int, int] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)

    @property
    def totals(self) -> dict[tuple[int, str], Total]:
        """Kernels, copies and collectives by (device, name)."""
        totals: dict[tuple[int, str], Total] = {}
        sum_up(totals, (*self.kernels, *self.transfers, *self.collectives))
        return totals


class _Clock:
    """Times of a file, in µs, as ns since its first event."""

    def __init__(self, file: TraceFile) -> None:
        self.base: float = min(min(one.ts for one in events) for events in _timed(file) if events)

    def ns(self, us: float) -> int:
        return round((us - self.base) * 1000)


def _timed(file: TraceFile) -> tuple[list[Any], ...]:
    """The events whose times make up the recording: what Python did before it belongs to no recording."""
    return file.works, file.calls, [op for op in file.ops if not op.python and "::" in op.name]


def records_of(file: TraceFile) -> tuple[OpenedRecords, HostTimes, Around, float]:
    """Make the records; the last result is the time, µs since 1970 or the file's own zero, from which they count."""
    found = around(file)
    clock = _Clock(file)
    names = thread_names(file, found)
    records = OpenedRecords()
    ends = [max(one.ts + getattr(one, "dur", 0.0) for one in events) for events in _timed(file) if events]
    records.last_ns = clock.ns(max(ends))
    calls: dict[int, int] = {}
    for place, call in enumerate(file.calls):
        if call.correlation and (call.correlation not in calls or starts_work(call.name)):
            calls[call.correlation] = place
    made = _Maker(file, found, clock, names, calls)
    times = made.all_into(records)
    _host(file, found, clock, names, calls, records)
    ran = (records.kernels, records.transfers, records.collectives)
    records.last_ns = max([records.last_ns, *(max(one.end_ns for one in several) for several in ran if several)])
    return records, times, found, clock.base + file.base_us


def thread_names(file: TraceFile, found: Around) -> dict[Thread, str]:
    """What the host's threads are called: ``main``, ``backward``, or by their number."""
    names: dict[Thread, str] = {}
    used = sorted({call.thread for call in file.calls} | {op.thread for op in file.ops if not op.python})
    backward = [thread for thread in used if thread in found.backward]
    main = [thread for thread in used if thread[0] == thread[1]]
    others = [thread for thread in used if thread not in backward]
    if not main and others:  # the file numbers threads in another way
        main = [Counter(op.thread for op in file.ops if op.thread in set(others)).most_common(1)[0][0]] if any(
            op.thread in set(others) for op in file.ops) else others[:1]  # fmt: skip
    for thread in used:
        kind = "main" if thread in main else "backward" if thread in backward else f"thread {printable(thread[1])}"
        names[thread] = kind
    counts = Counter(names.values())
    return {
        thread: name if counts[name] == 1 else f"{name} {printable(thread[1])}" for thread, name in names.items()
    }  # fmt: skip


class _Maker:
    """Makes the records of what ran on devices."""

    def __init__(
        self, file: TraceFile, found: Around, clock: _Clock, names: dict[Thread, str], calls: dict[int, int]
    ) -> None:
        self.file, self.found, self.clock, self.names, self.calls = file, found, clock, names, calls
        self.numbers: Counter[str] = Counter()
        ends = sorted(end for each in found.backward.values() for end in each)
        self.backward_ends = ends

    def all_into(self, records: OpenedRecords) -> HostTimes:
        """Make the records in the order of their launches; return what the launches took."""
        works = [(self._launch_us(work), place, work) for place, work in enumerate(self.file.works)]
        works.sort(key=lambda entry: (entry[0], entry[2].ts, entry[1]))
        times = HostTimes()
        before: dict[tuple[int, int], int] = {}
        took, dispatched = [], []
        for number, (_, _, work) in enumerate(works, 1):
            place = self.calls.get(work.correlation)
            call = self.file.calls[place] if place is not None else None
            situation = self.found.calls[place] if place is not None else NOWHERE
            if call is not None:
                times.launches[number] = began = self._began(call, situation)
                took.append(round(call.dur * 1000))
                dispatched.append(began[2] - began[1])
            record = self._record(work, call, situation, number, before)
            if isinstance(record, Kernel):
                records.kernels.append(record)
            elif isinstance(record, Transfer):
                records.transfers.append(record)
            else:
                records.collectives.append(record)
            stream = record.device, record.stream
            before[stream] = max(before.get(stream, record.end_ns), record.end_ns)
        if took:
            times.launch_ns = sorted(took)[len(took) // 2]
            times.op_ns = sorted(dispatched)[len(dispatched) * 99 // 100]
        return times

    def _launch_us(self, work: Work) -> float:
        place = self.calls.get(work.correlation)
        return self.file.calls[place].ts if place is not None else work.ts

    def _began(self, call: Call, situation: Situation) -> tuple[int, int, int]:
        launching = self.clock.ns(call.ts)
        dispatched = self.clock.ns(situation.op_us) if situation.op_us >= 0 else launching
        if call.thread in self.found.backward:
            return dispatched, dispatched, launching  # autograd's engine: no Python
        if self.found.with_python:
            covered = call.thread in self.found.with_python
            return (0 if covered else dispatched), dispatched, launching
        resumed = bisect_right(self.backward_ends, situation.op_us if situation.op_us >= 0 else call.ts)
        return (self.clock.ns(self.backward_ends[resumed - 1]) if resumed else 0), dispatched, launching

    def _record(
        self, work: Work, call: Call | None, situation: Situation, number: int, before: dict[tuple[int, int], int]
    ) -> Kernel | Transfer | Collective:
        start = self.clock.ns(work.ts)
        end = start + round(work.dur * 1000)
        thread = self.names.get(call.thread, "") if call is not None else ""
        launched = self.clock.ns(call.ts) + round(call.dur * 1000) if call is not None else start
        name = printable(work.name)
        common = (work.device, work.stream, start, end, thread, situation.line, situation.module, situation.phase)
        if work.kind == "memcpy":
            way = next((kind for word, kind in _TRANSFERS.items() if word in name), "")
            if way:
                source = None if way == "h2d" else work.device
                target = None if way == "d2h" else work.device
                memory = re.search(r"Pageable|Pinned", name)
                return Transfer(
                    name, *common, kind=way, source=source, target=target, nbytes=work.nbytes,
                    pinned=memory[0] == "Pinned" if memory else None, launched_ns=launched, correlation=number,
                )  # fmt: skip
        elif work.kind == "kernel" and name.startswith("nccl"):
            return self._collective(work, situation, common, launched, number)
        queued = call is not None and before.get((work.device, work.stream), start) > self.clock.ns(call.ts)
        op = printable(situation.op) if work.kind == "kernel" else ""  # a memset within a convolution is a memset
        return Kernel(
            op or name, *common, launched_ns=launched, nbytes=work.nbytes,
            shapes=_shapes(situation.shapes), backward=situation.phase == "backward", correlation=number,
            waited_for="the stream" if queued and (work.device, work.stream) in before else "",
            dispatched_ns=self.clock.ns(situation.op_us) if situation.op_us >= 0 else 0, function=name,
        )  # fmt: skip

    def _collective(self, work: Work, situation: Situation, common: _Common, launched: int, number: int) -> Collective:
        """The record of an NCCL kernel, from its own details or from those of the event that is around its launch."""
        event = situation.comms
        comms = work.comms or (event.comms if event is not None else None)
        kind = _NCCL.match(work.name)
        said = comms.collective if comms else event.name.partition(":")[2] if event is not None else ""
        said = said or (kind[1] if kind is not None else "")
        operation = _OPERATIONS.get(said.lower(), printable(said) or "collective")
        rank = self.file.rank or 0
        group = comms.group if comms else ""
        self.numbers[group] += 1
        algorithm, protocol = _ALGORITHM.search(work.name), _PROTOCOL.search(work.name)
        return Collective(
            f"nccl:{operation}", *common, group=printable(group), rank=rank, ranks=self._ranks(comms),
            number=(comms.number if comms and comms.number > 0 else self.numbers[group]),
            nbytes=_collective_bytes(comms, event),
            algorithm=algorithm[1].lower() if algorithm else "",
            protocol=({"SIMPLE": "Simple"}.get(protocol[1], protocol[1]) if protocol else ""),
            joined_ns=common[2], launched_ns=launched, correlation=number,
        )  # fmt: skip

    def _ranks(self, comms: Comms | None) -> tuple[int, ...]:
        """The ranks of a collective's group, as far as the file has them."""
        if comms is not None:
            listed = comms.ranks
            if isinstance(listed, str):
                listed = [int(one) for one in re.findall(r"\d{1,9}", listed)[:100_000]]
            if isinstance(listed, list) and listed and len(listed) == comms.group_size:
                return tuple(one for one in listed if type(one) is int)
            if comms.group in self.file.groups:
                return self.file.groups[comms.group]
            if 0 < comms.group_size < 2**20:
                return tuple(range(comms.group_size))
        world = self.file.world_size
        return tuple(range(world)) if 0 < world < 2**20 else (self.file.rank or 0,)


def _collective_bytes(comms: Comms | None, event: Any) -> int:
    """A collective's size: the larger of its input and output; 0 if unknown."""
    if comms is not None:
        each = _BYTES.get(comms.dtype.lower(), 0)
        return max(comms.elements_in, comms.elements_out, 0) * each
    if event is None or event.shapes is None or event.types is None:
        return 0
    with contextlib.suppress(msgspec.DecodeError, RecursionError, TypeError, ValueError):
        dims, types = msgspec.json.decode(event.shapes), msgspec.json.decode(event.types)
        sizes = [math.prod(shape) * _BYTES.get(str(kind).lower(), 0) for shape, kind in zip(dims, types, strict=False)]
        return max([nbytes for nbytes in sizes if isinstance(nbytes, int) and 0 <= nbytes < 2**63], default=0)
    return 0


@lru_cache(maxsize=16_384)
def _shapes(raw: bytes | None) -> Shapes:
    """The shapes of an op's tensors; scalars and lists of tensors are left out."""
    if raw is None:
        return ()
    try:
        dims = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return ()
    listed = dims if isinstance(dims, list) else []
    return tuple([
        tuple(dim) for dim in listed[:_SHAPES]
        if isinstance(dim, list) and dim and len(dim) <= _DIMS and all(type(n) is int for n in dim)
    ])  # fmt: skip


def _host(
    file: TraceFile, found: Around, clock: _Clock, names: dict[Thread, str], calls: dict[int, int],
    records: OpenedRecords,
) -> None:  # fmt: skip
    """Add the host's waits, and what else it did that took long."""
    used: dict[Thread, Counter[int]] = defaultdict(Counter)
    copies: dict[Thread, list[tuple[float, str, float]]] = defaultdict(list)
    for work in file.works:
        place = calls.get(work.correlation)
        if place is not None:
            call = file.calls[place]
            used[call.thread][work.device] += 1
            if work.kind == "memcpy":
                copies[call.thread].append((call.ts, work.name, work.ts + work.dur))
    everything = Counter(work.device for work in file.works)
    device = everything.most_common(1)[0][0]
    for each in copies.values():
        each.sort()
    for call, situation in zip(file.calls, found.calls, strict=True):
        start = clock.ns(call.ts)
        end = start + round(call.dur * 1000)
        common = start, end, names.get(call.thread, ""), situation.line, situation.module, situation.phase
        if call.name in _WAITS:
            on = used[call.thread].most_common(1)[0][0] if used[call.thread] else device
            records.waits.append(Wait(_why(call, situation, copies[call.thread]), on, 0, *common))
        elif call.dur >= LONG_US and not starts_work(call.name):
            records.host_work.append(HostWork(printable(call.name), -1, 0, *common))
    for op in found.host_ops:
        loading = op.name.startswith(LOADER)
        if not loading and (op.launched or op.end - op.ts < LONG_US or op.thread in found.backward):
            continue
        name = LOADER_WAIT if loading and "_MultiProcessing" in op.name else printable(op.name)
        records.host_work.append(
            HostWork(name, -1, 0, clock.ns(op.ts), clock.ns(op.end), names.get(op.thread, ""), op.line)
        )  # fmt: skip
    records.waits.sort(key=lambda wait: wait.start_ns)
    records.host_work.sort(key=lambda work: work.start_ns)


def _why(call: Call, situation: Situation, copies: list[tuple[float, str, float]]) -> str:
    """What a wait is for: a copy that its thread launched just before in the same op, or what the call says."""
    at = bisect_right(copies, (call.ts, "\uffff", math.inf)) - 1
    if situation.op and at >= 0 and copies[at][0] >= situation.op_us:
        name = copies[at][1]
        op = f" ({printable(situation.op)})"
        if "DtoH" in name:
            return f"the copy to the host{op}"
        if "HtoD" in name:
            return f"the copy to the device, which is not non_blocking{op}"
    return printable(call.name) + (f" in {printable(situation.op)}" if situation.op else "")
