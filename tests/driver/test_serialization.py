"""Saving, loading, pickling and copying device tensors."""

from __future__ import annotations

import copy
import io
import os
import pickle
import pickletools
import subprocess
import sys
import zipfile

import pytest
import torch
from torch import nn


def saved(obj: object, **options: object) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(obj, file, **options)
    file.seek(0)
    return file


def through_a_file(obj: object, **options: object) -> object:
    return torch.load(saved(obj), **options)


def strings(file: io.BytesIO) -> list[str]:
    """All strings in the pickle of a file: names of globals, locations, attribute names."""
    with zipfile.ZipFile(file) as archive:
        operations = pickletools.genops(archive.read("archive/data.pkl"))
        return [argument for _, argument, _ in operations if isinstance(argument, str)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(6.0, device="cuda:1").reshape(2, 3),
        lambda: torch.ones(2, 3, device="cuda").t(),
        lambda: torch.ones(3, device="cuda", dtype=torch.float16),
        lambda: torch.tensor([1, 2], device="cuda", dtype=torch.uint16),
        lambda: torch.empty(0, 2, device="cuda:1"),
        lambda: torch.tensor(2.0, device="cuda", requires_grad=True),
        lambda: torch.tensor([1 + 2j], device="cuda").conj(),
        lambda: torch.eye(3).to_sparse().cuda(),
    ],
)
def test_round_trip(machine, make):
    tensor = make()
    loaded = through_a_file(tensor, weights_only=True)
    assert loaded.device == tensor.device
    assert loaded.dtype == tensor.dtype
    assert loaded.requires_grad == tensor.requires_grad
    assert loaded.layout == tensor.layout
    if tensor.layout is torch.strided:
        assert loaded.stride() == tensor.stride()
    assert torch.equal(loaded.detach().cpu().to_dense(), tensor.detach().cpu().to_dense())


def test_a_file_names_torch_and_cuda_only(machine):
    model = nn.Linear(2, 2).cuda(1)
    model.weight.note = "kept"
    objects = [model, model.state_dict(), torch.eye(2).to_sparse().cuda(), torch.empty(0, device="cuda")]
    file = saved(objects)
    assert b"fakegpu" not in file.getvalue()
    modules = {text.split(" ")[0].partition(".")[0] for text in strings(file) if " " in text}
    assert modules == {"torch", "collections", "__builtin__"}
    assert {text for text in strings(file) if text.startswith("cuda")} == {"cuda:0", "cuda:1"}


def test_a_file_is_as_a_cpu_machine_writes_it_but_for_the_location(machine):
    host = nn.Linear(2, 2)
    device = copy.deepcopy(host).cuda()
    for objects in ((host.state_dict(), device.state_dict()), (host.weight, device.weight), (host, device)):
        cpu, cuda = ([text for text in strings(saved(obj)) if text not in ("cpu", "cuda:0")] for obj in objects)
        assert cuda == cpu


READER = """
import sys, torch
assert "fakegpu_lab.driver" not in sys.modules and not torch.cuda.is_available()
weights = torch.load(sys.argv[1], map_location="cpu", weights_only=True)
print(weights["weight"].tolist(), type(weights["weight"]).__name__, weights["weight"].device)
try:
    torch.load(sys.argv[1])
except RuntimeError as error:
    print(str(error)[:56])
"""


def test_a_machine_without_gpus_loads_the_file(machine, tmp_path):
    layer = nn.Linear(1, 1).cuda()
    nn.init.ones_(layer.weight)
    torch.save(layer.state_dict(), tmp_path / "w.pt")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FAKEGPU")}
    run = subprocess.run(
        [sys.executable, "-c", READER, tmp_path / "w.pt"], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines() == [
        "[[1.0]] Tensor cpu",
        "Attempting to deserialize object on a CUDA device but to",
    ]


def test_views_stay_views(machine):
    tensor = torch.arange(6.0, device="cuda")
    whole, part = through_a_file([tensor, tensor[2:]])
    assert part.untyped_storage() is whole.untyped_storage()
    part.zero_()
    assert whole.tolist() == [0, 1, 0, 0, 0, 0]


def test_parameters_and_modules_and_optimizers(machine):
    layer = nn.Linear(2, 2).cuda()
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(1, 2, device="cuda")).sum().backward()
    optimizer.step()
    loaded = through_a_file([layer, layer.weight, optimizer.state_dict()], weights_only=False)
    assert isinstance(loaded[0].weight, nn.Parameter)
    assert loaded[1] is loaded[0].weight
    assert loaded[0].weight.requires_grad
    assert loaded[2]["state"][0]["exp_avg"].device == torch.device("cuda:0")
    other = torch.optim.AdamW(loaded[0].parameters())
    other.load_state_dict(loaded[2])
    loaded[0](torch.ones(1, 2, device="cuda")).sum().backward()
    other.step()


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("zip_format", [True, False])
@pytest.mark.parametrize(
    ("location", "expected"),
    [
        (None, "cuda:1"),
        ("cpu", "cpu"),
        ("cuda", "cuda:0"),
        ("cuda:1", "cuda:1"),
        (torch.device("cuda", 0), "cuda:0"),
        ({"cuda:1": "cuda:0"}, "cuda:0"),
        ({"cuda:0": "cpu"}, "cuda:1"),
        (lambda storage, place: storage, "cpu"),
        (lambda storage, place: storage.cuda(0) if place == "cuda:1" else None, "cuda:0"),
        (lambda storage, place: None, "cuda:1"),
    ],
)
def test_map_location(machine, location, expected, zip_format, weights_only):
    tensor = torch.arange(4.0, device="cuda:1")
    file = saved(tensor, _use_new_zipfile_serialization=zip_format)
    assert b"fakegpu" not in file.getvalue()
    loaded = torch.load(file, map_location=location, weights_only=weights_only)
    assert loaded.device == torch.device(expected)
    assert loaded.tolist() == [0, 1, 2, 3]


