"""Moving modules and parameters between host and devices, as on CUDA: the objects stay."""

from __future__ import annotations

import copy
import weakref

import pytest
import torch
from torch import nn

import fakegpu_lab as lab

WHERE = ["cuda", "cpu", "cuda:1", "cuda:0", "cpu"]


def step(model: nn.Module, optimizer: torch.optim.Optimizer, device: str, features: int = 4) -> torch.Tensor:
    optimizer.zero_grad()
    loss = model(torch.randn(5, features, device=device))[0].pow(2).sum()
    loss.backward()
    optimizer.step()
    return loss


def test_parameters_keep_their_identity(machine):
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    parameters = list(model.parameters())
    references = [weakref.ref(parameter) for parameter in parameters]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    losses = []
    for device in WHERE:
        model.to(device)
        before = parameters[0].detach().cpu().clone()
        losses.append(step(model, optimizer, device))  # the graph stays alive over the next move
        assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
        assert all(reference() is parameter for reference, parameter in zip(references, parameters, strict=True))
        assert not torch.equal(before, parameters[0].detach().cpu())
        for tensor in [*parameters, *model.buffers(), *(p.grad for p in parameters)]:
            assert tensor.device == torch.empty(0, device=device).device
        for parameter in parameters:
            assert isinstance(parameter, nn.Parameter)
            assert parameter.is_leaf
            assert parameter.requires_grad
    assert type(parameters[0]) is nn.Parameter
    assert type(parameters[0].grad) is torch.Tensor


def test_values_survive_the_way_there_and_back(machine):
    layer = nn.Linear(4, 3)
    values = layer.weight.detach().clone()
    layer.cuda().to("cuda:1").cpu()
    assert torch.equal(layer.weight, values)


def test_a_moved_parameter_leaves_no_memory_behind(machine):
    layer = nn.Linear(1024, 1024, bias=False)
    for _ in range(3):
        layer.cuda()
        assert torch.cuda.memory_allocated() == 4 << 20
        layer.cpu()
        assert torch.cuda.memory_allocated() == 0


def test_tied_weights_stay_tied(machine):
    model = nn.ModuleDict({"embed": nn.Embedding(5, 3), "head": nn.Linear(3, 5, bias=False)})
    model["head"].weight = model["embed"].weight
    for device in WHERE:
        model.to(device)
        assert model["head"].weight is model["embed"].weight
    twin = copy.deepcopy(model.cuda())
    assert twin["head"].weight is twin["embed"].weight
    assert torch.cuda.memory_allocated() == 2 * 512


def test_dtypes(machine):
    layer = nn.Linear(2, 2)
    weight = layer.weight
    layer.to("cuda", torch.float16)
    assert (weight.device.type, weight.dtype) == ("cuda", torch.float16)
    layer.float()
    assert weight.dtype is torch.float32
    layer.half().cpu()
    assert (weight.device.type, weight.dtype) == ("cpu", torch.float16)
    layer.to(device="cuda:1", dtype=torch.bfloat16)
    assert (weight.device, weight.dtype) == (torch.device("cuda:1"), torch.bfloat16)
    layer.to(torch.float64)
    assert weight.dtype is torch.float64
    assert layer.weight is weight
    assert weight.requires_grad


def test_hooks_and_attributes_stay(machine):
    layer = nn.Linear(2, 1)
    layer.weight.note = "mine"
    calls = []
    layer.weight.register_hook(lambda grad: calls.append(("gradient", str(grad.device))))
    layer.weight.register_post_accumulate_grad_hook(lambda p: calls.append(("accumulated", str(p.grad.device))))
    for device in ("cuda", "cpu", "cuda:1"):
        layer.to(device)
        assert layer.weight.note == "mine"
        layer(torch.ones(1, 2, device=device)).sum().backward()
    assert calls == [(what, d) for d in ("cuda:0", "cpu", "cuda:1") for what in ("gradient", "accumulated")]
    assert layer.cpu().weight.__dict__ == {"note": "mine"}


class Mine(nn.Parameter):
    pass


