"""What can be expected of values, devices, errors and code: met and not met, and what is said."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fakegpu_lab as lab
from fakegpu_lab import expect
from fakegpu_lab.course.checks import checking
from fakegpu_lab.course.expect.outcome import NOTHING
from fakegpu_lab.course.expect.values import digest
from tests.course.conftest import told


def test_outside_a_check_they_are_assertions() -> None:
    assert expect.equal(1, 1)
    assert (
        told(lambda: expect.equal(1, 2, hint="count"))
        == "the value should be 2\n  expected: 2\n  found: 1\n  hint: count"
    )
    assert issubclass(expect.Unmet, AssertionError)


@given(st.recursive(st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_equal_is_equality_of_plain_values(value: Any) -> None:
    assert expect.equal(value, value)


class Agreeable(str):
    """Says that it is equal to anything."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return True


def test_a_value_cannot_say_of_itself_that_it_is_equal() -> None:
    told(lambda: expect.equal(Agreeable("no"), "yes"))
    told(lambda: expect.equal(Agreeable("yes"), "yes"))
    told(lambda: expect.equal([Agreeable("no")], ["yes"]))
    told(lambda: expect.equal(True, 1))
    told(lambda: expect.equal("1", 1))
    assert expect.equal(2.0, 2)
    assert expect.equal(np.int64(2), 2)
    assert expect.equal(np.float64(0.5), 0.5)
    assert expect.close([Fraction(3, 7), Fraction(0, 1)], [3 / 7, 0.0])


def test_a_number_of_numpys_is_compared_in_its_own_precision() -> None:
    assert expect.equal(np.float32(0.1), 0.1)
    assert expect.equal([np.float32(0.1), np.float16(0.3)], [0.1, 0.3])
    assert expect.equal(0.1, np.float32(0.1))
    assert expect.equal(np.float32(0.1), torch.tensor(0.1))
    assert expect.close(np.float32(0.1), 0.1)
    assert expect.at_most(np.float32(0.1), 0.2)
    assert expect.score(np.float32(3.0), full=3, none=12)
    assert "0.2" in told(lambda: expect.equal(np.float32(0.2), 0.1))
    told(lambda: expect.equal(np.float64(np.float32(0.1)), 0.1))


def test_a_device_is_equal_to_its_name(gpus: None) -> None:
    assert expect.equal(torch.device("cuda"), "cuda:0")
    assert expect.equal("cuda:0", torch.device("cuda"))
    assert expect.equal("cuda", "cuda:0")
    assert expect.equal([torch.device("cpu")], ["cpu"])
    told(lambda: expect.equal(torch.device("cuda:1"), "cuda"))
    told(lambda: expect.equal(torch.device("cpu"), "cuda"))
    told(lambda: expect.equal(None, "cuda"))
    told(lambda: expect.equal("cuda: 0", "cuda:0"))


def test_equal_of_tensors_is_shape_dtype_and_numbers(gpus: None) -> None:
    assert expect.equal(torch.ones(3, device="cuda"), torch.ones(3))
    assert expect.equal(torch.ones(3), [1.0, 1.0, 1.0])
    assert "the shape (2,), not (3,)" in told(lambda: expect.equal(torch.ones(2), torch.ones(3)))
    assert "the dtype torch.int64, not torch.float32" in told(lambda: expect.equal(torch.ones(3).long(), torch.ones(3)))
    assert "which is not a tensor" in told(lambda: expect.equal(1.0, torch.ones(3)))
    assert "at 1: 3, not 2" in told(lambda: expect.equal([1, 3], [1, 2]))
    assert "still `...`" in told(lambda: expect.equal(..., 3))


