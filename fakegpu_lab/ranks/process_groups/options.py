"""Options of operations between ranks, as the methods of `torch.distributed.ProcessGroup` take them."""

from __future__ import annotations

from typing import Any

from torch.distributed import ReduceOp


def given(opts: Any, kind: Any) -> Any:
    """The options that were given, or new ones."""
    return opts if opts is not None else kind()


def reducing(opts: Any, kind: Any, more: dict[str, Any] | None = None) -> Any:
    """The options; where only a ReduceOp was given, as the short forms of the methods take it, options with it."""
    op = (more or {}).get("op")
    if opts is None or isinstance(opts, (ReduceOp, ReduceOp.RedOpType)):
        op = opts if opts is not None else op
        opts = kind()
        if op is not None:
            opts.reduceOp = op
    if more and "root" in more:
        opts.rootRank = more["root"]
    return opts
