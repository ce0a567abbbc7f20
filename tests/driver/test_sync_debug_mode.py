"""`torch.cuda.set_sync_debug_mode`: what waits for the device warns or fails, in CUDA's words."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F

import fakegpu_lab as lab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fakegpu_lab.hardware.machine import Machine

SIZE = 4
WORDS = "^called a synchronizing CUDA operation$"


def _put(x: torch.Tensor, index: Any, value: Any) -> torch.Tensor:
    x[index] = value
    return x


class Operands:
    """The operands of the test_sync_warning in torch's test_torch.py."""

    def __init__(self) -> None:
        self.x = torch.rand(SIZE, device="cuda")
        self.y = torch.rand((), device="cuda")
        self.index = torch.randint(SIZE, (3,), device="cuda")
        self.host_index = self.index.cpu()
        self.repeats = torch.full((1,), 2, device="cuda")
        self.mask = torch.randint(2, (SIZE,), device="cuda").bool()
        self.pinned = torch.ones(SIZE).pin_memory()
        self.stream = torch.cuda.Stream()
        self.event = torch.cuda.Event()
        self.event.record()


WAIT: dict[str, Callable[[Operands], object]] = {
    # from torch's own test
    "x[mask] = tensor": lambda o: _put(o.x, o.mask, o.y),
    "x[host index] = tensor": lambda o: _put(o.x, o.host_index, o.y),
    "x[mask]": lambda o: o.x[o.mask],
    "x[host index]": lambda o: o.x[o.host_index],
    "nonzero": lambda o: o.x.nonzero(),
    "if x": lambda o: 1 if o.y else 0,
    "one_hot": lambda o: F.one_hot(o.index),
    "repeat_interleave": lambda o: torch.repeat_interleave(o.x, o.repeats),
    # from CUDA's sources
    "item": lambda o: o.y.item(),
    "float": lambda o: float(o.y),
    "tolist": lambda o: o.x.tolist(),
    "cpu": lambda o: o.x.cpu(),
    "print": lambda o: repr(o.x),
    "cuda": lambda o: torch.ones(3).cuda(),
    "torch.tensor": lambda o: torch.tensor(3.14, device="cuda"),
    "copy_ to the host": lambda o: torch.empty(SIZE).copy_(o.x),
    "copy_ to the device": lambda o: o.x.copy_(o.pinned),
    "x[index] = number": lambda o: _put(o.x, o.index, 1.0),
    "accumulating": lambda o: o.x.index_put_((o.index,), o.y, accumulate=True),
    "masked_fill of a tensor": lambda o: o.x.masked_fill(o.mask, o.y),
    "fill_ of the host's with a tensor": lambda o: torch.zeros(2).fill_(o.y),
    "fill of the host's with a tensor": lambda o: torch.fill(torch.zeros(2), o.y),
    "index_fill_ of the host's with a tensor": lambda o: torch.zeros(2).index_fill_(0, torch.tensor([1]), o.y),
    "linspace to a tensor": lambda o: torch.linspace(0, o.y, 2),
    "logspace to a tensor": lambda o: torch.logspace(o.y, 1, 2, device="cuda"),
    "masked_select": lambda o: o.x.masked_select(o.mask),
    "unique": lambda o: o.index.unique(),
    "bincount": lambda o: torch.bincount(o.index),
    "equal": lambda o: torch.equal(o.x, o.x + 1),
    "allclose": lambda o: torch.allclose(o.x, o.x),
    "histc": lambda o: torch.histc(o.x),
    "normal": lambda o: torch.normal(0.0, o.x),
    "inverse": lambda o: torch.linalg.inv(torch.eye(2, device="cuda")),
    "Stream.synchronize": lambda o: o.stream.synchronize(),
}

