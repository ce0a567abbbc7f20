"""Strided nested tensors on a device compute, differentiate and print as they do on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nested import as_nested_tensor, nested_tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention

import fakegpu_lab as lab

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.hardware.machine import Machine

pytestmark = [
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
    pytest.mark.filterwarnings("ignore:enable_nested_tensor is True"),
]


def rows(width: int = 4) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(length, width, generator=generator) for length in (2, 5, 3)]


def assert_same(there: torch.Tensor, host: torch.Tensor) -> None:
    assert there.is_cuda
    assert there.is_nested is host.is_nested
    pairs = zip(there.unbind(), host.unbind(), strict=True) if host.is_nested else [(there, host)]
    for one, other in pairs:
        torch.testing.assert_close(one.cpu(), other)


def test_made_and_moved(machine: Machine) -> None:
    data, host = rows(), nested_tensor(rows())
    for there in (
        nested_tensor(data, device="cuda:1"),
        nested_tensor([row.cuda(1) for row in data]),
        as_nested_tensor([row.cuda(1) for row in data]),
        as_nested_tensor(data, device="cuda:1"),
        host.cuda(1),
        host.to("cuda:1"),
        host.cuda(0).to("cuda:1"),
    ):
        assert there.device == torch.device("cuda:1")
        assert_same(there, host)
        assert there._nested_tensor_size().device.type == "cpu"
        assert (there.size(0), there.size(2), there.numel()) == (3, 4, 40)
        with pytest.raises(RuntimeError, match="dimension 1 is irregular and does not have a size"):
            there.size(1)
    assert_same(as_nested_tensor(torch.ones(2, 3, 4, device="cuda")), as_nested_tensor(torch.ones(2, 3, 4)))
    assert host.cuda().half().cpu().dtype is torch.float16
    for empty in (nested_tensor([], device="cuda"), nested_tensor([torch.zeros(0, 4)], device="cuda")):
        assert empty.is_nested
        assert empty.numel() == 0


def test_its_memory_is_on_the_device(machine: Machine) -> None:
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    there = nested_tensor([torch.zeros(100, 128), torch.zeros(28, 128)], device="cuda")
    view = there.transpose(1, 2)
    assert torch.cuda.memory_allocated() - before == 128 * 128 * 4
    del there
    assert torch.cuda.memory_allocated() - before == 128 * 128 * 4
    del view
    assert torch.cuda.memory_allocated() == before


OPS: dict[str, Callable[[torch.Tensor], Any]] = {
    "add": lambda n: n + n,
    "mul": lambda n: n * 2,
    "gelu": gelu,
    "softmax": lambda n: n.softmax(-1),
    "padded": lambda n: n.to_padded_tensor(0.5),
    "transposed": lambda n: n.transpose(1, 2).contiguous(),
    "matmul": lambda n: n @ n.transpose(1, 2),
    "reshape": lambda n: n.reshape(3, -1, 2, 2),
    "reshape of a view": lambda n: n.reshape(3, -1, 2, 2).transpose(1, 2).reshape(3, 2, -1, 2),
    "chunk": lambda n: n.chunk(2, -1)[1].contiguous(),
    "ones": torch.ones_like,
    "sum": lambda n: n.sum(-1, keepdim=True),
    "item": lambda n: n[1],
    "in place": lambda n: n.clone().mul_(3),
    "norm": lambda n: layer_norm(n, (4,), *torch.ones(2, 4, device=n.device)),
}


@pytest.mark.parametrize("name", OPS)
def test_computes_as_on_the_host(machine: Machine, name: str) -> None:
    host = nested_tensor(rows())
    assert_same(OPS[name](host.cuda()), OPS[name](host))


GRADIENTS: dict[str, Callable[[torch.Tensor, nn.Module], torch.Tensor]] = {
    "padded": lambda n, linear: linear(n).relu().to_padded_tensor(0.0).square().sum(),
    "one item": lambda n, linear: linear(n).unbind()[1].square().sum(),
    "split": lambda n, linear: n.split_with_sizes([1, 3], -1)[1].contiguous().to_padded_tensor(0.0).square().sum(),
    "reshape": lambda n, linear: linear(n).reshape(3, -1, 3, 2).to_padded_tensor(0.0).square().sum(),
    "matmul": lambda n, linear: (n @ n.transpose(1, 2)).to_padded_tensor(0.0).square().sum(),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_as_on_the_host(machine: Machine, name: str) -> None:
    host = nested_tensor(rows(), requires_grad=True)
    there = nested_tensor(rows(), device="cuda", requires_grad=True)
    linear = nn.Linear(4, 6)
    GRADIENTS[name](host, linear).backward()
    expected = None if linear.weight.grad is None else linear.weight.grad.clone()
    linear.weight.grad = None
    linear.cuda()
    GRADIENTS[name](there, linear).backward()
    assert_same(there.grad, host.grad)
    if expected is not None:
        torch.testing.assert_close(linear.weight.grad.cpu(), expected)


def test_gradients_reach_the_tensors_that_it_was_made_of(machine: Machine) -> None:
    data = [row.cuda().requires_grad_() for row in rows()]
    as_nested_tensor(data).mul(2).to_padded_tensor(0.0).sum().backward()
    for row in data:
        assert torch.equal(row.grad, torch.full_like(row, 2.0))


@pytest.mark.parametrize("backend", [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])
def test_attention(machine: Machine, backend: SDPBackend) -> None:
    dtype = torch.float16 if backend is SDPBackend.FLASH_ATTENTION else torch.float32
    trains = backend is not SDPBackend.EFFICIENT_ATTENTION
    there = nested_tensor(rows(32), device="cuda", dtype=dtype, requires_grad=trains)
    heads = there.reshape(3, -1, 2, 16).transpose(1, 2)
    if backend is SDPBackend.MATH:
        with (
            pytest.raises(RuntimeError, match="If inputs are nested tensors they must be contiguous"),
            sdpa_kernel(backend),
        ):
            scaled_dot_product_attention(heads, heads, heads)
        heads = heads.contiguous()
    with sdpa_kernel(backend), lab.record() as trace:
        out = scaled_dot_product_attention(heads, heads, heads)
    kernels = {kernel.name for kernel in trace.kernels}
    assert ("aten::_flash_attention_forward" in kernels) is (backend is SDPBackend.FLASH_ATTENTION)
    assert ("aten::_efficient_attention_forward" in kernels) is (backend is SDPBackend.EFFICIENT_ATTENTION)
    if trains:
        out.transpose(1, 2).contiguous().to_padded_tensor(0.0).float().square().sum().backward()
    for row, got, grad in zip(rows(32), out.unbind(), there.grad.unbind() if trains else rows(32), strict=True):
        x = row.requires_grad_()
        split = x.view(1, -1, 2, 16).transpose(1, 2)
        expected = scaled_dot_product_attention(split, split, split)
        expected.square().sum().backward()
        torch.testing.assert_close(got.cpu().float(), expected[0], rtol=2e-3, atol=2e-3)
        if trains:
            torch.testing.assert_close(grad.cpu().float(), x.grad, rtol=1e-2, atol=1e-2)


def test_flash_attention_returns_the_mask_of_its_dropout(machine: Machine) -> None:
    sequences = [row.view(-1, 2, 16).transpose(0, 1) for row in rows(32)]
    there = nested_tensor(sequences, device="cuda", dtype=torch.float16, requires_grad=True)
    out, *_, debug = torch.ops.aten._scaled_dot_product_flash_attention(
        there, there, there, dropout_p=0.5, return_debug_mask=True
    )
    out.backward(out.detach())
    assert debug.shape == (3, 2, 128, 128)
    assert not debug[0, :, 2:].any()
    for host, got, signed, grad in zip(sequences, out.unbind(), debug, there.grad.unbind(), strict=True):
        x = host.half().float().requires_grad_()
        length = x.shape[1]
        kept = (signed[:, :length, :length] > 0).cpu()
        assert 0 < kept.sum() < kept.numel()
        weights = torch.softmax(x @ x.transpose(1, 2) / 4, -1)
        expected = (weights * kept * 2) @ x
        expected.backward(got.detach().cpu().float())
        torch.testing.assert_close(got.cpu().float(), expected, rtol=2e-3, atol=2e-3)
        torch.testing.assert_close(grad.cpu().float(), x.grad, rtol=1e-2, atol=1e-2)
    with pytest.raises(RuntimeError, match=r"return_softmax is only supported when p_dropout > 0\.0"):
        torch.ops.aten._scaled_dot_product_flash_attention(there, there, there, return_debug_mask=True)


def test_attention_of_one_sequence_to_each_of_a_batch(machine: Machine) -> None:
    one = torch.randn(1, 2, 4, 16, device="cuda")
    keys = nested_tensor(rows(32), device="cuda").reshape(3, -1, 2, 16).transpose(1, 2)
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        out = scaled_dot_product_attention(one, keys, keys)
    for got, key in zip(out.unbind(), keys.unbind(), strict=True):
        expected = scaled_dot_product_attention(one.cpu(), key[None].cpu(), key[None].cpu())
        torch.testing.assert_close(got.cpu(), expected[0], rtol=2e-3, atol=2e-3)


@pytest.mark.filterwarnings("ignore:.*kernel not used because", "ignore:.*has been runtime disabled")
@pytest.mark.parametrize(
    ("backend", "width", "reason"),
    [
        (SDPBackend.EFFICIENT_ATTENTION, 16, "doesn't support training with NT inputs"),
        (SDPBackend.FLASH_ATTENTION, 12, "For NestedTensor inputs, Flash attention requires q,k,v"),
    ],
)
def test_why_no_kernel_takes_nested_tensors(machine: Machine, backend: SDPBackend, width: int, reason: str) -> None:
    there = nested_tensor(rows(2 * width), device="cuda", dtype=torch.float16, requires_grad=True)
    heads = there.reshape(3, -1, 2, width).transpose(1, 2)
    with (
        pytest.warns(UserWarning, match=reason),
        pytest.raises(RuntimeError, match="No available kernel"),
        sdpa_kernel(backend),
    ):
        scaled_dot_product_attention(heads, heads, heads)


def test_printed_as_torch_prints_it(machine: Machine) -> None:
    text = repr(nested_tensor([torch.ones(1, 2), torch.zeros(2, 2)], device="cuda"))
    assert text == (
        "nested_tensor([\n  tensor([[1., 1.]], device='cuda:0'),\n"
        "  tensor([[0., 0.],\n          [0., 0.]], device='cuda:0')\n], device='cuda:0')"
    )


def test_other_nested_tensors_take_torch_s_own_way(machine: Machine) -> None:
    for layout in (torch.strided, torch.jagged):
        host = nested_tensor(rows(), layout=layout, requires_grad=True)
        assert "UnbindBackwardAutogradNestedTensor0" in type(host.unbind()[0].grad_fn).__name__
        host.reshape(3, -1, 2, 2).unbind()[0].sum().backward()
        assert torch.equal(host.grad.unbind()[0], torch.ones(2, 4))


def encoder(heads: int = 4, **options: Any) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, heads, 64, batch_first=True, **options)
    return nn.TransformerEncoder(layer, 2).eval()


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("heads", [4, 16])
def test_an_encoder_in_eval_mode(machine: Machine, heads: int, norm_first: bool) -> None:
    model = encoder(heads, norm_first=norm_first)
    x, padding = torch.randn(2, 5, 32), torch.tensor([[False] * 3 + [True] * 2, [False] * 5])
    causal = nn.Transformer.generate_square_subsequent_mask(5)
    with torch.no_grad():
        expected = [model(x), model(x, src_key_padding_mask=padding), model(x, mask=causal)]
        model.cuda()
        x, padding, causal = x.cuda(), padding.cuda(), causal.cuda()
        found = [model(x), model(x, src_key_padding_mask=padding), model(x, mask=causal)]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other)
    if not norm_first:
        assert not found[1][0, 3:].any()  # the nested tensor has no such tokens


def test_an_encoder_in_eval_mode_launches_the_kernels_of_the_fast_path(machine: Machine) -> None:
    model = encoder().cuda()
    with torch.no_grad(), lab.record() as trace:
        model(torch.randn(2, 5, 32).cuda())
    names = [kernel.name.removeprefix("aten::") for kernel in trace.kernels]
    one = ["linear", "_scaled_dot_product_efficient_attention", "linear", "add_", "native_layer_norm"]
    assert names == [*one, "_addmm_activation", "addmm", "add_", "native_layer_norm"] * 2
