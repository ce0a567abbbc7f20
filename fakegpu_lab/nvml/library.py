"""libnvidia-ml in Python: what nvidia-ml-py (`pynvml`) gets in place of NVIDIA's library. Start with `attach`.

nvidia-ml-py's functions run unmodified. They look C functions up by their names in nvml.h and pass plain numbers,
ctypes values, buffers, and ``byref(…)`` of what the function should fill. Answered are the functions that torch,
accelerate, gpustat and nvitop call; one that returns one number of a card is a line of `_NUMBERS`. Every other
function returns "Not Supported", as a driver does on a card that lacks the feature.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from typing import TYPE_CHECKING, Any

from fakegpu_lab.nvml import CUDA_VERSION, DRIVER_VERSION, discovery
from fakegpu_lab.nvml.cards import MIB

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.nvml.view import Gpu, View

_SUCCESS, _UNINITIALIZED, _INVALID_ARGUMENT, _NOT_SUPPORTED, _NOT_FOUND, _INSUFFICIENT_SIZE = 0, 1, 2, 3, 6, 7
_LIBRARY_NOT_FOUND = 12
_HANDLE = 0x10_0000
"""A handle is this plus the card's index in the view; nothing ever follows the pointer."""
_NO_INSTANCE = 0xFFFFFFFF
_MEMORY_CLOCK = 2


def attach(module: Any = None) -> Callable[[], None]:
    """Give `pynvml` the simulated library in place of NVIDIA's; return the function that undoes it.

    nvidia-ml-py loads the library at its first use (`_LoadNvmlLibrary`) and caches the functions found there
    (`_nvmlGetFunctionPointer_cache`); gpustat and nvitop patch only the layer above that.
    """
    pynvml: Any = sys.modules.get("pynvml", module)  # `module` may be the one that `injected` loaded
    pynvml = getattr(pynvml, "nvml", pynvml) if not hasattr(pynvml, "nvmlLib") else pynvml
    if not hasattr(pynvml, "_nvmlGetFunctionPointer_cache"):
        return lambda: None
    before, count = pynvml.nvmlLib, pynvml._nvmlLib_refcount
    pynvml.nvmlLib = Library(pynvml)
    pynvml._nvmlGetFunctionPointer_cache.clear()

    def detach() -> None:
        pynvml.nvmlLib, pynvml._nvmlLib_refcount = before, count
        pynvml._nvmlGetFunctionPointer_cache.clear()

    return detach


class Library:
    """Takes the place of nvidia-ml-py's `ctypes.CDLL`; `pynvml`, the module, gives it the error texts."""

    def __init__(self, pynvml: Any) -> None:
        self.pynvml = pynvml
        self._init_count = 0

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        answer = _answer(name)

        def function(*arguments: Any) -> int | bytes:
            if name.startswith("nvmlInit"):
                return self._init()
            if name == "nvmlErrorString":
                return str(self.pynvml.NVMLError(_number(arguments[0]))).encode()
            if not self._init_count:
                return _UNINITIALIZED
            if name == "nvmlShutdown":
                self._init_count -= 1
                return _SUCCESS
            try:
                answer(*arguments)
            except _NvmlError as error:
                return int(error.args[0])
            return _SUCCESS

        function.__name__ = name
        return function

    def _init(self) -> int:
        if not discovery.present():
            return _LIBRARY_NOT_FOUND
        self._init_count += 1
        return _SUCCESS


class _NvmlError(Exception):
    """A return code other than `_SUCCESS`: ``args[0]``."""


# ---------------------------------------------------------------- arguments


def _target(argument: Any) -> Any:
    """What a ``byref(…)`` or a pointer points to."""
    found = getattr(argument, "_obj", None)
    if found is not None:
        return found
    return argument.contents if hasattr(argument, "contents") else argument


def _number(argument: Any) -> int:
    return int(getattr(argument, "value", argument))


def _text(argument: Any) -> str:
    found = getattr(argument, "value", argument)
    return found.decode() if isinstance(found, bytes) else str(found)


