"""`accelerate`: a training loop of one's own, and models spread over cards, host memory and disk."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import fakegpu_lab as lab

accelerate = pytest.importorskip("accelerate", reason="needs the extra [integrations]")

from accelerate import Accelerator

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fakegpu_lab.hardware.machine import Machine

pytestmark = pytest.mark.filterwarnings("ignore")


def forget() -> None:
    """`Accelerator` keeps the first one's settings for the life of a process."""
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


class Run:
    """A classifier of eight numbers, with dropout, trained by a user's own loop."""

    def __init__(self, dropout: float = 0.1, **options: Any) -> None:
        forget()
        accelerate.utils.set_seed(0)
        self.accelerator = Accelerator(**options)
        model = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.LayerNorm(64), nn.Dropout(dropout), nn.Linear(64, 4))
        rows = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
        loader = DataLoader(TensorDataset(rows, rows[:, :4].argmax(1)), batch_size=16)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
        prepared = self.accelerator.prepare(model, optimizer, loader, schedule)
        self.model, self.optimizer, self.loader, self.schedule = prepared

    def epoch(self) -> list[float]:
        losses = []
        for rows, classes in self.loader:
            assert rows.device.type == self.accelerator.device.type
            with self.accelerator.accumulate(self.model):
                loss = nn.functional.cross_entropy(self.model(rows), classes)
                self.accelerator.backward(loss)
                if self.accelerator.sync_gradients:
                    self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.schedule.step()
                self.optimizer.zero_grad()
            losses.append(self.accelerator.gather_for_metrics(loss.detach()).mean().item())
        return losses


@pytest.mark.parametrize("options", [{}, {"gradient_accumulation_steps": 2}], ids=["plain", "accumulation"])
def test_float32_is_what_the_cpu_computes(machine: Machine, options: dict[str, Any]) -> None:
    losses = []
    for where in ({"cpu": True}, {}):
        run = Run(dropout=0.0, **where, **options)
        assert run.accelerator.device.type == ("cpu" if where else "cuda")
        losses.append([loss for _ in range(3) for loss in run.epoch()])
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
    assert losses[1][-1] < 0.8 * losses[1][0]


@pytest.mark.parametrize("precision", ["no", "fp16", "bf16"])
def test_a_saved_state_goes_on_to_the_digit(
    machine: Machine, tmp_path: Path, ran_on_device: Callable[..., None], precision: str
) -> None:
    run = Run(mixed_precision=precision)
    first = run.epoch()
    run.accelerator.save_state(str(tmp_path / "state"))
    second = run.epoch()
    assert math.fsum(second) < math.fsum(first)
    weights = {name: value.clone() for name, value in run.model.state_dict().items()}
    ran_on_device()

    again = Run(mixed_precision=precision)
    again.accelerator.load_state(str(tmp_path / "state"))
    assert again.epoch() == second
    for name, value in weights.items():
        assert value.device == torch.device("cuda", 0)
        assert torch.equal(again.model.state_dict()[name], value), name
    if precision == "fp16":
        assert again.accelerator.scaler.get_scale() == 65536


def test_mixed_precision_outputs_are_float32_and_layers_are_not(machine: Machine) -> None:
    run = Run(mixed_precision="fp16")
    seen = []
    run.model[0].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    output = run.model(torch.randn(2, 8, device="cuda"))
    assert (seen, output.dtype) == ([torch.float16], torch.float32)
    with run.accelerator.autocast():
        assert torch.is_autocast_enabled("cuda")
        assert torch.get_autocast_dtype("cuda") is torch.float16


def test_the_largest_batch_that_fits_is_found(machine: Machine) -> None:
    tried = []

    @accelerate.utils.find_executable_batch_size(starting_batch_size=1500)
    def train(batch_size: int) -> int:
        tried.append(batch_size)
        torch.empty(batch_size, 1024, 1024, device="cuda")  # 4 MiB a sample
        return batch_size

    assert train() == tried[-1] < 4 * 2**30 / 2**22
    assert len(tried) > 3
    assert lab.snapshot().devices[0].memory.ooms == len(tried) - 1


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(128, 128) for _ in range(8)])


