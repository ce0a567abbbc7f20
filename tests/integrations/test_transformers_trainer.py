"""`transformers.Trainer` as its users run it: precision, checkpointing, accumulation, resuming, several cards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

import fakegpu_lab as lab

pytest.importorskip("transformers", reason="needs the extra [integrations]")
pytest.importorskip("accelerate", reason="needs the extra [integrations]")

from transformers import Trainer, TrainingArguments

from tests.integrations.models import bert, gpt2, reviews, sentences

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fakegpu_lab.hardware.machine import Machine

STEPS = 6


def trainer(folder: Path, model: Any, data: Any, **options: Any) -> Trainer:
    """A Trainer that takes a few steps, logs each and asks nothing of the network."""
    defaults: dict[str, Any] = {
        "max_steps": STEPS, "per_device_train_batch_size": 4, "learning_rate": 1e-2, "logging_steps": 1,
        "save_strategy": "no", "report_to": [], "disable_tqdm": True, "lr_scheduler_type": "constant",
    }  # fmt: skip
    arguments = TrainingArguments(output_dir=str(folder), **(defaults | options))
    return Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data[:8])


def losses(done: Trainer) -> torch.Tensor:
    return torch.tensor([entry["loss"] for entry in done.state.log_history if "loss" in entry])


def test_a_gpt_2_learns_as_on_the_cpu(one_gpu: Machine, ran_on_device: Callable[..., None], tmp_path: Path) -> None:
    on_cpu = trainer(tmp_path, gpt2(), sentences(32), use_cpu=True)
    on_cpu.train()
    assert lab.snapshot().devices[0].counters.kernels == 0
    on_gpu = trainer(tmp_path, gpt2(), sentences(32))
    assert on_gpu.args.device == torch.device("cuda", 0)
    assert on_gpu.args.n_gpu == 1
    on_gpu.train()
    assert all(parameter.device == torch.device("cuda", 0) for parameter in on_gpu.model.parameters())
    ran_on_device()
    torch.testing.assert_close(losses(on_gpu), losses(on_cpu), rtol=1e-4, atol=1e-4)
    assert losses(on_gpu)[-1] < losses(on_gpu)[0] - 0.3

    assert on_gpu.evaluate()["eval_loss"] == pytest.approx(on_cpu.evaluate()["eval_loss"], rel=1e-3)
    predicted = on_gpu.predict(sentences(8))
    assert predicted.predictions.shape == (8, 16, 64)
    torch.testing.assert_close(
        torch.tensor(predicted.predictions),
        torch.tensor(on_cpu.predict(sentences(8)).predictions),
        rtol=1e-2,
        atol=1e-3,
    )


@pytest.mark.parametrize(("make", "data"), [(gpt2, sentences), (bert, reviews)])
@pytest.mark.parametrize(
    "options",
    [
        {"fp16": True},
        {"bf16": True, "optim": "adamw_torch_fused"},
        {"fp16": True, "gradient_accumulation_steps": 2, "max_grad_norm": 0.5},
        {"bf16": True, "gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}},
        {"fp16": True, "gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}},
    ],
    ids=["fp16", "bf16-fused", "fp16-accumulation", "bf16-checkpointing", "fp16-reentrant"],
)
@pytest.mark.filterwarnings("ignore")
def test_mixed_precision_learns_what_float32_does(
    one_gpu: Machine, tmp_path: Path, make: Any, data: Any, options: dict[str, Any]
) -> None:
    plain = {key: value for key, value in options.items() if key in ("gradient_accumulation_steps", "max_grad_norm")}
    reference = trainer(tmp_path, make(), data(64), use_cpu=True, **plain)
    reference.train()
    mixed = trainer(tmp_path, make(), data(64), **options)
    mixed.train()
    torch.testing.assert_close(losses(mixed), losses(reference), rtol=0.05, atol=0.05)
    assert not torch.equal(losses(mixed), losses(reference))  # it did round
    assert all(parameter.dtype is torch.float32 for parameter in mixed.model.parameters())
    scaler = mixed.accelerator.scaler
    assert (scaler is not None and scaler.get_scale() == 65536) is bool(options.get("fp16"))


@pytest.mark.filterwarnings("ignore")
def test_gradient_checkpointing_saves_memory(one_gpu: Machine, tmp_path: Path) -> None:
    peaks = {}
    for checkpointing in (False, True):
        lab.reset()
        model = gpt2(layers=8)
        done = trainer(
            tmp_path, model, sentences(16, length=64), max_steps=2, gradient_checkpointing=checkpointing,
            per_device_train_batch_size=16, bf16=True,
        )  # fmt: skip
        done.train()
        peaks[checkpointing] = torch.cuda.max_memory_allocated()
    assert peaks[True] < 0.6 * peaks[False]


@pytest.mark.parametrize("options", [{}, {"fp16": True}], ids=["fp32", "fp16"])
def test_a_resumed_run_goes_on_to_the_digit(one_gpu: Machine, tmp_path: Path, options: dict[str, Any]) -> None:
    """With dropout: the checkpoint holds the device's generator, and the scaler, too."""
    saving = {"save_strategy": "steps", "save_steps": 3}
    straight = trainer(tmp_path, gpt2(dropout=0.1), sentences(32), **options, **saving)
    straight.train()
    assert (tmp_path / "checkpoint-3" / "model.safetensors").exists()
    model = gpt2(dropout=0.1)
    torch.manual_seed(7)
    resumed = trainer(tmp_path, model, sentences(32), **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert losses(resumed).tolist() == losses(straight).tolist()
    for name, value in straight.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], value), name


def test_two_cards_share_a_batch(machine: Machine, ran_on_device: Callable[..., None], tmp_path: Path) -> None:
    """Outside `torchrun`, `Trainer` uses `DataParallel`: half of each batch goes to the second card."""
    both = trainer(tmp_path, gpt2(), sentences(64), max_steps=3)
    assert both.args.n_gpu == 2
    both.train()
    ran_on_device(0)
    ran_on_device(1)
    reference = trainer(tmp_path, gpt2(), sentences(64), max_steps=3, use_cpu=True, per_device_train_batch_size=8)
    reference.train()
    torch.testing.assert_close(losses(both), losses(reference), rtol=1e-4, atol=1e-4)


def test_a_model_too_big_for_the_card_is_out_of_memory(machine: Machine, tmp_path: Path) -> None:
    lab.enable("a100", memory="520MiB")  # the CUDA context takes most of it
    model = gpt2(layers=8)
    with pytest.raises(torch.OutOfMemoryError, match=r"CUDA out of memory\. Tried to allocate"):
        trainer(tmp_path, model, sentences(256, length=64), per_device_train_batch_size=256).train()
