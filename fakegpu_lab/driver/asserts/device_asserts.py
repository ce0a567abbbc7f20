"""Device-side asserts: a kernel that reads an out-of-range index or label makes its device unusable.

On CUDA, launching a kernel returns before the kernel runs. A failed assert is reported by the next call that waits for
the device (`check`), which prints the kernel's own lines to stderr and raises. Every later CUDA call fails in the same
way, until the process ends or the machine is reset. With CUDA_LAUNCH_BLOCKING=1, read when CUDA is initialised, the
launch itself waits.

The simulation is deterministic where CUDA has a race: all calls succeed until one waits for the device, and a failed op
returns zeros where a real GPU leaves whatever was in memory. Other devices still work: each has its own context. The
CPU's kernels raise an exception for the same values, so valid calls cost nothing: `failed` handles that exception.
"""

from __future__ import annotations

import os
import re
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.asserts import domain_edges
from fakegpu_lab.driver.base import cuda_messages, graph_capture, not_simulated
from fakegpu_lab.driver.base.device_memory import new
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.cost import launching
from fakegpu_lab.driver.cost.op import Op
from fakegpu_lab.driver.cost.op_row import row_of
from fakegpu_lab.driver.placement.memory_preflight import on_meta
from fakegpu_lab.hardware.errors import with_notes

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.asserts.failing_threads import Failure, Named
    from fakegpu_lab.driver.cost.op import Plan
    from fakegpu_lab.hardware.device import Device

_ADVICE = (
    "The GPU cannot be used anymore: on a real one, only a new process helps. Here %fakegpu reset, or "
    "fakegpu_lab.reset(), starts the simulated GPUs from scratch."
)

blocking = False
"""Whether CUDA_LAUNCH_BLOCKING was 1 when CUDA was initialised."""


def initialise() -> None:
    """Read the environment, as the CUDA driver does when it is initialised."""
    global blocking
    blocking = os.environ.get("CUDA_LAUNCH_BLOCKING") == "1"


def check(device: Device) -> None:
    """Call this where the host waits for `device`: raises if one of its kernels has failed an assert."""
    if device.fault is not None:
        raise _report(device)


def retired_error(device: Device) -> Exception:
    """The error for using a retired device: a kernel failed an assert, or its machine was disabled."""
    return RuntimeError(device.retired) if device.fault is None else _report(device)


class IllegalAccess(tuple[str, ...]):
    """The fault of a kernel that accessed memory outside its tensors: one sentence that says which, and where."""

    __slots__ = ()


def _report(device: Device) -> Exception:
    """Print the failed asserts, once, and retire the device; returns the error."""
    lines = device.fault
    if isinstance(lines, IllegalAccess):
        error, notes = cuda_messages.illegal_access(blocking), [*lines, _ADVICE]
        if not hasattr(error, "add_note"):
            error.args = ("\n".join((str(error), *lines)),)
    else:
        device.fault = ()
        if lines:
            print(*lines, sep="\n", file=sys.stderr, flush=True)
        error, notes = cuda_messages.device_assert(blocking), [_ADVICE]
    device.retired = str(error)
    return with_notes(error, *notes)


def illegal_access(device: Device, sentence: str) -> None:
    """Record that a kernel on `device` accessed memory that is not its own; raises at once if launches are blocking."""
    _note(device, IllegalAccess((sentence,)))


def assert_failed(device: Device, line: str) -> None:
    """Record that a kernel of a program's own has failed an assert; raises at once if launches are blocking."""
    _note(device, (line,))


def fail(device: Device, failure: Failure) -> None:
    """Record that a kernel on `device` failed an assert; raises at once if launches are blocking."""
    if graph_capture.current_capture() is not None:
        return  # a captured kernel does not run
    lines = [site.text(block, thread) for site, block, thread in failure.first]
    if failure.total > len(lines):
        lines.append(f"... and {failure.total - len(lines):,} more threads")
    _note(device, tuple(lines))


def _note(device: Device, fault: tuple[str, ...]) -> None:
    """Keep the first fault of a device; raises it at once if launches are blocking."""
    if device.fault is None:
        device.fault = fault
    if blocking:
        raise _report(device)


def failed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, error: Exception) -> Any:
    """A function that gives the op's result on CUDA, where the CPU raised `error`; None if CUDA raises, too."""
    if str(error) == "ZeroDivisionError":
        return not_simulated.refuse("integer divisions by zero")
    asserts = row_of(func._schema).asserts
    if (
        asserts is None
        or not isinstance(error, (IndexError, RuntimeError))
        or not re.search(asserts.cpu_says, str(error))
    ):
        return None
    op = Op(func)
    values = {**dict(zip(op.arguments, args, strict=False)), **(kwargs or {})}
    device = _device(list(values.values()))
    if device is None or (op.written and args[0].__class__ is not FakeCudaTensor):
        return None
    inner = {name: _inner(value) for name, value in values.items()}
    if "indices" in inner and "accumulate" in op.position and _sorts(inner):
        return lambda: _raise(domain_edges.index_error(inner))
    failure = _without_function_modes(asserts.failure, inner)
    if failure is None:
        return None

    def outcome() -> Any:
        launching.kernel(device)
        fail(device, failure)
        return _undefined_results(op, values, inner, device)

    return partial(_without_function_modes, outcome)


def _sorts(inner: Named) -> bool:
    """Whether `index_put_` sorts its indices, and so checks them on the host (`_index_put_impl_`)."""
    return bool(inner.get("accumulate")) or torch.are_deterministic_algorithms_enabled()


def _without_function_modes(function: Callable[..., Any], *args: Any) -> Any:
    """Call `function` outside torch function modes: ``with torch.device(...)`` must not redirect its tensors."""
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


def _undefined_results(op: Op, values: Named, inner: Named, device: Device) -> Any:
    """Zeros in the right shapes, for a kernel that failed; raises if the shapes depend on its result."""
    if not op.returns:
        return None
    if all(op.returns_write):
        written = [values[name] for name in op.returns if name is not None]
        return written[0] if op.single else tuple(written)
    options = {name: None if isinstance(value, torch._C.Generator) else value for name, value in inner.items()}
    results = on_meta(op, [], options)
    if results is None:
        raise _report(device)
    wrapped = []
    for result in results:
        zeros = torch.empty_strided(result.shape, result.stride(), dtype=result.dtype, device="cpu").zero_()
        wrapped.append(new(zeros, device))
    return wrapped[0] if op.single else tuple(wrapped)


def with_assert_checks(op: Op, plan: Plan) -> Plan:
    """`plan`, with `check` if the op waits for the device, or a check of indices that the CPU does not make."""
    tags = op.func.tags
    if torch.Tag.dynamic_output_shape in tags or torch.Tag.data_dependent_output in tags or op.row.reports_asserts:
        return _waiting(plan)
    if op.row.expanded_index:
        return domain_edges.with_index_check(plan)
    return plan


def _waiting(plan: Plan) -> Plan:
    def waiting(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for value in args:
            if value.__class__ is FakeCudaTensor:
                check(value._device)
        return plan(args, kwargs)

    return waiting