LAYER = 4 * (128 * 128 + 128)
ROWS = torch.randn(2, 128, generator=torch.Generator().manual_seed(1))


def test_memory_is_planned_by_what_the_cards_have_free(machine: Machine) -> None:
    plan = accelerate.utils.get_max_memory()
    assert {0, 1, "cpu"} == set(plan)
    assert plan[1] == pytest.approx(torch.cuda.mem_get_info(1)[0], rel=0.1)
    torch.empty(2**30, dtype=torch.uint8, device="cuda:1")
    held = torch.empty(2**30, dtype=torch.uint8, device="cuda:1")
    assert accelerate.utils.get_max_memory()[1] <= plan[1] - held.nbytes


def test_a_model_is_spread_over_two_cards_and_the_host(machine: Machine) -> None:
    model = layers()
    expected = model(ROWS)
    limits = {0: int(3.5 * LAYER), 1: int(3.5 * LAYER), "cpu": 10**9}
    places = accelerate.infer_auto_device_map(model, max_memory=limits)
    assert list(places.values()).count("cpu") >= 2
    model = accelerate.dispatch_model(model, places)
    held = [torch.cuda.memory_allocated(card) for card in (0, 1)]
    assert held == [list(places.values()).count(card) * (4 * 128 * 128 + 512) for card in (0, 1)]
    torch.testing.assert_close(model(ROWS).cpu(), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(RuntimeError, match="You can't move a model that has some modules offloaded"):
        model.to("cuda")


def test_offloading_to_the_host_and_to_disk(machine: Machine, tmp_path: Path) -> None:
    expected = layers()(ROWS)
    model = accelerate.cpu_offload(layers(), execution_device=torch.device("cuda", 1))
    assert torch.cuda.memory_allocated(1) == 0
    torch.testing.assert_close(model(ROWS.to("cuda:1")).cpu(), expected, rtol=1e-4, atol=1e-5)
    assert lab.snapshot().devices[1].counters.h2d_bytes >= 8 * LAYER
    assert torch.cuda.max_memory_allocated(1) < 20 * 2**20  # a layer at a time, and cuBLAS's workspace
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}

    on_disk = layers()
    accelerate.disk_offload(on_disk, str(tmp_path), execution_device=torch.device("cuda", 0))
    torch.testing.assert_close(on_disk(ROWS.cuda()).cpu(), expected, rtol=1e-4, atol=1e-5)

    model, hook = accelerate.cpu_offload_with_hook(layers(), 0)
    model(ROWS.cuda())
    assert {parameter.device for parameter in model.parameters()} == {torch.device("cuda", 0)}
    hook.offload()
    assert {parameter.device for parameter in model.parameters()} == {torch.device("cpu")}


def test_a_checkpoint_is_loaded_into_an_empty_model(machine: Machine, tmp_path: Path) -> None:
    model = layers()
    forget()
    Accelerator().save_model(model, str(tmp_path), max_shard_size="150KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    with accelerate.init_empty_weights():
        empty = layers()
    limits = {0: 4 * LAYER, 1: 5 * LAYER}
    loaded = accelerate.load_checkpoint_and_dispatch(empty, str(tmp_path), device_map="auto", max_memory=limits)
    assert {parameter.device.index for parameter in loaded.parameters()} == {0, 1}
    torch.testing.assert_close(loaded(ROWS).cpu(), model(ROWS), rtol=1e-4, atol=1e-5)


def test_the_notebook_launcher_with_one_process(machine: Machine) -> None:
    forget()
    found: list[torch.device] = []
    accelerate.notebook_launcher(lambda: found.append(Accelerator().device), num_processes=1)
    assert [device.type for device in found] == ["cuda"]
