"""Inductor for simulated cards, as soon as the program imports it; nothing here imports it.

Inductor asks torch.cuda what the card is, makes kernels in Triton's language, and calls them from a function in Python
that allocates and launches. Triton compiles the kernels for the simulated card (`kernels.triton_programs`); what the
function calls in C++, and a CPU build does not have, is here.

``mode="reduce-overhead"`` and the backend ``cudagraphs`` capture CUDA graphs of compiled functions (`cuda_graphs`).
"""

from __future__ import annotations

from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _triton
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.patches import when_imported
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.compile import cuda_graphs, progress, triton_version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fakegpu_lab.driver.base.patches import Patches


_said: set[str] = set()


def install(patches: Patches) -> None:
    """Prepare Inductor's modules, those that are imported and those that will be."""
    guards: Any = torch._C._dynamo.guards
    patches.set(guards, "_empty_strided_cuda", empty_strided)
    patches.set(guards, "_empty_strided_cpu_pinned", _empty_pinned)
    patches.set(guards, "_reinterpret_tensor", _reinterpreting(guards._reinterpret_tensor))
    _forget_answers(patches, _triton)
    actions = {
        "async_compile": _compile_here,
        "codecache": _forget_system,
        "compile_fx": _compile_or_say_why,
        "cudagraph_trees": _capture_plain_graphs,
        "fx_passes.joint_graph": _fold_constants,
        "fx_passes.pad_mm": _measure_padding,
        "runtime.triton_heuristics": _launch_with_triton,
    }
    for name, action in actions.items():
        when_imported(f"torch._inductor.{name}", patches, partial(action, patches))


