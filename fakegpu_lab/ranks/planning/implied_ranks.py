"""One rank's program in a world whose other ranks are implied: ``fakegpu-lab plan``.

The program of one rank runs as it would under torchrun on a thousand GPUs; the others do not run. Each is assumed to
call the same operations at the same time with tensors of the same shapes and, where values are computed, with the same
values. So an all-reduce multiplies by the number of ranks, an all-gather repeats, and a tensor that would be
received from another rank stays as it is. Memory is this rank's, exactly; time is the model's
(`hardware.network.fabric`), with every rank on a node like this one, and none slower than this one.
"""

from __future__ import annotations

import copy
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.changes import computed, replaced
from fakegpu_lab.hardware.network.fabric import Fabric
from fakegpu_lab.hardware.time.clock import here
from fakegpu_lab.ranks.collectives import cost
from fakegpu_lab.ranks.collectives.operation import KINDS, P2P, Communicator, by_kind
from fakegpu_lab.ranks.collectives.values import inner, is_meta, portions, premultiplier, put
from fakegpu_lab.ranks.dist import c10d, dist
from fakegpu_lab.ranks.planning import figures
from fakegpu_lab.ranks.scheduling.environment import variables

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.base.changes import Change
    from fakegpu_lab.hardware.device import Device
    from fakegpu_lab.hardware.network.fabric import Cost
    from fakegpu_lab.ranks.collectives.operation import Operation
    from fakegpu_lab.ranks.planning.figures import World

    Tensor = torch.Tensor

ReduceOp = dist.ReduceOp

_world: World | None = None


def world() -> World | None:
    """The implied world of this process, if it is in one."""
    return _world


def fabric(wanted: World) -> Fabric:
    """The links of all nodes of a world, each like the first node of this machine."""
    assert current.machine is not None
    spec = current.machine.spec
    node = spec.gpus[: wanted.local_size]
    return Fabric(replace(spec, gpus=node * wanted.nodes, nodes=wanted.nodes))


class ImpliedChannel(Communicator):
    """A communicator of which only one member runs."""

    def __init__(
        self, name: str, backend: str, ranks: tuple[int, ...], description: str, member: int, links: Fabric
    ) -> None:
        super().__init__(name, backend, ranks, description)
        self.member = member
        self.links = links

    def issue(self, operation: Operation) -> None:
        """The member calls an operation, and all others are assumed to call it too."""
        if operation.kind not in P2P:
            self.numbers[self.member] += 1
            operation.number = self.numbers[self.member]
        cost.launch(operation)
        with torch.no_grad():
            if operation.kind in _FILL and not is_meta(operation):
                _FILL[operation.kind](operation, self.size)
        charged = self._cost_of(operation) if operation.device is not None else None
        cost.charge([operation], charged)
        _count(operation, charged.algorithm if charged is not None else "")
        operation.finish()

    def expected(self, operation: Operation) -> Cost | None:
        """See `Communicator`."""
        return self._cost_of(operation)

    def finish(self, operation: Operation, seconds: float | None = None) -> None:
        """Nothing to wait for: an operation is done when it was issued."""

    def _cost_of(self, operation: Operation) -> Cost:
        """The cost of an operation among all members: rank r is the r-th device of the implied nodes."""
        both = (self.ranks[self.member], self.ranks[operation.peer])
        slots = both if operation.kind in P2P else self.ranks
        return cost.nccl_cost(operation.kind, operation.nbytes, self.links, slots)


def _reduced(values: Tensor, op: Any, count: int) -> Tensor:
    """The reduction of `count` equal tensors."""
    kind = op.op
    if kind == ReduceOp.RedOpType.PREMUL_SUM:
        values = values * premultiplier(op)
    if kind in (ReduceOp.RedOpType.SUM, ReduceOp.RedOpType.PREMUL_SUM) and values.dtype is not torch.bool:
        return values * count
    if kind == ReduceOp.RedOpType.PRODUCT:
        return values**count
    if kind == ReduceOp.RedOpType.BXOR:
        return values if count % 2 else torch.zeros_like(values)
    return values  # AVG, MIN, MAX, "and", "or" of equal values


def _reduce(operation: Operation, count: int) -> None:
    for given, target in zip(operation.inputs, operation.outputs, strict=True):
        put(inner(target), _reduced(inner(given), operation.reduce_op, count))


def _all_gather_into_tensor(operation: Operation, count: int) -> None:
    for given, target in zip(operation.inputs, operation.outputs, strict=True):
        values = inner(target)
        values.view(count, -1).copy_(inner(given).reshape(1, -1))


def _all_gather(operation: Operation, count: int) -> None:
    given = inner(operation.inputs[0]).clone()
    for target in operation.outputs:
        values = inner(target)
        if values.numel() == given.numel():
            put(values, given)


def _reduce_scatter(operation: Operation, count: int) -> None:
    mine = inner(operation.inputs[operation.rank])
    put(inner(operation.outputs[0]), _reduced(mine, operation.reduce_op, count))


def _reduce_scatter_tensor(operation: Operation, count: int) -> None:
    for given, target in zip(operation.inputs, operation.outputs, strict=True):
        mine = inner(given).reshape(count, -1)[operation.rank]
        put(inner(target), _reduced(mine, operation.reduce_op, count))


def _scatter(operation: Operation, count: int) -> None:
    if operation.inputs:
        put(inner(operation.outputs[0]), inner(operation.inputs[operation.rank]))


