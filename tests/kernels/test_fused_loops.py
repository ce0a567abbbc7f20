"""Values of Inductor's kernels on whole tensors, against the same kernels run program by program."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import fakegpu_lab as lab
from fakegpu_lab.driver.compile import triton_version

if triton_version.missing() is not None:
    pytest.skip(triton_version.missing() or "", allow_module_level=True)

from fakegpu_lab.kernels.fused_loops.values import Values

pytestmark = pytest.mark.usefixtures("compiling")

PROGRAMS = {
    "broadcast": lambda x, i: (x * 2 + x[0]).sin().unsqueeze(1) + x.t().reshape(16, 24).exp(),
    "sums": lambda x, i: (x.sum(1), (x * x).mean(), x.max(0).values, x.argmin(1), (x > 0).any(0), x.amin()),
    "softmax": lambda x, i: F.softmax(x * 3, 1) + F.log_softmax(x, 0),
    "norm": lambda x, i: F.layer_norm(x, (24,)) + torch.var(x, 0) + x.std(),
    "large norm": lambda x, i: F.layer_norm(x.repeat(1, 400), (9600,))[:, ::100],
    "pieces": lambda x, i: torch.cat([x.cos(), F.pad(x, (1, 2)), x[:, :3] + 1], 1),
    "looked up": lambda x, i: x[i] * 2 + x[:, 3:4].expand(16, 24)[i - 16],
    "added up": lambda x, i: torch.zeros_like(x).index_add_(0, i, x[: len(i)] * 2) + 1,
    "half": lambda x, i: (x.bfloat16() * 1.7 + x.bfloat16().sin()).sum(1).to(torch.float16).float(),
    "integers": lambda x, i: (
        i // 3,
        i % 5,
        (x * 9).to(torch.uint8),
        (x * 9).round().to(torch.int32) >> 1,
        i.float() / 7,
    ),
    "numbers of the host": lambda x, i: (
        x * torch.tensor(2.5) + torch.tensor(3),
        x.bfloat16() - torch.tensor(1.5, dtype=torch.bfloat16),
    ),
    "in place": lambda x, i: (x.add_(1), x.t().contiguous() + x.sum()),
    "both ways": lambda x, i: (x.t() + 1, x.t().contiguous().view(16, 24) * x),
    "random": lambda x, i: (
        F.dropout(x, 0.3),
        torch.rand_like(x),
        torch.randn_like(x[0]),
        torch.randint_like(i, 3, 90),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_whole_tensors_and_programs_agree(name, monkeypatch):
    finish, whole = Values.finish, []
    monkeypatch.setattr(Values, "finish", lambda self: (whole.append(self), finish(self)))
    compiled = torch.compile(PROGRAMS[name], fullgraph=True)
    values = torch.linspace(-2, 2, 16 * 24).reshape(16, 24)

    def run():
        torch.manual_seed(0)
        x, i = values.cuda(), torch.arange(3, 13, device="cuda").flip(0)
        return [*(one if isinstance(one := compiled(x, i), tuple) else (one,)), x]

    run()  # compiles, and measures configurations
    whole.clear()
    now = run()
    launches = len(whole)
    monkeypatch.setenv("FAKEGPU_LAB_COMPILED_VALUES", "triton")
    expected = run()
    assert launches == len(whole) > 0
    torch.testing.assert_close(now, expected, rtol=1e-5, atol=1e-5)


def test_time_and_traffic_are_those_of_the_programs(monkeypatch):
    compiled = torch.compile(lambda x: (F.layer_norm(x, (64,)) * 2).sum(0), fullgraph=True)
    x = torch.randn(4096, 64, device="cuda")

    def recorded():
        compiled(x)
        with lab.record() as trace:
            compiled(x)
        return [(kernel.name, kernel.nbytes, kernel.end_ns - kernel.start_ns) for kernel in trace.kernels]

    now = recorded()
    monkeypatch.setenv("FAKEGPU_LAB_COMPILED_VALUES", "triton")
    for (name, nbytes, took), (expected, moved, taken) in zip(now, recorded(), strict=True):
        assert name == expected
        assert nbytes == pytest.approx(moved, rel=0.02)
        assert took == pytest.approx(taken, rel=0.02)


def test_an_index_out_of_bounds_is_a_failed_assertion(capfd):
    compiled = torch.compile(lambda x, i: x[i] + 1, fullgraph=True)
    x = torch.ones(4, 8, device="cuda")
    assert compiled(x, torch.tensor([3, -1], device="cuda")).sum() == 32
    compiled(x, torch.tensor([4, 0], device="cuda"))
    with pytest.raises(torch.AcceleratorError, match="device-side assert triggered"):
        torch.cuda.synchronize()
    assert "block: [0,0,0], thread: [0,0,0] Assertion `index out of bounds: 0 <= tmp" in capfd.readouterr().err
