"""Functional collectives on device tensors, on which DTensor and tensor parallelism are built.

``torch.ops._c10d_functional``, torch/csrc/distributed/c10d/Functional.cpp: each makes a new tensor and starts the
operation; `wait_tensor` waits for it. CPU tensors use C++'s own kernels, which call the same process groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base import not_simulated
from fakegpu_lab.driver.base.changes import begun, replaced
from fakegpu_lab.ranks.dist import c10d, dist
from fakegpu_lab.ranks.scheduling.scheduler import current_rank

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Tensor = torch.Tensor

_outside_ranks: dict[int, list[Any]] = {}


def _pending() -> dict[int, list[Any]]:
    """The work handles that nothing has waited for, by the storage of their tensor."""
    rank = current_rank()
    return _outside_ranks if rank is None else rank.local.setdefault("pending", {})


def _key(tensor: Any) -> int:
    return id(tensor._buffer)  # the entry holds the tensor, so the buffer outlives it


def _under_way(tensor: Tensor, work: Any) -> Tensor:
    _pending().setdefault(_key(tensor), []).append((tensor, work))
    return tensor


def _group(name: Any) -> Any:
    if isinstance(name, str):
        return c10d._resolve_process_group(name)
    return name if isinstance(name, dist.ProcessGroup) else dist.ProcessGroup.unbox(name)


def _method(group: Any, name: str, before: str) -> Any:
    """A method of the group, also of one that is not ours, by its name since torch 2.13 or the one before."""
    group = _group(group)
    return getattr(group, name, None) or getattr(group, before)


def _reducing(kind: Any, op: str) -> Any:
    opts = kind()
    opts.reduceOp = getattr(dist.ReduceOp, op.upper())
    return opts


def wait_tensor(tensor: Tensor) -> Tensor:
    """Wait for the operations that write the tensor."""
    for _, work in _pending().pop(_key(tensor), ()):
        work.wait()
    return tensor


def all_reduce_(tensor: Tensor, op: str, group: Any) -> Tensor:
    """Reduce in place."""
    return _under_way(tensor, _group(group).allreduce([tensor], _reducing(c10d.AllreduceOptions, op)))


def all_reduce(tensor: Tensor, op: str, group: Any) -> Tensor:
    """Reduce."""
    return all_reduce_(tensor.clone(memory_format=torch.contiguous_format), op, group)


def all_reduce_coalesced_(tensors: list[Tensor], op: str, group: Any) -> list[Tensor]:
    """Reduce several in place."""
    work = _group(group).allreduce_coalesced(tensors, _reducing(c10d.AllreduceCoalescedOptions, op))
    return [_under_way(tensor, work) for tensor in tensors]


def all_reduce_coalesced(tensors: list[Tensor], op: str, group: Any) -> list[Tensor]:
    """Reduce several."""
    return all_reduce_coalesced_([tensor.clone() for tensor in tensors], op, group)


def _empty_gathered(tensor: Tensor, size: int) -> Tensor:
    return tensor.new_empty((tensor.shape[0] * size, *tensor.shape[1:]))


def all_gather_into_tensor_out(tensor: Tensor, size: int, group: Any, *, out: Tensor) -> Tensor:
    """Gather into a tensor."""
    return _under_way(out, _method(group, "all_gather_single", "_allgather_base")(out, tensor))


def all_gather_into_tensor(tensor: Tensor, size: int, group: Any) -> Tensor:
    """Gather."""
    return all_gather_into_tensor_out(tensor.contiguous(), size, group, out=_empty_gathered(tensor, size))


def all_gather_into_tensor_coalesced(tensors: list[Tensor], size: int, group: Any) -> list[Tensor]:
    """Gather several."""
    outputs = [_empty_gathered(tensor, size) for tensor in tensors]
    work = _method(group, "all_gather_single_coalesced", "allgather_into_tensor_coalesced")(outputs, tensors)
    return [_under_way(output, work) for output in outputs]


def _empty_scattered(tensor: Tensor, size: int) -> Tensor:
    if tensor.shape[0] % size:
        raise RuntimeError(f"input dim 0 ({tensor.shape[0]}) must be divisible by group_size ({size})")
    return tensor.new_empty((tensor.shape[0] // size, *tensor.shape[1:]))


def reduce_scatter_tensor_out(tensor: Tensor, op: str, size: int, group: Any, *, out: Tensor) -> Tensor:
    """Reduce and scatter into a tensor."""
    opts = _reducing(c10d.ReduceScatterOptions, op)
    return _under_way(out, _method(group, "reduce_scatter_single", "_reduce_scatter_base")(out, tensor, opts))


def reduce_scatter_tensor(tensor: Tensor, op: str, size: int, group: Any) -> Tensor:
    """Reduce and scatter."""
    return reduce_scatter_tensor_out(tensor.contiguous(), op, size, group, out=_empty_scattered(tensor, size))


def reduce_scatter_tensor_coalesced(tensors: list[Tensor], op: str, size: int, group: Any) -> list[Tensor]:
    """Reduce and scatter several."""
    outputs = [_empty_scattered(tensor, size) for tensor in tensors]
    opts = _reducing(c10d.ReduceScatterOptions, op)
    work = _method(group, "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced")(outputs, tensors, opts)
    return [_under_way(output, work) for output in outputs]


def all_to_all_single(tensor: Tensor, outputs: Sequence[int], inputs: Sequence[int], group: Any) -> Tensor:
    """Give each rank a part."""
    output = tensor.new_empty((sum(outputs), *tensor.shape[1:])) if outputs else torch.empty_like(tensor)
    work = _method(group, "all_to_all_single", "alltoall_base")(
        output, tensor.contiguous(), list(outputs), list(inputs)
    )
    return _under_way(output, work)


def broadcast_(tensor: Tensor, source: int, group: Any) -> Tensor:
    """Broadcast in place."""
    opts = c10d.BroadcastOptions()
    opts.rootRank = source
    return _under_way(tensor, _group(group).broadcast([tensor], opts))


def broadcast(tensor: Tensor, source: int, group: Any) -> Tensor:
    """Broadcast."""
    return broadcast_(tensor.clone(memory_format=torch.contiguous_format), source, group)


def shard_dim_alltoall(tensor: Tensor, gather_dim: int, shard_dim: int, group: Any) -> Tensor:
    """DTensor's move from one sharded dimension to another (``_dtensor::shard_dim_alltoall``)."""
    group = _group(group)
    parts = [part.contiguous() for part in tensor.chunk(group.size(), shard_dim)]
    received = [torch.empty_like(part) for part in parts]
    group.alltoall(received, parts).wait()
    return torch.cat(received, gather_dim)


