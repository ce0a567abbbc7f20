"""Computes the values of a recurrent layer, forward and backward, with torch's CPU layers."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.half_precision import SLOW_PRODUCTS
from fakegpu_lab.driver.base.tensor import inner_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

    Tensor = torch.Tensor

RELU, TANH, LSTM, GRU = range(4)
"""cudnnRNNMode_t."""

_GATES = {RELU: 1, TANH: 1, LSTM: 4, GRU: 3}


@dataclass
class Call:
    """One call of a layer, with inner tensors, time first (or packed)."""

    mode: int
    source: Tensor
    weights: list[Tensor]
    hidden: Tensor
    cell: Tensor | None
    width: int
    projected: int
    layers: int
    dropout: float
    train: bool
    bidirectional: bool
    batch_sizes: list[int]
    biased: bool
    batch_first: bool

    @classmethod
    def of(cls, named: dict[str, Any]) -> Self:
        """From the arguments of ``_cudnn_rnn``."""
        source = inner_of(named["input"])
        projected = named["proj_size"]
        return cls(
            named["mode"], source.transpose(0, 1) if named["batch_first"] else source,
            [inner_of(weight) for weight in named["weight"]], inner_of(named["hx"]), inner_of(named.get("cx")),
            named["hidden_size"], projected, named["num_layers"], named["dropout"], named["train"],
            named["bidirectional"], list(named["batch_sizes"]), named["weight_stride0"] - bool(projected) == 4,
            named["batch_first"],
        )  # fmt: skip

    def as_given(self, sequences: Tensor) -> Tensor:
        """Output or gradients, with the batch first if the layer is ``batch_first``; or from that to time first."""
        return sequences.transpose(0, 1) if self.batch_first else sequences

    @property
    def directions(self) -> int:
        """1 or 2."""
        return 2 if self.bidirectional else 1

    @property
    def gates(self) -> int:
        """Gates of a cell."""
        return _GATES[self.mode]

    @property
    def steps(self) -> int:
        """Steps of all sequences together."""
        return self.source.shape[0] if self.batch_sizes else self.source.shape[0] * self.source.shape[1]

    @property
    def drops(self) -> bool:
        """Whether dropout does anything."""
        return self.train and self.dropout > 0 and self.layers > 1

    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the output, the last hidden states and the last cells, which are (0,) if there are none."""
        out = (*self.source.shape[:-1], (self.projected or self.width) * self.directions)
        return [out, tuple(self.hidden.shape), (0,) if self.cell is None else tuple(self.cell.shape)]


def _run(call: Call, source: Tensor, hidden: Tensor, cell: Tensor | None, weights: list[Tensor]) -> tuple[Tensor, ...]:
    """The layer's results; in float32, rounded at the end, if the CPU is slow in the layer's dtype.

    Simplified: a card rounds the hidden states of each step.
    """
    dtype = source.dtype
    if dtype in SLOW_PRODUCTS:
        wide = [tensor.float() for tensor in weights]
        results = _run(call, source.float(), hidden.float(), None if cell is None else cell.float(), wide)
        return tuple(result.to(dtype) for result in results)
    functions: Any = torch._VF
    function = {LSTM: functions.lstm, GRU: functions.gru, TANH: functions.rnn_tanh, RELU: functions.rnn_relu}[call.mode]
    states = (hidden, cell) if cell is not None else hidden
    rest = (call.biased, call.layers, call.dropout, call.train, call.bidirectional)
    with warnings.catch_warnings():
        if call.projected:  # the CPU's fast path does not support projections, and warns
            warnings.filterwarnings("ignore", message="LSTM with projections is not supported with oneDNN")
        if call.batch_sizes:
            return tuple(function(source, torch.tensor(call.batch_sizes), states, weights, *rest))
        return tuple(function(source, states, weights, *rest, False))


@contextmanager
def _seeded(call: Call, seed: int) -> Iterator[None]:
    """Draw dropout's mask from `seed`, and restore the host's generator afterwards."""
    if not call.drops:
        yield
        return
    state = torch.default_generator.get_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.default_generator.set_state(state)


def forward(call: Call, seed: int) -> list[Tensor]:
    """The output, the last hidden states and the last cells."""
    if call.source.is_meta:
        return [call.source.new_empty(shape) for shape in call.shapes()]
    with torch.no_grad(), _seeded(call, seed):
        results = _run(call, call.source, call.hidden, call.cell, call.weights)
    return [*results, call.source.new_empty(0)][:3]


def backward(call: Call, seed: int, grads: list[Tensor | None]) -> tuple[list[Tensor | None], list[Tensor]]:
    """The gradients of (input, hidden states, cells) and of the weights."""
    outer = [call.source, call.hidden, *([] if call.cell is None else [call.cell])]
    if call.source.is_meta:
        return [*(torch.empty_like(t) for t in outer), None][:3], [torch.empty_like(w) for w in call.weights]
    # Below autograd its dispatch keys are excluded; the recomputation needs them, for plain autograd on the host.
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in (torch._C.DispatchKey.AutogradCPU, torch._C.DispatchKey.ADInplaceOrView):
        excluded = excluded - torch._C.DispatchKeySet(key)
    with torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), excluded):
        leaves = [t.detach().requires_grad_() for t in (*outer, *call.weights)]
        with torch.enable_grad(), _seeded(call, seed):
            cell = leaves[2] if call.cell is not None else None
            results = _run(call, leaves[0], leaves[1], cell, leaves[len(outer) :])
        pairs = [(r, g) for r, g in zip(results, grads, strict=False) if g is not None and g.numel()]
        found = torch.autograd.grad(
            [r for r, _ in pairs], leaves, [g for _, g in pairs], allow_unused=True, materialize_grads=True
        )
    return [*found[: len(outer)], None][:3], list(found[len(outer) :])
