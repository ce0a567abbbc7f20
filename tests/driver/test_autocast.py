"""Regions of mixed precision: their state, the weight cache, and what they do not touch."""

from __future__ import annotations

import copy
import threading
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import fakegpu_lab as lab

if TYPE_CHECKING:
    from fakegpu_lab.hardware.machine import Machine

pytestmark = pytest.mark.usefixtures("machine")

HALF, BF16, FLOAT = torch.float16, torch.bfloat16, torch.float32


def product(*dtypes: torch.dtype) -> torch.dtype:
    """The dtype of a matrix product on the device, of operands of these dtypes."""
    a, b = (torch.ones(2, 2, device="cuda", dtype=dtype) for dtype in dtypes or (FLOAT, FLOAT))
    return (a @ b).dtype


def test_a_region_casts_and_its_end_ends_it() -> None:
    with torch.autocast("cuda"):
        assert product() is HALF
        assert product(HALF, FLOAT) is HALF
    assert product() is FLOAT
    with pytest.raises(RuntimeError, match=r"same dtype"):
        product(HALF, FLOAT)


def test_nesting() -> None:
    with torch.autocast("cuda"):
        with torch.autocast("cuda", enabled=False):
            assert product() is FLOAT
            with torch.autocast("cuda", dtype=BF16):
                assert product() is BF16
            assert product() is FLOAT
        assert product() is HALF
    assert product() is FLOAT


def test_every_spelling() -> None:
    @torch.autocast("cuda", dtype=BF16)
    def decorated() -> torch.dtype:
        return product()

    assert decorated() is BF16
    with torch.amp.autocast("cuda"):
        assert product() is HALF
    with pytest.warns(FutureWarning, match=r"`torch.cuda.amp.autocast\(args...\)` is deprecated"):
        region = torch.cuda.amp.autocast()
    with region:
        assert product() is HALF


def test_the_state_can_be_read_and_set() -> None:
    assert torch.amp.is_autocast_available("cuda")
    assert not torch.is_autocast_enabled("cuda")
    assert torch.get_autocast_dtype("cuda") is HALF
    with torch.autocast("cuda", dtype=BF16, cache_enabled=False):
        assert torch.is_autocast_enabled("cuda")
        assert torch.is_autocast_enabled()
        assert not torch.is_autocast_enabled("cpu")
        assert torch.get_autocast_dtype("cuda") is BF16
        assert not torch.is_autocast_cache_enabled()
    try:
        torch.set_autocast_enabled("cuda", True)
        torch.set_autocast_dtype("cuda", BF16)
        assert product() is BF16
        torch.set_autocast_enabled("cuda", False)
        assert product() is FLOAT
    finally:
        torch.set_autocast_enabled("cuda", False)
        torch.set_autocast_dtype("cuda", HALF)


@pytest.mark.filterwarnings("ignore:torch.*is deprecated:DeprecationWarning")
def test_the_older_functions_mean_cuda() -> None:
    try:
        torch.set_autocast_enabled(True)  # type: ignore[call-overload]
        torch.set_autocast_gpu_dtype(BF16)
        assert torch.get_autocast_gpu_dtype() is BF16
        assert product() is BF16
    finally:
        torch.set_autocast_enabled(False)  # type: ignore[call-overload]
        torch.set_autocast_gpu_dtype(HALF)


def test_tensors_of_the_host_have_their_own_regions() -> None:
    host = torch.ones(2, 2)
    with torch.autocast("cuda"):
        assert (host @ host).dtype is FLOAT
    with torch.autocast("cpu"):
        assert product() is FLOAT
        assert (host @ host).dtype is BF16
        with torch.autocast("cuda"):
            assert (product(), (host @ host).dtype) == (HALF, BF16)


def test_a_region_belongs_to_its_thread() -> None:
    seen: list[Any] = []

    def elsewhere() -> None:
        seen.append((torch.is_autocast_enabled("cuda"), product()))
        with torch.autocast("cuda", dtype=BF16):
            seen.append(product())

    with torch.autocast("cuda"):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert product() is HALF
    assert seen == [(False, FLOAT), BF16]


def test_within_the_op_autocast_is_off() -> None:
    """As a hook sees it that runs inside: C++ excludes the key for the duration of the call."""
    seen: list[bool] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        seen.append(torch.is_autocast_enabled("cuda"))
        return tensor

    weight = torch.ones(2, 2, device="cuda", requires_grad=True)
    with torch.autocast("cuda"), torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        weight @ weight
        assert torch.is_autocast_enabled("cuda")
    assert seen
    assert not any(seen)


