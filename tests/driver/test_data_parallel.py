"""nn.DataParallel and torch.cuda.comm: values, errors, and what their timeline shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.cuda import comm, nccl

import fakegpu_lab as lab
from fakegpu_lab.driver.base.cuda_messages import TORCH_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fakegpu_lab.hardware.machine import Machine


@pytest.fixture
def four() -> Iterator[Machine]:
    lab.enable("a100:4")
    yield lab.machine()
    lab.disable()


class Net(nn.Module):
    """A net with a buffer that changes in training, and with two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Linear(16, 4))
        self.seen: list[str] = []

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> dict[str, torch.Tensor]:
        self.seen.append(str(x.device))
        y = self.body(x) * scale
        return {"y": y, "norm": y.norm()}


# ------------------------------------------------------------------------------------ values


@pytest.mark.filterwarnings("ignore:Was asked to gather along dimension 0", "ignore:Using -1 to represent CPU")
@pytest.mark.parametrize("where", ["cpu", "cuda:0", "cuda:2"])
def test_replicas_compute_what_their_chunks_give(four: Machine, where: str) -> None:
    torch.manual_seed(0)
    net = Net().cuda().eval()
    model = nn.DataParallel(net)
    x = torch.randn(10, 8, device=where, requires_grad=True)
    out = model(x, scale=2.0)
    assert net.seen == [f"cuda:{i}" for i in range(4)]
    assert [len(part) for part in x.chunk(4)] == [3, 3, 3, 1]
    assert out["y"].device == torch.device("cuda:0")
    assert out["norm"].shape == (4,)  # a scalar of each replica
    alone = net(x.to("cuda:0"), scale=2.0)["y"]
    torch.testing.assert_close(out["y"], alone)
    (expected,) = torch.autograd.grad(alone.square().sum(), x)
    weight = torch.autograd.grad(net(x.to("cuda:0"), scale=2.0)["y"].square().sum(), net.body[0].weight)[0]
    out["y"].square().sum().backward()
    assert x.grad is not None
    assert x.grad.device == x.device
    torch.testing.assert_close(x.grad, expected)
    torch.testing.assert_close(net.body[0].weight.grad, weight)


def test_training_is_that_of_one_device(four: Machine) -> None:
    losses = []
    for parallel in (False, True):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).cuda()
        model = nn.DataParallel(net, device_ids=[0, 1, 3]) if parallel else net
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
        x, y = torch.randn(32, 8), torch.randn(32, 1, device="cuda")
        for _ in range(5):
            optimizer.zero_grad()
            loss = (model(x if parallel else x.cuda()) - y).square().mean()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.filterwarnings("ignore:Was asked to gather along dimension 0")
def test_only_the_buffers_of_the_first_replica_are_kept(four: Machine) -> None:
    net = Net().cuda().train()
    x = torch.arange(64.0).reshape(8, 8)
    nn.DataParallel(net)(x)
    alone = Net().cuda().train()
    alone.load_state_dict(net.state_dict())
    alone.body[1].reset_running_stats()
    alone(x[:2].cuda())
    torch.testing.assert_close(net.body[1].running_mean, alone.body[1].running_mean)


@pytest.mark.filterwarnings("ignore:\\s*There is an imbalance between your GPUs")
def test_a_machine_with_more_devices_has_streams_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.nn.parallel._functions._streams", None)
    for spec in ("t4", "a100:1,t4:2", "a100:4"):
        lab.enable(spec)
        model = nn.DataParallel(nn.Linear(8, 2).cuda())
        assert model(torch.ones(8, 8)).shape == (8, 2)
        lab.disable()


def test_the_imbalance_of_unlike_cards_is_told() -> None:
    lab.enable("a100,t4")
    with pytest.warns(UserWarning, match="There is an imbalance between your GPUs"):
        nn.DataParallel(nn.Linear(8, 2).cuda())
    lab.disable()


def test_an_error_in_a_replica_names_it(four: Machine) -> None:
    class Careless(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) + torch.ones(8, device="cuda:0")

    with pytest.raises(RuntimeError, match=r"Caught RuntimeError in replica 1 on device 1"):
        nn.DataParallel(Careless().cuda())(torch.ones(8, 8))
    elsewhere = nn.DataParallel(nn.Linear(8, 8).to("cuda:1"))
    with pytest.raises(RuntimeError, match=r"on device cuda:0 \(device_ids\[0\]\) but found one of them on .* cuda:1"):
        elsewhere(torch.ones(8, 8))


