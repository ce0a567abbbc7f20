"""torch.compile, which runs a model eagerly, and torch.export.

A real card would run generated Triton kernels, for which there is no compiler here. `torch.compile` returns a module or
function that runs eagerly (torch's own ``set_stance("force_eager")``): the results are right and every kernel and byte
is simulated, but kernels are not fused. A message says so once, when the program's own model or function is compiled;
libraries decorate functions that the program may never call.
"""

from __future__ import annotations

import functools
import inspect
import sys
from typing import TYPE_CHECKING, Any

import torch
import torch.export
from torch.utils._pytree import tree_leaves

from fakegpu_lab.driver.base.changes import begun, replaced
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.dispatch import dispatch_rules, dispatcher
from fakegpu_lab.driver.recorder import recording
from fakegpu_lab.user_code.frames import OWN, kind

if TYPE_CHECKING:
    from collections.abc import Callable

_compile = torch.compile
_said: list[bool] = []


@functools.wraps(_compile)
def compile_eagerly(*args: Any, **kwargs: Any) -> Any:
    """`torch.compile`, run eagerly."""
    model = args[0] if args else kwargs.get("model")
    caller = sys._getframe(1).f_code.co_filename
    if not _said and not kwargs.get("disable") and _is_programs(model, caller):
        _said.append(True)
        # To stdout: what is written to stderr looks like an error in a notebook.
        print("fakegpu_lab: torch.compile runs eagerly on simulated GPUs: right results and memory, kernels not fused.")
    torch.compiler.set_stance("force_eager")
    return _compile(*args, **kwargs)


def _is_programs(model: Any, caller: str) -> bool:
    """Whether code of the file `caller` compiles something of the user's program: a model, or a function."""
    if model is None:  # `torch.compile(mode=…)` only makes a decorator
        return False
    if isinstance(getattr(model, "__self__", model), torch.nn.Module):
        return True
    code = getattr(inspect.unwrap(model), "__code__", None)
    return bool(kind(caller) & OWN or (code is not None and kind(code.co_filename) & OWN))


_export = torch.export.export


@functools.wraps(_export)
def export(mod: torch.nn.Module, args: Any, *rest: Any, **kwargs: Any) -> Any:
    """`torch.export.export`, which refuses to trace modules on a device with Dynamo."""
    if kwargs.get("strict"):
        tensors = [*tree_leaves((args, kwargs.get("kwargs"))), *mod.parameters(), *mod.buffers()]
        if any(tensor.__class__ is FakeCudaTensor for tensor in tensors):
            raise RuntimeError(
                "torch.export.export(..., strict=True) traces with TorchDynamo, which does not know the tensors of a "
                "simulated GPU: leave strict=False, the default, or export the module on the CPU."
            )
    return _export(mod, args, *rest, **kwargs)


def leave_alone(code: Any) -> None:
    """Make Dynamo run a function and everything that it calls as they are, or it would try to compile the driver.

    Torch keeps this with the code object. Without it, `torch._dynamo.explain` recurses without end.
    """
    frames: Any = torch._C._dynamo.eval_frame
    skip = frames._FrameAction.SKIP
    frames.set_code_exec_strategy(code, frames._FrameExecStrategy(skip, skip))


def _begin() -> Callable[[], None]:
    leave_alone(dispatcher.run.__code__)
    leave_alone(dispatch_rules.rule.__code__)
    return restore_stance


def restore_stance() -> None:
    """Let `torch.compile` compile again, if it was used while the machine was enabled."""
    eval_frame: Any = sys.modules.get("torch._dynamo.eval_frame")
    if eval_frame is not None and eval_frame._stance.stance == "force_eager":
        torch.compiler.set_stance("default")


CHANGES = [
    replaced("torch.compile", compile_eagerly, "compiled models run eagerly"),
    replaced("torch.export.export", export, "exported programs are of device tensors"),
    replaced(
        "torch.nn.modules.module._has_any_global_hook",
        recording.hooks_of_others,
        "compiled modules do not warn of the recorders' hooks",
    ),
    begun(_begin, "Dynamo leaves the dispatcher alone; the stance is the program's again"),
]
