"""Follows who uses the results of ops, so that work for show is known from work that a result needs. For checks.

Each op is a node that has read the results of others. What the host reads counts as used, and so does all that a CUDA
graph may read. `used` finds the nodes on which some results depend. Within `only_used`, recordings leave out launches
whose results do not lead there. Launches outside of ops, such as those of a graph's replay, are never left out.

A result of which nothing arrives does not count as used: one that is multiplied by 0, or added where that changes
nothing. An op that changes nothing, such as a product with 1, does not, either: its result is that which it was given.
"""

from __future__ import annotations

import itertools
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.recorder import recording
from fakegpu_lab.driver.recorder.race_detection import buffers_of, written_by
from fakegpu_lab.hardware.time.clock import here
from fakegpu_lab.hardware.time.recorder import Recorder
from fakegpu_lab.user_code import interrupts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fakegpu_lab.hardware.buffer import Buffer
    from fakegpu_lab.hardware.time.clock import Host, Stream
    from fakegpu_lab.hardware.time.records import Collective, Kernel, Transfer

MOST = 400_000
"""Nodes that are kept; with more, all that came before counts as used."""
_LARGEST = 2**22
"""Elements of a result whose values are looked at."""
_OVERWRITE = frozenset({"copy_", "zero_", "fill_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_"})
_REDUCE = frozenset({"cummax", "cummin", "cumprod", "cumsum", "msort", "sort", "topk"})
"""Ops that leave some arguments as they are, beside those with torch's tags `pointwise` and `reduction`."""

_numbers = itertools.count(1)
_sources: dict[int, tuple[int, ...]] = {}
"""By node, those whose results it has read."""
_read_by_host: set[int] = set()
_in_memory: dict[int, int] = {}
"""By address, the node that made what is there, unless it was freed during a recording."""
_running: dict[Host, int] = {}
"""The node of the op that a host thread is running."""
_used_until = [0]
"""All nodes up to the last one here count as used."""
_live: list[tuple[set[int], bool]] = []
"""Within `only_used`, the nodes that are used, and whether copies that are not are left out, too."""


class FollowedRecorder(Recorder):
    """A recorder that knows the node of each launch."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kept: set[int] = set()
        self._since = next(_numbers)
        self._nodes: dict[int, int] = {}

    def kernel(self, host: Host, stream: Stream, *numbers: Any) -> None:
        """As `Recorder.kernel`."""
        super().kernel(host, stream, *numbers)
        if self._raw_kernels:
            self._note(host, self._raw_kernels[-2])

    def copy(self, host: Host, *args: Any, **kwargs: Any) -> None:
        """As `Recorder.copy`."""
        super().copy(host, *args, **kwargs)
        if self._transfers:
            self._note(host, self._transfers[-1].correlation)

    def collective(self, record: Collective, note: int) -> None:
        """As `Recorder.collective`."""
        super().collective(record, note)
        if self._collectives:
            self._note(here.host, self._collectives[-1].correlation)

    def freed(self, host: Host, address: int, *about: Any) -> None:
        """As `Recorder.freed`."""
        super().freed(host, address, *about)
        _in_memory.pop(address, None)

    def finish(self, now: int) -> None:
        """As `Recorder.finish`."""
        super().finish(now)
        if self.keeps:
            self.kept.update(node for node in list(_in_memory.values()) if node > self._since)

    def _note(self, host: Host, number: int) -> None:
        node = _running.get(host)
        if node is not None:
            self._nodes.setdefault(number, node)

    def _shown(self, records: list[Any], copies: bool = False) -> list[Any]:
        if not _live or (copies and not _live[-1][1]):
            return records
        live = _live[-1][0] | used(self.kept)
        nodes = (self._nodes.get(record.correlation) for record in records)
        return [one for one, node in zip(records, nodes, strict=True) if node is None or _is_used(node, live)]

    @property
    def kernels(self) -> list[Kernel]:
        """As `Recorder.kernels`."""
        return self._shown(super().kernels)

    @property
    def transfers(self) -> list[Transfer]:
        """As `Recorder.transfers`."""
        return self._shown(super().transfers, copies=True)

    @property
    def collectives(self) -> list[Collective]:
        """As `Recorder.collectives`."""
        return self._shown(super().collectives)


def follow() -> None:
    """Follow all ops from now on, in all recordings."""
    recording.follow_by(_follow, FollowedRecorder)


def _follow(way: Callable[..., Any]) -> Callable[..., Any]:
    """`way`, which runs an op, with a node for it."""

    @interrupts.whole_but_for_users_code
    def run(func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        __tracebackhide__ = True
        host, node = here.host, next(_numbers)
        outer = _running.get(host)
        _running[host] = node
        try:
            result = way(func, types, args, kwargs)
        finally:
            _return_to(outer, host)
        _note(node, func, args, kwargs or {}, result)
        return result

    return run


def _return_to(outer: int | None, host: Host) -> None:
    """Let a thread's launches belong to the op around the one that has ended, or to none."""
    if outer is None:
        _running.pop(host, None)
    else:
        _running[host] = outer


