"""Shapes of products are found without sympy and Dynamo, which torch's own shape functions import: 67 MiB a kernel."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import fakegpu_lab as lab
from fakegpu_lab.driver.environment import torch_internals

PROGRAM = """
import sys
import fakegpu_lab as lab
import torch

lab.enable("a100")
wide = torch.ones(2**13, 4, device="cuda")
assert (wide @ wide.T).shape == (2**13, 2**13)
lab.enable("a100", compute="meta")
x = torch.ones(4, 4, device="cuda")
x @ x
torch.addmm(x[0], x, x)
torch.nn.Linear(4, 4, device="cuda")(x)
assert "torch._meta_registrations" in sys.modules
print([name for name in ("sympy", "torch._dynamo", "torch._inductor") if name in sys.modules])
"""


def test_products_import_neither_sympy_nor_dynamo() -> None:
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
    lab.disable()
    assert torch._check_with is not torch_internals.check_with
