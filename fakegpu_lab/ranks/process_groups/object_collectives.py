"""Object collectives under ``compute="meta"``: ranks of this process exchange objects directly.

torch sends objects as tensors on a device, which would have no values. They take no simulated time here.
"""

from __future__ import annotations

import pickle
from functools import partial
from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.changes import wrapped
from fakegpu_lab.ranks.dist import c10d, dist
from fakegpu_lab.ranks.scheduling.scheduler import Waiting, current_rank

if TYPE_CHECKING:
    from collections.abc import Callable


def _exchange(name: str, value: Any, group: Any) -> list[Any]:
    """All members' values, by their rank in the group; pickled, so that each rank gets its own copy."""
    me = current_rank()
    assert me is not None
    group = group or c10d._get_default_group()
    counts = me.local.setdefault("objects", {})
    number = counts[group.group_name] = counts.get(group.group_name, 0) + 1
    members = tuple(dist.get_process_group_ranks(group))
    values = me.scheduler.shared.setdefault("objects", {}).setdefault((group.group_name, members, number), {})
    values[group.rank()] = pickle.dumps(value)
    me.wait(Waiting(lambda: len(values) == len(members), f"{name}, of ranks {', '.join(map(str, members))}"))
    return [pickle.loads(values[member]) for member in range(len(members))]


def _root(group: Any, rank: int | None, in_group: int | None) -> int:
    if in_group is not None:
        return in_group
    return int(dist.get_group_rank(group or c10d._get_default_group(), rank)) if rank is not None else 0


def _mine(group: Any) -> int:
    return int(dist.get_rank(group))


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """`torch.distributed.all_gather_object`."""
    object_list[:] = _exchange("all_gather_object", obj, group)


def gather_object(
    obj: Any, object_gather_list: list[Any] | None = None, dst: int | None = None, group: Any = None,
    group_dst: int | None = None,
) -> None:  # fmt: skip
    """`torch.distributed.gather_object`."""
    found = _exchange("gather_object", obj, group)
    if _mine(group) == _root(group, dst, group_dst) and object_gather_list is not None:
        object_gather_list[:] = found


def broadcast_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None,
    group_src: int | None = None, **more: Any,
) -> None:  # fmt: skip
    """`torch.distributed.broadcast_object_list`."""
    root = _root(group, src, group_src)
    given = _exchange("broadcast_object_list", object_list if _mine(group) == root else None, group)
    object_list[:] = given[root]


def scatter_object_list(
    scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None, src: int | None = None,
    group: Any = None, group_src: int | None = None,
) -> None:  # fmt: skip
    """`torch.distributed.scatter_object_list`."""
    root = _root(group, src, group_src)
    given = _exchange("scatter_object_list", scatter_object_input_list if _mine(group) == root else None, group)
    scatter_object_output_list[0] = given[root][_mine(group)]


def _between_ranks(function: Callable[..., None], instead: Callable[..., None]) -> Callable[..., None]:
    def either(*args: Any, **kwargs: Any) -> None:
        group = kwargs.get("group", next((one for one in args if isinstance(one, dist.ProcessGroup)), None))
        if current_rank() is None or group is dist.GroupMember.NON_GROUP_MEMBER:
            function(*args, **kwargs)
        else:
            instead(*args, **kwargs)

    either.__name__, either.__doc__ = function.__name__, function.__doc__
    return either


CHANGES = [
    wrapped(
        f"{module}.{instead.__name__}",
        partial(_between_ranks, instead=instead),
        "objects have values even so",
        when=current.meta,
    )
    for instead in (all_gather_object, gather_object, broadcast_object_list, scatter_object_list)
    for module in ("torch.distributed.distributed_c10d", "torch.distributed")
]
