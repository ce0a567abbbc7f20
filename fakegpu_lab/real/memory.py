"""What the memory of real cards is for, from the live objects of this process.

The allocator's snapshot has the blocks in use. A block belongs to the tensors that lie in it: the parameters and
buffers of modules, their gradients, the state of optimizers, results that autograd can go back through. The others are
"other": torch does not tell which were copied from the host, or what C++ alone holds.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.live_objects import Finder
from fakegpu_lab.hardware import memory_categories
from fakegpu_lab.hardware.memory_categories import NAMES, Categories

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_FINDER = Finder(torch.Tensor, torch.nn.Module, torch.optim.Optimizer)
_STRENGTH = (
    memory_categories.PARAMETERS, memory_categories.GRADIENTS, memory_categories.OPTIMIZER_STATE,
    memory_categories.ACTIVATIONS, memory_categories.OTHER,
)  # fmt: skip
"""The strongest claim to a block first."""


def by_category() -> dict[int, Categories]:
    """The allocated bytes of every card by category; to be called while no backward pass runs in another thread."""
    blocks: dict[int, list[tuple[int, int]]] = {}
    for segment in torch.cuda.memory_snapshot():  # type: ignore[no-untyped-call]
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                blocks.setdefault(segment["device"], []).append((block["address"], block["size"]))
    for of_card in blocks.values():
        of_card.sort()
    claims: dict[tuple[int, int], int] = {}
    for tensor, category in _claims():
        place = _block(blocks.get(tensor.device.index, []), tensor)
        if place is not None:
            found = (tensor.device.index, place)
            claims[found] = min(claims.get(found, len(_STRENGTH)), _STRENGTH.index(category))
    return {card: _sums(card, of_card, claims) for card, of_card in blocks.items()}


def _sums(card: int, blocks: list[tuple[int, int]], claims: dict[tuple[int, int], int]) -> Categories:
    sums = dict.fromkeys(NAMES, 0)
    for place, (_, nbytes) in enumerate(blocks):
        sums[_STRENGTH[claims.get((card, place), len(_STRENGTH) - 1)]] += nbytes
    return Categories(**sums)


def _block(blocks: list[tuple[int, int]], tensor: torch.Tensor) -> int | None:
    """The number of the block that a tensor's storage lies in."""
    try:
        address = tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # it has no storage: sparse, or a wrapper
        return None
    place = bisect_right(blocks, (address, 1 << 62)) - 1
    if place < 0 or not blocks[place][0] <= address < sum(blocks[place]):
        return None
    return place


def _claims() -> Iterator[tuple[torch.Tensor, str]]:
    for thing in _FINDER():
        if isinstance(thing, torch.nn.Module):
            for table in (vars(thing).get("_parameters"), vars(thing).get("_buffers")):
                yield from _on_cards((table or {}).values(), memory_categories.PARAMETERS)
        elif isinstance(thing, torch.optim.Optimizer):
            for entry in list(getattr(thing, "state", {}).values()):
                values = entry.values() if isinstance(entry, dict) else ()
                yield from _on_cards(list(values), memory_categories.OPTIMIZER_STATE)
        elif isinstance(thing, torch.Tensor) and thing.is_cuda:
            if thing.requires_grad and thing.is_leaf:
                yield thing, memory_categories.PARAMETERS
                yield from _on_cards([thing.grad], memory_categories.GRADIENTS)
            elif thing.requires_grad:
                yield thing, memory_categories.ACTIVATIONS


def _on_cards(values: Iterable[Any], category: str) -> Iterator[tuple[torch.Tensor, str]]:
    for value in values:
        if isinstance(value, torch.Tensor) and value.is_cuda:
            yield value, category
