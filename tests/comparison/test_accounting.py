"""Where the time went: every moment of a recording belongs to exactly one slice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fakegpu_lab.comparison.accounting import KINDS, slices, sums
from fakegpu_lab.hardware.time.records import LOADER_WAIT, Collective, HostWork, Kernel, Transfer, Wait
from tests.comparison.conftest import Written, kernel

times = st.tuples(st.integers(0, 90), st.integers(0, 30)).map(lambda pair: (pair[0], sum(pair)))
threads = st.sampled_from(["main", "other"])


@st.composite
def recordings(draw: st.DrawFn) -> Written:
    """Anything that a recording can have, also what a simulation never makes: overlaps, launches in the future."""
    written = Written(draw(st.integers(100, 130)), began_ns=draw(st.integers(0, 10)))
    for start, end in draw(st.lists(times, max_size=6)):
        launched = draw(st.integers(0, 100))
        written.kernels.append(
            kernel("aten::mm", start, end, device=draw(st.integers(0, 1)), stream=draw(st.integers(0, 1)),
                   thread=draw(threads), launched_ns=launched, dispatched_ns=max(launched - 9, 0))
        )  # fmt: skip
    for start, end in draw(st.lists(times, max_size=4)):
        kind = draw(st.sampled_from(["h2d", "d2h", "p2p"]))
        written.transfers.append(Transfer("copy", 0, 0, start, end, draw(threads), kind=kind, target=0, source=1,
                                          launched_ns=draw(st.integers(0, 100))))  # fmt: skip
    for start, end in draw(st.lists(times, max_size=3)):
        joined = draw(st.integers(start, end))
        written.collectives.append(Collective("nccl:all_reduce", draw(st.integers(0, 1)), 7, start, end, draw(threads),
                                              joined_ns=joined, launched_ns=draw(st.integers(0, 100))))  # fmt: skip
    for start, end in draw(st.lists(times, max_size=4)):
        written.waits.append(Wait("synchronize", 0, 0, start, end, draw(threads)))
    for start, end in draw(st.lists(times, max_size=3)):
        written.host_work.append(
            HostWork(draw(st.sampled_from(["work", LOADER_WAIT])), -1, 0, start, end, draw(threads))
        )
    for number, record in enumerate((*written.kernels, *written.transfers, *written.collectives), start=1):
        record.correlation = number
    return written


@given(recordings(), st.integers(0, 1))
def test_slices_are_a_partition_of_the_recording(written: Written, device: int) -> None:
    found = slices(written, device)
    at = written.began_ns
    for one in found:
        assert one.start_ns == at < one.end_ns, "a hole, an overlap, or an empty slice"
        at = one.end_ns
    assert at == written.ended_ns
    assert sum(sums(found).values()) == written.ended_ns - written.began_ns
    assert set(sums(found)) == set(KINDS)


@given(recordings(), st.integers(0, 1))
def test_a_kernel_has_its_time_and_what_runs_beside_it_has_none_of_it(written: Written, device: int) -> None:
    def running(records: list[Kernel] | list[Collective] | list[Transfer], moment: int) -> bool:
        return any(record.start_ns <= moment < record.end_ns for record in records)

    kernels = [one for one in written.kernels if one.device == device]
    collectives = [one for one in written.collectives if one.device == device]
    for one in slices(written, device):
        for moment in range(one.start_ns, one.end_ns):
            if running(kernels, moment):
                expected = {"kernels"}
            elif running(collectives, moment):
                expected = {"collectives", "rank waits"}
            elif running(written.transfers, moment):  # between both devices
                expected = {"copies"}
            else:
                expected = set(KINDS) - {"kernels", "collectives", "rank waits", "copies"}
            assert one.kind in expected


def kinds(written: Written) -> list[tuple[str, int, int]]:
    return [(one.kind, one.start_ns, one.end_ns) for one in slices(written, 0)]


def test_a_gap_belongs_to_what_the_host_did_until_the_next_launch() -> None:
    first = kernel(start=5, end=10, launched_ns=5, dispatched_ns=0, correlation=1)
    second = kernel(start=60, end=70, launched_ns=60, dispatched_ns=40, correlation=2)
    assert kinds(Written(100, [first, second])) == [
        ("launch", 0, 5), ("kernels", 5, 10), ("python", 10, 40), ("dispatch", 40, 55), ("launch", 55, 60),
        ("kernels", 60, 70), ("nothing", 70, 100),
    ]  # fmt: skip


def test_the_gap_behind_a_wait_belongs_to_the_wait_as_far_as_the_host_would_have_been_ahead() -> None:
    first = kernel(start=5, end=50, launched_ns=5, dispatched_ns=1, correlation=1)
    second = kernel(start=80, end=90, launched_ns=80, dispatched_ns=60, correlation=2)
    long = Wait("item", 0, 0, 5, 50, "main", "train.py:3")
    (waited,) = [one for one in slices(Written(90, [first, second], waits=[long]), 0) if one.kind == "host waits"]
    assert (waited.start_ns, waited.end_ns, waited.record) == (50, 80, long)  # 30 of the 45 that it waited

    short = Wait("item", 0, 0, 46, 50, "main", "train.py:3")  # without it, the host would have launched 4 earlier
    assert kinds(Written(90, [first, second], waits=[short]))[-5:] == [
        ("host waits", 50, 54), ("python", 54, 60), ("dispatch", 60, 75), ("launch", 75, 80), ("kernels", 80, 90),
    ]  # fmt: skip


def test_the_lead_that_a_wait_took_is_spent_once() -> None:
    several = [
        kernel(start=start, end=start + 5, launched_ns=start, dispatched_ns=start - 8, correlation=start)
        for start in (10, 40, 60)
    ]
    wait = Wait("item", 0, 0, 10, 15, "main")  # 5: less than the gap behind it
    waited = [one for one in kinds(Written(65, several, waits=[wait])) if one[0] == "host waits"]
    assert waited == [("host waits", 15, 20)]


def test_launching_a_copy_that_the_host_waits_for_is_waiting_too() -> None:
    first = kernel(start=5, end=10, launched_ns=5, correlation=1)
    read = Transfer("Memcpy DtoH", 0, 0, 30, 32, "main", kind="d2h", source=0, launched_ns=30, correlation=2)
    wait = Wait("the copy to the host", 0, 0, 30, 32, "main")
    assert kinds(Written(32, [first], [read], waits=[wait]))[2:] == [
        ("host waits", 10, 25),
        ("host waits", 25, 30),
        ("copies", 30, 32),
    ]
    assert kinds(Written(32, [first], [read]))[2:] == [("python", 10, 25), ("launch", 25, 30), ("copies", 30, 32)]


def test_the_host_s_own_work_and_the_loader_are_told_apart() -> None:
    second = kernel(start=90, end=95, launched_ns=90, dispatched_ns=80, correlation=1)
    work = [HostWork("work", -1, 0, 10, 30, "main"), HostWork(LOADER_WAIT, -1, 0, 30, 70, "main")]
    assert sums(slices(Written(100, [second], host_work=work), 0)) == dict.fromkeys(KINDS, 0) | {
        "python": 20, "host works": 20, "loading": 40, "dispatch": 5, "launch": 5, "kernels": 5, "nothing": 5,
    }  # fmt: skip


def test_work_that_was_launched_and_waits_for_an_event_is_queued() -> None:
    first = kernel(start=5, end=10, launched_ns=5, correlation=1)
    second = kernel(start=50, end=60, launched_ns=12, stream=1, correlation=2)
    assert kinds(Written(60, [first, second]))[-2:] == [("queued", 12, 50), ("kernels", 50, 60)]
