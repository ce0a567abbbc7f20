"""`einops` on a device: the functions, the layers, and their scripted form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

einops = pytest.importorskip("einops", reason="needs the extra [integrations]")

from einops import einsum, pack, rearrange, reduce, repeat, unpack
from einops.layers.torch import EinMix, Rearrange, Reduce

import fakegpu_lab as lab

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.hardware.machine import Machine

PATCHES = "b c (h p) (w q) -> b (h w) (p q c)"
FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "rearrange": lambda t: rearrange(t, PATCHES, p=2, q=2),
    "mean": lambda t: reduce(t, "b c h w -> b c", "mean"),
    "max": lambda t: reduce(t, "b c (h 2) (w 2) -> b c h w", "max"),
    "repeat": lambda t: repeat(t, "b c h w -> (r b) c h (w s)", r=2, s=3),
    "einsum": lambda t: einsum(t, t, "b c h w, b d h w -> b c d"),
    "list": lambda t: rearrange([t, t], "n b c h w -> b n (h w) c"),
    "pack": lambda t: unpack(*pack([t, t[:, 0]], "b * w"), "b * w")[1],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(machine: Machine, name: str) -> None:
    images = torch.rand(2, 3, 8, 8, requires_grad=True)
    on_device = images.detach().cuda().requires_grad_()
    expected, found = FUNCTIONS[name](images), FUNCTIONS[name](on_device)
    assert found.device == torch.device("cuda", 0)
    torch.testing.assert_close(found.cpu(), expected)
    (gradient,) = torch.autograd.grad(expected.square().sum(), images)
    (on_card,) = torch.autograd.grad(found.square().sum(), on_device)
    torch.testing.assert_close(on_card.cpu(), gradient)


def test_rearranging_is_a_view_where_it_can_be(machine: Machine) -> None:
    images = torch.rand(2, 3, 8, 8, device="cuda")
    before = torch.cuda.memory_allocated()
    view = rearrange(images, "b c h w -> b h w c")
    assert torch.cuda.memory_allocated() == before
    assert view.untyped_storage().data_ptr() == images.untyped_storage().data_ptr()
    rearrange(view, "b h w c -> (b c) (h w)").sum()
    assert lab.snapshot().devices[0].memory.peak_allocated > before


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_layers_train_and_are_scripted(machine: Machine) -> None:
    mix = EinMix("b n i -> b n o", weight_shape="i o", bias_shape="o", i=48, o=8)
    net = nn.Sequential(Rearrange(PATCHES, p=4, q=4), mix, Reduce("b n o -> b o", "mean"), nn.Linear(8, 2)).cuda()
    images = torch.rand(2, 3, 8, 8, device="cuda")
    net(images).sum().backward()
    assert {parameter.grad.device for parameter in net.parameters()} == {torch.device("cuda", 0)}
    layers = nn.Sequential(Rearrange("b c h w -> b (c h w)"), nn.Linear(192, 2)).cuda()
    torch.testing.assert_close(torch.jit.script(layers)(images), layers(images))
