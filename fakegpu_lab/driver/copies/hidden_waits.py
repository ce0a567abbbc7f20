"""Ops that make the host wait for some arguments only: masks, indices on the host, values in a tensor.

The host reads the size of a mask's result, copies indices to the device, and reads values that a kernel takes as a
number. `Row.synchronises` has the ops that always wait. A mask is looked at by `nonzero`, whose result takes memory
until the op is done; the kernels that find other values (`min`, `max`) are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base import sync_debug
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.copies import transfer
from fakegpu_lab.driver.cost.launching import wait
from fakegpu_lab.hardware.time.clock import here

if TYPE_CHECKING:
    from fakegpu_lab.driver.cost.op import Op, Plan
    from fakegpu_lab.hardware.device import Device

    Named = dict[str, Any]

_MASKS = (torch.bool, torch.uint8)


def with_waits(op: Op, plan: Plan) -> Plan:
    """`plan`, after the waits that the op's arguments cause; unchanged for most ops."""
    waits = op.row.waits
    if waits is None or (waits in (value, value_beside) and "Tensor" not in op.schema.overload_name):
        return plan

    def waiting(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        named = {**dict(zip(op.arguments, args, strict=False)), **kwargs}
        held = waits(op, named)
        result = plan(args, kwargs)
        del held  # what a mask became: memory until here
        return result

    return waiting


def _wait(op: Op, tensor: FakeCudaTensor, what: str) -> None:
    """Let the host wait until the current stream of the tensor's device is done."""
    device = transfer.usable(tensor)._device
    sync_debug.synchronizing()
    wait(device, f"torch.{op.name}, for which the host must know {what}", here.host.streams[device])


def index(op: Op, a: Named) -> list[torch.Tensor]:
    """TensorAdvancedIndexing.cpp, make_info: masks become indices (`nonzero`), and indices go to the device.

    Returns the indices that masks became.
    """
    target, made = a["self"], list[torch.Tensor]()
    if target.__class__ is not FakeCudaTensor:
        return made
    for place in a["indices"]:
        if _on_host(place):
            _to_device(place, transfer.usable(target)._device)
        elif place.__class__ is FakeCudaTensor and place.dtype in _MASKS:
            if place._inner.is_meta:
                _wait(op, place, "the size of the mask")
            else:
                made.append(place.nonzero())
    return made


def _on_host(tensor: torch.Tensor | None) -> bool:
    """Whether it is an ordinary CPU tensor, not a wrapper subclass."""
    return tensor.__class__ is torch.Tensor and tensor.device.type == "cpu"


def _to_device(index: torch.Tensor, device: Device) -> None:
    """Copy a host tensor of indices, or the indices of a mask: 8 bytes for each element and dimension."""
    count = int(index.count_nonzero()) * index.dim() if index.dtype in _MASKS else index.numel()
    if count:
        sync_debug.synchronizing()
        transfer.count_copy(None, device, count * 8)


def index_put(op: Op, a: Named) -> list[torch.Tensor]:
    """`_index_put_impl_`: a mask and one number are a `masked_fill_`; else as `_index`, and a number is copied, too."""
    target, values = a["self"], a["values"]
    if target.__class__ is not FakeCudaTensor:
        return []
    number = _on_host(values) and values.numel() == 1
    accumulates = bool(a.get("accumulate"))
    if number and not accumulates and _is_one_mask(a["indices"]):
        return []
    made = index(op, a)
    if number and not values.dim():
        sync_debug.synchronizing()
        transfer.count_copy(None, transfer.usable(target)._device, values.element_size())
    sorts = accumulates or torch.are_deterministic_algorithms_enabled()
    if sorts and not a.get("unsafe") and not _in_backward_of_index(op):
        for place in a["indices"]:  # sorted, after a check of the extremes (Indexing.cu, wrapIndexOnce)
            if place.__class__ is FakeCudaTensor and place.numel() and place.dtype not in _MASKS:
                _wait(op, place, "the extreme indices")
    return made


def _in_backward_of_index(op: Op) -> bool:
    """For tensor subclasses, `index_backward` calls `index_put`; for others, `_index_put_impl_` with unsafe=True."""
    return op.name == "index_put" and torch._C._current_graph_task_id() >= 0


def _is_one_mask(indices: list[torch.Tensor | None]) -> bool:
    """IndexingUtils.h, canDispatchToMaskedFill."""
    given = [index for index in indices if index is not None]
    return len(given) == 1 and given[0].__class__ is FakeCudaTensor and given[0].dtype in _MASKS


def value(op: Op, a: Named) -> None:
    """A 0-dim tensor that is taken as a number: `item()` (Indexing.cu, masked_fill__cuda; index_fill_; linspace)."""
    for name in ("value", "start", "end"):
        number = a.get(name)
        if number.__class__ is FakeCudaTensor and number._inner.is_meta:  # what it is does not matter
            sync_debug.synchronizing()
            transfer.count_copy(transfer.usable(number)._device, None, number.element_size())
        elif number.__class__ is FakeCudaTensor:
            transfer.local_scalar_dense(op, (number,), {})


def value_beside(op: Op, a: Named) -> None:
    """So does a fill of a tensor on another device (Fill.cpp, fill_out)."""
    number, target = a.get("value"), a["self"]
    if number.__class__ is FakeCudaTensor and getattr(target, "_device", None) is not number._device:
        value(op, a)


def repeat_interleave(op: Op, a: Named) -> None:
    """Repeat.h, repeat_interleave_common."""
    repeats = a["repeats"]
    if repeats.__class__ is FakeCudaTensor and a.get("output_size") is None and repeats.numel():
        _wait(op, repeats, "the number of results")


def histc(op: Op, a: Named) -> None:
    """SummaryOps.cu, _histc_cuda_template: without limits, the host reads the extremes."""
    source = a["self"]
    if source.__class__ is FakeCudaTensor and a.get("min", 0) == a.get("max", 0) and source.numel():
        _wait(op, source, "the extreme values")


def normal(op: Op, a: Named) -> None:
    """DistributionTemplates.h, CHECK_NORMAL_TENSOR_STD."""
    std = a.get("std")
    if std.__class__ is FakeCudaTensor and std.numel():
        _wait(op, std, "whether deviations are negative")


def mode(op: Op, a: Named) -> None:
    """TensorModeKernel.cpp, mode_kernel_impl: a long slice is sorted, and its results are copied from the host."""
    source = a["self"]
    if source.__class__ is FakeCudaTensor and source.dim() and source.numel() and source.shape[a.get("dim", -1)] > 2048:
        _wait(op, source, "the most frequent values")