def test_out_and_in_place_variants_are_not_cast() -> None:
    a = torch.ones(2, 2, device="cuda")
    out = torch.empty(2, 2, device="cuda")
    with torch.autocast("cuda"):
        assert torch.mm(a, a, out=out).dtype is FLOAT
        assert a.clone().addmm_(a, a).dtype is FLOAT
        with pytest.raises(RuntimeError):
            a.half().addmm_(a, a)


def test_ops_on_no_list_run_as_given() -> None:
    x = torch.ones(2, 4, 3, 3, device="cuda", dtype=HALF)
    with torch.autocast("cuda"):
        assert F.relu(x).dtype is HALF
        assert (x + 1).dtype is HALF
        assert (x + x.float()).dtype is FLOAT
        assert F.max_pool2d(x, 2).dtype is HALF
        assert nn.BatchNorm2d(4).cuda()(x).dtype is HALF
        assert torch.cat([x, x.float()]).dtype is FLOAT


def test_attention_takes_mixed_dtypes() -> None:
    q, k, v = (torch.randn(1, 2, 4, 8, device="cuda") for _ in range(3))
    with torch.autocast("cuda"):
        assert F.scaled_dot_product_attention(q, k.half(), v.bfloat16()).dtype is HALF
        assert F.scaled_dot_product_attention(q, k, v, torch.zeros(4, 4, device="cuda")).dtype is HALF
        with pytest.raises(RuntimeError, match=r"got query.dtype: double key.dtype: c10::Half"):
            F.scaled_dot_product_attention(q.double(), k, v)
    with pytest.raises(RuntimeError, match=r"got query.dtype: float key.dtype: c10::Half and value.dtype: float"):
        F.scaled_dot_product_attention(q, k.half(), v)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers(kind: type[nn.RNNBase]) -> None:
    layer = kind(4, 8, num_layers=2).cuda()
    x = torch.randn(3, 2, 4, device="cuda", requires_grad=True)
    with torch.autocast("cuda"):
        output, hidden = layer(x)
        assert {h.dtype for h in (hidden if isinstance(hidden, tuple) else (hidden,))} == {HALF}
        assert output.dtype is HALF
        assert layer(x.half())[0].dtype is HALF
    output.float().sum().backward()
    assert {p.grad.dtype for p in layer.parameters()} == {FLOAT}
    torch.testing.assert_close(output.float(), layer(x)[0], atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_cudnns_recurrent_layers_run_in_float16_also_under_bfloat16(kind: type[nn.RNNBase]) -> None:
    layer = kind(4, 8).cuda()
    x = torch.randn(3, 2, 4, device="cuda")
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([3, 2]))
    with torch.autocast("cuda", dtype=BF16):
        assert layer(x)[0].dtype is HALF
        assert layer(packed)[0].data.dtype is HALF
        assert product() is BF16
        assert torch.get_autocast_dtype("cuda") is BF16
        with torch.backends.cudnn.flags(enabled=False):
            torch.clear_autocast_cache()
            assert layer(x)[0].dtype is BF16
            assert layer(packed)[0].data.dtype is BF16


def test_bfloat16_is_emulated_on_older_cards() -> None:
    """`torch.cuda.is_bf16_supported` counts emulation, so no card that torch still runs on refuses the region."""
    lab.enable("t4")
    with torch.autocast("cuda", dtype=BF16):
        assert product() is BF16


def test_bfloat16_is_refused_in_torchs_words_where_a_card_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    with pytest.raises(RuntimeError) as error:
        torch.autocast("cuda", dtype=BF16)
    assert str(error.value) == ("Current CUDA Device does not support bfloat16. Please switch dtype to float16.")


# The weight cache


def kernels(machine: Machine) -> int:
    return machine.devices[0].ledger.kernels


def test_a_weight_is_cast_once_in_a_region(machine: Machine) -> None:
    weight = torch.ones(4, 4, device="cuda", requires_grad=True)
    x = torch.ones(4, 4, device="cuda", dtype=HALF)
    with torch.autocast("cuda"):
        x @ weight
        before = kernels(machine)
        with torch.autocast("cuda"):
            x @ weight
        x @ weight
        assert kernels(machine) == before + 2
    with torch.autocast("cuda"):
        before = kernels(machine)
        x @ weight
        assert kernels(machine) == before + 2


