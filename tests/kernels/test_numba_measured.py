"""The times of textbook kernels are within 30% of those measured on real cards (docs/kernels.md has the table)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("numba", reason="the extra `numba` is not installed")
pytest.importorskip("greenlet", reason="the extra `numba` is not installed")

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "kernels.py"


def kernels() -> Any:
    spec = importlib.util.spec_from_file_location("kernels_benchmark", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_narrow_products_on_a_v100():
    """CUDA C++ Best Practices Guide, tables of "Shared Memory in Matrix Multiplication"."""
    script = kernels()
    simulated, measured = {}, {}
    for card, case, figure, unit, _ in script.MEASURED:
        if unit == "GB/s":
            case.blocks = 1
            record = case.on(card)
            nbytes = sum(4 * torch.Size(shape).numel() for shape in case.shapes)
            simulated[case.name], measured[case.name] = nbytes / (record.end_ns - record.start_ns), figure
    assert len(measured) == 6
    assert simulated == pytest.approx(measured, rel=0.3)
    slowest, conflicting, padded = (simulated[f"A·Aᵀ, {name}"] for name in ("naive", "tiled", "padded"))
    assert slowest * 8 < conflicting < padded / 1.2
