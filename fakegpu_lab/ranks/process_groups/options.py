"""The options that methods of `torch.distributed.ProcessGroup` take.

Each method has two forms (torch/csrc/distributed/c10d/init.cpp): lists of tensors with an options object, and single
tensors with the options' fields.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed import ReduceOp


def given(opts: Any, kind: Any) -> Any:
    """The caller's options, or new ones."""
    if opts is None:
        return kind()
    if not isinstance(opts, kind):
        raise TypeError(f"incompatible function arguments: expected {kind.__name__}, got {type(opts).__name__}")
    return opts


def rooted(opts: Any, kind: Any, more: dict[str, Any], *, short: bool) -> tuple[Any, int]:
    """The options, and the root.

    Parameters
    ----------
    opts
        The caller's options; in the short form, the root.
    more
        Keyword arguments of the short form.
    short
        Whether the caller used the form with a single tensor.
    """
    if short and isinstance(opts, int):
        more, opts = {"root": opts, **more}, None
    opts = given(opts, kind)
    return opts, more.get("root", opts.rootRank + getattr(opts, "rootTensor", 0))


def reducing(opts: Any, kind: Any, more: dict[str, Any] | None = None) -> Any:
    """The options of a reduction; the short forms of the methods take a ReduceOp instead, which is put into options."""
    op = (more or {}).get("op")
    if opts is None or isinstance(opts, (ReduceOp, ReduceOp.RedOpType)):
        op = opts if opts is not None else op
        opts = kind()
        if op is not None:
            opts.reduceOp = op
    if more and "root" in more:
        opts.rootRank = more["root"]
    return given(opts, kind)


def barrier_device(opts: Any, bound: torch.device | None, used: set[int], rank: int) -> torch.device:
    """The device that ProcessGroupNCCL::barrier chooses for a global rank; `used` are those that the group has used."""
    if opts.device_ids:
        index = opts.device_ids[0]
    elif bound is not None:
        index = bound.index
    elif opts.device is not None and opts.device.index is not None and opts.device.type != "cpu":
        index = opts.device.index
    elif used:
        index = min(used)
    else:
        index = rank % torch.cuda.device_count()
    return torch.device("cuda", index)