def test_close_forgives_rounding() -> None:
    assert expect.close(0.1 + 0.2, 0.3)
    assert expect.close(torch.full((9,), 1.00001), torch.ones(9))
    assert expect.close({"loss": 1.0}, {"loss": 1.000001})
    assert "the largest difference is 1 (tolerance: 0.01% + 1e-06)" in told(
        lambda: expect.close(torch.zeros(9), torch.ones(9))
    )
    said = told(lambda: expect.close([torch.zeros(9)], [torch.full((9,), 3e-6)]))
    assert "at 0: the largest difference is 3e-06 (tolerance: 0.01% + 1e-06)" in said
    assert "not a tensor" not in said
    assert "at 0: 0.5, not 0.428571" in told(lambda: expect.close([0.5], [3 / 7]))
    assert "0.428571" in told(lambda: expect.close(3 / 7, 0.5))
    assert "expected: [0.428571, 2]" in told(lambda: expect.close([0.5, 2], [3 / 7, 2]))
    told(lambda: expect.close(True, 1.0))
    assert expect.close(torch.ones(2), torch.full((2,), 1.01), rtol=0, atol=0.1)
    assert expect.close(3.05, 3, rtol=0, atol=0.1)
    told(lambda: expect.close(torch.ones(2), torch.full((2,), 1.2), rtol=0, atol=0.1))
    told(lambda: expect.close(3.2, 3, rtol=0, atol=0.1))
    told(lambda: expect.close(float("nan"), 1.0))


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("close(x, x * 1.00001)", "the largest difference is 8.96e-05 (tolerance: 0.01% + 1e-06)"),
        ("close([x, x], [x, x * 1.00001])", "the largest difference is 8.96e-05 (tolerance: 0.01% + 1e-06)"),
        ("close({'a': x}, {'a': x - 2e-5}, rtol=0, atol=1e-3)", "the largest difference is 2e-05 (tolerance: 0.001)"),
        ("close(x, x * 2, rtol=1, atol=0)", "the largest difference is 9 (tolerance: 100%)"),
        ("close(x[:3], [0, 1.00001, 2])", "[0.0, 1.0, 2.0] (a tensor of shape (3,), float32, on cpu)"),
        ("close(0.5, 0.50001)", "0.5"),
        ("equal(x, x)", "0, 1, 2, 3, … (a tensor of shape (10,), float32, on cpu)"),
        ("equal([x.long()], [x.long()])", "0, 1, 2, 3, … (a tensor of shape (10,), int64, on cpu)"),
        ("equal({'a': 'b'}, {'a': 'b'})", "{'a': 'b'}"),
        (
            "equal(x[:8], x[:8] + 1)",
            "[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0] (a tensor of shape (8,), float32, on cpu)",
        ),
        ("equal(x[:9], x[:9] + 1)", "9 of 9 are wrong, the first at [0]: 0, not 1; they differ by up to 1"),
        ("equal(x, x + 1)", "10 of 10 are wrong, the first at [0]: 0, not 1; they differ by up to 1"),
        ("equal(x, (x - 3).relu())", "9 of 10 are wrong, the first at [1]: 1, not 0; they differ by up to 3"),
        (
            "close(x, x + 1)",
            "the largest difference is 1 (tolerance: 0.01% + 1e-06); 10 of 10 are wrong, the first at [0]: 0, not 1",
        ),
        ("close(z, z)", "the largest difference is 0 (tolerance: 0.01% + 1e-06)"),
        ("equal(e, e)", "[] (a tensor of shape (0,), float32, on cpu)"),
    ],
)
def test_a_part_says_the_numbers_that_it_found(call: str, found: str) -> None:
    names = {"x": torch.arange(10.0), "z": torch.ones(3, 3) * 1j, "e": torch.empty(0)}
    (part,) = checking.run(f"expect.{call}", names, "a").record.parts
    assert part.found == found
    assert part.met == ("+ 1)" not in call and "relu" not in call)


def test_a_choice_can_be_kept_from_readers() -> None:
    right = digest("b", "streams")
    because = {"a": "That is the host."}
    assert expect.choice(" B ", right, salt="streams")
    assert expect.choice("b", "b")
    assert "That is the host." in told(lambda: expect.choice("a", right, salt="streams", because=because))
    assert "no answer yet" in told(lambda: expect.choice(..., right))


