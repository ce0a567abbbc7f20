"""What a check sees of a value is plain data, and the same after it was sent."""

from __future__ import annotations

import argparse
import functools
import json
import math
from collections import Counter, OrderedDict
from enum import IntEnum
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fakegpu_lab as lab
from fakegpu_lab.course.checks import checking
from fakegpu_lab.course.expect.comparable import asked, comparable, genuine
from fakegpu_lab.course.expect.describe import value as described
from fakegpu_lab.course.expect.outcome import RunningCheck, begin, end
from fakegpu_lab.course.expect.plain_data import codec
from fakegpu_lab.course.expect.plain_data.codec import decode, encode
from fakegpu_lab.course.expect.plain_data.conversion import Opaque, SeenGroup, SeenTensor, named, places, seen


def sent(thing: Any) -> Any:
    return decode(json.loads(json.dumps(encode(seen(thing)))))


PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
)


@given(st.recursive(PLAIN, lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner)))
def test_plain_values_arrive_as_they_were(thing: Any) -> None:
    assert sent(thing) == thing
    assert type(sent(thing)) is type(thing)


def test_odd_numbers_arrive() -> None:
    assert math.isnan(sent(float("nan")))
    assert sent([math.inf, -math.inf, 2**80, -(2**70), ...]) == [math.inf, -math.inf, 2**80, -(2**70), ...]
    assert sent({1, 2, (3, "x")}) == {1, 2, (3, "x")}


DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3)])
def test_tensors_arrive_bit_for_bit(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = (torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape) - 1).to(dtype)
    got = sent(tensor)
    assert (got.shape, got.dtype, got.device, got.requires_grad, got.grad) == (shape, str(dtype), "cpu", False, "")
    assert got.values is not None
    assert torch.equal(got.values, tensor)
    assert got.values.dtype == dtype


def test_of_a_tensor_where_it_is_and_its_gradient(gpus: None) -> None:
    weight = torch.ones(2, device="cuda:1", requires_grad=True)
    (weight * 2).sum().backward()
    got = sent(weight)
    assert (got.device, got.requires_grad, got.grad) == ("cuda:1", True, "cuda:1")
    assert places(weight).values is None
    assert sent(torch.ones(2, 3).T[1:]).values.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_what_a_subclass_says_of_itself_is_not_believed() -> None:
    class Liar(list):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            return iter([9])

        def __len__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    class Text(str):
        __slots__ = ()

    class Pair(NamedTuple):
        x: int
        y: int

    assert seen(Liar([1, 2])) == [1, 2]
    assert seen(Pair(1, 2)) == (1, 2)
    assert isinstance(seen(Text("x")), Opaque)
    assert seen(Text("x")).own
    assert seen(OrderedDict(a=1)) == {"a": 1}
    assert seen(Counter("aab")) == {"a": 2, "b": 1}
    assert seen(np.float64(2.5)) == 2.5
    assert type(seen(np.int32(2))) is int
    assert type(seen(np.bool_(True))) is bool
    assert seen(range(3)) == [0, 1, 2]

    class Number(IntEnum):
        ONE = 1

    assert isinstance(seen(Number.ONE), Opaque)


def test_a_module_s_tensors_are_read_from_its_tables() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(2, 3)
            self.register_buffer("scale", torch.ones(1))
            self.again = self.inner

        def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
            return iter(())

    got = sent(Model())
    assert isinstance(got, SeenGroup)
    assert (got.kind, got.name) == ("module", "Model")
    assert [name for name, _ in got.tensors] == ["inner.weight", "inner.bias", "scale"]


def test_arrays_types_and_other_objects() -> None:
    array = sent(np.ones((2, 3), dtype="float32"))
    assert isinstance(array, SeenTensor)
    assert (array.shape, array.is_tensor) == ((2, 3), False)
    assert sent(torch.float32) == sent(torch.float32) != sent(torch.float64)
    assert sent(torch.device("cuda:0")) == sent(torch.device("cuda", 0)) != sent(torch.device("cpu"))
    assert named(np.ndarray).names[0] == "numpy.ndarray"
    assert named(type("Mine", (), {})).names[0].endswith("*")
    assert named(int).names == ("builtins.int", "builtins.object")
    assert named(bool).name == "bool"
    with pytest.raises(TypeError, match="not plain data"):
        encode(object())