def test_tensors_travel_in_every_way(four: Machine) -> None:
    x = torch.arange(24.0, device="cuda:1").reshape(4, 6)
    parts = comm.scatter(x, [1, 0, 2], chunk_sizes=[1, 2, 3], dim=-1)
    assert [(part.device.index, part.shape[1]) for part in parts] == [(1, 1), (0, 2), (2, 3)]
    assert parts[0].data_ptr() == x.data_ptr()  # where it is, it stays
    outputs = comm.scatter(x, [0, 1, 2], dim=1)
    assert torch.equal(comm.gather(outputs, dim=1, destination="cpu"), x.cpu())
    assert comm.gather(outputs, dim=1, destination=3).device.index == 3
    copies = comm.broadcast(x.t().contiguous().t(), [1, 0, 3])  # NCCL does not take it: it is not contiguous
    assert all(torch.equal(copy.cpu(), x.cpu()) for copy in copies)
    images = torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last)
    assert comm.gather(comm.scatter(images, [0, 1])).is_contiguous(memory_format=torch.channels_last)


def test_many_tensors_travel_in_few_buffers(four: Machine) -> None:
    dense = [torch.full((n,), float(n), device="cuda") for n in (3, 5, 7)]
    sparse = torch.sparse_coo_tensor([[1, 2]], [3.0, 4.0], (5,), device="cuda", check_invariants=True)
    half = torch.ones(2, device="cuda").half()
    with lab.record() as trace:
        lists = comm.broadcast_coalesced([dense[0], sparse, dense[1], half, dense[2]], [0, 1, 2], buffer_size=40)
    assert [[str(t.dtype) for t in each] for each in lists] == [[str(t.dtype) for t in lists[0]]] * 3
    for i, each in enumerate(lists):
        assert {t.get_device() for t in each} == {i}
        for got, want in zip(each, lists[0], strict=True):
            assert torch.equal(got.to_dense().cpu(), want.to_dense().cpu())
    sizes = [part.nbytes for part in trace.collectives if part.rank == 0]
    assert sorted(sizes) == [4, 8, 16, 28, 32]  # half; values, indices; 7 floats; 3 and 5 together: those reached 40
    summed = comm.reduce_add_coalesced([[t * 2 for t in each] for each in lists], destination=1)
    assert [t.get_device() for t in summed] == [1] * 5
    assert torch.equal(summed[2].cpu(), torch.full((5,), 30.0))
    assert torch.equal(summed[1].to_dense().cpu(), 6 * sparse.to_dense().cpu())


def test_complex_numbers(four: Machine) -> None:
    z = torch.tensor([1 + 2j, 3 - 1j], device="cuda")
    assert torch.equal(torch.view_as_complex(comm.broadcast(z, [0, 1])[1]).cpu(), z.cpu())
    model = nn.DataParallel(nn.Linear(2, 2, dtype=torch.complex64).cuda(), device_ids=[0, 1])
    if TORCH_VERSION >= (2, 13):  # 2.10 leaves the parameters of the replicas real
        assert model(torch.ones(4, 2, dtype=torch.complex64)).dtype == torch.complex64


# ------------------------------------------------------------------------------------ errors


CUDA_WORDS: list[tuple[str, Callable[[], Any]]] = [
    ("All tensors must be on devices[0]: 1", lambda: comm.broadcast_coalesced([ones(0)], [1, 0])),
    (
        "Expected devices and chunk_sizes to be of same length, but got len(devices) = 2 and len(chunk_sizes) = 1",
        lambda: comm.scatter(ones(0), [0, 1], [4]),
    ),
    ("Expected at least one device to scatter to", lambda: comm.scatter(ones(0), [])),
    ("Expected at least one tensor to gather from", lambda: comm.gather([])),
    (
        "Expected all input tensors to be CUDA tensors, but tensor at index 1 has device 'cpu'",
        lambda: comm.gather([ones(0), torch.ones(4, 3)]),
    ),
    (
        ("Expected all input tensors to have the same number of dimensions, but tensor at index 1has 1 dimensions, "
        "(expected 2)"),
        lambda: comm.gather([ones(0), ones(1)[0]]),
    ),
    (
        "Input tensor at index 1 has invalid shape [4, 2], but expected [4, 3]",
        lambda: comm.gather([ones(0), ones(1)[:, :2]]),
    ),
    (
        "Dimension out of range (expected to be in range of [-2, 1], but got 2)",
        lambda: comm.scatter(ones(0), [0], None, 2),
    ),
    ("input and output elements have to be cuda dense Tensors", lambda: nccl.broadcast([ones(0), torch.ones(4, 3)])),
    ("inputs must be on unique devices", lambda: nccl.broadcast([ones(0), ones(0)])),
    ("all inputs and outputs must be contiguous", lambda: nccl.broadcast([ones(0).t(), ones(1).t()])),
    ("all inputs must have the same number of elements", lambda: nccl.broadcast([ones(0), ones(1)[:2]])),
    ("all inputs and outputs must be of the same Tensor dtype", lambda: nccl.broadcast([ones(0), ones(1).half()])),
]  # fmt: skip


