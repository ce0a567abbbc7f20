"""Backward runs each node on the stream of its forward, and the streams wait for one another, as on CUDA.

The cases are those of torch's notes on CUDA, "Stream semantics of backward passes".
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fakegpu_lab as lab

pytestmark = pytest.mark.usefixtures("machine")

N = 512


class Scale(torch.autograd.Function):
    """Doubles, and notes the stream on which its backward runs."""

    seen: list[torch.cuda.Stream]

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        Scale.seen.append(torch.cuda.current_stream())
        return grad * 2


def forward_on(stream: torch.cuda.Stream, x: torch.Tensor) -> torch.Tensor:
    """Scale on a side stream, with the waits that a right program has."""
    Scale.seen = []
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        out: torch.Tensor = Scale.apply(x)
    torch.cuda.current_stream().wait_stream(stream)
    out.record_stream(torch.cuda.current_stream())
    return out


def matrix() -> torch.Tensor:
    return torch.randn(N, N, device="cuda", requires_grad=True)


def test_a_node_runs_on_its_forwards_stream() -> None:
    x, side, default = matrix(), torch.cuda.Stream(), torch.cuda.current_stream()
    hidden = x.exp()
    loss = forward_on(side, hidden).sum()
    with lab.record() as trace:
        loss.backward()
    assert Scale.seen == [side]
    assert torch.cuda.current_stream() == default
    assert [kernel.stream for kernel in trace.kernels] == [0, side.stream_id, 0]
    torch.testing.assert_close(x.grad, 2 * x.detach().exp())


def test_nodes_wait_for_the_gradients_that_they_take() -> None:
    a, side = matrix(), torch.cuda.Stream()
    product = a @ a
    loss = (forward_on(side, product) @ a).sum()
    with lab.record() as trace:
        loss.backward()
    assert not trace.races
    times = [(kernel.start, kernel.end) for kernel in trace.kernels]
    (scaled,) = [i for i, kernel in enumerate(trace.kernels) if kernel.stream == side.stream_id]
    assert times[scaled][0] >= times[scaled - 1][1]
    assert times[scaled + 1][0] >= times[scaled][1]


def test_the_caller_s_stream_waits_for_the_leaves() -> None:
    x, side = matrix(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        loss = (x @ x).sum()
    torch.cuda.current_stream().wait_stream(side)
    with lab.record() as trace:
        loss.backward()
        x.grad.add_(1)
    assert not trace.races
    *backward, added = trace.kernels
    assert added.stream == 0
    assert {kernel.stream for kernel in backward[1:]} == {side.stream_id}
    assert added.start >= max(kernel.end for kernel in backward)


def test_backward_on_another_stream_than_forward() -> None:
    """The caller's stream makes the first gradient; the graph is on the stream of its forward."""
    x, side = matrix(), torch.cuda.Stream()
    loss = (x @ x).sum()
    with torch.cuda.stream(side), lab.record() as trace:
        side.wait_stream(torch.cuda.default_stream())
        (grad,) = torch.autograd.grad(loss, x)
        grad.add_(1)
    first, *middle, last = trace.kernels
    assert (first.stream, last.stream) == (side.stream_id, side.stream_id)
    assert {kernel.stream for kernel in middle} == {0}
    assert middle[0].start >= first.end
    assert last.start >= max(kernel.end for kernel in middle)
    assert not trace.races


def test_gradients_are_added_on_the_stream_that_takes_them() -> None:
    x, side = matrix(), torch.cuda.Stream()
    hidden = x.exp()
    loss = forward_on(side, hidden).sum() + forward_on(side, hidden).sum()
    with lab.record() as trace:
        loss.backward()
    assert not trace.races
    assert [kernel.stream for kernel in trace.kernels if kernel.name.startswith("aten::add")] == [0]
    torch.testing.assert_close(x.grad, 4 * x.detach().exp())


@pytest.mark.parametrize("leaf", [True, False])
def test_hooks_of_tensors_see_the_stream_of_their_node(leaf: bool) -> None:
    x, side = matrix(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    seen = []
    with torch.cuda.stream(side):
        hidden = x.exp()
    torch.cuda.current_stream().wait_stream(side)
    (x if leaf else hidden).register_hook(lambda grad: seen.append(torch.cuda.current_stream()))
    hidden.sin().sum().backward()
    assert seen == [side]


def test_streams_are_the_caller_s_again_after_an_error() -> None:
    x, side = matrix(), torch.cuda.Stream()
    out = forward_on(side, x)

    def fail(grad: torch.Tensor) -> None:
        raise ValueError("stop")

    handle = x.register_hook(fail)
    loss = out.sum()
    with pytest.raises(ValueError, match="stop"):
        loss.backward(retain_graph=True)
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    handle.remove()
    loss.backward()
    assert Scale.seen == [side, side]


def test_gradients_are_stolen_and_memory_is_that_of_one_stream() -> None:
    def peak(stream: torch.cuda.Stream) -> int:
        x = matrix()
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        for _ in range(2):
            forward_on(stream, x.exp()).sum().backward()
            torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before

    assert peak(torch.cuda.Stream()) <= peak(torch.cuda.default_stream()) + N * N * 4


def test_checkpoints_run_again_on_the_stream_of_their_forward() -> None:
    from torch.utils.checkpoint import checkpoint

    x, side = matrix(), torch.cuda.Stream()
    Scale.seen = []
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        out = checkpoint(Scale.apply, x.exp(), use_reentrant=True)
    torch.cuda.current_stream().wait_stream(side)
    loss = out.sum()
    with lab.record() as trace:
        loss.backward()
    assert Scale.seen == [side]
    assert not trace.races
    assert {kernel.stream for kernel in trace.kernels[1:]} == {side.stream_id}


def test_several_cards() -> None:
    x, side = matrix(), torch.cuda.Stream(device=1)
    hidden = x.exp().to("cuda:1")
    side.wait_stream(torch.cuda.current_stream(1))
    with torch.cuda.stream(side):
        out = hidden.sin()
    torch.cuda.current_stream(1).wait_stream(side)
    with lab.record() as trace:
        (out.to("cuda:0") * x).sum().backward()
    assert not trace.races
    assert {kernel.stream for kernel in trace.kernels if kernel.device == 1} == {side.stream_id}
    assert {kernel.stream for kernel in trace.kernels if kernel.device == 0} == {0}
    expected = x.detach().cpu().requires_grad_()
    (expected.exp().sin() * expected).sum().backward()
    torch.testing.assert_close(x.grad.cpu(), expected.grad)