def _fill(argument: Any, **values: Any) -> None:
    """Set those of a structure's fields that its version has."""
    structure = _target(argument)
    names = {entry[0] for entry in structure._fields_}
    for name in names & values.keys():
        setattr(structure, name, values[name])


def _put(argument: Any, value: Any) -> None:
    _target(argument).value = value.encode() if isinstance(value, str) else value


def _view() -> View:
    found = discovery.current()
    if found is None:
        raise _NvmlError(_UNINITIALIZED)
    return found


def _gpu(handle: Any) -> Gpu:
    index = (ctypes.cast(handle, ctypes.c_void_p).value or 0) - _HANDLE
    gpus = _view().gpus
    if not 0 <= index < len(gpus):
        raise _NvmlError(_INVALID_ARGUMENT)
    return gpus[index]


def _put_handle(argument: Any, index: int) -> None:
    value = ctypes.c_void_p(_HANDLE + index)
    ctypes.memmove(ctypes.addressof(_target(argument)), ctypes.byref(value), ctypes.sizeof(value))


def _put_handle_where(argument: Any, fits: Callable[[Gpu], bool]) -> None:
    for index, gpu in enumerate(_view().gpus):
        if fits(gpu):
            return _put_handle(argument, index)
    raise _NvmlError(_NOT_FOUND)


# ------------------------------------------------------------------ answers


def _by_index(index: Any, handle: Any) -> None:
    if not 0 <= _number(index) < len(_view().gpus):
        raise _NvmlError(_INVALID_ARGUMENT)
    _put_handle(handle, _number(index))


def _by_bus_id(bus_id: Any, handle: Any) -> None:
    wanted = _text(bus_id).upper()
    _put_handle_where(handle, lambda gpu: gpu.card.bus_id.upper().endswith(wanted.lstrip("0:") or wanted))


def _pci_info(handle: Any, info: Any) -> None:
    card = _gpu(handle).card
    _fill(
        info, busIdLegacy=card.bus_id[4:].encode(), busId=card.bus_id.encode(), domain=card.domain, bus=card.bus,
        device=0, pciDeviceId=card.pci_device_id, pciSubSystemId=card.pci_device_id,
    )  # fmt: skip


def _capability(handle: Any, major: Any, minor: Any) -> None:
    _put(major, _gpu(handle).card.capability[0])
    _put(minor, _gpu(handle).card.capability[1])


def _memory(handle: Any, memory: Any) -> None:
    gpu = _gpu(handle)
    reserved = gpu.card.reserved
    has_reserved = any(name == "reserved" for name, *_ in _target(memory)._fields_)
    used = gpu.used if has_reserved else gpu.used + reserved  # the first version counts the driver's part as used
    _fill(memory, total=gpu.card.memory, reserved=reserved, free=gpu.free, used=used)


def _bar1(handle: Any, memory: Any) -> None:
    """BAR1 has at least 256 MiB, and room to map all of the memory."""
    size = max(256 * MIB, 1 << (_gpu(handle).card.memory - 1).bit_length())
    _fill(memory, bar1Total=size, bar1Used=MIB, bar1Free=size - MIB)


def _utilization(handle: Any, rates: Any) -> None:
    sensors = _gpu(handle).sensors
    _fill(rates, gpu=sensors.gpu, memory=sensors.memory)


