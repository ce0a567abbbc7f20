"""Device memory that libraries take for themselves: the workspace of cuBLAS.

cuDNN's is charged where its kernels run: that of recurrent layers in `ops.recurrent.cudnn_rnn`, that of fused attention
in `ops.attention`, that of convolutions in `ops.convolution` (`convolutions.workspaces` says how much).
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from fakegpu_lab.driver.base.device_memory import take_bytes

if TYPE_CHECKING:
    from fakegpu_lab.hardware.device import Device

_HOPPER = 32 * 1024 * 1024
_BEFORE_HOPPER = 8_519_680  # ":4096:2:16:8" in KiB: 4096·2 + 16·8


def workspace_bytes(device: Device) -> int:
    """The bytes of a cuBLAS workspace on `device` (getChosenWorkspaceSize in CublasHandlePool.cpp).

    ``CUBLAS_WORKSPACE_CONFIG=:SIZE:COUNT[:SIZE:COUNT]`` adds up to SIZE·COUNT KiB.
    """
    pairs = re.findall(r":(\d+):(\d+)", os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""))
    if pairs:
        return sum(int(size) * int(count) * 1024 for size, count in pairs)
    return _HOPPER if device.profile.compute_capability[0] in (9, 10, 12) else _BEFORE_HOPPER


def ensure_workspace(device: Device) -> None:
    """Take the cuBLAS workspace of the current stream, unless it has one: once for each (handle, stream), and kept."""
    stream = device.stream
    if stream not in device.workspaces:
        device.workspaces[stream] = take_bytes(device, workspace_bytes(device))
