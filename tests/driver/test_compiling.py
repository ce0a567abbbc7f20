"""torch.compile runs eagerly on a device; tracing that would abort the process is refused."""

from __future__ import annotations

import pytest
import torch

import fakegpu_lab as lab


def test_compile_runs_eagerly_and_is_counted() -> None:
    lab.enable("a100", memory="2GiB")
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).cuda()
    x = torch.randn(2, 8, device="cuda")
    before = lab.snapshot().devices[0].counters.kernels
    compiled = torch.compile(model)
    torch.testing.assert_close(compiled(x), model(x))
    assert lab.snapshot().devices[0].counters.kernels > before

    @torch.compile
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    assert double(x).is_cuda
    lab.disable()
    assert torch._dynamo.eval_frame._stance.stance == "default"  # type: ignore[attr-defined]


@pytest.mark.usefixtures("machine")
def test_export_is_refused_with_a_sentence() -> None:
    with pytest.raises(Exception, match="cannot trace tensors on a simulated GPU"):
        torch.export.export(torch.nn.Linear(4, 4).cuda(), (torch.ones(2, 4, device="cuda"),))
