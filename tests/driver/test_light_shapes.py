"""Shapes are found without sympy and Dynamo, which torch's own shape functions import: 67 MiB in each process."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import fakegpu_lab as lab

PROGRAM = """
import sys
import fakegpu_lab as lab
import torch
from torch.utils.checkpoint import checkpoint

lab.enable("a100")
wide = torch.ones(2**13, 4, device="cuda")
assert (wide @ wide.T).shape == (2**13, 2**13)
lab.enable("a100", compute="meta")
x = torch.ones(4, 4, device="cuda")
x @ x
torch.addmm(x[0], x, x)
torch.nn.Linear(4, 4, device="cuda")(x)
assert "torch._meta_registrations" in sys.modules
layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, device="cuda")
image = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.MaxPool2d(2)).cuda()
words = torch.nn.Embedding(10, 16, device="cuda")(torch.zeros(2, 5, dtype=torch.long, device="cuda"))
for result in (layer(words), image(torch.zeros(2, 3, 8, 8, device="cuda"))):
    result.square().mean().backward()
with torch.autocast("cuda"):
    checkpoint(layer, words.detach(), use_reentrant=False).sum().backward()
torch.where(words > 0, words, 1.0).std()
print([name for name in ("sympy", "torch._dynamo", "torch._inductor") if name in sys.modules])
"""


def test_steps_import_neither_sympy_nor_dynamo() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.parametrize("compute", ["real", "meta"])
@pytest.mark.parametrize(("rows", "bias"), [((2, 3), True), ((2, 3), False), ((5, 2, 3), True), ((3,), True)])
def test_shapes_and_strides_of_a_linear_layer(compute: str, rows: tuple[int, ...], bias: bool) -> None:
    lab.enable("a100", compute=compute)  # type: ignore[arg-type]
    layer = torch.nn.Linear(3, 4, bias=bias, device="cuda")
    plain, turned = (
        torch.ones(rows, device="cuda"),
        torch.ones(rows[::-1], device="cuda").permute(*range(len(rows))[::-1]),
    )
    for source in (plain, turned):
        result = layer(source)
        assert result.shape == (*rows[:-1], 4)
        assert result.is_contiguous()


@pytest.mark.parametrize("added", [(4,), (2, 4), (2, 1), (1, 4), (1,), ()])
def test_shapes_of_a_product_that_is_added(added: tuple[int, ...]) -> None:
    lab.enable("a100", compute="meta")
    a, b = torch.ones(2, 3, device="cuda"), torch.ones(3, 4, device="cuda")
    assert torch.addmm(torch.ones(added, device="cuda"), a, b, beta=2, alpha=0.5).shape == (2, 4)
    with pytest.raises(RuntimeError):
        torch.addmm(torch.ones(3, device="cuda"), a, b)
    with pytest.raises(RuntimeError, match=r"cannot be multiplied"):
        torch.addmm(torch.ones(4, device="cuda"), a, a)


def test_a_check_of_torch_fails_as_before() -> None:
    lab.enable("a100")
    torch._check(True)
    with pytest.raises(RuntimeError, match="because"):
        torch._check(False, lambda: "because")
    with pytest.raises(IndexError, match="because"):
        torch._check_index(False, lambda: "because")
    with pytest.raises(TypeError, match="cond must be a bool"):
        torch._check(1)  # type: ignore[arg-type]


ANYTHING_ELSE = """
import sys
import fakegpu_lab as lab
import torch

def imported():
    return [name for name in ("sympy", "torch._dynamo") if name in sys.modules]

lab.enable("a100")
from torch.fx.experimental import symbolic_shapes
from torch.fx.experimental.symbolic_shapes import guard_or_false, sym_eq
print(guard_or_false(True), sym_eq((2, 3), torch.Size([2, 3])), sym_eq((2, 3), [2, 4]), imported())
try:
    guard_or_false(1)
except AssertionError as error:
    print(type(error).__name__, imported())
print(symbolic_shapes.ShapeEnv is sys.modules["torch.fx.experimental.symbolic_shapes"].ShapeEnv)
assert torch.fx.experimental.symbolic_shapes is sys.modules["torch.fx.experimental.symbolic_shapes"]
torch._dynamo.config.suppress_errors = True
print(torch._dynamo.config.suppress_errors, imported())
assert torch._dynamo is sys.modules["torch._dynamo"]
print(torch.ones(2, 3, device="cuda").sum_to_size(3).tolist())
"""


def test_whoever_needs_more_of_them_gets_torch_s_own() -> None:
    done = subprocess.run([sys.executable, "-c", ANYTHING_ELSE], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "True True False []",
        "AssertionError ['sympy']",
        "True",
        "True ['sympy', 'torch._dynamo']",
        "[2.0, 2.0, 2.0]",
    ], done.stderr


def test_nothing_stands_for_them_afterwards() -> None:
    program = (
        "import sys\nimport fakegpu_lab as lab\nimport torch\nlab.enable('a100', compute='meta')\n"
        "torch.ones(3, device='cuda') + 1\nlab.disable()\n"
        "print('_dynamo' in vars(torch), 'symbolic_shapes' in vars(torch.fx.experimental))\n"
        "print('torch.fx.experimental.symbolic_shapes' in sys.modules)\n"
        "import torch.fx.experimental.symbolic_shapes, torch._dynamo\n"
        "print(torch.fx.experimental.symbolic_shapes.ShapeEnv.__name__, torch._dynamo.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False False", "False", "ShapeEnv torch._dynamo"]
