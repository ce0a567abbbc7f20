"""Rules about optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.advice.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fakegpu_lab.recording_views.recorded import Recorded


def optimizer_before_to(recorded: Recorded, optimizers: Iterable[Any], trained: Iterable[Any] = ()) -> list[Finding]:
    """An optimizer holds parameters on the CPU while a device trains: it was made before ``.to``.

    Either their gradients are copied from the device in each step, or they have none, and tensors of the same shapes on
    the device do (`trained`). The optimizer of a model that is meant to be on the CPU is not reported.
    """
    backward = next((kernel for kernel in recorded.kernels if kernel.backward), None)
    if backward is None:
        return []
    found = []
    copied_bytes = {copy.nbytes for copy in recorded.transfers if copy.kind == "d2h"}
    trained_shapes = {tuple(tensor.shape) for tensor in trained}
    for optimizer in optimizers:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        on_cpu = [p for p in parameters if p.device.type == "cpu"]
        why = _why_on_cpu(on_cpu, copied_bytes, trained_shapes)
        if why:
            found.append(Finding(
                "optimizer_before_to", "The optimizer was created before .to",
                f"{type(optimizer).__name__} updates {len(on_cpu)} of its {len(parameters)} tensors on the CPU, while "
                f"backward runs on cuda:{backward.device}: {why}.",
                "Move the model first, with model.to(device), and then create the optimizer from its parameters.",
                backward.line, 0,
            ))  # fmt: skip
    return found


def _why_on_cpu(on_cpu: Sequence[Any], copied_bytes: set[int], trained_shapes: set[tuple[int, ...]]) -> str:
    """The evidence that the parameters on the CPU belong to a model on the device; empty if there is none."""
    if any(p.grad is not None and p.grad.nbytes in copied_bytes for p in on_cpu):
        return "their gradients come back over the bus in every step"
    if on_cpu and all(p.grad is None and tuple(p.shape) in trained_shapes for p in on_cpu):
        return "the model trains other tensors there"
    return ""