@pytest.mark.parametrize(
    ("keeps", "options"),
    [
        (True, {}),
        (False, {"cache_enabled": False}),
    ],
)
def test_memory_of_the_cache(keeps: bool, options: dict[str, Any]) -> None:
    weight = torch.ones(512, 512, device="cuda", requires_grad=True)
    x = torch.ones(1, 512, device="cuda", dtype=HALF)
    with torch.no_grad():
        x @ x.t()  # cuBLAS takes its workspace
        before = torch.cuda.memory_allocated()
        with torch.autocast("cuda", **options):
            x @ weight
            assert torch.cuda.memory_allocated() - before == (512 * 512 * 2 if keeps else 0)
            torch.clear_autocast_cache()
            assert torch.cuda.memory_allocated() == before
            with torch.autocast("cuda", **options):
                x @ weight
            assert torch.cuda.memory_allocated() - before == (512 * 512 * 2 if keeps else 0)
        assert torch.cuda.memory_allocated() == before


def test_what_is_no_leaf_that_wants_a_gradient_is_cast_each_time(machine: Machine) -> None:
    x = torch.ones(4, 4, device="cuda", dtype=HALF)
    leaf = torch.ones(4, 4, device="cuda", requires_grad=True)
    with torch.autocast("cuda"):
        for weight in (leaf.detach(), leaf * 2, leaf.detach().t().requires_grad_()):
            before = kernels(machine)
            x @ weight
            x @ weight
            assert kernels(machine) == before + 4


def test_a_cast_under_no_grad_still_has_a_gradient_afterwards() -> None:
    weight = torch.ones(4, 4, device="cuda", requires_grad=True)
    x = torch.ones(4, 4, device="cuda")
    with torch.autocast("cuda"):
        with torch.no_grad():
            assert not (x @ weight).requires_grad
        with torch.inference_mode():
            x.clone() @ weight
        (x @ weight).sum().backward()
    assert weight.grad is not None


def test_a_dead_weights_place_is_not_anothers() -> None:
    x = torch.ones(2, 2, device="cuda")
    with torch.autocast("cuda"), torch.no_grad():
        for value in range(20):
            weight = torch.full((2, 2), float(value), device="cuda").requires_grad_()
            assert (x @ weight)[0, 0].item() == 2 * value
            del weight


def test_the_graph_goes_back_through_the_cast_to_the_weight() -> None:
    weight = torch.full((2, 2), 0.5, device="cuda", requires_grad=True)
    with torch.autocast("cuda"):
        y = torch.ones(2, 2, device="cuda") @ weight
        y = y + torch.ones(2, 2, device="cuda") @ weight
    y.sum().backward()
    assert weight.grad is not None
    assert weight.grad.dtype is FLOAT
    assert weight.grad.tolist() == [[4, 4], [4, 4]]


def test_activations_are_saved_in_half(machine: Machine) -> None:
    """What autocast is for: the linear layer keeps its input for backward in two bytes, not in four."""
    layer = nn.Linear(512, 512, bias=False).cuda()
    x = torch.ones(512, 512, device="cuda")
    layer(x)
    before = torch.cuda.memory_allocated()
    with torch.autocast("cuda"):
        y = layer(x)
    # the output, the input's cast and the weight's: both are in the graph
    assert torch.cuda.memory_allocated() - before == 3 * 512 * 512 * 2
    del y
    assert torch.cuda.memory_allocated() == before


def test_an_error_in_a_region_keeps_no_casts() -> None:
    a, b = torch.ones(4, 512, device="cuda"), torch.ones(4, 512, device="cuda")
    before = torch.cuda.memory_allocated()
    with torch.autocast("cuda"), pytest.raises(RuntimeError, match="shapes cannot be multiplied") as raised:
        a @ b
    assert raised.value.__context__ is None or raised.value.__suppress_context__
    assert torch.cuda.memory_allocated() == before
    assert product() is FLOAT  # and autocast is on and off as before
    with torch.autocast("cuda"):
        assert product() is HALF


# With the rest of torch


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_recomputes_in_the_same_precision(reentrant: bool) -> None:
    seen = []

    def part(x: torch.Tensor) -> torch.Tensor:
        y = x @ x
        seen.append((y.dtype, torch.is_autocast_enabled("cuda")))
        return y * y

    x = torch.ones(2, 2, device="cuda", requires_grad=True)
    with torch.autocast("cuda", dtype=BF16):
        y = checkpoint(part, x, use_reentrant=reentrant)
    y.float().sum().backward()
    assert seen == [(BF16, True)] * 2
    assert x.grad is not None
    assert x.grad.dtype is FLOAT


