"""The backends of a rank's process group, as torch's Python code sees them."""

from __future__ import annotations

import copy
import datetime as dt
from typing import TYPE_CHECKING, Any

from fakegpu_lab.ranks.dist import dist

if TYPE_CHECKING:
    from fakegpu_lab.ranks.collectives.operation import Communicator

NCCL_TIMEOUT = dt.timedelta(minutes=10)
"""torch.distributed.constants.default_pg_nccl_timeout, of a build with NCCL."""


class NcclConfig:
    """``ProcessGroupNCCL.NCCLConfig``: the settings of ncclConfig_t. Kept, without effect."""

    def __init__(self) -> None:
        self.blocking = self.cga_cluster_size = self.min_ctas = self.max_ctas = self.split_share = 0
        self.traffic_class = 0
        self.net_name = self.comm_name = ""


class Options:
    """``ProcessGroupNCCL.Options``."""

    def __init__(self, is_high_priority_stream: bool = False) -> None:
        self.is_high_priority_stream = is_high_priority_stream
        self.config = NcclConfig()
        self.split_from: Any = None
        self.split_color = 0
        self.global_ranks_in_group: list[int] = []
        self.group_name = ""
        self._timeout = NCCL_TIMEOUT
        self.backend = "nccl"

    def __deepcopy__(self, memo: dict[int, Any]) -> Options:
        twin = Options(self.is_high_priority_stream)
        vars(twin).update(vars(self))
        twin.config = copy.copy(self.config)
        return twin


class RankBackend:
    """One backend of one rank's group: a communicator, and what torch asks of it."""

    supports_coalescing = True
    supports_time_estimate = False

    def __init__(self, channel: Communicator, rank: int, options: Options | None = None) -> None:
        self.channel = channel
        self._rank = rank
        self.options = options or Options()
        self._splits = 0

    @property
    def supports_splitting(self) -> bool:
        """Whether the group can be split (ncclCommSplit)."""
        return self.channel.backend == "nccl"

    def supports_tensor_alloc(self, device: Any) -> bool:
        """Whether it can allocate tensors in memory of its own."""
        return False

    def name(self) -> str:
        """``nccl`` or ``gloo``."""
        return self.channel.backend

    def rank(self) -> int:
        """The rank in the group."""
        return self._rank

    def size(self) -> int:
        """The number of ranks in the group."""
        return self.channel.size

    def comm_split_count(self) -> int:
        """The number of groups that were split from it."""
        return self._splits

    def count_split(self) -> None:
        """Count a group that was split from it."""
        self._splits += 1

    def _set_sequence_number_for_group(self) -> None:
        """Nothing to do: the communicator counts."""

    def _set_default_timeout(self, timeout: dt.timedelta) -> None:
        self.options._timeout = timeout

    set_timeout = _add_ephemeral_timeout = _set_default_timeout

    def perform_nocolor_split(self, device: Any) -> None:
        """Nothing to do for a rank that is in no part of a split."""

    def eager_connect_single_device(self, device: Any) -> None:
        """Connections cost nothing."""

    def register_mem_pool(self, pool: Any) -> None:
        """Registration costs nothing, and gains nothing."""

    deregister_mem_pool = register_mem_pool

    def _is_initialized(self) -> bool:
        return True

    def abort(self) -> None:
        """Nothing to free."""

    shutdown = _group_start = _group_end = abort


class RankNccl(RankBackend):
    """``torch.distributed.ProcessGroupNCCL``."""

    Options = Options
    NCCLConfig = NcclConfig


class RankGloo(RankBackend):
    """A Gloo backend between ranks."""

    create_device = staticmethod(dist.ProcessGroupGloo.create_device)
    create_default_device = staticmethod(dist.ProcessGroupGloo.create_default_device)


RankNccl.__name__ = RankNccl.__qualname__ = "ProcessGroupNCCL"
RankNccl.__module__ = "torch.distributed.distributed_c10d"
