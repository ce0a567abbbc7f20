"""Views of a device tensor are aliases to C++, as on CUDA: DDP asks that of its buckets, autograd of its outputs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

alias = torch._C._is_alias_of

VIEWS = {
    "view": lambda x: x.view(-1),
    "transpose": lambda x: x.t(),
    "row": lambda x: x[1],
    "narrow": lambda x: x.narrow(1, 1, 2),
    "expand": lambda x: x[:, :1].expand(2, 5),
    "split": lambda x: x.split(1)[1],
    "unbind": lambda x: x.unbind()[1],
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "as_strided": lambda x: x.as_strided((2,), (1,), 1),
    "bits": lambda x: x.view(torch.int32),
    "view of a view": lambda x: x.t()[1].view(1, 2),
    "alias": lambda x: torch.ops.aten.alias.default(x),
}


@pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS.keys())
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_views_are_aliases(machine, make, mode):
    x = torch.arange(6.0, device="cuda").reshape(2, 3)
    with mode():
        view = make(x)
    assert alias(view, x)
    assert alias(x, view)
    assert not alias(view, torch.arange(6.0, device="cuda"))
    assert not alias(x.clone(), x)


def test_conjugates_are_aliases(machine):
    z = torch.ones(2, dtype=torch.complex64, device="cuda")
    assert alias(z.conj(), z)
    assert alias(torch.view_as_real(z), z)


def test_a_resized_tensor_and_its_views_stay_aliases(machine):
    x = torch.ones(4, device="cuda")
    view = x[:2]
    x.resize_(2, 2)
    assert x.shape == (2, 2)
    assert alias(view, x)
    x.unsqueeze_(0)
    assert alias(view, x)


def test_set_takes_another_storage(machine):
    x, y = torch.ones(4, device="cuda"), torch.zeros(4, device="cuda")
    view = x[:2]
    x.set_(y)
    assert alias(x, y)
    assert not alias(view, x)
    x.set_()
    assert not alias(x, y)


def test_gradients_that_are_views_of_one_bucket(machine):
    """What DDP does with ``gradient_as_bucket_view=True``: gradients accumulate in the bucket."""
    model = nn.Linear(2, 3).cuda()
    bucket = torch.zeros(9, device="cuda")
    model.weight.grad, model.bias.grad = bucket[:6].view(3, 2), bucket[6:]
    model(torch.ones(4, 2, device="cuda")).sum().backward()
    assert all(alias(p.grad, bucket) for p in model.parameters())
    assert bucket.tolist() == [4.0] * 9


def test_flattened_weights_are_aliases(machine):
    layer = nn.LSTM(2, 3).cuda()
    first, *others = layer.parameters()
    assert all(alias(other, first) for other in others)
