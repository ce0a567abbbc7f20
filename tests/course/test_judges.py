"""What each expectation of a run says of records made by hand: at its limit, and just beyond."""

from __future__ import annotations

from typing import Any

import pytest

from fakegpu_lab.course.expect.expectation import JUDGES
from fakegpu_lab.course.expect.outcome import Unmet
from fakegpu_lab.course.expect.plain_data.conversion import SeenTensor, SeenTrace
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.hardware.time.records import Collective, HostWork, Kernel, Transfer, Wait


def recording(**lists: Any) -> SeenTrace:
    names = ("kernels", "transfers", "collectives", "allocations", "waits", "host_work", "races")
    return SeenTrace(**{name: lists.get(name, []) for name in names}, peaks=lists.get("peaks", {0: 0}),
                     elapsed=lists.get("elapsed", 1.0))  # fmt: skip


def met(name: str, **data: Any) -> bool:
    try:
        return JUDGES[name](**data)
    except Unmet:
        return False


def kernel(start: int, end: int, name: str = "aten::mm", device: int = 0) -> Kernel:
    return Kernel(name, device, 0, start, end)


def copy(start: int, end: int, kind: str = "h2d", nbytes: int = 100, pinned: bool | None = True) -> Transfer:
    return Transfer("Memcpy", 0, 1, start, end, kind=kind, nbytes=nbytes, pinned=pinned)


@pytest.mark.parametrize(("elapsed", "at_most", "right"), [(1.0, 1.0, True), (1.0, "1 s", True), (1.001, "1 s", False)])
def test_takes(elapsed: float, at_most: Any, right: bool) -> None:
    assert met("takes", at_most=at_most, trace=recording(elapsed=elapsed)) is right


def test_faster_than() -> None:
    slow, fast = recording(elapsed=2.0), recording(elapsed=1.0)
    assert met("faster_than", baseline=slow, by=2.0, trace=fast)
    assert not met("faster_than", baseline=slow, by=2.1, trace=fast)
    assert met("faster_than", baseline="2 s", by=2.0, trace=fast)
    assert not met("faster_than", baseline=fast, by=1.0, trace=slow)
    assert met("faster_than", baseline=fast, by=100.0, trace=recording(elapsed=0.0))


def test_overlaps() -> None:
    trace = recording(kernels=[kernel(0, 10), kernel(100, 130, device=1)], transfers=[copy(5, 25), copy(0, 9, "d2h")],
                      host_work=[HostWork("w", 0, 0, 0, 4)])  # fmt: skip
    assert met("overlaps", first="h2d", second="kernels", at_least=0.5, trace=trace)
    assert not met("overlaps", first="h2d", second="kernels", at_least=0.51, trace=trace)
    assert met("overlaps", first="copies", second="kernels", at_least=1.0, trace=trace)
    assert met("overlaps", first="d2h", second="mm", at_least=1.0, trace=trace)
    assert met("overlaps", first="host", second="mm", at_least=1.0, trace=trace)
    assert not met("overlaps", first="h2d", second="relu", at_least=0.0, trace=trace)
    assert not met("overlaps", first="h2d", second="p2p", at_least=0.0, trace=trace)
    assert not met("overlaps", first="h2d", second="kernels", at_least=0.1, device=1, trace=trace)
    apart = recording(kernels=[kernel(0, 10)], transfers=[copy(10, 20)])
    assert not met("overlaps", first="h2d", second="kernels", at_least=0.01, trace=apart)


def test_kernels() -> None:
    trace = recording(kernels=[kernel(0, 1), kernel(1, 2, "aten::relu"), kernel(2, 3, device=1)])
    for limits, right in (
        ({"at_least": 3}, True),
        ({"at_least": 4}, False),
        ({"at_most": 3}, True),
        ({"at_most": 2}, False),
        ({"at_least": 2, "named": "mm"}, True),
        ({"at_most": 1, "named": "mm"}, False),
        ({"at_least": 1, "named": "mm", "device": 1}, True),
        ({"at_least": 2, "device": 1}, False),
        ({"at_least": 2, "at_most": 2, "device": 0}, True),
    ):
        assert met("kernels", trace=trace, **limits) is right, limits  # type: ignore[arg-type]


