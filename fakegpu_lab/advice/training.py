"""Rules about optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.advice.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fakegpu_lab.timeline.recorded import Recorded


def optimizer_before_to(recorded: Recorded, optimizers: Iterable[Any], trained: Iterable[Any] = ()) -> list[Finding]:
    """An optimizer holds parameters on the CPU, while what is trained is on a device: it was made before ``.to``.

    Either their gradients come back from the device in each step, or they get none, and tensors of the same shapes on
    the device do (`trained`). An optimizer of a model that is meant to be on the CPU is left alone.
    """
    backward = [kernel for kernel in recorded.kernels if kernel.backward]
    if not backward:
        return []
    found = []
    sent_back = {copy.nbytes for copy in recorded.transfers if copy.kind == "d2h"}
    shapes = {tuple(tensor.shape) for tensor in trained}
    for optimizer in optimizers:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        left = [p for p in parameters if p.device.type == "cpu"]
        come_back = any(p.grad is not None and p.grad.nbytes in sent_back for p in left)
        elsewhere = all(p.grad is None for p in left) and all(tuple(p.shape) in shapes for p in left)
        if left and (come_back or elsewhere):
            why = (
                "their gradients come back over the bus in every step" if come_back else "what trains there is not they"
            )
            found.append(Finding(
                "optimizer_before_to", "The optimizer was made before .to",
                f"{type(optimizer).__name__} updates {len(left)} of its {len(parameters)} tensors on the CPU, while "
                f"backward runs on cuda:{backward[0].device}: {why}.",
                "Move the model first, model.to(device), and make the optimizer from its parameters then.",
                backward[0].line, 0,
            ))  # fmt: skip
    return found
