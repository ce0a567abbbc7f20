"""`type(x)(...)`, which libraries write to make another one like `x`: a parameter of a parameter, else a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from fakegpu_lab.driver.base.not_simulated import TABLE

if TYPE_CHECKING:
    from fakegpu_lab.hardware.machine import Machine


@pytest.mark.parametrize("device", ["cuda:1", "cpu", "meta"])
@pytest.mark.parametrize("requires_grad", [True, False])
def test_a_parameter_s_type_makes_parameters(machine: Machine, device: str, requires_grad: bool) -> None:
    old = nn.Linear(2, 2, device="cuda").weight
    data = torch.zeros(3, device=device)
    for new in (type(old)(data, requires_grad=requires_grad), type(old)(data, requires_grad)):
        assert isinstance(new, nn.Parameter)
        assert (new.device, new.shape, new.requires_grad) == (torch.device(device), (3,), requires_grad)
    layer = nn.Linear(3, 3)
    layer.bias = type(old)(data, requires_grad=False)
    assert dict(layer.named_parameters())["bias"].device == torch.device(device)


def test_a_tensor_s_type_makes_tensors_as_torch_tensor_does(machine: Machine) -> None:
    tensor = torch.ones(2, device="cuda")
    for arguments in ((), (2, 3), ([1.0, 2.0],), (tensor,), (torch.ones(2, dtype=torch.long),)):
        made, expected = type(tensor)(*arguments), torch.Tensor(*arguments)
        assert type(made) is type(expected)
        assert not isinstance(made, nn.Parameter)
        assert (made.device, made.shape, made.dtype) == (expected.device, expected.shape, expected.dtype)
    assert type(tensor)(tensor).data_ptr() == tensor.data_ptr()


def test_what_a_type_is_and_what_the_documentation_says_of_it(machine: Machine) -> None:
    x = torch.ones(2, device="cuda")
    assert isinstance(x, torch.Tensor)
    assert str(type(x)) == "<class 'torch.Tensor'>"
    assert type(x) is not torch.Tensor
    assert "isinstance(x, torch.Tensor)" in TABLE["exact types"].sentence
