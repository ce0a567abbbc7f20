"""The happens-before relation: which work of a stream is known to be over when another stream, or the host, continues.

Each stream and each host thread records how far every other stream is known to have come: through `wait_stream`, events
and synchronising calls, not through lucky timing. Work that a stream has not waited for is unordered, even if it was
over by the clock: on another card it might not have been.

Two uses of the same memory on different streams, at least one of them a write, are a race if they are unordered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fakegpu_lab.user_code.frames import place

if TYPE_CHECKING:
    from fakegpu_lab.hardware.time.records import Note

Seen = dict[Any, int]
"""By stream, the time up to which its work is known to be over."""


def merge(into: Seen, other: Seen) -> None:
    """Add to `into` what `other` knows."""
    for stream, time in other.items():
        if time > into.get(stream, -1):
            into[stream] = time


UNKNOWN = 1 << 62
"""The end of a collective that not all ranks have called yet."""


@dataclass(slots=True, eq=False)
class Use:
    """One use of some memory by an op on a stream, done at `end`.

    `awaited` has the streams that wait for it, where its end was not known when they began to.
    """

    stream: Any
    end: int
    note: Note
    awaited: tuple[Any, ...] = ()


class _Host:
    """Stands for a stream in a `Use` by the host."""

    id = -1


HOST = _Host()


@dataclass(frozen=True, slots=True)
class Race:
    """Two uses of the same memory that nothing orders.

    Attributes
    ----------
    kind
        ``"read after write"``, ``"write after read"``, ``"write after write"``, or ``"memory used again"``: the tensor
        was freed, and its memory given to another one, while a stream unknown to PyTorch might still use it.
    device
        The ordinal.
    first, second
        The ops; ``first_line`` and ``second_line`` are the lines that launched them, ``first_stream`` and
        ``second_stream`` the ids of their streams. The second is -1 if it is the host that uses, without waiting, what
        an asynchronous copy fills.
    """

    kind: str
    device: int
    first: str
    first_line: str
    first_stream: int
    second: str
    second_line: str
    second_stream: int

    def __str__(self) -> str:
        verbs = {
            "read after write": ("wrote", "reads"),
            "write after read": ("read", "overwrites"),
            "write after write": ("wrote", "overwrites"),
            "memory used again": ("used", "now writes, as the memory of a new tensor,"),
        }
        past, present = verbs[self.kind]
        first_line, second_line = place(self.first_line).label, place(self.second_line).label
        if self.second_stream == HOST.id:
            return (
                f"Race on cuda:{self.device}: {self.second} ({second_line}, the host) {present} what "
                f"{self.first} ({first_line}, {_stream_name(self.first_stream)}) may still be filling with "
                "non_blocking=True, and the host has not waited for it: call torch.cuda.synchronize() first, or "
                "synchronize() of an event recorded after the copy."
            )
        if self.kind == "memory used again":
            fix = "call tensor.record_stream(stream) for the stream that used it"
        elif self.first.startswith("nccl:"):
            fix = f"call wait() on the work that {self.first[5:]} returned before the tensor is used"
        else:
            fix = "let the second stream wait: second.wait_stream(first), or an event"
        return (
            f"Race on cuda:{self.device}: "
            f"{self.second} ({second_line}, {_stream_name(self.second_stream)}) {present} what "
            f"{self.first} ({first_line}, {_stream_name(self.first_stream)}) {past}, "
            f"and nothing orders the two: {fix}."
        )


def _stream_name(stream: int) -> str:
    return "the default stream" if stream == 0 else f"stream {stream}"


class Uses:
    """The last uses of some memory: one write, and the reads since."""

    __slots__ = ("reads", "write")

    def __init__(self) -> None:
        self.write: Use | None = None
        self.reads: dict[Any, Use] = {}

    def read(self, use: Use) -> list[tuple[str, Use]]:
        """Note a read; return the kinds and uses that it races with."""
        races = []
        if self.write is not None and not ordered(self.write, use):
            races.append(("read after write", self.write))
        self.reads[use.stream] = use
        return races

    def written(self, use: Use) -> list[tuple[str, Use]]:
        """Note a write; return the kinds and uses that it races with."""
        races = []
        if self.write is not None and not ordered(self.write, use):
            races.append(("write after write", self.write))
        races += [("write after read", read) for read in self.reads.values() if not ordered(read, use)]
        self.write = use
        self.reads = {}
        return races

    def last(self) -> list[Use]:
        """The uses that no later use has replaced."""
        return [*self.reads.values(), *([self.write] if self.write is not None else [])]


def ordered(first: Use, second: Use) -> bool:
    """Whether `first` is known to be over when `second` starts."""
    if first.stream is second.stream or second.stream in first.awaited:
        return True
    return bool(second.stream.seen.get(first.stream, -1) >= first.end)
