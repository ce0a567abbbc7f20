"""Tiny models with random weights, and data for them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="needs the extra [integrations]")

from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

WORDS = 64
_SIZES: dict[str, Any] = {
    "vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 64,
}  # fmt: skip


def gpt2(dropout: float = 0.0, layers: int = 2, attention: str = "sdpa") -> GPT2LMHeadModel:
    """A GPT-2 of 30,000 parameters, always the same."""
    torch.manual_seed(0)
    rates = {"resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": dropout}
    sizes = {"vocab_size": WORDS, "n_positions": 64, "n_embd": 32, "n_layer": layers, "n_head": 4}
    return GPT2LMHeadModel(
        GPT2Config(**sizes, **rates, bos_token_id=1, eos_token_id=0, pad_token_id=0, attn_implementation=attention)
    )


def llama(attention: str = "sdpa") -> LlamaForCausalLM:
    """A Llama with grouped keys and values."""
    torch.manual_seed(0)
    tokens = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    return LlamaForCausalLM(LlamaConfig(**_SIZES, **tokens, num_key_value_heads=2, attn_implementation=attention))


def bert(attention: str = "sdpa") -> BertForSequenceClassification:
    """A BERT that tells two classes apart."""
    torch.manual_seed(0)
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return BertForSequenceClassification(BertConfig(**_SIZES, **rates, attn_implementation=attention))


def sentences(count: int, length: int = 16) -> list[dict[str, torch.Tensor]]:
    """Counting upwards from different numbers: what a small language model learns in a few steps."""
    rows = (torch.arange(length) + torch.arange(count)[:, None]) % WORDS
    return [{"input_ids": row, "labels": row} for row in rows]


def reviews(count: int) -> list[dict[str, torch.Tensor]]:
    """Sentences of low words and of high words, some padded, with their class."""
    generator = torch.Generator().manual_seed(0)
    examples = []
    for i in range(count):
        ids = torch.randint(1, WORDS // 2, (12,), generator=generator) + (i % 2) * (WORDS // 2)
        mask = (torch.arange(12) < 12 - i % 3).long()
        examples.append({"input_ids": ids * mask, "attention_mask": mask, "labels": torch.tensor(i % 2)})
    return examples
