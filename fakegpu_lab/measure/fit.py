"""From measured figures to a profile: the values with which the simulation takes the measured times.

A profile's peaks are those of the data sheet, which no program reaches, and the simulation knows what is lost on the
way (`hardware.time.roofline`, `hardware.network.links`). So each value is found by turning the model around: the
memory's bandwidth is the one with which a streaming kernel takes the measured time.

If a card's power limit bounds its products, they say nothing about its peak: it would be as fast with a higher one.
Such a peak is taken from the nearest known card, for this card's multiprocessors and clock, and named in ``estimated``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from fakegpu_lab.hardware.catalogue.lookup import catalogue, gpu, key, usual_host
from fakegpu_lab.hardware.catalogue.profile import HostProfile, Nvlink, Pcie, PeakFlops
from fakegpu_lab.hardware.network.links import NVLINK_EFFICIENCY, PCIE_EFFICIENCY, PCIE_EFFICIENCY_ELSE
from fakegpu_lab.hardware.time import host_costs
from fakegpu_lab.hardware.time.roofline import Roofline
from fakegpu_lab.measure.figures import rate_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.hardware.catalogue.profile import GpuProfile
    from fakegpu_lab.measure.figures import Figures, Timed

SIZES_GIB = (1, 2, 3, 4, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 80, 94, 96, 128, 141, 180, 192, 288)
"""The sizes of memory that cards are sold with."""
HIGH, LOW = 8.0, 1 / 32
"""How far a value may be from the nearest known card's."""
FLAT = 0.01
"""Times within this of the shortest that any peak allows say nothing about the peak."""
_BYTES = {"fp64": 24, "fp64_tensor": 24, "fp32": 12, "tf32": 12, "fp16": 6, "bf16": 6, "fp8": 4, "int8": 6}
"""Of one element of both factors and the result."""
_OPS = {"view": host_costs.VIEW, "add_": host_costs.IN_PLACE, "add": host_costs.POINTWISE, "mm": host_costs.PRODUCT}


class Fitted(NamedTuple):
    """A card's profile and its host's, and the known card that it was compared with.

    Attributes
    ----------
    estimated
        Keys of what was not measured, with the reason.
    """

    card: GpuProfile
    host: HostProfile | None
    nearest: GpuProfile
    estimated: dict[str, str]


def nearest(figures: Figures) -> GpuProfile:
    """The known card of the same name, or of the same compute capability and most similar size."""
    properties = figures.properties
    known = [gpu(name) for name in catalogue("gpus")]

    def distance(card: GpuProfile) -> float:
        capability = (properties["major"], properties["minor"])
        return (
            10.0 * abs(math.log((card.compute_capability[0] + 0.1) / (capability[0] + 0.1)))
            + (card.compute_capability != capability)
            + abs(math.log(card.sm_count / properties["multi_processor_count"]))
            + abs(math.log(card.total_memory_bytes / properties["total_memory"]))
        )

    same = [card for card in known if key(card.name) == key(figures.name)]
    whole = [card for card in known if "mig" not in card.id.split("-")]  # an instance is a part of a card
    return min(same or whole, key=distance)


def solve(time_of: Callable[[float], float], seconds: float, low: float, high: float) -> float:
    """The value with which `time_of`, which falls with it, is this many seconds; a bound if it is beyond one.

    >>> round(solve(lambda value: 100 / value, 4, 1, 1000), 6)
    25.0
    """
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if time_of(middle) > seconds else (low, middle)
    return math.sqrt(low * high)


def fit(figures: Figures) -> Fitted:
    """Find the profile of a card, and its host's."""
    base = nearest(figures)
    estimated: dict[str, str] = {}
    card = base.model_copy(update={**_constant(figures, base), "estimated": (), "aliases": ()})
    card = card.model_copy(update=_memory(figures, card, base, estimated))
    card = card.model_copy(update={"peak_flops": _peaks(figures, card, base, estimated)})
    card = card.model_copy(update=_links(figures, base, estimated))
    if not figures.context:
        estimated["context"] = "not measured: the nearest known card's"
    return Fitted(card, _host(figures, card), base, estimated)


