"""The process group of a rank: what torch.distributed, DDP's reducer and functional collectives call.

A Python subclass of `torch.distributed.ProcessGroup`; each method makes an `Operation` and issues it on the
communicator of the tensors' device, where it meets the other ranks' calls.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base import graph_capture, not_simulated
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, dispatches_itself
from fakegpu_lab.ranks.collectives.operation import Operation
from fakegpu_lab.ranks.dist import c10d, dist
from fakegpu_lab.ranks.process_groups import argument_checks, options
from fakegpu_lab.ranks.process_groups.captured import captured
from fakegpu_lab.ranks.process_groups.work_handles import RankWork
from fakegpu_lab.user_code.frames import user_line

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    from fakegpu_lab.ranks.process_groups.backends import RankBackend

    Tensor = torch.Tensor
    Tensors = Sequence[torch.Tensor]


class RankGroup(dist.ProcessGroup):  # type: ignore[misc]
    """One rank's member of a process group.

    Parameters
    ----------
    backends
        The backend for each device type, such as ``{"cuda": …}``.
    rank
        The rank in the group.
    name, description
        As torch calls the group.
    """

    def __init__(self, backends: dict[str, RankBackend], rank: int, name: str, description: str) -> None:
        first = next(iter(backends.values()))
        super().__init__(rank, first.channel.size)
        self._backends = backends
        self._member = rank
        self._names = (name, description)
        self._bound: torch.device | None = None
        self._used_devices: set[int] = set()
        self._coalescing: list[Operation] | None = None
        self.store: Any = None

    # ------------------------------------------------ name, backends, settings

    @property
    def group_name(self) -> str:
        """The group's name, the same on all ranks."""
        return self._names[0]

    @property
    def pg_name(self) -> str:
        """As `group_name`."""
        return self._names[0]

    @property
    def group_desc(self) -> str:
        """Its description."""
        return self._names[1]

    def _set_group_name(self, name: str) -> None:
        self._names = (name, self._names[1])

    def _set_group_desc(self, description: str) -> None:
        self._names = (self._names[0], description)

    @property
    def bound_device_id(self) -> torch.device | None:
        """The device it was bound to by ``init_process_group(device_id=…)``."""
        return self._bound

    @bound_device_id.setter
    def bound_device_id(self, device: torch.device | None) -> None:
        self._bound = device

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device(kind) for kind in self._backends]

    def _get_backend(self, device: torch.device) -> RankBackend:
        found = self._backends.get(torch.device(device).type)
        if found is None:
            raise RuntimeError(f"No backend type associated with device type {torch.device(device).type}")
        return found

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        """``nccl`` or ``gloo``; the GPUs' backend, where there are both."""
        return (self._backends.get("cuda") or next(iter(self._backends.values()))).name()

    name = getBackendName

    def _get_backend_name(self) -> str:
        return self.getBackendName()

    def get_group_store(self) -> Any:
        """The store it was created with."""
        return self.store

    def _has_hooks(self) -> bool:
        return False

    def _register_on_completion_hook(self, hook: Any) -> None:
        """Refused."""
        raise not_simulated.error("completion hooks")

    def _wait_for_pending_works(self) -> None:
        """Nothing to do: only hooks on completion wait."""

    def _set_sequence_number_for_group(self) -> None:
        """Nothing to do: the communicator counts."""

    def _get_sequence_number_for_group(self) -> int:
        return self._get_backend(self._device_types[0]).channel.numbers[self._member]

    def set_timeout(self, timeout: dt.timedelta) -> None:
        """No effect: a wait that cannot end is reported at once."""

    def shutdown(self) -> None:
        """Call the hooks (destroy_process_group does for groups of C++'s own type), and end the communicators."""
        self._wait_for_pending_works()
        for backend in self._backends.values():
            backend.shutdown()

    def abort(self) -> None:
        """End the communicators at once: later calls fail."""
        for backend in self._backends.values():
            backend.abort()

    def __repr__(self) -> str:
        return f"<ProcessGroup {self._names[0]!r} ({self._names[1]}), rank {self._member} of {self.size()}>"

    # -------------------------------------------------------------- issuing

    def _issue(
        self,
        kind: str,
        inputs: Tensors,
        outputs: Tensors,
        opts: Any = None,
        result: Any = None,
        device: torch.device | None = None,
        **more: Any,
    ) -> Any:
        inputs, outputs = _unwrapped(inputs), _unwrapped(outputs)
        tensors = [*inputs, *outputs]
        # DDP's map of used parameters stays on the host, and its operations count as the device's.
        map_of: Any = getattr(tensors[0], "_fakegpu_lab_device", None) if kind in ("ALLREDUCE", "BROADCAST") else None
        where = torch.device("cuda") if map_of is not None else device if device is not None else tensors[0].device
        backend = self._get_backend(where)
        operation = Operation(
            kind,
            backend.channel,
            self._member,
            inputs,
            outputs,
            reduce_op=getattr(opts, "reduceOp", None),
            asynchronous=getattr(opts, "asyncOp", kind in ("SEND", "RECV", "RECVANYSOURCE")),
            batch=self._coalescing,
            bound=self._bound is not None,
            line=user_line(),
            **more,
        )
        if map_of is None:
            argument_checks.check(operation, backend)
        operation.device = map_of
        for tensor in tensors:
            if isinstance(tensor, FakeCudaTensor):
                operation.device = tensor._device
                self._used_devices.add(tensor._device.index)
                break
        again = partial(self._issue, kind, opts=opts, device=device, **more)
        if graph_capture.underway and (work := captured(operation, again)) is not None:
            return work
        work = RankWork([operation], outputs if result is None else result)
        if self._coalescing is not None:
            self._coalescing.append(operation)
        backend.channel.issue(operation)
        return work

    def _start_coalescing(self, device: torch.device) -> None:
        self._coalescing = []

    def _end_coalescing(self, device: torch.device) -> RankWork | None:
        operations, self._coalescing = self._coalescing, None
        return RankWork(operations, []) if operations else None

    # ------------------------------------------------------------- reductions

    def allreduce(self, tensors: Any, opts: Any = None, **more: Any) -> Any:
        """Reduce the ranks' tensors, and give all ranks the result."""
        tensors = argument_checks.as_list(tensors)
        argument_checks.single(tensors)
        return self._issue("ALLREDUCE", tensors, tensors, options.reducing(opts, c10d.AllreduceOptions, more))

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
        """Reduce several tensors in one operation."""
        opts = options.reducing(opts, c10d.AllreduceCoalescedOptions)
        return self._issue("ALLREDUCE_COALESCED", tensors, tensors, opts)

    def reduce(self, tensors: Any, opts: Any = None, op: Any = None, **more: Any) -> Any:
        """Reduce the ranks' tensors, and give the root the result."""
        short = isinstance(tensors, torch.Tensor)
        tensors = argument_checks.as_list(tensors)
        argument_checks.single(tensors)
        root = opts if short and isinstance(opts, int) else more.get("root")
        if root is not None:
            opts = options.reducing(op, c10d.ReduceOptions, {"root": root})
        else:
            opts = options.reducing(opts, c10d.ReduceOptions, {"op": op})
        root = opts.rootRank + opts.rootTensor
        return self._issue("REDUCE", tensors, tensors, opts, root=root)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None, **more: Any) -> Any:
        """Reduce a list of tensors, and give each rank one."""
        output, given = argument_checks.single(argument_checks.as_list(outputs)), argument_checks.inner_list(inputs)
        opts = options.reducing(opts, c10d.ReduceScatterOptions, more)
        return self._issue("REDUCE_SCATTER", given, [output], opts)

    def reduce_scatter_single(self, output: Tensor, given: Tensor, opts: Any = None) -> Any:
        """Reduce a tensor, and give each rank its part."""
        return self._issue("_REDUCE_SCATTER_BASE", [given], [output], options.reducing(opts, c10d.ReduceScatterOptions))

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        """The same with several tensors in one operation."""
        opts = options.reducing(opts, c10d.ReduceScatterOptions)
        return self._issue("REDUCE_SCATTER_COALESCED", inputs, outputs, opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # ------------------------------------------------------- moving data

    def broadcast(self, tensors: Any, opts: Any = None, **more: Any) -> Any:
        """Give all ranks the root's tensor."""
        opts, root = options.rooted(opts, c10d.BroadcastOptions, more, short=isinstance(tensors, torch.Tensor))
        tensors = argument_checks.as_list(tensors)
        argument_checks.single(tensors)
        return self._issue("BROADCAST", tensors, tensors, opts, root=root)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None, **more: Any) -> Any:
        """Give all ranks a list of all ranks' tensors."""
        opts = options.given(opts, c10d.AllgatherOptions)
        given = argument_checks.single(argument_checks.as_list(inputs))
        return self._issue("ALLGATHER", [given], argument_checks.inner_list(outputs), opts, result=outputs)

    def all_gather_single(self, output: Tensor, given: Tensor, opts: Any = None) -> Any:
        """Give all ranks one tensor that contains all ranks' tensors."""
        return self._issue("_ALLGATHER_BASE", [given], [output], options.given(opts, c10d.AllgatherOptions))

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        """The same with several tensors in one operation."""
        return self._issue("ALLGATHER_COALESCED", inputs, outputs, options.given(opts, c10d.AllgatherOptions))

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(self, outputs: Any, inputs: Any, opts: Any = None, **more: Any) -> Any:
        """Give the root a list of all ranks' tensors."""
        opts, root = options.rooted(opts, c10d.GatherOptions, more, short=isinstance(inputs, torch.Tensor))
        given = argument_checks.single(argument_checks.as_list(inputs))
        return self._issue("GATHER", [given], argument_checks.inner_list(outputs), opts, result=outputs, root=root)

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None, **more: Any) -> Any:
        """Give each rank one tensor of the root's list."""
        opts, root = options.rooted(opts, c10d.ScatterOptions, more, short=isinstance(outputs, torch.Tensor))
        output = argument_checks.single(argument_checks.as_list(outputs))
        return self._issue(
            "SCATTER", argument_checks.inner_list(inputs), [output], opts, root=root, device=output.device
        )

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        """Give each rank one tensor of every rank's list."""
        return self._issue("ALLTOALL", inputs, outputs, options.given(opts, c10d.AllToAllOptions))

    def all_to_all_single(
        self, output: Tensor, given: Tensor, output_splits: Sequence[int], input_splits: Sequence[int], opts: Any = None
    ) -> Any:
        """Give each rank its part of every rank's tensor."""
        splits = (tuple(output_splits or ()), tuple(input_splits or ()))
        return self._issue("ALLTOALL_BASE", [given], [output], options.given(opts, c10d.AllToAllOptions), splits=splits)

    alltoall_base = all_to_all_single

    def barrier(self, opts: Any = None, **more: Any) -> Any:
        """Wait for all ranks."""
        opts = options.given(opts, c10d.BarrierOptions)
        kind = next(iter(self._backends)) if len(self._backends) == 1 else opts.device.type if opts.device else "cpu"
        if kind == "cpu" or self._backends.get("cuda") is None or self._backends["cuda"].channel.backend != "nccl":
            return self._issue("BARRIER", [], [], opts, device=torch.device("cpu" if "cpu" in self._backends else kind))
        rank = self._backends["cuda"].channel.ranks[self._member]
        one = torch.zeros(1, device=options.barrier_device(opts, self._bound, self._used_devices, rank))
        return self._issue("BARRIER", [one], [one], opts)

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """Wait for all ranks; the report of a hang names those that are missing."""
        self._issue("MONITORED_BARRIER", [], [], device=torch.device("cpu")).wait()

    # ---------------------------------------------------------- point to point

    def send(self, tensors: Any, peer: int, tag: int = 0) -> Any:
        """Send a tensor to a rank."""
        return self._issue("SEND", [argument_checks.single(argument_checks.as_list(tensors))], [], peer=peer, tag=tag)

    def recv(self, tensors: Any, peer: int, tag: int = 0) -> Any:
        """Receive a tensor from a rank."""
        return self._issue("RECV", [], [argument_checks.single(argument_checks.as_list(tensors))], peer=peer, tag=tag)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        """Receive a tensor from any rank; NCCL does not have it."""
        tensor = argument_checks.single(argument_checks.as_list(tensors))
        if self._get_backend(tensor.device).channel.backend == "nccl":
            raise NotImplementedError("ProcessGroupNCCL does not support recvAnysource")
        return self._issue("RECVANYSOURCE", [], [tensor], tag=tag)


def _unwrapped(tensors: Tensors) -> list[Tensor]:
    """The tensors; those that an earlier collective is still writing are waited for, as C++ does by dispatching."""
    if any(dispatches_itself(tensor) for tensor in tensors):
        refuse = not_simulated.refuse("wrapped tensors")
        tensors = [getattr(one, "trigger_wait", refuse)() if dispatches_itself(one) else one for one in tensors]
    return list(tensors)
