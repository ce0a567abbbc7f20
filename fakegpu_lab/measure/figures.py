"""What is measured on a card: every figure that a profile needs, and what they depend on. Start with `measure`.

Only public calls of torch and NVML are used, so the simulation is measured in the same way as a card.
"""

from __future__ import annotations

import datetime as dt
import platform
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import BaseModel, ConfigDict

from fakegpu_lab.formatting.units import amount, duration, size
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.measure.stopwatch import Stopwatch
from fakegpu_lab.real import nvml

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    Say = Callable[[str], object]

MIB = 2**20
DEVICE = "cuda:0"
STREAMED = 256 * MIB
"""Bytes of the tensor that the memory's bandwidth is measured with: several times any L2."""
COPIED = (64 * MIB, 256 * MIB)
"""The sizes of copies: their difference gives the rate, without what every copy costs."""
SMALL = 4
SIZES = (256, 1024, 2048, 4096, 8192, 16384)
LONG_ENOUGH = 0.02
"""Seconds of a product after which no larger one is tried."""
TOO_LONG = 0.15
"""The same, of the computer's time."""

PROPERTIES = (
    "L2_cache_size", "clock_rate", "major", "max_threads_per_multi_processor", "memory_bus_width", "memory_clock_rate",
    "minor", "multi_processor_count", "regs_per_multiprocessor", "shared_memory_per_block",
    "shared_memory_per_block_optin", "shared_memory_per_multiprocessor", "total_memory", "warp_size",
)  # fmt: skip


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Timed(_Model):
    """An amount (bytes, or the length of the sides of matrices) and the seconds that it took."""

    amount: int
    seconds: float


class Figures(_Model):
    """All figures of one card; what could not be measured is in `errors`.

    Attributes
    ----------
    properties
        Of ``torch.cuda.get_device_properties``: those of `PROPERTIES` that this torch has.
    nvml
        What NVML says about the card; empty without NVML.
    context
        Bytes that a CUDA context takes.
    products
        By number format, a product of square matrices.
    streaming, cached
        A kernel that reads and writes bytes in memory, and one whose bytes are in L2.
    shortest
        Seconds of a kernel that does almost nothing.
    calls
        Seconds that the host takes for a call, by op.
    copies
        By kind, copies of several sizes.
    first_uses
        Seconds that a first use took longer than the next one.
    """

    name: str
    date: str
    torch: str
    cuda: str
    system: str
    cpu: str
    properties: dict[str, int] = {}
    nvml: dict[str, Any] = {}
    context: int = 0
    products: dict[str, Timed] = {}
    streaming: Timed | None = None
    cached: Timed | None = None
    shortest: float = 0.0
    calls: dict[str, float] = {}
    copies: dict[str, list[Timed]] = {}
    first_uses: dict[str, float] = {}
    errors: dict[str, str] = {}


def check() -> None:
    """Raise a FakeGpuError if there is no card to measure."""
    if not torch.cuda.is_available():
        raise FakeGpuError(
            "torch sees no CUDA card here, so there is nothing to measure: run this on a machine where nvidia-smi "
            "shows one, or on a simulated card with `fakegpu-lab run -d a100 -m fakegpu_lab measure`."
        )


def measure(
    say: Say, parts: Collection[str] = ("first", "kernels", "copies"), sides: Mapping[str, int] | None = None
) -> Figures:
    """Measure the first card.

    Parameters
    ----------
    say
        Gets a line for each part that is done.
    parts
        What to measure: ``"first"`` uses and the context, ``"kernels"``, ``"copies"``.
    sides
        By number format, the sides of the matrices to multiply; by default, the largest that do not take too long.

    Raises
    ------
    FakeGpuError
        torch sees no card.
    """
    check()
    before = nvml.used_bytes(0)
    figures = _described()
    if "first" in parts:
        _first(figures, before)
        say(f"context {size(figures.context)}; first uses: {_listed(figures.first_uses, _time)}")
    with torch.no_grad():
        if "kernels" in parts:
            _kernels(figures, say, sides)
        if "copies" in parts:
            _copies(figures, say)
    return figures