def _constant(figures: Figures, base: GpuProfile) -> dict[str, Any]:
    """What the card says about itself."""
    properties, nvml = figures.properties, figures.nvml
    total = properties["total_memory"]
    label = min((gib << 30 for gib in SIZES_GIB if gib << 30 >= total), default=total)
    found = {
        "name": figures.name,
        "status": "measured",
        "compute_capability": (properties["major"], properties["minor"]),
        "memory_bytes": max(label, int(nvml.get("framebuffer", 0))),
        "total_memory_bytes": total,
        "context_bytes": figures.context or base.context_bytes,
        "sm_count": properties["multi_processor_count"],
        "core_clock_mhz": properties["clock_rate"] / 1e3 if "clock_rate" in properties else nvml.get("clock_mhz"),
        "memory_clock_mhz": (
            properties["memory_clock_rate"] / 1e3 if "memory_clock_rate" in properties else nvml.get("memory_clock_mhz")
        ),
        "memory_bus_bits": properties.get("memory_bus_width"),
        "l2_bytes": properties.get("L2_cache_size"),
        "regs_per_sm": properties.get("regs_per_multiprocessor"),
        "max_threads_per_sm": properties.get("max_threads_per_multi_processor"),
        "shared_mem_per_sm": properties.get("shared_memory_per_multiprocessor"),
        "shared_mem_per_block": properties.get("shared_memory_per_block"),
        "shared_mem_per_block_optin": properties.get("shared_memory_per_block_optin"),
        "warp_size": properties.get("warp_size"),
        "power_limit_w": nvml.get("power_limit_w"),
        "pci_device_id": nvml.get("pci_device_id"),
        "ecc": nvml.get("ecc"),
    }
    return {name: value for name, value in found.items() if value is not None}


def _memory(figures: Figures, card: GpuProfile, base: GpuProfile, estimated: dict[str, str]) -> dict[str, Any]:
    streamed = figures.streaming
    if streamed is None:
        estimated["memory_bandwidth"] = "not measured: the nearest known card's"
        return {}

    def seconds(bandwidth: float) -> float:
        return Roofline(card.model_copy(update={"memory_bandwidth": int(bandwidth)})).streaming(streamed.amount) / 1e9

    known = base.memory_bandwidth
    bandwidth = round(solve(seconds, streamed.seconds, known * LOW, known * HIGH))
    pumps = bandwidth / (card.memory_bus_bits / 8 * card.memory_clock_mhz * 1e6)
    return {"memory_bandwidth": bandwidth, "memory_pumps": max(1, round(pumps))}


def _peaks(figures: Figures, card: GpuProfile, base: GpuProfile, estimated: dict[str, str]) -> PeakFlops:
    scale = card.sm_count * card.core_clock_mhz / (base.sm_count * base.core_clock_mhz)
    sheet = {fmt: peak * scale for fmt, peak in base.peak_flops.given().items()}
    found = dict(sheet)
    for fmt, by_sheet in sheet.items():
        product = figures.products.get(_product_of(fmt, sheet))
        if product is None:
            estimated[f"peak_flops.{fmt}"] = "not measured: the nearest known card's, by multiprocessors and clock"
            continue
        peaks = card.model_copy(update={"peak_flops": PeakFlops(**sheet)})
        peak, flat = _peak(peaks, fmt, product, by_sheet)
        if flat:
            estimated[f"peak_flops.{fmt}"] = (
                "the power limit bounds the products, not the peak: the nearest known card's, by multiprocessors and "
                "clock"
            )
        else:
            found[fmt] = peak
    return PeakFlops(**found)


