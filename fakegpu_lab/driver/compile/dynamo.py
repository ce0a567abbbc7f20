"""TorchDynamo and AOTAutograd on device tensors, as soon as the program imports it; nothing here does.

Dynamo looks at the type of each value, at the file of each function that is called, and by a table at torch's own
functions. It has to take a device tensor for a plain tensor, the driver's files for torch's, and the functions that the
driver put into torch for those that they replace.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from functools import cache, partial
from importlib import import_module
from types import FunctionType, MethodDescriptorType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import _global_optimizer_pre_hooks

from fakegpu_lab.driver.base.patches import when_imported
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.dispatch import dispatch_rules, dispatcher
from fakegpu_lab.driver.environment import python_time
from fakegpu_lab.driver.random import generators
from fakegpu_lab.driver.recorder import running_modules
from fakegpu_lab.user_code import captured
from fakegpu_lab.user_code.environment import PACKAGE

if TYPE_CHECKING:
    from fakegpu_lab.driver.base.patches import Patches


def install(patches: Patches) -> None:
    """Prepare Dynamo's modules, those that are imported and those that will be."""
    patches.set(FakeCudaTensor, "__coerce_same_metadata_as_tangent__", _coerced)
    patches.later(_forget)
    when_imported("torch._dynamo", patches, lambda module: _prepare(patches))
    cache_of_graphs = "torch._functorch._aot_autograd.autograd_cache"
    when_imported(cache_of_graphs, patches, lambda module: _keep_graphs(patches, module))


def _prepare(patches: Patches) -> None:
    dynamo = "torch._dynamo"
    rules, functions = import_module(f"{dynamo}.trace_rules"), import_module(f"{dynamo}.variables.torch")
    _skip_the_driver(patches, rules)
    _treat_replacements_alike(patches, rules, functions)
    _ask_torch_cuda(patches, import_module(f"{dynamo}.device_interface"))
    _take_for_plain_tensors(patches, import_module(f"{dynamo}.variables.builder"))
    _make_streams_of_the_device(patches, import_module(f"{dynamo}.utils"))
    _leave_dispatch_alone()


def _take_for_plain_tensors(patches: Patches, module: Any) -> None:
    builder, infer = module.VariableBuilder, module.infer_subclass_type

    def infer_subclass_type(value: Any) -> Any:
        return None if type(value) is FakeCudaTensor else infer(value)

    patches.set_item(builder._type_dispatch(), FakeCudaTensor, builder.wrap_tensor)
    patches.set_item(builder._type_dispatch(), generators.CudaGenerator, builder.wrap_user_defined)  # a graph break
    patches.set(module, "infer_subclass_type", infer_subclass_type)


def _make_streams_of_the_device(patches: Patches, module: Any) -> None:
    """Streams and events that a captured program makes: torch's own functions take the classes of C++."""
    for name, cls in (("build_stream", "Stream"), ("build_event", "Event")):
        if hasattr(module, name):
            patches.set(module, name, partial(_made, cls))


def _made(cls: str, args: Any, kwargs: Any) -> Any:
    """An object of a class that torch has by then: Dynamo may be prepared before that class is."""
    return getattr(torch, cls)(*args, **kwargs)


def _coerced(self: torch.Tensor, metadata: Any, expected_type: Any = None) -> torch.Tensor:
    """A gradient as AOTAutograd's backward wants it; asked of every tensor subclass, and on CUDA this is none."""
    return self


def _forget() -> None:
    """Drop what was compiled for the machine that is gone."""
    eval_frame: Any = sys.modules.get("torch._dynamo.eval_frame")
    if eval_frame is not None and any(eval_frame.cached_backends.values()):  # None: code that it must not compile
        torch._dynamo.reset()


def _skip_the_driver(patches: Patches, rules: Any) -> None:
    """`SKIP_DIRS` are the files that Dynamo neither compiles nor inlines."""
    patches.later(rules._recompile_re)
    patches.append(rules.SKIP_DIRS, f"{PACKAGE.as_posix()}/")
    rules._recompile_re()


