"""The small GPT that goes through the lessons, and the nursery rhyme that it learns.

The rhyme is *The House That Jack Built* (before 1755, in the public domain). A token is a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

if TYPE_CHECKING:
    from collections.abc import Callable

    Tensor = torch.Tensor
    Attention: TypeAlias = Callable[[int, Tensor, Tensor, Tensor], Tensor]

_LINES = (
    "the house that Jack built", "the malt that lay in", "the rat that ate", "the cat that killed",
    "the dog that worried", "the cow with the crumpled horn that tossed", "the maiden all forlorn that milked",
    "the man all tattered and torn that kissed", "the priest all shaven and shorn that married",
    "the cock that crowed in the morn that waked", "the farmer sowing his corn that kept",
)  # fmt: skip
RHYME = " / ".join("This is " + " ".join(reversed(_LINES[:n])) for n in range(1, len(_LINES) + 1)).split()
"""Its words, in order; ``/`` ends a verse."""
VOCABULARY = sorted(set(RHYME))
"""Each word once."""


def text() -> Tensor:
    """The rhyme as numbers of words, on the CPU: int64, of the shape (words,)."""
    return torch.tensor([VOCABULARY.index(word) for word in RHYME])


def batch(rows: int = 8, length: int = 48) -> tuple[Tensor, Tensor]:
    """Pieces of the rhyme, drawn with torch's generator of the CPU: the words, and for each the one that follows.

    Both are int64, on the CPU, of the shape (rows, length).
    """
    words = text()
    starts = torch.randint(len(words) - length, (rows, 1))
    pieces = words[starts + torch.arange(length + 1)]
    return pieces[:, :-1], pieces[:, 1:]


def spoken(tokens: list[int]) -> str:
    """Numbers of words as text.

    >>> spoken([0, 1])
    '/ Jack'
    """
    return " ".join(VOCABULARY[number] for number in tokens)


def causal(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention of all tokens at once: each looks at itself and at those before it. (batch, heads, tokens, size)."""
    return scaled_dot_product_attention(q, k, v, is_causal=True)


class Block(nn.Module):
    """A layer: attention, and a network for each token by itself."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, (heads + 2 * groups) * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor, layer: int, attention: Attention) -> Tensor:
        """(batch, tokens, width) in and out."""
        parts = self.qkv(self.norm1(x)).unflatten(-1, (-1, self.size)).transpose(1, 2)
        q, k, v = parts.split((self.heads, self.groups, self.groups), dim=1)
        x = x + self.out(attention(layer, q, k, v).transpose(1, 2).flatten(2))
        out: Tensor = x + self.down(gelu(self.up(self.norm2(x))))
        return out


class GPT(nn.Module):
    """A GPT: for each token, a score for every word that could follow.

    Parameters
    ----------
    layers, width, heads
        Blocks, numbers for each token, and heads of attention; 2, 128 and 4 make 422,144 parameters.
    groups
        Heads that share keys and values (lesson 12); by default, each head has its own.
    words, room
        The size of the vocabulary, and the largest number of tokens in a text.
    """

    def __init__(
        self, layers: int = 2, width: int = 128, heads: int = 4, groups: int = 0, words: int = 0, room: int = 128
    ) -> None:
        super().__init__()
        words = words or len(VOCABULARY)
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(room, width)
        self.blocks = nn.ModuleList([Block(width, heads, groups or heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens: Tensor, places: Tensor | None = None, attention: Attention = causal) -> Tensor:
        """(batch, tokens) of int64 in, (batch, tokens, words) out; by default, the positions `places` count from 0."""
        if places is None:
            places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.words(tokens) + self.places(places)
        for layer, block in enumerate(self.blocks):
            x = block(x, layer, attention)
        out: Tensor = self.head(self.norm(x))
        return out


def loss(model: nn.Module, words: Tensor, following: Tensor) -> Tensor:
    """How surprised a model is by the words that follow, in the mean: 3.8 if it knows nothing of 44 words."""
    return cross_entropy(model(words).flatten(0, 1), following.flatten())
