"""What ops cost: FLOPs as torch counts them, bytes as they lie in memory, and no kernel for free."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import fakegpu_lab as lab
from tests.fidelity.training import Bottleneck

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.hardware.time.records import Kernel

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "linear", "linear_backward", "convolution", "convolution_backward")
MIB = 2**20


def kernels(run: Callable[[], Any]) -> list[Kernel]:
    with lab.record() as trace:
        run()
    return trace.kernels


def one(run: Callable[[], Any]) -> Kernel:
    """The kernel of one op."""
    (kernel,) = kernels(run)
    return kernel


@pytest.fixture
def card(request: pytest.FixtureRequest) -> Any:
    """A card without numbers: `a100`, or what the test asks for."""
    lab.enable(getattr(request, "param", "a100"), compute="meta")
    yield
    lab.disable()


class Attention(nn.Module):
    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("what", ["mlp", "resnet", "flash", "efficient", "math", "conv1d", "transposed"])
def test_flops_are_those_of_torchs_counter(card: None, what: str) -> None:
    dtype = torch.float16 if what == "flash" else torch.float32
    with torch.device("cuda"):
        model: nn.Module
        if what == "mlp":
            model = nn.Sequential(nn.Linear(96, 64, bias=False), nn.GELU(), nn.Linear(64, 8, bias=False))
            x = torch.randn(32, 96)
        elif what == "resnet":
            model, x = Bottleneck(64, 32, 2), torch.randn(4, 64, 28, 28)
        elif what == "conv1d":
            model, x = nn.Conv1d(16, 32, 5, bias=False), torch.randn(4, 16, 100)
        elif what == "transposed":
            model, x = nn.ConvTranspose2d(16, 8, 4, 2, bias=False), torch.randn(4, 16, 20, 20)
        else:
            model, x = Attention().to(dtype), torch.randn(2, 128, 64, dtype=dtype)
    backend = {"flash": "FLASH_ATTENTION", "math": "MATH"}.get(what, "EFFICIENT_ATTENTION")
    x.requires_grad_()

    def run() -> None:
        with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, backend)):
            model(x).sum().backward()

    with FlopCounterMode(display=False) as counter:
        run()
    counted = sum(
        kernel.flops
        for kernel in kernels(run)
        if kernel.name.removeprefix("aten::") in PRODUCTS or "scaled_dot_product" in kernel.name
    )
    assert counted == counter.get_total_flops() > 0


def test_expanded_operands_count_as_they_lie_in_memory(card: None) -> None:
    row = torch.empty(1, 1024, device="cuda")
    whole = torch.empty(4096, 1024, device="cuda")
    expanded = one(lambda: row.expand(4096, 1024).exp())
    assert expanded.nbytes == whole.nbytes + row.nbytes
    assert one(lambda: whole.exp()).nbytes == 2 * whole.nbytes
    assert one(lambda: whole[:, ::2].exp()).nbytes == whole.nbytes
    windows = torch.empty(MIB, device="cuda").unfold(0, 1024, 1)
    assert one(lambda: windows.sum(1)).nbytes < 12 * MIB


def test_views_and_empty_tensors_launch_nothing(card: None) -> None:
    x = torch.empty(64, 64, device="cuda")
    assert kernels(lambda: (x.t(), x.view(-1), x[3:5], x.expand(2, 64, 64), torch.empty_like(x), x.unbind())) == []


@pytest.mark.parametrize("which", ["flash", "efficient", "cudnn"])
def test_fused_attention_takes_time_and_no_square_matrix(card: None, which: str) -> None:
    name = {"flash": "FLASH", "efficient": "EFFICIENT", "cudnn": "CUDNN"}[which] + "_ATTENTION"
    backend = getattr(torch.nn.attention.SDPBackend, name)

    def run(length: int) -> int:
        q = torch.empty(1, 8, length, 64, device="cuda", dtype=torch.float16, requires_grad=True)
        with torch.nn.attention.sdpa_kernel(backend):
            made = kernels(lambda: F.scaled_dot_product_attention(q, q, q).backward(q))
        both = [kernel for kernel in made if "scaled_dot_product" in kernel.name]
        assert len(both) == 2
        assert all(kernel.nbytes < 2 * 8 * length * length for kernel in both)
        return sum(kernel.end_ns - kernel.start_ns for kernel in both)

    assert run(8192) > 3 * run(4096) > 0


def test_flash_is_quicker_than_the_memory_efficient_kernel_and_both_than_math(card: None) -> None:
    q = torch.empty(4, 16, 4096, 64, device="cuda", dtype=torch.float16)
    times = []
    for name in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH"):
        with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, name)):
            made = kernels(lambda: F.scaled_dot_product_attention(q, q, q))
        times.append(sum(kernel.end_ns - kernel.start_ns for kernel in made))
    assert times[0] < times[1] < times[2]


def test_a_narrow_head_costs_what_a_wider_one_does(card: None) -> None:
    def ns(width: int) -> int:
        q = torch.empty(4, 16, 4096, width, device="cuda", dtype=torch.float16)
        kernel = one(lambda: F.scaled_dot_product_attention(q, q, q))
        return kernel.end_ns - kernel.start_ns

    assert ns(40) == pytest.approx(ns(64), rel=0.01)
    assert ns(32) < 0.6 * ns(40)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_vocabulary_of_odd_size_is_slow_forward_and_backward(card: None, dtype: torch.dtype) -> None:
    def ns(words: int, *, layer: bool) -> list[int]:
        x = torch.empty(8192, 768, device="cuda", dtype=dtype, requires_grad=True)
        head = nn.Linear(768, words, bias=False, device="cuda", dtype=dtype)
        grad = torch.empty(8192, words, device="cuda", dtype=dtype)
        made = kernels(lambda: (head(x) if layer else x @ head.weight.detach().t().requires_grad_()).backward(grad))
        return [kernel.end_ns - kernel.start_ns for kernel in made if kernel.flops >= 2 * 8192 * 768 * words]

    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        for layer in (True, False):
            times = [odd / even for odd, even in zip(ns(50257, layer=layer), ns(50304, layer=layer), strict=True)]
            assert len(times) == 3
            assert all(3 < time < 5 if dtype is torch.bfloat16 else 1.5 < time < 2.1 for time in times), times
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


def test_a_reduction_fills_the_card_by_what_it_reads(card: None) -> None:
    numbers = torch.empty(65_536, device="cuda")
    total = one(lambda: numbers.sum())
    assert total.share == one(lambda: numbers.exp()).share > 0.05


def test_tensor_cores_take_the_channels_last(card: None) -> None:
    conv = nn.Conv2d(64, 64, 3, padding=1, bias=False, device="cuda", dtype=torch.float16)
    x = torch.empty(64, 64, 56, 56, device="cuda", dtype=torch.float16)
    first = one(lambda: conv(x))
    conv.to(memory_format=torch.channels_last)
    x = x.to(memory_format=torch.channels_last)
    last = one(lambda: conv(x))
    assert first.nbytes - last.nbytes == 2 * (2 * x.nbytes + conv.weight.nbytes)  # x, its weight and the result
    assert first.duration > 1.15 * last.duration


def test_without_tensor_cores_the_layout_does_not_matter(card: None) -> None:
    conv = nn.Conv2d(64, 64, 3, padding=1, bias=False, device="cuda", dtype=torch.float64)
    x = torch.empty(8, 64, 56, 56, device="cuda", dtype=torch.float64)
    last = conv.to(memory_format=torch.channels_last)(x.to(memory_format=torch.channels_last))
    assert last.is_contiguous()  # ConvUtils.h: cuDNN takes no channels last of float64
    x32 = torch.empty(8, 64, 56, 56, device="cuda")
    with torch.backends.cudnn.flags(allow_tf32=False):
        conv = nn.Conv2d(64, 64, 3, padding=1, bias=False, device="cuda")
        plain = one(lambda: conv(x32))
    assert plain.nbytes == 2 * x32.nbytes + conv.weight.nbytes


def test_single_precision_needs_no_alignment(card: None) -> None:
    """Megatron's advice to pad the vocabulary is about tensor cores."""
    x = torch.empty(4096, 768, device="cuda")
    odd, even = (torch.empty(768, n, device="cuda") for n in (50257, 50304))
    assert one(lambda: x @ odd).duration <= one(lambda: x @ even).duration
    half, odd, even = x.half(), odd.half(), even.half()
    assert one(lambda: half @ odd).duration > 1.5 * one(lambda: half @ even).duration


