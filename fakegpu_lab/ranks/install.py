"""The patches of torch.distributed while a machine is enabled: NCCL is available, and process groups are `RankGroup`s.

A group's operations run on a communicator: a `Channel` between ranks of this process, a `ProcessChannel` between
processes, an `ImpliedChannel` where one rank of a large job runs alone.
"""

from __future__ import annotations

from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base import changes, not_simulated
from fakegpu_lab.driver.base.changes import added, computed, imported, replaced
from fakegpu_lab.processes import run_reports
from fakegpu_lab.ranks.collectives.channel import Channel
from fakegpu_lab.ranks.dist import c10d, cpp, dist
from fakegpu_lab.ranks.planning import implied_ranks
from fakegpu_lab.ranks.process_groups.backends import NCCL_TIMEOUT, RankGloo, RankNccl
from fakegpu_lab.ranks.process_groups.process_group import RankGroup
from fakegpu_lab.ranks.scheduling.scheduler import current_rank
from fakegpu_lab.ranks.torchrun import process_ranks

if TYPE_CHECKING:
    from fakegpu_lab.driver.base.changes import Change
    from fakegpu_lab.ranks.collectives.operation import Communicator

_new_process_group: Any = c10d._new_process_group_helper
_batch_isend_irecv: Any = c10d.batch_isend_irecv
_OURS = ("nccl", "gloo")


def new_process_group(
    group_size: int,
    group_rank: int,
    global_ranks_in_group: list[int],
    backend: str,
    store: Any,
    group_name: str,
    backend_options: Any = None,
    timeout: Any = None,
    pg_tag: str | None = None,
    device_id: torch.device | None = None,
    group_desc: str | None = None,
    **newer: Any,
) -> tuple[Any, Any]:
    """`distributed_c10d._new_process_group_helper`; torch's own makes groups with other backends than ours.

    `newer` are arguments that only newer versions of torch pass.
    """
    if newer.get("enable_reconfigure"):  # since torch 2.15
        raise not_simulated.error("reconfiguring")
    config = c10d.BackendConfig(c10d.Backend(backend))
    backend_names = {str(device): str(name) for device, name in config.get_device_backend_map().items()}
    if not all(name in _OURS for name in backend_names.values()):
        return _new_process_group(  # type: ignore[no-any-return]
            group_size, group_rank, global_ranks_in_group, backend, store, group_name,
            backend_options=backend_options, timeout=timeout, pg_tag=pg_tag, device_id=device_id, group_desc=group_desc,
            **newer,
        )  # fmt: skip
    world: Any = c10d._world
    if group_name in world.pg_names.values():
        raise ValueError("The specified group name has already been created, please use a different group name")
    if device_id is not None and (device_id.index is None or device_id.type == "cpu"):
        raise ValueError("init_process_group device_id parameter must be an accelerator with an index")
    if pg_tag:
        existing = c10d._find_pg_by_ranks_and_tag(pg_tag, global_ranks_in_group)
        if existing:
            return existing, world.pg_map[existing][1]
    if global_ranks_in_group:
        parent = c10d._get_default_group()
        if isinstance(parent, RankGroup) and parent.bound_device_id is not None:  # ncclCommSplit, by all its ranks
            parent._get_backend(parent.bound_device_id).count_split()
        if parent.rank() not in global_ranks_in_group:
            return dist.GroupMember.NON_GROUP_MEMBER, None
        ranks = tuple(global_ranks_in_group)
    else:
        ranks = tuple(range(group_size))
    own_store = dist.PrefixStore(f"{group_name}/", store)
    description = group_desc or "undefined"
    group = make_group(backend_names, ranks, group_rank, group_name, description, backend_options, own_store, timeout)
    group.store = own_store
    if device_id is not None:
        group.bound_device_id = device_id
        group._get_backend(device_id).eager = True
    _register(group, backend, str(config), pg_tag)
    if not global_ranks_in_group and current_rank() is None and implied_ranks.world() is None:
        run_reports.identity.join(group_rank, group_size)
    return group, group.store


