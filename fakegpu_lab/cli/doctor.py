"""``fakegpu-lab doctor``: checks that simulated GPUs work here, and says what to do if they do not."""

from __future__ import annotations

import os
import platform
import re
import time
from importlib import metadata
from typing import TYPE_CHECKING, Literal, NamedTuple

import fakegpu_lab
from fakegpu_lab.driver.environment import host_limits
from fakegpu_lab.formatting.units import several, size
from fakegpu_lab.processes.inheritance import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OLDEST_TORCH = (2, 10)
_INSTALL_TORCH = "pip install torch (on Linux with --index-url https://download.pytorch.org/whl/cpu: no CUDA packages)"
_REPORT = "report this, with all of this output"


NEEDED = 512 * 2**20
"""A notebook with torch holds 350 MiB before it has tensors of a size worth speaking of."""
_SPARE_MEMORY = 'stop other notebooks, use smaller sizes, or enable GPUs with compute="meta" (no values)'


class Finding(NamedTuple):
    """One line of the report.

    Attributes
    ----------
    grade
        ``"no"``: simulated GPUs will not work. ``"note"``: they will, with something to know about.
    text
        What was found.
    remedy
        What to do about it; may be empty.
    """

    grade: Literal["ok", "note", "no"]
    text: str
    remedy: str = ""


def examine() -> int:
    """Print the findings, one a line, and return the exit status: 1 if something does not work."""
    healthy = True
    for finding in _findings():
        print(f"{finding.grade:<6}{finding.text}")
        if finding.remedy:
            print(f"      -> {finding.remedy}")
        healthy = healthy and finding.grade != "no"
    print("Simulated GPUs work here." if healthy else "Simulated GPUs do not work here yet: see the lines marked 'no'.")
    return 0 if healthy else 1


def _findings() -> Iterator[Finding]:
    yield Finding(
        "ok", f"fakegpu-lab {fakegpu_lab.__version__}, Python {platform.python_version()}, {platform.platform()}"
    )
    yield from _memory()
    yield _processors()
    yield _catalogue()
    torch_found = _torch_version()
    yield torch_found
    yield _autoload()
    if torch_found.grade != "no":
        yield from _gpu()
    yield _package("ipykernel", "for notebooks", "pip install 'fakegpu-lab[notebook]'")
    yield _package("jupyterlab", "for make lab and fakegpu-lab lab", "pip install 'fakegpu-lab[lab]'")
    if platform.system() == "Linux":
        yield _triton()
    yield _package("numba", "for kernels written for numba.cuda", "pip install 'fakegpu-lab[numba]'")


def _memory() -> Iterator[Finding]:
    """A line for the computer, and one for the tightest limit of whatever this runs in."""
    known = host_limits.memory()
    tightest = {limit.whose: limit for limit in reversed(known)}
    for whose, verb in (("computer", "has"), ("container", "may use"), ("ulimit", "may use")):
        if whose in tightest:
            limit = tightest[whose]
            text = f"{limit.owner} {verb} {size(limit.total)} of memory; {size(limit.left)} are left"
            yield Finding("ok", text) if limit.left >= NEEDED else Finding("note", text, _SPARE_MEMORY)


def _processors() -> Finding:
    """Threads that a container may not run at once wait for each other: torch counts the computer's processors."""
    allowed, there = host_limits.processors(), os.cpu_count() or 1
    text = f"{allowed:g} of {several(there, 'processor')} may be used"
    if allowed < there and not os.environ.get("OMP_NUM_THREADS"):
        return Finding("note", text, f"set OMP_NUM_THREADS={max(1, int(allowed))}: one thread for each, not {there}")
    return Finding("ok", text)


def _catalogue() -> Finding:
    from fakegpu_lab.hardware.catalogue.lookup import catalogue

    return Finding("ok", f"{len(catalogue('gpus'))} GPUs and {len(catalogue('nodes'))} nodes in the catalog")


def _torch_version() -> Finding:
    # Read from the metadata: a broken or very old torch may not import.
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return Finding("no", "torch is not installed", _INSTALL_TORCH)
    release = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if release < OLDEST_TORCH:
        return Finding("no", f"torch {version} is too old: 2.10 is the oldest that works", _INSTALL_TORCH)
    return Finding("ok", f"torch {version}")


def _autoload() -> Finding:
    entries = [entry.name for entry in metadata.entry_points(group="torch.backends")]
    if "fakegpu_lab" not in entries:
        return Finding("no", "child processes will not see the GPUs: the package is not installed", "pip install -e .")
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        remedy = "unset TORCH_DEVICE_BACKEND_AUTOLOAD"
        return Finding("note", "child processes will not see the GPUs: TORCH_DEVICE_BACKEND_AUTOLOAD is 0", remedy)
    return Finding("ok", "child processes will see the GPUs of their parent")