def test_shape_dtype_instance_true_at_most_values(gpus: None) -> None:
    layer = torch.nn.Linear(2, 3).cuda().half()
    assert expect.shape(layer.weight, (3, 2))
    assert expect.dtype(layer, torch.float16)
    assert expect.instance(layer, torch.nn.Module)
    assert expect.true([1], "the list has something in it")
    assert expect.at_most(3, 3)
    assert expect.values([1.0, 2.0], [1.0, 2.0])
    assert "found: (3, 2)" in told(lambda: expect.shape(layer.weight, (3, 3)))
    assert "which has no shape" in told(lambda: expect.shape(3, (3, 3)))
    assert "bias torch.float16" in told(lambda: expect.dtype(layer, torch.float32))
    assert "a Linear" in told(lambda: expect.instance(layer, torch.Tensor))
    assert "4 ms" in told(lambda: expect.at_most(4, 3, unit="ms"))
    assert "expected: at most 3 ms" in told(lambda: expect.at_most(4, 3, unit="ms", what="it is fast"))
    assert "expected" not in told(lambda: expect.at_most(4, 3, unit="ms", what="it takes at most 3 ms"))
    assert "1 of 2 right" in told(lambda: expect.values([1.0, 3.0], [1.0, 2.0]))


def test_each_right_value_earns_its_share() -> None:
    def earned(source: str) -> float:
        return float(checking.run(source, {}, "a"))

    assert earned("expect.values([1.0, 2.0, 0.0, 4.0], [1.0, 2.0, 3.0, 4.0], points=4)") == 3.0
    assert earned("expect.values([1.0], [1.0, 2.0], points=4)") == 2.0
    assert earned("expect.values([1.0, 2.0, 3.0], [1.0, 2.0], points=4)") == 4.0
    assert earned("expect.values([], [], points=4)") == 0.0
    assert earned("expect.values([1.00009], [1.0])") == 1.0
    assert earned("expect.values([1.001], [1.0])") == 0.0
    assert earned("expect.values([1.001], [1.0], rtol=0.01)") == 1.0


def test_limits_are_where_they_are_said_to_be() -> None:
    assert expect.close(1.00009, 1.0)
    told(lambda: expect.close(1.0002, 1.0))
    assert expect.close(0.0, 9e-7)
    told(lambda: expect.close(0.0, 2e-6))
    assert expect.close(torch.tensor([1.00009]), torch.tensor([1.0]))
    told(lambda: expect.close(torch.tensor([1.0002]), torch.tensor([1.0])))
    assert expect.close(101, 100, rtol=0.02)
    told(lambda: expect.close(103, 100, rtol=0.02))
    told(lambda: expect.close("1", 1.0))
    told(lambda: expect.equal([1, 2], [1, 2, 3]))
    told(lambda: expect.equal({"a": 1}, {"b": 1}))
    told(lambda: expect.equal({"a": 1, "b": 1}, {"a": 1}))
    assert expect.equal((1, 2), [1, 2])
    told(lambda: expect.at_most(3.1, 3))
    assert expect.at_most(torch.tensor(2.0), 3)
    told(lambda: expect.at_most("2", 3))
    assert expect.true(torch.tensor(True), "a tensor of one element")
    told(lambda: expect.true(torch.tensor(False), "a tensor of one element"))
    told(lambda: expect.true(torch.ones(2), "a tensor of two"))
    told(lambda: expect.true([], "an empty list"))
    told(lambda: expect.equal(torch.ones(2, device="meta"), torch.ones(2)))


def test_on_device_looks_into_modules_optimizers_lists_and_dicts(gpus: None) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2).cuda(), torch.nn.BatchNorm1d(2))
    said = told(lambda: expect.on_device(model, "cuda:0"))
    assert "5 of 7 tensors are on cpu: 1.weight, 1.bias, 1.running_mean, 1.running_var and 1 more" in said
    assert "A module is moved in place" in said
    model.cuda()
    assert expect.on_device(model, "cuda:0")
    assert expect.on_device(model, "cuda")
    told(lambda: expect.on_device(model, "cuda:1"))
    adam = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 2, device="cuda")).sum().backward()
    adam.step()
    assert expect.on_device(adam, "cuda:0")
    assert expect.grad_on_device(model, "cuda:0")
    assert expect.on_device({"x": [torch.ones(1)]}, "cpu")
    assert "should be on cpu\n  found: on cuda:0" in told(lambda: expect.on_device(torch.ones(1).cuda(), "cpu"))
    assert "holds no tensor" in told(lambda: expect.on_device([], "cpu"))
    assert "holds no tensor" in told(lambda: expect.on_device(..., "cpu"))
    model.zero_grad()
    assert "none for 0.weight" in told(lambda: expect.grad_on_device(model, "cuda:0"))


