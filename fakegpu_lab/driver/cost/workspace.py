"""Device memory that libraries take for themselves: cuBLAS's workspace, and what others borrow (`Row.borrows`).

The workspaces of cuDNN's recurrent layers and of fused attention are taken where these are computed.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.device_memory import new, take_bytes
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.hardware.first_use import CUBLAS
from fakegpu_lab.hardware.time.clock import here, launch

if TYPE_CHECKING:
    from fakegpu_lab.driver.cost.op import Op, Plan
    from fakegpu_lab.driver.cost.work import Launch
    from fakegpu_lab.hardware.device import Device

_make_wrapper = torch.Tensor._make_wrapper_subclass

_HOPPER = 32 * 1024 * 1024
_BEFORE_HOPPER = 8_519_680  # ":4096:2:16:8" in KiB: 4096·2 + 16·8


chosen: int | None = None
"""The size that ``torch.backends.cuda.cublas_workspace_size`` has set."""


def workspace_bytes(device: Device) -> int:
    """The bytes of a cuBLAS workspace on `device` (getChosenWorkspaceSize in CublasHandlePool.cpp).

    ``CUBLAS_WORKSPACE_CONFIG=:SIZE:COUNT[:SIZE:COUNT]`` adds up to SIZE·COUNT KiB.
    """
    if chosen is not None:
        return chosen
    pairs = re.findall(r":(\d+):(\d+)", os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""))
    if pairs:
        return sum(int(size) * int(count) * 1024 for size, count in pairs)
    return _HOPPER if device.profile.compute_capability[0] in (9, 10, 12) else _BEFORE_HOPPER


def ensure_workspace(device: Device) -> None:
    """Take the cuBLAS workspace of the current stream, unless it has one: once for each (handle, stream), and kept."""
    stream = device.stream
    if stream not in device.workspaces:
        device.first_uses.library(CUBLAS)
        device.workspaces[stream] = taken = take_bytes(device, workspace_bytes(device))
        taken.kind = "workspace"


def borrowing(op: Op, plan: Plan) -> Plan:
    """`plan`, and the memory that a library takes while the op computes; the same plan for most ops.

    The memory is taken when the results have theirs, and given back at once. If there is not enough, PyTorch tries
    another algorithm (aten/src/ATen/native/cudnn/Conv_v8.cpp, try_plans), which is taken to need none.
    """
    borrows = op.row.borrows
    if borrows is None:
        return plan

    def borrowing(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = plan(args, kwargs)
        if args[0].__class__ is FakeCudaTensor:
            device = args[0]._device
            with suppress(torch.OutOfMemoryError):
                for nbytes in borrows(device, args, result):
                    take_bytes(device, nbytes)
        return result

    return borrowing


def product(inner: torch.Tensor, device: Device, kernel: Launch) -> FakeCudaTensor:
    """A new tensor with the values `inner`, a product that cuBLAS computes in `kernel`."""
    tensor = new(inner, device)
    host = here.host
    launch(host, host.streams[device], *kernel)
    ensure_workspace(device)
    return tensor