def _note(node: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """Note what an op has read and made."""
    written = written_by(func)
    read: dict[int, Buffer] = {}
    targets: dict[int, tuple[Buffer, bool]] = {}
    name = func._schema.name.rpartition("::")[2]
    for argument, value in (*enumerate(args), *kwargs.items()):
        for buffer in buffers_of(value):
            if argument in written:
                whole = value.__class__ is FakeCudaTensor and value._inner.nbytes >= buffer.nbytes
                targets[id(buffer)] = buffer, whole and (name in _OVERWRITE or argument == "out")
            else:
                read[id(buffer)] = buffer
    on_device = False
    for buffer in buffers_of(result):
        on_device = True
        if id(buffer) not in read:
            targets.setdefault(id(buffer), (buffer, True))
    if not targets:
        if not on_device:
            _read_by_host.update(map(_node_of, read.values()))
        return
    same = _unchanged(func, args, result)
    if same is not None and all(replaced for _, replaced in targets.values()):
        for buffer, _ in targets.values():
            _made(buffer, _node_of(same))
        return
    carried = [same] if same is not None else [] if _carries_nothing(result) else read.values()
    sources = set(map(_node_of, carried)) - {0}
    for buffer, replaced in targets.values():
        before = _node_of(buffer)
        if before and (before > node or not replaced):  # made within this op, or a part of it stays
            sources.add(before)
    _add(node, sources)
    for buffer, _ in targets.values():
        _made(buffer, node)


def _made(buffer: Buffer, node: int) -> None:
    buffer.made_by = _in_memory[buffer.address] = node


def _carries_nothing(result: Any) -> bool:
    """Whether a result is 0 everywhere, whatever it was made of."""
    if result.__class__ is not FakeCudaTensor:
        return False
    values = result._inner
    plain = values.layout is torch.strided and values.device.type == "cpu" and 0 < values.numel() <= _LARGEST
    return bool(plain and values.dtype.is_floating_point and not values.any())


@cache
def _computes(func: Any) -> bool:
    """Whether an op computes each number of its result; a copy does not."""
    tags = {str(tag).rpartition(".")[2] for tag in func.tags}
    name = func._schema.name.rpartition("::")[2]
    return name != "clone" and (bool(tags & {"pointwise", "reduction"}) or name in _REDUCE)


def _unchanged(func: Any, args: tuple[Any, ...], result: Any) -> Buffer | None:
    """Where the argument is that an op's result equals, number by number; backward's ops are the engine's choice."""
    if torch._C._current_graph_task_id() != -1:
        return None
    first = result[0] if result.__class__ is tuple and result else result
    if first.__class__ is FakeCudaTensor and 0 < first._inner.numel() <= _LARGEST and _computes(func):
        values = first._inner
        for one in args:
            if one.__class__ is FakeCudaTensor and one.dtype is first.dtype and one.numel() == values.numel():
                same = one._inner
                if same.device.type == "cpu" and torch.equal(same.reshape(-1), values.reshape(-1)):
                    buffer: Buffer = one._buffer
                    return buffer
    return None


def _node_of(buffer: Buffer) -> int:
    return getattr(buffer, "made_by", 0)


def _add(node: int, sources: Iterable[int]) -> None:
    if len(_sources) >= MOST:
        use_all()
    _sources[node] = tuple(sources)


def use_all() -> None:
    """Let all that was made until now count as used: a graph that is replayed may read any of it."""
    _used_until[:] = [next(_numbers)]
    _sources.clear()
    _in_memory.clear()
    _read_by_host.clear()


def nodes_of(tensors: Iterable[Any]) -> list[int]:
    """The nodes of which tensors are the results."""
    return [node for buffer in buffers_of(list(tensors)) if (node := _node_of(buffer))]


@contextmanager
def exchange(read: Iterable[int], written: Iterable[Any]) -> Iterator[None]:
    """Within this context, the calling thread's launches belong to an exchange between ranks.

    Parameters
    ----------
    read
        The nodes of what goes in.
    written
        The tensors that it writes to.
    """
    host, node = here.host, next(_numbers)
    outer = _running.get(host)
    _running[host] = node
    try:
        yield
    finally:
        _return_to(outer, host)
        buffers = list(buffers_of(list(written)))
        _add(node, read)
        for buffer in buffers:
            _made(buffer, node)
        if not buffers:  # a barrier, or what is on the host
            _read_by_host.add(node)


def keep(recorder: Any, tensors: Iterable[Any]) -> None:
    """Let tensors count as used by those who look at a recording."""
    if isinstance(recorder, FollowedRecorder):
        recorder.kept.update(nodes_of(tensors))


def used(roots: Iterable[int]) -> set[int]:
    """The nodes on which some depend, themselves included."""
    found, waiting = set[int](), [*roots]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += _sources.get(node, ())
    return found


def _is_used(node: int, live: set[int]) -> bool:
    return node <= _used_until[-1] or node in live


@contextmanager
def only_used(tensors: Iterable[Any], *, copies: bool = True) -> Iterator[None]:
    """Within this context, recordings show only launches on which some tensors depend, or what the host has read.

    With ``copies=False``, they show all copies.
    """
    _live.append((used({*nodes_of(tensors), *_read_by_host}), copies))
    try:
        yield
    finally:
        _live.pop()