def test_a_class_of_parameters_comes_back(machine):
    layer = nn.Linear(2, 2)
    layer.weight = Mine(torch.ones(2, 2))
    layer.cuda().half().to("cuda:1").cpu()
    assert type(layer.weight) is Mine
    assert type(copy.deepcopy(layer.cuda()).cpu().weight) is Mine


def test_moving_with_a_live_graph(machine):
    layer = nn.Linear(2, 1)
    on_host = layer(torch.ones(1, 2)).sum()
    layer.cuda()
    on_host.backward()
    on_device = layer(torch.ones(1, 2, device="cuda")).sum()
    layer.cpu()
    on_device.backward()
    assert layer.weight.grad is None or layer.weight.grad.device == layer.weight.device


def test_gradients_keep_their_identity(machine):
    layer = nn.Linear(2, 1)
    layer(torch.ones(1, 2)).sum().backward()
    gradient = layer.weight.grad
    layer.cuda()
    assert layer.weight.grad is gradient
    assert gradient.device == torch.device("cuda:0")
    layer.cpu()
    assert layer.weight.grad is gradient
    assert gradient.tolist() == [[1, 1]]


def test_data_of_another_device(machine):
    parameter = nn.Parameter(torch.ones(3))
    same = parameter
    parameter.data = parameter.data.cuda()
    assert same is parameter
    assert parameter.device == torch.device("cuda:0")
    assert parameter.requires_grad
    assert isinstance(parameter, nn.Parameter)
    parameter.data = torch.zeros(2, device="cuda:1")
    assert parameter.device == torch.device("cuda:1")
    assert parameter.shape == (2,)
    parameter.data = torch.ones(4)
    assert type(parameter) is nn.Parameter
    assert parameter.tolist() == [1, 1, 1, 1]
    assert torch.cuda.memory_allocated(0) == torch.cuda.memory_allocated(1) == 0


def test_conjugate_data(machine):
    tensor = torch.tensor([1 + 2j], device="cuda")
    tensor.data = torch.tensor([3 + 4j], device="cuda").conj()
    assert tensor.is_conj()
    assert tensor.cpu().resolve_conj().tolist() == [3 - 4j]
    tensor.data = torch.tensor([5 + 6j], device="cuda")
    assert tensor.tolist() == [5 + 6j]


@pytest.fixture
def swapping():
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(False)


def test_swapping_conversion(machine, swapping):
    layer = nn.Linear(2, 1)
    layer(torch.ones(1, 2)).sum().backward()
    weight = layer.weight
    for device in WHERE:
        layer.to(device)
        assert layer.weight is weight
        assert weight.device == weight.grad.device == torch.empty(0, device=device).device
    layer.cuda().half()
    assert weight.dtype is torch.float16
    assert layer.weight is weight


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")
@pytest.mark.parametrize(
    "wrap",
    [
        nn.utils.parametrizations.weight_norm,
        nn.utils.parametrizations.spectral_norm,
        nn.utils.parametrizations.orthogonal,
        nn.utils.weight_norm,
        nn.utils.spectral_norm,
    ],
)
def test_parametrizations(machine, wrap):
    layer = wrap(nn.Linear(3, 2))
    for device in ("cuda", "cpu", "cuda:1"):
        layer.to(device)
        layer(torch.ones(2, 3, device=device)).sum().backward()
        assert layer.weight.device == torch.empty(0, device=device).device


def test_modules_made_on_a_device(machine):
    layer = nn.Linear(2, 2, device="cuda:1")
    assert layer.weight.device == torch.device("cuda:1")
    assert isinstance(layer.weight, nn.Parameter)
    with torch.device("cuda:1"):
        assert nn.Linear(2, 2).bias.device == torch.device("cuda:1")
    assert type(layer.cpu().weight) is nn.Parameter


def test_meta_modules(machine):
    layer = nn.Linear(2, 2, device="meta")
    weight = layer.weight
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data! Please use"):
        layer.to("cuda")
    layer.to_empty(device="cuda")
    assert layer.weight is weight
    assert weight.device == torch.device("cuda:0")
    other = nn.Linear(2, 2, device="meta")
    other.load_state_dict(layer.state_dict(), assign=True)
    assert other.weight.device == torch.device("cuda:0")
    assert other.weight.requires_grad


