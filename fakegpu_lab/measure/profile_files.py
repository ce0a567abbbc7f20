"""The files of a measured card and its host, as `lab.enable` reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from fakegpu_lab.hardware.catalogue.profile import GpuProfile
    from fakegpu_lab.measure.figures import Figures
    from fakegpu_lab.measure.fit import Fitted

_SIZES = {
    "memory_bytes": "memory", "total_memory_bytes": "total_memory", "l2_bytes": "l2", "context_bytes": "context",
    "shared_mem_per_sm": "", "shared_mem_per_block": "", "shared_mem_per_block_optin": "",
}  # fmt: skip
"""The fields that are bytes, with their keys if those differ."""
_PLAIN = (
    "pci_device_id", "memory_bus_bits", "memory_clock_mhz", "memory_pumps", "ecc", "sm_count", "core_clock_mhz",
    "power_limit_w", "regs_per_sm", "max_threads_per_sm", "warp_size",
)  # fmt: skip


def provenance(figures: Figures) -> str:
    """One line: when, with which software and on which machine it was measured."""
    driver = figures.nvml.get("driver", "unknown")
    return (
        f"Measured by fakegpu-lab measure on {figures.date}: driver {driver}, torch {figures.torch} (CUDA "
        f"{figures.cuda}), {figures.system}, {figures.cpu}"
    )


def card_file(fitted: Fitted, figures: Figures) -> str:
    """The YAML of the card: what was measured; the rest is the nearest known card's (``based_on``)."""
    card = fitted.card
    fields: dict[str, Any] = {
        "based_on": fitted.nearest.id,
        "name": card.name,
        "compute_capability": ".".join(map(str, card.compute_capability)),
        "status": "measured",
        **{key or name: _size(getattr(card, name)) for name, key in _SIZES.items()},
        "memory_bandwidth": _bandwidth(card.memory_bandwidth),
        **{name: _number(getattr(card, name)) for name in _PLAIN},
        "peak_flops": _peaks(card),
        "pcie": card.pcie.model_dump(),
    }
    if card.nvlink is not None:
        fields["nvlink"] = {**card.nvlink.model_dump(), "bandwidth": _bandwidth(card.nvlink.bandwidth)}
    elif fitted.nearest.nvlink is not None:
        fields["nvlink"] = None
    fields["estimated"] = list(fitted.estimated)
    fields["source"] = [provenance(figures)]
    notes = [f"{key} is estimated ({why})." for key, why in fitted.estimated.items()]
    return _commented(notes) + _yaml(fields)


def host_file(fitted: Fitted, figures: Figures) -> str | None:
    """The YAML of the host; None if its calls were not measured."""
    host = fitted.host
    if host is None:
        return None
    fields = {
        "name": host.name,
        "cpu": host.cpu,
        "status": "measured",
        "factor": host.factor,
        "launch_us": host.launch_us,
        "source": [provenance(figures)],
    }
    return _yaml(fields)


def _yaml(fields: dict[str, Any]) -> str:
    return yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=118)


def _commented(notes: list[str]) -> str:
    return "".join(f"# {note}\n" for note in notes)


def _size(nbytes: int) -> str:
    """Bytes, in the largest unit that says them exactly in two decimals."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= scale and nbytes * 100 % scale == 0:
            return f"{nbytes / scale:g} {unit}"
    return f"{nbytes} B"


def _bandwidth(rate: float) -> str:
    return f"{float(f'{rate / 1e9:.4g}'):g} GB/s"


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _peaks(card: GpuProfile) -> dict[str, str]:
    unit = {"int8": "TOP/s"}
    return {
        name: f"{float(f'{rate / 1e12:.4g}')} {unit.get(name, 'TFLOP/s')}"
        for name, rate in card.peak_flops.given().items()
    }
