"""CUDA graphs of compiled functions: what stands for torch's tree of graphs (torch._inductor.cudagraph_trees).

A function runs once as it is, is captured the second time, and replayed from then on. Its outputs lie in the graph's
memory. What torch does about them holds here, too: while outputs of a forward pass wait for their backward pass, the
next call has a graph of its own; a later step overwrites what the program still holds, and using that is an error.

A function that changes an input in place that is no parameter or buffer, such as a count, runs without a graph.

Simplified: torch captures it if that input is the output of another graph. It shares memory between the graphs of a
path, and graphs of other paths reuse it; here each graph keeps its own. The first run's outputs stay valid.
"""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base import live_objects
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.graphs.capture import BorrowedMemory, borrowed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class _Output(BorrowedMemory):
    """The memory of one output of one replay: it lives as long as a tensor on it."""

    __slots__ = ("__weakref__",)


class _Overwritten:
    """In the place of the values of an output that a later step has overwritten."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(self._why)


class _Captured:
    """A function captured with its inputs, all but the fixed ones (parameters, for one) copied to the same place."""

    def __init__(self, function: Callable[..., Any], inputs: list[Any], fixed: frozenset[int], pool: Any) -> None:
        self.fixed = fixed
        self.inputs = [self._kept(place, one) for place, one in enumerate(inputs)]
        self.addresses = self._addresses(inputs)
        self.handed_out: dict[int, weakref.ref[_Output]] = {}
        self._copy(inputs)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool, capture_error_mode="thread_local"):
            self.outputs = function(list(self.inputs))

    def _kept(self, place: int, one: Any) -> Any:
        if not isinstance(one, torch.Tensor) or not one.is_cuda:
            return one
        if place in self.fixed:  # an output of another graph, perhaps: this one must not keep it alive
            return borrowed(one)  # type: ignore[arg-type]
        return torch.empty_strided(one.shape, one.stride(), dtype=one.dtype, device=one.device)

    def _addresses(self, inputs: list[Any]) -> list[int]:
        return [inputs[place].data_ptr() for place in self.fixed if isinstance(inputs[place], torch.Tensor)]

    def _copy(self, inputs: list[Any]) -> None:
        places = [
            i
            for i, kept in enumerate(self.inputs)
            if isinstance(kept, torch.Tensor) and kept is not inputs[i] and i not in self.fixed
        ]
        if places:
            torch._foreach_copy_([self.inputs[i] for i in places], [inputs[i] for i in places])

    def fits(self, inputs: list[Any]) -> bool:
        """Whether the fixed inputs are where they were, and nobody holds an output."""
        return self._addresses(inputs) == self.addresses and not self.held()

    def held(self) -> dict[int, _Output]:
        """The memory of the outputs of the last replay that the program still holds, by their places."""
        alive = {place: ref() for place, ref in self.handed_out.items()}
        return {place: memory for place, memory in alive.items() if memory is not None}

    def replay(self, inputs: list[Any]) -> Any:
        """Run it on other inputs; tensors that are nobody else's, on the same memory every time."""
        self._copy(inputs)
        given = {id(self.inputs[place]): inputs[place] for place in self.fixed}
        inputs.clear()
        self.graph.replay()
        self.handed_out = {}
        results = [given[id(one)] if id(one) in given else self._fresh(i, one) for i, one in enumerate(self.outputs)]
        return tuple(results) if isinstance(self.outputs, tuple) else results

    def _fresh(self, place: int, output: Any) -> Any:
        if output.__class__ is not FakeCudaTensor:
            return output
        fresh = borrowed(output, _Output)
        self.handed_out[place] = weakref.ref(fresh._buffer)  # type: ignore[arg-type]
        return fresh


class _Steps:
    """The steps of a program on one device: torch's `CUDAGraphTreeManager`."""

    def __init__(self) -> None:
        self.pool = torch.cuda.graph_pool_handle()
        self._generation = -1
        self._pending = False
        self._ran: list[tuple[_Captured, Sequence[str | None], bool]] = []

    def begin(self) -> None:
        """A forward pass is called: if that begins a new step, outputs of the last one are overwritten."""
        manager = _manager()
        generation = manager.get_curr_generation()
        if generation != self._generation and (manager.user_invoked_mark_step() or not self._pending):
            self._generation = generation
            for captured, traces, backward in self._ran:
                for place, memory in captured.held().items():
                    trace = traces[place] if place < len(traces) else None
                    _overwrite(memory, manager.format_dealloc_msg(trace, is_grad_output=backward))
                captured.handed_out = {}
            self._ran.clear()

    def ran(self, captured: _Captured | None, traces: Sequence[str | None], backward: bool, inference: bool) -> None:
        """A function has run."""
        if not inference:
            self._pending = not backward
        if captured is not None:
            self._ran.append((captured, traces, backward))


def _manager() -> Any:
    return torch._inductor.cudagraph_trees.CUDAGraphTreeManager


def _overwrite(buffer: _Output, why: str) -> None:
    """Let every use of the tensors on a memory fail."""
    for tensor in live_objects.live(live_objects.subclasses(FakeCudaTensor)):
        if tensor._buffer is buffer:
            tensor._inner = _Overwritten(why)


_steps: dict[int, _Steps] = {}


def cudagraphify_impl(
    model: Callable[..., Any], inputs: list[Any], static_input_idxs: Sequence[int], *args: Any, **kwargs: Any
) -> Callable[[list[Any]], Any]:
    """torch._inductor.cudagraph_trees.cudagraphify_impl: a function that runs `model` as a CUDA graph."""
    fixed, device = frozenset(static_input_idxs), int(kwargs["device_index"])
    traces: Sequence[str | None] = kwargs.get("stack_traces") or ()
    backward, inference = bool(kwargs.get("is_backward")), bool(kwargs.get("is_inference"))
    known: dict[tuple[int, ...], list[_Captured]] = {}
    refused = _changes_inputs(
        kwargs.get("mutated_input_idxs") or (), static_input_idxs, kwargs.get("placeholders") or ()
    )

    def run(new_inputs: list[Any]) -> Any:
        steps = _steps.get(device) or _steps.setdefault(device, _Steps())
        if not backward:
            steps.begin()
        sizes = tuple(one for one in new_inputs if isinstance(one, int))
        if refused or sizes not in known:
            known[sizes] = []
            steps.ran(None, traces, backward, inference)
            return model(new_inputs)
        captured = next((one for one in known[sizes] if one.fits(new_inputs)), None)
        if captured is None:
            captured = _Captured(model, new_inputs, fixed, steps.pool)
            known[sizes].append(captured)
        result = captured.replay(new_inputs)
        steps.ran(captured, traces, backward, inference)
        return result

    return run


def _changes_inputs(changed: Sequence[int], fixed: Sequence[int], placeholders: Sequence[Any]) -> bool:
    """Whether torch would not capture the function, because it changes inputs that are not fixed; torch logs it."""
    from torch._inductor import cudagraph_utils

    function: Any = SimpleNamespace(mutated_input_idxs=changed, static_input_idxs=fixed, placeholders=placeholders)
    why = cudagraph_utils.check_for_mutation(function, [None] * len(placeholders), lambda tensor: False)
    if why is not None:
        cudagraph_utils.log_cudagraph_skip_and_bump_counter(why)
    return why is not None


def forget() -> None:
    """Drop what belongs to the machine that is gone."""
    _steps.clear()
