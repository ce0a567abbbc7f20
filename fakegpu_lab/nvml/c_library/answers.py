"""What the C functions about the system and its cards answer, by their names in nvml.h, without the version suffix.

A function that returns one number of a card is a line of `_NUMBERS`; one that takes more arguments or fills a structure
is a function here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fakegpu_lab.nvml import CUDA_VERSION, DRIVER_VERSION
from fakegpu_lab.nvml.c_library import process_and_link_answers
from fakegpu_lab.nvml.c_library.arguments import (
    INVALID_ARGUMENT,
    NOT_FOUND,
    NOT_SUPPORTED,
    NvmlError,
    fill,
    number,
    put,
    target,
    text,
)
from fakegpu_lab.nvml.c_library.handles import current_view, gpu_of, put_handle
from fakegpu_lab.nvml.cards import MIB
from fakegpu_lab.nvml.sensors import SHUTDOWN_C, SLOWDOWN_C, TARGET_C

if TYPE_CHECKING:
    from collections.abc import Callable

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
_MEMORY_CLOCK = 2

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
    "nvmlDeviceGetCurrPcieLinkGeneration": lambda gpu: gpu.card.pcie_link_generation,
    "nvmlDeviceGetMaxPcieLinkGeneration": lambda gpu: gpu.card.pcie_link_generation,
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
    """The function that answers a call of the C library; None where it returns "Not Supported"."""
    bare = re.sub(r"_v\d+$", "", name)
    if bare in _NUMBERS:
        return _reading(_NUMBERS[bare])
    if bare in _TEXTS:
        return lambda handle, buffer, *_: put(buffer, _TEXTS[bare](gpu_of(handle)))
    return _FUNCTIONS.get(name) or _FUNCTIONS.get(bare)


def _reading(read: Callable[[Gpu], int | None]) -> Callable[..., None]:
    def answer(handle: Any, *rest: Any) -> None:
        value = read(gpu_of(handle))
        if value is None:
            raise NvmlError(NOT_SUPPORTED)
        put(rest[-1], value)

    return answer


# ------------------------------------------------------------------- the system


def _driver_version(buffer: Any, *_: Any) -> None:
    put(buffer, DRIVER_VERSION)


def _nvml_version(buffer: Any, *_: Any) -> None:
    put(buffer, f"{CUDA_VERSION[0]}.{DRIVER_VERSION}")


def _cuda_version(version: Any) -> None:
    put(version, CUDA_VERSION[0] * 1000 + CUDA_VERSION[1] * 10)


def _process_name(pid: Any, buffer: Any, *_: Any) -> None:
    for gpu in current_view().gpus:
        for process in gpu.processes:
            if process.pid == number(pid):
                return put(buffer, process.name)
    raise NvmlError(NOT_FOUND)


def _count(count: Any) -> None:
    put(count, len(current_view().gpus))


def _no_units(count: Any) -> None:
    put(count, 0)


def _by_index(index: Any, handle: Any) -> None:
    if not 0 <= number(index) < len(current_view().gpus):
        raise NvmlError(INVALID_ARGUMENT)
    put_handle(handle, number(index))


def _by_uuid(uuid: Any, handle: Any) -> None:
    _put_handle_where(handle, lambda gpu: gpu.card.uuid == text(uuid))


def _by_bus_id(bus_id: Any, handle: Any) -> None:
    wanted = text(bus_id).upper()
    _put_handle_where(handle, lambda gpu: gpu.card.bus_id.upper().endswith(wanted.lstrip("0:") or wanted))


def _put_handle_where(handle: Any, fits: Callable[[Gpu], bool]) -> None:
    for index, gpu in enumerate(current_view().gpus):
        if fits(gpu):
            return put_handle(handle, index)
    raise NvmlError(NOT_FOUND)


# --------------------------------------------------------------------- one card


def _pci_info(handle: Any, info: Any) -> None:
    card = gpu_of(handle).card
    fill(
        info, busIdLegacy=card.bus_id[4:].encode(), busId=card.bus_id.encode(), domain=card.domain, bus=card.bus,
        device=0, pciDeviceId=card.pci_device_id, pciSubSystemId=card.pci_device_id,
    )  # fmt: skip


def _capability(handle: Any, major: Any, minor: Any) -> None:
    put(major, gpu_of(handle).card.capability[0])
    put(minor, gpu_of(handle).card.capability[1])


def _memory(handle: Any, memory: Any) -> None:
    gpu = gpu_of(handle)
    reserved = gpu.card.reserved
    has_reserved = any(name == "reserved" for name, *_ in target(memory)._fields_)
    used = gpu.used if has_reserved else gpu.used + reserved  # the first version counts the driver's part as used
    fill(memory, total=gpu.card.memory, reserved=reserved, free=gpu.free, used=used)


def _bar1(handle: Any, memory: Any) -> None:
    size = gpu_of(handle).card.bar1
    fill(memory, bar1Total=size, bar1Used=MIB, bar1Free=size - MIB)


def _utilization(handle: Any, rates: Any) -> None:
    sensors = gpu_of(handle).sensors
    fill(rates, gpu=sensors.gpu, memory=sensors.memory)


def _unused_engine(handle: Any, utilization: Any, period_us: Any) -> None:
    gpu_of(handle)
    put(utilization, 0)
    put(period_us, 1_000_000 // 6)


def _temperature(handle: Any, sensor: Any, temperature: Any) -> None:
    gpu = gpu_of(handle)
    if number(sensor) != 0:
        raise NvmlError(INVALID_ARGUMENT)
    put(temperature, gpu.sensors.temperature)


def _temperature_v(handle: Any, temperature: Any) -> None:
    fill(temperature, temperature=gpu_of(handle).sensors.temperature)


def _threshold(handle: Any, kind: Any, temperature: Any) -> None:
    gpu_of(handle)
    known = {0: SHUTDOWN_C, 1: SLOWDOWN_C, 3: TARGET_C}
    if number(kind) not in known:
        raise NvmlError(NOT_SUPPORTED)
    put(temperature, known[number(kind)])


def _power_limits(handle: Any, least: Any, most: Any) -> None:
    limit = gpu_of(handle).card.power_limit
    put(least, round(limit * 250))
    put(most, round(limit * 1000))


def _clock(handle: Any, kind: Any, *rest: Any) -> None:
    sensors = gpu_of(handle).sensors
    put(rest[-1], sensors.memory_clock if number(kind) == _MEMORY_CLOCK else sensors.clock)


def _max_clock(handle: Any, kind: Any, *rest: Any) -> None:
    card = gpu_of(handle).card
    put(rest[-1], card.memory_clock if number(kind) == _MEMORY_CLOCK else card.clock)


def _ecc_mode(handle: Any, now: Any, pending: Any) -> None:
    on = _ecc_enabled(handle)
    put(now, int(on))
    put(pending, int(on))


def _ecc_enabled(handle: Any) -> bool:
    mode = gpu_of(handle).card.ecc_mode
    if mode is None:
        raise NvmlError(NOT_SUPPORTED)
    return mode == "Enabled"


def _ecc_errors(handle: Any, *rest: Any) -> None:
    if not _ecc_enabled(handle):
        raise NvmlError(NOT_SUPPORTED)
    put(rest[-1], 0)


def _mig_mode(handle: Any, now: Any, pending: Any) -> None:
    if not gpu_of(handle).card.mig:
        raise NvmlError(NOT_SUPPORTED)
    put(now, 0)
    put(pending, 0)


_FUNCTIONS: dict[str, Callable[..., None]] = process_and_link_answers.FUNCTIONS | {
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
