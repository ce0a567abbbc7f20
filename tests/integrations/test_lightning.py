"""`lightning.Trainer(accelerator="gpu")`: precision, callbacks, checkpoints, resuming, manual optimisation."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import fakegpu_lab as lab

L = pytest.importorskip("lightning", reason="needs the extra [integrations]")

from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.hardware.machine import Machine

pytestmark = pytest.mark.filterwarnings("ignore")
CARD = torch.device("cuda", 0)


class Sums(L.LightningModule):
    """Learns to add eight numbers."""

    def __init__(self, rate: float = 1e-2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Linear(32, 1))
        self.seen: set[tuple[str, torch.device, torch.dtype]] = set()

    def loss(self, batch: Any, what: str) -> torch.Tensor:
        x, y = batch
        predicted = self.net(x)
        self.seen.add((what, x.device, predicted.dtype))
        loss = nn.functional.mse_loss(predicted, y)
        self.log(f"{what}_loss", loss, on_step=what == "train", on_epoch=what != "train")
        return loss

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        return self.loss(batch, "train")

    def validation_step(self, batch: Any, index: int) -> None:
        self.loss(batch, "val")

    def test_step(self, batch: Any, index: int) -> None:
        self.loss(batch, "test")

    def predict_step(self, batch: Any, index: int) -> torch.Tensor:
        return self.net(batch[0])

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.rate)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)}


class Numbers(L.LightningDataModule):
    """64 rows of eight numbers, with their sums."""

    def setup(self, stage: str) -> None:
        rows = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
        self.data = TensorDataset(rows, rows.sum(1, keepdim=True))

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.data, batch_size=16)

    def val_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.data, batch_size=16)

    test_dataloader = val_dataloader
    predict_dataloader = val_dataloader


def trainer(folder: Path, epochs: int = 4, **options: Any) -> Any:
    defaults: dict[str, Any] = {
        "accelerator": "gpu", "devices": 1, "logger": False, "enable_progress_bar": False, "default_root_dir": folder,
        "enable_model_summary": False, "log_every_n_steps": 1,
    }  # fmt: skip
    if not any(isinstance(callback, ModelCheckpoint) for callback in options.get("callbacks", [])):
        defaults["enable_checkpointing"] = False
    return L.Trainer(max_epochs=epochs, **(defaults | options))


def weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.cpu().clone() for name, value in model.state_dict().items()}


def test_float32_is_what_the_cpu_computes(machine: Machine, tmp_path: Path, ran_on_device: Callable[..., None]) -> None:
    results = []
    for accelerator in ("cpu", "gpu"):
        run = trainer(tmp_path, accelerator=accelerator, precision="32-true", gradient_clip_val=1.0)
        model = Sums()
        run.fit(model, datamodule=Numbers())
        predictions = torch.cat(run.predict(model, datamodule=Numbers()))
        results.append((weights(model), run.test(model, datamodule=Numbers(), verbose=False)[0], predictions))
        if accelerator == "cpu":
            assert lab.snapshot().devices[0].counters.kernels == 0
    ran_on_device()
    (cpu, cpu_test, cpu_predictions), (gpu, gpu_test, gpu_predictions) = results
    for name, value in cpu.items():
        torch.testing.assert_close(gpu[name], value, rtol=1e-3, atol=1e-4)
    assert gpu_test["test_loss"] == pytest.approx(cpu_test["test_loss"], rel=1e-3)
    torch.testing.assert_close(gpu_predictions.cpu(), cpu_predictions, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("precision", "computed", "kept"),
    [
        ("16-mixed", torch.float16, torch.float32),
        ("bf16-mixed", torch.bfloat16, torch.float32),
        ("bf16-true", torch.bfloat16, torch.bfloat16),
        ("64-true", torch.float64, torch.float64),
    ],
)
def test_precision_checkpoint_and_resume(
    machine: Machine, tmp_path: Path, precision: str, computed: torch.dtype, kept: torch.dtype
) -> None:
    keeping = ModelCheckpoint(dirpath=tmp_path / "kept", monitor="val_loss", save_last=True)
    watching = [keeping, LearningRateMonitor(), EarlyStopping("val_loss", patience=10)]
    run = trainer(tmp_path, precision=precision, callbacks=watching, logger=CSVLogger(tmp_path), gradient_clip_val=0.5)
    model = Sums()
    run.fit(model, datamodule=Numbers())
    assert run.strategy.root_device == CARD
    assert model.seen == {(what, CARD, computed) for what in ("train", "val")}
    with Path(run.logger.log_dir, "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    train_losses = [float(row["train_loss"]) for row in rows if row["train_loss"]]
    assert train_losses[-1] < train_losses[0]
    assert sorted({float(row["lr-AdamW"]) for row in rows if row.get("lr-AdamW")}) == [0.005, 0.01]

    best = run.test(model, datamodule=Numbers(), ckpt_path="best", verbose=False)[0]["test_loss"]
    assert best == pytest.approx(float(keeping.best_model_score), rel=1e-3)
    loaded = Sums.load_from_checkpoint(keeping.best_model_path, weights_only=False)
    assert {p.device for p in loaded.parameters()} == {CARD}  # where they were saved
    assert {p.dtype for p in loaded.parameters()} == {torch.float32}  # as the constructor makes them

    straight = Sums()
    trainer(tmp_path, epochs=6, precision=precision, gradient_clip_val=0.5).fit(straight, datamodule=Numbers())
    resumed = Sums()
    longer = trainer(tmp_path, epochs=6, precision=precision, gradient_clip_val=0.5)
    longer.fit(resumed, datamodule=Numbers(), ckpt_path=tmp_path / "kept" / "last.ckpt", weights_only=False)
    assert longer.global_step == 24
    assert {p.dtype for p in resumed.parameters()} == {kept}
    rounded = 1e-6 if precision == "64-true" else 0  # Lightning reads AdamW's state as float32, on a CPU as well
    for name, value in weights(straight).items():
        torch.testing.assert_close(weights(resumed)[name], value, rtol=0, atol=rounded)


class TwoPlayers(L.LightningModule):
    """Two optimizers that take turns, each stepped by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.maker, self.judge = nn.Linear(4, 8), nn.Linear(8, 1)

    def training_step(self, batch: Any, index: int) -> None:
        make, judge = self.optimizers()
        real = batch[0]
        fake = self.maker(torch.randn(len(real), 4, device=self.device))
        loss = self.judge(real).sigmoid().sub(1).square().mean() + self.judge(fake.detach()).sigmoid().square().mean()
        judge.zero_grad()
        self.manual_backward(loss)
        self.clip_gradients(judge, gradient_clip_val=0.5)
        judge.step()
        make.zero_grad()
        self.manual_backward(self.judge(fake).sigmoid().sub(1).square().mean())
        make.step()
        self.log("judge_loss", loss)

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.maker.parameters(), 1e-2), torch.optim.SGD(self.judge.parameters(), 1e-2)


