"""Optimizers choose and cost on a device what they choose and cost under CUDA."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import nn
from torch.optim.optimizer import _default_to_fused_or_foreach
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn

import fakegpu_lab as lab
from fakegpu_lab.driver.base.cuda_messages import TORCH_VERSION

MIB = 2**20
SIZES = [4 * MIB, 8 * MIB, 4 * MIB, 2 * MIB]
TOTAL = sum(SIZES)

fused_adagrad = pytest.mark.skipif(TORCH_VERSION < (2, 13), reason="Adagrad is not fused on CUDA")


def kernels(name: str, count: int, **options: object) -> int:
    """Kernels of a step over so many tensors."""
    tensors = [torch.ones(3, device="cuda").requires_grad_() for _ in range(count)]
    optimizer = getattr(torch.optim, name)(tensors, **options)
    for _ in range(2):  # the first makes the state
        for tensor in tensors:
            tensor.grad = torch.ones_like(tensor)
        before = lab.snapshot().devices[0].counters.kernels
        optimizer.step()
    return lab.snapshot().devices[0].counters.kernels - before


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD", "RMSprop", "NAdam", "Adadelta"])
def test_foreach_is_the_default_on_a_device(machine, name):
    assert _default_to_fused_or_foreach([torch.ones(1, device="cuda")], differentiable=False) == (False, True)
    assert _default_to_fused_or_foreach([nn.Linear(1, 1).cuda().weight], differentiable=False) == (False, True)
    assert kernels(name, 2) == kernels(name, 10) == kernels(name, 10, foreach=True)
    assert kernels(name, 10, foreach=False) >= 5 * kernels(name, 2, foreach=False) > 0


@pytest.mark.parametrize(
    ("name", "expected"), [("Adam", 2), ("AdamW", 2), pytest.param("Adagrad", 2, marks=fused_adagrad), ("SGD", 1)]
)
def test_fused_is_one_kernel_and_one_for_the_counts(machine, name, expected):
    assert kernels(name, 2, fused=True) == kernels(name, 10, fused=True) == expected


@pytest.mark.parametrize(
    ("name", "options", "state", "temporary"),
    # The temporaries, in bytes over parameters, gradients and state, as a CUDA build of torch takes them.
    [
        ("Adam", {}, 2 * TOTAL, TOTAL),  # foreach_sqrt
        ("Adam", {"foreach": False}, 2 * TOTAL, 20 * MIB),  # the last denominator, a root and a quotient of 8 MiB
        ("Adam", {"fused": True}, 2 * TOTAL + 4 * 512, 0),  # four counts on the device
        ("Adam", {"capturable": True}, 2 * TOTAL + 4 * 512, TOTAL + 8 * 512),
        ("Adam", {"weight_decay": 0.1, "foreach": True}, 2 * TOTAL, TOTAL),  # the decayed gradients die before the root
        ("AdamW", {"weight_decay": 0.1, "foreach": True}, 2 * TOTAL, TOTAL),
        ("SGD", {"momentum": 0.9}, TOTAL, 0),
        ("SGD", {"momentum": 0.9, "weight_decay": 0.1}, TOTAL, TOTAL),
        ("SGD", {"momentum": 0.9, "fused": True}, TOTAL, 0),
        ("RMSprop", {}, TOTAL, TOTAL),
        ("Adagrad", {"foreach": True}, TOTAL, 2 * TOTAL),
        pytest.param("Adagrad", {"fused": True}, TOTAL + 4 * 512, 0, marks=fused_adagrad),
    ],
)
def test_memory_of_a_step(machine, name, options, state, temporary):
    tensors = [torch.zeros(size // 4, device="cuda").requires_grad_() for size in SIZES]
    optimizer = getattr(torch.optim, name)(tensors, **options)
    for _ in range(2):
        for tensor in tensors:
            tensor.grad = torch.ones_like(tensor)
        torch.cuda.reset_peak_memory_stats()
        optimizer.step()
    assert torch.cuda.memory_allocated() == 2 * TOTAL + state
    assert torch.cuda.max_memory_allocated() == 2 * TOTAL + state + temporary


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD", pytest.param("Adagrad", marks=fused_adagrad)])
def test_fused_steps_obey_the_scaler(machine, name):
    """A fused step divides by the scale itself, and is skipped where an inf was found."""
    start = torch.tensor([1.0, 2.0])
    plain = start.clone().requires_grad_()
    scaled = start.cuda().requires_grad_()
    here, there = getattr(torch.optim, name)([plain], lr=0.1), getattr(torch.optim, name)([scaled], lr=0.1, fused=True)
    plain.grad, scaled.grad = torch.tensor([3.0, -4.0]), torch.tensor([3.0, -4.0], device="cuda") * 8
    there.grad_scale, there.found_inf = torch.tensor(8.0, device="cuda"), torch.tensor(1.0, device="cuda")
    there.step()
    assert scaled.tolist() == [1.0, 2.0]
    if "step" in there.state[scaled]:
        assert there.state[scaled]["step"].item() == 0
    there.found_inf = torch.tensor(0.0, device="cuda")
    here.step()
    scaled.grad = torch.tensor([3.0, -4.0], device="cuda") * 8
    there.step()
    torch.testing.assert_close(scaled.detach().cpu(), plain.detach())


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD", pytest.param("Adagrad", marks=fused_adagrad)])
def test_a_fused_step_reads_its_learning_rate_on_the_host_or_on_its_own_card(machine, name):
    optimizer = getattr(torch.optim, name)
    steps = []
    for rate in (0.1, torch.tensor(0.1), torch.tensor([0.1]), torch.tensor(0.1, device="cuda")):
        parameter = torch.nn.Parameter(torch.ones(3, device="cuda"))
        parameter.grad = torch.ones_like(parameter)
        optimizer([parameter], lr=rate, fused=True).step()
        steps.append(parameter.tolist())
    assert steps == [steps[0]] * 4


@pytest.mark.parametrize(("momentum", "blamed"), [(0.0, "lr"), (0.9, "found_inf")])
def test_a_learning_rate_on_another_card_is_refused(machine, momentum, blamed):
    parameter = torch.nn.Parameter(torch.ones(3, device="cuda"))
    parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.SGD([parameter], lr=torch.tensor(0.1, device="cuda:1"), momentum=momentum, fused=True)
    with pytest.raises(RuntimeError, match=f"^{blamed} must be on the same GPU device as the params$"):
        optimizer.step()


@pytest.mark.parametrize("options", [{}, {"fused": True}, {"foreach": False}, {"capturable": True}])
def test_parameters_on_two_devices(machine, options):
    linears = [nn.Linear(2, 2).to(device) for device in ("cpu", "cuda:0", "cuda:1")]
    linears[1].load_state_dict(linears[0].state_dict())
    linears[2].load_state_dict(linears[0].state_dict())
    both = [*linears[1].parameters(), *linears[2].parameters()]
    optimizers = [torch.optim.Adam(linears[0].parameters()), torch.optim.Adam(both, **options)]
    for _ in range(2):
        for linear in linears:
            linear.zero_grad()
            linear(torch.ones(1, 2, device=linear.weight.device)).sum().backward()
        assert nn.utils.clip_grad_norm_(both, 0.1).device == torch.device("cuda:0")
        nn.utils.clip_grad_norm_(linears[0].parameters(), 0.1 / 2**0.5)
        for optimizer in optimizers:
            optimizer.step()
    for linear in linears[1:]:
        torch.testing.assert_close(linear.weight.detach().cpu(), linears[0].weight.detach())
        assert optimizers[1].state[linear.weight]["exp_avg"].device == linear.weight.device


def test_groups_are_named_by_cuda_devices(machine):
    tensors = [torch.ones(1, device="cuda:1"), torch.ones(1), torch.ones(1, device="cuda:1", dtype=torch.half)]
    groups = torch.utils._foreach_utils._group_tensors_by_device_and_dtype([tensors], with_indices=True)
    one, host = torch.device("cuda:1"), torch.device("cpu")
    assert {key: indices for key, (_, indices) in groups.items()} == {
        (one, torch.float32): [0],
        (host, torch.float32): [1],
        (one, torch.half): [2],
    }


def test_refusals_are_cudas(machine):
    on_host = torch.ones(1, requires_grad=True)
    on_host.grad = torch.ones(1)
    devices = r"\['cuda', 'xpu', 'hpu', 'privateuseone', 'xla'\]"
    with pytest.raises(AssertionError, match=rf"must be on supported devices: {devices}\.$"):
        torch.optim.Adam([on_host], capturable=True, foreach=False).step()
    whole = torch.ones(2, dtype=torch.complex64, device="cuda", requires_grad=True)
    whole.grad = torch.ones_like(whole)
    with pytest.raises(RuntimeError, match=r"floating point Tensors of supported devices: .*'privateuseone'\]"):
        torch.optim.Adam([whole], fused=True).step()


def trained(device: str, **options: object) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Linear(3, 2).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, **options)
    step(model, optimizer)
    return model, optimizer


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(4, 3, device=next(model.parameters()).device)).square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize("options", [{}, {"fused": True}])
@pytest.mark.parametrize("map_location", ["cpu", "cuda:1", None])
def test_a_loaded_state_goes_where_the_parameters_are(machine, options, map_location):
    model, optimizer = trained("cuda:0", **options)
    file = io.BytesIO()
    torch.save([model.state_dict(), optimizer.state_dict()], file)
    file.seek(0)
    weights, state = torch.load(file, map_location=map_location)
    resumed = nn.Linear(3, 2).to("cuda:1")
    resumed.load_state_dict(weights)
    again = torch.optim.Adam(resumed.parameters(), lr=0.1, **options)
    again.load_state_dict(state)
    for values in again.state.values():
        assert values["exp_avg"].device == torch.device("cuda:1")
        assert values["step"].device == torch.device("cuda:1" if options or map_location == "cuda:1" else "cpu")
        assert values["step"].item() == 1
    step(model, optimizer)
    step(resumed, again)
    assert torch.equal(resumed.weight.cpu(), model.weight.cpu())


def schedulers(optimizer: torch.optim.Optimizer) -> list[torch.optim.lr_scheduler.LRScheduler]:
    s = torch.optim.lr_scheduler
    return [
        s.OneCycleLR(optimizer, 0.3, total_steps=20),
        s.SequentialLR(optimizer, [s.LinearLR(optimizer), s.CosineAnnealingLR(optimizer, 5)], [3]),
        s.CyclicLR(optimizer, 0.01, 0.1, cycle_momentum=False),
        s.ExponentialLR(optimizer, 0.9),
    ]


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("tensor_lr", [False, True])
def test_learning_rate_schedules(machine, which, tensor_lr):
    histories = []
    for device in ("cpu", "cuda"):
        model, _ = trained(device)
        lr = torch.tensor(0.1, device=device) if tensor_lr else 0.1
        more = {"capturable": True} if tensor_lr and device == "cuda" else {}
        optimizer = torch.optim.Adam(model.parameters(), lr=lr, foreach=False, **more)
        schedule = schedulers(optimizer)[which]
        rates = []
        for _ in range(8):
            step(model, optimizer)
            schedule.step()
            rates.append(float(optimizer.param_groups[0]["lr"]))
        if tensor_lr:
            assert optimizer.param_groups[0]["lr"].device.type == device
        histories.append((rates, model.weight.detach().cpu()))
    assert histories[1][0] == pytest.approx(histories[0][0])
    torch.testing.assert_close(histories[1][1], histories[0][1])


def test_plateau_reads_the_loss(machine):
    model, optimizer = trained("cuda")
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    for _ in range(4):
        schedule.step(model(torch.zeros(1, 3, device="cuda")).sum().detach() * 0 + 1)
    assert optimizer.param_groups[0]["lr"] == 0.05


@pytest.mark.parametrize("multi", [False, True])
def test_averaged_weights(machine, multi):
    results = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(device)
        averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9) if multi else None, use_buffers=multi)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        schedule = SWALR(optimizer, swa_lr=0.05)
        data = [torch.arange(12.0).view(4, 3).to(device) for _ in range(3)]
        for batch in data:
            optimizer.zero_grad()
            model(batch).square().sum().backward()
            optimizer.step()
            averaged.update_parameters(model)
            schedule.step()
        if not multi:
            update_bn(data, averaged)
        assert int(averaged.n_averaged) == 3
        results.append(copy.deepcopy(averaged).cpu().state_dict())
    for name, value in results[0].items():
        torch.testing.assert_close(results[1][name], value)


def test_uninitialised_parameters_say_where_they_will_be(machine):
    made = nn.LazyLinear(3, device="cuda:1")
    for lazy in (made, copy.deepcopy(made), nn.LazyLinear(3).cuda(1)):
        assert lazy.weight.is_cuda
        assert lazy.weight.device == torch.device("cuda:1")
        assert lazy(torch.ones(2, 5, device="cuda:1")).device == lazy.weight.device
    assert not made.cpu().weight.is_cuda
    assert not nn.LazyLinear(3).weight.is_cuda