@pytest.mark.parametrize(
    "data",
    [
        [],
        ["unknown", 1],
        ["int", "x"],
        ["tensor"],
        ["tensor", [2], "torch.float32", "cpu", False, "", True, "AA=="],
        ["tensor", [1], "torch.os", "cpu", False, "", True, "AAAA"],
        {"a": 1},
        ["trace", {}, [], 1.0],
        ["list", 3],
        [["list", []]],
    ],
)
def test_anything_else_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        decode(data)


def test_words_for_what_was_seen() -> None:
    assert described(seen([1, "a", (2.5,), {"k": None}])) == "[1, 'a', (2.5,), {'k': None}]"
    assert described(seen(torch.ones(2))) == "[1.0, 1.0] (a tensor of shape (2,), float32, on cpu)"
    assert described(seen(torch.ones(9))) == "a tensor of shape (9,), float32, on cpu"
    assert described(seen(torch.float32)) == "torch.float32"
    assert described(seen("x" * 200)).endswith("…")
    assert len(described(seen("x" * 200))) == 120


def test_what_is_compared_must_not_answer_for_itself(gpus: None) -> None:
    class Own:
        def __lt__(self, other: object) -> bool:
            return True

    class Plain:
        pass

    layer = torch.nn.Linear(1, 1).cuda()
    for fine in (layer.weight, layer, torch.ones(1).cuda(), torch.nn.Linear(1, 1).weight):
        assert comparable(fine) is fine
    for fine in (1, "a", [1], torch.ones(1), np.ones(1), Plain(), None, 2.5, {"a": 1}):
        assert comparable(fine) is fine
    with pytest.raises(TypeError, match="the class Own defines its own __lt__"):
        comparable(Own())


def test_a_check_does_not_compute_with_what_says_itself_what_it_adds_up_to() -> None:
    import abc

    with pytest.raises(TypeError, match="the class Any defines its own __sub__"):
        genuine(abc.ABCMeta("Any", (float,), {"__sub__": lambda self, other: 0.0})(1.0))
    with pytest.raises(TypeError, match="the class Any defines its own __rtruediv__"):
        genuine(type("Any", (), {"__rtruediv__": lambda self, other: 0.0})())
    average = torch.distributed.ReduceOp.AVG  # an enumeration of C++, whose class has an __index__
    for plain in (1, 2.5, np.float32(3), [1], type("Mine", (), {"size": 3})(), torch.ones(1), average):
        assert genuine(plain) is plain


def test_nor_must_an_item_of_it_or_an_object_of_a_library() -> None:
    class Same:
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = object.__hash__

    for lying in ([Same()], (1, [Same()]), {"a": Same()}, {Same()}):
        with pytest.raises(TypeError, match="the class Same defines its own __eq__"):
            comparable(lying)
    with pytest.raises(TypeError, match="KeyWrapper"):
        comparable(functools.cmp_to_key(lambda one, other: 0)(3))
    with pytest.raises(TypeError, match="_ANY"):
        comparable(mock.ANY)
    for fine in ([1, [2.0]], {"a": (1, None)}, Fraction(1, 2), Path("x"), torch.Size([1]), torch.float32):
        assert comparable(fine) is fine
    loop: list[Any] = []
    loop.append(loop)
    assert comparable(loop) is loop


