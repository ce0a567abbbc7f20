"""The recorder, told by several threads at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakegpu_lab.hardware.time.clock import Host
from fakegpu_lab.hardware.time.recorder import Recorder

if TYPE_CHECKING:
    from fakegpu_lab.hardware.time.records import Note

NOTES: dict[int, Note] = {0: ("aten::mm", (), None, 0, "", "", ()), 1: ("aten::relu", (), None, 0, "", "", ())}


def test_a_report_in_the_middle_of_another_is_kept_apart() -> None:
    """Another thread, or a finalizer, has memory taken while the recorder still looks up the first one's op."""
    first, second = Host(now=10), Host(now=20)
    second.note = 1

    def note(host: Host) -> int:
        recorder.allocated(second, 0, 0, 0x2000, 200, 512, 1024)
        assert recorder.born(0x1000) is None
        return 0

    recorder = Recorder(note, NOTES)
    recorder.allocated(first, 0, 0, 0x1000, 100, 512, 512)
    assert recorder.born(0x1000) == (0, 10, NOTES[0])
    assert recorder.born(0x2000) == (0, 20, NOTES[1])
    recorder.freed(second, 0x2000)
    recorder.freed(first, 0x1000)
    assert {(one.name, one.nbytes, one.start_ns) for one in recorder.allocations} == {
        ("aten::mm", 100, 10),
        ("aten::relu", 200, 20),
    }
    assert recorder.peaks == {0: 1024}


def test_memory_is_not_freed_before_it_was_taken() -> None:
    """The thread that frees may be behind in simulated time."""
    recorder = Recorder(lambda host: 0, NOTES)
    recorder.allocated(Host(now=1000), 0, 0, 0x1000, 100, 512, 512)
    recorder.allocated(Host(now=2000), 0, 0, 0x2000, 100, 512, 1024)
    recorder.freed(Host(now=5), 0x1000)
    assert [(one.start_ns, one.end_ns, one.freed) for one in recorder.allocations] == [
        (1000, 1000, True),
        (2000, 2000, False),
    ]


def test_an_op_of_an_earlier_recording_has_no_name() -> None:
    recorder = Recorder(lambda host: 7, NOTES)
    recorder.allocated(Host(), 0, 0, 0x1000, 100, 512, 512)
    assert [one.name for one in recorder.allocations] == ["an op"]
