"""TorchScript models on a device: running, saving, loading, moving."""

from __future__ import annotations

import io

import pytest
import torch
from torch import nn

import fakegpu_lab as lab

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.register_buffer("shift", torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + self.shift + torch.arange(2, device=x.device)


def traced(device: str) -> tuple[torch.jit.ScriptModule, torch.Tensor]:
    x = torch.ones(1, 3, device=device)
    return torch.jit.trace(Model().to(device), x), x


def test_traced_and_scripted_models_run(machine):
    model, x = traced("cuda:1")
    assert model(x).device == torch.device("cuda:1")
    scripted = torch.jit.script(Model().cuda())
    y = scripted(torch.ones(4, 3, device="cuda"))
    y.sum().backward()
    assert y.device == scripted.layer.weight.grad.device == torch.device("cuda:0")


def test_a_file_of_the_host_is_loaded_onto_a_device(machine):
    model, x = traced("cpu")
    file = io.BytesIO()
    torch.jit.save(model, file)
    for where, device in (("cpu", "cpu"), ("cuda", "cuda:0"), (torch.device("cuda", 1), "cuda:1")):
        file.seek(0)
        loaded = torch.jit.load(file, map_location=where)
        assert {p.device for p in loaded.parameters()} == {torch.device(device)}
        if device == "cpu":  # a trace keeps the device of its constants, as on a card
            torch.testing.assert_close(loaded(x), model(x))


@pytest.mark.parametrize(
    "save", [torch.jit.save, lambda model, file: model.save(file.name)], ids=["function", "method"]
)
def test_a_model_on_a_device_is_not_saved(machine, save, tmp_path):
    scripted, constant = torch.jit.script(Model().cuda()), torch.arange(3.0, device="cuda")
    for model in (
        scripted,
        torch.jit.freeze(torch.jit.script(Model().cuda().eval())),
        torch.jit.trace(lambda t: t * constant, torch.ones(3, device="cuda")),
        torch.jit.script(Parts()),
    ):
        with (
            (tmp_path / "model.pt").open("wb") as file,
            pytest.raises(lab.FakeGpuError, match=r"^Saving a TorchScript model"),
        ):
            save(model, file)
    with (tmp_path / "model.pt").open("wb") as file:
        save(scripted.cpu(), file)


def test_texts_name_cuda(machine):
    model, _ = traced("cuda:1")
    assert 'torch.device("cuda:1")' in model.code
    assert "device=cuda:1" in str(model.graph)
    assert "fakegpu" not in model.code + str(model.graph)


def test_script_modules_move(machine):
    module = torch.jit.script(nn.Linear(3, 2))
    weight, expected = module.weight, module(torch.ones(1, 3)).tolist()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.0)
    for device in ("cuda", "cuda:1", "cpu", "cuda"):
        module.to(device)
        output = module(torch.ones(1, 3, device=device))
        assert output.device == torch.empty(0, device=device).device
        assert torch.allclose(output, torch.tensor(expected, device=device))
        output.sum().backward()
        optimizer.step()
    assert module.weight is weight
    module.half()
    assert module(torch.ones(1, 3, device="cuda", dtype=torch.float16)).dtype is torch.float16


class Parts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = [torch.ones(2, device="cuda"), torch.arange(4.0, device="cuda")[2:]]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.parts[0] + self.parts[1]
