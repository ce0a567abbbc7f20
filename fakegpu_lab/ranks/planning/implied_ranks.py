"""Scale on paper: one rank's program in a world whose other ranks are implied.

The program of one rank runs as it would under torchrun on a thousand GPUs; the others do not run. What is assumed of
them: each calls the same operations at the same time with tensors of the same shapes, and, where values are computed,
with the same values. So an all-reduce multiplies by the number of ranks, an all-gather repeats, and what would be
received from another rank stays as it is. Memory is this rank's, exactly; time is the model's (`hardware.fabric`), with
every rank on a node like this one, and none slower than this one.
"""

from __future__ import annotations

import copy
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from fakegpu_lab.driver.base import current
from fakegpu_lab.hardware.network.fabric import Fabric
from fakegpu_lab.hardware.time.clock import here
from fakegpu_lab.ranks.collectives import cost
from fakegpu_lab.ranks.collectives import values as collectives
from fakegpu_lab.ranks.collectives.channel import Channel
from fakegpu_lab.ranks.collectives.operation import NAMES, P2P
from fakegpu_lab.ranks.collectives.price import price
from fakegpu_lab.ranks.dist import c10d, dist
from fakegpu_lab.ranks.planning import figures
from fakegpu_lab.ranks.scheduling.environment import variables

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.base.patches import Patches
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
    """The links of all its nodes, each one like this machine's first."""
    assert current.machine is not None
    spec = current.machine.spec
    node = spec.gpus[: wanted.local_size]
    return Fabric(replace(spec, gpus=node * wanted.nodes, nodes=wanted.nodes))


class ImpliedChannel(Channel):
    """A backend of a group of which only one member is there."""

    def __init__(
        self, name: str, backend: str, ranks: tuple[int, ...], description: str, member: int, links: Fabric
    ) -> None:
        super().__init__(name, backend, ranks, description)
        self.member = member
        self.links = links

    def issue(self, operation: Operation) -> None:
        """The member calls an operation, and with it all the others do."""
        if operation.kind not in P2P:
            self.numbers[self.member] += 1
            operation.number = self.numbers[self.member]
        cost.launch(operation)
        with torch.no_grad():
            if operation.kind in _FILL and not collectives.is_meta(operation):
                _FILL[operation.kind](operation, self.size)
        price = self.price([operation]) if operation.device is not None else None
        cost.charge([operation], price)
        _count(operation, price.algorithm if price is not None else "")
        operation.finish()

    def price(self, parts: list[Operation]) -> Cost:
        """What an operation costs among all members: rank r is the r-th device of the implied nodes."""
        operation = parts[0]
        both = (self.ranks[self.member], self.ranks[operation.peer])
        return price(operation.kind, operation.nbytes, self.links, both if operation.kind in P2P else self.ranks)


def _reduced(values: Tensor, op: Any, count: int) -> Tensor:
    """The reduction of `count` equal tensors."""
    kind = op.op
    if kind == ReduceOp.RedOpType.PREMUL_SUM:
        values = values * collectives.premultiplier(op)
    if kind in (ReduceOp.RedOpType.SUM, ReduceOp.RedOpType.PREMUL_SUM) and values.dtype is not torch.bool:
        return values * count
    if kind == ReduceOp.RedOpType.PRODUCT:
        return values**count
    if kind == ReduceOp.RedOpType.BXOR:
        return values if count % 2 else torch.zeros_like(values)
    return values  # AVG, MIN, MAX, "and", "or" of equal values


def _reduce(operation: Operation, count: int) -> None:
    for given, target in zip(operation.inputs, operation.outputs, strict=True):
        collectives.put(collectives.inner(target), _reduced(collectives.inner(given), operation.reduce_op, count))


def _repeat(operation: Operation, count: int) -> None:
    for given, target in zip(operation.inputs, operation.outputs, strict=True):
        values = collectives.inner(target)
        values.view(count, -1).copy_(collectives.inner(given).reshape(1, -1))


def _same(operation: Operation, count: int) -> None:
    given = collectives.inner(operation.inputs[0]).clone()
    for target in operation.outputs:
        values = collectives.inner(target)
        if values.numel() == given.numel():
            collectives.put(values, given)


def _share(operation: Operation, count: int) -> None:
    mine = collectives.inner(operation.inputs[operation.rank])
    collectives.put(collectives.inner(operation.outputs[0]), _reduced(mine, operation.reduce_op, count))


def _shares(operation: Operation, count: int) -> None:
    for given, target in zip(operation.inputs, operation.outputs, strict=True):
        mine = collectives.inner(given).reshape(count, -1)[operation.rank]
        collectives.put(collectives.inner(target), _reduced(mine, operation.reduce_op, count))


def _scatter(operation: Operation, count: int) -> None:
    if operation.inputs:
        collectives.put(collectives.inner(operation.outputs[0]), collectives.inner(operation.inputs[operation.rank]))


def _exchange(operation: Operation, count: int) -> None:
    mine = collectives.inner(operation.inputs[operation.rank]).clone()
    for target in operation.outputs:
        values = collectives.inner(target)
        if values.numel() == mine.numel():
            collectives.put(values, mine)


