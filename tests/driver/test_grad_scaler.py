"""`GradScaler` on a device: it finds an inf, skips the step, halves its scale, and grows again, as on CUDA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from fakegpu_lab.driver.base.cuda_messages import TORCH_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.hardware.machine import Machine

pytestmark = pytest.mark.usefixtures("machine")

INF, NAN = float("inf"), float("nan")


def parameter(device: str = "cuda") -> nn.Parameter:
    return nn.Parameter(torch.ones(4, device=device))


def step(
    scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer, weight: torch.Tensor, poison: float | None = None
) -> None:
    optimizer.zero_grad()
    scaler.scale((weight * 2).sum()).backward()
    if poison is not None:
        assert weight.grad is not None
        weight.grad[1] = poison
    scaler.step(optimizer)
    scaler.update()


def test_it_starts_enabled_at_65536() -> None:
    scaler = torch.amp.GradScaler("cuda")
    assert scaler.is_enabled()
    assert scaler.get_scale() == 65536.0
    assert scaler.state_dict() == {
        "scale": 65536.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2000,
        "_growth_tracker": 0,
    }
    scaled = scaler.scale(torch.ones(2, device="cuda"))
    assert scaled.tolist() == [65536.0] * 2
    assert scaled.device == torch.device("cuda", 0)


OPTIMIZERS: dict[str, Callable[[list[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd fused": lambda p: torch.optim.SGD(p, lr=0.1, fused=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1),
    "adam one by one": lambda p: torch.optim.Adam(p, lr=0.1, foreach=False),
    "adam fused": lambda p: torch.optim.Adam(p, lr=0.1, fused=True),
    "adamw fused": lambda p: torch.optim.AdamW(p, lr=0.1, fused=True),
}
if TORCH_VERSION >= (2, 13):
    OPTIMIZERS["adagrad fused"] = lambda p: torch.optim.Adagrad(p, lr=0.1, fused=True)


@pytest.mark.parametrize("poison", [INF, -INF, NAN])
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_an_inf_halves_the_scale_and_skips_the_step(kind: str, poison: float) -> None:
    weight = parameter()
    optimizer = OPTIMIZERS[kind]([weight])
    scaler = torch.amp.GradScaler("cuda", growth_interval=2)
    step(scaler, optimizer, weight)
    before = weight.detach().clone()
    moments = {k: v.clone() for k, v in optimizer.state[weight].items() if isinstance(v, torch.Tensor)}

    step(scaler, optimizer, weight, poison)
    assert scaler.get_scale() == 32768.0
    assert torch.equal(weight, before)
    for name, value in moments.items():
        assert torch.equal(optimizer.state[weight][name], value), name

    step(scaler, optimizer, weight)
    assert scaler.get_scale() == 32768.0
    assert not torch.equal(weight, before)
    step(scaler, optimizer, weight)
    assert scaler.get_scale() == 65536.0


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_steps_are_those_without_a_scaler(kind: str) -> None:
    plain, scaled = parameter(), parameter()
    optimizer = OPTIMIZERS[kind]([plain])
    scaler, other = torch.amp.GradScaler("cuda"), OPTIMIZERS[kind]([scaled])
    for _ in range(3):
        optimizer.zero_grad()
        (plain * 2).sum().backward()
        optimizer.step()
        step(scaler, other, scaled)
    torch.testing.assert_close(scaled, plain)


def test_growth_and_its_tracker() -> None:
    weight = parameter()
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cuda", init_scale=4.0, growth_factor=3.0, backoff_factor=0.25, growth_interval=3)
    scales = []
    for poison in (None, None, None, None, INF, None, None, None):
        step(scaler, optimizer, weight, poison)
        scales.append((scaler.get_scale(), scaler._get_growth_tracker()))
    assert scales == [(4, 1), (4, 2), (12, 0), (12, 1), (3, 0), (3, 1), (3, 2), (9, 0)]


def test_the_state_travels() -> None:
    weight = parameter()
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    step(scaler, optimizer, weight, INF)
    step(scaler, optimizer, weight)
    other = torch.amp.GradScaler("cuda", init_scale=2.0)
    other.load_state_dict(scaler.state_dict())
    assert (other.get_scale(), other.state_dict()["_growth_tracker"]) == (32768.0, 1)


def test_several_optimizers_on_several_devices_share_a_scale() -> None:
    weights = [parameter("cuda:0"), parameter("cuda:1")]
    optimizers = [torch.optim.SGD([weight], lr=0.25) for weight in weights]
    scaler = torch.amp.GradScaler("cuda")
    losses = [weight.sum() for weight in weights]
    for loss in losses:
        scaler.scale(loss).backward()
    weights[1].grad[0] = INF  # type: ignore[index]
    for weight, optimizer in zip(weights, optimizers, strict=True):
        scaler.unscale_(optimizer)
        found = scaler._found_inf_per_device(optimizer)
        assert list(found) == [weight.device]
        assert found[weight.device].device == weight.device
        scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 32768.0
    assert weights[0].tolist() == [0.75] * 4
    assert weights[1].tolist() == [1.0] * 4


def test_one_optimizer_over_two_devices() -> None:
    weights = [parameter("cuda:0"), parameter("cuda:1")]
    optimizer = torch.optim.SGD(weights, lr=0.25)
    scaler = torch.amp.GradScaler("cuda")
    for weight in weights:
        scaler.scale(weight.sum()).backward()
    scaler.unscale_(optimizer)
    assert {str(device) for device in scaler._found_inf_per_device(optimizer)} == {"cuda:0", "cuda:1"}
    assert [weight.grad.tolist() for weight in weights] == [[1.0] * 4] * 2  # type: ignore[union-attr]


def test_the_scalers_ops_are_one_kernel_each(machine: Machine) -> None:
    gradients = [torch.full((3,), 8.0, device="cuda"), torch.full((2, 2), 4.0, device="cuda")]
    found = torch.zeros(1, device="cuda")
    inverse = torch.full((1,), 0.25, device="cuda")
    before = machine.devices[0].ledger.kernels
    torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, inverse)
    assert machine.devices[0].ledger.kernels == before + 1
    assert [g.unique().tolist() for g in gradients] == [[2.0], [1.0]]
    assert found.item() == 0
    gradients[0][0] = INF
    torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, inverse)
    assert found.item() == 1

    scale, tracker = torch.full((1,), 8.0, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")
    before = machine.devices[0].ledger.kernels
    torch._amp_update_scale_(scale, tracker, found, 2.0, 0.5, 10)
    assert machine.devices[0].ledger.kernels == before + 1
    assert (scale.item(), tracker.item()) == (4.0, 0)


def test_clipping_between_unscale_and_step() -> None:
    weight = parameter()
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("cuda")
    scaler.scale((weight * 3).sum()).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_([weight], 1.0)
    assert norm.item() == 6.0
    scaler.step(optimizer)
    scaler.update()
    torch.testing.assert_close(weight.detach(), torch.full((4,), 0.5, device="cuda"))


def test_sparse_gradients() -> None:
    embedding = nn.Embedding(5, 3, sparse=True).cuda()
    optimizer = torch.optim.SGD(embedding.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    before = embedding.weight.detach().clone()
    scaler.scale(embedding(torch.tensor([1, 1, 2], device="cuda")).square().sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    expected = before.clone()
    expected[1] -= 0.1 * 4 * before[1]
    expected[2] -= 0.1 * 2 * before[2]
    torch.testing.assert_close(embedding.weight.detach(), expected)


def misuse_twice(scaler: Any, optimizer: Any) -> None:
    scaler.unscale_(optimizer)
    scaler.unscale_(optimizer)


def misuse_after_step(scaler: Any, optimizer: Any) -> None:
    scaler.step(optimizer)
    scaler.unscale_(optimizer)


def misuse_two_steps(scaler: Any, optimizer: Any) -> None:
    scaler.step(optimizer)
    scaler.step(optimizer)


def misuse_update(scaler: Any, optimizer: Any) -> None:
    scaler.update()


@pytest.mark.parametrize(
    ("misuse", "error", "sentence"),
    [
        (
            misuse_twice,
            RuntimeError,
            "unscale_() has already been called on this optimizer since the last update().",
        ),
        (misuse_after_step, RuntimeError, "unscale_() is being called after step()."),
        (misuse_two_steps, RuntimeError, "step() has already been called since the last update()."),
        (misuse_update, AssertionError, "No inf checks were recorded prior to update."),
    ],
)
def test_misuse(misuse: Callable[[Any, Any], None], error: type[Exception], sentence: str) -> None:
    weight = parameter()
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    scaler.scale(weight.sum()).backward()
    with pytest.raises(error) as raised:
        misuse(scaler, optimizer)
    assert str(raised.value) == sentence


def test_half_gradients_are_refused() -> None:
    weight = nn.Parameter(torch.ones(4, device="cuda", dtype=torch.float16))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    scaler.scale(weight.sum()).backward()
    with pytest.raises(ValueError, match=r"^Attempting to unscale FP16 gradients\.$"):
        scaler.unscale_(optimizer)


def test_the_deprecated_class() -> None:
    with pytest.warns(FutureWarning, match=r"`torch.cuda.amp.GradScaler\(args...\)` is deprecated"):
        scaler = torch.cuda.amp.GradScaler()
    assert scaler.is_enabled()
    weight = parameter()
    step(scaler, torch.optim.SGD([weight], lr=0.1), weight, INF)
    assert scaler.get_scale() == 32768.0