KERNELS: tuple[Callable[..., Any], ...] = (
    wait_tensor,
    all_reduce,
    all_reduce_,
    all_reduce_coalesced,
    all_reduce_coalesced_,
    all_gather_into_tensor,
    all_gather_into_tensor_out,
    all_gather_into_tensor_coalesced,
    reduce_scatter_tensor,
    reduce_scatter_tensor_out,
    reduce_scatter_tensor_coalesced,
    all_to_all_single,
    broadcast,
    broadcast_,
)


def _register() -> Callable[[], None]:
    """The kernels for device tensors; `driver.dispatch.custom_ops` finds them."""
    known = set(torch._C._dispatch_get_all_op_names())
    libraries: list[Any] = []
    for namespace, kernels in (("_c10d_functional", KERNELS), ("_dtensor", (shard_dim_alltoall,))):
        libraries.append(torch.library.Library(namespace, "IMPL"))  # type: ignore[no-untyped-call]
        for kernel in kernels:
            if f"{namespace}::{kernel.__name__}" in known:  # not every version has all
                libraries[-1].impl(kernel.__name__, kernel, "CUDA")

    def end() -> None:
        for library in reversed(libraries):
            library._destroy()

    return end


CHANGES = [
    replaced(
        "torch._C._distributed_c10d._set_allow_inflight_collective_as_graph_input",
        not_simulated.refuse("collectives in flight"),
        "refused",
        optional=True,
    ),
    begun(_register, "functional collectives of device tensors"),
]
