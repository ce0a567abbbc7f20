"""Amounts and times, as nvidia-smi writes them."""

from __future__ import annotations

import time

from fakegpu_lab.nvml.cards import MIB

NOT_AVAILABLE = "N/A"


def mib(nbytes: int) -> int:
    """Whole MiB, rounded up, as nvidia-smi counts used memory."""
    return -(-nbytes // MIB)


def now(form: str) -> str:
    """The computer's time, in English in every locale: ``"long"`` with weekday and month, or ``"short"``."""
    moment = time.localtime()
    day = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[moment.tm_wday]
    month = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"][moment.tm_mon - 1]
    if form == "long":
        return f"{day} {month} {moment.tm_mday:2d} {time.strftime('%H:%M:%S', moment)} {moment.tm_year}"
    return time.strftime("%Y/%m/%d %H:%M:%S", moment) + f".{time.time_ns() // 1_000_000 % 1000:03d}"
