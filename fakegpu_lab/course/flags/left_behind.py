"""Inside a submission's process: disarms what a cell has left that would act while a check runs.

A timer, a handler of signals, a profiler, a hook of imports or of the garbage collector: each is taken away before a
check, and reported. Threads cannot be taken away; they are reported when they are started (`tampering.watch`).
"""

from __future__ import annotations

import builtins
import functools
import gc
import os
import signal
import sys
import threading
import warnings
from typing import Any, NamedTuple

from fakegpu_lab.course.flags.tampering import from_cell

_HOOKS = ("excepthook", "unraisablehook", "displayhook", "breakpointhook")


def _own(thing: Any) -> bool:
    """Whether something that can be called was written in a cell: a function, a method, an object, a partial call."""
    if isinstance(thing, functools.partial):
        return _own(thing.func)
    return (
        from_cell(thing)
        or from_cell(vars(type(thing)).get("__call__"))
        or from_cell(vars(type(thing)).get("find_spec"))
    )


class LeftBehind:
    """What could act during a check, as it was before the submission ran."""

    def __init__(self) -> None:
        self._import = builtins.__import__
        self._hooks = {name: getattr(sys, name) for name in _HOOKS if hasattr(sys, name)}
        self._warn = warnings.showwarning
        self._handlers: dict[int, Any] = {}
        for number in signal.valid_signals():
            self._handlers[number] = signal.getsignal(number)

    def disarm(self) -> list[str]:
        """Take away what the submission left, and say what that was."""
        found = self._profilers() + self._signals()
        tables: Any = (
            ("gc.callbacks", gc.callbacks),
            ("sys.meta_path", sys.meta_path),
            ("sys.path_hooks", sys.path_hooks),
        )
        for name, table in tables:
            for hook in [one for one in table if _own(one)]:
                table.remove(hook)
                found.append(f"a hook in {name} was in place")
        for name, hook in self._hooks.items():
            if _own(getattr(sys, name)) or (name == "breakpointhook" and getattr(sys, name) is not hook):
                setattr(sys, name, hook)
                found.append(f"sys.{name} had been replaced")
        if builtins.__import__ is not self._import:
            builtins.__import__ = self._import
            found.append("builtins.__import__ had been replaced")
        if _own(warnings.showwarning):
            warnings.showwarning = self._warn
        return found

    def _profilers(self) -> list[str]:
        found = []
        if sys.getprofile() is not None:
            sys.setprofile(None)
            found.append("a profiler (sys.setprofile) was running")
        if _own(sys.gettrace()):
            sys.settrace(None)
            found.append("a tracer (sys.settrace) was running")
        for name in ("_profile_hook", "_trace_hook"):
            if _own(getattr(threading, name, None)):
                setattr(threading, name, None)
                found.append("a profiler of threads was in place")
        monitoring: Any = getattr(sys, "monitoring", None)
        for tool in range(6) if monitoring is not None else ():
            if monitoring.get_tool(tool) is not None:
                monitoring.set_events(tool, 0)
                found.append("a tool of sys.monitoring was in place")
        return found

    def _signals(self) -> list[str]:
        found = []
        if hasattr(signal, "setitimer"):
            for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
                if signal.getitimer(timer)[0]:
                    signal.setitimer(timer, 0)
                    found.append("a timer of signals was running")
        for number, handler in self._handlers.items():
            now = signal.getsignal(number)
            if now is not handler and _own(now):
                signal.signal(number, handler)
                found.append(f"signal {number} had a handler")
        return found


_HOOKS_OF_ALL = {
    "torch.nn.modules.module": (
        "_global_backward_pre_hooks",
        "_global_backward_hooks",
        "_global_forward_pre_hooks",
        "_global_forward_hooks",
        "_global_parameter_registration_hooks",
        "_global_module_registration_hooks",
        "_global_buffer_registration_hooks",
    ),
    "torch.optim.optimizer": ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"),
}


