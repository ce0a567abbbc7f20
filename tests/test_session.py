"""Enable, replace, reset, disable: one machine at a time, and torch as it was when there is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from typing import TYPE_CHECKING, Any

import pytest
import torch

import fakegpu_lab as lab
from fakegpu_lab import autoload, session
from fakegpu_lab.driver import install
from fakegpu_lab.driver.base import changes
from fakegpu_lab.processes import inheritance

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _off_afterwards() -> Iterator[None]:
    yield
    lab.disable()


def test_enable_gives_torch_the_gpus_and_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    machine = lab.enable("a100:1,t4:2")
    assert [device.profile.id for device in machine.devices] == ["a100", "t4", "t4"]
    assert lab.machine() is machine
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 3
    assert torch.ones(2).to("cuda:2").device == torch.device("cuda", 2)
    lab.disable()
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")


def test_memory_limits_every_card() -> None:
    lab.enable("a100:2", memory="2GiB")
    assert [device.memory.total for device in lab.snapshot().devices] == [2 * 2**30] * 2


def test_a_snapshot_is_json() -> None:
    lab.enable("a100")
    told = json.loads(json.dumps(lab.snapshot().model_dump(mode="json")))
    assert told["spec"] == "a100"
    assert told["devices"][0]["name"] == "NVIDIA A100-SXM4-80GB"


def test_enabling_again_replaces_the_machine_and_old_tensors_say_so() -> None:
    lab.enable("a100:2")
    old = torch.ones(2).to("cuda:1")
    lab.enable("t4")
    assert torch.cuda.device_count() == 1
    with pytest.raises(RuntimeError, match=r"of the machine 'a100:2', which is gone: it was replaced by 't4'"):
        old + 1
    assert (torch.ones(2).to("cuda") + 1).tolist() == [2, 2]


def test_reset_gives_the_same_gpus_anew() -> None:
    lab.enable("a100:2", memory="1GiB")
    old = torch.ones(1000).to("cuda")
    machine = lab.reset()
    first = lab.snapshot().devices[0]
    assert machine.spec.text == "a100:2"
    assert (first.memory.total, first.memory.peak_allocated, first.counters.h2d_count) == (2**30, 0, 0)
    with pytest.raises(RuntimeError, match="it was reset"):
        old.cpu()


def test_disable_says_so_to_old_tensors_and_may_come_twice() -> None:
    lab.enable()
    old = torch.ones(2).to("cuda")
    lab.disable()
    lab.disable()
    assert not torch.cuda.is_available()
    with pytest.raises(RuntimeError, match="it was switched off"):
        old * 2
    with pytest.raises(lab.FakeGpuError, match="No simulated GPU is enabled"):
        lab.machine()
    with pytest.raises(lab.FakeGpuError, match="No simulated GPU is enabled"):
        lab.reset()


BAD = [
    ("a1o0", {}, "the nearest of"),
    ("a100:0", {}, "asks for 0 devices"),
    ("a100:10000", {}, "asks for 10,000 devices"),
    ("", {}, "There is no GPU in"),
    ("no-such-file.yaml", {}, "There is no file no-such-file.yaml"),
    ("a100", {"memory": "-2GiB"}, "is not above zero bytes"),
    ("a100", {"memory": -5}, "is not above zero bytes"),
    ("a100", {"memory": "900GiB"}, "is more than the"),
    ("a100", {"compute": "imaginary"}, 'is neither "real"'),
]


@pytest.mark.parametrize(("spec", "options", "sentence"), BAD)
def test_bad_input_is_one_sentence_and_leaves_nothing_patched(
    spec: str, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(lab.FakeGpuError, match=sentence) as caught:
        lab.enable(spec, **options)
    assert "\n" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert not install.patches
    assert not session.enabled()
    assert inheritance.VARIABLE not in os.environ


@pytest.mark.parametrize(("spec", "options", "sentence"), BAD)
def test_bad_input_leaves_the_old_machine_working(spec: str, options: dict[str, Any], sentence: str) -> None:
    machine = lab.enable("t4:2")
    tensor = torch.ones(2).to("cuda:1")
    with pytest.raises(lab.FakeGpuError, match=sentence):
        lab.enable(spec, **options)
    assert lab.machine() is machine
    assert (tensor + 1).tolist() == [2, 2]


def test_bad_allocator_settings_are_told_when_enabling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:tiny")
    with pytest.raises(lab.FakeGpuError, match="PYTORCH_CUDA_ALLOC_CONF is invalid: "):
        lab.enable()
    assert not session.enabled()


def test_an_error_while_patching_leaves_the_old_machine_working(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = lab.enable("t4:2")
    tensor = torch.ones(2).to("cuda:1")
    apply, calls = changes.apply, []

    def fails_once(rows: Any) -> None:
        calls.append(rows)
        if len(calls) == 1:
            apply(rows[: len(rows) // 2])
            raise KeyError("half-way")
        apply(rows)

    monkeypatch.setattr(changes, "apply", fails_once)
    with pytest.raises(KeyError):
        lab.enable("a100")
    assert lab.machine() is machine
    assert (tensor + 1).device == torch.device("cuda", 1)
    lab.disable()
    assert not install.patches


# --- disabling puts torch back ----------------------------------------------------------------------------------


def everything_in_torch() -> dict[tuple[str, str], Any]:
    """Every attribute of every module of torch that is imported, and of every class in them."""
    found: dict[tuple[str, str], Any] = {}
    owners: dict[int, tuple[str, Any]] = {}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "torch" and isinstance(module, types.ModuleType):
            owners[id(module)] = name, module
            for value in list(vars(module).values()):
                if issubclass(type(value), type) and value.__module__.split(".")[0] == "torch":
                    owners[id(value)] = f"{value.__module__}.{value.__qualname__}", value
    for name, owner in owners.values():
        for attribute, value in list(vars(owner).items()):
            found[name, attribute] = value
    return found


def test_disabling_puts_every_attribute_of_torch_back() -> None:
    lab.enable("a100:2")  # once before, for what is registered for the life of the process
    work()
    lab.disable()
    before = everything_in_torch()
    lab.enable("a100:2")
    work()
    changed = {where for where, value in everything_in_torch().items() if before.get(where, value) is not value}
    assert changed, "the comparison sees patches"
    lab.disable()
    after = everything_in_torch()
    modules = {name for name, _ in before}
    new = {(name, attribute) for name, attribute in after.keys() - before.keys() if name in modules}
    assert before.keys() - after.keys() == set()
    assert {where for where, value in before.items() if after[where] is not value} == set()
    assert {where for where in new if not isinstance(after[where], types.ModuleType)} == set()


def work() -> None:
    """Use the machine a little."""
    model = torch.nn.Linear(3, 2).to("cuda")
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(4, 3, device="cuda:0")).sum().backward()
    optimizer.step()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


# --- child processes --------------------------------------------------------------------------------------------


def test_the_machine_is_left_for_child_processes_and_taken_away() -> None:
    lab.enable("a100:2", memory="2GiB", compute="meta", host="desktop-2023")
    wanted = {"spec": "a100:2", "memory": "2GiB", "compute": "meta", "clock": "real", "host": "desktop-2023"}
    assert json.loads(os.environ[inheritance.VARIABLE]) == wanted
    lab.disable()
    assert inheritance.VARIABLE not in os.environ


def test_paths_are_left_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my.yaml").write_text("based_on: t4\n")
    monkeypatch.chdir(tmp_path)
    lab.enable("a100, ./my.yaml:2")
    spec = json.loads(os.environ[inheritance.VARIABLE])["spec"]
    assert spec == f"a100,{tmp_path / 'my.yaml'}:2"
    monkeypatch.chdir("/")
    assert len(lab.enable(spec).devices) == 3


@pytest.mark.parametrize(
    ("left", "said"),
    [
        ("nonsense", "FAKEGPU_LAB_MACHINE or FAKEGPU_LAB_WORLD is malformed"),
        ("[1, 2]", "is malformed"),
        ('{"spec": "/deleted/profile.yaml"}', "There is no file /deleted/profile.yaml"),
        ('{"spec": "a100", "color": "green"}', "color"),
    ],
)
def test_a_machine_that_cannot_be_inherited_is_one_warning(
    monkeypatch: pytest.MonkeyPatch, left: str, said: str
) -> None:
    monkeypatch.setenv("FAKEGPU_LAB_MACHINE", left)
    monkeypatch.setenv("FAKEGPU_LAB_ID", "1-1")
    with pytest.warns(UserWarning, match=f"This process has no simulated GPUs.*{said}"):
        autoload.autoload()
    assert not session.enabled()
    autoload.autoload()  # nor does a process that this one starts hear of it again


def test_nor_does_a_malformed_world_keep_a_process_from_importing_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKEGPU_LAB_MACHINE", '{"spec": "a100"}')
    monkeypatch.setenv("FAKEGPU_LAB_WORLD", "8:9:8")
    with pytest.warns(UserWarning, match="There is no rank 9 in a world of 8"):
        autoload.autoload()
    assert not session.enabled()


def test_autoload_enables_what_was_left_and_else_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    autoload.autoload()
    assert not session.enabled()
    monkeypatch.setenv(inheritance.VARIABLE, '{"spec": "t4:3", "memory": null, "compute": "real"}')
    autoload.autoload()
    assert torch.cuda.device_count() == 3


def test_a_child_process_may_enable_a_machine_of_its_own_before_it_imports_torch() -> None:
    lab.enable("t4:3")
    child = "import fakegpu_lab as lab; lab.enable('a100'); import torch; print(torch.cuda.get_device_name())"
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("NVIDIA A100-SXM4-80GB\n", "")


@pytest.mark.parametrize("earlier", [False, True])
def test_an_error_while_a_machine_is_installed_takes_back_what_was(
    earlier: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fakegpu_lab.ranks import install

    def fails() -> None:
        monkeypatch.undo()
        raise KeyError("on purpose")

    lab.disable()
    if earlier:
        lab.enable("t4:2")
    monkeypatch.setattr(install, "install", fails)
    with pytest.raises(KeyError):
        lab.enable("a100")
    assert torch.cuda.is_available() == earlier
    assert torch.cuda.device_count() == 2 * earlier
    assert not earlier or torch.ones(2, device="cuda:1").sum().item() == 2
    lab.disable()
