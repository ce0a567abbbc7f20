"""The sentence about real GPUs that simulated ones hide."""

from __future__ import annotations

import torch

from fakegpu_lab.driver.base import current


def hidden() -> str | None:
    """One sentence if torch sees a real GPU that `enable` is about to hide; else None.

    The patches and libraries of `install` replace every way to the real GPU and restore it later.
    """
    if current.machine is not None or not torch.backends.cuda.is_built() or not torch.cuda.is_available():  # type: ignore[no-untyped-call]
        return None
    count = torch.cuda.device_count()
    what = "The real GPU of this computer is" if count == 1 else f"The {count} real GPUs of this computer are"
    which = "it" if count == 1 else "them"
    return f"{what} hidden while simulated ones are enabled; fakegpu_lab.disable() brings {which} back."
