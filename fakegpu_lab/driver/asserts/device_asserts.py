"""Device-side asserts: a kernel that meets an impossible index or label makes its device unusable.

On CUDA a kernel's launch returns before the kernel runs. One that fails an assert is reported by the next call that
waits for the device (`check`), which prints the kernel's own lines to stderr and raises; every later CUDA call fails
in the same way, until the process ends or the machine is reset. With CUDA_LAUNCH_BLOCKING=1, read when CUDA is
initialised, a launch waits itself.

The simulation is deterministic where CUDA is a race: until a call waits for the device, all calls succeed, and an
op that failed returns zeros where a card leaves whatever was there. A second device goes on: its context is another
one. The CPU's kernels refuse the same values with an exception, so the usual way costs nothing: `failed` looks at it.
"""

from __future__ import annotations

import os
import re
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.asserts import domain_edges
from fakegpu_lab.driver.asserts.failing_threads import KERNELS
from fakegpu_lab.driver.base import cuda_messages, graph_capture
from fakegpu_lab.driver.base.device_memory import new
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.cost import launching
from fakegpu_lab.driver.cost.op import Op
from fakegpu_lab.driver.placement.preflight import on_meta

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.asserts.failing_threads import Failure, Kernel, Named
    from fakegpu_lab.hardware.device import Device

    Plan = Callable[[tuple[Any, ...], dict[str, Any]], Any]

_CURE = (
    "The GPU cannot be used any more: on a real one, only a new process helps. Here %fakegpu reset, or "
    "fakegpu_lab.reset(), makes the simulated GPUs anew."
)

blocking = False
"""Whether CUDA_LAUNCH_BLOCKING=1 held when CUDA was initialised."""


def initialise() -> None:
    """Read the environment, as the CUDA driver does when it is initialised."""
    global blocking
    blocking = os.environ.get("CUDA_LAUNCH_BLOCKING") == "1"


def check(device: Device) -> None:
    """The host waits for `device` here: raises what its kernels did wrong."""
    if device.fault is not None:
        raise _reported(device)


def retired_error(device: Device) -> Exception:
    """The error for using a device that is retired: it failed an assert, or its machine is no more."""
    return RuntimeError(device.retired) if device.fault is None else _reported(device)


def _reported(device: Device) -> Exception:
    lines, device.fault = device.fault, ()
    if lines:
        print(*lines, sep="\n", file=sys.stderr, flush=True)
    error = cuda_messages.device_assert(blocking)
    device.retired = str(error)
    if hasattr(error, "add_note"):  # Python 3.11: shown below the message, and no part of it
        error.add_note(_CURE)
    return error


def fail(device: Device, failure: Failure) -> None:
    """Note that a kernel on `device` failed an assert; raises at once where launches are blocking."""
    if graph_capture.current_capture() is not None:
        return  # on CUDA it has not run yet
    if device.fault is None:
        lines = [site.text(block, thread) for site, block, thread in failure.first]
        if failure.total > len(lines):
            lines.append(f"... and {failure.total - len(lines):,} more threads")
        device.fault = tuple(lines)
    if blocking:
        raise _reported(device)


def failed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, error: Exception) -> Any:
    """What to do where CUDA does not raise the CPU's `error`: a call that gives the op's result; None if it does."""
    name = func._schema.name.partition("::")[2]
    if name in domain_edges.DIVISIONS and str(error) == "ZeroDivisionError":
        return partial(_host_free, domain_edges.divided, Op(func), args, kwargs or {})
    kernel = _asserting_kernel(name, error)
    if kernel is None:
        return None
    op = Op(func)
    values = {**dict(zip(op.arguments, args, strict=False)), **(kwargs or {})}
    device = _device(list(values.values()))
    if device is None or (op.written and args[0].__class__ is not FakeCudaTensor):
        return None
    inner = {name: _inner(value) for name, value in values.items()}
    if inner.get("accumulate") and "indices" in inner:
        return lambda: _raise(domain_edges.index_error(inner))

    def outcome() -> Any:
        launching.kernel(device)
        fail(device, kernel.failure(inner))
        return _garbage(op, values, inner, device)

    return partial(_host_free, outcome)


def _asserting_kernel(name: str, error: Exception) -> Kernel | None:
    """The CUDA kernel that fails an assert where the CPU raises `error` in the op `name`; None if it raises, too."""
    kernel = KERNELS.get(name)
    if kernel is None or not isinstance(error, (IndexError, RuntimeError)):
        return None
    return kernel if re.search(kernel.cpu_says, str(error)) else None


def _host_free(function: Callable[..., Any], *args: Any) -> Any:
    """Call `function`, whose tensors are not the user's: ``with torch.device(...)`` must not redirect them."""
    with torch._C.DisableTorchFunction():
        return function(*args)


def _raise(error: Exception) -> None:
    raise error


def _device(value: Any) -> Device | None:
    if isinstance(value, (list, tuple)):
        return next((device for item in value if (device := _device(item)) is not None), None)
    return value._device if value.__class__ is FakeCudaTensor else None


def _inner(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_inner(item) for item in value]
    return value._inner if value.__class__ is FakeCudaTensor else value


def _garbage(op: Op, values: Named, inner: Named, device: Device) -> Any:
    """Results of the right shapes after a failed kernel; raises for an op that would have to wait for them."""
    if not op.returns:
        return None
    if all(op.returns_write):
        written = [values[name] for name in op.returns if name is not None]
        return written[0] if op.single else tuple(written)
    options = {name: None if isinstance(value, torch._C.Generator) else value for name, value in inner.items()}
    results = on_meta(op, [], options)
    if results is None:
        raise _reported(device)
    wrapped = []
    for result in results:
        zeros = torch.empty_strided(result.shape, result.stride(), dtype=result.dtype, device="cpu").zero_()
        wrapped.append(new(zeros, device))
    return wrapped[0] if op.single else tuple(wrapped)


def guarded(op: Op, plan: Plan) -> Plan:
    """`plan`, that waits for its device where the op does on CUDA, or looks at indices where the CPU does not."""
    tags = op.func.tags
    if torch.Tag.dynamic_output_shape in tags or torch.Tag.data_dependent_output in tags or op.name in _WAITING:
        return _waiting(plan)
    if op.name in domain_edges.UNCHECKED:
        return domain_edges.checked(plan)
    return plan


_WAITING = frozenset(("_linalg_check_errors", "_is_all_true", "_is_any_true"))


def _waiting(plan: Plan) -> Plan:
    def waiting(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for value in args:
            if value.__class__ is FakeCudaTensor:
                check(value._device)
        return plan(args, kwargs)

    return waiting
