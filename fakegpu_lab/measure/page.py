"""The page about a measured card, as Markdown: beside the nearest known card's data sheet and its simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.formatting.units import amount, capacity, duration, several, size
from fakegpu_lab.measure import comparison
from fakegpu_lab.measure.figures import rate_of
from fakegpu_lab.measure.fit import pcie_rate
from fakegpu_lab.measure.profile_files import provenance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fakegpu_lab.hardware.catalogue.profile import GpuProfile
    from fakegpu_lab.measure.figures import Figures
    from fakegpu_lab.measure.fit import Fitted

DIFFERENCES = 40
"""The most differences that are listed."""

_COUNTED = ("section", "compared", "equal", "only real", "only simulated")

Row = tuple[str, float, float, "Callable[[float], str]"]
"""A figure: its name, the card's value, the other's, and how it is written."""


def page(
    fitted: Fitted, figures: Figures, simulated: Figures, recorded: dict[str, Any], simulated_record: dict[str, Any]
) -> str:
    """The page.

    Parameters
    ----------
    figures, simulated
        Of the card, and of the simulation of the nearest known card.
    recorded, simulated_record
        What else both machines do, as `recording.record` returns it.
    """
    near = fitted.nearest
    parts = [
        f"# {figures.name}",
        f"{provenance(figures)}.",
        f"## The profile, beside the data sheet of {near.name} ({near.id})",
        _table(("Figure", "Measured", near.id, "Difference"), profile_rows(fitted.card, near)),
        "A value is the one with which the simulation takes the measured time.",
        *(f"- `{key}` is estimated ({why})." for key, why in fitted.estimated.items()),
        f"## Times, beside the simulation of {near.id}",
        _table(("Figure", "This card", "Simulation", "Difference"), time_rows(figures, simulated)),
        *(f"- {what} was not measured: {why}" for what, why in figures.errors.items()),
        "## The allocator and error messages, beside the simulation",
        *_behavior(recorded, simulated_record),
    ]
    return "\n\n".join(part for part in parts if part).replace("\n\n- ", "\n- ") + "\n"


def difference(value: float, other: float) -> str:
    """How much more a value is than another, in percent.

    >>> difference(1.1, 1.0), difference(0.5, 1.0), difference(2.0, 2.0), difference(3.0, 0.0)
    ('+10.0%', '-50.0%', '0.0%', '')
    """
    if not other:
        return ""
    text = f"{100 * (value / other - 1):+.1f}%"
    return "0.0%" if text in ("+0.0%", "-0.0%") else text


def profile_rows(card: GpuProfile, other: GpuProfile) -> list[Row]:
    """The figures of two profiles that both have."""
    rows: list[Row] = [
        ("memory", card.memory_bytes, other.memory_bytes, _capacity),
        ("total memory", card.total_memory_bytes, other.total_memory_bytes, _capacity),
        ("context", card.context_bytes, other.context_bytes, _size),
        ("memory bandwidth", card.memory_bandwidth, other.memory_bandwidth, _bytes_per_second),
        ("L2", card.l2_bytes, other.l2_bytes, _size),
        ("multiprocessors", card.sm_count, other.sm_count, lambda value: f"{value:.0f}"),
        ("clock", card.core_clock_mhz, other.core_clock_mhz, _clock),
        ("memory clock", card.memory_clock_mhz, other.memory_clock_mhz, _clock),
        ("power limit", card.power_limit_w, other.power_limit_w, lambda value: f"{value:.0f} W"),
        (
            "PCI Express",
            pcie_rate(card.pcie.generation, card.pcie.lanes),
            pcie_rate(other.pcie.generation, other.pcie.lanes),
            _bytes_per_second,
        ),
    ]
    peaks = other.peak_flops.given()
    for fmt, peak in card.peak_flops.given().items():
        if fmt in peaks:
            rows.append((f"peak {fmt}", peak, peaks[fmt], _ops if fmt.startswith("int") else _flops))
    if card.nvlink is not None and other.nvlink is not None:
        rows.append(("NVLink", card.nvlink.bandwidth, other.nvlink.bandwidth, _bytes_per_second))
    return rows


def time_rows(figures: Figures, simulated: Figures) -> list[Row]:
    """What was measured on both: rates of kernels and copies, times of calls and first uses."""
    rows: list[Row] = []
    for name, one, other in (
        ("memory, streamed", figures.streaming, simulated.streaming),
        ("L2, streamed", figures.cached, simulated.cached),
    ):
        if one is not None and other is not None:
            rows.append((name, one.amount / one.seconds, other.amount / other.seconds, _bytes_per_second))
    for fmt, product in figures.products.items():
        if fmt in simulated.products:
            same = simulated.products[fmt]
            here, there = (2 * timed.amount**3 / timed.seconds for timed in (product, same))
            sides = (
                f"{product.amount:,}" if same.amount == product.amount else f"{product.amount:,} and {same.amount:,}"
            )
            rows.append((f"{fmt} product, sides of {sides}", here, there, _ops if fmt == "int8" else _flops))
    for kind, found in figures.copies.items():
        if kind in simulated.copies:
            other_copies = simulated.copies[kind]
            name = kind.replace("_", ", ").replace("peer", "between devices")
            rows.append((name, rate_of(found), rate_of(other_copies), _bytes_per_second))
            rows.append((f"{name}, {found[0].amount} bytes", found[0].seconds, other_copies[0].seconds, _seconds))
    rows.append(("the shortest kernel", figures.shortest, simulated.shortest, _seconds))
    rows += [
        (f"the host's time for {op}", seconds, simulated.calls[op], _seconds)
        for op, seconds in figures.calls.items()
        if op in simulated.calls
    ]
    rows += [
        (f"the first use of {what}", seconds, simulated.first_uses[what], _seconds)
        for what, seconds in figures.first_uses.items()
        if what in simulated.first_uses
    ]
    return rows


def _behavior(recorded: dict[str, Any], simulated: dict[str, Any]) -> Iterator[str]:
    found, left_out = comparison.compare(recorded, simulated)
    rows = comparison.summary(found, left_out)
    yield "\n".join(
        [
            "| Section | Compared | Equal | Only here | Only in the simulation |",
            "|---|---:|---:|---:|---:|",
            *(f"| {' | '.join(str(row[name]) for name in _COUNTED)} |" for row in rows),
        ]
    )
    differing = [one for one in found if one.error]
    for one in differing[:DIFFERENCES]:
        yield f"- `{one.path}`: here `{_quoted(one.real)}`, in the simulation `{_quoted(one.simulated)}`"
    if len(differing) > DIFFERENCES:
        yield f"- … and {several(len(differing) - DIFFERENCES, 'other difference')}"


def _quoted(value: Any) -> str:
    text = " ".join(str(value).split()).replace("`", "'")
    return text if len(text) <= 200 else f"{text[:199]}…"


def _table(headers: tuple[str, str, str, str], rows: list[Row]) -> str:
    lines = [f"| {' | '.join(headers)} |", "|---|---:|---:|---:|"]
    lines += [
        f"| {name} | {write(value)} | {write(other)} | {difference(value, other)} |"
        for name, value, other, write in rows
    ]
    return "\n".join(lines)


def _capacity(value: float) -> str:
    return capacity(int(value))


def _size(value: float) -> str:
    return size(int(value))


def _bytes_per_second(value: float) -> str:
    return amount(value, "B/s")


def _flops(value: float) -> str:
    return amount(value, "FLOP/s")


def _ops(value: float) -> str:
    return amount(value, "OP/s")


def _clock(value: float) -> str:
    return f"{value:.0f} MHz"


def _seconds(value: float) -> str:
    return duration(value * 1e9)
