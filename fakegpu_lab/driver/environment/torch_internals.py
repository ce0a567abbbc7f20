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

from fakegpu_lab.driver.base.changes import added, computed, replaced
from fakegpu_lab.driver.base.tensor import FakeCudaTensor

if TYPE_CHECKING:
    from fakegpu_lab.driver.base.changes import Change


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


_RNN_MODES = types.SimpleNamespace(rnn_relu=0, rnn_tanh=1, lstm=2, gru=3)  # cudnnRNNMode_t


def _fast_path() -> bool:
    """Whether a module may take its fast path: if this is enabled, and its input is not on a device."""
    forward = sys._getframe(2).f_locals
    source = forward.get("src", forward.get("query"))
    return bool(torch.backends.mha._is_fastpath_enabled) and source.__class__ is not FakeCudaTensor


def get_fastpath_enabled() -> bool:
    """`torch.backends.mha.get_fastpath_enabled`, which TorchScript compiles and Dynamo traces, too."""
    if not is_scripting():  # noqa: SIM102 - TorchScript leaves out an `if` of its own
        if not torch.compiler.is_compiling():
            return _fast_path()
    return False


def _cudnn_rnn() -> list[Change]:
    # sys.modules has an object with properties, which wraps the module with the functions.
    # Its full name: in torch 2.10, the attribute `torch.backends.cudnn.rnn` is something else.
    path = "torch.backends.cudnn.rnn"
    inner = ".m" if hasattr(import_module(path), "m") else ""
    return [added(f"{path}{inner}._cudnn", types.SimpleNamespace(RNNMode=_RNN_MODES), "CPU builds lack it")]


CHANGES = [
    replaced("torch.backends.mha.get_fastpath_enabled", get_fastpath_enabled, "there is no fast path on a device"),
    replaced("torch.autograd.profiler.emit_nvtx.__enter__", _enter_nvtx, "NVTX marks nothing here"),
    replaced("torch.autograd.profiler.emit_nvtx.__exit__", _exit_nvtx, "NVTX marks nothing here"),
    replaced("torch._use_cudnn_rnn_flatten_weight", lambda: True, "recurrent layers flatten their weights"),
    computed(_cudnn_rnn, "recurrent layers ask for cuDNN's modes"),
]
