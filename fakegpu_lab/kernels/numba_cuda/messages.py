"""What is said when a launch fails: the words of numba or of the driver, with a sentence of ours below, or ours."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fakegpu_lab.formatting.units import size
from fakegpu_lab.hardware.errors import FakeGpuError, with_notes
from fakegpu_lab.user_code.frames import OWN, kind, place, steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakegpu_lab.kernels.numba_cuda.arrays import OutOfBounds
    from fakegpu_lab.kernels.numba_cuda.requests import Race
    from fakegpu_lab.kernels.numba_cuda.threads import StuckError, Thread


class BarrierError(FakeGpuError):
    """Threads of a kernel wait for others that never come."""


class EndlessLoopError(FakeGpuError):
    """A thread of a kernel does not end."""


def driver_error(code: int, call: str, name: str, *notes: str) -> Exception:
    """``CudaAPIError``, as numba raises it when a call of the driver fails."""
    from numba.cuda.cudadrv import driver

    error: Exception = driver.CudaAPIError(code, f"Call to {call} results in {name}")
    return with_notes(error, *notes)


def _invalid(note: str) -> Exception:
    """What cuLaunchKernel answers to a configuration that no card can run."""
    return driver_error(1, "cuLaunchKernel", "CUDA_ERROR_INVALID_VALUE", note)


def too_many_threads(block: Sequence[int]) -> Exception:
    """The error of a block that is too large."""
    x, y, z = block
    return _invalid(
        f"A block of {x} × {y} × {z} threads has {x * y * z:,}. A block can have 1,024 in all, and at most 1,024 along "
        "x and y and 64 along z: launch more blocks of fewer threads."
    )


def impossible_grid(grid: Sequence[int], block: Sequence[int]) -> Exception:
    """The error of a grid that is empty or too large."""
    return _invalid(
        f"A grid of {_extent(grid)} blocks of {_extent(block)} threads cannot be launched: every extent must be at "
        "least 1, and a grid can have 2,147,483,647 blocks along x and 65,535 along y and z."
    )


def _extent(extent: Sequence[int]) -> str:
    return " × ".join(f"{one:,}" for one in extent)


def too_much_dynamic(asked: int, most: int) -> Exception:
    """The error of a launch that asks for too much dynamic shared memory."""
    return _invalid(
        f"The launch needs {size(asked)} of shared memory for a block; a block can have {size(most)} on "
        "this card. Use smaller tiles."
    )


def too_much_static(name: str, asked: int, most: int) -> Exception:
    """The error of the linker for ``cuda.shared.array`` of a size that no block can have."""
    from numba.cuda.cudadrv import driver

    text = (
        "[218] Call to cuLinkAddData results in CUDA_ERROR_INVALID_PTX\n"
        f"ptxas error   : Entry function '{name}' uses too much shared data ({asked:#x} bytes, {most:#x} max)"
    )
    note = f"Its shared arrays have {size(asked)}; a block can have {size(most)}. Use smaller tiles."
    error: Exception = driver.LinkerError(text)
    return with_notes(error, note)


def out_of_bounds(error: OutOfBounds, grid: Sequence[int]) -> str:
    """Which thread of which block, which array, which index, and where."""
    from fakegpu_lab.kernels.numba_cuda.threads import block_index, here

    array, index = error.array, error.index
    shown = ", ".join(str(int(one)) for one in index) if isinstance(index, tuple) else str(int(index))
    sizes = " × ".join(str(size) for size in array.shape)
    why = f"Is a test such as `if i < {array.name}.size` missing, or its bound wrong?"
    if array.ndim > 1:
        beyond = zip(index if isinstance(index, tuple) else (index,), array.shape, strict=False)
        wrong = next((axis for axis, (one, size) in enumerate(beyond) if not -size <= int(one) < size), 0)
        name = ("row", "column")[wrong] if array.ndim == 2 else f"index {wrong}"
        why = f"Is a test such as `if {name} < {array.name}.shape[{wrong}]` missing, or are two indices swapped?"
    return (
        f"Thread {_place(here.thread.index)} of block {block_index} {error.action}s {array.name}[{shown}] at "
        f"{_at(error.line)}, but {array.name} has {sizes} elements. {why}"
    )


def host_tensor(name: str) -> str:
    """A tensor of the CPU among the arguments: numba-cuda passes its address on."""
    return (
        f"The argument {name} is a tensor on the CPU: the kernel got an address in the host's memory, which the card "
        f"cannot read. Use {name}.cuda()."
    )


def host_tensor_has_no_type(shape: tuple[int, ...]) -> str:
    """A tensor of the CPU among the arguments: numba, unlike numba-cuda, has no type for it."""
    return (
        f"An argument is a tensor of shape {shape} on the CPU. A kernel reads and writes tensors on the GPU: .cuda()."
    )


def other_device(name: str, there: int, here: int) -> str:
    """A tensor of another GPU among the arguments."""
    return (
        f"The argument {name} is on cuda:{there}, but the kernel was launched on cuda:{here}, which cannot read there. "
        f"Launch it within `with torch.cuda.device({there}):`, or copy the tensor."
    )


def raised(error: Exception) -> None:
    """Say below an exception of the kernel's own code which thread raised it, and what a card does instead."""
    from fakegpu_lab.kernels.numba_cuda.threads import block_index, here

    who = f"Thread {_place(here.thread.index)} of block {block_index}"
    if isinstance(error, ZeroDivisionError):
        with_notes(error, f"{who} divides an integer by 0. A card raises nothing: the result is undefined.")
    else:
        with_notes(
            error,
            f"{who} raised this. A card reports this only with @cuda.jit(debug=True, opt=False); otherwise "
            "the thread ends.",
        )


