"""DDP's C++ reducer and logger, adapted to what PrivateUse1 cannot do."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.changes import replaced, wrapped
from fakegpu_lab.driver.dispatch.registered_kernels import reducer
from fakegpu_lab.ranks.dist import cpp

if TYPE_CHECKING:
    from collections.abc import Callable


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


def _building(real: Any) -> Any:
    return _while("under_construction", real)


def _agreeing(real: Any) -> Any:
    return _while("agreeing", real)


_CPP = "torch._C._distributed_c10d"
_WHY = "what DDP asks of C++"
_AGREE = "what the ranks tell each other about parameters and buckets has values even so"
CHANGES = [
    wrapped("torch.distributed.Reducer", _building, _WHY),
    wrapped(f"{_CPP}.Reducer._set_static_graph", _building, _WHY),
    wrapped(f"{_CPP}.Reducer._rebuild_buckets", _agreeing, _AGREE, when=current.meta),
    wrapped("torch.distributed._verify_params_across_processes", _agreeing, _AGREE, when=current.meta),
    replaced("torch.distributed._register_builtin_comm_hook", _register_builtin_comm_hook, _WHY),
    wrapped(f"{_CPP}.Logger.set_runtime_stats_and_log", _without_timer, "no timer of a CUDA build"),
]