def make_group(
    backend_names: dict[str, str],
    ranks: tuple[int, ...],
    member: int,
    name: str,
    description: str,
    options: Any = None,
    store: Any = None,
    timeout: Any = None,
) -> RankGroup:
    """A rank's process group, on the communicators that it shares with the other ranks' groups.

    Parameters
    ----------
    backend_names
        The name of the backend for each device type.
    ranks
        The members' global ranks.
    member
        The rank in the group.
    store, timeout
        The group's own store, and how long to wait for the other members: where these are processes.
    """
    rank = current_rank()
    generations = c10d._world.generations if rank is not None else {}
    generation = generations[name] = generations.get(name, 0) + 1
    channels = rank.scheduler.shared.setdefault("channels", {}) if rank is not None else {}
    backends: dict[str, Any] = {}
    by_name: dict[str, Any] = {}
    for device, backend in backend_names.items():
        if backend not in by_name:
            key = (name, ranks, backend, generation)
            if key not in channels:
                channels[key] = _channel(name, backend, ranks, description, member, store, timeout)
            channel = channels[key]
            if backend == "nccl":
                by_name[backend] = RankNccl(channel, member, options)
                by_name[backend].options._timeout = timeout or NCCL_TIMEOUT
                by_name[backend].uid = len(c10d._world.pg_map)
            else:
                by_name[backend] = RankGloo(channel, member)
        backends[device] = by_name[backend]
    return RankGroup(backends, member, name, description)


def nccl_group(store: Any, rank: int, size: int, options: Any = None, timeout: Any = None) -> RankGroup:
    """``ProcessGroupNCCL(store, rank, size)``: a group of NCCL's that torch.distributed does not know of."""
    if not torch.cuda.device_count():
        raise ValueError("ProcessGroupNCCL is only supported with GPUs, no GPUs found!")
    timeout = timeout or (options._timeout if options is not None else None)
    return make_group({"cuda": "nccl"}, tuple(range(size)), rank, "nccl", "undefined", options, store, timeout)


def _channel(
    name: str, backend: str, ranks: tuple[int, ...], description: str, member: int, store: Any, timeout: Any
) -> Communicator:
    """A communicator between ranks of this process, between processes, or to ranks that are only implied."""
    if (world := implied_ranks.world()) is not None:
        return implied_ranks.ImpliedChannel(name, backend, ranks, description, member, implied_ranks.fabric(world))
    if current_rank() is None and len(ranks) > 1:
        return process_ranks.ProcessChannel(name, backend, ranks, description, store, member, timeout or NCCL_TIMEOUT)
    return Channel(name, backend, ranks, description)


def _register(group: RankGroup, backend: str, config: str, tag: str | None) -> None:
    """As `distributed_c10d._register_pg_in_world`, which torch 2.10 does not have."""
    world: Any = c10d._world
    world.pg_map[group] = (backend, group.store)
    world.pg_names[group] = group.group_name
    world.pg_backend_config[group] = config
    c10d._register_process_group(group.group_name, group)
    tags = [f"user:{tag}"] if tag else ["", f"ptd:{group.group_name}"]
    for one in tags:
        world.tags_to_pg.setdefault(one, []).append(group)
    world.pg_to_tag[group] = tags[-1]


def split_group(
    self: RankGroup,
    ranks: list[int],
    timeout: Any = None,
    opts: Any = None,
    group_name: str | None = None,
    group_desc: str | None = None,
    device_types: list[torch.device] | None = None,
) -> RankGroup | None:
    """`ProcessGroup.split_group`: a group of some of this group's ranks; None on the others."""
    for backend in self._backends.values():
        backend.count_split()
    if self.rank() not in ranks:
        return None
    wanted = {torch.device(device).type for device in device_types} if device_types is not None else set(self._backends)
    backend_names = {device: backend.name() for device, backend in self._backends.items() if device in wanted}
    members = tuple(next(iter(self._backends.values())).channel.ranks[rank] for rank in ranks)
    name = group_name or f"{self.group_name}:split:{'_'.join(map(str, members))}"
    store = dist.PrefixStore(f"{name}/", self.store) if self.store is not None else None
    member = ranks.index(self.rank())
    group = make_group(backend_names, members, member, name, group_desc or "undefined", opts, store, timeout)
    group.store = store
    return group


