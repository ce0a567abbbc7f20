"""Every module of torch's module database computes on ``cuda:0`` what it computes on the CPU, forward and backward.

Each is built both ways that people build one: on the CPU and moved, or on the device. In training mode, and in
evaluation mode where the database says that it differs. All inputs and parameters must get their gradients.
"""

from __future__ import annotations

import copy
import inspect
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.nn.parameter import is_lazy
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_leaves, tree_map

from tests.conformance.exceptions import MODULE_EXCEPTIONS, NO_BACKWARD_IN_EVALUATION

if TYPE_CHECKING:
    from torch.testing._internal.common_modules import ModuleInfo, ModuleInput

SAMPLES = 6
"""Of a module's inputs: evenly spread, and always the first and the last."""


def name_of(info: ModuleInfo) -> str:
    return str(info.name)


def samples(info: ModuleInfo, training: bool) -> list[ModuleInput]:
    every = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=training)
    if len(every) <= SAMPLES:
        return list(every)
    return [every[round(i * (len(every) - 1) / (SAMPLES - 1))] for i in range(SAMPLES)]


class Copies:
    """Copies of tensors as leaves on a device; a tensor that occurs twice is one tensor there, too."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.made: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in self.made:
            copied = value.detach().clone().to(self.device)
            self.made[id(value)] = value, copied.requires_grad_(value.requires_grad)
        return self.made[id(value)][1]


def tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def assert_equal(actual: torch.Tensor | None, expected: torch.Tensor | None, what: str) -> None:
    assert (actual is None) == (expected is None), what
    if actual is not None and expected is not None:
        assert actual.is_cuda, what
        torch.testing.assert_close(
            actual.detach().cpu(), expected.detach(), rtol=1e-4, atol=1e-5, equal_nan=True, msg=lambda m: f"{what}: {m}"
        )


def materialize(here: torch.nn.Module, copied: torch.nn.Module, inputs: Any) -> None:
    """The first forward of a lazy module on both: each draws with its own generator; both go on with the CPU's."""
    drawn = [name for name, value in here.state_dict().items() if is_lazy(value)]
    with torch.no_grad():
        for module, device in ((here, "cpu"), (copied, "cuda:0")):
            args, kwargs = tree_map(Copies(device), inputs)
            torch.manual_seed(0)
            module(*args, **kwargs)
    theirs, ours = here.state_dict(), copied.state_dict()
    for name in drawn:
        one, other = ours[name], theirs[name]
        assert one.is_cuda, name
        assert (one.shape, one.dtype) == (other.shape, other.dtype), name
        bound = other.abs().max().item()
        assert 0 < one.abs().max().item() < 4 * bound, f"{name} is drawn from another range"
    copied.load_state_dict(theirs)


def compare(here: torch.nn.Module, copied: torch.nn.Module, sample: ModuleInput, refusal: str | None) -> None:
    """One forward and backward on both; a `refusal` is what the device says to backward."""
    inputs = (sample.forward_input.args, sample.forward_input.kwargs)
    if any(is_lazy(p) for p in here.parameters()):
        materialize(here, copied, inputs)
    originals, copies = Copies("cpu"), Copies("cuda:0")
    args, kwargs = tree_map(originals, inputs)
    torch.manual_seed(0)
    expected = tensors(here(*args, **kwargs))
    args, kwargs = tree_map(copies, inputs)
    torch.manual_seed(0)
    actual = tensors(copied(*args, **kwargs))
    for i, (one, other) in enumerate(zip(actual, expected, strict=True)):
        assert_equal(one, other, f"result {i}")
        assert one.requires_grad == other.requires_grad
    if refusal is not None:
        with pytest.raises(RuntimeError, match=refusal):
            actual[0].sum().backward()
        return
    for results in (expected, actual):
        torch.stack(
            [r.abs().sum() for r in results if r.requires_grad] or [torch.zeros((), requires_grad=True)]
        ).sum().backward()
    for (name, one), other in zip(copied.named_parameters(), here.parameters(), strict=True):
        assert_equal(one.grad, other.grad, f"gradient of {name}")
    for (name, one), other in zip(copied.named_buffers(), here.buffers(), strict=True):
        assert_equal(one, other, f"buffer {name}")
    for (_, one), (_, other) in zip(copies.made.values(), originals.made.values(), strict=True):
        assert_equal(one.grad, other.grad, f"gradient of an input of shape {tuple(other.shape)}")


def run(info: ModuleInfo, training: bool) -> None:
    refusal = None if training else NO_BACKWARD_IN_EVALUATION.get(name_of(info))
    for sample in samples(info, training):
        args, kwargs = sample.constructor_input.args, sample.constructor_input.kwargs
        torch.manual_seed(0)
        here = info.module_cls(*args, **kwargs).to(torch.float32).train(training)
        compare(copy.deepcopy(here), copy.deepcopy(here).to("cuda:0"), sample, refusal)
        if "device" in inspect.signature(info.module_cls.__init__).parameters:
            args, kwargs = tree_map(Copies("cuda:0"), (args, kwargs))
            built = info.module_cls(*args, **{**kwargs, "device": "cuda:0"})
            assert all(p.is_cuda for p in built.parameters())
            built.train(training).load_state_dict(here.state_dict())
            compare(here, built, sample, refusal)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("info", module_db, ids=name_of)
def test_agrees_with_cpu(info: ModuleInfo) -> None:
    for training in (True, False) if info.train_and_eval_differ else (True,):
        if MODULE_EXCEPTIONS.get(name_of(info)) is None:
            run(info, training)
        else:
            with pytest.raises((AssertionError, RuntimeError)):
                run(info, training)


def test_the_exceptions_are_real() -> None:
    assert set(MODULE_EXCEPTIONS) <= {name_of(info) for info in module_db}
