"""Every optimizer of torch's database trains on ``cuda:0`` as on the CPU.

Each configuration that the database lists for CUDA, as it is and as foreach, fused and differentiable, takes ten
steps; the CPU takes them with the plain loop. Where the state lives is CUDA's choice too: the step counts stay on the
host unless the optimizer is fused or capturable.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing._internal.common_optimizers import (
    OptimizerInfo,
    OptimizerInput,
    _get_optim_inputs_including_global_cliquey_kwargs,
    optim_db,
)
from torch.utils._pytree import tree_map

from fakegpu_lab.driver.base.cuda_messages import TORCH_VERSION
from tests.conformance.exceptions import OPTIMIZER_EXCEPTIONS

STEPS = 10
SHAPES = [(3, 4), (5,), (), (2, 3, 2)]
IMPLEMENTATIONS = ("foreach", "fused", "capturable")
ON_HOST = {"ASGD": set(), "NAdam": {"step", "mu_product"}, "LBFGS": {"t"}}
"""State tensors that torch makes on the host unless told to be capturable; of all others ``step``."""


def name_of(info: OptimizerInfo) -> str:
    return str(info.optim_cls.__name__)


def configurations(info: OptimizerInfo) -> list[OptimizerInput]:
    return _get_optim_inputs_including_global_cliquey_kwargs("cuda:0", torch.float32, info)


def moved(value: Any, device: str) -> Any:
    return tree_map(lambda v: v.to(device) if isinstance(v, torch.Tensor) and v.is_cuda else v, value)


def parameters(info: OptimizerInfo, device: str) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = {"Muon": [(4, 3), (3, 5)], "LBFGS": [(3, 2)]}.get(name_of(info), SHAPES)
    return [torch.randn(shape, generator=generator).to(device).requires_grad_() for shape in shapes]


def train(
    info: OptimizerInfo, kwargs: dict[str, Any], device: str, steps: int = STEPS
) -> tuple[list[torch.Tensor], torch.optim.Optimizer, list[torch.Tensor]]:
    """Steps towards the same targets: the tensors they left, the optimizer, and the leaves that it began with.

    A differentiable optimizer works on clones of the leaves, through which gradients reach the beginning.
    """
    leaves = parameters(info, device)
    differentiable = kwargs.get("differentiable", False)
    tensors = [leaf.clone() for leaf in leaves] if differentiable else leaves
    optimizer = info.optim_cls(tensors, **kwargs)
    generator = torch.Generator().manual_seed(9)
    targets = [torch.randn(p.shape, generator=generator).to(device) for p in tensors]

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        distances = [p - target for p, target in zip(tensors, targets, strict=True)]
        loss = torch.stack([(d * d).sum() for d in distances]).sum()
        loss.backward()
        return loss

    if info.step_requires_closure:  # each of LBFGS's steps is up to twenty
        for _ in range(3):
            optimizer.step(closure)
        return tensors, optimizer, leaves
    for _ in range(steps):
        if differentiable:
            for p, target in zip(tensors, targets, strict=True):
                p.grad = (p - target).detach()
        else:
            closure()
        if info.only_supports_sparse_grads:
            for p in tensors:
                p.grad = p.grad.to_sparse()
        optimizer.step()
    return tensors, optimizer, leaves


def gradients(info: OptimizerInfo, kwargs: dict[str, Any], device: str) -> list[torch.Tensor | None] | str:
    """What backward through one differentiable step gives the leaves, or the sentence that refuses it."""
    tensors, _, leaves = train(info, kwargs, device, steps=1)
    try:
        torch.stack([(p * p).sum() for p in tensors]).sum().backward()
    except RuntimeError as error:  # some keep no gradients through their own writes, on any device
        return str(error).partition(":")[0]
    return [leaf.grad for leaf in leaves]


def assert_equal(actual: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    torch.testing.assert_close(
        actual.detach().cpu(), expected.detach(), rtol=1e-4, atol=1e-5, equal_nan=True, msg=lambda m: f"{what}: {m}"
    )


def check(info: OptimizerInfo, configuration: OptimizerInput) -> None:
    there, what = configuration.kwargs, str(configuration)
    here = {name: moved(value, "cpu") for name, value in there.items() if name not in IMPLEMENTATIONS}
    expected, reference, _ = train(info, here, "cpu")
    actual, optimizer, _ = train(info, there, "cuda:0")
    for one, other in zip(actual, expected, strict=True):
        assert one.is_cuda
        assert_equal(one, other, what)
    on_device = bool(there.get("fused") or there.get("capturable"))
    for state, other in zip(optimizer.state.values(), reference.state.values(), strict=True):
        assert state.keys() == other.keys()
        for name, value in state.items():
            if isinstance(value, torch.Tensor):
                kept_by_host = name in ON_HOST.get(name_of(info), {"step"})
                assert value.is_cuda == (on_device or not kept_by_host), f"{name} of {what}"
                assert_equal(value, other[name], f"{name} of {what}")
    if there.get("differentiable") and not there.get("capturable"):  # else the two take different roads
        results = [gradients(info, kwargs, device) for kwargs, device in ((there, "cuda:0"), (here, "cpu"))]
        if isinstance(results[1], str):
            assert results[0] == results[1]
            return
        for one, other in zip(*results, strict=True):
            assert_equal(one, other, f"gradient through {what}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("info", optim_db, ids=name_of)
def test_trains_as_on_the_cpu(info: OptimizerInfo) -> None:
    inputs = configurations(info)
    assert inputs
    for configuration in inputs:
        if OPTIMIZER_EXCEPTIONS.get(name_of(info)) is None:
            check(info, configuration)
        else:
            with pytest.raises((AssertionError, RuntimeError)):
                check(info, configuration)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("info", optim_db, ids=name_of)
def test_refuses_what_cuda_refuses(info: OptimizerInfo) -> None:
    """The database's own wrong constructions, with their sentences."""
    for wrong in info.optim_error_inputs_func("cuda:0", torch.float32):
        inputs = wrong.optimizer_error_input
        if str(wrong.error_on) != "OptimizerErrorEnum.CONSTRUCTION_ERROR":
            continue
        with pytest.raises(wrong.error_type, match=wrong.error_regex):
            info.optim_cls(inputs.params, **inputs.kwargs)


def test_fused_and_foreach_are_all_in_the_database() -> None:
    """The comparison above really covers them: as many optimizers as torch has of each kind."""
    kinds = dict.fromkeys(("foreach", "fused", "differentiable", "capturable"), 0)
    for info in optim_db:
        for kind in kinds:
            kinds[kind] += any(configuration.kwargs.get(kind) for configuration in configurations(info))
    assert kinds["foreach"] >= 12
    assert kinds["fused"] == (4 if TORCH_VERSION >= (2, 13) else 3)  # Adagrad came later
    assert kinds["differentiable"] >= 11
    assert kinds["capturable"] >= 8


def test_the_exceptions_are_real() -> None:
    assert set(OPTIMIZER_EXCEPTIONS) <= {name_of(info) for info in optim_db}
