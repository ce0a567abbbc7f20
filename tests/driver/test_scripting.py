"""TorchScript models on a device: running, saving, loading, moving."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile

import pytest
import torch
from torch import nn

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


def saved(module: torch.jit.ScriptModule) -> io.BytesIO:
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    return file


def records(file: io.BytesIO) -> dict[str, bytes]:
    """The records that are code or data; the debug records name the files that the traced frames are in."""
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist() if "debug" not in name}


def test_traced_and_scripted_models_run(machine):
    model, x = traced("cuda:1")
    assert model(x).device == torch.device("cuda:1")
    scripted = torch.jit.script(Model().cuda())
    y = scripted(torch.ones(4, 3, device="cuda"))
    y.sum().backward()
    assert y.device == scripted.layer.weight.grad.device == torch.device("cuda:0")


def test_a_file_names_cuda(machine):
    for module in (traced("cuda:1")[0], torch.jit.freeze(traced("cuda:1")[0].eval())):
        contents = records(saved(module))
        assert not [name for name, record in contents.items() if b"fakegpu" in record]
        assert any(b"cuda:1" in record for name, record in contents.items() if name.endswith(".pkl"))
    contents = records(saved(traced("cuda:1")[0]))
    assert any(b'torch.device("cuda:1")' in record for name, record in contents.items() if name.endswith(".py"))


def test_loading_onto_the_device_it_was_saved_from(machine):
    model, x = traced("cuda:1")
    loaded = torch.jit.load(saved(model))
    assert {p.device for p in loaded.parameters()} == {torch.device("cuda:1")}
    assert all(p.data_ptr() for p in loaded.parameters())
    assert torch.equal(loaded(x), model(x))
    loaded(x).sum().backward()
    assert next(loaded.parameters()).grad is not None


def test_constants_in_the_graph(machine):
    x, constant = torch.ones(3, device="cuda"), torch.arange(6.0, device="cuda").reshape(2, 3)[1]
    function = torch.jit.trace(lambda t: t * constant, x)
    assert torch.jit.load(saved(function))(x).tolist() == [3, 4, 5]
    assert torch.jit.load(saved(function), map_location="cpu")(torch.ones(3)).tolist() == [3, 4, 5]
    frozen = torch.jit.freeze(torch.jit.script(Model().cuda().eval()))
    assert torch.equal(torch.jit.load(saved(frozen))(x[None]), frozen(x[None]))


def test_map_location(machine):
    scripted = torch.jit.script(nn.Linear(3, 2).cuda(1))
    expected = scripted(torch.ones(1, 3, device="cuda:1")).cpu()
    for location, device in (("cpu", "cpu"), ("cuda", "cuda:0"), (torch.device("cuda", 1), "cuda:1")):
        loaded = torch.jit.load(saved(scripted), map_location=location)
        assert loaded.weight.device == torch.device(device)
        assert torch.allclose(loaded(torch.ones(1, 3, device=device)).cpu(), expected)
    with pytest.raises(RuntimeError, match="Attempting to deserialize object on CUDA device 5"):
        torch.jit.load(saved(scripted), map_location="cuda:5")


def test_a_machine_without_gpus_loads_the_file(machine, tmp_path):
    scripted = torch.jit.script(nn.Linear(2, 1).cuda())
    for parameter in scripted.parameters():
        nn.init.ones_(parameter)
    scripted.save(tmp_path / "m.pt")
    program = "import sys, torch; print(torch.jit.load(sys.argv[1], map_location='cpu')(torch.ones(1, 2)).tolist())"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FAKEGPU")}
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, tmp_path / "m.pt"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert run.stdout == "[[3.0]]\n"


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


def test_tensors_in_a_list(machine):
    loaded = torch.jit.load(saved(torch.jit.script(Parts())))
    assert loaded(torch.zeros(2, device="cuda")).tolist() == [3, 4]
