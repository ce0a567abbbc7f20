"""What is noted of a case: its results, its error, its timeline, its memory.

Only public names are used, so that a checkout with other rooms is recorded in the same way.
"""

from __future__ import annotations

import hashlib
import random
import re
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

import fakegpu_lab as lab

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fakegpu_lab.trace import Trace

WHOLE = 40
"""Records of a kind that are kept one by one; of more, sums by name and a digest."""


class Machines:
    """A new machine for each case; a machine of the same kind is reset, which is quicker."""

    def __init__(self) -> None:
        self.kind: tuple[str, str | None] | None = None

    def prepare(self, spec: str, memory: str | None = None) -> None:
        """Empty memory, time 0, the same seeds."""
        if self.kind == (spec, memory):
            lab.reset()
        else:
            # The record is of what happens, not of the host's constants, which may be chosen better.
            lab.enable(spec, memory=memory, clock="simulated", host="launches-only")
            self.kind = spec, memory
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002 - torch's samples draw from the global one
        random.seed(0)


def observed(run: Callable[[], Any], *, with_values: bool = True) -> dict[str, Any]:
    """Run a case in a recording; what could be seen, without what is empty."""
    found: dict[str, Any] = {}
    result: Any = None
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with lab.record() as trace:
            try:
                result = run()
            except Exception as error:
                found["error"] = f"{type(error).__name__}: {stable(str(error))}"
                error.__traceback__ = None
    found |= timeline(trace)
    found["memory"] = {str(device): memory(device) for device in range(torch.cuda.device_count())}
    found["memory"] = {device: figures for device, figures in found["memory"].items() if figures}
    found["results"] = [described(leaf, with_values) for leaf in tree_leaves(result)]
    found["warnings"] = [stable(str(warning.message)) for warning in said]
    return {key: value for key, value in found.items() if value}


def memory(device: int) -> list[str]:
    """What `torch.cuda.memory_stats` says and is not 0; of a quantity: current, peak, allocated, freed."""
    stats = torch.cuda.memory_stats(device)
    quantities = {name.rpartition(".")[0]: "" for name in stats if name.count(".") == 2}
    for name in quantities:
        quantities[name] = " ".join(str(stats[f"{name}.{kind}"]) for kind in ("current", "peak", "allocated", "freed"))
    rest = {name: str(value) for name, value in stats.items() if name.count(".") < 2}
    return [f"{name} {value}" for name, value in {**quantities, **rest}.items() if value not in ("0", "0 0 0 0")]


def described(value: Any, with_values: bool) -> str:
    """A tensor's dtype, shape, strides, device and bits; of anything else, its representation."""
    if not isinstance(value, torch.Tensor):
        return stable(repr(value))[:400]
    kind = f"{str(value.dtype)[6:]}{list(value.shape)}".replace(" ", "")
    if value.layout is torch.strided and not value.is_contiguous():
        kind += f"/{list(value.stride())}".replace(" ", "")
    if value.layout is not torch.strided:
        kind += f" {str(value.layout)[6:]}"
    if value.requires_grad:
        kind += f" {type(value.grad_fn).__name__}"
    return f"{kind} {value.device}" + (f" {digest(value)}" if with_values else "")


def digest(value: torch.Tensor) -> str:
    """Ten digits for a tensor's bits."""
    try:
        plain = value.detach().cpu()
        if plain.is_quantized:
            plain = plain.int_repr()
        if plain.layout is not torch.strided:
            plain = plain.to_dense()
        raw = plain.resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    except (RuntimeError, NotImplementedError, ValueError) as error:
        return f"({type(error).__name__})"
    return hashlib.sha256(raw).hexdigest()[:10]


def stable(text: str) -> str:
    """A message without addresses, versions of files and places in them."""
    text = re.sub(r"0x[0-9a-f]{6,}", "0x…", text)
    text = re.sub(r'File "[^"]*", line \d+', "File …", text)
    text = re.sub(r"/[\w./-]+/(site-packages|tests)/", "…/", text)
    return re.sub(r"\.(py|cpp|h):\d+|[Ll]ine \d+", "(a line)", text)


def timeline(trace: Trace) -> dict[str, Any]:
    """The records of a recording, times in ns since its begin."""
    t0 = trace.began_ns
    kinds: dict[str, list[tuple[str, tuple[int, ...], str]]] = {
        "kernels": [
            (
                f"{k.name} {k.device}:{k.stream}",
                (k.end_ns - k.start_ns, k.flops, k.nbytes),
                f"at {k.start_ns - t0} launched {k.launched_ns - t0} share {k.share:.6g} {k.phase} {k.waited_for}",
            )
            for k in trace.kernels
        ],
        "transfers": [
            (
                f"{t.name} {t.source}>{t.target}:{t.stream}",
                (t.end_ns - t.start_ns, t.nbytes),
                f"at {t.start_ns - t0} launched {t.launched_ns - t0}",
            )
            for t in trace.transfers
        ],
        "collectives": [
            (
                f"{c.name} {c.device}:{c.stream} {c.group} {c.rank}/{len(c.ranks)} {c.algorithm} {c.protocol}",
                (c.end_ns - c.start_ns, c.nbytes),
                f"at {c.start_ns - t0} joined {c.joined_ns - t0}",
            )
            for c in trace.collectives
        ],
        "waits": [
            (f"{w.name} {w.device}:{w.stream}", (w.end_ns - w.start_ns,), f"at {w.start_ns - t0}") for w in trace.waits
        ],
        "allocations": [
            (
                f"{a.name} {a.device}:{a.stream} {a.category} {a.dtype}",
                (a.nbytes, a.block_bytes),
                f"at {a.start_ns - t0} to {a.end_ns - t0} {a.address % 2**32} held {a.held} {a.freed} {a.freed_after}",
            )
            for a in trace.allocations
        ],
        "host": [(w.name, (w.end_ns - w.start_ns,), f"at {w.start_ns - t0}") for w in trace.host_work],
        "first uses": [(use.name, (use.ns,), "") for use in trace.first_uses],
        "races": [(stable(str(race)), (), "") for race in trace.races],
    }
    found: dict[str, Any] = {kind: listed(records) for kind, records in kinds.items()}
    found["ended"] = trace.ended_ns - t0
    return found


def listed(records: Sequence[tuple[str, tuple[int, ...], str]]) -> list[str]:
    """Each record; of many, sums by name and a digest of all."""
    lines = [" ".join([name, *map(str, figures), rest]).strip() for name, figures, rest in records]
    if len(lines) <= WHOLE:
        return lines
    sums: dict[str, list[int]] = {}
    for name, figures, _ in records:
        total = sums.setdefault(name, [0] * (1 + len(figures)))
        total[0] += 1
        for i, figure in enumerate(figures, 1):
            total[i] += figure
    return [" ".join([name, "x", *map(str, total)]) for name, total in sums.items()] + [
        f"{len(lines)} records, digest {hashlib.sha256('|'.join(lines).encode()).hexdigest()[:10]}"
    ]
