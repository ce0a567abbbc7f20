"""Patches parts of torch that would bypass the simulation, and fail or flood stderr.

`emit_nvtx` waits for the device, as on CUDA, and emits nothing.
The weights of LSTMs are flattened for cuDNN, as in a CUDA build.
Encoder layers on a device take the ordinary ops in eval mode; their fast path is not simulated.
"""

from __future__ import annotations

import sys
import types
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch._jit_internal import is_scripting
from torch.autograd import profiler

from fakegpu_lab.driver.base.tensor import FakeCudaTensor

if TYPE_CHECKING:
    from fakegpu_lab.driver.base.patches import Patches


def _enter_nvtx(self: Any) -> Any:
    """`emit_nvtx.__enter__`, without the ranges of ops: no NVIDIA profiler is there to see them."""
    if not self.enabled:
        return None
    if self.entered:
        raise RuntimeError("NVTX annotation context manager is not reentrant")
    self.entered = True
    torch.cuda.synchronize()
    return self


def _exit_nvtx(self: Any, *exception: Any) -> bool | None:
    """`emit_nvtx.__exit__`."""
    if not self.enabled:
        return None
    torch.cuda.synchronize()
    return False


def _fast_path() -> bool:
    """Whether a module may take its fast path: if this is enabled, and its input is not on a device."""
    forward = sys._getframe(2).f_locals
    source = forward.get("src", forward.get("query"))
    return bool(torch.backends.mha._is_fastpath_enabled) and source.__class__ is not FakeCudaTensor


def get_fastpath_enabled() -> bool:
    """`torch.backends.mha.get_fastpath_enabled`, which TorchScript compiles, too."""
    return _fast_path() if not is_scripting() else False


def install(patches: Patches) -> None:
    """Install the patches."""
    patches.set(torch.backends.mha, "get_fastpath_enabled", get_fastpath_enabled)
    patches.set(profiler.emit_nvtx, "__enter__", _enter_nvtx)
    patches.set(profiler.emit_nvtx, "__exit__", _exit_nvtx)
    patches.set(torch, "_use_cudnn_rnn_flatten_weight", lambda: True)
    modes = types.SimpleNamespace(rnn_relu=0, rnn_tanh=1, lstm=2, gru=3)  # cudnnRNNMode_t
    # sys.modules has an object with properties, which wraps the module with the functions.
    # Import it by its full name: in torch 2.10, the attribute `torch.backends.cudnn.rnn` is something else.
    cudnn_rnn = import_module("torch.backends.cudnn.rnn")
    patches.set(getattr(cudnn_rnn, "m", cudnn_rnn), "_cudnn", types.SimpleNamespace(RNNMode=modes))