def _all_to_all(operation: Operation, count: int) -> None:
    mine = inner(operation.inputs[operation.rank]).clone()
    for target in operation.outputs:
        values = inner(target)
        if values.numel() == mine.numel():
            put(values, mine)


def _all_to_all_single(operation: Operation, count: int) -> None:
    taking, giving = operation.splits
    given = portions(inner(operation.inputs[0]), giving, count)
    mine = given[operation.rank].clone()
    for values in portions(inner(operation.outputs[0]), taking, count):
        if values.shape == mine.shape:
            values.copy_(mine)


_FILL: dict[str, Callable[[Operation, int], None]] = by_kind(
    all_reduce=_reduce,
    reduce=_reduce,
    all_gather=_all_gather,
    gather=_all_gather,
    all_gather_into_tensor=_all_gather_into_tensor,
    scatter=_scatter,
    reduce_scatter=_reduce_scatter,
    reduce_scatter_tensor=_reduce_scatter_tensor,
    all_to_all=_all_to_all,
    all_to_all_single=_all_to_all_single,
)
"""What this rank has after an operation. A broadcast and a receive leave its tensor as it is."""


# ------------------------------------------------------------------------- counting


def _count(operation: Operation, algorithm: str) -> None:
    plan = figures.current
    if plan is None:
        return
    name, ranks = KINDS[operation.kind].function, operation.channel.size
    found = next((one for one in plan.operations if (one.name, one.ranks) == (name, ranks)), None)
    if found is None:
        found = figures.Operations(name=name, ranks=ranks, on_device=operation.device is not None)
        plan.operations.append(found)
    found.calls += 1
    found.nbytes += operation.nbytes
    found.ns += operation.end_ns - operation.start_ns
    found.algorithms[algorithm] = found.algorithms.get(algorithm, 0) + 1


class _Steps:
    """Records the times of every optimizer step in a plan."""

    def __init__(self, plan: figures.Plan) -> None:
        self.plan = plan
        assert current.machine is not None
        self.before = self._now(current.machine.cards[plan.rank % plan.local_size])

    def _now(self, device: Device) -> tuple[int, int, int, int]:
        work = sum(stream.busy for stream in device.streams.values())
        together = sum(one.ns for one in self.plan.operations if one.on_device)
        return max(device.end, here.host.now), work, together, device.busy

    def __call__(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        now = self._now(current.device())
        ns, work, together, busy = (new - old for new, old in zip(now, self.before, strict=True))
        self.before = now
        self.plan.steps.append(figures.Step(ns=ns, kernels_ns=work - together, collectives_ns=together, busy_ns=busy))


# ------------------------------------------------------------------------- entering and leaving


def enter(wanted: World) -> None:
    """Make this process a rank of an implied world."""
    global _world
    leave()
    _world = wanted
    figures.current = figures.Plan(world_size=wanted.size, rank=wanted.rank, local_size=wanted.local_size)
    _hooks.append(register_optimizer_step_post_hook(_Steps(figures.current)))
    os.environ.update(variables(wanted.rank, wanted.size, wanted.local_size))


def leave() -> None:
    """Undo `enter`, except for the environment variables."""
    global _world
    _world = None
    while _hooks:
        _hooks.pop().remove()


_hooks: list[Any] = []


def _rows() -> list[Change]:
    """Functions that would wait for the other ranks or read what they sent."""

    def rendezvous(url: str, rank: int = -1, world_size: int = -1, **options: Any) -> Any:
        implied = world()
        if implied is None:
            yield from real_rendezvous(url, rank, world_size, **options)
            return
        yield dist.HashStore(), implied.rank if rank < 0 else rank, implied.size if world_size < 0 else world_size

    real_rendezvous: Any = c10d.rendezvous
    why = "a rank alone waits for no other"
    return [
        replaced("torch.distributed.distributed_c10d.rendezvous", rendezvous, why),
        *(
            replaced(f"{module.__name__}.{name}", function, why)
            for name, instead in _INSTEAD.items()
            for function in (_unless_implied(getattr(c10d, name), instead),)
            for module in (c10d, dist)
            if hasattr(module, name)
        ),
    ]


def _unless_implied(function: Any, instead: Any) -> Any:
    def either(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) if world() is None else instead(*args, **kwargs)

    either.__name__, either.__doc__ = function.__name__, function.__doc__
    return either


def _no_barrier(*args: Any, **kwargs: Any) -> None:
    """`_store_based_barrier`: the others are assumed to have come."""


def _all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    object_list[:] = [copy.deepcopy(obj) for _ in object_list]


def _gather_object(obj: Any, object_gather_list: list[Any] | None = None, *args: Any, **kwargs: Any) -> None:
    if object_gather_list is not None:
        _all_gather_object(object_gather_list, obj)


def _scatter_object_list(output: list[Any], given: list[Any] | None = None, *args: Any, **kwargs: Any) -> None:
    if given:
        output[0] = given[dist.get_rank(kwargs.get("group"))]


def _broadcast_object_list(object_list: list[Any], *args: Any, **kwargs: Any) -> None:
    """The root's objects are assumed to equal this rank's."""


_INSTEAD = {
    "_store_based_barrier": _no_barrier,
    "all_gather_object": _all_gather_object,
    "gather_object": _gather_object,
    "scatter_object_list": _scatter_object_list,
    "broadcast_object_list": _broadcast_object_list,
}
"""torch sends objects as values on the device (`c10d._object_to_tensor`), which other ranks do not send here."""


CHANGES = [computed(_rows, "one rank of a large job runs alone")]
