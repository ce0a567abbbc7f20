"""LSTM, GRU and RNN on a device compute, forward and backward, what they compute on the CPU."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import fakegpu_lab as lab


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_layers(kind: type[nn.RNNBase], bias: bool, bidirectional: bool) -> None:
    torch.manual_seed(0)
    host = kind(5, 7, num_layers=2, bias=bias, bidirectional=bidirectional, batch_first=True)
    device = copy.deepcopy(host).cuda()
    x = torch.randn(3, 4, 5)
    y = x.cuda().requires_grad_()
    x.requires_grad_()
    expected, actual = host(x), device(y)
    torch.testing.assert_close(actual[0].cpu(), expected[0])
    for out in (expected, actual):
        hidden = out[1] if isinstance(out[1], tuple) else (out[1],)
        (out[0].square().sum() + sum(h.sum() for h in hidden)).backward()
    torch.testing.assert_close(y.grad.cpu(), x.grad)
    for one, other in zip(host.parameters(), device.parameters(), strict=True):
        torch.testing.assert_close(other.grad.cpu(), one.grad)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_cells(kind: type[nn.RNNCellBase]) -> None:
    torch.manual_seed(0)
    host = kind(5, 7)
    device = copy.deepcopy(host).cuda()
    x = torch.randn(3, 5)
    expected, actual = host(x), device(x.cuda())
    torch.testing.assert_close([t.cpu() for t in actual], list(expected))


@pytest.mark.usefixtures("machine")
def test_packed_sequences() -> None:
    torch.manual_seed(0)
    host = nn.LSTM(5, 7)
    device = copy.deepcopy(host).cuda()
    x = torch.randn(6, 3, 5)
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([6, 4, 2]))
    moved = nn.utils.rnn.pack_padded_sequence(x.cuda(), torch.tensor([6, 4, 2]))
    torch.testing.assert_close(device(moved)[0].data.cpu(), host(packed)[0].data)


def on_both(module: nn.RNNBase, *shape: int) -> tuple[nn.RNNBase, torch.Tensor, torch.Tensor]:
    """The module on the device, and one input for each."""
    x = torch.randn(*shape)
    return copy.deepcopy(module).cuda(), x.clone().requires_grad_(), x.cuda().requires_grad_()


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (nn.LSTM, {"proj_size": 3, "bidirectional": True}),
        (nn.GRU, {"bias": False, "num_layers": 2}),
        (nn.RNN, {"nonlinearity": "relu"}),
    ],
)
@pytest.mark.parametrize("cudnn", [True, False])
def test_with_and_without_cudnn(kind: type[nn.RNNBase], options: dict[str, object], cudnn: bool) -> None:
    torch.manual_seed(0)
    host = kind(5, 7, **options)
    device, x, y = on_both(host, 4, 3, 5)
    torch._C._set_cudnn_enabled(cudnn)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="LSTM with projections")  # torch's, of its CPU layers
            expected, actual = host(x)[0], device(y)[0]
        assert ("CudnnRnnBackward0" in repr(actual)) is cudnn
        expected.square().sum().backward()
        actual.square().sum().backward()
    finally:
        torch._C._set_cudnn_enabled(True)
    torch.testing.assert_close(actual.cpu(), expected)
    torch.testing.assert_close(y.grad.cpu(), x.grad)
    for one, other in zip(host.parameters(), device.parameters(), strict=True):
        torch.testing.assert_close(other.grad.cpu(), one.grad)


@pytest.mark.usefixtures("machine")
def test_packed_sequences_train() -> None:
    torch.manual_seed(0)
    host = nn.GRU(5, 7, num_layers=2, bidirectional=True)
    device, x, y = on_both(host, 6, 3, 5)
    for model, source in ((host, x), (device, y)):
        packed = nn.utils.rnn.pack_padded_sequence(source, torch.tensor([6, 4, 2]))
        model(packed)[0].data.square().sum().backward()
    torch.testing.assert_close(y.grad.cpu(), x.grad)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_frozen_weights_pass_the_gradient_on(kind: type[nn.RNNBase]) -> None:
    host = kind(5, 7, num_layers=2).requires_grad_(False)
    device = copy.deepcopy(host).cuda()
    x = torch.randn(3, 4, 5)
    y = x.cuda().requires_grad_()
    x.requires_grad_()
    host(x)[0].square().sum().backward()
    device(y)[0].square().sum().backward()
    torch.testing.assert_close(y.grad.cpu(), x.grad)
    assert all(parameter.grad is None for parameter in device.parameters())


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("frozen", [True, False])
def test_no_gradient_at_all_reaches_a_layer(frozen: bool) -> None:
    class Stop(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> None:  # type: ignore[override]
            return None

    layer = nn.LSTM(5, 7).cuda().requires_grad_(not frozen)
    x = torch.randn(3, 4, 5, device="cuda", requires_grad=True)
    Stop.apply(layer(x)[0]).sum().backward()
    assert x.grad is None
    assert all(parameter.grad is None or not parameter.grad.any() for parameter in layer.parameters())


@pytest.mark.usefixtures("machine")
def test_the_batch_comes_first_within_cudnns_own_node() -> None:
    """`_cudnn_rnn` takes the argument: its output is a transposed view without a node (native/cudnn/RNN.cpp)."""
    layer = nn.LSTM(4, 8, batch_first=True).cuda()
    x = torch.randn(2, 5, 4, device="cuda", requires_grad=True)
    for autocast in (False, True):
        with torch.autocast("cuda", enabled=autocast):
            out, _ = layer(x)
        assert out.grad_fn.name() == "CudnnRnnBackward0"
        assert out.shape == (2, 5, 8)
        assert out.stride() == (8, 16, 1)
        out.sum().backward()
        assert x.grad is not None
        assert x.grad.shape == x.shape


@pytest.mark.usefixtures("machine")
def test_weights_are_one_buffer() -> None:
    """`flatten_parameters` makes views of one storage, matrices before biases; so are their gradients."""
    model = nn.LSTM(5, 8, num_layers=2).cuda()
    storages = {p.untyped_storage()._cdata for p in model.parameters()}
    assert len(storages) == 1
    assert next(model.parameters()).untyped_storage().nbytes() == 4 * sum(p.numel() for p in model.parameters())
    offsets = {name: p.storage_offset() for name, p in model.named_parameters()}
    assert offsets["weight_hh_l1"] < offsets["bias_ih_l0"] < offsets["bias_hh_l1"]
    model(torch.randn(3, 2, 5, device="cuda"))[0].sum().backward()
    assert len({p.grad.untyped_storage()._cdata for p in model.parameters()}) == 1
    torch.optim.SGD(model.parameters(), 0.1).step()
    assert len({p.untyped_storage()._cdata for p in model.parameters()}) == 1


@pytest.mark.usefixtures("machine")
def test_scattered_weights_are_told_of() -> None:
    model = nn.LSTM(5, 8).cuda()
    x = torch.randn(3, 2, 5, device="cuda")
    expected = model(x)[0]
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    with pytest.warns(UserWarning, match=r"^RNN module weights are not part of single contiguous chunk of memory\."):
        torch.testing.assert_close(model(x)[0], expected)
    model.flatten_parameters()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(x)


@pytest.mark.usefixtures("machine")
def test_backward_in_eval_mode() -> None:
    model = nn.LSTM(5, 8).cuda().eval()
    out = model(torch.randn(3, 2, 5, device="cuda"))[0]
    with pytest.raises(RuntimeError, match=r"^cudnn RNN backward can only be called in training mode$"):
        out.sum().backward()


@pytest.mark.usefixtures("machine")
def test_what_a_layer_keeps() -> None:
    """In training a reserve space, too: gates, cell and output of every step, by our estimate."""
    steps, batch, width = 32, 16, 64
    model, x = nn.LSTM(width, width).cuda(), torch.randn(steps, batch, width, device="cuda")
    held = []
    for training in (True, False):
        model.train(training)
        before = torch.cuda.memory_allocated()
        out, (h, c) = model(x)
        held.append(torch.cuda.memory_allocated() - before - out.nbytes - 2 * h.nbytes)
        del out, h, c
    zeros = 2 * batch * width * 4  # the first hidden state and cell
    assert held == [6 * steps * batch * width * 4 + zeros, zeros]


@pytest.mark.usefixtures("machine")
def test_dropout_between_layers() -> None:
    model, x = nn.LSTM(5, 8, num_layers=2, dropout=0.5).cuda(), torch.randn(3, 2, 5, device="cuda")
    torch.cuda.manual_seed(1)
    first = model(x)[0]
    assert not torch.equal(model(x)[0], first)
    torch.cuda.manual_seed(1)
    again = model(x)[0]
    assert torch.equal(again, first)
    host = torch.get_rng_state()
    one, other = (torch.autograd.grad(out.sum(), model.weight_ih_l0)[0] for out in (first, again))
    assert torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), host)


def test_planned_without_numbers() -> None:
    lab.enable("a100:1", compute="meta")
    try:
        model = nn.LSTM(16, 32, num_layers=2, batch_first=True).cuda()
        x = torch.randn(8, 10, 16, device="cuda", requires_grad=True)
        model(x)[0].sum().backward()
        assert x.grad.shape == x.shape
    finally:
        lab.disable()
