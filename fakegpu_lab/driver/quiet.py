"""Parts of torch that would go round the simulation, and fail or flood stderr: told to take another way.

The profiler would record CUDA events through the C++ half that a CPU build lacks: it records the host's side only.
`nn.TransformerEncoder` in eval mode would make nested tensors of masked batches, which cannot live on a simulated
device yet: it takes the plain way, with the same results. A CUDA build would flatten the weights of LSTMs for cuDNN.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
import torch.backends.mha
from torch.autograd import profiler

if TYPE_CHECKING:
    from fakegpu_lab.driver.patches import Patches


def install(patches: Patches) -> None:
    """Patch the profiler's set-up, the fast path's switch and cuDNN's."""
    original = profiler.profile.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("use_device") == "cuda":
            kwargs["use_device"] = None
        if kwargs.get("use_cuda"):
            kwargs["use_cuda"] = False
        original(self, *args, **kwargs)

    patches.set(profiler.profile, "__init__", init)
    patches.set(torch.backends.mha, "get_fastpath_enabled", lambda: False)
    patches.set(torch, "_use_cudnn_rnn_flatten_weight", lambda: False)
