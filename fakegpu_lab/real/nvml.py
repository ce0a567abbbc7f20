"""NVML's figures of a card, by its CUDA ordinal, through nvidia-ml-py (`pynvml`).

A card lacks some of them: nvidia-ml-py raises "Not Supported" then, and here they are None. Without nvidia-ml-py or
without a driver, all of them are.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

MISSING = (
    "nvidia-ml-py is not installed, so utilization, temperature and processes are unknown: pip install nvidia-ml-py"
)


class Process(NamedTuple):
    """A process on a card, and the bytes that it holds there; None where the driver does not say (WSL, containers)."""

    pid: int
    used: int | None


class Readings(NamedTuple):
    """A card now.

    Attributes
    ----------
    used, free
        Bytes of the card's memory, of all processes.
    utilization
        The fraction of the driver's last sample period in which a kernel ran, 0 to 1.
    temperature, power
        °C, watts.
    """

    used: int | None
    free: int | None
    utilization: float | None
    temperature: int | None
    power: float | None
    processes: tuple[Process, ...]


def why_missing() -> str:
    """Why there is no NVML, as a sentence with what to do; empty if there is."""
    try:
        import pynvml  # noqa: F401
    except ImportError:
        return f"{MISSING}."
    return (
        "" if _library() is not None else "NVML does not answer, so utilization, temperature and processes are unknown."
    )


@functools.cache
def _library() -> Any:
    """`pynvml`, initialised; None without it, or without a driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # ImportError, or one of the library's own
        return None
    return pynvml


@functools.lru_cache(maxsize=64)
def _uuid(ordinal: int, _visible: str | None) -> str:
    import torch

    uuid = str(torch.cuda.get_device_properties(ordinal).uuid)
    return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


def _handle(library: Any, ordinal: int) -> Any:
    """A card's handle: CUDA's order may differ from NVML's, and CUDA_VISIBLE_DEVICES leaves cards out."""
    return library.nvmlDeviceGetHandleByUUID(_uuid(ordinal, os.environ.get("CUDA_VISIBLE_DEVICES")))


def used_bytes(ordinal: int) -> int | None:
    """Bytes of a card's memory that processes hold; None if NVML does not say."""
    return readings(ordinal).used


def _asked(ordinal: int, question: Callable[[Any, Any], Any]) -> Any:
    """An answer of NVML's; None if it has none."""
    library = _library()
    if library is None:
        return None
    try:
        try:
            return question(library, _handle(library, ordinal))
        except library.NVMLError_Uninitialized:  # another user of this process has shut it down
            library.nvmlInit()
            return question(library, _handle(library, ordinal))
    except Exception:  # not supported, lost, no permission
        return None


def memory(library: Any, handle: Any) -> Any:
    """``total``, ``free`` and ``used`` in bytes; older drivers count their own part as used."""
    try:
        return library.nvmlDeviceGetMemoryInfo(handle, version=library.nvmlMemory_v2)
    except library.NVMLError:
        return library.nvmlDeviceGetMemoryInfo(handle)


def readings(ordinal: int) -> Readings:
    """Read a card; this waits for the driver, not for the card's work."""
    found = _asked(ordinal, memory)
    rates = _asked(ordinal, lambda library, handle: library.nvmlDeviceGetUtilizationRates(handle))
    power = _asked(ordinal, lambda library, handle: library.nvmlDeviceGetPowerUsage(handle))
    return Readings(
        used=None if found is None else int(found.used),
        free=None if found is None else int(found.free),
        utilization=None if rates is None else rates.gpu / 100,
        temperature=_asked(
            ordinal, lambda library, handle: library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU)
        ),
        power=None if power is None else power / 1000,
        processes=tuple(
            Process(int(one.pid), None if one.usedGpuMemory is None else int(one.usedGpuMemory))
            for one in _asked(ordinal, lambda library, handle: library.nvmlDeviceGetComputeRunningProcesses(handle))
            or ()
        ),
    )


def facts(ordinal: int) -> dict[str, Any]:
    """What does not change: those of the driver's version, limits, clocks (MHz), ECC and PCI link that it says."""
    asked: dict[str, Callable[[Any, Any], Any]] = {
        "driver": lambda library, handle: _text(library.nvmlSystemGetDriverVersion()),
        "framebuffer": lambda library, handle: int(memory(library, handle).total),
        "power_limit_w": lambda library, handle: library.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1000,
        "clock_mhz": lambda library, handle: library.nvmlDeviceGetMaxClockInfo(handle, library.NVML_CLOCK_SM),
        "memory_clock_mhz": lambda library, handle: library.nvmlDeviceGetMaxClockInfo(handle, library.NVML_CLOCK_MEM),
        "ecc": lambda library, handle: bool(library.nvmlDeviceGetEccMode(handle)[0]),
        "pcie_generation": lambda library, handle: library.nvmlDeviceGetMaxPcieLinkGeneration(handle),
        "pcie_lanes": lambda library, handle: library.nvmlDeviceGetMaxPcieLinkWidth(handle),
        "pci_device_id": lambda library, handle: library.nvmlDeviceGetPciInfo(handle).pciDeviceId >> 16,
    }
    found = {name: _asked(ordinal, question) for name, question in asked.items()}
    return {name: value for name, value in found.items() if value is not None}


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
