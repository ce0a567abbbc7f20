"""Patches parts of torch that would bypass the simulation, and fail or flood stderr.

`emit_nvtx` waits for the device, as on CUDA, and emits nothing.
The weights of LSTMs are flattened for cuDNN, as in a CUDA build.
"""

from __future__ import annotations

import types
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import profiler

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


def install(patches: Patches) -> None:
    """Install the patches."""
    patches.set(profiler.emit_nvtx, "__enter__", _enter_nvtx)
    patches.set(profiler.emit_nvtx, "__exit__", _exit_nvtx)
    patches.set(torch, "_use_cudnn_rnn_flatten_weight", lambda: True)
    modes = types.SimpleNamespace(rnn_relu=0, rnn_tanh=1, lstm=2, gru=3)  # cudnnRNNMode_t
    # sys.modules has an object with properties, which wraps the module with the functions.
    # Import it by its full name: in torch 2.10, the attribute `torch.backends.cudnn.rnn` is something else.
    cudnn_rnn = import_module("torch.backends.cudnn.rnn")
    patches.set(getattr(cudnn_rnn, "m", cudnn_rnn), "_cudnn", types.SimpleNamespace(RNNMode=modes))
