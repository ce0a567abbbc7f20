"""What shape functions said is said again only where they would say the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._pytree import tree_leaves

import fakegpu_lab as lab
from fakegpu_lab.driver.meta import shape_cache

aten = torch.ops.aten

extents = st.integers(0, 3)
dtypes = st.sampled_from([torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.bool])


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """On torch's meta device: any layout of up to three dimensions, some of them parts of others."""
    shape = draw(st.lists(extents, max_size=3))
    made = torch.empty([extent + draw(st.integers(0, 1)) for extent in shape], dtype=draw(dtypes), device="meta")
    part = made[tuple(slice(0, extent) for extent in shape)]
    return part.permute(draw(st.permutations(range(len(shape)))))


CALLS: list[Any] = [
    aten.add.Tensor,
    aten.mul.Tensor,
    aten.div.Tensor,
    aten.eq.Tensor,
    aten.pow.Tensor_Tensor,
    torch.true_divide,
    torch.maximum,
]
REMEMBERED = [shape_cache.cached(call) for call in CALLS]
"""For all examples, so that one's answer may come up in another."""


def told(call: Any, *args: Any, **kwargs: Any) -> Any:
    try:
        results = call(*args, **kwargs)
    except (RuntimeError, TypeError, IndexError) as error:
        return type(error)
    return [(one.shape, one.stride(), one.dtype, one.storage_offset(), one.device) for one in tree_leaves(results)]


@given(st.sampled_from(range(len(CALLS))), tensors(), tensors())
def test_two_operands(which: int, first: torch.Tensor, second: torch.Tensor) -> None:
    """1, True and 1.0 are equal and promote otherwise, and what a quotient of integers is, the default says."""
    before = torch.get_default_dtype()
    try:
        for default in (torch.float32, torch.float64):
            torch.set_default_dtype(default)
            for other in (second, second, True, 1, 1.0, True):
                assert told(REMEMBERED[which], first, other) == told(CALLS[which], first, other)
    finally:
        torch.set_default_dtype(before)
    for like in (rows(first), columns(first)):
        assert told(REMEMBERED[which], like, 2) == told(CALLS[which], like, 2)


def rows(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")


def columns(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape[::-1], dtype=tensor.dtype, device="meta").permute(list(range(tensor.dim()))[::-1])


LISTS = [shape_cache.cached(torch.cat), shape_cache.cached(torch.max), shape_cache.cached(torch.sum)]


@given(st.lists(tensors(), min_size=1, max_size=3), st.integers(-3, 3), st.booleans())
def test_lists_numbers_and_several_results(many: list[torch.Tensor], dim: int, keep: bool) -> None:
    for _ in range(2):
        assert told(LISTS[0], many, dim) == told(torch.cat, many, dim)
        assert told(LISTS[1], many[0], dim, keepdim=keep) == told(torch.max, many[0], dim, keepdim=keep)
        assert told(LISTS[2], many[0], [dim], keep) == told(torch.sum, many[0], [dim], keep)


def test_several_results_keep_their_names() -> None:
    remembered = shape_cache.cached(torch.max)
    x = torch.empty(2, 3, device="meta")
    assert type(remembered(x, 1)) is type(remembered(x, 1)) is type(torch.max(x, 1))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x,
        lambda x: x.t(),
        lambda x: x[:0],
        lambda x: torch.empty(4, 4, device="meta")[:2],
        lambda x: (x + 1, x),
        lambda x: [torch.empty(3, device="meta")] * 2,
        lambda x: x.new_empty(3, device="cpu"),
    ],
)
def test_what_is_more_than_its_sizes_is_asked_for_each_time(call: Any) -> None:
    asked = []

    def counted(x: torch.Tensor) -> Any:
        asked.append(x)
        return call(x)

    remembered = shape_cache.cached(counted)
    x = torch.empty(3, 3, device="meta")
    remembered(x)
    result = remembered(x)
    assert len(asked) == 2
    assert told(lambda: result) == told(call, x)


def test_an_error_is_told_each_time_and_answers_are_forgotten_in_the_end() -> None:
    add = shape_cache.cached(aten.add.Tensor)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="broadcast"):
            add(torch.empty(2, device="meta"), torch.empty(3, device="meta"))
    asked = []
    remembered = shape_cache.cached(lambda x, number: asked.append(number) or x.new_empty(number))
    x = torch.empty(2, device="meta")
    for number in range(shape_cache.MAX_ENTRIES + 1):
        assert remembered(x, number).shape == (number,)
    remembered(x, shape_cache.MAX_ENTRIES)
    assert len(asked) == shape_cache.MAX_ENTRIES + 1
    remembered(x, 0)
    assert len(asked) == shape_cache.MAX_ENTRIES + 2


def test_a_machine_without_values_asks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of steps with the same shapes, torch's own functions hear of the first, and each step has memory of its own."""
    asked: list[Any] = []
    remembered = shape_cache.cached

    def counting(call: Any) -> Any:
        return remembered(lambda *args, **kwargs: asked.append(call) or call(*args, **kwargs))

    monkeypatch.setattr(shape_cache, "cached", counting)
    lab.enable("a100", compute="meta")
    try:
        x = torch.ones(4, 8, device="cuda", requires_grad=True)
        kept, many = [], []
        for _ in range(4):
            kept.append(torch.nn.functional.layer_norm(x, (8,)).exp())
            kept[-1].sum().backward()
            many.append(len(asked))
        assert many[0] > 3
        assert many[1] == many[2] == many[3]
        assert len({one.data_ptr() for one in kept}) == 4
        assert x.grad is not None
        assert x.grad.shape == x.shape
    finally:
        lab.disable()


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


@pytest.mark.parametrize("compute", ["real", "meta"])
def test_a_group_norm_makes_its_operands_contiguous(compute: str) -> None:
    lab.enable("a100", compute=compute)
    try:
        x = torch.ones(2, 8, 4, 4, device="cuda").to(memory_format=torch.channels_last).requires_grad_()
        weight = torch.ones(8, device="cuda")
        y = torch.nn.functional.group_norm(x, 2, weight, weight)
        assert y.is_contiguous()  # pytorch#111824: a CPU keeps channels last
        assert torch.ops.aten.native_group_norm(x, weight, weight, 2, 8, 16, 2, 1e-5)[0].is_contiguous()
        (gradient,) = torch.autograd.grad(y, x, torch.ones_like(x))
        assert gradient.is_contiguous()
    finally:
        lab.disable()
