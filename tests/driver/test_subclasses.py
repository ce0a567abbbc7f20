"""Users' subclasses of torch.Tensor on a device."""

from __future__ import annotations

import copy
import io
from typing import ClassVar

import torch

import fakegpu_lab as lab


class Picture(torch.Tensor):
    def area(self) -> int:
        return self.shape[-1] * self.shape[-2]


class Label(torch.Tensor):
    """As torchvision's tv_tensors: only a few methods keep the class."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        return result.as_subclass(cls) if func in (torch.Tensor.to, torch.Tensor.clone) else result


class Logged(torch.Tensor):
    """As the documentation's example: every function is seen, and handed on."""

    seen: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(getattr(func, "__name__", ""))
        return super().__torch_function__(func, types, args, kwargs or {})


def picture(device: str = "cpu") -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3).as_subclass(Picture).to(device)


def test_a_subclass_stays_itself_on_a_device(machine):
    moved = picture("cuda:1")
    assert isinstance(moved, Picture)
    assert moved.area() == 6
    assert moved.device == torch.device("cuda:1")
    assert repr(moved[0]) == "Picture([0., 1., 2.], device='cuda:1')"
    assert str(type(moved)) == str(Picture)
    for result in (moved + 1, moved * torch.ones(3, device="cuda:1"), moved.half(), moved.to("cuda:0"), moved.detach()):
        assert isinstance(result, Picture)
    assert moved.sum().item() == 15
    assert type(moved.cpu()) is Picture
    assert type(moved.as_subclass(torch.Tensor)) is type(torch.ones(1, device="cuda"))


def test_an_alias_shares_memory_and_gradient(machine):
    weight = torch.ones(2, 2, device="cuda", requires_grad=True)
    alias = weight.as_subclass(Picture)
    assert alias.data_ptr() == weight.data_ptr()
    (alias * 3).sum().backward()
    assert weight.grad.tolist() == [[3, 3], [3, 3]]


def test_a_subclass_decides_for_itself(machine):
    moved = torch.ones(2).as_subclass(Label).to("cuda")
    assert isinstance(moved, Label)
    assert isinstance(moved.clone(), Label)
    assert not isinstance(moved + 1, Label)


def test_a_subclass_that_hands_on_to_torch(machine):
    Logged.seen.clear()
    moved = torch.ones(2, device="cuda").as_subclass(Logged)
    for result in (moved * 2, 2 * moved, moved.sum(), torch.add(moved, torch.ones(2, device="cuda")), moved.cpu()):
        assert isinstance(result, Logged)
    assert {"mul", "sum", "add", "cpu"} <= set(Logged.seen)
    assert type(torch.ones(2).as_subclass(Logged).cuda()[0].cpu()) is Logged
    assert (moved * 2).tolist() == [2, 2]


def test_copies_and_files(machine):
    moved = picture("cuda")
    file = io.BytesIO()
    torch.save(moved, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    for twin in (loaded, copy.copy(moved), copy.deepcopy(moved)):
        assert isinstance(twin, Picture)
        assert torch.equal(twin, moved)
        assert twin.device == moved.device
    file.seek(0)
    assert type(torch.load(file, map_location="cpu", weights_only=False)) is Picture


def test_afterwards_subclasses_are_as_before():
    lab.enable("a100")
    picture("cuda")
    lab.disable()
    assert type(picture() + 1) is Picture
