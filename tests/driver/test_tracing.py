"""FakeTensors, exported graphs and higher-order operators of programs that run on a device."""

from __future__ import annotations

import io

import pytest
import torch
from functorch.compile import aot_function, nop
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def test_fake_tensors_compute_their_gradients(machine):
    before = torch.cuda.memory_allocated()
    with FakeTensorMode(), torch.device("cuda"):
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        out = model(torch.empty(3, 4, device="cuda:0"))
        out.sum().backward()
        grad = model[0].weight.grad
    assert (out.device, grad.device, grad.shape) == (torch.device("cuda:0"), torch.device("cuda:0"), (8, 4))
    assert out.is_cuda
    assert torch.cuda.memory_allocated() == before  # a fake tensor has no memory


def test_a_device_tensor_becomes_a_fake_one(machine):
    tensor = torch.ones(3, device="cuda:1", requires_grad=True)
    mode = FakeTensorMode()
    fake = mode.from_tensor(tensor)
    assert (fake.device, fake.shape, fake.requires_grad) == (torch.device("cuda:1"), (3,), True)
    assert mode.from_tensor(tensor) is fake
    with mode, pytest.raises(Exception, match="Please convert all Tensors to FakeTensors first"):
        tensor + fake


def test_an_op_without_a_meta_kernel_computes_on_zeros_of_the_device(machine):
    adam = torch.ops.aten._fused_adam_.tensor_lr  # torch has a meta kernel only for a learning rate in a number
    settings = {"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-8, "amsgrad": False, "maximize": False}
    before = torch.cuda.memory_allocated()
    with FakeTensorMode(), torch.device("cuda"):
        params, grads, means, squares = ([torch.ones(2, 3)] for _ in range(4))
        steps, rate = [torch.ones(())], torch.ones(())
        adam(params, grads, means, squares, [], steps, lr=rate, **settings)
        assert params[0].device == torch.device("cuda:0")
    assert torch.cuda.memory_allocated() == before


@pytest.mark.parametrize("tracing_mode", ["real", "fake", "symbolic"])
def test_make_fx_writes_the_graph_of_cuda(machine, tracing_mode):
    x = torch.randn(3, 4, device="cuda")
    graph = make_fx(lambda x: x.sin() + torch.zeros(4, device="cuda"), tracing_mode=tracing_mode)(x)
    assert "device(type='cuda'" in graph.code
    assert "fakegpu" not in graph.code
    torch.testing.assert_close(graph(x), x.sin())


def test_make_fx_keeps_what_is_done_to_tensors_of_the_surroundings(machine):
    x, factor, model = torch.ones(3, device="cuda"), torch.full((3,), 2.0, device="cuda"), nn.Linear(3, 2).cuda()
    assert make_fx(lambda x: x * factor)(x)(5 * x).tolist() == [10, 10, 10]
    torch.testing.assert_close(make_fx(model)(x)(5 * x), model(5 * x))


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")
def test_linearize_is_the_derivative(machine):
    x, factor = torch.ones(3, device="cuda"), torch.full((3,), 2.0, device="cuda")
    out, derivative = torch.func.linearize(lambda x: x.sin() * factor, x)
    torch.testing.assert_close(out, 2 * x.sin())
    torch.testing.assert_close(derivative(3 * x), 6 * x.cos())


def test_export_of_a_model_on_a_device(machine):
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.register_buffer("scale", torch.full((4,), 2.0))

        def forward(self, x):
            return self.linear(x) * self.scale + torch.arange(4, device=x.device)

    model, x = Model().cuda(), torch.randn(3, 4, device="cuda")
    program = torch.export.export(model, (x,))
    assert "fakegpu" not in str(program)
    torch.testing.assert_close(program.module()(x), model(x))
    dynamic = torch.export.export(model, (x,), dynamic_shapes={"x": {0: torch.export.Dim("batch")}})
    more = torch.randn(7, 4, device="cuda")
    torch.testing.assert_close(dynamic.module()(more), model(more))
    flat = program.run_decompositions()
    assert "fakegpu" not in str(flat)
    torch.testing.assert_close(flat.module()(x), model(x))


def test_an_exported_program_is_saved_and_loaded(machine):
    model, x = nn.Linear(4, 2).cuda(), torch.randn(3, 4, device="cuda")
    file = io.BytesIO()
    torch.export.save(torch.export.export(model, (x,)), file)
    assert b"fakegpu" not in file.getvalue()
    file.seek(0)
    loaded = torch.export.load(file).module()
    torch.testing.assert_close(loaded(x), model(x))


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention(machine):
    q = torch.randn(1, 2, 128, 16, device="cuda", requires_grad=True)
    mask = create_block_mask(lambda b, h, i, j: i >= j, 1, 1, 128, 128, device="cuda")
    out = flex_attention(q, q, q, block_mask=mask)
    out.sum().backward()
    grad, q.grad = q.grad, None
    expected = nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
    expected.sum().backward()
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(grad, q.grad)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_with_a_bias_of_its_surroundings(machine):
    slopes = torch.tensor([0.5, 0.25], device="cuda")
    places = torch.arange(128.0, device="cuda")
    q = torch.randn(1, 2, 128, 16, device="cuda", requires_grad=True)
    out = flex_attention(q, q, q, score_mod=lambda score, b, h, i, j: score + slopes[h] * (j - i))
    out.sum().backward()
    grad, q.grad = q.grad, None
    bias = slopes[:, None, None] * (places[None, :] - places[:, None])
    expected = nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=bias[None])
    expected.sum().backward()
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(grad, q.grad, atol=1e-4, rtol=1e-4)


def test_aot_autograd_differentiates(machine):
    x = torch.ones(3, device="cuda", requires_grad=True)
    aot_function(lambda x: (2 * x).sin(), nop)(x).sum().backward()
    torch.testing.assert_close(x.grad, 2 * torch.cos(2 * x.detach()))


def test_a_custom_op_passes_torchs_check(machine):
    with torch.library._scoped_library("fakegpu_lab_checked", "FRAGMENT"):

        @torch.library.custom_op("fakegpu_lab_checked::double", mutates_args=())
        def double(x: torch.Tensor) -> torch.Tensor:
            return x * 2

        double.register_fake(torch.empty_like)
        double.register_autograd(lambda ctx, grad: grad * 2)
        found = torch.library.opcheck(double, (torch.ones(3, device="cuda", requires_grad=True),))
    assert set(found.values()) == {"SUCCESS"}


def test_a_module_with_a_tensor_that_is_no_buffer_is_exported(machine):
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.shift = torch.ones(3, device="cuda")

        def forward(self, x):
            return x + self.shift

    x = torch.ones(3, device="cuda")
    assert torch.export.export(Shifted(), (x,)).module()(x).tolist() == [2, 2, 2]


def test_cond_runs_one_branch(machine):
    x = torch.ones(3, device="cuda")
    choose = lambda x: torch.cond(x.sum() > 2, lambda x: x + 1, lambda x: x - 1, (x,))  # noqa: E731
    assert choose(x).tolist() == [2, 2, 2]
    assert choose(-x).tolist() == [-2, -2, -2]