def _described() -> Figures:
    properties = torch.cuda.get_device_properties(0)
    return Figures(
        name=torch.cuda.get_device_name(0),
        date=dt.datetime.now(dt.timezone.utc).date().isoformat(),
        torch=torch.__version__,
        cuda=torch.version.cuda or "",
        system=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        cpu=_cpu(),
        properties={name: int(getattr(properties, name)) for name in PROPERTIES if hasattr(properties, name)},
        nvml=nvml.facts(0),
    )


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _first(figures: Figures, before: int | None) -> None:
    """The context's memory, and what the first product and the first convolution take longer than the second."""
    torch.empty(1, device=DEVICE)
    after = nvml.used_bytes(0)
    if before is None or after is None:
        free, total = torch.cuda.mem_get_info(0)
        before, after = 0, total - free
    figures.context = max(0, after - before - torch.cuda.memory_reserved(0))
    small, image = torch.ones(16, 16, device=DEVICE), torch.ones(1, 1, 8, 8, device=DEVICE)
    libraries: dict[str, Callable[[], Any]] = {
        "cuBLAS": lambda: small @ small,
        "cuDNN": lambda: torch.nn.functional.conv2d(image, image),
    }
    for name, call in libraries.items():
        _attempt(figures, name, partial(_first_use, figures, name, call))


def _first_use(figures: Figures, name: str, call: Callable[[], Any]) -> None:
    watch = Stopwatch()
    figures.first_uses[name] = watch.once(call) - watch.once(call)


