"""torch.compile: a compiled model runs eagerly.

A real card would run generated Triton kernels, for which there is no compiler here. `torch.compile` returns a module or
function that runs eagerly (torch's own ``set_stance("force_eager")``): right results, and every kernel and byte is
simulated, though not the fewer kernels that fusing would leave. It says so once.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from fakegpu_lab.driver.patches import Patches

_compile = torch.compile
_said: list[bool] = []


@functools.wraps(_compile)
def compile_eagerly(*args: Any, **kwargs: Any) -> Any:
    """`torch.compile`, run eagerly."""
    if not _said:
        _said.append(True)
        # To stdout: what is written to stderr looks like an error in a notebook.
        print("fakegpu_lab: torch.compile runs eagerly on simulated GPUs: right results and memory, kernels not fused.")
    torch.compiler.set_stance("force_eager")
    return _compile(*args, **kwargs)


def install(patches: Patches) -> None:
    """Patch `torch.compile`."""
    patches.set(torch, "compile", compile_eagerly)


def restore_stance() -> None:
    """Let `torch.compile` compile again, if it was used while the machine was there."""
    eval_frame: Any = sys.modules.get("torch._dynamo.eval_frame")
    if eval_frame is not None and eval_frame._stance.stance == "force_eager":
        torch.compiler.set_stance("default")
