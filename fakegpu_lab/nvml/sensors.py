"""Temperature, power and clocks of a simulated card, by a model of how busy it is.

- **Power** rises linearly from the idle card's to 95% of the limit when kernels run all the time. An idle card with
  HBM draws 13% of its limit, any other 6%; a context adds 7%.
- **Temperature** is the one that the card would settle at: 30 °C, plus 42 °C at full power.
- **Clocks** are the highest while a process has a context, else the idle ones; there is no throttling.
- **Memory utilization** (NVML: the time in which memory was being read or written) is 55% of the time in which kernels
  ran, as in a typical training step: the bytes that kernels move are counted only during a recording.
- **Fans**, where a card has its own, stand still below 50 °C and reach 100% at 90 °C.

The same load gives the same readings: they do not fluctuate, and need no minutes to warm up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fakegpu_lab.nvml.cards import Card

_MEMORY_UTILIZATION = 0.55  # of the GPU's
_IDLE_CLOCK = {"maxwell": 135, "pascal": 139, "volta": 135, "turing": 300, "hopper": 345, "blackwell": 180}
SLOWDOWN_C, SHUTDOWN_C, TARGET_C = 92, 95, 83


@dataclass(frozen=True)
class Sensors:
    """A card's readings: utilization and fan in percent, temperature in °C, power in watts, clocks in MHz."""

    gpu: int
    memory: int
    temperature: int
    power: float
    clock: int
    memory_clock: int
    pstate: int
    fan: int | None

    @classmethod
    def of(cls, card: Card, busy: float, *, context: bool) -> Sensors:
        """The readings of a card that was `busy` for a fraction of the time, with or without a process on it."""
        idle = (0.13 if card.hbm else 0.06) + (0.07 if context else 0.0)
        power = idle + (0.95 - idle) * busy  # of the limit
        temperature = round(30 + 42 * power)
        awake = context or busy > 0
        low = _IDLE_CLOCK.get(card.architecture, 210)
        geforce = card.segment in ("consumer", "laptop")
        return cls(
            gpu=round(100 * busy),
            memory=round(100 * _MEMORY_UTILIZATION * busy),
            temperature=temperature,
            power=round(card.power_limit * power, 2),
            clock=card.clock if awake else min(low, card.clock),
            memory_clock=card.memory_clock if awake or card.hbm else min(405, card.memory_clock),
            pstate=(2 if geforce else 0) if awake else (0 if card.hbm else 8),
            fan=None if card.passive else max(0, min(100, round((temperature - 50) * 2.5))),
        )
