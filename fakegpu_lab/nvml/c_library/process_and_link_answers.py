"""What the C functions about processes on the cards and about the links between cards answer; see `answers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.nvml.c_library.arguments import (
    INSUFFICIENT_SIZE,
    INVALID_ARGUMENT,
    NOT_FOUND,
    NOT_SUPPORTED,
    NvmlError,
    fill,
    number,
    put,
    target,
)
from fakegpu_lab.nvml.c_library.handles import current_view, gpu_of
from fakegpu_lab.nvml.topology import LEVELS

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.nvml.view import Gpu

_NO_INSTANCE = 0xFFFFFFFF


def _compute_processes(handle: Any, count: Any, infos: Any) -> None:
    processes = gpu_of(handle).processes
    room = number(target(count))
    put(count, len(processes))
    if len(processes) > room or (processes and infos is None):
        raise NvmlError(INSUFFICIENT_SIZE)
    for place, process in enumerate(processes):
        fill(infos[place], pid=process.pid, usedGpuMemory=process.used, gpuInstanceId=_NO_INSTANCE,
             computeInstanceId=_NO_INSTANCE, usedGpuCcProtectedMemory=0)  # fmt: skip


def _no_processes(handle: Any, count: Any, infos: Any) -> None:
    gpu_of(handle)
    put(count, 0)


def _process_utilization(handle: Any, samples: Any, count: Any, since: Any) -> None:
    gpu = gpu_of(handle)
    room = number(target(count))
    put(count, len(gpu.processes))
    if not gpu.processes:
        raise NvmlError(NOT_FOUND)
    if samples is None or room < len(gpu.processes):
        raise NvmlError(INSUFFICIENT_SIZE)
    for place, process in enumerate(gpu.processes):
        fill(samples[place], pid=process.pid, timeStamp=number(since) + 1, smUtil=process.utilization,
             memUtil=gpu.memory_utilization(process), encUtil=0, decUtil=0)  # fmt: skip


def _throughput(handle: Any, counter: Any, kilobytes: Any) -> None:
    gpu_of(handle)
    put(kilobytes, 0)


def _common_ancestor(first: Any, second: Any, level: Any) -> None:
    a, b = gpu_of(first).card.index, gpu_of(second).card.index
    put(level, LEVELS.get(current_view().topology.links[a][b], LEVELS["NODE"]))


def _p2p_status(first: Any, second: Any, kind: Any, status: Any) -> None:
    a, b = gpu_of(first).card.index, gpu_of(second).card.index
    topology = current_view().topology
    nvlink = topology.links[a][b].startswith("NV")
    put(status, 0 if (nvlink if number(kind) == 2 else topology.peers[a][b]) else 5)  # 5: not supported


def _nvlink_state(handle: Any, link: Any, active: Any) -> None:
    _port(handle, link)
    put(active, 1)


def _nvlink_version(handle: Any, link: Any, version: Any) -> None:
    put(version, _port(handle, link).card.link_version)


def _port(handle: Any, link: Any) -> Gpu:
    gpu = gpu_of(handle)
    if not 0 <= number(link) < gpu.card.links:
        raise NvmlError(INVALID_ARGUMENT if gpu.card.links else NOT_SUPPORTED)
    return gpu


def _field_values(handle: Any, count: Any, values: Any) -> None:
    gpu_of(handle)
    array = target(values)
    for place in range(number(count)):
        array[place].nvmlReturn = NOT_SUPPORTED


FUNCTIONS: dict[str, Callable[..., None]] = {
    "nvmlDeviceGetComputeRunningProcesses": _compute_processes,
    "nvmlDeviceGetGraphicsRunningProcesses": _no_processes,
    "nvmlDeviceGetMPSComputeRunningProcesses": _no_processes,
    "nvmlDeviceGetProcessUtilization": _process_utilization,
    "nvmlDeviceGetPcieThroughput": _throughput,
    "nvmlDeviceGetTopologyCommonAncestor": _common_ancestor,
    "nvmlDeviceGetP2PStatus": _p2p_status,
    "nvmlDeviceGetNvLinkState": _nvlink_state,
    "nvmlDeviceGetNvLinkVersion": _nvlink_version,
    "nvmlDeviceGetFieldValues": _field_values,
}