def batch_isend_irecv(p2p_op_list: list[Any]) -> list[Any]:
    """`distributed_c10d.batch_isend_irecv`, whose NCCL group call torch makes only in groups of C++'s own type."""
    first: Any = p2p_op_list[0] if isinstance(p2p_op_list, list) and p2p_op_list else None
    group = getattr(first, "group", None) or (c10d._get_default_group() if first is not None else None)
    if not isinstance(group, RankGroup) or group._get_backend(first.tensor.device).channel.backend != "nccl":
        return _batch_isend_irecv(p2p_op_list)  # type: ignore[no-any-return]
    c10d._check_p2p_op_list(p2p_op_list)
    with c10d._coalescing_manager(group, first.tensor.device, async_ops=True) as manager:
        for each in p2p_op_list:
            peer = {"group_dst" if each.op is dist.isend else "group_src": each.group_peer}
            each.op(each.tensor, group=each.group, tag=each.tag, **peer)
    return list(manager.works)


def _attach_flight_recorder(group: Any, *args: Any) -> None:
    """`distributed_c10d._maybe_attach_flight_recorder`: C++ cannot record groups that are made in Python."""
    if not isinstance(group, RankGroup):
        _attach(group, *args)


_attach: Any = getattr(c10d, "_maybe_attach_flight_recorder", None)


def _rows() -> list[Change]:
    """NCCL is available, and creates our groups."""
    nccl_in = [c10d, dist] if hasattr(cpp, "ProcessGroupNCCL") else [c10d, dist, cpp]
    return [
        replaced(f"{_C10D}._NCCL_AVAILABLE", True, _WHY),
        replaced(f"{_C10D}.default_pg_nccl_timeout", NCCL_TIMEOUT, _WHY),
        replaced("torch.distributed.constants.default_pg_nccl_timeout", NCCL_TIMEOUT, _WHY),
        *(added(f"{module.__name__}.ProcessGroupNCCL", RankNccl, _WHY) for module in nccl_in),
        replaced(f"{_C10D}._new_process_group_helper", new_process_group, _WHY),
        added("fakegpu_lab.ranks.process_groups.process_group.RankGroup.split_group", split_group, _WHY),
        added("fakegpu_lab.ranks.process_groups.backends.RankNccl.group", staticmethod(nccl_group), _WHY),
        replaced(f"{_C10D}._maybe_attach_flight_recorder", _attach_flight_recorder, _RECORDER, since="2.15"),
        replaced(f"{_C10D}.batch_isend_irecv", batch_isend_irecv, _WHY),
        replaced("torch.distributed.batch_isend_irecv", batch_isend_irecv, _WHY),
    ]


_C10D = "torch.distributed.distributed_c10d"
_WHY = "NCCL is available, and its groups are ours"
_RECORDER = "C++ cannot record groups that are made in Python"


def _ask_at_each_call(module: Any) -> list[Change]:
    """Let ``group=group.WORLD``, looked up at import, be that of each rank even if one of them imports the module."""
    for function in vars(module).values():
        if isinstance(function, FunctionType) and function.__module__ == module.__name__ and function.__defaults__:
            given = function.__defaults__
            function.__defaults__ = tuple(None if isinstance(one, dist.ProcessGroup) else one for one in given)
    return []


CHANGES = [
    computed(_rows, _WHY),
    imported("torch.distributed.nn.functional", _ask_at_each_call, "ranks that are threads share the module"),
]
ROOMS = ("install", "process_groups", "planning.implied_ranks", "launching.launchers", "torchrun.rpc")
"""The rooms with rows of the table of changes."""


@cache
def rows() -> list[Change]:
    """The ranks' part of the table of changes."""
    return changes.collected("fakegpu_lab.ranks", ROOMS)


def install() -> None:
    """Make NCCL available in torch.distributed, and let it create our groups."""
    changes.apply(rows())
