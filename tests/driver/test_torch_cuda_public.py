"""Every public name of torch.cuda, torch.accelerator and torch.backends.cuda works, or says why not in a sentence."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import types
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.backends.cuda
import torch.cuda.comm

import fakegpu_lab as lab
from fakegpu_lab.driver.base.cuda_messages import TORCH_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ROOTS = [torch.cuda, torch.accelerator]
MODULES = ["torch.cuda", "torch.accelerator", "torch.backends.cuda"] + [
    found.name
    for root in ROOTS
    for found in pkgutil.walk_packages(root.__path__, f"{root.__name__}.")
    if not found.name.rpartition(".")[2].startswith("_")
]


def public() -> dict[str, Any]:
    """Every public name that is torch's own, without repetitions."""
    found: dict[str, Any] = {}
    seen = set()
    for name in MODULES:
        module = importlib.import_module(name)
        for key in getattr(module, "__all__", None) or [key for key in dir(module) if not key.startswith("_")]:
            value = getattr(module, key)
            if str(getattr(value, "__module__", "")).startswith("torch") and id(value) not in seen:
                seen.add(id(value))
                found[f"{name}.{key}".removeprefix("torch.")] = value
    return found


NAMES = sorted(public())


def device() -> torch.Tensor:
    return torch.ones(2, device="cuda")


def pair() -> list[torch.Tensor]:
    return [torch.ones(2, device=f"cuda:{i}") for i in range(2)]


SINCE_2_15: dict[str, Callable[[Any], Any]] = {
    "cuda.export_dot": lambda f: f("graph.dot"),
    "cuda.export_graph_data": lambda f: f("graph.json"),
    "cuda.graph_annotations.dump_kernel_py_stacks": lambda f: f,  # asks CUPTI
    "cuda.graph_annotations.mark_kernels": lambda f: f("here"),
    "cuda.graphs.register_graph_capture_end_hook": lambda f: f(id).remove(),
    "cuda.graphs.register_graph_capture_start_hook": lambda f: f(id).remove(),
    "cuda.graphs.register_graph_destroy_hook": lambda f: f(id).remove(),
    "cuda.graphs.register_graph_instantiate_hook": lambda f: f(id).remove(),
    "cuda.graphs.register_graph_replay_end_hook": lambda f: f(id).remove(),
    "cuda.graphs.register_graph_replay_start_hook": lambda f: f(id).remove(),
    "cuda.tunable.set_cublaslt_requested_algo_count": lambda f: f(8),
}