def _treat_replacements_alike(patches: Patches, rules: Any, functions: Any) -> None:
    """Tables have torch's functions themselves: what the driver put in the place of one is treated as that one is.

    A function that Dynamo would inline is inlined as torch wrote it (``_torchdynamo_inline``). The driver's hooks are
    left out of graphs, as if modules and optimizers had none.
    """
    for forget in (rules.clear_lru_cache, functions.get_overridable_functions.cache_clear):
        patches.later(forget)
        forget()
    original = rules.get_torch_obj_rule_map
    in_graph = functions.TorchInGraphFunctionVariable
    hooks = running_modules.enter, running_modules.leave, running_modules.remember_optimizer
    of_optimizers: dict[Any, Any] = _global_optimizer_pre_hooks

    @cache  # at the first compilation, when all patches are in place
    def get_torch_obj_rule_map() -> dict[Any, Any]:
        known = dict(original.__wrapped__())  # tests of torch change what it reads
        pairs = [pair for pair in patches.replaced if all(callable(one) and isinstance(one, Hashable) for one in pair)]
        tables = (functions.constant_fold_functions, functions.constant_fold_functions_need_guards)
        for table in (*tables, in_graph._get_handlers()):
            for before, now in pairs:
                if before in table and now not in table:
                    patches.set_item(table, now, table[before])
                elif now in table:
                    table.setdefault(before, table[now])  # as if it had been imported without us
        overridable = functions.get_overridable_functions()
        overridable.update([now for before, now in pairs if before in overridable])
        for before, now in pairs:
            if before in known:
                known.setdefault(now, known[before])
            elif isinstance(before, FunctionType) and isinstance(now, FunctionType) and now not in known:
                patches.set(now, "_torchdynamo_inline", before)
        for name, method in vars(torch.Tensor).items():  # in front of a method in C++, which is in graphs as it is
            ours = isinstance(method, FunctionType) and method.__code__.co_filename.startswith(PACKAGE.as_posix())
            if ours and isinstance(getattr(torch._C.TensorBase, name, None), MethodDescriptorType):
                known.setdefault(method, in_graph)
        for hook in (*hooks, of_optimizers[python_time.HOOK]):
            known[hook] = in_graph
            patches.set_item(in_graph._get_handlers(), hook, lambda *args: functions.ConstantVariable.create(None))
        for function in captured.PASSING:
            known[function] = in_graph
            patches.set_item(in_graph._get_handlers(), function, lambda self, tx, thing, *rest: thing)
        return known

    patches.set(rules, "get_torch_obj_rule_map", get_torch_obj_rule_map)


def _keep_graphs(patches: Patches, module: Any) -> None:
    """A graph that calls what the driver put in the place of a function is kept on disk if that function's would be."""
    check = module.check_node_safe
    originals = cache(lambda: _originals(patches))  # at the first compilation, when all patches are in place

    def check_node_safe(node: Any) -> None:
        before = originals().get(id(node.target)) if node.op == "call_function" else None
        check(node if before is None else SimpleNamespace(op=node.op, target=before, meta=node.meta))

    patches.set(module, "check_node_safe", check_node_safe)


def _originals(patches: Patches) -> dict[int, Any]:
    """By the `id` of what stands in its place, the function that torch has: through all replacements."""
    found: dict[int, Any] = {}
    for before, now in patches.replaced:
        found.setdefault(id(now), found.get(id(before), before))
    return found


_BOUND = ("current_device", "set_device", "device_count", "current_stream", "set_stream", "_set_stream_by_id",
          "synchronize", "get_device_properties", "exchange_device", "maybe_exchange_device", "memory_allocated",
          "is_bf16_supported", "get_raw_stream")  # fmt: skip
_NAMES = {"exchange_device": "_exchange_device", "maybe_exchange_device": "_maybe_exchange_device"}


def _ask_torch_cuda(patches: Patches, module: Any) -> None:
    """`CudaInterface` keeps the functions of torch.cuda that it found when it was imported."""
    interface = module.CudaInterface

    def of_now(owner: Any, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            return getattr(owner, name)(*args, **kwargs)

        return staticmethod(call)

    for name in _BOUND:
        if name == "get_raw_stream":
            patches.set(interface, name, of_now(torch._C, "_cuda_getCurrentRawStream"))
        elif name in vars(interface):
            patches.set(interface, name, of_now(torch.cuda, _NAMES.get(name, name)))
    properties = module.caching_worker_device_properties
    patches.later(properties.clear)
    properties.clear()


def _leave_dispatch_alone() -> None:
    """Run the dispatcher with all that it calls as it is: it would be looked at, frame by frame.

    Torch keeps this with the code object.
    """
    frames: Any = torch._C._dynamo.eval_frame
    skip = frames._FrameAction.SKIP
    for function in (dispatcher.run, dispatch_rules.rule):
        frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))
