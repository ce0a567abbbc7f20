"""`torch.use_deterministic_algorithms`: the ops without a deterministic CUDA kernel warn or fail, in torch's words."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._prims_common import alert_not_deterministic

from fakegpu_lab.driver.base.cuda_messages import TORCH_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fakegpu_lab.hardware.machine import Machine


def _random(*shape: int, **options: Any) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", **options)


def _numbers(*values: Any) -> torch.Tensor:
    return torch.tensor(values, device="cuda")


def _backward(function: Callable[[torch.Tensor], torch.Tensor], *shape: int) -> Callable[[], None]:
    def call() -> None:
        function(_random(*shape, requires_grad=True)).sum().backward()

    return call


def _resized(kernel: str, *shape: int) -> Callable[[], None]:
    """A kernel of `F.interpolate`, which itself avoids some of them in this mode."""
    resize = getattr(torch._C._nn, kernel)
    return _backward(lambda x: resize(x, (12,) * (x.dim() - 2), False), *shape)


def _padded(mode: str, dims: int) -> Callable[[], None]:
    return _backward(lambda x: F.pad(x, (1, 2) * dims, mode=mode), *((2, 3) + (4,) * dims))


def _replicated_before(dims: int) -> Callable[[], None]:
    """The kernel of `F.pad`, which `F.pad` itself avoids in this mode."""
    pad = getattr(torch._C._nn, f"replication_pad{dims}d")
    return _backward(lambda x: pad(x, (1, 2) * dims), *((2, 3) + (4,) * dims))


def _sampled(dims: int, align: bool = False) -> Callable[[], None]:
    def call() -> None:
        source = _random(1, 2, *(3,) * dims, requires_grad=True)
        F.grid_sample(source, _random(1, *(4,) * dims, dims).tanh(), align_corners=align).sum().backward()

    return call


def _ctc() -> None:
    lengths = torch.tensor([12]), torch.tensor([2])
    F.ctc_loss(_random(12, 1, 5, requires_grad=True).log_softmax(2), _numbers([1, 2]), *lengths).backward()


def _bag(mode: str) -> Callable[[], None]:
    def call() -> None:
        nn.EmbeddingBag(4, 3, mode=mode, device="cuda")(_numbers(0, 1, 1), _numbers(0, 2)).sum().backward()

    return call


def _fractional(dims: int) -> Callable[[], None]:
    pool = nn.FractionalMaxPool2d if dims == 2 else nn.FractionalMaxPool3d
    return _backward(pool(2, output_ratio=0.5), *((2, 3) + (8,) * dims))


def _unpooled(dims: int) -> Callable[[], None]:
    def call() -> None:
        values, indices = getattr(F, f"max_pool{dims}d")(_random(1, 1, *(4,) * dims), 2, return_indices=True)
        getattr(F, f"max_unpool{dims}d")(values, indices, 2)

    return call


def _scatter(reduce: str) -> Callable[[], None]:
    return lambda: _random(3).scatter_reduce_(0, _numbers(0, 0), _random(2), reduce)


ALERTS: dict[str, tuple[str, Callable[[], object]]] = {
    # what torch's docstring lists, with the names of its own tests (test_torch.py, test_nondeterministic_alert_…)
    "AvgPool3d": ("avg_pool3d_backward_cuda", _backward(nn.AvgPool3d(2), 2, 3, 4, 4, 4)),
    "AdaptiveAvgPool2d": ("adaptive_avg_pool2d_backward_cuda", _backward(nn.AdaptiveAvgPool2d(3), 2, 3, 4, 4)),
    "AdaptiveAvgPool3d": ("adaptive_avg_pool3d_backward_cuda", _backward(nn.AdaptiveAvgPool3d(3), 2, 3, 4, 4, 4)),
    "AdaptiveMaxPool2d": ("adaptive_max_pool2d_backward_cuda", _backward(nn.AdaptiveMaxPool2d(3), 2, 3, 4, 4)),
    "FractionalMaxPool2d": ("fractional_max_pool2d_backward_cuda", _fractional(2)),
    "FractionalMaxPool3d": ("fractional_max_pool3d_backward_cuda", _fractional(3)),
    "MaxUnpool1d": ("max_unpooling2d_forward_out", _unpooled(1)),
    "MaxUnpool2d": ("max_unpooling2d_forward_out", _unpooled(2)),
    "MaxUnpool3d": ("max_unpooling3d_forward_out", _unpooled(3)),
    "interpolate, linear": ("upsample_linear1d_backward_out_cuda", _resized("upsample_linear1d", 1, 2, 4)),
    "interpolate, bilinear": ("upsample_bilinear2d_backward_out_cuda", _resized("upsample_bilinear2d", 1, 2, 4, 4)),
    "interpolate, bicubic": ("upsample_bicubic2d_backward_out_cuda", _resized("upsample_bicubic2d", 1, 2, 4, 4)),
    "interpolate, trilinear": ("upsample_trilinear3d_backward_out_cuda",
                               _resized("upsample_trilinear3d", 1, 2, 4, 4, 4)),
    "ReflectionPad1d": ("reflection_pad1d_backward_out_cuda", _padded("reflect", 1)),
    "ReflectionPad2d": ("reflection_pad2d_backward_cuda", _padded("reflect", 2)),
    "ReflectionPad3d": ("reflection_pad3d_backward_out_cuda", _padded("reflect", 3)),
    "NLLLoss": ("nll_loss2d_forward_out_cuda_template",
                lambda: F.nll_loss(_random(1, 3, 2, 2), _numbers([[0, 1], [2, 0]]))),
    "CTCLoss": ("ctc_loss_backward_gpu", _ctc),
    "EmbeddingBag": ("embedding_bag_backward_cuda_max", _bag("max")),
    "put_": ("put_", lambda: _random(3).put_(_numbers(0), _numbers(1.0))),
    "put_, accumulating": ("put_", lambda: _random(3).put_(_numbers(0), _numbers(1.0), accumulate=True)),
    "histc": ("_histc_cuda with floating point input", lambda: torch.histc(_random(9), min=0, max=3)),
    "bincount": ("_bincount_cuda", lambda: torch.bincount(_numbers(1, 2), _numbers(0.5, 0.5))),
    "median": ("median CUDA with indices output", lambda: _random(3, 3).median(0)),
    "nanmedian": ("median CUDA with indices output", lambda: _random(3, 3).nanmedian(0)),
    "median, out": ("median CUDA with indices output",
                    lambda: torch.median(_random(3), 0, out=(_random(1)[0], _numbers(0)[0]))),
    "grid_sample": ("grid_sampler_2d_backward_cuda", _sampled(2)),
    "grid_sample of volumes": ("grid_sampler_3d_backward_cuda", _sampled(3)),
    "scatter_reduce": ("scatter_reduce_cuda_prod_", _scatter("prod")),
    # what else CUDA's sources alert on
    "interpolate, antialias": ("upsample_bilinear2d_aa_backward_out_cuda",
                               _resized("_upsample_bilinear2d_aa", 1, 2, 4, 4)),
    "interpolate, bicubic and antialias": ("upsample_bicubic2d_aa_backward_out_cuda",
                                           _resized("_upsample_bicubic2d_aa", 1, 2, 4, 4)),
    "ReplicationPad1d": ("replication_pad1d_backward_cuda", _replicated_before(1)),
    "ReplicationPad2d": ("replication_pad2d_backward_cuda", _replicated_before(2)),
    "ReplicationPad3d": ("replication_pad3d_backward_cuda", _replicated_before(3)),
    "index_reduce": ("index_reduce_cuda", lambda: _random(3).index_reduce_(0, _numbers(0), _numbers(1.0), "prod")),
    "scatter": ("scatter_reduce_cuda_kernel",
                lambda: _random(3).scatter_(0, _numbers(0), _numbers(1.0), reduce="multiply")),
}  # fmt: skip

FINE: dict[str, Callable[[], object]] = {
    "Conv2d": _backward(lambda x: F.conv2d(x, _random(3, 2, 2, 2)), 1, 2, 4, 4),
    "ReplicationPad2d": _padded("replicate", 2),
    "MaxPool3d": _backward(nn.MaxPool3d(2), 2, 3, 4, 4, 4),
    "MaxPool2d": _backward(nn.MaxPool2d(2), 2, 3, 4, 4),
    "interpolate, nearest": _backward(lambda x: F.interpolate(x, (12, 12)), 1, 2, 4, 4),
    "interpolate, bilinear": _backward(lambda x: F.interpolate(x, (12, 12), mode="bilinear"), 1, 2, 4, 4),
    "index_put": lambda: _random(3).index_put_((_numbers(0),), _numbers(1.0)),
    "index_put, accumulating": lambda: _random(3).index_put_((_numbers(0),), _numbers(1.0), accumulate=True),
    "gather": _backward(lambda x: x.gather(0, _numbers(0, 0)), 3),
    "index_add": lambda: _random(3).index_add_(0, _numbers(0), _numbers(1.0)),
    "index_copy": lambda: _random(3).index_copy_(0, _numbers(0), _numbers(1.0)),
    "index_select": _backward(lambda x: x.index_select(0, _numbers(0, 0)), 3),
    "embedding": _backward(lambda x: F.embedding(_numbers(0, 0), x), 3, 2),
    "repeat_interleave": _backward(lambda x: x.repeat_interleave(2), 3),
    "scatter": lambda: _random(3).scatter_(0, _numbers(0), _numbers(1.0)),
    "scatter_add": lambda: _random(3).scatter_add_(0, _numbers(0), _numbers(1.0)),
    "scatter_reduce, sum": _scatter("sum"),
    "scatter_reduce, mean": _scatter("mean"),
    "cumsum": lambda: _random(9).cumsum(0),
    "nll_loss": lambda: F.nll_loss(_random(2, 3), _numbers(0, 1)),
    "nll_loss, unreduced": lambda: F.nll_loss(_random(1, 3, 1, 1), _numbers([[0]]), reduction="none"),
    "EmbeddingBag": _bag("sum"),
    "histc of integers": lambda: torch.histc(_numbers(1, 2), min=0, max=3),
    "bincount": lambda: torch.bincount(_numbers(1, 2)),
    "median": lambda: _random(3).median(),
    "kthvalue": lambda: _random(3).kthvalue(1),
    "grid_sample by cuDNN": _sampled(2, align=True),
    "a median on the CPU": lambda: torch.randn(3).median(0),
    "Linear": lambda: nn.Linear(4, 4, device="cuda")(_random(2, 4)),  # cuBLASLt adds the bias
    "an empty product": lambda: _random(0, 4) @ _random(4, 4),
    "dot": lambda: _random(4) @ _random(4),
}

if TORCH_VERSION < (2, 13):  # which gave this kernel a deterministic form
    ALERTS["MaxPool3d"] = "max_pool3d_with_indices_backward_cuda", FINE.pop("MaxPool3d")


@pytest.fixture
def modes(machine: Machine) -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of these ops are in beta, or deprecated
        yield
    torch.use_deterministic_algorithms(False)


def _in_torchs_words(name: str) -> str:
    """The error or the warning of torch's own Python version of the alert."""
    if not torch.is_deterministic_algorithms_warn_only_enabled():
        with pytest.raises(RuntimeError) as raised:
            alert_not_deterministic(name)
        return str(raised.value)
    with pytest.warns(UserWarning, match="does not have a deterministic") as caught:
        alert_not_deterministic(name)
    return str(caught[0].message)


