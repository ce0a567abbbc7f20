"""`torchmetrics` on a device: its state lives there, and its values are the CPU's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

tm = pytest.importorskip("torchmetrics", reason="needs the extra [integrations]")

if TYPE_CHECKING:
    from fakegpu_lab.hardware.machine import Machine

CLASSES: dict[str, Any] = {"task": "multiclass", "num_classes": 5}
CARD = torch.device("cuda", 0)


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def test_a_collection_of_classification_metrics(machine: Machine) -> None:
    scores = numbers(4, 40, 5).softmax(-1)
    classes = torch.randint(0, 5, (4, 40), generator=torch.Generator().manual_seed(1))
    metrics = [
        tm.Accuracy(**CLASSES), tm.F1Score(**CLASSES, average="macro"), tm.AUROC(**CLASSES),
        tm.AveragePrecision(**CLASSES), tm.ConfusionMatrix(**CLASSES), tm.CohenKappa(**CLASSES),
        tm.CalibrationError(**CLASSES),
    ]  # fmt: skip
    on_cpu = tm.MetricCollection(metrics)
    on_gpu = on_cpu.clone().cuda()
    for batch, labels in zip(scores, classes, strict=True):
        on_cpu.update(batch, labels)
        on_gpu.update(batch.cuda(), labels.cuda())
    assert torch.cuda.memory_allocated() > 0
    expected, found = on_cpu.compute(), on_gpu.compute()
    for name, value in expected.items():
        assert found[name].device == CARD
        torch.testing.assert_close(found[name].cpu(), value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("MeanSquaredError", (30,)), ("R2Score", (30,)), ("PearsonCorrCoef", (30,)), ("SpearmanCorrCoef", (30,)),
        ("CosineSimilarity", (6, 8)), ("KLDivergence", (6, 8)),
        ("image.StructuralSimilarityIndexMeasure", (2, 3, 24, 24)), ("image.PeakSignalNoiseRatio", (2, 3, 24, 24)),
        ("audio.ScaleInvariantSignalDistortionRatio", (2, 50)),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_regression_image_and_sound(machine: Machine, name: str, shape: tuple[int, ...]) -> None:
    module, _, cls = name.rpartition(".")
    options = {"data_range": 1.0} if module == "image" else {}
    metric = getattr(getattr(tm, module) if module else tm, cls)(**options)
    a, b = numbers(*shape), numbers(*shape, seed=1)
    if cls == "KLDivergence":
        a, b = a.softmax(-1), b.softmax(-1)
    on_gpu = metric.clone().to("cuda")
    metric.update(a, b)
    on_gpu.update(a.cuda(), b.cuda())
    assert on_gpu.compute().device == CARD
    torch.testing.assert_close(on_gpu.compute().cpu(), metric.compute(), rtol=1e-4, atol=1e-5)


def test_state_moves_resets_and_is_saved(machine: Machine) -> None:
    metric = tm.MeanMetric().to("cuda:1")
    metric.persistent(True)
    metric.update(torch.tensor([1.0, 3.0], device="cuda:1"))
    saved = metric.state_dict()
    assert saved["mean_value"].device == torch.device("cuda", 1)
    fresh = tm.MeanMetric().to("cuda:1")
    fresh.persistent(True)
    fresh.load_state_dict(saved)
    fresh.update(torch.tensor(5.0, device="cuda:1"))
    assert fresh.compute().item() == 3.0
    metric.reset()
    assert metric.to("cpu").mean_value.device.type == "cpu"


def test_a_metric_left_on_the_cpu_is_told(machine: Machine) -> None:
    with pytest.raises(RuntimeError, match="Encountered different devices in metric calculation"):
        tm.Accuracy(**CLASSES)(numbers(8, 5).cuda(), torch.zeros(8, dtype=torch.long, device="cuda"))
