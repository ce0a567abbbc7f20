"""`torch.distributed.rpc` with device maps, between a worker and itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc

import fakegpu_lab as lab

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.usefixtures("gpus"),
    pytest.mark.skipif(not rpc.is_available(), reason="this torch has no RPC"),
    pytest.mark.filterwarnings("ignore"),
]


def begin(folder: Path, **maps: dict[int, int]) -> None:
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{folder}/store", num_worker_threads=4)
    for to, device_map in maps.items():
        options.set_device_map(to, device_map)
    rpc.init_rpc("me", rank=0, world_size=1, rpc_backend_options=options)


@pytest.fixture
def mapped(gpus: None, tmp_path: Path) -> Iterator[None]:
    begin(tmp_path, me={0: 1, 1: 0})
    yield
    rpc.shutdown()


def add_where_it_is(x: torch.Tensor, other: list[torch.Tensor]) -> tuple[str, torch.Tensor]:
    return str(x.device), x + other[0]


@pytest.mark.usefixtures("mapped")
def test_arguments_go_where_the_map_says_and_the_result_comes_back() -> None:
    x = torch.arange(3.0, device="cuda:0")
    there, total = rpc.rpc_sync("me", add_where_it_is, args=(x, [x]))
    assert (there, str(total.device), total.tolist()) == ("cuda:1", "cuda:0", [0, 2, 4])
    future = rpc.rpc_async("me", torch.add, args=(x.to("cuda:1"), 1))
    assert (str(future.wait().device), future.wait().tolist()) == ("cuda:1", [1, 2, 3])


@pytest.mark.usefixtures("mapped")
def test_a_remote_reference_keeps_its_tensor_on_the_workers_device() -> None:
    held = rpc.remote("me", torch.mul, args=(torch.ones(2, device="cuda:0"), 3))
    device = rpc.rpc_sync("me", device_of, args=(held,))
    assert (device, held.to_here().tolist()) == ("cuda:1", [3, 3])


def device_of(held: rpc.RRef) -> str:
    return str(held.local_value().device)


@pytest.mark.usefixtures("mapped")
def test_backward_over_rpc_is_refused_on_devices_and_works_on_the_cpu() -> None:
    x = torch.ones(2, device="cuda", requires_grad=True)
    assert rpc.rpc_sync("me", torch.mul, args=(x, 3)).tolist() == [3, 3]
    on_host = torch.ones(2, requires_grad=True)
    with dist_autograd.context() as context:
        with pytest.raises(lab.FakeGpuError, match="works only with tensors on the CPU"):
            rpc.rpc_sync("me", torch.mul, args=(x, 3))
        dist_autograd.backward(context, [rpc.rpc_sync("me", torch.mul, args=(on_host, 3)).sum()])
        assert dist_autograd.get_gradients(context)[on_host].tolist() == [3, 3]


def test_without_a_map_a_tensor_on_a_device_is_refused_in_torchs_words(tmp_path: Path) -> None:
    begin(tmp_path)
    try:
        for function in (add_where_it_is, torch.add):
            with pytest.raises(RuntimeError, match=r"call `set_device_map`.* me, but .* device: cuda:0"):
                rpc.rpc_sync("me", function, args=(torch.ones(2, device="cuda:0"), 1))
        assert rpc.rpc_sync("me", torch.add, args=(torch.ones(2), 1)).tolist() == [2, 2]
    finally:
        rpc.shutdown()


def test_a_map_with_an_impossible_device_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="invalid indices in its device map for me"):
        begin(tmp_path, me={0: 40})