DO_NOT_WAIT: dict[str, Callable[[Operands], object]] = {
    # from torch's own test
    "x[mask] = number": lambda o: _put(o.x, o.mask, 1.0),
    "x[index] = tensor": lambda o: _put(o.x, o.index, o.y),
    "x[index]": lambda o: o.x[o.index],
    "one_hot with classes": lambda o: F.one_hot(o.index, num_classes=SIZE),
    "randperm": lambda o: torch.randperm(20000, device="cuda"),
    "repeat_interleave of a number": lambda o: torch.repeat_interleave(o.x, 2, output_size=2 * SIZE),
    "repeat_interleave with a size": lambda o: torch.repeat_interleave(o.x, o.repeats, output_size=2 * SIZE),
    "any": lambda o: torch.any(o.y),
    # from CUDA's sources
    "non_blocking to the device": lambda o: torch.ones(3).to("cuda", non_blocking=True),
    "non_blocking to the host": lambda o: o.x.to("cpu", non_blocking=True),
    "pinned": lambda o: o.x.copy_(o.pinned, non_blocking=True),
    "x[0] = number": lambda o: _put(o.x, 0, 1.0),
    "fill_ with a tensor of the same device": lambda o: o.x.fill_(o.y),
    "full": lambda o: torch.full((), 3.14, device="cuda"),
    "to another device": lambda o: o.x.to("cuda:1"),
    "histc with limits": lambda o: torch.histc(o.x, min=0, max=1),
    "torch.cuda.synchronize": lambda o: torch.cuda.synchronize(),
    "Event.synchronize": lambda o: o.event.synchronize(),
    "a training step": lambda o: (torch.nn.Linear(SIZE, 2, device="cuda")(o.x).sum()).backward(),
    "indexing in backward": lambda o: o.x.clone().requires_grad_()[o.index].sum().backward(),
}


@pytest.fixture
def operands(machine: Machine) -> Iterator[Operands]:
    made = Operands()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode(0)  # announces itself once
    yield made
    torch.cuda.set_sync_debug_mode(0)


@pytest.mark.parametrize("name", WAIT)
def test_what_waits_warns_at_its_line_or_fails(operands: Operands, name: str) -> None:
    torch.cuda.set_sync_debug_mode("warn")
    with pytest.warns(UserWarning, match=WORDS) as caught:
        WAIT[name](operands)
    files = {one.filename for one in caught}
    wrappers = {sys.modules[name].__file__ for name in ("torch.cuda.streams", "torch.functional")}  # Python around C++
    assert files <= {__file__, *wrappers}
    torch.cuda.set_sync_debug_mode("error")
    with pytest.raises(RuntimeError, match=WORDS):
        WAIT[name](operands)
    torch.cuda.set_sync_debug_mode("default")
    WAIT[name](operands)


@pytest.mark.parametrize("name", DO_NOT_WAIT)
def test_what_does_not_wait_says_nothing(operands: Operands, name: str) -> None:
    torch.cuda.set_sync_debug_mode("error")
    DO_NOT_WAIT[name](operands)


@pytest.mark.parametrize(("index", "waits"), [("mask", True), ("host_index", True), ("index", False)])
def test_the_host_waits_for_the_size_of_a_mask(operands: Operands, index: str, waits: bool) -> None:
    big = torch.ones(4096, 4096, device="cuda")
    big[:2, :2] @ big[:2, :2]  # loads cuBLAS
    torch.cuda.synchronize()
    before = lab.clock()
    big @ big  # milliseconds
    operands.x[getattr(operands, index)]
    assert (lab.clock() - before > 1e-3) == waits


def test_the_mode_announces_itself_once(machine: Machine) -> None:
    words = "^Synchronization debug mode is a prototype feature and does not yet detect all synchronizing operations$"
    with pytest.warns(UserWarning, match=words):
        torch.cuda.set_sync_debug_mode(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.cuda.set_sync_debug_mode(2)
    assert torch.cuda.get_sync_debug_mode() == 2
    with pytest.raises(RuntimeError, match="invalid value of debug_mode, expected one of"):
        torch.cuda.set_sync_debug_mode("loud")
    with pytest.raises(RuntimeError, match=r"^invalid value of debug_mode, expected one of 0,1,2$"):
        torch.cuda.set_sync_debug_mode(3)
    lab.reset()
    assert torch.cuda.get_sync_debug_mode() == 0