def _product_of(fmt: str, sheet: dict[str, float]) -> str:
    """The product that shows a peak; empty for fp64 where cuBLAS multiplies fp64 matrices on the tensor cores."""
    if fmt == "fp64_tensor":
        return "fp64"
    return "" if fmt == "fp64" and "fp64_tensor" in sheet else fmt


def _peak(card: GpuProfile, fmt: str, product: Timed, by_sheet: float) -> tuple[float, bool]:
    """The peak with which a product takes the measured time, and whether a higher one would not change it."""
    n = product.amount

    def seconds(peak: float) -> float:
        changed = card.peak_flops.model_copy(update={fmt: peak})
        roofline = Roofline(card.model_copy(update={"peak_flops": changed}))
        return roofline.gemm(fmt, n, n, n, nbytes=_BYTES[fmt] * n * n) / 1e9

    shortest = seconds(by_sheet * HIGH)
    if product.seconds <= shortest * (1 + FLAT):
        return by_sheet, True
    return solve(seconds, product.seconds, by_sheet * LOW, by_sheet * HIGH), False


def pcie_rate(generation: int, lanes: int) -> float:
    """Bytes per second that copies from and to pinned memory get over PCI Express."""
    efficiency = PCIE_EFFICIENCY.get(generation, PCIE_EFFICIENCY_ELSE)
    return Pcie(generation=generation, lanes=lanes).bandwidth * efficiency  # type: ignore[arg-type]


def _links(figures: Figures, base: GpuProfile, estimated: dict[str, str]) -> dict[str, Any]:
    """PCI Express: the generation whose rate is nearest to the measured one. NVLink: from a copy between two cards."""
    found: dict[str, Any] = {}
    up = figures.copies.get("h2d_pinned")
    if up is None:
        estimated["pcie"] = "not measured: the nearest known card's"
    else:
        lanes = figures.nvml.get("pcie_lanes", base.pcie.lanes)
        generation = min(range(1, 8), key=lambda one: abs(math.log(pcie_rate(one, lanes) / rate_of(up))))
        found["pcie"] = Pcie(generation=generation, lanes=lanes)
    peer = figures.copies.get("peer")
    if peer is None:
        if base.nvlink is not None:
            estimated["nvlink"] = "not measured, with one card: the nearest known card's"
        return found
    fastest = pcie_rate(found["pcie"].generation, found["pcie"].lanes) if "pcie" in found else 0.0
    if rate_of(peer) > 1.3 * fastest:
        bandwidth = round(2 * rate_of(peer) / NVLINK_EFFICIENCY)
        ports = base.nvlink or Nvlink(generation=1, links=1, bandwidth=bandwidth)
        found["nvlink"] = ports.model_copy(update={"bandwidth": bandwidth})
    else:
        found["nvlink"] = None
    return found


def _host(figures: Figures, card: GpuProfile) -> HostProfile | None:
    """The factor and the launch time that come nearest to the ops' times: least squares of the relative errors."""
    times = {op: seconds * 1e6 for op, seconds in figures.calls.items() if op in _OPS and seconds > 0}
    if len(times) < 2 or not any(op != "view" for op in times):
        return None
    # seconds = factor · reference + launches · launch, each row divided by its time
    rows = [(_OPS[op].forward / 1e3 / us, (op != "view") / us) for op, us in times.items()]
    aa, ab, bb = (sum(row[i] * row[j] for row in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = sum(row[0] for row in rows), sum(row[1] for row in rows)
    determinant = aa * bb - ab * ab
    factor, launch = (a * bb - b * ab) / determinant, (aa * b - ab * a) / determinant
    usual = usual_host(card.segment, card.architecture)
    return usual.model_copy(
        update={
            "name": f"The host of {figures.name}", "aliases": (), "cpu": figures.cpu or usual.cpu, "usual_for": (),
            "factor": round(max(factor, 0.0), 4), "launch_us": round(max(launch, 0.1), 3), "status": "measured",
        }
    )  # fmt: skip
