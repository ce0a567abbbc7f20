"""What tests of compiled kernels share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import fakegpu_lab as lab

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def compiling(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An A100, and kernels that no earlier run has compiled."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "inductor"))
    lab.enable("a100")
    yield
    torch._dynamo.reset()
