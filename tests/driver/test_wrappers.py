"""Tensors of other classes around device tensors: wrapper subclasses, functorch's levels, jagged tensors."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor


def test_a_wrapper_subclass_trains_on_a_device(machine):
    layer = nn.Linear(4, 4)
    layer.weight = nn.Parameter(TwoTensor(torch.randn(4, 4), torch.randn(4, 4)))
    layer.cuda()
    assert isinstance(layer.weight, TwoTensor)
    assert (layer.weight.device, layer.weight.is_cuda) == (torch.device("cuda:0"), True)
    layer(torch.randn(2, 4, device="cuda")).sum().backward()
    assert layer.weight.grad.a.device == layer.weight.grad.b.device == torch.device("cuda:0")
    leaf = TwoTensor(torch.ones(2, device="cuda:1"), torch.ones(2, device="cuda:1")).requires_grad_()
    (leaf * 3).sum().backward()
    assert leaf.grad.a.tolist() == [3, 3]
    assert leaf.grad.device == torch.device("cuda:1")


def test_a_wrapper_beside_a_device_tensor_decides(machine):
    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, device=inner.device)

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return torch.full((), float(len(args)))

    x = torch.ones(2, device="cuda")
    wrapper = Wrapper(x)
    assert (x + wrapper).item() == (wrapper + x).item() == 2


@pytest.mark.parametrize(
    ("view", "shape"),
    [
        (lambda x: x.as_strided((2, 2), (1, 1)), (2, 2)),
        (lambda x: x.transpose(0, 1), (3, 2)),
        (lambda x: x.view(6), (6,)),
        (lambda x: x.unfold(1, 2, 1), (2, 2, 2)),
        (lambda x: torch.ops.aten._reshape_alias(x, (6,), (1,)), (6,)),
    ],
)
def test_views_while_the_dispatch_is_off(machine, view, shape):
    x = torch.arange(6.0, device="cuda").reshape(2, 3)
    wrapper = TwoTensor(x, x)
    with torch._C._DisableTorchDispatch():  # as torch.testing._internal.composite_compliance has it
        outer, own = view(wrapper), view(x)
    assert (outer.shape, outer.untyped_storage()._cdata) == (shape, wrapper.untyped_storage()._cdata)
    assert own._is_view()
    assert own.tolist() == view(x.cpu()).tolist()


def test_set_while_the_dispatch_is_off(machine):
    x = torch.arange(6.0, device="cuda").reshape(2, 3)
    source, wrapper = TwoTensor(x, x), TwoTensor(x, x)
    own = torch.zeros(2, device="cuda")
    with torch._C._DisableTorchDispatch():
        wrapper.set_(source.transpose(0, 1))
        own.set_(x[1])
    assert (wrapper.shape, wrapper.stride()) == ((3, 2), (1, 3))
    assert wrapper.untyped_storage()._cdata == source.untyped_storage()._cdata
    assert own.tolist() == [3, 4, 5]
    own.zero_()
    assert x.tolist() == [[0, 1, 2], [0, 0, 0]]


def test_functions_under_vmap_and_grad_see_cuda(machine):
    def function(x):
        assert (x.device, x.is_cuda) == (torch.device("cuda:1"), True)
        return (x * torch.arange(3.0, device=x.device)).sum()

    x = torch.ones(5, 3, device="cuda:1")
    assert torch.vmap(function)(x).tolist() == [3] * 5
    assert torch.vmap(torch.func.grad(function))(x)[0].tolist() == [0, 1, 2]
    assert torch.func.jvp(function, (x[0],), (x[0],))[1].item() == 3
    assert torch.func.hessian(lambda x: function(x) ** 2)(x[0]).device == torch.device("cuda:1")
    assert "device" not in vars(torch.Tensor)  # the CPU's tensors pay nothing when it is over


def test_the_face_comes_off_when_a_transform_fails(machine):
    with pytest.raises(ZeroDivisionError):
        torch.vmap(lambda x: x / (1 // 0))(torch.ones(2, 2, device="cuda"))
    assert "device" not in vars(torch.Tensor)


def _ragged(device: str) -> list[torch.Tensor]:
    return [torch.arange(float(n * 4), device=device).reshape(n, 4) for n in (2, 3)]


def test_jagged_tensors(machine):
    ragged = torch.nested.nested_tensor(_ragged("cpu"), layout=torch.jagged, device="cuda")
    assert (ragged.device, ragged.is_cuda, ragged.is_nested) == (torch.device("cuda:0"), True, True)
    assert ragged.values().is_cuda
    assert ragged.offsets().tolist() == [0, 2, 5]
    assert "device='cuda:0'" in repr(ragged)
    padded = torch.nested.to_padded_tensor(ragged, -1.0)
    assert padded.shape == (2, 3, 4)
    assert padded[0, 2].tolist() == [-1] * 4
    assert ragged.cpu().values().tolist() == ragged.values().tolist()
    assert torch.nested.nested_tensor(_ragged("cpu"), layout=torch.jagged).to("cuda:1").device.index == 1


def test_jagged_tensors_train(machine):
    layer = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU()).cuda()
    ragged = torch.nested.nested_tensor(_ragged("cuda"), layout=torch.jagged, requires_grad=True)
    layer(ragged).values().square().sum().backward()
    grads = [parameter.grad.clone() for parameter in layer.parameters()]
    layer.zero_grad()
    layer(torch.cat(_ragged("cuda"))).square().sum().backward()
    torch.testing.assert_close(grads, [parameter.grad for parameter in layer.parameters()])
    assert ragged.grad.values().is_cuda
