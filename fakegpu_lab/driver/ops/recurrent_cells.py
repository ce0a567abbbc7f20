"""The fused cells of LSTM and GRU, which torch calls on a device and has no CPU kernel for.

Formulas, workspaces and their order are those of aten/src/ATen/native/cuda/RNN.cu. (A card runs whole LSTM and GRU
layers through cuDNN; here they run cell by cell.)
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


def _kernel(compute: Callable[..., tuple[Any, ...]]) -> Callable[[Op, tuple[Any, ...], dict[str, Any]], Any]:
    """`compute`, of inner tensors, as one kernel on a device."""

    def run(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        named = zip(op.arguments, args, strict=False)
        tensors = [(name, value) for name, value in named if isinstance(value, torch.Tensor)]
        device = device_check.resolve(op, tensors, args)
        assert device is not None
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
    if input_bias is not None and hidden_bias is not None:
        from_input, from_hidden = from_input + input_bias, from_hidden + hidden_bias
    return from_input.chunk(count, 1), from_hidden.chunk(count, 1)


def _lstm(
    from_input: Tensor,
    from_hidden: Tensor,
    cell: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, ...]:
    ours, theirs = _gates(from_input, from_hidden, input_bias, hidden_bias, 4)
    enter, forget, new, leave = (a + b for a, b in zip(ours, theirs, strict=True))
    enter, forget, new, leave = enter.sigmoid(), forget.sigmoid(), new.tanh(), leave.sigmoid()
    next_cell = forget * cell + enter * new
    return leave * next_cell.tanh(), next_cell, torch.cat((enter, forget, new, leave), 1)


def _lstm_backward(
    of_hidden: Tensor | None,
    of_next_cell: Tensor | None,
    cell: Tensor,
    next_cell: Tensor,
    workspace: Tensor,
    has_bias: bool,
) -> tuple[Tensor | None, ...]:
    enter, forget, new, leave = workspace.chunk(4, 1)
    squashed = next_cell.tanh()
    of_hidden = torch.zeros_like(cell) if of_hidden is None else of_hidden
    of_cell = of_hidden * leave * (1 - squashed * squashed)
    if of_next_cell is not None:
        of_cell = of_cell + of_next_cell
    of_gates = torch.cat(
        (
            of_cell * new * enter * (1 - enter),
            of_cell * cell * forget * (1 - forget),
            of_cell * enter * (1 - new * new),
            of_hidden * squashed * leave * (1 - leave),
        ),
        1,
    )
    return of_gates, of_cell * forget, of_gates.sum(0) if has_bias else None


def _gru(
    from_input: Tensor,
    from_hidden: Tensor,
    hidden: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, ...]:
    ours, theirs = _gates(from_input, from_hidden, input_bias, hidden_bias, 3)
    reset, update = (ours[0] + theirs[0]).sigmoid(), (ours[1] + theirs[1]).sigmoid()
    new = (ours[2] + reset * theirs[2]).tanh()
    return new + update * (hidden - new), torch.cat((reset, update, new, hidden, theirs[2]), 1)


def _gru_backward(of_hidden: Tensor, workspace: Tensor, has_bias: bool) -> tuple[Tensor | None, ...]:
    reset, update, new, hidden, linear = workspace.chunk(5, 1)
    of_update = of_hidden * (hidden - new) * update * (1 - update)
    of_new = of_hidden * (1 - update) * (1 - new * new)
    of_reset = of_new * linear * reset * (1 - reset)
    of_input = torch.cat((of_reset, of_update, of_new), 1)
    of_linear = torch.cat((of_reset, of_update, of_new * reset), 1)
    biases = (of_input.sum(0), of_linear.sum(0)) if has_bias else (None, None)
    return of_input, of_linear, of_hidden * update, *biases


HANDLERS: dict[str, Callable[[Op, tuple[Any, ...], dict[str, Any]], Any]] = {
    "_thnn_fused_lstm_cell": _kernel(_lstm),
    "_thnn_fused_lstm_cell_backward_impl": _kernel(_lstm_backward),
    "_thnn_fused_gru_cell": _kernel(_gru),
    "_thnn_fused_gru_cell_backward": _kernel(_gru_backward),
}