def _exchange_parts(operation: Operation, count: int) -> None:
    taking, giving = operation.splits
    given = collectives.portions(collectives.inner(operation.inputs[0]), giving, count)
    mine = given[operation.rank].clone()
    for values in collectives.portions(collectives.inner(operation.outputs[0]), taking, count):
        if values.shape == mine.shape:
            values.copy_(mine)


_FILL: dict[str, Callable[[Operation, int], None]] = {
    "ALLREDUCE": _reduce,
    "ALLREDUCE_COALESCED": _reduce,
    "REDUCE": _reduce,
    "ALLGATHER": _same,
    "GATHER": _same,
    "_ALLGATHER_BASE": _repeat,
    "ALLGATHER_COALESCED": _repeat,
    "SCATTER": _scatter,
    "REDUCE_SCATTER": _share,
    "_REDUCE_SCATTER_BASE": _shares,
    "REDUCE_SCATTER_COALESCED": _shares,
    "ALLTOALL": _exchange,
    "ALLTOALL_BASE": _exchange_parts,
}
"""What this rank has afterwards. A broadcast and what is received leave its tensor as it is."""


# ------------------------------------------------------------------------- what it did


def _count(operation: Operation, algorithm: str) -> None:
    told = figures.current
    if told is None:
        return
    name, ranks = NAMES.get(operation.kind, operation.kind.lower()), operation.channel.size
    found = next((one for one in told.operations if (one.name, one.ranks) == (name, ranks)), None)
    if found is None:
        found = figures.Operations(name=name, ranks=ranks, on_device=operation.device is not None)
        told.operations.append(found)
    found.calls += 1
    found.nbytes += operation.nbytes
    found.ns += operation.end_ns - operation.start_ns
    found.algorithms[algorithm] = found.algorithms.get(algorithm, 0) + 1


class _Steps:
    """Notes the end of every optimizer step."""

    def __init__(self, told: figures.Plan) -> None:
        self.told = told
        self.before = (0, 0, 0, 0)

    def __call__(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        device = current.device()
        work = sum(stream.busy for stream in device.streams.values())
        together = sum(one.ns for one in self.told.operations if one.on_device)
        now = (max(device.end, here.host.now), work, together, device.busy)
        ns, work, together, busy = (new - old for new, old in zip(now, self.before, strict=True))
        self.before = now
        self.told.steps.append(figures.Step(ns=ns, kernels_ns=work - together, collectives_ns=together, busy_ns=busy))


# ------------------------------------------------------------------------- the way in


def enter(wanted: World) -> None:
    """Let this process be a rank of an implied world, from now on."""
    global _world
    leave()
    _world = wanted
    figures.current = figures.Plan(world_size=wanted.size, rank=wanted.rank, local_size=wanted.local_size)
    _hooks.append(register_optimizer_step_post_hook(_Steps(figures.current)))
    os.environ.update(variables(wanted.rank, wanted.size, wanted.local_size))


def leave() -> None:
    """Let it be the process it was, but for its environment."""
    global _world
    _world = None
    while _hooks:
        _hooks.pop().remove()


_hooks: list[Any] = []


def install(patches: Patches) -> None:
    """Patch what would wait for the other ranks, or read from them what is only implied."""

    def rendezvous(url: str, rank: int = -1, world_size: int = -1, **options: Any) -> Any:
        inside = world()
        if inside is None:
            yield from meet(url, rank, world_size, **options)
            return
        yield dist.HashStore(), inside.rank if rank < 0 else rank, inside.size if world_size < 0 else world_size

    meet: Any = c10d.rendezvous
    patches.set(c10d, "rendezvous", rendezvous)
    for name, instead in _INSTEAD.items():
        patches.set(c10d, name, _unless_implied(getattr(c10d, name), instead))
        if hasattr(dist, name):
            patches.set(dist, name, getattr(c10d, name))


def _unless_implied(function: Any, instead: Any) -> Any:
    def either(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) if world() is None else instead(*args, **kwargs)

    either.__name__, either.__doc__ = function.__name__, function.__doc__
    return either


def _no_barrier(*args: Any, **kwargs: Any) -> None:
    """`_store_based_barrier`: the others are there."""


def _all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    object_list[:] = [copy.deepcopy(obj) for _ in object_list]


def _gather_object(obj: Any, object_gather_list: list[Any] | None = None, *args: Any, **kwargs: Any) -> None:
    if object_gather_list is not None:
        _all_gather_object(object_gather_list, obj)


def _scatter_object_list(output: list[Any], given: list[Any] | None = None, *args: Any, **kwargs: Any) -> None:
    if given:
        output[0] = given[dist.get_rank(kwargs.get("group"))]


def _broadcast_object_list(object_list: list[Any], *args: Any, **kwargs: Any) -> None:
    """The root's objects are taken to be this rank's."""


_INSTEAD = {
    "_store_based_barrier": _no_barrier,
    "all_gather_object": _all_gather_object,
    "gather_object": _gather_object,
    "scatter_object_list": _scatter_object_list,
    "broadcast_object_list": _broadcast_object_list,
}
"""Objects would need values on the device to travel (`c10d._object_to_tensor`)."""