def test_custom_functions() -> None:
    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=FLOAT)
        def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            seen.append((a.dtype, torch.is_autocast_enabled("cuda")))
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            a, b = ctx.saved_tensors
            seen.append((grad.dtype, torch.is_autocast_enabled("cuda")))
            return grad @ b.t(), a.t() @ grad

    seen: list[Any] = []
    x = torch.ones(2, 2, device="cuda", requires_grad=True)
    with torch.autocast("cuda"):
        y = Product.apply(x.half(), x.half())
        assert y.dtype is FLOAT
        y.sum().backward()
    assert seen == [(FLOAT, False), (FLOAT, False)]
    assert Product.apply(x.half(), x.half()).dtype is HALF  # outside a region the cast is not made


def test_custom_functions_without_a_cast_keep_the_regions_state_for_backward() -> None:
    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda")
        def forward(ctx: Any, a: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(a)
            return a @ a

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            (a,) = ctx.saved_tensors
            seen.append((a @ a).dtype)
            return (grad @ a).float()

    seen: list[Any] = []
    x = torch.ones(2, 2, device="cuda", requires_grad=True)
    with torch.autocast("cuda"):
        y = Product.apply(x)
    y.sum().backward()
    assert seen == [HALF]


def test_the_deprecated_decorators() -> None:
    with pytest.warns(FutureWarning, match=r"`torch.cuda.amp.custom_fwd\(args...\)` is deprecated"):
        decorated = torch.cuda.amp.custom_fwd(lambda ctx, x: x, cast_inputs=FLOAT)

    class Context:
        pass

    with torch.autocast("cuda"):
        assert decorated(Context(), torch.ones(1, device="cuda", dtype=HALF)).dtype is FLOAT


def test_functional_transforms() -> None:
    a = torch.randn(3, 2, 2, device="cuda")
    with torch.autocast("cuda"):
        assert torch.vmap(torch.mm)(a, a).dtype is HALF
        assert torch.vmap(torch.exp)(a.half()).dtype is FLOAT
        gradient = torch.func.grad(lambda x: (x @ x).float().sum())(a[0])
    assert gradient.dtype is FLOAT
    expected = torch.func.grad(lambda x: (x @ x).sum())(a[0])
    torch.testing.assert_close(gradient, expected, atol=1e-2, rtol=1e-2)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_scripted_functions_inside_a_region_and_regions_inside_scripts() -> None:
    @torch.jit.script
    def multiply(a: torch.Tensor) -> torch.Tensor:
        return torch.mm(a, a)

    @torch.jit.script
    def region(a: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda"):
            return torch.mm(a, a)

    a = torch.ones(2, 2, device="cuda")
    with torch.autocast("cuda"):
        assert {multiply(a).dtype for _ in range(3)} == {HALF}
    assert {multiply(a).dtype for _ in range(3)} == {FLOAT}
    assert {region(a).dtype for _ in range(3)} == {HALF}
    with torch.inference_mode():
        assert region(a).dtype is HALF


def test_a_default_device_changes_nothing() -> None:
    with torch.device("cuda"), torch.autocast("cuda"):
        assert product() is HALF


def test_two_devices_share_a_region() -> None:
    a = torch.ones(2, 2, device="cuda:1")
    with torch.autocast("cuda"):
        assert (a @ a).dtype is HALF
        assert (a @ a).device.index == 1


def test_under_meta_memory_is_the_same() -> None:
    lab.enable("a100", memory="4GiB", compute="meta")
    test_memory_of_the_cache(True, {})


def test_a_machine_that_comes_or_goes_within_a_region() -> None:
    with torch.autocast("cuda"):
        lab.reset()
        assert product() is HALF
        lab.disable()
        host = torch.ones(2, 2)
        assert (host @ host).dtype is FLOAT
    lab.enable("a100", memory="4GiB")
    assert product() is FLOAT
    with torch.autocast("cuda"):
        assert product() is HALF


@pytest.mark.parametrize("dtype", [HALF, BF16])
def test_training_follows_full_precision(dtype: torch.dtype) -> None:
    """A small convolutional net's losses, in mixed precision with a scaler, beside those of float32."""
    torch.manual_seed(0)
    host = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.LayerNorm(512), nn.Linear(512, 4)
    )
    images, targets = torch.randn(32, 1, 8, 8).cuda(), torch.randint(0, 4, (32,)).cuda()

    def train(mixed: bool) -> list[float]:
        model = copy.deepcopy(host).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        scaler = torch.amp.GradScaler("cuda", init_scale=1024, enabled=mixed and dtype is HALF)
        losses = []
        for _ in range(15):
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=dtype, enabled=mixed):
                loss = F.cross_entropy(model(images), targets)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        return losses

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain, mixed = train(False), train(True)
    assert mixed != plain
    assert mixed == pytest.approx(plain, abs=0.02 if dtype is HALF else 0.1)
    assert mixed[-1] < mixed[0] / 4