@pytest.mark.parametrize("case", ALERTS)
def test_an_op_that_is_not_deterministic_fails_or_warns(modes: None, case: str) -> None:
    name, call = ALERTS[case]
    call()
    torch.use_deterministic_algorithms(True)
    with pytest.raises(RuntimeError) as raised:
        call()
    assert str(raised.value) == _in_torchs_words(name)
    torch.use_deterministic_algorithms(True, warn_only=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    texts = [str(one.message).partition(" (Triggered internally")[0] for one in caught]
    assert [text for text in texts if "deterministic" in text] == [_in_torchs_words(name)]
    torch.use_deterministic_algorithms(False)
    call()


@pytest.mark.parametrize("case", FINE)
def test_an_op_that_is_deterministic_or_made_so_works(modes: None, case: str) -> None:
    torch.set_deterministic_debug_mode("error")
    FINE[case]()


def test_a_wrong_index_to_write_to_is_found_by_the_host(modes: None) -> None:
    torch.use_deterministic_algorithms(True)
    with pytest.raises(IndexError, match=r"^index 7 is out of bounds for dimension 0 with size 3$"):
        _random(3).index_put_((_numbers(7),), _numbers(1.0))
    torch.cuda.synchronize()


def test_the_warning_names_the_users_line(modes: None) -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    with pytest.warns(UserWarning, match="median") as caught:
        _random(3).median(0)
    assert caught[0].filename == __file__


PRODUCTS: dict[str, Callable[[], object]] = {
    "mm": lambda: torch.mm(_random(2, 2), _random(2, 2)),
    "mv": lambda: torch.mv(_random(2, 2), _random(2)),
    "bmm": lambda: torch.bmm(_random(1, 2, 2), _random(1, 2, 2)),
    "linear without a bias": lambda: F.linear(_random(2, 2), _random(2, 2)),
    "the backward of linear": _backward(lambda x: F.linear(x, _random(2, 2), _random(2)), 2, 2),
    "baddbmm": lambda: torch.baddbmm(_random(1, 2, 2), _random(1, 2, 2), _random(1, 2, 2)),
}
CUBLAS = "Deterministic behavior was enabled with either `torch.use_deterministic_algorithms"


@pytest.mark.parametrize("config", [None, "garbage", ":4096:8", ":16:8"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_cublas_needs_its_workspace_configured(
    monkeypatch: pytest.MonkeyPatch, modes: None, name: str, config: str | None
) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    if config is not None:
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", config)
    torch.use_deterministic_algorithms(True)
    if config in (":4096:8", ":16:8"):
        PRODUCTS[name]()
        return
    with pytest.raises(RuntimeError, match=CUBLAS):
        PRODUCTS[name]()
    torch.use_deterministic_algorithms(True, warn_only=True)
    with pytest.warns(UserWarning, match=CUBLAS):
        PRODUCTS[name]()


def test_attention_warns_once_that_it_could_be_deterministic(modes: None) -> None:
    q = torch.randn(1, 2, 8, 16, device="cuda", requires_grad=True)
    torch.use_deterministic_algorithms(True, warn_only=True)
    words = "^Memory Efficient attention defaults to a non-deterministic algorithm. To explicitly enable determinism"
    with pytest.warns(UserWarning, match=words):
        F.scaled_dot_product_attention(q, q, q).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        F.scaled_dot_product_attention(q, q, q).sum().backward()
