"""The directive `catalogue`: a table of all GPUs, or of all machines, from the package's own profiles."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from docutils import nodes
from docutils.parsers.rst import Directive

from fakegpu_lab.formatting.units import capacity
from fakegpu_lab.hardware.catalogue import lookup

if TYPE_CHECKING:
    from fakegpu_lab.hardware.catalogue.profile import GpuProfile, NodeProfile

PEAKS = {"fp64": "FP64", "fp32": "FP32", "tf32": "TF32", "bf16": "BF16", "fp8": "FP8"}
_GPU_HEADERS = ("Id", "Name", "For", "Capability", "Memory", "GB/s", "SMs",
                *(f"{name} TFLOP/s" for name in PEAKS.values()), "L2", "NVLink GB/s", "W")  # fmt: skip
_NODE_HEADERS = ("Id", "Name", "GPUs", "Between GPUs", "GB/s a GPU", "PCIe", "Network", "Cores", "Memory")

Cell = tuple[str, float | None]
"""What is shown, and what it is sorted by if that is a number."""


def gpu_row(card: GpuProfile) -> list[Cell]:
    """A GPU's figures; nothing where it has none."""
    peaks = [card.peak_flops.given().get(name) for name in PEAKS]
    rough = [_estimated(card, f"peak_flops.{name}") for name in PEAKS]
    linked = card.nvlink.bandwidth / 1e9 if card.nvlink else None
    return [
        (card.id, None),
        (card.name, None),
        (card.segment, None),
        ("{}.{}".format(*card.compute_capability), card.compute_capability[0] * 10 + card.compute_capability[1]),
        (_estimated(card, "total_memory") + capacity(card.total_memory_bytes), card.total_memory_bytes),
        _number(card.memory_bandwidth / 1e9),
        _number(card.sm_count, about=_estimated(card, "sm_count")),
        *(_number(None if peak is None else peak / 1e12, 1, about) for peak, about in zip(peaks, rough, strict=True)),
        (_estimated(card, "l2") + capacity(card.l2_bytes), card.l2_bytes),
        _number(linked),
        _number(card.power_limit_w, about=_estimated(card, "power_limit_w")),
    ]


def _estimated(card: GpuProfile, key: str) -> str:
    """A sign in front of a figure that the profile derives by a rule, because no source has it."""
    return "≈ " if {key, key.split(".", maxsplit=1)[0]} & set(card.estimated) else ""


def node_row(node: NodeProfile) -> list[Cell]:
    """A machine's figures."""
    host = node.host
    return [
        (node.id, None),
        (node.name, None),
        (", ".join(f"{group.count} × {group.gpu}" for group in node.gpus), None),
        (node.fabric.kind, None),
        _number(node.fabric.bandwidth / 1e9),
        (f"{node.pcie.generation}.0 ×{node.pcie.lanes}", None),
        (f"{node.nics.count} × {node.nics.name}" if node.nics else "", None),
        _number(host.cores),
        (capacity(host.memory_bytes), host.memory_bytes),
    ]


def _number(value: float | None, digits: int = 0, about: str = "") -> Cell:
    return ("", None) if value is None else (about + f"{value:,.{digits}f}".removesuffix(".0"), value)


def table(kind: str) -> str:
    """HTML of one of the tables, ``"gpus"`` or ``"nodes"``."""
    if kind == "gpus":
        headers, rows = _GPU_HEADERS, [gpu_row(lookup.gpu(name)) for name in lookup.catalogue("gpus")]
    else:
        headers, rows = _NODE_HEADERS, [node_row(lookup.node(name)) for name in lookup.catalogue("nodes")]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in headers)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return (
        f'<div class="fg-scrolls"><table class="fg-sortable" data-kind="{kind}">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(cell: Cell) -> str:
    text, order = cell
    return f"<td>{html.escape(text)}</td>" if order is None else f'<td data-order="{order:g}">{html.escape(text)}</td>'


class Catalogue(Directive):
    """```{catalogue} gpus``` or ``nodes``."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Put the table on the page, in every build: profiles may have changed."""
        self.state.document.settings.env.note_reread()
        return [nodes.raw("", table(self.arguments[0]), format="html")]
