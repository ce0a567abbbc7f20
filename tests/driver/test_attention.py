"""Scaled dot-product attention: which kernel a card takes, what it costs, and that it computes what the CPU does."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import fakegpu_lab as lab

if TYPE_CHECKING:
    from collections.abc import Iterator

aten: Any = torch.ops.aten
HALF, FLOAT, BRAIN = torch.float16, torch.float32, torch.bfloat16
CUDNN, FLASH, EFFICIENT, MATH = (
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
)


@pytest.fixture
def card(request: pytest.FixtureRequest) -> Iterator[str]:
    lab.enable(f"{request.param}:1")
    yield request.param
    lab.disable()


def operands(
    dtype: torch.dtype = HALF, rows: int = 40, keys: int = 40, width: int = 16, heads: int = 4, kv_heads: int = 4
) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    shapes = [(2, heads, rows, width), (2, kv_heads, keys, width), (2, kv_heads, keys, width)]
    return tuple(torch.randn(shape).to("cuda", dtype).requires_grad_() for shape in shapes)


def chosen(*args: Any, **kwargs: Any) -> SDPBackend:
    return SDPBackend(torch._fused_sdp_choice(*args, **kwargs))


@pytest.mark.parametrize(
    ("card", "dtype", "kwargs", "backend"),
    [
        ("a100", FLOAT, {}, EFFICIENT),  # flash has no float32
        ("a100", HALF, {}, FLASH),
        ("a100", BRAIN, {}, FLASH),
        ("a100", torch.float64, {}, MATH),
        ("a100", HALF, {"width": 12}, FLASH),  # padded to 16
        ("a100", FLOAT, {"width": 6}, MATH),  # efficient wants multiples of 4 floats
        ("a100", HALF, {"width": 264}, EFFICIENT),  # flash goes to 256
        ("a100", HALF, {"width": 256}, FLASH),
        ("rtx4090", HALF, {"width": 208}, EFFICIENT),  # no flash backward for 192 < width <= 224 on sm89
        ("rtx4090", HALF, {"width": 256}, FLASH),
        ("a100", HALF, {"keys": 30, "is_causal": True}, EFFICIENT),  # flash's causal mask is the other corner's
        ("a100", HALF, {"mask": True}, EFFICIENT),  # flash takes no mask
        ("a100", HALF, {"kv_heads": 2, "enable_gqa": True}, FLASH),
        ("a100", HALF, {"kv_heads": 2}, MATH),  # heads that do not match; math then tells
        ("a100", HALF, {"dropout_p": 0.1}, FLASH),
        ("t4", HALF, {}, EFFICIENT),  # flash wants sm80
        ("t4", FLOAT, {}, EFFICIENT),
        ("t4", BRAIN, {}, MATH),
        ("h100", HALF, {}, CUDNN),  # preferred on Hopper
        ("h100", HALF, {"mask": True}, CUDNN),
        ("h100", HALF, {"dropout_p": 0.1}, FLASH),  # cuDNN's dropout comes in sixteenths
        ("h100", HALF, {"dropout_p": 0.125}, CUDNN),
        ("h100", HALF, {"keys": 1}, FLASH),
        ("h100", FLOAT, {}, EFFICIENT),
        ("h100", HALF, {"width": 192}, FLASH),  # cuDNN's heads are at most 128 wide
    ],
    indirect=["card"],
)
def test_the_choice(card: str, dtype: torch.dtype, kwargs: dict[str, Any], backend: SDPBackend) -> None:
    shape = {name: kwargs.pop(name) for name in ("width", "keys", "kv_heads") if name in kwargs}
    q, k, v = operands(dtype, **shape)
    if kwargs.pop("mask", False):
        kwargs["attn_mask"] = torch.ones(40, 40, dtype=torch.bool, device="cuda")
    assert chosen(q, k, v, **kwargs) == backend
    names = {FLASH: "Flash", EFFICIENT: "Efficient", CUDNN: "Cudnn"}
    if backend in names and not shape.get("width", 8) % 8:
        out = F.scaled_dot_product_attention(q, k, v, **kwargs)
        assert f"<ScaledDotProduct{names[backend]}AttentionBackward0>" in repr(out)


@pytest.mark.parametrize("card", ["h100"], indirect=True)
def test_people_decide(card: str) -> None:
    q, k, v = operands()
    with sdpa_kernel([FLASH, EFFICIENT]):
        assert chosen(q, k, v) == FLASH
    with sdpa_kernel([EFFICIENT, FLASH], set_priority=True):
        assert chosen(q, k, v) == EFFICIENT
    assert chosen(q, k, v) == CUDNN
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        assert chosen(q, k, v) == FLASH
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)
    with sdpa_kernel(MATH):
        assert chosen(q, k, v) == MATH


def test_the_order_is_torchs_again_without_a_machine() -> None:
    before = torch._C._get_sdp_priority_order()
    lab.enable("h100:1")
    assert torch._C._get_sdp_priority_order()[0] == 3
    lab.disable()
    assert torch._C._get_sdp_priority_order() == before


@pytest.mark.usefixtures("machine")
def test_no_kernel_says_why() -> None:
    q, k, v = operands(FLOAT)
    with sdpa_kernel(FLASH), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(RuntimeError, match=r"^No available kernel\. Aborting execution\.$"):
            F.scaled_dot_product_attention(q, k, v)
    texts = [str(warning.message) for warning in told]
    assert texts == [
        "Memory efficient kernel not used because:",
        "Memory Efficient attention has been runtime disabled.",
        "Flash attention kernel not used because:",
        (
            "Expected query, key and value to all be of dtype: {Half, BFloat16}. Got Query dtype: float, Key dtype: "
            "float, and Value dtype: float instead."
        ),
        "cuDNN attention kernel not used because:",
        "cuDNN attention has been runtime disabled.",
    ]


@pytest.mark.usefixtures("machine")
def test_can_use() -> None:
    q, k, v = operands()
    params = torch.backends.cuda.SDPAParams(q, k, v, None, 0.0, False, False)
    assert torch.backends.cuda.can_use_flash_attention(params)
    assert torch.backends.cuda.can_use_efficient_attention(params)
    host = torch.backends.cuda.SDPAParams(q.cpu(), k.cpu(), v.cpu(), None, 0.0, False, False)
    with pytest.warns(UserWarning, match="All tensors need to be on cuda device. Got query on device: cpu"):
        assert not torch.backends.cuda.can_use_flash_attention(host, debug=True)
    assert torch.backends.cuda.is_flash_attention_available()


def on_host(tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(t.detach().cpu().double().requires_grad_() for t in tensors)


@pytest.mark.parametrize("card", ["h100"], indirect=True)
@pytest.mark.parametrize("backend", [MATH, FLASH, EFFICIENT, CUDNN])
@pytest.mark.parametrize(
    "case",
    ["plain", "causal", "rectangle", "bool mask", "float mask", "grouped", "scale", "narrow values", "strided"],
)
def test_values_agree_with_the_cpu(card: str, backend: SDPBackend, case: str) -> None:
    kwargs: dict[str, Any] = {}
    shape: dict[str, int] = {}
    if case == "causal":
        kwargs["is_causal"] = True
    if case == "rectangle":
        shape["keys"] = 72
    if case == "grouped":
        shape["kv_heads"], kwargs["enable_gqa"] = 2, True
    if case == "scale":
        kwargs["scale"] = 0.3
    q, k, v = operands(**shape)
    if case == "narrow values":
        v = v.detach()[..., :8].contiguous().requires_grad_()
    if case == "strided":
        q, k, v = (t.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for t in (q, k, v))
    mask = None
    if case == "bool mask":
        mask = torch.rand(2, 1, 40, 40, device="cuda") > 0.3
    if case == "float mask":
        mask = torch.randn(40, 40, device="cuda", dtype=HALF)
    with sdpa_kernel(backend):
        unfit = {FLASH: ("bool mask", "float mask", "narrow values"), EFFICIENT: ("grouped",)}
        if case in unfit.get(backend, ()):
            pytest.skip("not for this kernel")
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **kwargs)
    host = on_host((q, k, v))
    if mask is not None:
        kwargs["attn_mask"] = mask.cpu() if mask.dtype is torch.bool else mask.cpu().double()
    expected = F.scaled_dot_product_attention(*host, **kwargs)
    torch.testing.assert_close(out.cpu().double(), expected, atol=5e-3, rtol=5e-3)
    weight = torch.randn(out.shape)
    (out * weight.to("cuda", HALF)).sum().backward()
    (expected * weight.half().double()).sum().backward()
    for tensor, reference in zip((q, k, v), host, strict=True):
        torch.testing.assert_close(tensor.grad.cpu().double(), reference.grad, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("card", ["a100"], indirect=True)
@pytest.mark.parametrize("backend", [FLASH, EFFICIENT])
def test_dropout(card: str, backend: SDPBackend) -> None:
    """Drawn from the device's generator, the same in backward, kept values scaled."""
    q, k, v = operands(rows=64, keys=64)

    def run() -> torch.Tensor:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, dropout_p=0.25)

    torch.cuda.manual_seed(3)
    first = run()
    assert not torch.equal(run(), first)
    torch.cuda.manual_seed(3)
    assert torch.equal(run(), first)
    # The output is linear in the values: with the forward's mask in backward, <grad, v> is <out, weight>.
    weight = torch.randn_like(first)
    (of_values,) = torch.autograd.grad(first, v, weight)
    torch.testing.assert_close(
        (of_values.float() * v.float()).sum(), (first.float() * weight.float()).sum(), rtol=1e-2, atol=0.2
    )
    ones = torch.ones_like(v)
    with sdpa_kernel(backend):
        kept = F.scaled_dot_product_attention(torch.zeros_like(q), k, ones, dropout_p=0.25)
    assert abs(kept.float().mean().item() - 1) < 0.05


