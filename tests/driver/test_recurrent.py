"""LSTM, GRU and RNN on a device compute, forward and backward, what they compute on the CPU."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn


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
