"""``compute="meta"``: the memory, kernels and copies of ``compute="real"``, without numbers; a model of 8 billion."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import fakegpu_lab as lab
from fakegpu_lab.driver.base.cuda_messages import TORCH_VERSION
from fakegpu_lab.hardware.catalogue.sizes import format_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Steps = Iterator[object]

MiB, GiB = 2**20, 2**30
PROGRAM = Path(__file__).parent.parent / "programs" / "gpt_8b.py"
GPU: Any = {"device": "cuda"}


@pytest.fixture
def off() -> Iterator[None]:
    yield
    lab.disable()


@pytest.fixture
def meta(off: None) -> None:
    lab.enable("h100", compute="meta")


# --- the same memory, step by step ---------------------------------------------------------------------------------


def train(model: nn.Module, optimizer: Any, batch: Callable[[], tuple[Any, Any]], loss: Any = F.cross_entropy) -> Steps:
    for _ in range(2):
        x, y = batch()
        loss(model(x), y).backward()
        yield "backward"
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        yield "step"


def images() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(4, 3, 32, 32).cuda(), torch.randint(10, (4,)).cuda()


def mlp() -> Steps:
    model = nn.Sequential(nn.Linear(300, 600), nn.ReLU(), nn.Dropout(0.1), nn.Linear(600, 10)).cuda()
    yield "model"
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    yield from train(model, optimizer, lambda: (torch.randn(64, 300, **GPU), torch.randint(10, (64,), **GPU)))


def cnn(memory_format: torch.memory_format = torch.contiguous_format) -> Steps:
    layers = (
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, stride=2, bias=False), nn.GroupNorm(4, 32), nn.SiLU(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(288, 10),
    )  # fmt: skip
    model = nn.Sequential(*layers).to("cuda", memory_format=memory_format)
    model[4].weight.requires_grad_(requires_grad=False)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        x, y = images()
        return x.contiguous(memory_format=memory_format), y

    yield from train(model, optimizer, batch)
    model.eval()
    with torch.no_grad():
        model(batch()[0])
    yield "evaluation"


def cnn_channels_last() -> Steps:
    return cnn(torch.channels_last)


def frozen_inputs() -> Steps:
    """No gradient of the input, in float32 and halves: masks and statistics of the norms."""
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        shape = (2, 6, 8, 8)
        for layer in (nn.BatchNorm2d(6), nn.LayerNorm(8), nn.GroupNorm(2, 6), nn.Conv2d(6, 4, 3), nn.RMSNorm(8)):
            layer.to("cuda", dtype)
            layer(torch.randn(shape, **GPU).to(dtype)).sum().backward()
            yield layer
            layer.weight.requires_grad_(requires_grad=False)
            layer(torch.randn(shape, **GPU).to(dtype).requires_grad_()).sum().backward()
            yield layer


def lstm() -> Steps:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.LSTM(16, 32, 2, batch_first=True), nn.Linear(32, 4)

        def forward(self, x: torch.Tensor) -> Any:
            return self.head(self.rnn(x)[0][:, -1])

    model = Last().cuda()
    optimizer = torch.optim.RMSprop(model.parameters())
    yield from train(model, optimizer, lambda: (torch.randn(8, 12, 16, **GPU), torch.randint(4, (8,), **GPU)))


class Block(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(128), nn.LayerNorm(128)
        self.qkv, self.out = nn.Linear(128, 384), nn.Linear(128, 128)
        self.mlp = nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 128), nn.Dropout(dropout))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (4, 32)).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(128, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, dropout: float = 0.0, recompute: bool = False) -> None:
        super().__init__()
        self.recompute = recompute
        self.tokens, self.positions = nn.Embedding(1000, 128), nn.Embedding(64, 128)
        self.blocks = nn.ModuleList(Block(dropout) for _ in range(2))
        self.head = nn.Linear(128, 1000, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.head(x)  # type: ignore[no-any-return]


def gpt(dtype: torch.dtype = torch.float32, optimizer: Any = torch.optim.AdamW, **model_options: Any) -> Steps:
    with torch.device("cuda"):
        model = GPT(**model_options).to(dtype)
    yield "model"

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        tokens = torch.randint(1000, (4, 65)).pin_memory().cuda(non_blocking=True)
        return tokens[:, :-1], tokens[:, 1:]

    def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    yield from train(model, optimizer(model.parameters()), batch, loss)


def gpt_bfloat16_fused() -> Steps:
    return gpt(torch.bfloat16, lambda parameters: torch.optim.AdamW(parameters, fused=True))


def gpt_dropout_loop() -> Steps:
    return gpt(optimizer=lambda parameters: torch.optim.Adam(parameters, foreach=False), dropout=0.1)


def gpt_checkpointing() -> Steps:
    return gpt(recompute=True)


def optimizers() -> Steps:
    """Those that read on the host (ASGD, Adafactor), those with kernels that torch has no shape function for."""
    for make in (
        torch.optim.ASGD, torch.optim.Adafactor, torch.optim.NAdam, torch.optim.Adagrad, torch.optim.Rprop,
        lambda p: torch.optim.SGD(p, fused=True), lambda p: torch.optim.Adagrad(p, fused=TORCH_VERSION >= (2, 13)),
    ):  # fmt: skip
        model = nn.Linear(40, 30).cuda()
        optimizer: Any = make(model.parameters())
        for _ in range(2):
            model(torch.ones(8, 40, **GPU)).square().mean().backward()
            optimizer.step()
            yield make


def scaled() -> Steps:
    model = nn.Linear(40, 30).cuda()
    optimizer, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler("cuda", 8.0)
    for _ in range(3):
        with torch.autocast("cuda"):
            loss = model(torch.ones(8, 40, **GPU)).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        yield loss


def transformer() -> Steps:
    model = nn.Transformer(32, 4, 1, 1, 64, batch_first=True).cuda()
    x, mask = torch.randn(2, 9, 32, **GPU), nn.Transformer.generate_square_subsequent_mask(9, device="cuda")
    model(x, x, tgt_mask=mask).sum().backward()
    yield "backward"


def averaged() -> Steps:
    model = nn.Linear(20, 20).cuda()
    for where in (None, "cuda"):
        average = torch.optim.swa_utils.AveragedModel(model, device=where)
        for _ in range(3):
            average.update_parameters(model)
            yield where


def initialised() -> Steps:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(50, 70), nn.BatchNorm1d(70))
    model.to_empty(device="cuda")
    for layer in model:
        layer.reset_parameters()  # type: ignore[operator]
    weight = model[0].weight
    for init in (nn.init.kaiming_normal_, nn.init.xavier_uniform_, nn.init.orthogonal_, nn.init.eye_, nn.init.zeros_):
        init(weight)
        yield init


def indexing() -> Steps:
    x = torch.randn(50, 60, device="cuda", requires_grad=True)
    index = torch.randint(50, (20,), **GPU)
    (x[index].sum() + x[:, torch.tensor([1, 2, 3])].sum()).backward()
    yield "gather"
    z = torch.zeros(50, 60, **GPU)
    z[3:7], z[index], z[z > 0] = 1, 2.0, 5
    z.index_add_(0, index, torch.ones(20, 60, **GPU))
    yield "scatter", x.topk(5, -1).values.sort().values.cumsum(0)
    nn.EmbeddingBag(100, 16).cuda()(torch.randint(100, (4, 7), **GPU)).sum().backward()
    yield "bag"


def generating() -> Steps:
    embedding, head = nn.Embedding(50, 16).cuda(), nn.Linear(16, 50).cuda()
    tokens = torch.zeros(2, 1, dtype=torch.long, **GPU)
    with torch.inference_mode():
        for _ in range(3):
            logits = head(embedding(tokens))[:, -1]
            logits = logits.masked_fill(logits < logits.topk(10).values[:, -1:], float("-inf"))
            tokens = torch.cat([tokens, torch.multinomial(logits.softmax(-1), 1)], 1)
            yield tokens.shape


def losses() -> Steps:
    x = torch.randn(32, 10, device="cuda", requires_grad=True)
    classes, values = torch.randint(10, (32,), **GPU), torch.rand(32, 10, **GPU)
    for loss in (nn.CrossEntropyLoss(label_smoothing=0.1), nn.NLLLoss(), nn.MultiMarginLoss()):
        loss(x, classes).backward()
        yield loss
    for other in (nn.MSELoss(), nn.SmoothL1Loss(), nn.BCEWithLogitsLoss(), nn.KLDivLoss(reduction="sum")):
        other(x, values).backward()
        yield other
    log_probs = torch.randn(20, 4, 8, device="cuda", requires_grad=True).log_softmax(-1)
    F.ctc_loss(log_probs, torch.randint(1, 8, (4, 5)), torch.full((4,), 20), torch.full((4,), 5)).backward()
    yield "ctc"


WORKLOADS = (
    mlp, cnn, cnn_channels_last, frozen_inputs, lstm, gpt, gpt_bfloat16_fused, gpt_dropout_loop, gpt_checkpointing,
    optimizers, scaled, transformer, averaged, initialised, indexing, generating, losses,
)  # fmt: skip


def books(workload: Callable[[], Steps], compute: Any) -> list[Any]:
    """Memory, kernels and copies after every step of the workload."""
    device = lab.enable("h100", compute=compute).devices[0]
    torch.manual_seed(0)
    seen: list[Any] = []
    for _ in workload():
        memory = lab.snapshot().devices[0].memory
        seen.append(
            (memory.allocated, memory.peak_allocated, memory.reserved, memory.peak_reserved, repr(device.ledger))
        )
    return seen


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("off")
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.__name__)
def test_memory_kernels_and_copies_are_those_of_real_values(workload: Callable[[], Steps]) -> None:
    if workload is cnn_channels_last and TORCH_VERSION < (2, 13):
        pytest.skip("2.10's meta kernel of convolution_backward forgets that the weight is channels last")
    assert books(workload, "meta") == books(workload, "real")


@pytest.mark.usefixtures("off")
@pytest.mark.parametrize(("a", "b"), [(-2.0, 2.0), (1.5, 1.7)])
def test_truncated_normal_draws_about_as_often(a: float, b: float) -> None:
    def workload() -> Steps:
        for seed in range(20):
            torch.manual_seed(seed)
            yield nn.init.trunc_normal_(torch.empty(64, 64, **GPU), a=a, b=b)

    real, told = (books(workload, compute)[-1] for compute in ("real", "meta"))
    assert told[:4] == real[:4]
    kernels = [int(entry[4].split("kernels=")[1].split(",")[0]) for entry in (real, told)]
    assert kernels[1] == pytest.approx(kernels[0], rel=0.1)


# --- no values -----------------------------------------------------------------------------------------------------

READS: dict[str, Callable[[torch.Tensor], object]] = {
    "item": lambda x: x.sum().item(),
    "float": lambda x: float(x.sum()),
    "if": lambda x: bool((x > 0).all()),
    "format": lambda x: f"{x.sum():.3f}",
    "tolist": lambda x: x.tolist(),
    "cpu": lambda x: x.cpu(),
    "to": lambda x: x.to("cpu"),
    "copy_": lambda x: torch.empty(4, 4).copy_(x),
    "numpy": lambda x: x.numpy(force=True),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 0],
    "masked_select": lambda x: x.masked_select(x > 0),
    "unique": lambda x: x.unique(),
    "equal": lambda x: torch.equal(x, x + 1),
    "allclose": lambda x: torch.allclose(x, x + 1),
    "in": lambda x: 1.0 in x,
    "repeat_interleave": lambda x: x.repeat_interleave(torch.ones(4, dtype=torch.long, **GPU), 0),
    "save": lambda x: torch.save(x, os.devnull),
    "get_scale": lambda x: _used_scaler(x).get_scale(),
}


def _used_scaler(x: torch.Tensor) -> torch.amp.GradScaler:
    scaler = torch.amp.GradScaler("cuda")
    scaler.scale(x)
    return scaler


@pytest.mark.usefixtures("meta")
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_read_names_the_mode_and_the_way_out(read: Callable[[torch.Tensor], object]) -> None:
    x = torch.randn(4, 4, **GPU)
    with pytest.raises(RuntimeError, match=r'needs values.* compute="meta".* Do without .* compute="real"') as caught:
        read(x)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("meta")
def test_what_is_printed_has_no_values() -> None:
    x = torch.ones(2, 3, dtype=torch.int32, **GPU)
    assert repr(x) == f"{x}" == "tensor(..., device='cuda:0', size=(2, 3), dtype=torch.int32)"
    assert lab.snapshot().compute == "meta"


@pytest.mark.usefixtures("meta")
def test_a_read_inside_a_users_step_is_not_answered() -> None:
    model = nn.Linear(2, 2).cuda()
    scaler = torch.amp.GradScaler("cuda")
    scaler.scale(model(torch.ones(1, 2, **GPU)).sum()).backward()

    class Curious(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:  # type: ignore[override]
            return model.weight.sum().item()

    with pytest.raises(RuntimeError, match='compute="meta"'):
        scaler.step(Curious(model.parameters()))


@pytest.mark.usefixtures("off")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_grouped_products_have_the_shapes_and_strides_of_real_ones(dtype: torch.dtype) -> None:
    def products() -> list[tuple[Any, ...]]:
        few, rows = torch.ones(2, 8, device="cuda", dtype=dtype), torch.ones(10, 8, device="cuda", dtype=dtype)
        experts = torch.ones(2, 6, 8, device="cuda", dtype=dtype).mT
        ends = torch.tensor([4, 10], dtype=torch.int32, device="cuda")
        batch = few.expand(2, 2, 8).contiguous()
        made = (
            torch._grouped_mm(rows, experts, ends),
            torch._grouped_mm(batch, experts),
            torch._grouped_mm(few, rows.mT, torch.tensor([4, 8], dtype=torch.int32, device="cuda")),
        )
        return [(one.shape, one.stride(), one.dtype) for one in made]

    lab.enable("h100")
    real = products()
    lab.enable("h100", compute="meta")
    assert products() == real


@pytest.mark.usefixtures("off")
def test_a_foreach_op_in_place_writes_what_it_writes_on_a_machine_that_computes() -> None:
    def sgd() -> list[tuple[str, int, float]]:
        weights = [torch.zeros(1000, 128, **GPU) for _ in range(2)]
        gradients = [torch.zeros(1000, 128, **GPU) for _ in range(2)]
        with lab.record() as trace:
            torch._foreach_add_(weights, gradients, alpha=-0.1)
            torch._foreach_addcdiv_(weights, gradients, gradients, value=0.5)
            torch._foreach_lerp_(weights, gradients, weight=0.5)
        return [(kernel.name, kernel.nbytes, kernel.duration) for kernel in trace.kernels]

    lab.enable("a100")
    real = sgd()
    assert real[0][1] == 3 * 2 * 4 * 128_000  # weights and gradients are read, weights are written
    lab.enable("a100", compute="meta")
    assert sgd() == real


def test_values_are_back_on_a_machine_that_computes() -> None:
    for compute in ("meta", "real", "meta", "real"):
        lab.enable("a100", compute=compute)
        x = torch.full((3,), 2.0, **GPU)
        y = torch.zeros_like(x) + x * x
        torch._foreach_mul_([y], 2.0)
        assert y.shape == (3,)
    assert y.tolist() == [8.0, 8.0, 8.0]
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        x.view(1, 3) @ x.view(1, 3)


@pytest.mark.usefixtures("meta")
def test_shapes_are_still_checked() -> None:
    a, b = torch.ones(2, 3, **GPU), torch.ones(4, 3, **GPU)
    with pytest.raises(RuntimeError, match="must match the size of tensor b"):
        a + b
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied \\(2x3 and 4x3\\)"):
        a @ b
    with pytest.raises(RuntimeError):
        torch._foreach_add_([a], [b])
    with pytest.raises(RuntimeError, match=r"two devices|same device"):
        a + torch.ones(2, 3)


# --- eight billion parameters --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def seen() -> Any:
    """What the program saw, on one H100."""
    command = [sys.executable, "-m", "fakegpu_lab", "run", "-q", "-d", "h100:1", "--compute", "meta", str(PROGRAM)]
    clean = {k: v for k, v in os.environ.items() if k not in ("FAKEGPU_LAB_MACHINE", "PYTORCH_CUDA_ALLOC_CONF")}
    run = subprocess.run(command, env=clean, capture_output=True, text=True, check=False, timeout=600)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    return json.loads(run.stdout)


@pytest.mark.long
def test_a_model_of_8_billion_takes_less_than_2_gib(seen: Any) -> None:
    assert sum(seen["fits"]["sizes"]) == 8_030_261_248
    assert seen["host"] < 2 * GiB


def test_8_billion_in_bfloat16_fit(seen: Any) -> None:
    weights = 2 * sum(seen["fits"]["sizes"])  # bfloat16; every tensor is a multiple of 512 bytes
    assert seen["fits"]["built"] == weights
    # Weights, gradients, two states; cuBLAS's workspace of 32 MiB; and what of the step is still there.
    assert 0 <= seen["fits"]["stepped"] - (4 * weights + 32 * MiB) < 8 * MiB
    # foreach AdamW makes a list of the square roots of the second states
    assert seen["fits"]["peak"] - seen["fits"]["stepped"] == pytest.approx(weights, abs=8 * MiB)


def test_logits_that_do_not_fit(seen: Any) -> None:
    told = seen["logits"]
    assert told["entered"] == "head"
    nbytes = 64 * 4096 * 128256 * 2
    assert f"Tried to allocate {format_size(nbytes)}." in told["error"]


def test_the_optimizer_runs_out_at_the_right_tensor_with_the_right_figure(seen: Any) -> None:
    """By hand: weights and gradients are there; two states a parameter follow, each in segments of its own.

    A tensor of 10 MiB or more has a segment of its own, a multiple of 2 MiB (all of them are one); norms, of 16 KiB,
    share segments of 2 MiB. (CUDACachingAllocator.cpp, get_allocation_size.)
    """
    sizes = [4 * n for n in seen["fits"]["sizes"]]
    card, context = int(79.11 * GiB), (528 + 10) * MiB  # with cuBLAS
    large, small = 32 * MiB, 0  # the workspace that cuBLAS holds since the first act

    def reserved() -> int:
        return large + -(-small * 16 * 1024 // (2 * MiB)) * 2 * MiB

    failed = None
    for nbytes in [*sizes, *sizes, *(n for n in sizes for _ in range(2))]:
        assert nbytes == 16 * 1024 or (nbytes >= 10 * MiB and nbytes % (2 * MiB) == 0)
        if nbytes > 10 * MiB and context + reserved() + nbytes > card:
            failed = nbytes
            break
        large, small = (large, small + 1) if nbytes == 16 * 1024 else (large + nbytes, small)
    states, half = divmod(large_count(sizes, large, small), 2)
    told = seen["plain"]
    assert failed is not None
    assert told["states"] == [3] * states + [1 + half]  # `step`, and the states that were made
    assert told["allocated"] == large + small * 16 * 1024
    assert told["error"].startswith(
        f"CUDA out of memory. Tried to allocate {format_size(failed)}. "
        f"GPU 0 has a total capacity of 79.11 GiB of which {format_size(card - context - reserved())} is free. "
        f"Including non-PyTorch memory, this process has {format_size(context + reserved())} memory in use. "
        f"Of the allocated memory {format_size(told['allocated'])} is allocated by PyTorch, and "
        f"{format_size(reserved() - told['allocated'])} is reserved by PyTorch but unallocated. "
    )


def large_count(sizes: list[int], large: int, small: int) -> int:
    """How many states were made before memory ran out, after weights and gradients."""
    made, nbytes = 0, 2 * sum(sizes) + 32 * MiB
    for size in (n for n in sizes for _ in range(2)):
        if nbytes == large + small * 16 * 1024:
            return made
        made, nbytes = made + 1, nbytes + size
    raise AssertionError("all states were made")


def test_after_a_real_backward_it_runs_out_nearly_there(seen: Any) -> None:
    """Fragments of the backward's memory are in the way: somewhat earlier, at most a segment or two."""
    told, plain = seen["trained"], seen["plain"]
    assert len(plain["states"]) - 7 <= len(told["states"]) <= len(plain["states"])
    size = 4 * seen["fits"]["sizes"][len(told["states"]) - 1]
    assert f"Tried to allocate {format_size(size)}." in told["error"]


@pytest.mark.parametrize("loss", [F.multi_margin_loss, F.multilabel_margin_loss])
def test_gradients_of_margin_losses_have_the_shape_of_the_input(meta: None, loss: Callable[..., torch.Tensor]) -> None:
    """torch has no shape function for them."""
    x = torch.empty(8, 5, requires_grad=True, **GPU)
    loss(x, torch.empty((8,) if loss is F.multi_margin_loss else (8, 5), dtype=torch.long, **GPU)).backward()
    assert x.grad is not None
    assert x.grad.shape == (8, 5)