def _package(name: str, purpose: str, remedy: str) -> Finding:
    try:
        return Finding("ok", f"{name} {metadata.version(name)}, {purpose}")
    except metadata.PackageNotFoundError:
        return Finding("note", f"{name} is not installed: it is needed {purpose}", remedy)


def _triton() -> Finding:
    from fakegpu_lab.driver.compile.triton_version import NEWER, OLDEST, too_old

    found = _package("triton", "for kernels written in Triton", "pip install 'fakegpu-lab[triton]'")
    if found.grade == "ok" and too_old(metadata.version("triton")):
        oldest = ".".join(map(str, OLDEST))
        return Finding("note", f"{found.text}, is too old: simulated GPUs need {oldest} or newer", NEWER)
    return found


def _gpu() -> Iterator[Finding]:
    os.environ.pop(VARIABLE, None)  # a parent process's machine would hide the real GPUs
    started = time.perf_counter()
    try:
        import torch
    except Exception as error:
        yield Finding("no", f"torch cannot be imported ({type(error).__name__}: {error})", _INSTALL_TORCH)
        return
    imported = time.perf_counter() - started
    build = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "for CPU"
    yield Finding("ok", f"torch is built {build}; importing it took {imported:.1f} s")
    if torch.cuda.is_available():
        name = torch.cuda.get_device_name(0)
        yield Finding("note", f"this computer has a real GPU ({name}): it is hidden while simulated ones are enabled")
    yield from _self_test()


def _self_test() -> Iterator[Finding]:
    """Enable a small machine, use it, and put torch back."""
    import torch

    before = torch.cuda.is_available(), torch.cuda.device_count()
    started = time.perf_counter()
    try:
        machine = fakegpu_lab.enable("a100:2", memory="1GiB")
        yield Finding("ok", f"enabling two simulated GPUs took {time.perf_counter() - started:.2f} s")
        yield _changes()
        for name, test in _TESTS.items():
            yield _run_test(name, test)
        yield _transfers_counted(machine.snapshot().devices[0].counters.h2d_count)
    except Exception as error:
        yield Finding("no", f"enabling failed: {type(error).__name__}: {error}", _REPORT)
    finally:
        fakegpu_lab.disable()
    if (torch.cuda.is_available(), torch.cuda.device_count()) == before:
        yield Finding("ok", "disabling restores torch")
    else:
        yield Finding("no", "disabling does not restore torch", _REPORT)


def _changes() -> Finding:
    """Whether the installed torch has every attribute that is changed: a new release may have renamed one."""
    import torch

    from fakegpu_lab.driver.base import changes

    if not changes.lacking:
        return Finding("ok", f"torch has all of the {len(changes.patches)} attributes that are changed")
    absent = ", ".join(f"{row.path} ({row.why})" for row in changes.lacking)
    return Finding("no", f"torch {torch.__version__} has no {absent}", _REPORT)


def _run_test(name: str, test: Callable[[], None]) -> Finding:
    try:
        test()
    except Exception as error:
        return Finding("no", f"{name}: {type(error).__name__}: {error}", _REPORT)
    return Finding("ok", name)


def _transfers_counted(transfers: int) -> Finding:
    if transfers:
        return Finding("ok", "transfers are counted")
    return Finding("no", "transfers are not counted", _REPORT)


def _matmul() -> None:
    import torch

    a = torch.arange(6.0).reshape(2, 3)
    product = (a.to("cuda:1") @ a.T.to("cuda:1")).cpu()
    if not torch.equal(product, a @ a.T):
        raise ArithmeticError(f"{product.tolist()} is not {(a @ a.T).tolist()}")


def _backward() -> None:
    import torch

    model = torch.nn.Linear(3, 1).to("cuda")
    model(torch.ones(2, 3).to("cuda")).sum().backward()
    gradient = model.weight.grad
    if gradient is None or not gradient.is_cuda or gradient.tolist() != [[2.0, 2.0, 2.0]]:
        raise ArithmeticError(f"the gradient is {gradient}")


def _out_of_memory() -> None:
    import torch

    try:
        torch.empty(2**31, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        return
    raise MemoryError("2 GiB were found on a GPU of 1 GiB")


_TESTS = {
    "a matrix product on cuda:1 equals the CPU's": _matmul,
    "a backward pass leaves gradients on cuda:0": _backward,
    "2 GiB on a GPU of 1 GiB runs out of memory": _out_of_memory,
}
