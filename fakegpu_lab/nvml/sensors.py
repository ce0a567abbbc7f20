"""Temperature, power and clocks of a simulated card: a model, stated here, of how busy it is.

- **Power** rises evenly from what such a card draws idle to 95 % of its limit when kernels run all the time. Idle cards
  of data centres with HBM draw 13 % of their limit, others 6 %; a context adds 7 %.
- **Temperature** is what the card would settle at: 30 °C, and 42 °C more at full power.
- **Clocks** are the highest while a process has a context, else the idle ones; no throttling.
- **Memory utilisation** (NVML: the time in which memory was being read or written) is 55 % of the time in which kernels
  ran, as in the common training step: what kernels move is not counted while nobody records.
- **Fans**, where a card has its own, stand still below 50 °C and reach 100 % at 90 °C.

The same load gives the same readings: nothing wanders, and nothing needs minutes to warm up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fakegpu_lab.nvml.cards import Card

_MEMORY_SHARE = 0.55
_IDLE_CLOCK = {"maxwell": 135, "pascal": 139, "volta": 135, "turing": 300, "hopper": 345, "blackwell": 180}
SLOWDOWN_C, SHUTDOWN_C, TARGET_C = 92, 95, 83


@dataclass(frozen=True)
class Sensors:
    """Readings: percent, °C, watts, MHz."""

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
        """What a card shows that was busy for this part of the time, with or without a process on it."""
        idle = (0.13 if card.hbm else 0.06) + (0.07 if context else 0.0)
        share = idle + (0.95 - idle) * busy
        temperature = round(30 + 42 * share)
        awake = context or busy > 0
        low = _IDLE_CLOCK.get(card.architecture, 210)
        geforce = card.segment in ("consumer", "laptop")
        return cls(
            gpu=round(100 * busy),
            memory=round(100 * _MEMORY_SHARE * busy),
            temperature=temperature,
            power=round(card.power_limit * share, 2),
            clock=card.clock if awake else min(low, card.clock),
            memory_clock=card.memory_clock if awake or card.hbm else min(405, card.memory_clock),
            pstate=(2 if geforce else 0) if awake else (0 if card.hbm else 8),
            fan=None if card.passive else max(0, min(100, round((temperature - 50) * 2.5))),
        )