@pytest.mark.usefixtures("machine")
def test_fused_kernels_take_rows_that_are_contiguous() -> None:
    turned = torch.randn(2, 4, 32, 8, device="cuda").transpose(2, 3)
    assert F.scaled_dot_product_attention(turned, turned, turned).shape == turned.shape  # by products
    ops: Any = torch.ops.aten
    with pytest.raises(RuntimeError, match="query: last dimension must be contiguous"):
        ops._scaled_dot_product_efficient_attention(turned, turned, turned, None, True)
    half = turned.bfloat16()
    with pytest.raises(RuntimeError, match="Input tensor must have contiguous last dimension"):
        ops._scaled_dot_product_flash_attention(half, half, half)
    query = turned.contiguous()
    mask = torch.ones(2, 1, 1, 1, dtype=torch.bool, device="cuda")
    with pytest.raises(RuntimeError, match=r"\(\*bias\): last dimension must be contiguous"):
        F.scaled_dot_product_attention(query, query, query, attn_mask=mask)


@pytest.mark.usefixtures("machine")
def test_what_the_flash_kernel_returns() -> None:
    q, k, v = operands(rows=33, keys=33)
    out, sums, cum_q, cum_k, max_q, max_k, state, unused, debug = aten._scaled_dot_product_flash_attention(q, k, v)
    assert out.shape == q.shape
    assert sums.shape == (2, 4, 33)
    assert sums.dtype is FLOAT
    assert (cum_q, cum_k, max_q, max_k) == (None, None, 33, 33)
    assert state.shape == (2,)
    assert state.dtype is unused.dtype is torch.uint64
    assert debug.numel() == 0
    scores = q.float().cpu() @ k.float().cpu().transpose(-1, -2) / 4
    torch.testing.assert_close(sums.cpu(), scores.logsumexp(-1).detach(), atol=1e-3, rtol=1e-3)
    with pytest.raises(RuntimeError, match="FlashAttention only support fp16 and bf16 data type"):
        aten._scaled_dot_product_flash_attention(*operands(FLOAT))


