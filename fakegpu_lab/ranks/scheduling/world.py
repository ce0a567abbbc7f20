"""torch.distributed's own state, one per rank: the default group, the groups by name."""

from __future__ import annotations

from typing import Any

from fakegpu_lab.ranks.dist import c10d
from fakegpu_lab.ranks.scheduling.scheduler import current_rank


class State:
    """The attributes of `distributed_c10d._World`."""

    def __init__(self) -> None:
        self.default_pg: Any = None
        self.pg_map: dict[Any, Any] = {}
        self.pg_names: dict[Any, Any] = {}
        self.pg_group_ranks: dict[Any, Any] = {}
        self.pg_backend_config: dict[Any, Any] = {}
        self.group_count = 0
        self.tags_to_pg: dict[str, list[Any]] = {}
        self.pg_to_tag: dict[Any, str] = {}
        self.pg_coalesce_state: dict[Any, list[Any]] = {}
        self.pg_flight_recorder_hooks: dict[Any, Any] = {}  # since torch 2.15
        self.comms: list[Any] = []
        self.generations: dict[str, int] = {}


def _state_attribute(name: str) -> property:
    def read(self: RankWorld) -> Any:
        return getattr(self.state, name)

    def write(self: RankWorld, value: Any) -> None:
        setattr(self.state, name, value)

    return property(read, write)


class RankWorld(c10d._World):  # type: ignore[misc]
    """The calling rank's world; for a thread that is not a rank, the world that was there before the run."""

    def __init__(self, before: Any) -> None:
        self._outside_ranks = State()
        for name in vars(self._outside_ranks):
            if hasattr(before, name):
                setattr(self._outside_ranks, name, getattr(before, name))

    @property
    def state(self) -> State:
        """The state of the calling rank."""
        rank = current_rank()
        if rank is None:
            return self._outside_ranks
        found = rank.local.get("world")
        if found is None:
            found = rank.local["world"] = State()
        return found


for _name in vars(State()):
    setattr(RankWorld, _name, _state_attribute(_name))
