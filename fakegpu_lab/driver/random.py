"""Random numbers on a device: a generator per device, apart from the host's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from fakegpu_lab.driver.op import Op
    from fakegpu_lab.hardware.device import Device

DEFAULT_SEED = 67280421310721  # c10/core/GeneratorImpl.h: default_rng_seed_val

_generators: dict[int, torch.Generator] = {}


def generator(index: int) -> torch.Generator:
    """The default generator of ``cuda:index``.

    It is torch's CPU generator (Mersenne Twister): deterministic and independent of the host's, but its digits are
    not those of a real card.
    """
    found = _generators.get(index)
    if found is None:
        found = _generators[index] = torch.Generator()
        found.manual_seed(DEFAULT_SEED)
    return found


def forget() -> None:
    """Drop all generators: the next machine starts from the default seed."""
    _generators.clear()


def seeded_call(op: Op, device: Device, *args: Any, **kwargs: Any) -> Any:
    """Compute a random op on inner tensors with the device's generator instead of the host's."""
    source = generator(device.index)
    if op.has_generator:
        position = op.position["generator"]
        given = args[position] if position < len(args) else kwargs.get("generator")
        if given is None:
            if position < len(args):
                args = (*args[:position], source, *args[position + 1 :])
            else:
                kwargs["generator"] = source
        return op.func._op(*args, **kwargs)
    host = torch.default_generator
    state = host.get_state()
    host.set_state(source.get_state())
    try:
        return op.func._op(*args, **kwargs)
    finally:
        source.set_state(host.get_state())
        host.set_state(state)