@pytest.mark.usefixtures("machine")
def test_what_the_efficient_kernel_returns() -> None:
    q, k, v = operands(FLOAT, rows=33, keys=33)
    out, sums, seed, offset = aten._scaled_dot_product_efficient_attention(q, k, v, None, True)
    assert out.transpose(1, 2).is_contiguous()
    assert sums.shape == (2, 4, 64)  # rows padded to 32
    assert not seed.is_cuda
    assert offset.dtype is torch.int64
    assert aten._scaled_dot_product_efficient_attention(q, k, v, None, False)[1].numel() == 0


@pytest.mark.parametrize("card", ["h100"], indirect=True)
def test_what_the_cudnn_kernel_returns(card: str) -> None:
    q, k, v = operands()
    out, sums, *_, debug = aten._scaled_dot_product_cudnn_attention(q, k, v, None, True)
    assert out.stride() == q.stride()
    assert sums.shape == (2, 4, 40, 1)
    assert sums.is_contiguous()  # a compiled program asserts it
    assert debug is None


def rounded(nbytes: int) -> int:
    return -(-nbytes // 512) * 512


def held_and_peak(backend: SDPBackend, dtype: torch.dtype, rows: int, **kwargs: Any) -> tuple[int, int]:
    q, k, v = operands(dtype, rows=rows, keys=rows, width=64)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    with sdpa_kernel(backend):
        out = F.scaled_dot_product_attention(q, k, v, **kwargs)
    held, peak = torch.cuda.memory_allocated() - before, torch.cuda.max_memory_allocated() - before
    del out
    return held, peak


@pytest.mark.parametrize("card", ["a100"], indirect=True)
def test_fused_kernels_hold_no_square_matrix(card: str) -> None:
    rows = 2048
    matrix, rows_of_floats = 2 * 4 * rows * rows * 2, 2 * 4 * rows * 4
    output = 2 * 4 * rows * 64 * 2
    held, peak = held_and_peak(FLASH, HALF, rows)
    assert held == output + rows_of_floats + 2 * 512  # logsumexp; rng_state and its twin
    assert peak < held + 2048
    held, peak = held_and_peak(EFFICIENT, FLOAT, rows)
    assert held == peak == 2 * output + rows_of_floats
    held, peak = held_and_peak(MATH, FLOAT, 512)
    assert held > 2 * 4 * 512 * 512 * 4 * 1.9  # softmax's result before and after `where`
    assert matrix > 100 * output / 64


@pytest.mark.parametrize("card", ["a100"], indirect=True)
def test_flash_pads_heads_and_splits_the_keys_of_small_calls(card: str) -> None:
    q, k, v = operands(rows=1, keys=4096, width=64)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    with torch.no_grad():
        out = F.scaled_dot_product_attention(q, k, v)
    held = torch.cuda.memory_allocated() - before
    # 8 blocks for 216 half-SMs, 16 blocks of 256 keys: all 16 splits, each with a float32 output of its own
    splits = 16 * 8 * 4
    assert torch.cuda.max_memory_allocated() - before >= rounded(splits * 64) + rounded(splits) + 2 * 512
    assert held == 1024
    del out
    q, k, v = operands(rows=128, keys=128, width=12)
    before = torch.cuda.memory_allocated()
    out = F.scaled_dot_product_attention(q, k, v)
    padded = 2 * 4 * 128 * 16 * 2
    assert out.shape[-1] == 12
    assert torch.cuda.memory_allocated() - before == 4 * padded + 2 * 4 * 128 * 4 + 1024  # q, k, v and the output


@pytest.mark.parametrize("card", ["a100"], indirect=True)
def test_gradients_of_one_projection_have_their_own_memory(card: str) -> None:
    """As in attention_backward.cu, which gives ``shared_storage_dqdkdv`` no value; Inductor relies on it, too."""
    qkv = torch.randn(2, 64, 3, 4, 16, device="cuda", requires_grad=True)
    q, k, v = (qkv.select(2, i).transpose(1, 2) for i in range(3))
    grads = torch.autograd.grad(F.scaled_dot_product_attention(q, k, v).sum(), (q, k, v))
    assert len({grad.untyped_storage()._cdata for grad in grads}) == 3
    host = qkv.detach().cpu().requires_grad_()
    parts = [host.select(2, i).transpose(1, 2) for i in range(3)]
    expected = torch.autograd.grad(F.scaled_dot_product_attention(*parts).sum(), parts)
    torch.testing.assert_close([grad.cpu() for grad in grads], list(expected))


def test_planned_without_numbers() -> None:
    lab.enable("a100:1", compute="meta")
    try:
        q, k, v = operands(rows=4096, keys=4096)
        before = torch.cuda.memory_allocated()
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        assert torch.cuda.memory_allocated() - before == q.nbytes + 2 * 4 * 4096 * 4 + 1024
        out.sum().backward()
        assert q.grad.shape == q.shape
    finally:
        lab.disable()


@pytest.mark.usefixtures("machine")
def test_wrong_arguments() -> None:
    q, k, v = operands()
    with pytest.raises(RuntimeError, match="Expected attn_mask dtype to be bool or float or to match query dtype"):
        F.scaled_dot_product_attention(q, k, v, attn_mask=torch.zeros(40, 40, dtype=torch.int64, device="cuda"))
    with (
        pytest.raises(RuntimeError, match="Explicit attn_mask should not be set when is_causal=True"),
        sdpa_kernel(MATH),
    ):
        F.scaled_dot_product_attention(q, k, v, attn_mask=torch.zeros(40, 40, device="cuda"), is_causal=True)


@pytest.mark.parametrize("card", ["a100"], indirect=True)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(2, 0, 24, 32), (2, 4, 0, 32), (0, 4, 24, 32)], ids=["heads", "tokens", "batch"])
def test_attention_of_nothing_is_empty(card: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    # torch's CPU kernel divides by the number of heads, queries and keys: the process ended
    q = torch.ones(shape, device="cuda", dtype=dtype, requires_grad=True)
    fused = []
    if dtype is torch.float32:
        fused.append(aten._scaled_dot_product_efficient_attention(q, q, q, None, True, 0.0, False)[0])
    else:
        fused.append(aten._scaled_dot_product_flash_attention(q, q, q, 0.0, False)[0])
        fused.append(aten._scaled_dot_product_cudnn_attention(q, q, q, None, True, 0.0, False)[0])
    for result in (*fused, F.scaled_dot_product_attention(q, q, q)):
        assert result.shape == shape
        result.sum().backward()
    assert q.grad is not None
    assert q.grad.shape == shape


@pytest.mark.parametrize("card", ["a100"], indirect=True)
def test_attention_to_no_keys_is_zero(card: str) -> None:
    q = torch.ones(2, 4, 8, 32, device="cuda")
    out, sums, *_ = aten._scaled_dot_product_efficient_attention(q, q[:, :, :0], q[:, :, :0], None, True)
    assert not out.any()
    assert (sums[:, :, :8] == -torch.inf).all()
    with pytest.raises(RuntimeError, match="Number of heads in key/value must divide"):
        aten._scaled_dot_product_efficient_attention(q, q[:, :0], q[:, :0], None, True)
