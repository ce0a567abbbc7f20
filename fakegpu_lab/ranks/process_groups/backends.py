"""The backends of a rank's process group, as torch's Python code sees them."""

from __future__ import annotations

import copy
import datetime as dt
import os
from typing import TYPE_CHECKING, Any

from fakegpu_lab.ranks.dist import dist

if TYPE_CHECKING:
    from collections.abc import Callable

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
    """One backend of one rank's group: a communicator, and what torch asks of it.

    Attributes
    ----------
    options
        As `init_process_group` got them, with its timeout.
    eager
        Whether its communicator was made with the group, which was bound to a device.
    uid
        The number of the group among this rank's groups (torch counts those that are gone, too).
    checks_nan
        Whether NCCL's operations look for NaN in what a rank sends (``TORCH_NCCL_NAN_CHECK``).
    ended
        Whether the group was destroyed.
    """

    supports_coalescing = True
    supports_time_estimate = False

    def __init__(self, channel: Communicator, rank: int, options: Options | None = None) -> None:
        self.channel = channel
        self._rank = rank
        self.options = options or Options()
        self._splits = 0
        self.eager = False
        self.uid = 0
        self.checks_nan = os.environ.get("TORCH_NCCL_NAN_CHECK", "0").lower() in _TRUE
        self.ended = False

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
        """Take part in a split without being in the new group."""
        self.count_split()

    def eager_connect_single_device(self, device: Any) -> None:
        """No effect: the first operation connects."""

    def register_mem_pool(self, pool: Any) -> None:
        """Registration costs nothing, and gains nothing."""

    deregister_mem_pool = register_mem_pool

    def _is_initialized(self) -> bool:
        """Whether it has a communicator: since its first operation, or from the start."""
        return self.eager or bool(self.channel.history[self._rank])

    def _group_start(self) -> None:
        """Nothing to do: calls are joined by the group."""

    _group_end = _group_start

    def shutdown(self) -> None:
        """End the communicator after what is under way: later calls fail."""
        self.ended = True
        self.channel.disconnect(self._rank)
        self.channel.close()

    def abort(self) -> None:
        """End the communicator at once: what is under way fails, and later calls do."""
        self.ended = True
        self.channel.disconnect(self._rank)
        self.channel.abort()


class RankNccl(RankBackend):
    """``torch.distributed.ProcessGroupNCCL``."""

    Options = Options
    NCCLConfig = NcclConfig
    group: Callable[..., Any]
    """Makes a group from a store, a rank and a size, the arguments of the class in torch."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make a backend; with torch's own arguments, a group of it alone."""
        check_environment()
        return cls.group(*args, **kwargs) if isinstance(args[0], dist.Store) else super().__new__(cls)


def check_environment() -> None:
    """Raise where ProcessGroupNCCL does, for a switch that is no boolean (TraceUtils.h, `getCvarBool`)."""
    for name in ("TORCH_NCCL_BLOCKING_WAIT", "TORCH_NCCL_NAN_CHECK"):
        if os.environ.get(name, "0").lower() not in _BOOLEANS:
            raise RuntimeError(f"Invalid value for environment variable: {name}")


_TRUE = frozenset(("y", "yes", "1", "t", "true"))
_BOOLEANS = _TRUE | {"n", "no", "0", "f", "false"}


class RankGloo(RankBackend):
    """A Gloo backend between ranks."""

    @staticmethod
    def create_device(*args: Any, **kwargs: Any) -> Any:
        """A network device of Gloo's; the group has no use for it."""
        return dist.ProcessGroupGloo.create_device(*args, **kwargs)


RankNccl.__name__ = RankNccl.__qualname__ = "ProcessGroupNCCL"
RankNccl.__module__ = "torch.distributed.distributed_c10d"
