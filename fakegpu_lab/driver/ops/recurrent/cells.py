"""The fused cells of LSTM and GRU, for which torch has no CPU kernel.

Formulas, workspaces and their order are those of aten/src/ATen/native/cuda/RNN.cu. Cells and layers that do not go
through cuDNN (`cudnn_rnn`) use them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base.device_memory import new
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.cost.launching import launched
from fakegpu_lab.driver.cost.work import nbytes_of
from fakegpu_lab.driver.placement import device_check

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op

    Tensor = torch.Tensor


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