def _kernels(figures: Figures, say: Say, sides: Mapping[str, int] | None) -> None:
    streamed = torch.ones(STREAMED // 4, device=DEVICE)
    watch = Stopwatch(lambda: streamed.mul_(1.0))
    figures.streaming = Timed(amount=2 * STREAMED, seconds=watch.kernels(lambda: streamed.mul_(1.0), 5))
    say(f"memory: {_rate(figures.streaming)} read and written by a kernel that streams")
    fits = figures.properties.get("L2_cache_size", 0) // 8  # its bytes are read and written: a quarter of L2
    if fits:
        cached = streamed[: fits // 4]
        figures.cached = Timed(amount=2 * cached.nbytes, seconds=watch.kernels(lambda: cached.mul_(1.0), 20))
        say(f"L2: {_rate(figures.cached)}")
    one = torch.ones(1, device=DEVICE)
    figures.shortest = watch.kernels(lambda: one.add_(1), 20)
    figures.calls = _host_times(watch, one)
    say(f"host: {_listed(figures.calls, _time)}; the shortest kernel {_time(figures.shortest)}")
    for name, make in PRODUCTS.items():
        sizes = SIZES if sides is None else (sides[name],) if name in sides else ()
        _attempt(figures, name, partial(_product, figures, watch, name, make, sizes))
        if name in figures.products:
            found = figures.products[name]
            rate = 2 * found.amount**3 / found.seconds
            say(f"{name}: {amount(rate, 'FLOP/s')} in products of {found.amount:,}×{found.amount:,} matrices")


def _host_times(watch: Stopwatch, one: torch.Tensor) -> dict[str, float]:
    small = torch.ones(16, 16, device=DEVICE)
    return {
        "view": watch.calls(lambda: one.view(1, 1)),
        "add_": watch.calls(lambda: one.add_(1)),
        "add": watch.calls(lambda: one + 1),
        "mm": watch.calls(lambda: small @ small),
    }


def _square(dtype: torch.dtype) -> Callable[[int], Callable[[], Any]]:
    def make(n: int) -> Callable[[], Any]:
        matrix = torch.ones(n, n, device=DEVICE, dtype=dtype)
        return lambda: matrix @ matrix

    return make


def _int8(n: int) -> Callable[[], Any]:
    matrix = torch.ones(n, n, device=DEVICE, dtype=torch.int8)
    return lambda: torch._int_mm(matrix, matrix.t())  # the layout that tensor cores read


def _fp8(n: int) -> Callable[[], Any]:
    matrix = torch.ones(n, n, device=DEVICE).to(torch.float8_e4m3fn)
    scale = torch.ones((), device=DEVICE)
    return lambda: torch._scaled_mm(matrix, matrix.t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)


PRODUCTS: dict[str, Callable[[int], Callable[[], Any]]] = {
    "fp64": _square(torch.float64),
    "fp32": _square(torch.float32),
    "tf32": _square(torch.float32),
    "fp16": _square(torch.float16),
    "bf16": _square(torch.bfloat16),
    "fp8": _fp8,
    "int8": _int8,
}
"""By number format, what makes a product of n×n matrices: a function that launches it."""


def _product(
    figures: Figures, watch: Stopwatch, name: str, make: Callable[[int], Callable[[], Any]], sizes: Iterable[int]
) -> None:
    """The largest product that takes neither the card nor this computer too long, and fits in a part of the memory."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    try:
        for n in sizes:
            if 3 * 8 * n * n > figures.properties["total_memory"] // 2:
                break
            call = make(n)
            began = time.monotonic()
            call()
            torch.cuda.synchronize()
            took = time.monotonic() - began
            figures.products[name] = Timed(amount=n, seconds=watch.kernels(call, 3 if took < TOO_LONG else 1))
            if figures.products[name].seconds > LONG_ENOUGH or took > TOO_LONG:
                break
    finally:
        torch.set_float32_matmul_precision(before)


def _copies(figures: Figures, say: Say) -> None:
    watch = Stopwatch()
    for kind in ("h2d_pageable", "d2h_pageable", "h2d_pinned", "d2h_pinned"):
        up, pinned = kind.startswith("h2d"), kind.endswith("pinned")
        _attempt(figures, kind, partial(_copied, figures, watch, kind, up, pinned))
    if torch.cuda.device_count() > 1:
        _attempt(figures, "peer", partial(_between_devices, figures, watch))
    for kind, found in figures.copies.items():
        fixed = next((one.seconds for one in found if one.amount == SMALL), 0.0)
        say(f"{kind}: {amount(rate_of(found), 'B/s')}, and {_time(fixed)} for {SMALL} bytes")


def _copied(figures: Figures, watch: Stopwatch, kind: str, up: bool, pinned: bool) -> None:
    found = []
    for nbytes in (SMALL, *COPIED):
        host = torch.zeros(nbytes, dtype=torch.uint8, pin_memory=pinned)
        device = torch.empty(nbytes, dtype=torch.uint8, device=DEVICE)
        target, source = (device, host) if up else (host, device)
        copy = partial(target.copy_, source, non_blocking=pinned)
        seconds = watch.calls(copy, 50 if nbytes == SMALL else 3)
        found.append(Timed(amount=nbytes, seconds=seconds))
    figures.copies[kind] = found


def _between_devices(figures: Figures, watch: Stopwatch) -> None:
    found = []
    for nbytes in (SMALL, *COPIED):
        source = torch.zeros(nbytes, dtype=torch.uint8, device=DEVICE)
        target = torch.zeros(nbytes, dtype=torch.uint8, device="cuda:1")
        seconds = watch.calls(partial(target.copy_, source), 50 if nbytes == SMALL else 3)
        found.append(Timed(amount=nbytes, seconds=seconds))
    figures.copies["peer"] = found


def rate_of(copies: list[Timed]) -> float:
    """Bytes per second of the larger copies, without what every copy costs."""
    first, last = copies[-2:]
    return (last.amount - first.amount) / max(last.seconds - first.seconds, 1e-12)


def _attempt(figures: Figures, what: str, item: Callable[[], Any]) -> None:
    """Measure something; if this card or this torch cannot do it, the reason goes to `errors`."""
    try:
        item()
    except Exception as error:
        figures.errors[what] = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"[:300]


def _time(seconds: float) -> str:
    return duration(seconds * 1e9)


def _rate(found: Timed) -> str:
    return amount(found.amount / found.seconds, "B/s")


def _listed(found: dict[str, float], show: Callable[[float], str]) -> str:
    return ", ".join(f"{name} {show(value)}" for name, value in found.items())
