"""Enabling and disabling leave torch as it was, attribute for attribute."""

from __future__ import annotations

import subprocess
import sys
import types
from typing import Any

import pytest
import torch
import torch.nn.parallel.comm
import torch.utils.data

import fakegpu_lab as lab

PERMANENT = {
    ("torch", "fakegpu"),  # the device module of PrivateUse1: torch has no way to unregister one
    ("sys.modules", "torch.fakegpu"),
}


def test_the_first_op_imports_neither_dtensor_nor_sympy() -> None:
    look = (
        "import sys\nimport fakegpu_lab as lab\nimport torch\nlab.enable('a100')\n"
        "layer = torch.nn.Linear(3, 3).cuda()\nlayer(torch.ones(2, 3, device='cuda')).sum().backward()\n"
        "print(repr(layer.weight), file=sys.stderr)\n"
        "print(*{'sympy', 'torch.distributed.tensor', 'torch._dynamo'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert ran.stdout == "\n"


def torch_modules() -> dict[str, Any]:
    return {name: m for name, m in sys.modules.items() if name.partition(".")[0] == "torch" and m is not None}


def attributes() -> dict[tuple[str, str], Any]:
    """Every attribute of every torch module, and of every class that torch defines."""
    found: dict[tuple[str, str], Any] = {}
    owners: dict[str, Any] = {}
    for name, module in torch_modules().items():
        owners[name] = module
        found["sys.modules", name] = module
        if isinstance(inner := vars(module).get("m"), types.ModuleType):
            owners[f"{name}.m"] = inner
        for key, value in list(vars(module).items()):
            if issubclass(type(value), type) and value.__module__.partition(".")[0] in ("torch", "fakegpu_lab"):
                owners[f"{name}:{key}"] = value
    for name, owner in owners.items():
        for key, value in list(vars(owner).items()):
            if key not in ("__warningregistry__", "__annotations__"):
                found[name, key] = value
    return found


def differences(before: dict[tuple[str, str], Any], after: dict[tuple[str, str], Any]) -> list[str]:
    return [
        f"{owner}.{name}: {before.get((owner, name), 'absent')!r} -> {after.get((owner, name), 'absent')!r}"
        for owner, name in sorted(before.keys() | after.keys())
        if (owner, name) not in PERMANENT
        and ((owner, name) not in before or (owner, name) not in after or before[owner, name] is not after[owner, name])
    ]


def use_everything() -> None:
    """A little of all that keeps state in torch."""
    x = torch.randn(4, 4, device="cuda", requires_grad=True)
    (x @ x).sum().backward()
    with torch.autocast("cuda"):
        (x @ x).exp()
    torch.cuda.manual_seed_all(3)
    torch.cuda.is_bf16_supported()
    torch.accelerator.get_device_capability()
    with torch.cuda.stream(torch.cuda.Stream(device=1)):
        torch.cuda.Event().record()
    torch.cuda.set_device(1)
    torch.cuda.memory._record_memory_history()
    torch.cuda.set_per_process_memory_fraction(0.5)
    torch.nn.Linear(2, 2).to("cuda").to("cpu")
    torch.Generator("cuda")
    torch.backends.cudnn.version()


@pytest.fixture(scope="module", autouse=True)
def _registered() -> None:
    """PrivateUse1 registered and the modules imported that a first use imports."""
    lab.enable("a100:2", memory="4GiB")
    use_everything()
    lab.disable()


def test_disabling_puts_every_attribute_back() -> None:
    before = attributes()
    lab.enable("a100:2", memory="4GiB")
    assert differences(before, attributes())
    use_everything()
    lab.disable()
    assert differences(before, attributes()) == []


def test_replacing_and_resetting_leave_nothing_either() -> None:
    before = attributes()
    lab.enable("a100:2", memory="4GiB")
    use_everything()
    lab.enable("v100", memory="1GiB")
    torch.ones(1, device="cuda")
    lab.reset()
    lab.disable()
    assert differences(before, attributes()) == []


def test_disabling_puts_the_lists_and_tables_back() -> None:
    queued, foreach = list(torch.cuda._queued_calls), list(torch.utils._foreach_utils._foreach_supported_types)
    lab.enable("a100", memory="1GiB")
    torch.cuda.manual_seed(1)
    torch.ones(1, device="cuda")
    lab.disable()
    assert torch.cuda._queued_calls == queued
    assert torch.utils._foreach_utils._foreach_supported_types == foreach


@pytest.mark.skipif(torch.version.cuda is not None, reason="a CUDA build says other things")
def test_after_disabling_torch_says_that_it_has_no_cuda() -> None:
    lab.enable("a100", memory="1GiB")
    lab.disable()
    assert not torch.cuda.is_available()
    assert torch.cuda.device_count() == 0
    assert torch.version.cuda is None
    with pytest.raises(AssertionError, match="Torch not compiled with CUDA enabled"):
        torch.cuda.current_device()
    with pytest.raises(RuntimeError, match="Tried to instantiate dummy base class"):
        torch.cuda.Event()


# What registering PrivateUse1 renames for good, and what torch notes of its own first uses.
REGISTRATION = (
    "DeviceType",
    "ProfilerActivity",
    "_privateuse1_backend_name",
    "fakegpu",
    "_C._accelerator_getAccelerator",
    "_C._get_accelerator",
)
LAZY = ("torch.distributed", "torch._C._distributed", "torch._weights_only_unpickler")


def left_behind() -> list[tuple[str, str]]:
    """What differs in torch after the first machine of a process; modules that were imported meanwhile aside."""
    before = attributes()
    owners = {owner for owner, _ in before if owner != "sys.modules"}
    lab.enable("a100:2", memory="4GiB")
    use_everything()
    lab.disable()
    after = attributes()
    return [
        (owner, name)
        for owner, name in before.keys() | after.keys()
        if owner in owners
        and after.get((owner, name)) is not before.get((owner, name))
        and not isinstance(after.get((owner, name)), types.ModuleType)
        and not any(word in f"{owner}.{name}" for word in REGISTRATION)
        and not owner.startswith(LAZY)
    ]


@pytest.mark.slow
def test_the_first_machine_of_a_process_leaves_only_the_registration_behind() -> None:
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


if __name__ == "__main__":
    print(left_behind())