def ones(device: int) -> torch.Tensor:
    return torch.ones(4, 3, device=f"cuda:{device}")


@pytest.mark.parametrize(("words", "call"), CUDA_WORDS, ids=lambda value: value if isinstance(value, str) else "")
def test_mistakes_are_told_in_torchs_words(four: Machine, words: str, call: Callable[[], Any]) -> None:
    with pytest.raises((RuntimeError, IndexError)) as raised:
        call()
    assert str(raised.value) == words


def test_nccls_reductions(four: Machine) -> None:
    for op, expected in ((0, 6.0), (1, 6.0), (2, 3.0), (3, 1.0), (4, 2.0)):
        inputs = [torch.full((2,), i + 1.0, device=f"cuda:{i}") for i in range(3)]
        nccl.reduce(inputs, root=2, op=op)
        assert [t.tolist() for t in inputs] == [[1, 1], [2, 2], [expected, expected]]


# ------------------------------------------------------------------------------------ timeline


def step_of(parallel: bool) -> lab.Trace:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).cuda()
    model = nn.DataParallel(net) if parallel else net
    x = torch.randn(256, 512).pin_memory()

    def step() -> None:
        net.zero_grad()
        model(x if parallel else x.cuda()).square().mean().backward()
        torch.cuda.synchronize()

    step()
    with lab.record() as trace:
        step()
    return trace


def test_the_timeline_shows_what_a_step_costs_beside_the_computing(four: Machine) -> None:
    lab.enable("a100:4", host="launches-only")  # else the copies, which are short, end before the next one is launched
    trace = step_of(parallel=True)
    chunk = 64 * 512 * 4
    scattered = [copy for copy in trace.transfers if copy.kind == "h2d"]
    assert [(copy.target, copy.nbytes, copy.stream != 0) for copy in scattered] == [(i, chunk, True) for i in range(4)]
    assert scattered[1].start < scattered[0].end  # each device has a copy engine
    gathered = [copy for copy in trace.transfers if copy.kind == "p2p" and copy.target == 0]
    assert [(copy.source, copy.nbytes) for copy in gathered] == [(i, chunk) for i in (1, 2, 3)]
    spread = [copy for copy in trace.transfers if copy.kind == "p2p" and copy.source == 0]
    assert [copy.target for copy in spread] == [1, 2, 3]  # the gradient of what was gathered
    parameters = sum(
        p.nbytes for p in nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).parameters()
    )
    for operation in ("broadcast", "reduce"):
        parts = [part for part in trace.collectives if part.operation == operation]
        assert {part.device for part in parts} == {0, 1, 2, 3}
        assert sum(part.nbytes for part in parts if part.device == 0) == parameters
    forward = min(kernel.start for kernel in trace.kernels if kernel.name == "aten::linear")
    assert max(part.end for part in trace.collectives if part.operation == "broadcast") <= forward
    assert {kernel.thread for kernel in trace.kernels if kernel.name == "aten::linear"} == {
        f"replica {i}" for i in range(4)
    }
    first = [min(k.start for k in trace.kernels if k.device == i and k.name == "aten::linear") for i in range(4)]
    assert max(first) - min(first) < 20e-6  # side by side, though the threads run in turn
    assert all(part.rank == part.device for part in trace.collectives)


def test_replicas_hold_parameters_until_backward_is_done(four: Machine) -> None:
    net = nn.Linear(1024, 1024).cuda()
    held = net.weight.nbytes + net.bias.nbytes
    model = nn.DataParallel(net)
    model(torch.ones(4, 1024)).sum().backward()
    before = torch.cuda.memory_allocated(1)  # cuBLAS's workspace
    out = model(torch.ones(4, 1024))
    assert torch.cuda.memory_allocated(1) >= before + held  # linear keeps its weight for backward
    out.sum().backward()
    del out
    assert torch.cuda.memory_allocated(1) == before


def test_two_runs_are_alike() -> None:
    traces = []
    for _ in range(2):
        lab.enable("a100:4")
        trace = step_of(parallel=True)
        traces.append([(k.name, k.device, k.thread, k.start_ns, k.correlation) for k in trace.kernels])
        traces[-1] += [(c.name, c.device, c.thread, c.start_ns, c.number) for c in trace.collectives]
        lab.disable()
    assert traces[0] == traces[1]
