"""Functions that make tensors: ``device=`` with ``out=``, default devices, and what can be done with the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

FACTORIES: dict[str, Callable[..., torch.Tensor]] = {
    "arange": lambda **options: torch.arange(3, **options),
    "empty": lambda **options: torch.empty(3, **options),
    "eye": lambda **options: torch.eye(3, **options),
    "fftfreq": lambda **options: torch.fft.fftfreq(3, **options),
    "full": lambda **options: torch.full((3,), 2.0, **options),
    "linspace": lambda **options: torch.linspace(0, 1, 3, **options),
    "logspace": lambda **options: torch.logspace(0, 1, 3, **options),
    "normal": lambda **options: torch.normal(0.0, 1.0, (3,), **options),
    "ones": lambda **options: torch.ones(3, **options),
    "rand": lambda **options: torch.rand(3, **options),
    "randint": lambda **options: torch.randint(5, (3,), **options),
    "randn": lambda **options: torch.randn(3, **options),
    "randperm": lambda **options: torch.randperm(3, **options),
    "range": lambda **options: torch.range(0, 2, **options),
    "rfftfreq": lambda **options: torch.fft.rfftfreq(3, **options),
    "zeros": lambda **options: torch.zeros(3, **options),
}
pytestmark = pytest.mark.filterwarnings("ignore:torch.range is deprecated")


@pytest.mark.parametrize("make", FACTORIES.values(), ids=FACTORIES)
@pytest.mark.parametrize("where", ["cuda", "cuda:1", torch.device("cuda"), 0], ids=str)
def test_a_device_of_the_same_type_may_be_named_beside_out(machine: Any, make: Any, where: Any) -> None:
    out = torch.empty(0, device="cuda:0")
    made = make(device=where, out=out)
    assert made is out
    assert out.device == torch.device("cuda:0")  # the index that was named does not matter
    assert out.numel()


@pytest.mark.parametrize("make", FACTORIES.values(), ids=FACTORIES)
def test_another_type_of_device_than_out_is_refused_in_cudas_words(machine: Any, make: Any) -> None:
    sentence = "device type {} does not match device type of out parameter ({})"
    for where, out in (("cpu", "cuda"), ("cuda", "cpu"), (0, "cpu")):
        with pytest.raises(RuntimeError) as raised:
            make(device=where, out=torch.empty(0, device=out))
        assert str(raised.value) == sentence.format("cuda" if where == 0 else where, out)


@pytest.mark.parametrize("context", ["cuda", "cuda:1"])
def test_a_default_device_fits_an_out_on_a_device(machine: Any, context: str) -> None:
    out = torch.empty(3, device="cuda:0")
    with torch.device(context):
        assert torch.ones(3, out=out) is out
        assert torch.sparse_coo_tensor([[0], [1]], [1.0], (2, 2), check_invariants=False).is_cuda
    assert out.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("where", ["cuda:1", torch.device("cuda", 1), 1])
def test_range(machine: Any, where: Any) -> None:
    made = torch.range(0, 2, device=where)
    assert made.device == torch.device("cuda:1")
    assert made.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(4, device="cuda"),
        lambda: torch.rand(4, device="cuda", dtype=torch.float16),
        lambda: torch.randint(5, (4,), device="cuda"),
        lambda: torch.randperm(4, device="cuda"),
        lambda: torch.empty(4, device="cuda").normal_(),
        lambda: torch.empty(4, device="cuda").bernoulli_(0.5),
        lambda: torch.bernoulli(torch.ones(4, device="cuda")),
        lambda: torch.nn.functional.dropout(torch.ones(4, device="cuda")),
    ],
)
def test_random_numbers_can_be_resized(machine: Any, make: Callable[[], torch.Tensor]) -> None:
    numbers = make()
    before = numbers.tolist()
    assert numbers.resize_(5).shape == (5,)
    assert numbers[:4].tolist() == before
    storage = make().untyped_storage()
    storage.resize_(0)
    assert storage.resize_(400).nbytes() == 400
