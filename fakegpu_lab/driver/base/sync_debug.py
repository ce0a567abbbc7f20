"""``torch.cuda.set_sync_debug_mode``: a warning or an error at each operation that makes the host wait for a device.

`synchronizing` is called where CUDA's sources call `memcpy_and_sync` and `stream_synchronize`
(c10/cuda/CUDAFunctions.h): for copies that are not ``non_blocking``, for values and sizes that the host reads, and for
`torch.cuda.Stream.synchronize`. As on CUDA, `torch.cuda.synchronize`, events and collectives do not count. Simplified:
an op that waits several times on CUDA warns once, and the warning does not name a line of C++.
"""

from __future__ import annotations

from fakegpu_lab.user_code import warning_lines

OFF, WARN, ERROR = range(3)
mode = OFF
"""The mode of this process; `set_mode` sets it."""

_TEXT = "called a synchronizing CUDA operation"
_announced = False


def synchronizing() -> None:
    """Call this before the host waits for a device: warns or raises, if the user wants that."""
    if mode == WARN:
        warning_lines.warn(_TEXT)
    elif mode == ERROR:
        raise RuntimeError(_TEXT)


def set_mode(new: int) -> None:
    """``torch._C._cuda_set_sync_debug_mode`` (torch/csrc/cuda/Module.cpp)."""
    global mode, _announced
    if not _announced:
        _announced = True
        warning_lines.warn(
            "Synchronization debug mode is a prototype feature and does not yet detect all synchronizing operations"
        )
    if isinstance(new, bool) or not isinstance(new, int):
        raise RuntimeError("invalid argument to set_sync_debug_mode")
    if new not in (OFF, WARN, ERROR):
        raise RuntimeError("invalid value of debug_mode, expected one of 0,1,2")
    mode = new


def reset() -> None:
    """Turn it off, as in a new process."""
    global mode, _announced
    mode, _announced = OFF, False