def test_state_dicts_between_sides(machine):
    on_device, on_host = nn.Linear(2, 2).cuda(), nn.Linear(2, 2)
    on_host.load_state_dict(on_device.state_dict())
    assert type(on_host.weight) is nn.Parameter
    assert torch.equal(on_host.weight, on_device.weight.cpu())
    on_host.load_state_dict(on_device.state_dict(), assign=True)
    assert on_host.weight.device == torch.device("cuda:0")


def test_lazy_modules(machine):
    moved = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d()).cuda(1)
    assert moved(torch.ones(2, 4, device="cuda:1")).device == torch.device("cuda:1")
    assert {tensor.device for tensor in [*moved.parameters(), *moved.buffers()]} == {torch.device("cuda:1")}
    assert moved[0].weight.shape == (3, 4)
    made = nn.LazyLinear(3, device="cuda")
    assert made(torch.ones(2, 4, device="cuda")).device == torch.device("cuda:0")
    half = nn.LazyLinear(3).to("cuda", torch.float16)
    half(torch.ones(2, 4, device="cuda", dtype=torch.float16))
    assert half.weight.dtype is torch.float16
    back = nn.LazyLinear(3).cuda().cpu()
    assert back(torch.ones(2, 4)).device.type == "cpu"
    assert isinstance(back.weight, nn.Parameter)


def test_averaged_models_and_optimizer_states(machine):
    model = nn.Linear(2, 1).cuda()
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.Adam(model.parameters())
    step(model, optimizer, "cuda", 2)
    average.update_parameters(model)
    assert average.module.weight.device == torch.device("cuda:0")
    other = torch.optim.Adam(nn.Linear(2, 1).cuda(1).parameters())
    other.load_state_dict(optimizer.state_dict())
    assert other.state_dict()["state"][0]["exp_avg"].device == torch.device("cuda:1")


def test_gradients_must_be_on_the_parameters_device(machine):
    sentence = (
        "attempting to assign a gradient with device type '{}' to a tensor with device type '{}'. "
        "Please ensure that the gradient and the tensor are on the same device"
    )
    for parameter, gradient in (("cuda", "cpu"), ("cpu", "cuda")):
        with pytest.raises(RuntimeError) as raised:
            nn.Parameter(torch.ones(2, device=parameter)).grad = torch.ones(2, device=gradient)
        assert str(raised.value) == sentence.format(gradient, parameter)
    with pytest.raises(RuntimeError, match="attempting to assign a gradient located on device with index"):
        nn.Parameter(torch.ones(2, device="cuda:0")).grad = torch.ones(2, device="cuda:1")
    parameter = nn.Parameter(torch.ones(2, device="cuda"))
    parameter.grad = torch.ones(2, device="cuda")
    parameter.grad = None
    assert parameter.grad is None


def test_a_gradient_of_another_size_stays_as_it_is(machine):
    flat = nn.Parameter(torch.ones(4, device="cuda"))
    flat.sum().backward()
    flat.data = torch.zeros(2, device="cuda")  # as FSDP frees and gathers its parameters
    flat.data = flat.cpu()
    assert (flat.device.type, flat.tolist(), flat.grad.tolist()) == ("cpu", [0, 0], [1, 1, 1, 1])
    flat.data = flat.cuda()
    assert (flat.device.type, flat.tolist(), flat.grad.tolist()) == ("cuda", [0, 0], [1, 1, 1, 1])


def test_under_a_profiler_that_keeps_the_shapes(machine):
    with torch.profiler.profile(record_shapes=True, profile_memory=True) as profiler:
        model = nn.Linear(4, 4).cuda()
        model(torch.ones(2, 4, device="cuda")).sum().backward()
    assert all(parameter.grad.is_cuda for parameter in model.parameters())
    shapes = [event.input_shapes for event in profiler.events() if event.name == "aten::linear"]
    assert shapes == [[[2, 4], [4, 4], [4]]]
    with pytest.raises(lab.FakeGpuError, match="which PyTorch has deprecated, is not simulated"):
        profiler.export_memory_timeline("memory.json")