CALLS: dict[str, Callable[[Any], Any]] = SINCE_2_15 | {
    "accelerator.device_index": lambda f: f(1),
    "accelerator.set_device_idx": lambda f: f(1),
    "accelerator.set_device_index": lambda f: f(1),
    "accelerator.set_stream": lambda f: f(torch.cuda.Stream()),
    "backends.cuda.SDPAParams": lambda f: f,
    "backends.cuda.can_use_cudnn_attention": lambda f: f,  # attention's own tests
    "backends.cuda.can_use_efficient_attention": lambda f: f,
    "backends.cuda.can_use_flash_attention": lambda f: f,
    "backends.cuda.cuFFTPlanCache": lambda f: f(0).max_size,
    "backends.cuda.cuFFTPlanCacheAttrContextProp": lambda f: f(None, None),
    "backends.cuda.enable_cudnn_sdp": lambda f: f(True),
    "backends.cuda.enable_flash_sdp": lambda f: f(True),
    "backends.cuda.enable_math_sdp": lambda f: f(True),
    "backends.cuda.enable_mem_efficient_sdp": lambda f: f(True),
    "backends.cuda.allow_fp16_bf16_reduction_math_sdp": lambda f: f(False),
    "cuda.CUDAPluggableAllocator": lambda f: f,  # loads a library of one's own
    "cuda.CudaError": lambda f: f(2),
    "cuda.ExternalStream": lambda f: f(0x1000),
    "cuda.GreenContext": lambda f: f.create(num_sms=8, device_id=0),
    "cuda.StreamContext": lambda f: f(torch.cuda.Stream()),
    "cuda.amp.autocast_mode.custom_bwd": lambda f: f(lambda *args: None),
    "cuda.amp.custom_bwd": lambda f: f(lambda *args: None),
    "cuda.caching_allocator_alloc": lambda f: torch.cuda.caching_allocator_delete(f(1024)),
    "cuda.caching_allocator_delete": lambda f: f(torch.cuda.caching_allocator_alloc(1024)),
    "cuda.can_device_access_peer": lambda f: f(0, 1),
    "cuda.change_current_allocator": lambda f: f(types.SimpleNamespace(allocator=lambda: None)),
    "cuda.check_error": lambda f: f(0),
    "cuda.comm.broadcast": lambda f: f(device(), [0, 1]),
    "cuda.comm.broadcast_coalesced": lambda f: f([device()], [0, 1]),
    "cuda.comm.gather": lambda f: f(pair()),
    "cuda.comm.reduce_add": lambda f: f(pair()),
    "cuda.comm.reduce_add_coalesced": lambda f: f([[t] for t in pair()]),
    "cuda.comm.scatter": lambda f: f(device(), [0, 1]),
    "cuda.device": lambda f: f(1),
    "cuda.device_of": lambda f: f(device()),
    "cuda.profiler.init": lambda f: f,  # before torch 2.13, for CUDA 11
    "cuda.gds.GdsFile": lambda f: f("file", 66),
    "cuda.gds.gds_deregister_buffer": lambda f: f(device().untyped_storage()),
    "cuda.gds.gds_register_buffer": lambda f: f(device().untyped_storage()),
    "cuda.get_stream_from_external": lambda f: f(0x1000),
    "cuda.graph": lambda f: f(torch.cuda.CUDAGraph()),
    "cuda.make_graphed_callables": lambda f: f(torch.nn.Linear(2, 2).cuda(), (device(),)),
    "cuda.manual_seed": lambda f: f(3),
    "cuda.manual_seed_all": lambda f: f(3),
    "cuda.nccl.all_gather": lambda f: f(pair(), [torch.empty(4, device=i) for i in range(2)]),
    "cuda.nccl.all_reduce": lambda f: f(pair()),
    "cuda.nccl.broadcast": lambda f: f(pair()),
    "cuda.nccl.init_rank": lambda f: f(1, b"", 0),
    "cuda.nccl.is_available": lambda f: f(pair()),
    "cuda.nccl.reduce": lambda f: f(pair()),
    "cuda.nccl.reduce_scatter": lambda f: f(pair(), [torch.empty(1, device=i) for i in range(2)]),
    "cuda.nvtx.mark": lambda f: f("here"),
    "cuda.nvtx.range": lambda f: f("here").__enter__(),
    "cuda.nvtx.range_end": lambda f: f(torch.cuda.nvtx.range_start("here")),
    "cuda.nvtx.range_push": lambda f: f("here"),
    "cuda.nvtx.range_start": lambda f: f("here"),
    "cuda.set_device": lambda f: f(1),
    "cuda.set_per_process_memory_fraction": lambda f: f(0.5),
    "cuda.set_rng_state": lambda f: f(torch.cuda.get_rng_state()),
    "cuda.set_rng_state_all": lambda f: f(torch.cuda.get_rng_state_all()),
    "cuda.set_stream": lambda f: f(torch.cuda.Stream()),
    "cuda.set_sync_debug_mode": lambda f: f("warn"),
    "cuda.stream": lambda f: f(torch.cuda.Stream()),
    "cuda.tunable.mgpu_tune_gemm_in_file": lambda f: f("file", 1),
    "cuda.tunable.read_file": lambda f: f("file"),
    "cuda.tunable.set_filename": lambda f: f("file"),
    "cuda.tunable.set_max_tuning_duration": lambda f: f(1),
    "cuda.tunable.set_max_tuning_iterations": lambda f: f(1),
    "cuda.tunable.set_numerical_check_tolerances": lambda f: f(True),
    "cuda.tunable.set_rotating_buffer_size": lambda f: f(1),
    "cuda.tunable.tune_gemm_in_file": lambda f: f("file") if TORCH_VERSION >= (2, 13) else f,  # a bare `assert`
    "cuda.use_mem_pool": lambda f: f(torch.cuda.MemPool()),
}

CLEAR = re.compile(
    r"is not simulated\.|^PyTorch was not built with Green Context support|Green contexts?.*$"
    # torch's own sentences, also on a card: NVIDIA's Python bindings are a package of their own
    r"|^nvidia-ml-py does not seem to be installed|^pynvml does not seem to be installed"
    r"|^TunableOp is not enabled$|does not support this method|is not supported on this platform",
    re.DOTALL,
)


@pytest.fixture(autouse=True)
def _machine() -> Iterator[None]:
    lab.enable("a100:2", memory="4GiB")
    yield
    lab.disable()


def run(name: str) -> Any:
    module, _, key = name.rpartition(".")
    value = getattr(importlib.import_module(f"torch.{module}"), key)
    if name in CALLS:
        return CALLS[name](value)
    if not callable(value) or (inspect.isclass(value) and issubclass(value, Exception)):
        return value
    try:
        parameters = inspect.signature(value).parameters.values()
    except (ValueError, TypeError):
        return value()
    needed = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    assert not needed or inspect.isclass(value), f"{name} wants {needed}: give it a call above"
    return value() if not needed else value


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_works_or_says_why_not(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # GdsFile and tunable make files
    try:
        said, result = "", repr(run(name))
    except (RuntimeError, ModuleNotFoundError, AssertionError) as error:
        said, result = str(error), "refused"
    assert result != "refused" or CLEAR.search(said), f"{name}: {said}"
    assert "fakegpu" not in (said + result).replace("fakegpu_lab", "")


def test_the_calls_are_of_names_that_there_are() -> None:
    known = set(NAMES)
    assert {name for name in CALLS if name not in known} <= OF_OTHER_VERSIONS


OF_OTHER_VERSIONS = {
    "cuda.amp.autocast_mode.custom_bwd",
    "cuda.amp.custom_bwd",
    "cuda.nccl.init_rank",
    "cuda.nccl.is_available",
    "cuda.profiler.init",
    *SINCE_2_15,
}
