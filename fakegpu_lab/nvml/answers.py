"""What the library answers, function by function, under NVML's own names (nvml.h; the version suffix is left out).

A plain reading is a line of `_NUMBERS`; what takes more arguments or fills a structure is a function.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fakegpu_lab.nvml import CUDA_VERSION, relations
from fakegpu_lab.nvml.cards import MIB
from fakegpu_lab.nvml.library import (
    INVALID_ARGUMENT,
    NOT_FOUND,
    NOT_SUPPORTED,
    NvmlError,
    fill,
    number,
    point,
    put,
    target,
    text,
)
from fakegpu_lab.nvml.sensors import SHUTDOWN_C, SLOWDOWN_C, TARGET_C

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.nvml.library import Library
    from fakegpu_lab.nvml.view import Gpu

_ARCHITECTURES = {
    "maxwell": 3,
    "pascal": 4,
    "volta": 5,
    "turing": 6,
    "ampere": 7,
    "ada": 8,
    "hopper": 9,
    "blackwell": 10,
}
_BRANDS = {"NVIDIA": 14, "Quadro": 1, "Tesla": 2, "GeForce": 5, "Titan": 6, "NVIDIA RTX": 12}
_IDLE, _NO_REASON = 1, 0
_GRAPHICS, _SM, _MEMORY = 0, 1, 2

_NUMBERS: dict[str, Callable[[Gpu], int | None]] = {
    "nvmlDeviceGetIndex": lambda gpu: gpu.card.index,
    "nvmlDeviceGetMinorNumber": lambda gpu: gpu.card.index,
    "nvmlDeviceGetBoardId": lambda gpu: gpu.card.bus << 8,
    "nvmlDeviceGetMultiGpuBoard": lambda gpu: 0,
    "nvmlDeviceGetBrand": lambda gpu: _BRANDS[gpu.card.brand],
    "nvmlDeviceGetArchitecture": lambda gpu: _ARCHITECTURES.get(gpu.card.architecture),
    "nvmlDeviceGetNumGpuCores": lambda gpu: gpu.card.cores,
    "nvmlDeviceGetMemoryBusWidth": lambda gpu: gpu.card.memory_bus_bits,
    "nvmlDeviceGetPowerUsage": lambda gpu: round(gpu.sensors.power * 1000),
    "nvmlDeviceGetEnforcedPowerLimit": lambda gpu: round(gpu.card.power_limit * 1000),
    "nvmlDeviceGetPowerManagementLimit": lambda gpu: round(gpu.card.power_limit * 1000),
    "nvmlDeviceGetPowerManagementDefaultLimit": lambda gpu: round(gpu.card.power_limit * 1000),
    "nvmlDeviceGetPowerManagementMode": lambda gpu: 1,
    "nvmlDeviceGetPerformanceState": lambda gpu: gpu.sensors.pstate,
    "nvmlDeviceGetPowerState": lambda gpu: gpu.sensors.pstate,
    "nvmlDeviceGetFanSpeed": lambda gpu: gpu.sensors.fan,
    "nvmlDeviceGetNumFans": lambda gpu: 0 if gpu.card.passive else 1,
    "nvmlDeviceGetComputeMode": lambda gpu: 0,
    "nvmlDeviceGetPersistenceMode": lambda gpu: 1,
    "nvmlDeviceGetDisplayMode": lambda gpu: 0,
    "nvmlDeviceGetDisplayActive": lambda gpu: 0,
    "nvmlDeviceGetMaxMigDeviceCount": lambda gpu: 7 if gpu.card.mig else 0,
    "nvmlDeviceIsMigDeviceHandle": lambda gpu: 0,
    "nvmlDeviceGetCurrPcieLinkGeneration": lambda gpu: min(gpu.card.pcie_generation, gpu.card.host_pcie_generation),
    "nvmlDeviceGetMaxPcieLinkGeneration": lambda gpu: min(gpu.card.pcie_generation, gpu.card.host_pcie_generation),
    "nvmlDeviceGetGpuMaxPcieLinkGeneration": lambda gpu: gpu.card.pcie_generation,
    "nvmlDeviceGetCurrPcieLinkWidth": lambda gpu: gpu.card.pcie_width,
    "nvmlDeviceGetMaxPcieLinkWidth": lambda gpu: gpu.card.pcie_width,
    "nvmlDeviceGetPcieReplayCounter": lambda gpu: 0,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: _NO_REASON if gpu.processes else _IDLE,
    "nvmlDeviceGetCurrentClocksEventReasons": lambda gpu: _NO_REASON if gpu.processes else _IDLE,
}

_TEXTS: dict[str, Callable[[Gpu], str]] = {
    "nvmlDeviceGetName": lambda gpu: gpu.card.name,
    "nvmlDeviceGetUUID": lambda gpu: gpu.card.uuid,
}


def find(name: str) -> Callable[..., None] | None:
    """What answers a function of the C library; None for "Not Supported"."""
    bare = re.sub(r"_v\d+$", "", name)
    if bare in _NUMBERS:
        return _reading(_NUMBERS[bare])
    if bare in _TEXTS:
        return lambda library, handle, buffer, *_: put(buffer, _TEXTS[bare](library.gpu(handle)))
    return _FUNCTIONS.get(name) or _FUNCTIONS.get(bare)


def _reading(read: Callable[[Gpu], int | None]) -> Callable[..., None]:
    def answer(library: Library, handle: Any, *rest: Any) -> None:
        value = read(library.gpu(handle))
        if value is None:
            raise NvmlError(NOT_SUPPORTED)
        put(rest[-1], value)

    return answer


# ------------------------------------------------------------------- the system


def _driver_version(library: Library, buffer: Any, *_: Any) -> None:
    put(buffer, library.driver)


def _nvml_version(library: Library, buffer: Any, *_: Any) -> None:
    put(buffer, f"{CUDA_VERSION[0]}.{library.driver}")


def _cuda_version(library: Library, version: Any) -> None:
    put(version, CUDA_VERSION[0] * 1000 + CUDA_VERSION[1] * 10)


def _process_name(library: Library, pid: Any, buffer: Any, *_: Any) -> None:
    for gpu in library.view.gpus:
        for process in gpu.processes:
            if process.pid == number(pid):
                return put(buffer, process.name)
    raise NvmlError(NOT_FOUND)


def _count(library: Library, count: Any) -> None:
    put(count, len(library.view.gpus))


def _no_units(library: Library, count: Any) -> None:
    put(count, 0)


def _by_index(library: Library, index: Any, handle: Any) -> None:
    if not 0 <= number(index) < len(library.view.gpus):
        raise NvmlError(INVALID_ARGUMENT)
    point(handle, number(index))


def _by_uuid(library: Library, uuid: Any, handle: Any) -> None:
    _point_at(library, handle, lambda gpu: gpu.card.uuid == text(uuid))


def _by_bus_id(library: Library, bus_id: Any, handle: Any) -> None:
    wanted = text(bus_id).upper()
    _point_at(library, handle, lambda gpu: gpu.card.bus_id.upper().endswith(wanted.lstrip("0:") or wanted))


def _point_at(library: Library, handle: Any, fits: Callable[[Gpu], bool]) -> None:
    for place, gpu in enumerate(library.view.gpus):
        if fits(gpu):
            return point(handle, place)
    raise NvmlError(NOT_FOUND)


# --------------------------------------------------------------------- one card


def _pci_info(library: Library, handle: Any, info: Any) -> None:
    card = library.gpu(handle).card
    fill(
        info, busIdLegacy=card.bus_id[4:].encode(), busId=card.bus_id.encode(), domain=card.domain, bus=card.bus,
        device=0, pciDeviceId=card.pci_device_id, pciSubSystemId=card.pci_device_id,
    )  # fmt: skip


def _capability(library: Library, handle: Any, major: Any, minor: Any) -> None:
    put(major, library.gpu(handle).card.capability[0])
    put(minor, library.gpu(handle).card.capability[1])


def _memory(library: Library, handle: Any, memory: Any) -> None:
    gpu = library.gpu(handle)
    reserved = gpu.card.reserved
    has_reserved = any(name == "reserved" for name, *_ in target(memory)._fields_)
    used = gpu.used if has_reserved else gpu.used + reserved  # the first version counts what the driver keeps as used
    fill(memory, total=gpu.card.memory, reserved=reserved, free=gpu.free, used=used)


def _bar1(library: Library, handle: Any, memory: Any) -> None:
    size = 256 * MIB
    while size < library.gpu(handle).card.memory:
        size *= 2
    fill(memory, bar1Total=size, bar1Used=MIB, bar1Free=size - MIB)


def _utilization(library: Library, handle: Any, rates: Any) -> None:
    sensors = library.gpu(handle).sensors
    fill(rates, gpu=sensors.gpu, memory=sensors.memory)


def _unused_engine(library: Library, handle: Any, utilization: Any, period_us: Any) -> None:
    library.gpu(handle)
    put(utilization, 0)
    put(period_us, 1_000_000 // 6)


def _temperature(library: Library, handle: Any, sensor: Any, temperature: Any) -> None:
    gpu = library.gpu(handle)
    if number(sensor) != 0:
        raise NvmlError(INVALID_ARGUMENT)
    put(temperature, gpu.sensors.temperature)


def _temperature_v(library: Library, handle: Any, temperature: Any) -> None:
    fill(temperature, temperature=library.gpu(handle).sensors.temperature)


def _threshold(library: Library, handle: Any, kind: Any, temperature: Any) -> None:
    library.gpu(handle)
    known = {0: SHUTDOWN_C, 1: SLOWDOWN_C, 3: TARGET_C}
    if number(kind) not in known:
        raise NvmlError(NOT_SUPPORTED)
    put(temperature, known[number(kind)])


def _power_limits(library: Library, handle: Any, least: Any, most: Any) -> None:
    limit = library.gpu(handle).card.power_limit
    put(least, round(limit * 250))
    put(most, round(limit * 1000))


def _clock(library: Library, handle: Any, kind: Any, *rest: Any) -> None:
    sensors = library.gpu(handle).sensors
    put(rest[-1], sensors.memory_clock if number(kind) == _MEMORY else sensors.clock)


def _max_clock(library: Library, handle: Any, kind: Any, *rest: Any) -> None:
    card = library.gpu(handle).card
    put(rest[-1], card.memory_clock if number(kind) == _MEMORY else card.clock)


def _ecc_mode(library: Library, handle: Any, now: Any, pending: Any) -> None:
    on = _with_ecc(library, handle)
    put(now, int(on))
    put(pending, int(on))


def _with_ecc(library: Library, handle: Any) -> bool:
    card = library.gpu(handle).card
    if not card.ecc and card.segment != "datacenter":
        raise NvmlError(NOT_SUPPORTED)
    return card.ecc


def _ecc_errors(library: Library, handle: Any, *rest: Any) -> None:
    if not _with_ecc(library, handle):
        raise NvmlError(NOT_SUPPORTED)
    put(rest[-1], 0)


def _mig_mode(library: Library, handle: Any, now: Any, pending: Any) -> None:
    if not library.gpu(handle).card.mig:
        raise NvmlError(NOT_SUPPORTED)
    put(now, 0)
    put(pending, 0)


_FUNCTIONS: dict[str, Callable[..., None]] = relations.FUNCTIONS | {
    "nvmlSystemGetDriverVersion": _driver_version,
    "nvmlSystemGetNVMLVersion": _nvml_version,
    "nvmlSystemGetCudaDriverVersion": _cuda_version,
    "nvmlSystemGetProcessName": _process_name,
    "nvmlUnitGetCount": _no_units,
    "nvmlDeviceGetCount": _count,
    "nvmlDeviceGetHandleByIndex": _by_index,
    "nvmlDeviceGetHandleByUUID": _by_uuid,
    "nvmlDeviceGetHandleByPciBusId": _by_bus_id,
    "nvmlDeviceGetPciInfo": _pci_info,
    "nvmlDeviceGetCudaComputeCapability": _capability,
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetBAR1MemoryInfo": _bar1,
    "nvmlDeviceGetUtilizationRates": _utilization,
    "nvmlDeviceGetEncoderUtilization": _unused_engine,
    "nvmlDeviceGetDecoderUtilization": _unused_engine,
    "nvmlDeviceGetJpgUtilization": _unused_engine,
    "nvmlDeviceGetOfaUtilization": _unused_engine,
    "nvmlDeviceGetTemperature": _temperature,
    "nvmlDeviceGetTemperatureV": _temperature_v,
    "nvmlDeviceGetTemperatureThreshold": _threshold,
    "nvmlDeviceGetPowerManagementLimitConstraints": _power_limits,
    "nvmlDeviceGetClockInfo": _clock,
    "nvmlDeviceGetClock": _clock,
    "nvmlDeviceGetMaxClockInfo": _max_clock,
    "nvmlDeviceGetApplicationsClock": _max_clock,
    "nvmlDeviceGetDefaultApplicationsClock": _max_clock,
    "nvmlDeviceGetEccMode": _ecc_mode,
    "nvmlDeviceGetTotalEccErrors": _ecc_errors,
    "nvmlDeviceGetMemoryErrorCounter": _ecc_errors,
    "nvmlDeviceGetMigMode": _mig_mode,
}