def test_mmap(machine, tmp_path):
    torch.save(torch.arange(4.0, device="cuda:1"), tmp_path / "t.pt")
    assert torch.load(tmp_path / "t.pt", map_location="cpu", mmap=True).tolist() == [0, 1, 2, 3]
    assert torch.load(tmp_path / "t.pt", mmap=True).device == torch.device("cuda:1")


def test_a_cpu_file_is_loaded_onto_a_device(machine):
    assert torch.load(saved(torch.ones(2)), map_location="cuda:1").device == torch.device("cuda:1")


def test_a_device_that_is_not_there(machine):
    file = saved(torch.ones(2, device="cuda:1"))
    with pytest.raises(RuntimeError) as raised:
        torch.load(file, map_location="cuda:2")
    assert str(raised.value) == (
        "Attempting to deserialize object on CUDA device 2 but torch.cuda.device_count() is 2. "
        "Please use torch.load with map_location to map your storages to an existing device."
    )


def test_saving_and_loading_count_one_transfer_a_storage(machine):
    tensor = torch.arange(6.0, device="cuda")
    ledger = machine.devices[0].ledger
    ups, downs = ledger.h2d_count, ledger.d2h_count
    file = saved([tensor, tensor[1:], torch.ones(3)])
    assert ledger.d2h_count - downs == 1
    torch.load(file)
    assert ledger.h2d_count - ups == 1


def test_pickle_writes_what_cuda_writes(machine):
    tensor = torch.arange(3.0, device="cuda:1")
    data = pickle.dumps(tensor)
    assert b"fakegpu" not in data
    names = [argument for _, argument, _ in pickletools.genops(data) if isinstance(argument, str)]
    assert names[:4] == ["torch._utils", "_rebuild_tensor_v2", "torch.storage", "_load_from_bytes"]
    loaded = pickle.loads(data)
    assert loaded.device == torch.device("cuda:1")
    assert loaded.tolist() == [0, 1, 2]
    assert isinstance(pickle.loads(pickle.dumps(nn.Linear(1, 1).cuda())).weight, nn.Parameter)


def test_copy_shares_and_deepcopy_does_not(machine):
    tensor = torch.ones(3, device="cuda")
    tensor.note = ["mine"]
    shallow, deep = copy.copy(tensor), copy.deepcopy(tensor)
    assert shallow.data_ptr() == tensor.data_ptr() != deep.data_ptr()
    assert shallow.note is tensor.note
    assert deep.note == tensor.note
    assert deep.note is not tensor.note
    assert deep.device == tensor.device


def test_deepcopy_keeps_what_is_shared(machine):
    layer = nn.Linear(2, 2).cuda()
    layer.other = layer.weight
    tensor = torch.arange(4.0, device="cuda")
    twin, whole, part, again = copy.deepcopy([layer, tensor, tensor[1:], tensor])
    assert again is whole
    assert twin.other is twin.weight is not layer.weight
    assert isinstance(twin.weight, nn.Parameter)
    assert part.untyped_storage() is whole.untyped_storage()
    assert whole.untyped_storage() is not tensor.untyped_storage()


def test_deepcopy_of_gradients(machine):
    tensor = torch.ones(2, device="cuda", requires_grad=True)
    (tensor * 3).sum().backward()
    twin = copy.deepcopy(tensor)
    assert twin.grad.tolist() == [3, 3]
    assert twin.grad is not tensor.grad
    layer = nn.Linear(1, 1).cuda()
    layer(torch.ones(1, 1, device="cuda")).backward()
    assert copy.deepcopy(layer).weight.grad is None  # as torch: a Parameter is copied without
    with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
        copy.deepcopy(tensor * 2)


def test_deepcopy_of_conjugates_and_sparse(machine):
    conjugate = torch.tensor([1 + 2j], device="cuda").conj()
    assert copy.deepcopy(conjugate).cpu().resolve_conj().tolist() == [1 - 2j]
    sparse = torch.eye(2).to_sparse().cuda()
    assert copy.deepcopy(sparse).cpu().to_dense().tolist() == [[1, 0], [0, 1]]