@pytest.mark.parametrize("card", ["v100"], indirect=True)
def test_a_3x3_convolution_of_floats_takes_fewer_multiplications(card: None) -> None:
    """Winograd's, where the stride is 1."""
    x = torch.empty(32, 128, 56, 56, device="cuda")
    plain, strided = (nn.Conv2d(128, 128, 3, stride, 1, bias=False, device="cuda") for stride in (1, 2))
    near, far = one(lambda: plain(x)), one(lambda: strided(x))
    assert near.flops == 4 * far.flops
    assert near.duration < 2.9 * far.duration


@pytest.mark.parametrize(
    ("card", "batch", "channels", "dtype", "nbytes"),
    [
        ("rtx3090ti", 2, 64, torch.float32, 8_536_576),
        ("rtx3090ti", 2, 64, torch.bfloat16, 8_462_848),
        ("rtx3090ti", 4, 128, torch.float32, 8_978_944),
        ("rtx5090", 2, 64, torch.float32, 16_925_184),
    ],
    indirect=["card"],
)
def test_cudnn_takes_memory_for_its_copies(
    card: None, batch: int, channels: int, dtype: torch.dtype, nbytes: int
) -> None:
    """What the allocator of real cards gave it for a 3×3 convolution of square images."""
    size = 128 if channels == 64 else 64
    x = torch.empty(batch, channels, size, size, device="cuda", dtype=dtype)
    weight = torch.empty(channels, channels, 3, 3, device="cuda", dtype=dtype)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    y = F.conv2d(x, weight, padding=1)
    assert torch.cuda.max_memory_allocated() - before - y.nbytes == nbytes
    assert torch.cuda.memory_allocated() == before + y.nbytes


