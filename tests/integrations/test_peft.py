"""`peft`: LoRA on a language model, trained, saved, loaded and merged on a card."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

peft = pytest.importorskip("peft", reason="needs the extra [integrations]")

from tests.integrations.models import WORDS, gpt2, llama

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fakegpu_lab.hardware.machine import Machine

pytestmark = pytest.mark.filterwarnings("ignore")
CARD = torch.device("cuda", 0)


def adapted(make: Any, **options: Any) -> Any:
    torch.manual_seed(0)
    targets = {gpt2: ["c_attn"], llama: ["q_proj", "v_proj"]}[make]
    config = peft.LoraConfig(
        r=4, lora_alpha=8, target_modules=targets, task_type="CAUSAL_LM", fan_in_fan_out=make is gpt2, **options
    )
    return peft.get_peft_model(make(), config)


def train(model: Any, device: str, steps: int = 8) -> list[float]:
    ids = torch.randint(0, WORDS, (4, 16), generator=torch.Generator().manual_seed(1)).to(device)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    losses = []
    for _ in range(steps):
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("make", [gpt2, llama])
def test_lora_learns_as_on_the_cpu(machine: Machine, ran_on_device: Callable[..., None], make: Any) -> None:
    expected = train(adapted(make), "cpu")
    model = adapted(make).cuda()
    frozen = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
    assert {parameter.device for parameter in model.parameters()} == {CARD}
    losses = train(model, "cuda")
    assert losses == pytest.approx(expected, rel=1e-4)
    assert losses[-1] < losses[0]
    assert all(torch.equal(model.get_parameter(name), value) for name, value in frozen.items())
    ran_on_device()


def test_only_the_adapter_has_gradients_and_optimizer_state(machine: Machine) -> None:
    model = adapted(llama).cuda()
    trained = sum(p.nbytes for p in model.parameters() if p.requires_grad)
    assert trained < 0.2 * sum(p.nbytes for p in model.parameters())
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    model(
        input_ids=torch.ones(2, 8, dtype=torch.long, device=CARD),
        labels=torch.ones(2, 8, dtype=torch.long, device=CARD),
    ).loss.backward()
    gradients = {name for name, p in model.named_parameters() if p.grad is not None}
    assert gradients == {name for name, p in model.named_parameters() if "lora_" in name}
    before = torch.cuda.memory_allocated()
    optimizer.step()
    taken = torch.cuda.memory_allocated() - before
    assert 2 * trained <= taken <= 2 * trained + 2 * 512 * len(gradients)


@pytest.mark.parametrize("make", [gpt2, llama])
def test_saved_loaded_and_merged(machine: Machine, tmp_path: Path, make: Any) -> None:
    make().save_pretrained(tmp_path / "base")
    model = adapted(make, lora_dropout=0.1).cuda()
    train(model, "cuda", steps=4)
    model.eval().save_pretrained(tmp_path / "adapter")
    ids = torch.randint(0, WORDS, (2, 10), device="cuda")
    expected = model(input_ids=ids).logits
    with model.disable_adapter():
        plain = model(input_ids=ids).logits
    assert (plain - expected).abs().max() > 1e-4
    torch.testing.assert_close(plain, make().cuda().eval()(ids).logits)

    base = type(make()).from_pretrained(tmp_path / "base", device_map="cuda:0")
    loaded = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    assert {parameter.device for parameter in loaded.parameters()} == {CARD}
    torch.testing.assert_close(loaded(input_ids=ids).logits, expected)
    merged = loaded.merge_and_unload()
    assert not any("lora_" in name for name, _ in merged.named_parameters())
    torch.testing.assert_close(merged(ids).logits, expected, rtol=1e-3, atol=1e-4)


def test_two_adapters_take_turns_in_mixed_precision(machine: Machine) -> None:
    model = adapted(llama, init_lora_weights=False).cuda()
    model.add_adapter("other", peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    ids = torch.randint(0, WORDS, (2, 10), device="cuda")
    outputs = {}
    for name in ("default", "other"):
        model.set_adapter(name)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            outputs[name] = model(input_ids=ids).logits
    assert {parameter.device for parameter in model.parameters()} == {CARD}
    assert not torch.equal(outputs["default"], outputs["other"])
