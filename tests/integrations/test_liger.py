"""Liger-Kernel: Triton's kernels of a library in use, forward and backward, beside torch's own functions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton", "3.9", reason="Triton 3.9 is not installed: pip install 'triton>=3.9' (Linux)")
pytest.importorskip("liger_kernel", reason="liger-kernel is not installed")

import fakegpu_lab as lab

pytestmark = pytest.mark.usefixtures("machine")


def outcomes(function, *tensors):
    """The result, and the gradients of its sum of squares."""
    given = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    result = function(*given)
    result.square().sum().backward()
    return [result, *(tensor.grad for tensor in given)]


def compare(name, theirs, ours, *tensors):
    import liger_kernel.transformers.functional as liger

    found = outcomes(lambda *given: theirs(getattr(liger, f"liger_{name}"), *given), *tensors)
    for one, other in zip(found, outcomes(ours, *tensors), strict=True):
        assert torch.allclose(one, other, atol=2e-4, rtol=1e-4)


def test_norms():
    x, weight, bias = (torch.randn(*shape, device="cuda") for shape in ((16, 256), (256,), (256,)))
    compare("rms_norm", lambda f, x, w: f(x, w, 1e-6), lambda x, w: F.rms_norm(x, (256,), w, 1e-6), x, weight)
    compare(
        "layer_norm",
        lambda f, x, w, b: f(x, w, b, 1e-5),
        lambda x, w, b: F.layer_norm(x, (256,), w, b, 1e-5),
        x,
        weight,
        bias,
    )


def test_gates():
    a, b = torch.randn(16, 256, device="cuda"), torch.randn(16, 256, device="cuda")
    compare("swiglu", lambda f, a, b: f(a, b), lambda a, b: F.silu(a) * b, a, b)
    compare("geglu", lambda f, a, b: f(a, b), lambda a, b: F.gelu(a, approximate="tanh") * b, a, b)


def test_cross_entropy_alone_and_fused_with_the_last_layer():
    x, weight = torch.randn(16, 256, device="cuda"), torch.randn(500, 256, device="cuda") * 0.05
    labels = torch.randint(0, 256, (16,), device="cuda")
    compare("cross_entropy", lambda f, x: f(x, labels), lambda x: F.cross_entropy(x, labels), x)
    with lab.record() as trace:
        compare(
            "fused_linear_cross_entropy",
            lambda f, x, w: f(x, w, labels),
            lambda x, w: F.cross_entropy(x @ w.T, labels),
            x,
            weight,
        )
    assert any(kernel.access is not None for kernel in trace.kernels)
