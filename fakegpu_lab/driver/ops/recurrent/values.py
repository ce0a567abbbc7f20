"""Computes the values of a recurrent layer, forward and backward, with torch's CPU layers."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base.device_memory import new
from fakegpu_lab.driver.base.half_precision import SLOW_PRODUCTS
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, inner_of
from fakegpu_lab.driver.cost.launching import launched
from fakegpu_lab.driver.cost.work import nbytes_of
from fakegpu_lab.driver.placement import device_check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

    Tensor = torch.Tensor
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op


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


def _one_kernel(compute: Callable[..., tuple[Any, ...]]) -> Callable[[Op, tuple[Any, ...], dict[str, Any]], Any]:
    """A handler that runs `compute`, on inner tensors, as one kernel."""

    def run(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        named = zip(op.arguments, args, strict=False)
        tensors = [(name, value) for name, value in named if isinstance(value, torch.Tensor)]
        device = device_check.resolve(op, tensors, args)
        if device.retired:
            raise device_asserts.retired_error(device)
        inner = [a._inner if a.__class__ is FakeCudaTensor else a for a in args]
        results = compute(*inner)
        launched(op, device, inner, results, nbytes_of(inner))
        return tuple(None if r is None else new(r, device) for r in results)

    return run


def _gates(
    from_input: Tensor, from_hidden: Tensor, input_bias: Tensor | None, hidden_bias: Tensor | None, count: int
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Each gate's product with the input, and with the hidden state, biases added."""
    if input_bias is not None and hidden_bias is not None:
        from_input, from_hidden = from_input + input_bias, from_hidden + hidden_bias
    return from_input.chunk(count, 1), from_hidden.chunk(count, 1)


@_one_kernel
def lstm(
    from_input: Tensor,
    from_hidden: Tensor,
    cell: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """``aten::_thnn_fused_lstm_cell``."""
    by_input, by_hidden = _gates(from_input, from_hidden, input_bias, hidden_bias, 4)
    sums = [a + b for a, b in zip(by_input, by_hidden, strict=True)]
    input_gate, forget_gate, candidate, output_gate = (
        sums[0].sigmoid(), sums[1].sigmoid(), sums[2].tanh(), sums[3].sigmoid(),
    )  # fmt: skip
    next_cell = forget_gate * cell + input_gate * candidate
    return output_gate * next_cell.tanh(), next_cell, torch.cat((input_gate, forget_gate, candidate, output_gate), 1)


@_one_kernel
def lstm_backward(
    grad_hidden: Tensor | None,
    grad_next_cell: Tensor | None,
    cell: Tensor,
    next_cell: Tensor,
    workspace: Tensor,
    has_bias: bool,
) -> tuple[Tensor | None, ...]:
    """``aten::_thnn_fused_lstm_cell_backward_impl``."""
    input_gate, forget_gate, candidate, output_gate = workspace.chunk(4, 1)
    tanh_cell = next_cell.tanh()
    grad_hidden = torch.zeros_like(cell) if grad_hidden is None else grad_hidden
    grad_cell = grad_hidden * output_gate * (1 - tanh_cell * tanh_cell)
    if grad_next_cell is not None:
        grad_cell = grad_cell + grad_next_cell
    grad_gates = torch.cat(
        (
            grad_cell * candidate * input_gate * (1 - input_gate),
            grad_cell * cell * forget_gate * (1 - forget_gate),
            grad_cell * input_gate * (1 - candidate * candidate),
            grad_hidden * tanh_cell * output_gate * (1 - output_gate),
        ),
        1,
    )
    return grad_gates, grad_cell * forget_gate, grad_gates.sum(0) if has_bias else None


# The parameters are those of the schemas: `lstm` has nearly the same.
@_one_kernel
def gru(
    from_input: Tensor,
    from_hidden: Tensor,
    hidden: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """``aten::_thnn_fused_gru_cell``."""
    by_input, by_hidden = _gates(from_input, from_hidden, input_bias, hidden_bias, 3)
    reset, update = (by_input[0] + by_hidden[0]).sigmoid(), (by_input[1] + by_hidden[1]).sigmoid()
    candidate = (by_input[2] + reset * by_hidden[2]).tanh()
    return candidate + update * (hidden - candidate), torch.cat((reset, update, candidate, hidden, by_hidden[2]), 1)


@_one_kernel
def gru_backward(grad_hidden: Tensor, workspace: Tensor, has_bias: bool) -> tuple[Tensor | None, ...]:
    """``aten::_thnn_fused_gru_cell_backward``."""
    reset, update, candidate, hidden, linear = workspace.chunk(5, 1)
    grad_update = grad_hidden * (hidden - candidate) * update * (1 - update)
    grad_candidate = grad_hidden * (1 - update) * (1 - candidate * candidate)
    grad_reset = grad_candidate * linear * reset * (1 - reset)
    grad_input = torch.cat((grad_reset, grad_update, grad_candidate), 1)
    grad_linear = torch.cat((grad_reset, grad_update, grad_candidate * reset), 1)
    biases = (grad_input.sum(0), grad_linear.sum(0)) if has_bias else (None, None)
    return grad_input, grad_linear, grad_hidden * update, *biases
