"""`transformers` models as their users call them: forward and backward, generation, loading, pipelines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

import fakegpu_lab as lab

transformers = pytest.importorskip("transformers", reason="needs the extra [integrations]")
pytest.importorskip("accelerate", reason="needs the extra [integrations]")

from tests.integrations.models import WORDS, bert, gpt2, llama, reviews

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fakegpu_lab.hardware.machine import Machine

SIZES: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GROUPED = SIZES | {"num_key_value_heads": 2}
SEQ2SEQ: dict[str, Any] = {
    "vocab_size": 64, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
VISION = {"image_size": 32, "patch_size": 8}

# The class, its configuration's class and that configuration, and what it is fed.
ARCHITECTURES: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "mistral, sliding window": ("MistralForCausalLM", "MistralConfig", GROUPED | {"sliding_window": 4}, "text"),
    "gemma 2, soft caps": ("Gemma2ForCausalLM", "Gemma2Config", GROUPED | {"head_dim": 8}, "text"),
    "mixtral, experts": ("MixtralForCausalLM", "MixtralConfig", GROUPED | {"num_local_experts": 4}, "text"),
    "mamba, state space": (
        "MambaForCausalLM", "MambaConfig", {**{k: SIZES[k] for k in ("vocab_size", "hidden_size", "num_hidden_layers")},
                                            "state_size": 4}, "text",
    ),
    "t5": (
        "T5ForConditionalGeneration", "T5Config",
        {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
         "decoder_start_token_id": 0, "dropout_rate": 0.0}, "text",
    ),
    "whisper": (
        "WhisperForConditionalGeneration", "WhisperConfig",
        SEQ2SEQ | {"num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 32}, "sound",
    ),
    "longformer": ("LongformerForMaskedLM", "LongformerConfig", SIZES | {"attention_window": 4}, "text"),
    "vit": ("ViTForImageClassification", "ViTConfig", {
        k: SIZES[k] for k in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    } | VISION, "image"),
    "resnet": ("ResNetForImageClassification", "ResNetConfig", {
        "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}, "image"),
}  # fmt: skip


def batch(kind: str) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    text = torch.randint(3, WORDS, (2, 12), generator=generator)
    if kind == "text":
        return {"input_ids": text, "labels": text}
    if kind == "sound":
        return {"input_features": torch.randn(2, 8, 40, generator=generator), "labels": text}
    return {"pixel_values": torch.randn(2, 3, 32, 32, generator=generator), "labels": torch.tensor([0, 1])}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_loss_and_gradients_of_many_architectures(machine: Machine, name: str) -> None:
    model_class, config_class, sizes, kind = ARCHITECTURES[name]
    torch.manual_seed(0)
    model = getattr(transformers, model_class)(getattr(transformers, config_class)(**sizes)).eval()
    inputs = batch(kind)
    reference = model(**inputs)
    reference.loss.backward()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}

    model.zero_grad()
    model.cuda()
    on_device = {key: value.cuda() for key, value in inputs.items()}
    output = model(**on_device)
    output.loss.backward()
    torch.testing.assert_close(output.loss.cpu(), reference.loss, rtol=1e-4, atol=1e-5)
    assert gradients.keys() == {n for n, p in model.named_parameters() if p.grad is not None}
    for n, gradient in gradients.items():
        torch.testing.assert_close(model.get_parameter(n).grad.cpu(), gradient, rtol=2e-3, atol=1e-4)

    for dtype in (torch.float16, torch.bfloat16):
        with torch.autocast("cuda", dtype=dtype):
            mixed = model(**on_device)
        assert mixed.loss.item() == pytest.approx(reference.loss.item(), rel=0.02)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("make", [gpt2, llama])
def test_generation(machine: Machine, make: Any, attention: str) -> None:
    model = make(attention=attention).eval()
    prompts = torch.randint(3, WORDS, (2, 5))
    mask = torch.ones_like(prompts)
    mask[1, :2] = 0
    plans: tuple[dict[str, Any], ...] = (
        {"do_sample": False}, {"num_beams": 3}, {"do_sample": False, "use_cache": False},
        {"do_sample": False, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
    )  # fmt: skip
    expected = [model.generate(prompts, attention_mask=mask, max_new_tokens=8, **plan) for plan in plans]
    model.cuda()
    prompts, mask = prompts.cuda(), mask.cuda()
    for plan, tokens in zip(plans, expected, strict=True):
        generated = model.generate(prompts, attention_mask=mask, max_new_tokens=8, **plan)
        assert generated.device == torch.device("cuda", 0)
        assert generated.tolist() == tokens.tolist(), plan
    drawing = {"do_sample": True, "top_k": 20, "top_p": 0.9, "temperature": 0.8, "max_new_tokens": 8}
    draws = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        draws.append(model.generate(prompts, attention_mask=mask, **drawing).tolist())
    assert draws[0] == draws[1] != draws[2]


@pytest.mark.filterwarnings("ignore")
def test_the_static_cache_takes_its_memory_at_once(machine: Machine) -> None:
    model = llama().eval().cuda()
    prompts = torch.randint(3, WORDS, (2, 5), device="cuda")
    expected = model.generate(prompts, max_new_tokens=8, do_sample=False).tolist()
    cache = transformers.StaticCache(config=model.config, max_cache_len=64)
    before = torch.cuda.memory_allocated()
    model(prompts, past_key_values=cache, use_cache=True)
    layers, keys_and_values, heads, width = 2, 2, 2, 8
    assert torch.cuda.memory_allocated() - before >= layers * keys_and_values * 2 * heads * 64 * width * 4
    assert (
        model.generate(prompts, max_new_tokens=8, do_sample=False, cache_implementation="static").tolist() == expected
    )


@pytest.mark.parametrize("where", ["auto", "cuda", "cuda:1", 1, {"": "cuda:1"}], ids=str)
def test_a_saved_model_is_loaded_to_a_card(machine: Machine, tmp_path: Path, where: Any) -> None:
    lab.enable("a100" if where in ("auto", "cuda") else "a100:2", memory="4GiB")
    card = torch.device("cuda", 0 if where in ("auto", "cuda") else 1)
    model = llama().eval()
    model.save_pretrained(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, device_map=where)
    assert {tensor.device for tensor in loaded.state_dict().values()} == {card}
    bytes_of_weights = sum(p.nbytes for p in model.parameters())
    assert bytes_of_weights <= torch.cuda.memory_allocated(card) < bytes_of_weights + 64 * 512
    ids = torch.randint(0, WORDS, (2, 7))
    torch.testing.assert_close(loaded(ids.to(card)).logits.cpu(), model(ids).logits, rtol=1e-4, atol=1e-5)

    half = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, device_map=where, dtype=torch.float16)
    assert {parameter.dtype for parameter in half.parameters()} == {torch.float16}
    assert half(ids.to(card)).logits.dtype is torch.float16


@pytest.mark.parametrize(
    ("strategy", "limits"),
    [
        ("auto", {0: "60kB", 1: "1MB"}),
        ("balanced", None),
        ("sequential", {0: "100kB", 1: "1MB"}),
        ("auto", {0: "60kB", 1: "60kB", "cpu": "1GB"}),
    ],
)
def test_a_model_is_spread_over_cards(machine: Machine, tmp_path: Path, strategy: str, limits: Any) -> None:
    model = gpt2(layers=4).eval()
    model.save_pretrained(tmp_path)
    spread = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, device_map=strategy, max_memory=limits)
    places = {parameter.device.type for parameter in spread.parameters()}
    assert places == ({"cuda", "meta"} if limits and "cpu" in limits else {"cuda"})
    assert {0, 1} <= set(spread.hf_device_map.values())
    assert min(torch.cuda.memory_allocated(0), torch.cuda.memory_allocated(1)) > 0
    ids = torch.randint(1, WORDS, (2, 5))
    mask = torch.ones_like(ids)
    torch.testing.assert_close(spread(ids.cuda()).logits.cpu(), model(ids).logits, rtol=1e-4, atol=1e-5)
    generated = spread.generate(ids.cuda(), attention_mask=mask.cuda(), max_new_tokens=4, do_sample=False)
    assert generated.tolist() == model.generate(ids, attention_mask=mask, max_new_tokens=4, do_sample=False).tolist()


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_padded_sentences_are_classified_as_on_the_cpu(machine: Machine, attention: str) -> None:
    model = bert(attention).eval()
    inputs = {key: torch.stack([review[key] for review in reviews(4)]) for key in reviews(1)[0]}
    expected = model(**inputs)
    model.to("cuda:1")
    output = model(**{key: value.to("cuda:1") for key, value in inputs.items()})
    assert output.logits.device == torch.device("cuda", 1)
    torch.testing.assert_close(output.logits.cpu(), expected.logits, rtol=1e-4, atol=1e-5)


def test_pipelines(machine: Machine, ran_on_device: Callable[..., None]) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="needs the extra [integrations]")
    words = {f"w{i}": i for i in range(WORDS - 1)} | {"<unk>": WORDS - 1}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", pad_token="w0", eos_token="w0"
    )
    fast.padding_side = "left"
    writer = transformers.pipeline("text-generation", model=gpt2().eval(), tokenizer=fast, device=0)
    assert writer.device == writer.model.device == torch.device("cuda", 0)
    texts = writer(["w1 w2 w3", "w4 w5"], batch_size=2, max_new_tokens=5, do_sample=False)
    assert [text[0]["generated_text"].startswith("w") for text in texts] == [True, True]
    ran_on_device()
    judge = transformers.pipeline("text-classification", model=bert().eval(), tokenizer=fast, device="cuda:1")
    on_cpu = transformers.pipeline("text-classification", model=bert().eval(), tokenizer=fast, device="cpu")
    assert judge("w1 w2")[0]["score"] == pytest.approx(on_cpu("w1 w2")[0]["score"], rel=1e-4)
    ran_on_device(1)


def _two_steps(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> None:
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        model(**inputs).loss.mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def _masked() -> dict[str, torch.Tensor]:
    """A batch with the mask that tokenizers give: nothing is hidden."""
    tokens = torch.randint(3, WORDS, (4, 16)).cuda()
    return {"input_ids": tokens, "labels": tokens, "attention_mask": torch.ones_like(tokens)}


MASKED: dict[str, Callable[[], Any]] = {
    "gpt2": gpt2,
    "llama": llama,
    "qwen3": lambda: _built("Qwen3ForCausalLM", "Qwen3Config", GROUPED | {"head_dim": 8}),
    "bert": lambda: _built("BertForMaskedLM", "BertConfig", SIZES),
    "mixtral": lambda: _built("MixtralForCausalLM", "MixtralConfig", GROUPED | {"num_local_experts": 4}),
}


def _built(model: str, config: str, sizes: dict[str, Any]) -> Any:
    return getattr(transformers, model)(getattr(transformers, config)(**sizes))


@pytest.mark.parametrize("name", MASKED)
def test_without_values_models_train_with_a_mask(machine: Machine, name: str) -> None:
    lab.enable("a100", compute="meta")
    _two_steps(MASKED[name]().cuda(), _masked())
    assert torch.cuda.max_memory_allocated() > 0


def test_without_values_a_mask_costs_what_one_that_hides_nothing_costs(machine: Machine) -> None:
    peaks = []
    for compute in ("real", "meta"):
        lab.enable("a100", compute=compute)
        _two_steps(gpt2().cuda(), _masked())
        peaks.append((torch.cuda.max_memory_allocated(), lab.snapshot().devices[0].counters.kernels))
    assert peaks[0] == peaks[1]


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
def test_without_values_models_train_on_several_gpus(machine: Machine, name: str) -> None:
    lab.enable("a100:2", compute="meta")
    _two_steps(torch.nn.DataParallel(MASKED[name]().cuda()), _masked())

    def rank() -> None:
        torch.distributed.init_process_group("nccl")
        index = torch.distributed.get_rank()
        torch.cuda.set_device(index)
        _two_steps(torch.nn.parallel.DistributedDataParallel(MASKED[name]().cuda(), device_ids=[index]), _masked())
        torch.distributed.destroy_process_group()

    lab.run_ranks(rank, 2)
    assert all(device.counters.kernels > 0 for device in lab.snapshot().devices)
