"""Users' subclasses of torch.Tensor on a device."""

from __future__ import annotations

import copy
import io
from typing import ClassVar

import pytest
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


def test_a_subclass_s_type_takes_a_device_tensor(machine):
    tensor = torch.ones(2, 3, device="cuda:1")
    for made in (Picture(tensor), torch.Tensor._make_subclass(Picture, tensor)):
        assert isinstance(made + 1, Picture)
        assert (made.data_ptr(), made.area()) == (tensor.data_ptr(), 6)
    assert type(Picture(2, 3)) is Picture


class Scaled(torch.nn.Parameter):
    """A parameter with an attribute, as libraries for quantized weights have them."""

    def __new__(cls, data, requires_grad=True, scale=1.0):
        made = torch.Tensor._make_subclass(cls, data, requires_grad)
        made.scale = scale
        return made


class Named(torch.nn.Parameter):
    pass


@pytest.mark.parametrize("kind", [Scaled, Named])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_parameter_stays_one_of_its_class(machine, kind, device):
    layer = torch.nn.Linear(2, 2, bias=False)
    weight = layer.weight = kind(torch.ones(2, 2, device=device))
    layer.to("cuda:1")
    assert layer.weight is weight
    assert dict(layer.named_parameters()) == {"weight": weight}
    layer(torch.ones(1, 2, device="cuda:1")).sum().backward()
    torch.optim.SGD(layer.parameters(), lr=0.5).step()
    twin = copy.deepcopy(layer).weight
    for one in (weight, twin):
        assert isinstance(one, kind)
        assert isinstance(one, torch.nn.Parameter)
        assert one.tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert repr(twin).startswith(f"Parameter containing:\n{kind.__name__}([[0.5")
    assert type(layer.cpu().weight) is kind


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
