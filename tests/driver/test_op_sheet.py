"""The op sheet: one row an op, whose in-place and ``out=`` forms follow from it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

import fakegpu_lab as lab
from fakegpu_lab.driver.cost.op import Op
from fakegpu_lab.driver.cost.op_row import Row, computes, row, row_of, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WORKSPACE = 8_519_680
"""cuBLAS's workspace before Hopper, in bytes: 4,096 KiB · 2 + 16 KiB · 8 (CublasHandlePool.cpp)."""


@pytest.fixture
def machine() -> Iterator[Any]:
    yield lab.enable("a100")
    lab.disable()


def matrix(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype, device="cuda")


PRODUCTS: dict[str, Callable[[torch.dtype], Any]] = {
    "mm": lambda t: matrix(4, 4, dtype=t).mm(matrix(4, 4, dtype=t)),
    "addmm": lambda t: matrix(4, 4, dtype=t).addmm(matrix(4, 4, dtype=t), matrix(4, 4, dtype=t)),
    "addmm_": lambda t: matrix(4, 4, dtype=t).addmm_(matrix(4, 4, dtype=t), matrix(4, 4, dtype=t)),
    "bmm": lambda t: matrix(2, 4, 4, dtype=t).bmm(matrix(2, 4, 4, dtype=t)),
    "baddbmm": lambda t: matrix(2, 4, 4, dtype=t).baddbmm(matrix(2, 4, 4, dtype=t), matrix(2, 4, 4, dtype=t)),
    "baddbmm_": lambda t: matrix(2, 4, 4, dtype=t).baddbmm_(matrix(2, 4, 4, dtype=t), matrix(2, 4, 4, dtype=t)),
    "addbmm": lambda t: matrix(4, 4, dtype=t).addbmm(matrix(2, 4, 4, dtype=t), matrix(2, 4, 4, dtype=t)),
    "addbmm_": lambda t: matrix(4, 4, dtype=t).addbmm_(matrix(2, 4, 4, dtype=t), matrix(2, 4, 4, dtype=t)),
    "mv": lambda t: matrix(4, 4, dtype=t).mv(matrix(4, dtype=t)),
    "addmv": lambda t: matrix(4, dtype=t).addmv(matrix(4, 4, dtype=t), matrix(4, dtype=t)),
    "addmv_": lambda t: matrix(4, dtype=t).addmv_(matrix(4, 4, dtype=t), matrix(4, dtype=t)),
    "dot": lambda t: matrix(4, dtype=t).dot(matrix(4, dtype=t)),
    "vdot": lambda t: torch.vdot(matrix(4, dtype=t), matrix(4, dtype=t)),
    "linear": lambda t: torch.nn.functional.linear(matrix(4, 4, dtype=t), matrix(4, 4, dtype=t)),
    "_addmm_activation": lambda t: torch._addmm_activation(*(matrix(4, 4, dtype=t) for _ in range(3))),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_takes_cublas_workspace_once(machine: Any, name: str) -> None:
    result = PRODUCTS[name](torch.float32)
    held = torch.cuda.memory_allocated()
    assert held >= WORKSPACE
    del result
    PRODUCTS[name](torch.float32)
    assert torch.cuda.memory_allocated() < held


def test_an_outer_product_is_elementwise_and_takes_no_workspace(machine: Any) -> None:
    torch.addr(matrix(4, 4), matrix(4), matrix(4))
    assert torch.cuda.memory_allocated() < WORKSPACE


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_has_no_kernel_for_integers(machine: Any, name: str) -> None:
    with pytest.raises(NotImplementedError, match=r"\"\w+\" not implemented for 'Long'"):
        PRODUCTS[name](torch.int64)


@pytest.mark.parametrize("name", ["addmm_", "addbmm_", "baddbmm_", "addmv_"])
def test_a_product_in_place_has_the_row_of_the_other(machine: Any, name: str) -> None:
    found, other = (row_of(getattr(torch.ops.aten, each).default._schema) for each in (name, name.rstrip("_")))
    assert found.cost is not None
    assert replace(found, shape=None) == replace(other, shape=None)


def test_half_precision_is_rounded_once_in_place_too(machine: Any) -> None:
    x = torch.rand(1000, dtype=torch.float16)
    assert torch.equal(x.cuda().logit_().cpu(), x.float().logit().half())
    y = torch.rand(1000, dtype=torch.float16)
    assert torch.vdot(x.cuda(), y.cuda()).item() == torch.dot(x.float(), y.float()).half().item()


def test_what_computes_an_op_computes_its_other_forms(machine: Any) -> None:
    """A function in the column ``values`` returns a result; ``x.op_()`` and ``out=`` write it."""
    x = torch.tensor([-1.5, 2.5])
    aten, values = torch.ops.aten, computes(lambda x, plus=0: x + 10 + plus)
    plain, in_place, out = (values(Op(func), None) for func in (aten.frac.default, aten.frac_.default, aten.frac.out))
    assert plain(x, plus=1).tolist() == [9.5, 13.5]
    assert out(x, out=(result := torch.empty(0))) is result
    assert result.tolist() == [8.5, 12.5]
    assert in_place(x) is x
    assert x.tolist() == [8.5, 12.5]


def test_an_ops_row_is_added_once() -> None:
    with pytest.raises(ValueError, match="two rows for addmm"):
        row("addmm", launches=False)


def test_an_overload_begins_with_the_ops_row(machine: Any) -> None:
    assert row_of(torch.ops.aten.mm.dtype._schema).cost is row_of(torch.ops.aten.mm.default._schema).cost
    assert row_of(torch.ops.aten.mm.dtype._schema).runs is not None
    assert row_of(torch.ops.aten.mm.default._schema).runs is None


def test_every_row_is_of_an_op_of_torch_and_says_something(machine: Any) -> None:
    """A row without effect hides a typing error in a name; some ops are only in other versions of torch."""
    known = {name.removeprefix("aten::") for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")}
    known |= {name.partition(".")[0] for name in known}
    elsewhere = {"linalg_matrix_sqrth", "_upsample_lanczos2d_aa", "_upsample_lanczos2d_aa_backward"}
    assert set(rows()) - known <= elsewhere
    assert [name for name, found in rows().items() if found == Row()] == []


def test_an_operator_of_the_users_with_a_name_of_atens_has_no_row(machine: Any) -> None:
    library = torch.library.Library("mine", "FRAGMENT")
    library.define("linear(Tensor x) -> Tensor")
    library.impl("linear", lambda x: x + 1, "CompositeExplicitAutograd")
    assert torch.ops.mine.linear(matrix(2)).tolist() == [2.0, 2.0]


INTO = {
    "mm": ([(4, 4)] * 2, (4, 4)),
    "addmm": ([(4, 4)] * 3, (4, 4)),
    "bmm": ([(1, 4, 4)] * 2, (1, 4, 4)),
    "baddbmm": ([(1, 4, 4)] * 3, (1, 4, 4)),
    "addbmm": ([(4, 4), (1, 4, 4), (1, 4, 4)], (4, 4)),
    "mv": ([(4, 4), (4,)], (4,)),
    "addmv": ([(4,), (4, 4), (4,)], (4,)),
    "dot": ([(4,), (4,)], ()),
    "avg_pool2d": ([(1, 4, 4)], (1, 2, 2)),
}
"""The shapes of what a product takes, and of what it makes."""


@pytest.mark.parametrize("name", INTO)
def test_integers_are_refused_before_out_is_written(machine: Any, name: str) -> None:
    shapes, result = INTO[name]
    out = torch.zeros(result, dtype=torch.int64, device="cuda")
    more = [2] if name == "avg_pool2d" else []
    with pytest.raises(RuntimeError, match="not implemented for 'Long'"):
        getattr(torch.ops.aten, name)(*(matrix(*shape, dtype=torch.int64) for shape in shapes), *more, out=out)
    assert out.count_nonzero() == 0


def test_an_op_that_runs_by_itself_writes_into_out(machine: Any) -> None:
    x, weight = torch.randn(4, 8, device="cuda"), torch.randn(3, 8, device="cuda")
    out = torch.zeros(4, 3, device="cuda")
    assert torch.ops.aten.linear.out(x, weight, out=out) is out
    torch.testing.assert_close(out, x @ weight.T)
    copied = torch.zeros(4, 8, dtype=torch.float64, device="cuda")
    torch.ops.aten._to_copy.out(x, out=copied)
    assert torch.equal(copied.float(), x)
    gradient = torch.empty(0, device="cuda")
    torch.ops.aten.silu_backward.grad_input(x, x, grad_input=gradient)
    assert gradient.shape == x.shape


@pytest.mark.parametrize("first", [False, True])
def test_a_product_takes_the_time_of_its_layout_whichever_ran_before(machine: Any, first: bool) -> None:
    def took(left: torch.Tensor) -> int:
        with lab.record() as trace:
            left @ right
        return trace.kernels[0].end_ns - trace.kernels[0].start_ns

    right = matrix(30, 64, dtype=torch.float16)
    straight, turned = matrix(64, 30, dtype=torch.float16), matrix(30, 64, dtype=torch.float16).T
    took(turned if first else straight)
    assert (took(straight), took(turned)) == (3_287, 3_144)


def test_a_product_of_numbers_is_refused_in_torchs_words(machine: Any) -> None:
    with pytest.raises(RuntimeError, match="self must be a matrix"):
        torch.mm(torch.ones((), device="cuda"), matrix(4, 4))


@pytest.mark.parametrize("name", ["normal_", "uniform_", "log_normal_", "geometric_", "cauchy_", "exponential_"])
def test_random_numbers_are_written_and_nothing_is_read(machine: Any, name: str) -> None:
    x = torch.empty(2**20, device="cuda")
    with lab.record() as trace:
        getattr(x, name)(*([0.5] if name == "geometric_" else []))
    assert trace.kernels[0].nbytes == x.nbytes


def test_the_sheet_names_its_own_files() -> None:
    from fakegpu_lab.driver import op_sheet

    assert all(hasattr(op_sheet, name) for name in op_sheet.__all__)
