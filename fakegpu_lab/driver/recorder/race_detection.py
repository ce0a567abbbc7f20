"""Finds races during a recording: follows which memory every op reads and writes, and on which stream.

Not found: races with uses before the recording began. `host_reads` finds those with the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.dispatch import custom_ops
from fakegpu_lab.hardware.time.clock import here
from fakegpu_lab.hardware.time.happens_before import UNKNOWN, Use, Uses, merge, ordered
from fakegpu_lab.hardware.time.recorder import UNKNOWN_NOTE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fakegpu_lab.hardware.buffer import Buffer
    from fakegpu_lab.hardware.time.recorder import Recorder
    from fakegpu_lab.hardware.time.records import Note
    from fakegpu_lab.hardware.transfers.collectives import Part

_written: dict[int, frozenset[str | int]] = {}
"""By the overload's id, the positions and names of the arguments that it writes to."""


def written_by(func: Any) -> frozenset[str | int]:
    """The positions and names of the arguments that an overload writes to."""
    known = _written.get(id(func))
    if known is None:
        found: set[str | int] = set()
        for i, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                found |= {i, argument.name}
        known = _written[id(func)] = frozenset(found)
    return known


def buffers_of(value: Any) -> Iterator[Buffer]:
    """The device memory of a tensor, or of those in lists."""
    if value.__class__ is FakeCudaTensor:
        yield value._buffer
    elif value.__class__ in (list, tuple):
        for item in value:
            yield from buffers_of(item)


def check(
    recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, note: Note
) -> None:
    """Note the memory that an op uses which has just been launched, and report the races to `recorder`.

    An operator with a kernel in Python launches nothing: the ops inside of it have been noted, on their streams.
    """
    is_custom = func.namespace != "aten" and isinstance(func, torch._ops.OpOverload)
    if is_custom and any(custom_ops.registered(func, key) for key in custom_ops.KEYS):
        return
    written = written_by(func)
    reads: dict[int, Buffer] = {}
    writes: dict[int, Buffer] = {}
    for argument, value in [*enumerate(args), *kwargs.items()]:
        for buffer in buffers_of(value):
            (writes if argument in written else reads)[id(buffer)] = buffer
    for buffer in buffers_of(result):
        if id(buffer) not in reads:
            writes[id(buffer)] = buffer
    host = here.host
    uses: dict[Any, Use] = {}
    for buffers, is_write in ((reads, False), (writes, True)):
        for buffer in buffers.values():
            device = buffer.device
            use = uses.get(device)
            if use is None:
                stream = host.streams[device]
                merge(stream.seen, host.seen)
                use = uses[device] = Use(stream, stream.end, note)
            _note_use(recorder, buffer, use, is_write)


def collective(part: Part, name: str, reads: Sequence[Any], writes: Sequence[Any]) -> Use | None:
    """Note the memory that a device's part in a collective uses, report the races, and return the use.

    Its end is unknown until all ranks have joined; until then nothing is ordered after it.
    """
    recorder = part.device.timeline.recorder
    if recorder is None or not recorder.several or part.note < 0:
        return None
    merge(part.stream.seen, here.host.seen)
    use = Use(part.stream, UNKNOWN, (name, *recorder.notes.get(part.note, UNKNOWN_NOTE)[1:]))
    written = {id(buffer): buffer for buffer in buffers_of(list(writes))}
    while recorder is not None:
        for buffer in buffers_of(list(reads)):
            if id(buffer) not in written:
                _note_use(recorder, buffer, use, is_write=False)
        for buffer in written.values():
            _note_use(recorder, buffer, use, is_write=True)
        recorder = recorder.outer
    return use


def _note_use(recorder: Recorder, buffer: Buffer, use: Use, is_write: bool) -> None:
    device = buffer.device
    history = getattr(buffer, "uses", None)
    if history is None:
        history = buffer.uses = _uses_before(recorder, buffer)
        if is_write and buffer.block is not None:
            for old in recorder.orphans.pop(buffer.block.address, ()):
                # a process group holds its tensors until a collective is over
                if not (ordered(old, use) or old.note[0].startswith("nccl:")):
                    recorder.race("memory used again", device.index, old, use)
    for kind, other in history.written(use) if is_write else history.read(use):
        recorder.race(kind, device.index, other, use)


def _uses_before(recorder: Recorder, buffer: Buffer) -> Uses:
    """The uses of memory without notes, because only one stream was in use: that one wrote to it."""
    uses = Uses()
    device = buffer.device
    if buffer.block is not None:
        born = recorder.born(buffer.block.address)
        if born is not None and born[0] == 0 and born[1] <= device.timeline.since:
            uses.write = Use(device.default_stream, device.timeline.until, ("an op", *born[2][1:]))
    return uses