def not_compiled(error: Exception) -> None:
    """Say below an error of numba's compiler what it cannot do, where its own words do not."""
    said = str(error)
    array = re.search(r"(shared|local)\.array", said)
    if array and ("required argument" in said or "positional arguments" in said):
        with_notes(
            error,
            f"cuda.{array[0]}(shape, dtype) has two arguments. A shape of two dimensions is a tuple: (32, 32).",
        )
    elif array and "Invalid NumPy dtype" not in said:
        with_notes(
            error,
            "The size of an array that a kernel declares must be a number or a global constant. For shared memory of a "
            "size that only the launch knows: cuda.shared.array(0, dtype) and kernel[blocks, threads, stream, bytes].",
        )
    elif isinstance(error, AttributeError) and not said.startswith("module "):  # of a module, a name is misspelled
        with_notes(
            error,
            "numba's compiler failed. It supports neither exceptions (try) in kernels nor functions "
            "that call themselves.",
        )


def stuck(error: StuckError) -> BarrierError:
    """Which threads wait where, and what the others did."""
    request = error.waiting[0].waiting if error.waiting else None
    block = _place(error.block)
    if request is None:
        return BarrierError(
            f"Threads of block {block} try to take a lock forever: the thread that has it has ended, or waits for them."
        )
    others = error.others
    ended = [thread for thread in others if thread.ended]
    did = "has ended without it" if len(ended) == 1 else "have ended without it"
    if not ended:
        where = others[0].waiting
        does = "does not" if len(others) == 1 else "do not"
        did = f"{_verb(others)} in cuda.{where.name}() at {_at(where.line)}" if where else does
    advice = (
        "All threads of a block must reach the same barrier: take it out of the `if` or loop, let no thread return "
        "before it, and let threads without work skip the work, not the barrier."
        if request.mask is None
        else "All lanes of the mask must make the call: take it out of the `if`, or leave those lanes out of the mask."
    )
    return BarrierError(
        f"{_threads(error.waiting)} of block {block} {_verb(error.waiting)} in {error.name} at {_at(request.line)}; "
        f"{_threads(ended or others).lower()} {did}. A card hangs here, or continues with wrong values. {advice}"
    )


def line_of(error: Exception) -> tuple[str, int]:
    """The kernel's line on which an error was raised."""
    lines = [(step.tb_frame.f_code.co_filename, step.tb_lineno) for step in steps(error.__traceback__)]
    return next((one for one in reversed(lines) if kind(one[0]) & OWN), ("", 0))


def endless(line: tuple[str, int], thread: Thread, block: Sequence[int]) -> FakeGpuError:
    """Where a thread is that does not end."""
    return EndlessLoopError(
        f"Thread {thread.number} of block {_place(block)} never ends: it is at {_at(line)}. A card hangs "
        "here. Does the loop around this line end: does each round change what its condition asks?"
    )


def race(found: Race, grid: Sequence[int], block: Sequence[int]) -> str:
    """Which two threads access what, where, and what could order them."""
    memory = found.first.memory
    first = f"thread {_place(_index(found.first_thread, block))} of block {_place(_index(found.first_block, grid))}"
    second = f"thread {_place(_index(found.second_thread, block))}"
    if found.first_block != found.second_block:
        second += f" of block {_place(_index(found.second_block, grid))}"
        order = "Nothing orders two blocks of one launch: use cuda.atomic, or a second kernel."
    else:
        order = "No cuda.syncthreads() comes between them."
        if found.first.line == found.second.line:
            order += " Threads that all update one element need cuda.atomic."
    return (
        f"{first} {_VERBS[found.first.kind]} {memory.name}[{found.position}] in {memory.space} memory at "
        f"{_at(found.first.line)}, and {second} {_VERBS[found.second.kind]} it at {_at(found.second.line)}. {order} On "
        "a card the result depends on which comes first."
    )


_VERBS = {"load": "reads", "store": "writes", "atomic": "updates"}


def _index(number: int, extent: Sequence[int]) -> tuple[int, int, int]:
    x, y, _ = extent
    return number % x, number // x % y, number // (x * y)


def _place(index: Any) -> str:
    return f"({', '.join(str(one) for one in index)})"


def _threads(some: Sequence[Thread]) -> str:
    """``threads 16–31``, ``thread 5``, ``3 threads (the first is 5)``."""
    numbers = sorted(thread.number for thread in some)
    if len(numbers) == 1:
        return f"Thread {numbers[0]}"
    if numbers and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"Threads {numbers[0]}–{numbers[-1]}"
    return f"{len(numbers)} threads (the first is {numbers[0] if numbers else '?'})"


def _verb(some: Sequence[Thread]) -> str:
    return "waits" if len(some) == 1 else "wait"


def _at(line: tuple[str, int]) -> str:
    return place(f"{line[0]}:{line[1]}").label if line[0] else "an unknown line"
