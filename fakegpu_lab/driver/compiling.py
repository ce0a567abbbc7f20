"""torch.compile and torch.export: what can be had of them.

Both trace with FakeTensors that carry the device people see, ``cuda``; a CPU build has no guard for it, and C++ would
abort the process. So `torch.compile` returns a module or function that runs eagerly (torch's own
``set_stance("force_eager")``: right results, and every kernel and byte is simulated), and tracing a tensor of a
simulated GPU is refused with a sentence.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses import fake_tensor

from fakegpu_lab.driver.tensor import FakeCudaTensor

if TYPE_CHECKING:
    from fakegpu_lab.driver.patches import Patches

_compile = torch.compile
_from_tensor = fake_tensor.FakeTensorMode.from_tensor


@functools.wraps(_compile)
def compile_eagerly(*args: Any, **kwargs: Any) -> Any:
    """`torch.compile`, run eagerly."""
    torch.compiler.set_stance("force_eager")
    return _compile(*args, **kwargs)


@functools.wraps(_from_tensor)
def from_tensor(self: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """`FakeTensorMode.from_tensor`, which must not be given a tensor of a simulated GPU."""
    if tensor.__class__ is FakeCudaTensor:
        raise NotImplementedError(
            "torch.export, AOT compilation and FakeTensorMode cannot trace tensors on a simulated GPU. "
            "Trace the model on the CPU; torch.compile(model) works here and runs eagerly."
        )
    return _from_tensor(self, tensor, *args, **kwargs)


def install(patches: Patches) -> None:
    """Patch `torch.compile` and the entrance of FakeTensorMode."""
    patches.set(torch, "compile", compile_eagerly)
    patches.set(fake_tensor.FakeTensorMode, "from_tensor", from_tensor)


def restore_stance() -> None:
    """Let `torch.compile` compile again, if it was used while the machine was there."""
    eval_frame: Any = sys.modules.get("torch._dynamo.eval_frame")
    if eval_frame is not None and eval_frame._stance.stance == "force_eager":
        torch.compiler.set_stance("default")