def test_transfers() -> None:
    trace = recording(
        transfers=[copy(0, 1), copy(1, 2, pinned=False), copy(2, 3, "d2h", 50), copy(3, 4, "p2p", 7, None)]
    )
    for limits, right in (
        ({"h2d": 2, "d2h": 1, "p2p": 1}, True),
        ({"h2d": 1}, False),
        ({"h2d": 3}, False),
        ({"h2d_at_most": 2, "h2d_at_least": 2}, True),
        ({"h2d_at_most": 1}, False),
        ({"h2d_at_least": 3}, False),
        ({"d2h_at_most": 0}, False),
        ({"p2p_at_least": 2}, False),
        ({"h2d_bytes_at_most": 200}, True),
        ({"h2d_bytes_at_most": 199}, False),
        ({"d2h_bytes_at_most": 49}, False),
        ({"p2p_bytes_at_most": 6}, False),
        ({"pinned": True}, False),
        ({"pinned": False}, False),
        ({"h2d": 2, "d2h": 0}, False),
    ):
        assert met("transfers", trace=trace, **limits) is right, limits  # type: ignore[arg-type]
    assert met("transfers", trace=recording(transfers=[copy(0, 1), copy(0, 1, "p2p", 7, None)]), pinned=True)


def test_memory() -> None:
    trace = recording(peaks={0: 100, 1: 7})
    assert met("peak_memory", below=101, above=99, trace=trace)
    assert not met("peak_memory", below=100, trace=trace)
    assert not met("peak_memory", above=100, trace=trace)
    assert not met("peak_memory", below=7, device=1, trace=trace)
    with pytest.raises(FakeGpuError, match="There is no device 2: the machine has 2"):
        met("peak_memory", below=7, device=2, trace=trace)
    assert met("allocated", below=11, above=9, device=(0, 10))
    assert not met("allocated", below=10, device=(0, 10))
    assert not met("allocated", above=10, device=(0, 10))


def test_waits_and_races() -> None:
    two = recording(waits=[Wait("item", 0, 0, 0, 5), Wait("item", 0, 0, 6, 9)])
    assert met("no_sync_in", loop=recording())
    assert not met("no_sync_in", loop=two)
    assert not met("no_sync_in", loop=two, at_most=1)
    assert met("no_sync_in", loop=two, at_most=2)
    assert met("no_races", trace=recording())


def test_collectives() -> None:
    def one(name: str, rank: int) -> Collective:
        return Collective(f"nccl:{name}", rank, 0, 0, 1, rank=rank)

    trace = recording(
        collectives=[one("all_reduce", 0), one("all_reduce", 0), one("broadcast", 0), one("all_reduce", 1)]
    )
    assert met("collectives", trace=trace, all_reduce=2, broadcast=1)
    assert met("collectives", trace=trace, all_reduce=2, at_most=3)
    assert not met("collectives", trace=trace, all_reduce=2, at_most=2)
    assert not met("collectives", trace=trace, all_reduce=3)
    assert not met("collectives", trace=trace, all_reduce=1)
    assert met("collectives", trace=trace, all_reduce=1, at_most=1, rank=1)
    assert not met("collectives", trace=trace, broadcast=1, rank=1)


def at(device: str, grad: str = "", requires_grad: bool = True) -> SeenTensor:
    return SeenTensor((2,), "torch.float32", device, requires_grad, grad)


def test_devices() -> None:
    for device, wanted, right in (
        ("cuda:0", "cuda:0", True),
        ("cuda:1", "cuda:0", False),
        ("cuda:1", "cuda", True),
        ("cpu", "cuda", False),
        ("cpu", "cpu", True),
    ):
        assert met("on_device", thing=at(device), device=wanted) is right
    assert not met("on_device", thing=[at("cuda:0"), at("cpu")], device="cuda:0")
    assert not met("on_device", thing=[], device="cuda:0")
    assert met("grad_on_device", module=[at("cuda:0", "cuda:0")], device="cuda:0")
    assert met("grad_on_device", module=[at("cuda:0", "cuda:0"), at("cpu", requires_grad=False)], device="cuda:0")
    assert not met("grad_on_device", module=[at("cuda:0", "cuda:0"), at("cuda:0")], device="cuda:0")
    assert not met("grad_on_device", module=[at("cuda:0", "cuda:1")], device="cuda:0")
    assert not met("grad_on_device", module=[], device="cuda:0")