def empty_strided(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Inductor's allocation, on the current device."""
    return torch.empty_strided(size, stride, dtype=dtype, device="cuda")


def _empty_pinned(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Its allocation on the host for a copy with ``non_blocking=True``."""
    return torch.empty_strided(size, stride, dtype=dtype, pin_memory=True)


def _reinterpreting(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`_reinterpret_tensor`: a tensor of another shape on the same storage."""

    def reinterpret_tensor(tensor: Any, size: Any, stride: Any, offset: int = 0) -> torch.Tensor:
        if tensor.__class__ is not FakeCudaTensor:
            return original(tensor, size, stride, offset)
        return torch.as_strided(tensor, size, stride, tensor.storage_offset() + offset)

    return reinterpret_tensor


def _forget_answers(patches: Patches, module: Any) -> None:
    """Ask again what a module keeps of the card (whether Triton supports it, for one), now and afterwards."""

    def forget() -> None:
        for value in list(vars(module).values()):
            if hasattr(value, "cache_clear") and getattr(value, "__module__", None) == module.__name__:
                value.cache_clear()

    patches.later(forget)
    forget()


def _compile_here(patches: Patches, module: Any) -> None:
    """Compile kernels in this process: others have no simulated driver."""
    patches.set(module.AsyncCompile, "use_process_pool", classmethod(lambda cls: False))
    patches.set(module.AsyncCompile, "warm_pool", classmethod(lambda cls: None))


def _forget_system(patches: Patches, module: Any) -> None:
    """The key of Inductor's cache on disk names the card."""
    forget = module.CacheBase.get_system.cache_clear
    patches.later(forget)
    forget()


def _measure_padding(patches: Patches, module: Any) -> None:
    """Measure products on device tensors, which need dispatch to Python; only the modes that trace are off.

    A product that was measured before is measured again: otherwise, its bias would still be a FakeTensor, from which
    torch makes a device tensor only without dispatch.
    """
    patches.set(module, "no_dispatch", _disable_current_modes)
    patches.set(module, "get_cached_base_mm_benchmark_time", lambda key: None)


class _OnTheHost(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Makes tensors in the host's memory that are to be on a device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        host = torch.device("cpu")
        args, kwargs = tree_map_only(torch.device, lambda device: host, (args, kwargs or {}))
        return func(*args, **kwargs)


def _fold_constants(patches: Patches, module: Any) -> None:
    """Compute a graph's constants (tensors of one element) on the host where device tensors have no values."""
    folder = module.UniformValueConstantFolder
    make, run, deduce = folder.__init__, folder.run, folder._deduce_value

    def on_the_host(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def call(*args: Any) -> Any:
            if not current.meta():
                return original(*args)
            with _OnTheHost():  # type: ignore[no-untyped-call]
                return original(*args)

        return call

    def deduce_value(self: Any, node: Any) -> Any:
        value = deduce(self, node)
        return self.unknown_value if current.meta() and value.__class__ is FakeCudaTensor else value

    patches.set(folder, "__init__", on_the_host(make))
    patches.set(folder, "run", on_the_host(run))
    patches.set(folder, "_deduce_value", deduce_value)


def _launch_with_triton(patches: Patches, module: Any) -> None:
    """Launch with what Triton calls the launcher: Inductor's own is C++ that a CPU build does not have."""
    result = getattr(module, "StaticTritonCompileResult", None)
    if result is not None:
        patches.set(result, "can_statically_launch", staticmethod(lambda *args, **kwargs: None))
    make = module.TritonCompileResult.make_launcher

    @wraps(make)
    def make_launcher(self: Any) -> Any:
        made = make(self)
        # It is called "<string>", as code that a program itself executes: a kernel's line would be there.
        made.__code__ = made.__code__.replace(co_filename=module.__file__)
        return made

    patches.set(module.TritonCompileResult, "make_launcher", make_launcher)
    tuner = module.CachingAutotuner
    save, restore = tuner.copy_args_to_cpu_if_needed, tuner.restore_args_from_cpu

    @wraps(save)
    def copy_args_to_cpu_if_needed(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not current.meta():
            return save(self, *args, **kwargs)
        named = {**dict(zip(self.fn.arg_names, args, strict=False)), **kwargs}
        return {name: (named[name], None) for name in self.mutated_arg_names if name in named}

    def restore_args_from_cpu(self: Any, cpu_copies: Any) -> None:
        if not current.meta():  # without values, kernels that are measured spoil none
            restore(self, cpu_copies)

    patches.set(tuner, "copy_args_to_cpu_if_needed", copy_args_to_cpu_if_needed)
    patches.set(tuner, "restore_args_from_cpu", restore_args_from_cpu)


def _compile_or_say_why(patches: Patches, module: Any) -> None:
    patches.set(module, "compile_fx", _compiling(module.compile_fx))


def _compiling(compile_fx: Callable[..., Any]) -> Callable[..., Any]:
    """`compile_fx`, Inductor's entrance, which runs a graph on a device op by op where there is no Triton."""

    @wraps(compile_fx)
    def compile_graph(model_: Any, example_inputs_: Any, *args: Any, **kwargs: Any) -> Any:
        why = triton_version.missing()
        if not _on_a_device(model_, example_inputs_):
            return compile_fx(model_, example_inputs_, *args, **kwargs)
        if why is None:
            with progress.compiling(sum(node.op.startswith("call") for node in model_.graph.nodes)):
                return compile_fx(model_, example_inputs_, *args, **kwargs)
        if why not in _said:
            _said.add(why)
            # To stdout: what is written to stderr looks like an error in a notebook.
            print(f"fakegpu_lab: torch.compile does not fuse kernels here, but runs op by op. {why}")
        return model_

    return compile_graph


def _on_a_device(model: Any, inputs: Any) -> bool:
    tensors = [*tree_leaves(inputs), *model.parameters(), *model.buffers()]
    tensors += [value for node in model.graph.nodes for value in tree_leaves(node.meta.get("example_value"))]
    return any(isinstance(value, torch.Tensor) and value.device.type == "cuda" for value in tensors)


def _capture_plain_graphs(patches: Patches, module: Any) -> None:
    """Replace the entrance of torch._inductor.cudagraph_trees."""
    patches.later(cuda_graphs.forget)
    patches.set(module, "cudagraphify_impl", cuda_graphs.cudagraphify_impl)
