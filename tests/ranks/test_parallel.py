"""What torch builds on collectives, unmodified: each equals the run on one device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import fakegpu_lab as lab
from tests.ranks.conftest import on_ranks

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("gpus")

WIDTH, LAYERS = 64, 4


def layer() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*[layer() for _ in range(LAYERS)])


def optimizer(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3)


def batches() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(8, WIDTH, generator=generator) for _ in range(2)]


def train(net: nn.Module, optimizer: Any, *, sharded: bool) -> None:
    rank, world = (dist.get_rank(), dist.get_world_size()) if sharded else (0, 1)
    for x in batches():
        net(x[rank::world].cuda()).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.fixture
def alone() -> list[torch.Tensor]:
    """The parameters after training on one device."""
    net = model().cuda()
    train(net, optimizer(net.parameters()), sharded=False)
    return [parameter.detach().cpu() for parameter in net.parameters()]


def equal(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


def whole(net: nn.Module) -> list[torch.Tensor]:
    from torch.distributed.tensor import DTensor

    return [
        (parameter.full_tensor() if isinstance(parameter, DTensor) else parameter).detach().cpu()
        for parameter in net.parameters()
    ]


@pytest.mark.parametrize("reshard", [True, 2])
def test_fsdp2(alone: list[torch.Tensor], reshard: Any) -> None:
    from torch.distributed.fsdp import fully_shard

    def program() -> list[torch.Tensor]:
        net = model().cuda()
        for one in net:
            fully_shard(one, reshard_after_forward=reshard)
        fully_shard(net)
        train(net, optimizer(net.parameters()), sharded=True)
        return whole(net)

    for found in on_ranks(4, program):
        equal(found, alone)


def test_fsdp2_holds_a_quarter_on_each_of_four_ranks() -> None:
    """Parameters and optimizer together: at most 27% of what one device holds, as memory_allocated says."""
    from torch.distributed.fsdp import fully_shard

    def held(sharded: bool) -> int:
        torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda")  # cuBLAS takes its workspace
        before = torch.cuda.memory_allocated()
        net = model().cuda()
        if sharded:
            for one in net:
                fully_shard(one)
            fully_shard(net)
        one_optimizer = optimizer(net.parameters())
        train(net, one_optimizer, sharded=sharded)
        return torch.cuda.memory_allocated() - before

    single = held(False)
    parts = on_ranks(4, held, True)
    assert all(part <= 0.27 * single for part in parts), (single, parts)
    assert sum(parts) >= single


def test_a_sharded_parameter_s_gradient_counts_as_a_gradient() -> None:
    """Also in a snapshot of that moment, without a recording: the parameter is a DTensor, and so is its gradient."""
    from torch.distributed.fsdp import fully_shard

    def program() -> list[int]:
        net = model().cuda()
        for one in net:
            fully_shard(one)
        fully_shard(net)
        found = []
        for _ in range(2):
            net(torch.ones(8, WIDTH, device="cuda")).sum().backward()
            memory = lab.snapshot(categories=True).devices[dist.get_rank()].memory.categories
            assert memory is not None
            found += [memory.gradients, memory.parameters]
            net.zero_grad()
        memory = lab.snapshot(categories=True).devices[dist.get_rank()].memory.categories
        assert memory is not None
        return [*found, memory.gradients]

    for gradients, parameters, again, also, none in on_ranks(4, program):
        assert gradients == again > 0
        assert 0.9 * parameters < gradients <= parameters == also
        assert none == 0


def test_ranks_that_ended_hold_no_memory_in_reference_cycles() -> None:
    """FSDP's modules and states refer to each other; the process that a rank stands for would be gone."""
    from torch.distributed.fsdp import fully_shard

    def program() -> int:
        before = torch.cuda.memory_allocated()
        net = model().cuda()
        fully_shard(net)
        train(net, optimizer(net.parameters()), sharded=True)
        return before

    on_ranks(2, program)  # cuBLAS takes its workspace, which stays
    first = on_ranks(2, program)
    assert on_ranks(2, program) == first
    assert [device.memory.allocated for device in lab.snapshot().devices[:2]] == first