def test_an_evaluated_batch_norm_is_one_pass(card: None) -> None:
    x, norm = torch.empty(64, 64, 56, 56, device="cuda"), nn.BatchNorm2d(64, device="cuda")
    training = max(kernels(lambda: norm(x)), key=lambda kernel: kernel.nbytes)
    evaluated = max(kernels(lambda: norm.eval()(x)), key=lambda kernel: kernel.nbytes)
    assert evaluated.nbytes < 0.75 * training.nbytes


def test_a_pointwise_convolution_is_a_product_in_either_layout(card: None) -> None:
    """Nothing is copied, neither forward nor for the input's gradient; for a larger window or step, everything is."""
    x = torch.empty(32, 64, 56, 56, device="cuda", dtype=torch.float16)

    def moved(window: int, stride: int = 1, groups: int = 1) -> int:
        def forward(layout: torch.memory_format) -> int:
            conv = nn.Conv2d(64, 64, window, stride, groups=groups, bias=False, device="cuda", dtype=torch.float16)
            source = x.to(memory_format=layout)
            conv.to(memory_format=layout)
            return one(lambda: conv(source)).nbytes

        return forward(torch.contiguous_format) - forward(torch.channels_last)

    assert moved(1) == 0
    assert moved(3) > 2 * x.nbytes
    assert moved(1, stride=2) > 2 * x.nbytes
    assert moved(1, groups=2) > 2 * x.nbytes

    def backward(window: int, layout: torch.memory_format) -> int:
        conv = nn.Conv2d(64, 64, window, padding=window // 2, bias=False, device="cuda", dtype=torch.float16)
        conv.to(memory_format=layout).weight.requires_grad_(False)
        y = conv(x.to(memory_format=layout).detach().requires_grad_())
        gradient = torch.empty_like(y)
        return sum(k.nbytes for k in kernels(lambda: y.backward(gradient)) if "convolution" in k.name)

    first, last = (backward(1, layout) for layout in (torch.contiguous_format, torch.channels_last))
    assert first == last
    assert backward(3, torch.contiguous_format) > backward(3, torch.channels_last) + 4 * x.nbytes


def test_a_bias_is_added_by_a_kernel_of_its_own(card: None) -> None:
    """It reads and writes the result. A depthwise convolution adds it itself."""
    x = torch.empty(32, 64, 56, 56, device="cuda")
    for groups, passes in ((1, 2), (64, 0)):
        without, having = (
            nn.Conv2d(64, 64, 3, padding=1, groups=groups, bias=bias, device="cuda") for bias in (False, True)
        )
        plain, biased = one(partial(without, x)), one(partial(having, x))
        assert biased.nbytes - plain.nbytes == passes * x.nbytes + 64 * 4
        assert biased.duration - plain.duration == pytest.approx(
            lab.machine().devices[0].roofline.streaming(2 * x.nbytes) / 1e9 if passes else 0.0, rel=0.05, abs=1e-7
        )


def test_the_gradient_of_a_depthwise_weight_reads_the_images_for_each_place_of_the_window(card: None) -> None:
    def ns(size: int) -> int:
        conv = nn.Conv2d(64, 64, size, padding=size // 2, groups=64, bias=False, device="cuda")
        y = conv(torch.empty(64, 64, 56, 56, device="cuda"))
        (kernel,) = [kernel for kernel in kernels(lambda: y.backward(y)) if "convolution" in kernel.name]
        return kernel.end_ns - kernel.start_ns

    both = 2 * 64 * 64 * 56 * 56 * 4
    assert ns(7) - ns(3) > 40 * both / (108 * 45)  # from L2: 45 bytes a nanosecond for each multiprocessor of an A100


def test_depthwise_convolutions_are_no_products(card: None) -> None:
    x = torch.empty(32, 384, 28, 28, device="cuda", dtype=torch.float16)
    conv = nn.Conv2d(384, 384, 3, padding=1, groups=384, bias=False, device="cuda", dtype=torch.float16)
    assert one(lambda: conv(x)).duration < 200e-6


def test_a_depthwise_convolution_in_double_precision_takes_as_long_as_its_units_need(card: None) -> None:
    lab.enable("rtx4090", compute="meta")
    took = {}
    for dtype in (torch.float32, torch.float64):
        x = torch.empty(32, 384, 28, 28, device="cuda", dtype=dtype)
        conv = nn.Conv2d(384, 384, 7, padding=3, groups=384, bias=False, device="cuda", dtype=dtype)
        took[dtype] = one(partial(conv, x)).duration
    assert took[torch.float64] > 10 * took[torch.float32]


@pytest.mark.parametrize(("name", "lists"), [("AdamW", 7), ("SGD", 5)])
def test_a_fused_optimizer_is_one_pass_over_its_lists(card: None, name: str, lists: int) -> None:
    layer = nn.Linear(2048, 2048, bias=False, device="cuda")
    options = {"momentum": 0.9} if name == "SGD" else {}
    optimizer = getattr(torch.optim, name)(layer.parameters(), 0.1, fused=True, **options)
    layer.weight.grad = torch.empty_like(layer.weight)
    optimizer.step()
    made = [kernel for kernel in kernels(optimizer.step) if "_fused_" in kernel.name]
    assert [kernel.nbytes for kernel in made] == pytest.approx([lists * layer.weight.nbytes], rel=1e-3)


def test_a_loss_reads_one_score_of_each_row(card: None) -> None:
    scores = torch.empty(1024, 30528, device="cuda")
    target = torch.empty(1024, device="cuda", dtype=torch.long)
    assert one(lambda: F.nll_loss(scores, target)).nbytes < 0.01 * scores.nbytes


def test_an_embedding_bag_reads_the_rows_it_is_asked_for(card: None) -> None:
    table = torch.empty(1_000_000, 64, device="cuda")
    indices = torch.zeros(1000, 8, device="cuda", dtype=torch.long)
    with lab.record() as trace:
        F.embedding_bag(indices, table)
    bag = next(kernel for kernel in trace.kernels if "embedding_bag" in kernel.name)
    assert bag.nbytes < 0.05 * table.nbytes


def rate(dtype: torch.dtype, n: int = 4096) -> float:
    x = torch.empty(n, n, device="cuda", dtype=dtype)
    return 2 * n**3 / one(lambda: x @ x).duration


@pytest.mark.parametrize("card", ["v100", "t4"], indirect=True)
def test_bfloat16_is_computed_in_float32_where_there_are_no_units_for_it(card: None) -> None:
    assert rate(torch.bfloat16) == pytest.approx(rate(torch.float32), rel=0.1)
    assert rate(torch.float16) > 3 * rate(torch.float32)


def test_formats_of_an_a100(card: None) -> None:
    single = rate(torch.float32)
    assert rate(torch.bfloat16) / single == pytest.approx(312 / 19.5, rel=0.2)
    assert rate(torch.float64) == pytest.approx(single, rel=0.2)  # by tensor cores: 19.5 TFLOP/s both
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        assert rate(torch.float32) / single == pytest.approx(156 / 19.5, rel=0.2)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.parametrize("card", ["rtx2080ti"], indirect=True)
def test_a_consumer_card_multiplies_halves_at_half_its_marketed_rate(card: None) -> None:
    peak = lab.machine().devices[0].profile.peak_flops
    assert peak.fp16 is not None
    assert rate(torch.float16) <= peak.fp16


def test_the_corners_of_a_matrix_cost_their_bytes(card: None) -> None:
    assert one(lambda: torch.tril_indices(4096, 4096, device="cuda")).nbytes == 2 * 8 * 4096 * 4097 // 2


def test_one_query_of_grouped_heads_takes_as_long_as_the_shared_keys(card: None) -> None:
    """PyTorch's flash attention makes rows of one tile of the queries of a group (flash_api.cpp)."""
    dtype = torch.bfloat16
    q = torch.empty(64, 32, 1, 128, device="cuda", dtype=dtype)
    whole, shared = (torch.empty(64, heads, 512, 128, device="cuda", dtype=dtype) for heads in (32, 8))
    alone = one(lambda: F.scaled_dot_product_attention(q, whole, whole))
    grouped = one(lambda: F.scaled_dot_product_attention(q, shared, shared, enable_gqa=True))
    assert grouped.flops == alone.flops
    assert 3.5 < alone.duration / grouped.duration < 4.5


def test_packed_attention_costs_what_its_kernel_does() -> None:
    lab.enable("a100")
    aten, rows = torch.ops.aten, 512
    q = torch.zeros(rows, 16, 64, dtype=torch.float16, device="cuda")
    ends = torch.tensor([0, rows], dtype=torch.int32, device="cuda")
    flash = kernels(lambda: aten._flash_attention_forward(q, q, q, ends, ends, rows, rows, 0.0, False, False))[-1]
    efficient = kernels(
        lambda: aten._efficient_attention_forward(q[None], q[None], q[None], None, ends, ends, rows, rows, 0.0, 0)
    )[-1]
    lab.disable()
    assert flash.flops == efficient.flops
    assert flash.duration < efficient.duration  # half the speed on an A100: roofline.ATTENTION_EFFICIENCY


def test_a_complex_product_is_four_real_ones(card: None) -> None:
    a, b = (torch.empty(2048, 2048, device="cuda", dtype=torch.complex64) for _ in range(2))
    x, y = (torch.empty(4, 2048, 2048, device="cuda") for _ in range(2))
    assert one(lambda: a @ b).duration == pytest.approx(one(lambda: torch.bmm(x, y)).duration, rel=0.05)


@pytest.mark.parametrize(("card", "factor"), [("a100", 0.65), ("h100", 0.38)], indirect=["card"])
def test_flash_reaches_the_published_share_of_the_peak(card: None, factor: float) -> None:
    """FlashAttention-2 on an A100 (arXiv:2307.08691), and on an H100 (arXiv:2407.08608)."""
    q = torch.empty(8, 16, 8192, 128, device="cuda", dtype=torch.bfloat16)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        kernel = one(lambda: F.scaled_dot_product_attention(q, q, q))
    profile = lab.machine().devices[0].profile
    assert kernel.flops / kernel.duration / profile.peak("bf16") == pytest.approx(factor, rel=0.02)


@pytest.mark.parametrize(("amsgrad", "lists"), [(False, 4), (True, 5)])
def test_a_fused_step_of_adam_reads_all_lists_and_writes_all_but_the_gradients(
    card: None, amsgrad: bool, lists: int
) -> None:
    weight = nn.Parameter(torch.empty(MIB, device="cuda"))
    weight.grad = torch.empty_like(weight)
    optimizer = torch.optim.Adam([weight], fused=True, amsgrad=amsgrad)
    optimizer.step()
    step = next(kernel for kernel in kernels(optimizer.step) if "fused_adam" in kernel.name)
    assert step.nbytes == pytest.approx((2 * lists - 1) * 4 * MIB, rel=0.01)


def test_a_fused_step_of_sgd_writes_weights_and_momentum(card: None) -> None:
    weight = nn.Parameter(torch.empty(MIB, device="cuda"))
    weight.grad = torch.empty_like(weight)
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9, fused=True)
    optimizer.step()
    step = next(kernel for kernel in kernels(optimizer.step) if "fused_sgd" in kernel.name)
    assert step.nbytes == pytest.approx(5 * 4 * MIB, rel=0.01)


def test_a_norm_reads_its_operands_twice_in_training(card: None) -> None:
    x, norm = torch.empty(64, 64, 56, 56, device="cuda"), nn.BatchNorm2d(64, device="cuda")
    assert one(lambda: torch.native_batch_norm(x, norm.weight, norm.bias, None, None, True, 0.1, 1e-5)).nbytes == (
        pytest.approx(3 * x.nbytes, rel=0.01)
    )


def test_a_solver_counts_its_matrix_and_not_the_right_hand_side(card: None) -> None:
    a, b = torch.empty(512, 512, device="cuda"), torch.empty(512, 3, device="cuda")
    made = {kernel.name: kernel.flops for kernel in kernels(lambda: torch.linalg.solve_triangular(a, b, upper=True))}
    assert made["aten::linalg_solve_triangular"] == 2 * 512**3


@pytest.mark.parametrize(
    ("card", "mib"), [("h100", 32), ("b200", 32), ("rtx5090", 32), ("a100", 8.125)], indirect=["card"]
)
def test_cublas_takes_its_workspace_by_the_cards_generation(card: None, mib: float) -> None:
    """getChosenWorkspaceSize in aten/src/ATen/cuda/CublasHandlePool.cpp."""
    a = torch.empty(64, 64, device="cuda")
    held = torch.cuda.memory_allocated()
    out = a @ a
    assert torch.cuda.memory_allocated() - held - out.nbytes == mib * MIB


def test_cublas_takes_the_workspace_that_the_environment_names(card: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:2:16:8")  # 2 × 4 MiB and 8 × 16 KiB
    a = torch.empty(64, 64, device="cuda")
    held = torch.cuda.memory_allocated()
    out = a @ a
    assert torch.cuda.memory_allocated() - held - out.nbytes == 8.125 * MIB
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    lab.enable("h100", compute="meta")
    a = torch.empty(64, 64, device="cuda")
    held = torch.cuda.memory_allocated()
    out = a @ a
    assert torch.cuda.memory_allocated() - held - out.nbytes == 0.125 * MIB


@pytest.mark.usefixtures("card")
def test_a_kernel_writes_its_out_and_does_not_read_it() -> None:
    x, y = torch.ones(1 << 20, device="cuda"), torch.ones(1 << 20, device="cuda")
    for plain, out in (
        (lambda: x * 2, lambda: torch.mul(x, 2, out=y)),
        (lambda: x + y, lambda: torch.add(x, y, out=y)),
        (lambda: x.exp(), lambda: torch.exp(x, out=y)),
        (lambda: x.sum(0), lambda: torch.sum(x, 0, out=torch.empty((), device="cuda"))),
    ):
        assert (one(out).nbytes, one(out).end_ns - one(out).start_ns) == (
            one(plain).nbytes, one(plain).end_ns - one(plain).start_ns,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("run", "flops"),
    [
        (lambda x: F.bilinear(torch.ones(256, 1, device="cuda"), x, x[:, None, :]), 3 * 256**3),
        (lambda x: torch.cdist(x, x), 2 * 256**2 * 258 + 2 * 256**2),
        (lambda x: torch.cdist(x, x, p=1), 3 * 256**3),
        (lambda x: F.pdist(x), 3 * 256 * 255 // 2 * 256),
        (lambda x: torch.conv_tbc(x.view(8, 32, 256), torch.ones(1, 256, 256, device="cuda"), x[0]), 2 * 256**3),
        (torch.linalg.pinv, 20 * 256**3),
    ],
)
def test_what_is_no_product_by_its_name_costs_what_it_computes(card: None, run: Any, flops: int) -> None:
    x = torch.empty(256, 256, device="cuda")
    dear = max(kernels(lambda: run(x)), key=lambda kernel: kernel.flops)
    assert dear.flops == flops
    assert dear.duration > 0.3 * one(lambda: x @ x).duration


@pytest.mark.parametrize(
    ("make", "moved"),
    [
        (lambda x: x.new_zeros(64, 64), 1), (lambda x: x.new_full((64, 64), 2.0), 1), (lambda x: x.new_ones(64, 64), 1),
        (lambda x: x.clone(), 2), (lambda x: x.t().contiguous(), 2), (lambda x: torch.cat([x, x]), 4),
        (lambda x: torch.stack([x, x]), 4), (lambda x: torch.zeros_like(x), 1),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("machine")
def test_what_fills_or_copies_computes_nothing(make: Callable[[torch.Tensor], torch.Tensor], moved: int) -> None:
    """`a.new_zeros(…)` read `a`, and counted an operation for each number: it was taken for arithmetic of torch's."""
    x = torch.ones(64, 64, device="cuda")
    with lab.record() as trace:
        make(x)
    assert [(kernel.flops, kernel.nbytes) for kernel in trace.kernels] == [(0, moved * x.nbytes)]
