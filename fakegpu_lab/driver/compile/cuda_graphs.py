"""``mode="reduce-overhead"`` and the backend ``cudagraphs``: compiled functions as CUDA graphs.

Torch's own (torch/_inductor/cudagraph_trees.py) does this with C++ functions that put a private pool back into an
earlier state. Here, as there, a function runs once, is captured at its second call and replayed from then on, and all
graphs share a pool. Simplified: a result that a later call overwrites is not refused when it is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fakegpu_lab.driver.base.patches import Patches

_pools: dict[int, Any] = {}


class _Captured:
    """A function captured with its inputs, all but the fixed ones (parameters, for one) copied to the same place."""

    def __init__(self, function: Callable[..., Any], inputs: list[Any], fixed: frozenset[int], pool: Any) -> None:
        self.fixed = fixed
        self.inputs = [self._kept(place, one) for place, one in enumerate(inputs)]
        self.addresses = self._addresses(inputs)
        self._copy(inputs)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool, capture_error_mode="thread_local"):
            self.outputs = function(list(self.inputs))

    def _kept(self, place: int, one: Any) -> Any:
        if not isinstance(one, torch.Tensor) or place in self.fixed or not one.is_cuda:
            return one
        return torch.empty_strided(one.shape, one.stride(), dtype=one.dtype, device=one.device)

    def _addresses(self, inputs: list[Any]) -> list[int]:
        return [inputs[place].data_ptr() for place in self.fixed if isinstance(inputs[place], torch.Tensor)]

    def _copy(self, inputs: list[Any]) -> None:
        pairs = [(kept, one) for kept, one in zip(self.inputs, inputs, strict=True) if kept is not one]
        if pairs:
            torch._foreach_copy_([kept for kept, _ in pairs], [one for _, one in pairs])

    def fits(self, inputs: list[Any]) -> bool:
        """Whether the fixed inputs are where they were."""
        return self._addresses(inputs) == self.addresses

    def replay(self, inputs: list[Any]) -> Any:
        """Run it on other inputs."""
        self._copy(inputs)
        inputs.clear()
        self.graph.replay()
        return self.outputs


def cudagraphify_impl(
    model: Callable[..., Any], inputs: list[Any], static_input_idxs: Sequence[int], *args: Any, **kwargs: Any
) -> Callable[[list[Any]], Any]:
    """torch._inductor.cudagraph_trees.cudagraphify_impl: a function that runs `model` as a CUDA graph."""
    fixed, device = frozenset(static_input_idxs), int(kwargs["device_index"])
    known: dict[tuple[int, ...], _Captured | None] = {}

    def run(new_inputs: list[Any]) -> Any:
        sizes = tuple(one for one in new_inputs if isinstance(one, int))
        if sizes not in known:
            known[sizes] = None
            return model(new_inputs)
        captured = known[sizes]
        if captured is None or not captured.fits(new_inputs):
            if device not in _pools:
                _pools[device] = torch.cuda.graph_pool_handle()
            captured = known[sizes] = _Captured(model, new_inputs, fixed, _pools[device])
        return captured.replay(new_inputs)

    return run


def install(patches: Patches, module: Any) -> None:
    """Replace the entrance of torch._inductor.cudagraph_trees."""
    patches.later(_pools.clear)
    patches.set(module, "cudagraphify_impl", cudagraphify_impl)
