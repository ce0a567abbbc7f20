"""How far off the times of kernels, copies and collectives typically are: a column of a recording's summary."""

from __future__ import annotations

from fakegpu_lab.recording_views.kernel_classes import class_of

TYPICAL = {"copies": 5, "kernels": 20, "products": 15, "convolutions": 10, "attention": 10, "collectives": 15}
"""In percent of what cards took: two thirds of the published figures of each kind that were set aside are at least as
close, as tests/fidelity/test_published.py holds. Memory bandwidth stands for all kernels that are neither products,
convolutions nor attention; what attention takes is known from whole transformers alone."""

_KIND = {
    "matmul": "products", "convolution": "convolutions", "attention": "attention", "collective": "collectives",
}  # fmt: skip


def typical(name: str) -> str:
    """How far off the time of a kernel, copy or collective of this name typically is.

    >>> typical("aten::mm"), typical("aten::convolution"), typical("Memcpy DtoH (Device -> Pageable)")
    ('± 15%', '± 10%', '± 5%')
    """
    kind = "copies" if name.startswith("Memcpy") else _KIND.get(class_of(name), "kernels")
    return f"± {TYPICAL[kind]}%"
