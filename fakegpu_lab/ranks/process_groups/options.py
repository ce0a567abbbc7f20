"""The options that methods of `torch.distributed.ProcessGroup` take."""

from __future__ import annotations

from typing import Any

from torch.distributed import ReduceOp


def given(opts: Any, kind: Any) -> Any:
    """The caller's options, or new ones."""
    return opts if opts is not None else kind()


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
    return opts