@pytest.mark.parametrize("precision", ["32-true", "16-mixed"])
def test_manual_optimisation(machine: Machine, tmp_path: Path, precision: str) -> None:
    model = TwoPlayers()
    before = weights(model)
    run = trainer(tmp_path, epochs=2, precision=precision)
    run.fit(model, DataLoader(TensorDataset(torch.randn(32, 8)), batch_size=8))
    assert run.global_step == 16
    assert all(not torch.equal(value, before[name]) for name, value in weights(model).items())


def test_fabric_and_the_second_card(machine: Machine, ran_on_device: Callable[..., None]) -> None:
    fabric = L.Fabric(accelerator="cuda", devices=[1], precision="bf16-mixed")
    fabric.launch()
    model = nn.Linear(8, 1)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), 0.05))
    loader = fabric.setup_dataloaders(DataLoader(TensorDataset(torch.ones(16, 8)), batch_size=4))
    losses = []
    for (rows,) in loader:
        assert rows.device == torch.device("cuda", 1)
        loss = model(rows).square().mean()
        fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    ran_on_device(1)


def test_the_devices_are_found(machine: Machine, tmp_path: Path) -> None:
    from lightning.pytorch.accelerators import CUDAAccelerator

    assert CUDAAccelerator.is_available()
    assert CUDAAccelerator.auto_device_count() == 2
    assert trainer(tmp_path, devices=[1]).strategy.root_device == torch.device("cuda", 1)
    held = torch.ones(1000, device=CARD)
    stats = CUDAAccelerator().get_device_stats(CARD)
    assert stats["allocated_bytes.all.current"] == torch.cuda.memory_allocated(CARD) >= held.nbytes
    with pytest.raises(Exception, match=r"requested gpu: \[0, 1, 2\]\s+But your machine only has: \[0, 1\]"):
        trainer(tmp_path, devices=3)