def _video(handle: Any, utilization: Any, period_us: Any) -> None:
    _gpu(handle)
    _put(utilization, 0)
    _put(period_us, 1_000_000 // 6)


def _temperature(handle: Any, sensor: Any, temperature: Any) -> None:
    gpu = _gpu(handle)
    if _number(sensor) != 0:
        raise _NvmlError(_INVALID_ARGUMENT)
    _put(temperature, gpu.sensors.temperature)


def _clock(handle: Any, kind: Any, clock: Any) -> None:
    sensors = _gpu(handle).sensors
    _put(clock, sensors.memory_clock if _number(kind) == _MEMORY_CLOCK else sensors.clock)


def _max_clock(handle: Any, kind: Any, clock: Any) -> None:
    card = _gpu(handle).card
    _put(clock, card.memory_clock if _number(kind) == _MEMORY_CLOCK else card.clock)


def _ecc_mode(handle: Any, now: Any, pending: Any) -> None:
    mode = _gpu(handle).card.ecc_mode
    if mode is None:
        raise _NvmlError(_NOT_SUPPORTED)
    _put(now, int(mode == "Enabled"))
    _put(pending, int(mode == "Enabled"))


def _ecc_errors(handle: Any, *rest: Any) -> None:
    if _gpu(handle).card.ecc_mode != "Enabled":
        raise _NvmlError(_NOT_SUPPORTED)
    _put(rest[-1], 0)


def _mig_mode(handle: Any, now: Any, pending: Any) -> None:
    if not _gpu(handle).card.mig:
        raise _NvmlError(_NOT_SUPPORTED)
    _put(now, 0)
    _put(pending, 0)


def _compute_processes(handle: Any, count: Any, infos: Any) -> None:
    found = _gpu(handle).processes
    room = _number(_target(count))
    _put(count, len(found))
    if len(found) > room or (found and infos is None):
        raise _NvmlError(_INSUFFICIENT_SIZE)
    for place, process in enumerate(found):
        _fill(infos[place], pid=process.pid, usedGpuMemory=process.used, gpuInstanceId=_NO_INSTANCE,
              computeInstanceId=_NO_INSTANCE, usedGpuCcProtectedMemory=0)  # fmt: skip


def _no_processes(handle: Any, count: Any, infos: Any) -> None:
    _gpu(handle)
    _put(count, 0)


def _process_utilization(handle: Any, samples: Any, count: Any, since: Any) -> None:
    gpu = _gpu(handle)
    room = _number(_target(count))
    _put(count, len(gpu.processes))
    if not gpu.processes:
        raise _NvmlError(_NOT_FOUND)
    if samples is None or room < len(gpu.processes):
        raise _NvmlError(_INSUFFICIENT_SIZE)
    for place, process in enumerate(gpu.processes):
        _fill(samples[place], pid=process.pid, timeStamp=_number(since) + 1, smUtil=process.utilization,
              memUtil=gpu.memory_utilization(process), encUtil=0, decUtil=0)  # fmt: skip


def _throughput(handle: Any, counter: Any, kilobytes: Any) -> None:
    _gpu(handle)
    _put(kilobytes, 0)


def _cpu_affinity(handle: Any, size: Any, words: Any) -> None:
    """The CPUs next to a card, a bit each: all that this process may use, since sockets are not simulated."""
    _gpu(handle)
    if not hasattr(os, "sched_getaffinity"):
        raise _NvmlError(_NOT_SUPPORTED)  # NVIDIA's library has it on Linux alone, too
    mask = sum(1 << cpu for cpu in os.sched_getaffinity(0))
    for place in range(_number(size)):
        _target(words)[place] = mask >> 64 * place & (1 << 64) - 1


def _field_values(handle: Any, count: Any, values: Any) -> None:
    _gpu(handle)
    for place in range(_number(count)):
        _target(values)[place].nvmlReturn = _NOT_SUPPORTED


_NUMBERS: dict[str, Callable[[Gpu], int | None]] = {
    "nvmlDeviceGetIndex": lambda gpu: gpu.card.index,
    "nvmlDeviceGetPowerUsage": lambda gpu: round(gpu.sensors.power * 1000),
    "nvmlDeviceGetEnforcedPowerLimit": lambda gpu: round(gpu.card.power_limit * 1000),
    "nvmlDeviceGetPowerManagementLimit": lambda gpu: round(gpu.card.power_limit * 1000),
    "nvmlDeviceGetPowerManagementDefaultLimit": lambda gpu: round(gpu.card.power_limit * 1000),
    "nvmlDeviceGetMaxPcieLinkGeneration": lambda gpu: gpu.card.pcie_link_generation,
    "nvmlDeviceGetCurrPcieLinkGeneration": lambda gpu: gpu.card.pcie_link_generation,
    "nvmlDeviceGetMaxPcieLinkWidth": lambda gpu: gpu.card.pcie_width,
    "nvmlDeviceGetCurrPcieLinkWidth": lambda gpu: gpu.card.pcie_width,
    "nvmlDeviceGetPerformanceState": lambda gpu: gpu.sensors.pstate,
    "nvmlDeviceGetFanSpeed": lambda gpu: gpu.sensors.fan,
    "nvmlDeviceGetComputeMode": lambda gpu: 0,
    "nvmlDeviceGetPersistenceMode": lambda gpu: 1,
    "nvmlDeviceGetDisplayMode": lambda gpu: 0,
    "nvmlDeviceGetDisplayActive": lambda gpu: 0,
    "nvmlDeviceGetMaxMigDeviceCount": lambda gpu: 7 if gpu.card.mig else 0,
    "nvmlDeviceIsMigDeviceHandle": lambda gpu: 0,
}
"""Functions that return one number of a card; None is "Not Supported"."""

_FUNCTIONS: dict[str, Callable[..., None]] = {
    "nvmlSystemGetDriverVersion": lambda buffer, size: _put(buffer, DRIVER_VERSION),
    "nvmlSystemGetCudaDriverVersion": lambda version: _put(version, CUDA_VERSION[0] * 1000 + CUDA_VERSION[1] * 10),
    "nvmlDeviceGetCount": lambda count: _put(count, len(_view().gpus)),
    "nvmlDeviceGetHandleByIndex": _by_index,
    "nvmlDeviceGetHandleByUUID": lambda uuid, handle: _put_handle_where(handle, lambda g: g.card.uuid == _text(uuid)),
    "nvmlDeviceGetHandleByPciBusId": _by_bus_id,
    "nvmlDeviceGetName": lambda handle, buffer, size: _put(buffer, _gpu(handle).card.name),
    "nvmlDeviceGetUUID": lambda handle, buffer, size: _put(buffer, _gpu(handle).card.uuid),
    "nvmlDeviceGetPciInfo": _pci_info,
    "nvmlDeviceGetCudaComputeCapability": _capability,
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetBAR1MemoryInfo": _bar1,
    "nvmlDeviceGetUtilizationRates": _utilization,
    "nvmlDeviceGetEncoderUtilization": _video,
    "nvmlDeviceGetDecoderUtilization": _video,
    "nvmlDeviceGetTemperature": _temperature,
    "nvmlDeviceGetTemperatureV": lambda handle, reading: _fill(reading, temperature=_gpu(handle).sensors.temperature),
    "nvmlDeviceGetClockInfo": _clock,
    "nvmlDeviceGetMaxClockInfo": _max_clock,
    "nvmlDeviceGetEccMode": _ecc_mode,
    "nvmlDeviceGetTotalEccErrors": _ecc_errors,
    "nvmlDeviceGetMigMode": _mig_mode,
    "nvmlDeviceGetComputeRunningProcesses": _compute_processes,
    "nvmlDeviceGetGraphicsRunningProcesses": _no_processes,
    "nvmlDeviceGetMPSComputeRunningProcesses": _no_processes,
    "nvmlDeviceGetProcessUtilization": _process_utilization,
    "nvmlDeviceGetPcieThroughput": _throughput,
    "nvmlDeviceGetCpuAffinity": _cpu_affinity,
    "nvmlDeviceGetFieldValues": _field_values,
}


def _answer(name: str) -> Callable[..., None]:
    """The function that answers a call of the C library, whatever its version suffix."""
    bare = re.sub(r"_v\d+$", "", name)
    read = _NUMBERS.get(bare)
    if read is not None:
        return lambda handle, number: _put_number(number, read(_gpu(handle)))
    return _FUNCTIONS.get(bare, _not_supported)


def _put_number(argument: Any, value: int | None) -> None:
    if value is None:
        raise _NvmlError(_NOT_SUPPORTED)
    _put(argument, value)


def _not_supported(*arguments: Any) -> None:
    raise _NvmlError(_NOT_SUPPORTED)