def test_same_device(gpus: None) -> None:
    here, there = torch.ones(1).cuda(), torch.ones(1).to("cuda:1")
    assert expect.same_device(here, here)
    assert "value 1: cuda:0, value 2: cuda:1" in told(lambda: expect.same_device(here, there))


def test_raises_and_raises_oom(gpus: None) -> None:
    assert expect.raises(lambda: torch.ones(2).cuda() @ torch.ones(2), RuntimeError, "same device")
    assert expect.raises_oom(lambda: torch.empty(2**40, device="cuda"))
    assert "no error" in told(lambda: expect.raises_oom(lambda: None))
    assert "ValueError: invalid literal" in told(lambda: expect.raises(lambda: int("x"), KeyError))


def test_calls_of_a_function() -> None:
    def solution() -> None:
        torch.cuda.synchronize()

    assert expect.calls("synchronize", function=solution)
    assert expect.calls("torch.cuda.synchronize", function=solution)
    assert expect.does_not_call("item", function=solution)
    told(lambda: expect.calls("item", function=solution))
    told(lambda: expect.does_not_call("cuda.synchronize", function=solution))


def test_an_object_is_neither_true_nor_false() -> None:
    """Libraries have expressions whose comparisons are expressions, which Python takes for true."""
    assert "neither true nor false" in told(lambda: expect.true(object(), "it is so"))
    assert "neither true nor false" in told(lambda: expect.true(torch.float32, "it is so"))
    for fine in (1, 0.5, "text", [0], {"a": 0}, (False,), np.True_):
        assert expect.true(fine, "it is so")
    for not_so in (0, 0.0, "", [], {}, (), None, np.False_):
        assert "this is false" in told(lambda wrong=not_so: expect.true(wrong, "it is so"))


@pytest.mark.parametrize(
    ("found", "expected", "met"),
    [
        (torch.tensor(True), 5_000_000, False),
        (np.array(True), 5_000_000, False),
        ([torch.tensor(True)], [1], False),
        (torch.tensor([True, False]), [True, False], True),
        (torch.tensor([1, 0]), [True, False], False),
        (torch.tensor(0), 0.7, False),
        (torch.tensor(2), 2.0, True),
        (torch.tensor([0.1, 3.0]), [0.1, 3], True),
        (torch.tensor([0.1], dtype=torch.float16), [0.1], True),
        (torch.tensor([0.1], dtype=torch.bfloat16), [0.1], False),
        (torch.tensor(float("inf"), dtype=torch.float16), 70_000.0, False),
        (torch.tensor(0.0, dtype=torch.float16), 1e-3, False),
        (np.float16("inf"), 70_000, False),
        (torch.tensor([0.1], dtype=torch.float64), [0.1], True),
        (torch.tensor([100.0]).to(torch.float8_e5m2), [101.0], False),
        (torch.tensor([4_194_304], dtype=torch.bfloat16), [4_200_000], False),
        (torch.tensor([1e9]), [1_000_000_001], True),
    ],
)
def test_numbers_are_compared_as_they_are_not_in_the_dtype_of_what_was_found(
    found: Any, expected: Any, met: bool
) -> None:
    for name in ("equal", "close") if not met else ("equal",):
        assert (
            checking.run(f"expect.{name}(found, expected)", {"found": found, "expected": expected}, "a")
            .record.parts[0]
            .met
            is met
        )


def test_of_values_that_are_not_known_a_hint_about_values_says_nothing() -> None:
    lab.enable("a100", compute="meta")
    ones = torch.ones(2, device="cuda")
    said = told(lambda: expect.equal([ones], [torch.ones(2)], hint="Ones are needed."))
    lab.disable()
    assert "whose values are not known" in said
    assert "Ones are needed." not in said


@pytest.mark.parametrize(("found", "expected"), [(None, 1), ([1, None], [1, 2]), ((None, 1.0), (None, None))])
def test_none_where_something_is_expected_may_be_a_return_that_is_missing(found: Any, expected: Any) -> None:
    assert (NOTHING in told(lambda: expect.equal(found, expected, hint="Divide."))) == (expected != (None, None))
    assert "Divide." in told(lambda: expect.equal(found, expected, hint="Divide."))
    assert NOTHING not in told(lambda: expect.equal(1, None, hint="Divide."))
    assert NOTHING not in told(lambda: expect.equal(None, 1, hint="Return None only if it never happens."))
