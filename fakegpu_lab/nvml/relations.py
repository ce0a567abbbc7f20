"""What the library answers about processes on the cards, and about the links between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.nvml.library import (
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
from fakegpu_lab.nvml.topology import LEVELS

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.nvml.library import Library
    from fakegpu_lab.nvml.view import Gpu

_NO_INSTANCE = 0xFFFFFFFF


def _compute_processes(library: Library, handle: Any, count: Any, infos: Any) -> None:
    processes = library.gpu(handle).processes
    room = number(target(count))
    put(count, len(processes))
    if len(processes) > room or (processes and infos is None):
        raise NvmlError(INSUFFICIENT_SIZE)
    for place, process in enumerate(processes):
        fill(infos[place], pid=process.pid, usedGpuMemory=process.used, gpuInstanceId=_NO_INSTANCE,
             computeInstanceId=_NO_INSTANCE, usedGpuCcProtectedMemory=0)  # fmt: skip


def _no_processes(library: Library, handle: Any, count: Any, infos: Any) -> None:
    library.gpu(handle)
    put(count, 0)


def _process_utilization(library: Library, handle: Any, samples: Any, count: Any, since: Any) -> None:
    gpu = library.gpu(handle)
    room = number(target(count))
    put(count, len(gpu.processes))
    if not gpu.processes:
        raise NvmlError(NOT_FOUND)
    if samples is None or room < len(gpu.processes):
        raise NvmlError(INSUFFICIENT_SIZE)
    whole = sum(process.busy for process in gpu.processes)
    for place, process in enumerate(gpu.processes):
        memory = round(gpu.sensors.memory * process.busy / whole) if whole else 0
        fill(samples[place], pid=process.pid, timeStamp=number(since) + 1, smUtil=min(100, round(100 * process.busy)),
             memUtil=memory, encUtil=0, decUtil=0)  # fmt: skip


def _throughput(library: Library, handle: Any, counter: Any, kilobytes: Any) -> None:
    library.gpu(handle)
    put(kilobytes, 0)


def _common_ancestor(library: Library, first: Any, second: Any, level: Any) -> None:
    a, b = library.gpu(first).card.index, library.gpu(second).card.index
    put(level, LEVELS.get(library.view.topology.links[a][b], LEVELS["NODE"]))


def _p2p_status(library: Library, first: Any, second: Any, kind: Any, status: Any) -> None:
    a, b = library.gpu(first).card.index, library.gpu(second).card.index
    topology = library.view.topology
    nvlink = topology.links[a][b].startswith("NV")
    put(status, 0 if (nvlink if number(kind) == 2 else topology.peers[a][b]) else 5)  # 5: not supported


def _nvlink_state(library: Library, handle: Any, link: Any, active: Any) -> None:
    _port(library, handle, link)
    put(active, 1)


def _nvlink_version(library: Library, handle: Any, link: Any, version: Any) -> None:
    put(version, _port(library, handle, link).card.link_version)


def _port(library: Library, handle: Any, link: Any) -> Gpu:
    gpu = library.gpu(handle)
    if not 0 <= number(link) < gpu.card.links:
        raise NvmlError(INVALID_ARGUMENT if gpu.card.links else NOT_SUPPORTED)
    return gpu


def _field_values(library: Library, handle: Any, count: Any, values: Any) -> None:
    library.gpu(handle)
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
