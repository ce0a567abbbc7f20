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


def _while(flag: str, real: Callable[..., Any]) -> Callable[..., Any]:
    """Call `real` with a flag of `registered_kernels.reducer` set."""

    @functools.wraps(real, assigned=("__name__", "__doc__"), updated=())
    def flagged(*args: Any, **kwargs: Any) -> Any:
        setattr(reducer, flag, True)
        try:
            return real(*args, **kwargs)
        finally:
            setattr(reducer, flag, False)

    return flagged


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


def install(patches: Patches) -> None:
    """Patch what DDP calls."""
    patches.set(dist, "Reducer", _while("under_construction", cpp.Reducer))
    patches.set(cpp.Reducer, "_set_static_graph", _while("under_construction", cpp.Reducer._set_static_graph))
    if current.meta():  # what the ranks tell each other about parameters and buckets has values even so
        patches.set(cpp.Reducer, "_rebuild_buckets", _while("agreeing", cpp.Reducer._rebuild_buckets))
        verify = _while("agreeing", cpp._verify_params_across_processes)
        patches.set(dist, "_verify_params_across_processes", verify)
    patches.set(dist, "_register_builtin_comm_hook", _register_builtin_comm_hook)
    patches.set(cpp.Logger, "set_runtime_stats_and_log", _without_timer(cpp.Logger.set_runtime_stats_and_log))
