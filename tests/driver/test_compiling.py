"""torch.compile runs eagerly on a device, and says so."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

import fakegpu_lab as lab
from fakegpu_lab.driver.compile import torch_compile


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


@pytest.mark.parametrize(
    "options",
    [{"mode": "max-autotune"}, {"fullgraph": True}, {"dynamic": True}, {"backend": "aot_eager"}],
    ids=lambda options: next(iter(options)),
)
def test_every_way_to_compile_trains(machine, options) -> None:
    model = torch.nn.Linear(4, 4).cuda()
    torch.compile(model, **options)(torch.ones(2, 4, device="cuda")).sum().backward()
    assert model.weight.grad.is_cuda


def test_it_is_said_once(machine, monkeypatch, capfd) -> None:
    monkeypatch.setattr(torch_compile, "_said", [])
    for _ in range(2):
        torch.compile(torch.nn.ReLU())
    out, err = capfd.readouterr()
    assert (out.count("torch.compile runs eagerly"), err) == (1, "")


def test_a_compiled_model_is_recorded_without_a_warning_of_the_recorders_hooks(machine) -> None:
    compiled = torch.compile(torch.nn.Linear(4, 4).cuda())
    with lab.record() as trace, warnings.catch_warnings(record=True) as warned:
        compiled(torch.ones(2, 4, device="cuda"))
    assert trace.kernels
    assert warned == []
    with torch.nn.modules.module.register_module_forward_hook(lambda *_: None), lab.record():  # noqa: SIM117
        with pytest.warns(UserWarning, match="global hooks on modules"):
            compiled(torch.ones(2, 4, device="cuda"))


LIBRARY = """
@torch.compile
def decorated(x): return x

@torch.compile(mode="max-autotune")
def decorated_with_a_mode(x): return x

def train(step): return torch.compile(step)
"""


def test_it_is_said_of_the_programs_own_code(machine, monkeypatch, capfd) -> None:
    monkeypatch.setattr(torch_compile, "_said", [])
    library = {"torch": torch}
    exec(compile(LIBRARY, str(Path(torch.__file__).parents[1] / "some_library" / "ops.py"), "exec"), library)
    torch.compile(mode="reduce-overhead")
    torch.compile(torch.nn.ReLU(), disable=True)
    assert capfd.readouterr().out == ""
    for compiled in (
        lambda: library["train"](torch.nn.ReLU()),
        lambda: library["train"](lambda x: x),
        lambda: torch.compile(torch.nn.functional.gelu),
        lambda: torch.compile(mode="default")(lambda x: x),
        torch.nn.ReLU().compile,
    ):
        torch_compile._said.clear()
        compiled()
        assert capfd.readouterr().out.count("torch.compile runs eagerly") == 1


def test_explain_finds_no_graph_and_makes_no_noise(machine, capfd):
    x = torch.ones(2, device="cuda")
    explained = torch._dynamo.explain(lambda t: t.sin() + 1)(x)
    assert explained.graph_count == 0
    assert capfd.readouterr().err == ""


def test_strict_export_is_refused_in_one_sentence(machine):
    class Sine(torch.nn.Module):
        def forward(self, x):
            return x.sin()

    x = torch.ones(2, device="cuda")
    with pytest.raises(RuntimeError, match="leave strict=False, the default"):
        torch.export.export(Sine(), (x,), strict=True)
    assert torch.equal(torch.export.export(Sine(), (x,)).module()(x), x.sin())
