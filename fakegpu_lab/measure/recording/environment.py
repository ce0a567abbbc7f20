"""Which machine this is: card, driver, torch, every device property, and the context's share of the memory."""

from __future__ import annotations

import platform
import shutil
import subprocess
from typing import Any

import torch

from .common import attempt


def _properties() -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(0)
    values = {}
    for name in dir(properties):
        value = None if name.startswith("_") else getattr(properties, name)
        if not name.startswith("_") and not callable(value):
            values[name] = value if isinstance(value, (int, float, str, bool)) else str(value)
    return values


def _driver() -> int:
    version: int = torch._C._cuda_getDriverVersion()
    return version


def _smi() -> str:
    if shutil.which("nvidia-smi") is None:
        return "no nvidia-smi"
    query = "name,driver_version,memory.total,memory.used,clocks.max.sm,clocks.max.mem,power.limit,persistence_mode"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader", "--id=0"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout.strip()


def _context() -> dict[str, int]:
    """Bytes in use on the card that torch's allocator does not know of: the context, and other processes."""
    torch.cuda.init()
    torch.empty(1, device="cuda")
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return {"free": free, "total": total, "outside_torch": total - free - torch.cuda.memory_reserved()}


def record(quick: bool) -> dict[str, Any]:
    """Record the environment; nothing here takes time, so `quick` changes nothing."""
    backends = torch.backends
    return {
        "context": attempt(_context),  # first: it makes the context
        "device_name": attempt(torch.cuda.get_device_name),
        "device_count": attempt(torch.cuda.device_count),
        "capability": attempt(lambda: list(torch.cuda.get_device_capability())),
        "properties": attempt(_properties),
        "arch_list": attempt(torch.cuda.get_arch_list),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": attempt(backends.cudnn.version),
        "nccl": attempt(lambda: list(torch.cuda.nccl.version())),
        "driver": attempt(_driver),
        "nvidia_smi": attempt(_smi),
        "python": platform.python_version(),
        "system": platform.platform(),
        "bf16_supported": attempt(torch.cuda.is_bf16_supported),
        "bf16_native": attempt(lambda: torch.cuda.is_bf16_supported(including_emulation=False)),
        "float32_matmul_precision": attempt(torch.get_float32_matmul_precision),
        "cudnn_allow_tf32": attempt(lambda: backends.cudnn.allow_tf32),
        "matmul_allow_tf32": attempt(lambda: backends.cuda.matmul.allow_tf32),
        "cudnn_benchmark": attempt(lambda: backends.cudnn.benchmark),
        "sdp_backends": attempt(
            lambda: {
                "flash": backends.cuda.flash_sdp_enabled(),
                "efficient": backends.cuda.mem_efficient_sdp_enabled(),
                "math": backends.cuda.math_sdp_enabled(),
                "cudnn": backends.cuda.cudnn_sdp_enabled(),
            }
        ),
        "stream_priorities": attempt(lambda: list(torch.cuda.Stream.priority_range())),
        "allocator_backend": attempt(torch.cuda.get_allocator_backend),
    }
