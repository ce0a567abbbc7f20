"""Every CUDA name that torch's Python refers to: it exists, and what is not simulated says so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

ABSENT = {"_CUDAGreenContext", "_cuda_tunableop_get_rotation_buffer_size"}  # the second is a slip in torch's stubs

IMPORTS = """
import importlib, pkgutil, torch, fakegpu_lab
fakegpu_lab.enable("a100:2", memory="4GiB")
names = ["torch._dynamo", "torch._inductor", "torch._inductor.compile_fx", "torch.distributed", "torch.utils.data",
         "torch.testing._internal.common_methods_invocations", "torch._inductor.cudagraph_trees", "torch.profiler",
         "torch._dynamo.device_interface", "torch.distributed.fsdp", "torch.utils.cpp_extension"]
names += [module.name for module in pkgutil.iter_modules(torch.cuda.__path__, "torch.cuda.")]
for name in names:
    importlib.import_module(name)
fakegpu_lab.disable()
"""


def names_in_torch() -> set[str]:
    root = Path(torch.__file__).parent
    found = set(re.findall(r"def (_(?:cuda|nccl|gds|accelerator)_\w+)", (root / "_C/__init__.pyi").read_text()))
    for file in root.rglob("*.py"):
        found.update(re.findall(r"\b_C\.(_(?:cuda|CUDA|Cuda|nccl|gds)_?\w+)", file.read_text(errors="ignore")))
    return found


def test_every_name_is_there(machine: Any) -> None:
    missing = {name for name in names_in_torch() if not hasattr(torch._C, name)}
    assert missing <= ABSENT


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.cuda.memory.CUDAPluggableAllocator(torch._C.__file__, "malloc", "free"),
        lambda: torch.cuda.tunable.enable(),
        lambda: torch.cuda.nccl.unique_id(),
        lambda: torch.cuda.memory._get_current_allocator(),
        lambda: torch.cuda.jiterator._create_jit_fn("template <typename T> T f(T x) { return x; }")(
            torch.ones(1, device="cuda")
        ),
    ],
)
def test_what_is_not_simulated_says_so(machine: Any, call: Any) -> None:
    with pytest.raises(RuntimeError, match=r"is not simulated\."):
        call()


def test_switches_that_are_only_remembered(machine: Any) -> None:
    assert not torch.cuda.tunable.is_enabled()
    assert torch.backends.cudnn.benchmark_limit == 10


@pytest.mark.long
@pytest.mark.slow
def test_the_rest_of_torch_can_be_imported_while_the_machine_is_on() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