def test_a_check_does_not_compute_with_a_tensor_that_answers_for_itself(gpus: None) -> None:
    class Same(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return True

    lying = torch.zeros(2).as_subclass(Same)
    with pytest.raises(TypeError, match="the class Same defines its own __torch_function__"):
        genuine(lying)
    for fine in (torch.ones(2), torch.ones(2).cuda(), torch.nn.Linear(1, 1).weight, 3, None, object()):
        assert genuine(fine) is fine
    for text in ("torch.equal(x, y)", "x.equal(y)", "(x - y).abs().max() < 1", "x[0] == 1", "all(x == y)", "-x == y"):
        (part,) = checking.run(
            f"expect.true({text}, 'they are equal')", {"torch": torch, "x": lying, "y": torch.ones(2)}, "a"
        ).record.parts
        assert not part.met, text
        assert "defines its own __torch_function__" in part.found


def test_a_tensor_with_a_method_of_its_own_is_not_compared(gpus: None) -> None:
    for lying in (torch.zeros(2), torch.zeros(2).cuda(), torch.nn.Parameter(torch.zeros(2))):
        lying.note = lambda: 3  # type: ignore[union-attr]
        assert comparable(lying) is lying
        lying.detach = lambda: torch.ones(2)  # type: ignore[union-attr]
        with pytest.raises(TypeError, match="this tensor has a method detach of its own"):
            genuine(lying)
        assert isinstance(seen(lying), Opaque)
    assert sent(torch.nn.ParameterList([lying])).tensors[0][1].values.tolist() == [0.0, 0.0], "of a Parameter"


def test_a_module_with_a_method_of_its_own_is_noted() -> None:
    check, layer = RunningCheck(None, ""), torch.nn.Linear(1, 1)
    layer.parameters = list  # type: ignore[method-assign]
    begin(check)
    try:
        asked(layer, "weight"), asked(layer, "parameters")
    finally:
        end(check)
    assert check.answered == [(torch.nn.Linear, "parameters")]


def test_a_tensor_that_is_too_large_is_sent_without_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "LARGEST", 16)
    assert sent(torch.ones(4)).values.tolist() == [1.0] * 4
    got = sent(torch.ones(5))
    assert (got.values, got.shape) == (None, (5,))


def test_the_records_of_a_recording_are_read_of_nothing_else(gpus: None) -> None:
    class Own(list[int]):
        kernels = ()

    with lab.record() as real:
        torch.ones(2, device="cuda")
    assert asked(real, "kernels") is real
    assert asked(lab.expect, "kernels") is lab.expect
    for made in (Own(), argparse.Namespace(kernels=[]), torch.nn.Module(), [], lambda: None):
        with pytest.raises(TypeError, match=f"reads `kernels` of a recording.*this is a {type(made).__name__}"):
            asked(made, "kernels")
        assert asked(made, "anything else") is made


def test_what_an_own_object_says_is_noted(gpus: None) -> None:
    class Net(torch.nn.Module):
        width = 4

        def __init__(self) -> None:
            super().__init__()
            self.layer, self.seen, self.weight = torch.nn.Linear(1, 1), [1], torch.ones(1)

        def size(self) -> int:
            return 3

    class Deep(torch.nn.Linear):
        depth = 3

    check = RunningCheck(None, "")
    begin(check)
    try:
        net, mock_ = Net(), mock.Mock(a=1)
        for name in ("width", "size", "seen", "layer", "weight", "parameters", "training", "nothing"):
            asked(net, name)
        for one in (torch.ones(1), [1], "a", lab.machine(), np.ones(1)):
            asked(one, "shape")
        stream, sparse = torch.cuda.Stream(), torch.eye(2, device="cuda").to_sparse()
        for one in (
            torch.ones(1).cuda(),
            net.layer.cuda().weight,
            sparse,
            stream,
            torch.cuda.Event(),
            torch.device("cuda"),
        ):
            for name in dir(one):
                asked(one, name)
        asked(mock_, "a")
        for one, name in ((torch.distributed.ReduceOp, "AVG"), (torch.Tensor, "shape"), (torch.nn.Linear, "forward")):
            asked(one, name)
        for name in ("depth", "forward", "__name__"):
            asked(Deep, name)
    finally:
        end(check)
    own = Net.__qualname__
    of_objects = {(own, "width"), (own, "size"), (own, "seen"), (own, "training"), ("Mock", "a")}
    answered = {(cls.__qualname__, name) for cls, name in check.answered}
    assert answered == of_objects | {(Deep.__qualname__, "depth")}
