"""Attaches the simulated NVML to pynvml (nvidia-ml-py), and so to `torch.cuda.utilization` and related functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base.changes import begun, imported

if TYPE_CHECKING:
    from fakegpu_lab.driver.base.changes import Change


def _attach(module: Any) -> list[Change]:
    from fakegpu_lab.nvml import library

    return [begun(lambda: library.attach(module), "pynvml answers from the simulated library")]


CHANGES = [imported("pynvml", _attach, "torch.cuda.utilization and related functions ask it")]