def test_fsdp2_with_mixed_precision_and_cpu_offload() -> None:
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

    def program() -> tuple[torch.dtype, str, list[torch.Tensor], list[torch.Tensor]]:
        seen: list[torch.dtype] = []
        net = model().cuda()
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for one in net:
            fully_shard(one, mp_policy=policy)
        fully_shard(net, mp_policy=policy)
        net[0].register_forward_hook(lambda module, args, output: seen.append(output.dtype))
        train(net, optimizer(net.parameters()), sharded=True)

        other = model()
        for one in other:
            fully_shard(one, offload_policy=CPUOffloadPolicy())
        fully_shard(other, offload_policy=CPUOffloadPolicy())
        where = next(other.parameters()).device.type
        train(other, optimizer(other.parameters()), sharded=True)
        plain = model().cuda()
        fully_shard(plain)
        train(plain, optimizer(plain.parameters()), sharded=True)
        # the host's optimizer and the card's round differently in the last digit
        return (
            seen[0],
            where,
            [p.to_local().cpu() for p in other.parameters()],
            [p.to_local().cpu() for p in plain.parameters()],
        )  # type: ignore[attr-defined]

    for dtype, where, offloaded, plain in on_ranks(2, program):
        assert dtype is torch.bfloat16
        assert where == "cpu"
        equal(offloaded, plain)


def test_fsdp1(alone: list[torch.Tensor]) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    def program() -> list[torch.Tensor]:
        net = FullyShardedDataParallel(model().cuda(), use_orig_params=True)
        train(net, optimizer(net.parameters()), sharded=True)
        with FullyShardedDataParallel.summon_full_params(net):
            return [parameter.detach().cpu().clone() for parameter in net.parameters()]

    for found in on_ranks(4, program):
        equal(found, alone)


