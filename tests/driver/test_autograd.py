"""Autograd over device tensors: what torch checks above us, and the formulas of the ops that we take whole."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn import functional as F

from fakegpu_lab.driver.base.cuda_messages import TORCH_VERSION

pytestmark = pytest.mark.usefixtures("machine")


complex_linear = pytest.mark.xfail(
    TORCH_VERSION < (2, 13),
    reason="2.10 has no complex gradient of `linear` as one op, as devices have it here; on CUDA it is several ops",
    raises=RuntimeError,
    strict=True,
)


def on_both(make: object) -> tuple[object, object]:
    return make("cpu"), make("cuda")  # type: ignore[operator]


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_an_optimizer_step_invalidates_the_graph(optimizer: type[torch.optim.Optimizer]) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)).cuda()
    step = optimizer(model.parameters(), lr=0.1)  # type: ignore[call-arg]
    loss = model(torch.ones(1, 2, device="cuda")).sum()
    loss.backward(retain_graph=True)
    step.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_each_write_counts_once() -> None:
    for write in (
        lambda x: x.add_(1),
        lambda x: x.index_put_((torch.tensor([0]),), torch.zeros((), device=x.device)),
        lambda x: torch._foreach_add_([x], 1),
        lambda x: torch.add(x, 1, out=x),
    ):
        host, device = torch.ones(3), torch.ones(3, device="cuda")
        write(host)
        write(device)
        assert device._version == host._version == 1


def test_unbind_copy_fills_no_tensors_that_require_gradients() -> None:
    x = torch.arange(6.0, device="cuda").reshape(2, 3)
    rows = tuple(torch.zeros(3, device="cuda", requires_grad=True) for _ in range(2))
    with pytest.raises(RuntimeError, match=r"^unbind_copy\(\): functions with out=... arguments don't support"):
        torch.unbind_copy(x, out=rows)
    assert [row.tolist() for row in rows] == [[0, 0, 0], [0, 0, 0]]
    with torch.no_grad():
        torch.unbind_copy(x, out=rows)
    assert [row.tolist() for row in rows] == x.tolist()


@pytest.mark.parametrize(
    ("source", "weight", "dtype"),
    [
        ((4, 3), (2, 3), torch.float64),
        ((2, 4, 3), (2, 3), torch.float64),
        ((3,), (2, 3), torch.float64),
        ((4, 3), (3,), torch.float64),
        pytest.param((4, 3), (2, 3), torch.complex128, marks=complex_linear),
        ((4, 0), (2, 0), torch.float64),
        ((0, 3), (2, 3), torch.float64),
    ],
)
def test_linear_has_the_gradients_of_its_parts(
    source: tuple[int, ...], weight: tuple[int, ...], dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    x, w = torch.randn(source, dtype=dtype), torch.randn(weight, dtype=dtype)
    grads = []
    for device in ("cpu", "cuda"):
        a, b = (t.clone().to(device).requires_grad_() for t in (x, w))
        out = F.linear(a, b)
        (out * torch.arange(1, out.numel() + 1, device=device).view(out.shape)).abs().sum().backward()
        grads.append((a.grad.cpu(), b.grad.cpu()))
    torch.testing.assert_close(grads[1], grads[0])


def test_linear_differentiates_twice_and_forward() -> None:
    x = torch.randn(4, 3, dtype=torch.float64, device="cuda", requires_grad=True)
    w = torch.randn(2, 3, dtype=torch.float64, device="cuda", requires_grad=True)
    b = torch.randn(2, dtype=torch.float64, device="cuda", requires_grad=True)
    assert torch.autograd.gradcheck(F.linear, (x, w, b), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(F.linear, (x, w, b))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.detach(), torch.ones_like(x))
        tangent = forward_ad.unpack_dual(F.linear(dual, w.detach())).tangent
    torch.testing.assert_close(tangent, F.linear(torch.ones_like(x), w.detach()))
    assert type(F.linear(x, w).grad_fn).__name__ == "LinearBackward0"  # the short way is back


def test_grad_fns_print_as_on_cuda() -> None:
    x, layer = torch.ones(2, 3, device="cuda"), nn.Linear(3, 4, device="cuda")
    assert "grad_fn=<AddmmBackward0>" in repr(layer(x))
    assert "grad_fn=<ViewBackward0>" in repr(layer(x.view(1, 2, 3)))
    assert "grad_fn=<MmBackward0>" in repr(F.linear(x, layer.weight))


def test_batched_gradients() -> None:
    x = torch.randn(3, device="cuda", requires_grad=True)
    y = x * 2
    (grads,) = torch.autograd.grad(y, x, torch.eye(3, device="cuda"), is_grads_batched=True)
    assert grads.tolist() == (torch.eye(3) * 2).tolist()
    jacobian = torch.autograd.functional.jacobian(lambda t: t.square(), x.detach(), vectorize=True)
    torch.testing.assert_close(jacobian, torch.diag(2 * x.detach()))


def test_attention_with_a_trained_mask() -> None:
    q = torch.randn(1, 1, 4, 8, device="cuda")
    mask = torch.zeros(4, 4, device="cuda", requires_grad=True)
    F.scaled_dot_product_attention(q, q, q, attn_mask=mask).sum().backward()
    assert mask.grad is not None


def test_inference_tensors_keep_their_kind() -> None:
    x = torch.ones(2, 3, device="cuda")
    with torch.inference_mode():
        assert not x.view(3, 2).is_inference()
        assert [part.shape for part in x.chunk(3, dim=1)] == [torch.Size([2, 1])] * 3
        assert (x + 1).is_inference()
        y = x + 1
        y.t_()
        assert y.shape == (3, 2)


def test_strides_are_the_cpus() -> None:
    for make in (
        lambda d: torch.empty(0, 5, device=d).t().contiguous(),
        lambda d: torch.ones(5, device=d).as_strided((1, 2), (3, 1)),
        lambda d: torch.ones(2, 1, 3, 3, device=d).to(memory_format=torch.channels_last),
        lambda d: torch.ones(2, 3, 1, 1, device=d).to(memory_format=torch.channels_last).relu(),
        lambda d: torch.ones(2, 3, 4, 4, device=d).to(memory_format=torch.channels_last) + 1,
    ):
        host, device = on_both(make)
        assert device.stride() == host.stride()  # type: ignore[attr-defined]


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_an_error_holds_no_memory(where: str) -> None:
    gc.collect()
    gc.disable()  # on CUDA nothing waits for the garbage collector
    try:
        model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(3))).cuda()
        model(torch.ones(1, 1024, device="cuda"))  # cuBLAS's workspace
        base = torch.cuda.memory_allocated()
        x: torch.Tensor | None = torch.ones(2**15, 1024, device="cuda")
        filler: list[torch.Tensor] = []

        def fill(_: object = None) -> None:
            torch.cuda.empty_cache()
            room = torch.cuda.mem_get_info()[0] - 64 * 2**20
            filler.append(torch.empty(room, dtype=torch.uint8, device="cuda"))

        try:
            if where == "forward":
                fill()
            out: torch.Tensor | None = model(x)
            out.register_hook(fill)
            out.sum().backward()
        except torch.OutOfMemoryError:
            pass
        else:
            pytest.fail("it fitted")
        x = out = None
        model.zero_grad()
        filler.clear()
        assert torch.cuda.memory_allocated() == base
    finally:
        gc.enable()