class Surroundings:
    """What torch and the machine are set to, as the lesson's own cells left them."""

    def __init__(self) -> None:
        self.keep()

    def keep(self) -> None:
        """Remember them as they are."""
        self._modes, self._kept = _modes(), settings()

    def restore(self, *, any_gpus: bool) -> list[str]:
        """Set torch back, and say what was changed.

        Parameters
        ----------
        any_gpus
            Whether the lesson's solutions choose GPUs, so that an answer may, too.
        """
        import torch

        found = []
        now, kept = settings(), self._kept
        torch.autograd.set_detect_anomaly(False)  # it takes time of what is measured: no fault, but off
        if now.dtype != kept.dtype:
            found.append(f"torch's default dtype was {now.dtype}")
            torch.set_default_dtype(kept.dtype)
        if now.device != kept.device:
            found.append(f"torch's default device was {now.device}")
            torch.set_default_device(kept.device if kept.device.type != "cpu" else None)
        for kind, enabled in kept.autocast.items():
            if now.autocast[kind] != enabled:
                found.append(f"autocast on {kind} was left {'off' if enabled else 'on'}")
                torch.set_autocast_enabled(kind, enabled)
        if now.gradients != kept.gradients:
            found.append(f"gradients were left {'on' if now.gradients else 'off'}")
            torch.set_grad_enabled(kept.gradients)
        while _modes()[0] > self._modes[0]:
            torch._C._pop_torch_function_stack()
            found.append("a mode of torch's functions was left on")
        while _modes()[1] > self._modes[1]:
            torch._C._pop_torch_dispatch_stack(None)
            found.append("a mode of torch's dispatcher was left on")
        while torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            torch._C._autograd._pop_saved_tensors_default_hooks()
            found.append("hooks on saved tensors were left on")
        for module, names in _HOOKS_OF_ALL.items():
            for table in [getattr(sys.modules.get(module), name, {}) for name in names]:
                for key in [key for key, hook in table.items() if _own(hook)]:
                    del table[key]
                    found.append("a hook on all modules or optimizers was in place")
        if now.precision != kept.precision:  # without a word: to try TF32 is honest
            if kept.precision[0]:
                torch.set_float32_matmul_precision(kept.precision[0])
            for (backend, op), value in zip(_PRECISIONS, kept.precision[1:], strict=True):
                torch._C._set_fp32_precision_setter(backend, op, value)
        for name in now.environment:  # without a word: to look at what NCCL says is honest
            os.environ.pop(name, None)
        os.environ.update(kept.environment)
        if now.gpus != kept.gpus and not any_gpus:
            found.append(f"the GPUs were {_name(now.gpus)} instead of {_name(kept.gpus)}")
        return found


def _modes() -> tuple[int, int]:
    import torch

    return torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()


class Settings(NamedTuple):
    """What the machine (see `gpus`) and torch are set to.

    Default dtype and device, gradients, autocast by device; modes, and hooks on all modules, optimizers and tensors;
    the precision of products and convolutions in float32; variables of the environment.
    """

    gpus: Any
    dtype: Any
    device: Any
    gradients: bool
    autocast: dict[str, bool]
    hooks: Any
    precision: tuple[str, ...]
    environment: dict[str, str]

    def changed(self) -> list[str]:
        """What is no longer so, for people."""
        now = settings()
        return [
            name
            for name, before, after in (
                ("the GPUs", self[:1], now[:1]),
                ("torch's settings", self[1:-1], now[1:-1]),
                ("variables of the environment", self[-1:], now[-1:]),
            )
            if before != after
        ]


_PRECISIONS = (("cuda", "matmul"), ("cuda", "conv"), ("cuda", "rnn"), ("mkldnn", "matmul"))
"""Backends and operations whose precision is set one by one, beside ``torch.set_float32_matmul_precision``."""
_CHANGE_TIMES = ("NCCL_", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""How the variables begin that change simulated times and memory. Each rank may set its own."""


def settings() -> Settings:
    """Those of this moment."""
    import torch

    autocast = {kind: torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda")}
    tables = [getattr(sys.modules.get(module), name, {}) for module, names in _HOOKS_OF_ALL.items() for name in names]
    hooks = _modes(), torch._C._autograd._top_saved_tensors_default_hooks(True), [list(table) for table in tables]
    grad, device = torch.is_grad_enabled(), torch.get_default_device()
    variables = {name: value for name, value in os.environ.items() if name.startswith(_CHANGE_TIMES)}
    precision = _of_matmul(), *(torch._C._get_fp32_precision_getter(*of) for of in _PRECISIONS)
    numeric = torch.get_default_dtype(), device, grad, autocast
    return Settings(gpus(), *numeric, hooks, precision, variables)


def _of_matmul() -> str:
    """What ``torch.get_float32_matmul_precision`` says; empty where it raises: others were set one by one."""
    import torch

    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return ""


def machine() -> Any:
    """The machine of this moment; None without one."""
    from fakegpu_lab import session

    return session.machine() if session.enabled() else None


def gpus() -> Any:
    """The machine's specification, its settings, its cards' profiles and its host; None without one."""
    now = machine()
    return None if now is None else (now.spec, now.compute, now.clock, [card.profile for card in now.cards], now.host)


def _name(gpus: Any) -> str:
    return "off" if gpus is None else f"{gpus[0].text} ({gpus[1]} values, {gpus[2]} clock)"