def test_tensor_parallel(alone: list[torch.Tensor]) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    def program() -> list[torch.Tensor]:
        mesh = init_device_mesh("cuda", (4,))
        net = model().cuda()
        for one in net:
            parallelize_module(one, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        assert net[0][0].weight.to_local().shape == (WIDTH, WIDTH)  # type: ignore[index]
        train(net, optimizer(net.parameters()), sharded=False)
        return whole(net)

    for found in on_ranks(4, program):
        equal(found, alone)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_on_sharded_heads_takes_the_fused_kernel(causal: bool) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    heads = [torch.randn(2, 4, 128, 32, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]

    def gradients(query: Any, key: Any, value: Any) -> list[Any]:
        out = F.scaled_dot_product_attention(query, key, value, is_causal=causal)
        out.square().sum().backward()
        return [out.detach(), query.grad, key.grad, value.grad]

    def program() -> tuple[str, int, list[torch.Tensor]]:
        mesh = init_device_mesh("cuda", (2,))
        sharded = [distribute_tensor(one.cuda(), mesh, [Shard(1)]).requires_grad_() for one in heads]
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        out = F.scaled_dot_product_attention(*sharded, is_causal=causal)
        peak = torch.cuda.max_memory_allocated() - before
        return str(out.grad_fn), peak, [one.full_tensor().cpu() for one in gradients(*sharded)]

    expected = gradients(*(one.clone().requires_grad_() for one in heads))
    for node, peak, found in on_ranks(2, program):
        assert "ScaledDotProductEfficientAttention" in node
        assert peak < 2 * 2 * 128 * 128 * 4  # bytes of one shard's scores, which the math kernel keeps
        torch.testing.assert_close(found, expected)


def test_fsdp_and_tensor_parallel_on_a_mesh_of_two_dimensions(alone: list[torch.Tensor]) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    def program() -> list[torch.Tensor]:
        mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("dp", "tp"))
        net = model().cuda()
        for one in net:
            parallelize_module(one, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
            fully_shard(one, mesh=mesh["dp"])
        fully_shard(net, mesh=mesh["dp"])
        steps = optimizer(net.parameters())
        for x in batches():
            net(x[mesh["dp"].get_local_rank() :: 2].cuda()).pow(2).mean().backward()
            steps.step()
            steps.zero_grad()
        return whole(net)

    for found in on_ranks(4, program):
        equal(found, alone)


def test_pipeline_with_1f1b(alone: list[torch.Tensor]) -> None:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    def program() -> list[torch.Tensor]:
        rank, world = dist.get_rank(), dist.get_world_size()
        net = model()[rank].cuda()
        stage = PipelineStage(net, rank, world, torch.device("cuda", rank))
        schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=lambda output, _: output.pow(2).mean())
        steps = optimizer(net.parameters())
        for x in batches():
            if rank == 0:
                schedule.step(x.cuda())
            elif rank == world - 1:
                schedule.step(target=x.cuda())
            else:
                schedule.step()
            steps.step()
            steps.zero_grad()
        return [parameter.detach().cpu() for parameter in net.parameters()]

    equal([parameter for stage in on_ranks(LAYERS, program) for parameter in stage], alone)


def test_zero_redundancy_optimizer(alone: list[torch.Tensor]) -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    def program() -> tuple[list[torch.Tensor], int]:
        net = model().cuda()
        ddp = DistributedDataParallel(net)
        steps = ZeroRedundancyOptimizer(ddp.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-3)
        train(ddp, steps, sharded=True)
        return [parameter.detach().cpu() for parameter in net.parameters()], len(steps.optim.state)

    results = on_ranks(4, program)
    for found, _ in results:
        equal(found, alone)
    assert sum(states for _, states in results) == len(alone)  # each state is on one rank


def test_fsdp1s_full_state_on_the_host_while_gradients_exist() -> None:
    from torch.distributed.fsdp import (
        CPUOffload,
        FullStateDictConfig,
        FullyShardedDataParallel,
        StateDictType,
    )

    def program(*, offload: bool) -> tuple[dict[str, torch.Tensor], int]:
        net = FullyShardedDataParallel(
            model().cuda(), cpu_offload=CPUOffload(offload_params=offload), device_id=torch.cuda.current_device()
        )
        net(torch.ones(2, WIDTH, device="cuda")).sum().backward()
        config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        with FullyShardedDataParallel.state_dict_type(net, StateDictType.FULL_STATE_DICT, config):
            found = net.state_dict()
        return found, sum(parameter.grad is not None for parameter in net.parameters())

    expected = model().state_dict()
    for offload in (False, True):
        (states, gradients), (nothing, others) = on_ranks(2, lambda offload=offload: program(offload=offload))
        assert gradients == others > 0
        assert nothing == {}
        assert [value.device.type for value in states.values()] == ["cpu"] * len(expected)
        equal(list(states.values()), list(expected.values()))


def test_distributed_checkpoint_across_world_sizes(tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard

    def sharded() -> tuple[nn.Module, torch.optim.Optimizer]:
        net = model().cuda()
        fully_shard(net)
        return net, optimizer(net.parameters())

    def save() -> list[torch.Tensor]:
        net, steps = sharded()
        train(net, steps, sharded=True)
        states, optimizer_states = get_state_dict(net, steps)
        dcp.save({"net": states, "optimizer": optimizer_states}, checkpoint_id=tmp_path / "checkpoint")
        train(net, steps, sharded=True)
        return whole(net)

    def load() -> list[torch.Tensor]:
        net, steps = sharded()
        states, optimizer_states = get_state_dict(net, steps)
        found = {"net": states, "optimizer": optimizer_states}
        dcp.load(found, checkpoint_id=tmp_path / "checkpoint")
        set_state_dict(net, steps, model_state_dict=found["net"], optim_state_dict=found["optimizer"])
        train(net, steps, sharded=True)
        return whole(net)

    expected = on_ranks(4, save)[0]
    for found in on_ranks(2, load):
        equal(found, expected)
