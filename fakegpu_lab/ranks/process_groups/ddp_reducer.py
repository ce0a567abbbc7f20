"""DDP's C++ reducer and logger, adapted to what PrivateUse1 cannot do."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.dispatch.registered_kernels import reducer
from fakegpu_lab.ranks.dist import cpp, dist

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.base.patches import Patches


def _with_map_on_host(real: Callable[..., Any]) -> Callable[..., Any]:
    """Call what creates the reducer's map of used parameters so that the map stays on the host.

    `driver.dispatch.registered_kernels` keeps it there.
    """

    @functools.wraps(real, assigned=("__name__", "__doc__"), updated=())
    def with_map_on_host(*args: Any, **kwargs: Any) -> Any:
        reducer.under_construction = True
        try:
            return real(*args, **kwargs)
        finally:
            reducer.under_construction = False

    return with_map_on_host


def _without_timer(real: Callable[[Any], None]) -> Callable[[Any], None]:
    """`Logger.set_runtime_stats_and_log` has no timer for the device type PrivateUse1, and warns on stderr."""

    def set_runtime_stats_and_log(self: Any) -> None:
        module = sys._getframe(1).f_locals.get("self")
        first = next(iter(getattr(module, "_module_parameters", ())), None)
        if first is None or not first.is_cuda:
            real(self)

    return set_runtime_stats_and_log


def _register_builtin_comm_hook(reducer: Any, kind: Any) -> None:
    """The built-in hooks; C++'s compressing hook needs a C++ list in its future, so Python's version replaces it."""
    if kind != cpp.BuiltinCommHookType.FP16_COMPRESS:
        cpp._register_builtin_comm_hook(reducer, kind)
        return
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    module = sys._getframe(1).f_locals.get("self")
    cpp._register_comm_hook(reducer, getattr(module, "process_group", None), fp16_compress_hook)


def _verify_params_across_processes(group: Any, parameters: Any, logger: Any = None) -> None:
    """DDP's comparison of the ranks' parameters, which reads values: skipped under ``compute="meta"``."""
    if not current.meta():
        cpp._verify_params_across_processes(group, parameters, logger)


def install(patches: Patches) -> None:
    """Patch what DDP calls."""
    patches.set(dist, "Reducer", _with_map_on_host(cpp.Reducer))
    patches.set(cpp.Reducer, "_set_static_graph", _with_map_on_host(cpp.Reducer._set_static_graph))
    if current.meta():  # it reads the order of the buckets, which rank 0 broadcasts
        patches.set(cpp.Reducer, "_rebuild_buckets", _with_map_on_host(cpp.Reducer._rebuild_buckets))
    patches.set(dist, "_verify_params_across_processes", _verify_params_across_processes)
    patches.set(dist, "_register_builtin_comm_hook", _register_builtin_comm_hook)
    patches.set(cpp.Logger, "set_runtime_stats_and_log", _without_timer(cpp.Logger.set_runtime_stats_and_log))
