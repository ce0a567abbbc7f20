"""Cases written by hand, of sizes at which cards differ: what the operator database does not show.

Each is a function without arguments that is run in a recording on a new machine; what it returns is described. The
name is `family/what`. Values are left out where they depend on the library that computes them on this computer's CPU.
"""

from __future__ import annotations

import copy
import inspect
import io
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

import fakegpu_lab as lab

if TYPE_CHECKING:
    from collections.abc import Callable

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
SHORT = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16", torch.int64: "int64"}


@dataclass(frozen=True)
class Case:
    """What is run, on which machine; `exact`: its values are the same on every computer, to the last bit."""

    name: str
    run: Callable[[], Any]
    spec: str = "a100:2"
    memory: str | None = None
    exact: bool = False

    @property
    def in_the_suite(self) -> bool:
        """Whether the test suite compares it with the committed recording, which shall stay small."""
        family, _, what = self.name.partition("/")
        if family in ("random", "errors", "copies"):
            return self.exact
        return family == "memory" or (family in IN_THE_SUITE and what in IN_THE_SUITE[family])


def in_one_dtype(dtype: str, names: str) -> set[str]:
    return {f"{name.strip()} {dtype}" for name in names.split(",")}


IN_THE_SUITE = {
    "products": in_one_dtype(
        "float16", "mm, mm out, addmm, addmm bias, addmv_, addr, dot, bmm, baddbmm_, linear, einsum"
    ),
    "layers": in_one_dtype("float16", "2d, transposed 2d, batch norm, layer norm, dropout, gru, attention, max pool"),
    "elementwise": in_one_dtype(
        "int64",
        "add, add_, add out, div, cast, copy_, sum, max dim, sort, nonzero, index from host, index_put_, item, cat",
    ),
}

CASES: list[Case] = []


def case(name: str, **options: Any) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def add(run: Callable[[], Any]) -> Callable[[], Any]:
        CASES.append(Case(name, run, **options))
        return run

    return add


def ints(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cuda", low: int = -4) -> torch.Tensor:
    """Small whole numbers: sums of them are exact in any order."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 7 % 9) + low).reshape(shape).to(dtype).to(device)


def derived(run: Callable[..., Any], *inputs: torch.Tensor, **options: Any) -> Any:
    """The result of `run`, and its gradients."""
    leaves = [x.requires_grad_() for x in inputs]
    result = run(*leaves, **options)
    first = result[0] if isinstance(result, tuple) else result
    return first, torch.autograd.grad(first, leaves, torch.ones_like(first), allow_unused=True)


# Products


PRODUCTS: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]] = {
    "mm": lambda a, b, c: a @ b,
    "mm out": lambda a, b, c: torch.mm(a, b, out=c),
    "mm transposed": lambda a, b, c: a.t() @ b,
    "addmm": lambda a, b, c: torch.addmm(c, a, b, beta=2),
    "addmm bias": lambda a, b, c: torch.addmm(c[0], a, b),
    "addmm_": lambda a, b, c: c.addmm_(a, b),
    "_addmm_activation": lambda a, b, c: torch._addmm_activation(c[0], a, b),
    "mv": lambda a, b, c: a @ b[0],
    "addmv": lambda a, b, c: torch.addmv(c[0], a, b[0]),
    "addmv_": lambda a, b, c: c[0].addmv_(a, b[0]),
    "addr": lambda a, b, c: torch.addr(c, a[0], b[0]),
    "addr_": lambda a, b, c: c.addr_(a[0], b[0]),
    "dot": lambda a, b, c: a[0] @ b[0],
    "vdot": lambda a, b, c: torch.vdot(a[0], b[0]),
    "outer": lambda a, b, c: torch.outer(a[0], b[0]),
    "bmm": lambda a, b, c: torch.bmm(a.view(4, -1, 64), b.view(4, 64, -1)),
    "baddbmm": lambda a, b, c: torch.baddbmm(c.view(1, *c.shape), a[None], b[None]),
    "baddbmm_": lambda a, b, c: c.view(1, *c.shape).baddbmm_(a[None], b[None]),
    "addbmm": lambda a, b, c: torch.addbmm(c, a[None], b[None]),
    "addbmm_": lambda a, b, c: c.addbmm_(a[None], b[None]),
    "matmul batched": lambda a, b, c: a.view(2, 2, -1, 64) @ b.view(2, 2, 64, -1),
    "einsum": lambda a, b, c: torch.einsum("ij,jk->ik", a, b),
    "linear": lambda a, b, c: F.linear(a, b, c[0]),
    "linear 3d": lambda a, b, c: F.linear(a[None], b, c[0]),
    "bilinear": lambda a, b, c: F.bilinear(a[:2, :8], b[:2, :8], c[:8, :64].reshape(8, 8, 8)),
    "chain": lambda a, b, c: torch.linalg.multi_dot([a, b, c]),
    "tensordot": lambda a, b, c: torch.tensordot(a, b, dims=2),
}
for (_what, _run), _dtype in itertools.product(PRODUCTS.items(), (*FLOATS, torch.int64)):

    @case(f"products/{_what} {SHORT[_dtype]}", exact=_dtype is torch.int64)
    def _product(run: Any = _run, dtype: torch.dtype = _dtype) -> Any:
        return run(*(ints(256, 256, dtype=dtype) for _ in range(3)))


for _spec, _dtype in itertools.product(("t4", "v100", "a100", "h100", "b200", "rtx4090"), FLOATS):

    @case(f"products/large {_spec} {SHORT[_dtype]}", spec=_spec)
    def _large(dtype: torch.dtype = _dtype) -> Any:
        a = ints(1024, 1024, dtype=dtype)
        return derived(torch.mm, a, a.clone()), F.linear(a[:100], a, a[0])


@case("products/tf32 and reduced precision")
def _tf32() -> Any:
    a = ints(512, 512)
    slow = a @ a
    torch.backends.cuda.matmul.allow_tf32 = True
    fast = a @ a
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    half = a.bfloat16() @ a.bfloat16()
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True
    return slow, fast, half


@case("products/scaled in 8 bits", spec="h100")
def _scaled() -> Any:
    a = ints(64, 64).to(torch.float8_e4m3fn)
    one = torch.ones((), device="cuda")
    return torch._scaled_mm(a, a.t(), one, one, out_dtype=torch.bfloat16), torch._int_mm(
        ints(64, 64, dtype=torch.int8), ints(64, 64, dtype=torch.int8)
    )


@case("products/complex")
def _complex() -> Any:
    a = torch.complex(ints(64, 64), ints(64, 64))
    return a @ a, torch.vdot(a[0], a[1]), a.conj() @ a


# Convolutions, pooling, norms

CONVOLUTIONS: dict[str, Callable[[], tuple[nn.Module, tuple[int, ...]]]] = {
    "1d": lambda: (nn.Conv1d(16, 32, 3), (8, 16, 100)),
    "2d": lambda: (nn.Conv2d(16, 32, 3, padding=1), (8, 16, 32, 32)),
    "2d strided": lambda: (nn.Conv2d(16, 32, 3, stride=2, bias=False), (8, 16, 32, 32)),
    "2d depthwise": lambda: (nn.Conv2d(16, 16, 3, groups=16), (8, 16, 32, 32)),
    "2d dilated": lambda: (nn.Conv2d(16, 16, 3, dilation=2), (8, 16, 32, 32)),
    "2d pointwise": lambda: (nn.Conv2d(16, 64, 1), (8, 16, 32, 32)),
    "3d": lambda: (nn.Conv3d(4, 8, 3), (2, 4, 8, 16, 16)),
    "transposed 2d": lambda: (nn.ConvTranspose2d(16, 8, 2, stride=2), (8, 16, 16, 16)),
    "batch norm": lambda: (nn.BatchNorm2d(16), (8, 16, 32, 32)),
    "group norm": lambda: (nn.GroupNorm(4, 16), (8, 16, 32, 32)),
    "instance norm": lambda: (nn.InstanceNorm2d(16), (8, 16, 32, 32)),
    "layer norm": lambda: (nn.LayerNorm(64), (8, 32, 64)),
    "rms norm": lambda: (nn.RMSNorm(64), (8, 32, 64)),
    "max pool": lambda: (nn.MaxPool2d(2), (8, 16, 32, 32)),
    "average pool": lambda: (nn.AvgPool2d(2), (8, 16, 32, 32)),
    "adaptive pool": lambda: (nn.AdaptiveAvgPool2d(1), (8, 16, 32, 32)),
    "upsample": lambda: (nn.Upsample(scale_factor=2, mode="bilinear"), (4, 8, 16, 16)),
    "gelu": lambda: (nn.GELU(), (64, 512)),
    "silu": lambda: (nn.SiLU(), (64, 512)),
    "softmax": lambda: (nn.Softmax(-1), (64, 512)),
    "dropout": lambda: (nn.Dropout(0.3), (64, 512)),
    "gru": lambda: (nn.GRU(16, 32, 2), (10, 4, 16)),
    "lstm": lambda: (nn.LSTM(16, 32, bidirectional=True), (10, 4, 16)),
    "rnn": lambda: (nn.RNN(16, 32, dropout=0.2, num_layers=2), (10, 4, 16)),
    "attention": lambda: (Attends(), (4, 32, 64)),
    "encoder layer": lambda: (nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), (4, 32, 64)),
    "decoder layer": lambda: (Decodes(), (4, 32, 64)),
}


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(64, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(x, x, x, need_weights=False)


class Decodes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.TransformerDecoderLayer(64, 4, 128, batch_first=True)

    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(x, x)


for (_what, _make), _dtype in itertools.product(CONVOLUTIONS.items(), FLOATS):

    @case(f"layers/{_what} {SHORT[_dtype]}")
    def _layer(make: Any = _make, dtype: torch.dtype = _dtype) -> Any:
        module, shape = make()
        module = module.to("cuda", dtype)
        result = derived(module, ints(*shape, dtype=dtype))
        weights = [p.grad for p in module.parameters()]
        module.eval()
        with torch.no_grad():
            return result, weights, module(ints(*shape, dtype=dtype))


for _what in ("2d", "2d depthwise", "transposed 2d", "batch norm"):

    @case(f"layers/{_what} channels last, benchmark and deterministic")
    def _formats(what: str = _what) -> Any:
        module, shape = CONVOLUTIONS[what]()
        module, x = module.to("cuda").half(), ints(*shape, dtype=torch.half).to(memory_format=torch.channels_last)
        results = [derived(module, x.detach())]
        torch.backends.cudnn.benchmark = True
        results.append(derived(module, x.detach()))
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.deterministic = True
        results.append(derived(module, x.detach()))
        torch.backends.cudnn.deterministic = False
        torch.backends.cudnn.enabled = False
        results.append(derived(module, x.detach()))
        torch.backends.cudnn.enabled = True
        return results


@case("layers/embeddings")
def _embeddings() -> Any:
    tokens = torch.arange(64, device="cuda").view(4, 16) % 10
    plain, bag = nn.Embedding(10, 32, padding_idx=0).cuda(), nn.EmbeddingBag(10, 32).cuda()
    sparse = nn.Embedding(10, 32, sparse=True).cuda()
    for module in (plain, bag, sparse):
        module(tokens).sum().backward()
    return plain.weight.grad, bag.weight.grad, sparse.weight.grad


LOSSES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "cross entropy": lambda x, y: F.cross_entropy(x, y),
    "cross entropy smoothed": lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1, ignore_index=1),
    "nll": lambda x, y: F.nll_loss(F.log_softmax(x, -1), y),
    "mse": lambda x, y: F.mse_loss(x, torch.zeros_like(x)),
    "bce": lambda x, y: F.binary_cross_entropy_with_logits(x, torch.ones_like(x)),
    "kl": lambda x, y: F.kl_div(F.log_softmax(x, -1), torch.softmax(x, -1).detach(), reduction="batchmean"),
    "huber": lambda x, y: F.huber_loss(x, torch.zeros_like(x)),
}
for (_what, _run), _dtype in itertools.product(LOSSES.items(), FLOATS):

    @case(f"losses/{_what} {SHORT[_dtype]}")
    def _loss(run: Any = _run, dtype: torch.dtype = _dtype) -> Any:
        y = torch.arange(128, device="cuda") % 100
        return derived(lambda x: run(x, y), ints(128, 100, dtype=dtype))


@case("losses/ctc")
def _ctc() -> Any:
    def run(x: torch.Tensor) -> torch.Tensor:
        targets = torch.arange(1, 11, device="cuda").view(2, 5) % 9 + 1
        return F.ctc_loss(x.log_softmax(2), targets, torch.tensor([20, 20]), torch.tensor([5, 5]))

    return derived(run, ints(20, 2, 12))


# Attention

BACKENDS = ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH")
for _backend, _dtype, _spec in itertools.product(BACKENDS, FLOATS, ("a100", "h100", "t4")):

    @case(f"attention/{_backend.lower()} {SHORT[_dtype]} {_spec}", spec=_spec)
    def _attention(backend: str = _backend, dtype: torch.dtype = _dtype) -> Any:
        q = ints(2, 4, 32, 64, dtype=dtype)
        with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, backend)):
            return derived(F.scaled_dot_product_attention, q, q.clone(), q.clone(), is_causal=True)


for _what, _options in {
    "plain": {},
    "dropout": {"dropout_p": 0.2},
    "mask": {"attn_mask": (4, 1, 48, 40)},
    "grouped": {"enable_gqa": True},
}.items():

    @case(f"attention/{_what}")
    def _attention_as_chosen(options: dict[str, Any] = _options) -> Any:
        results = []
        for dtype in (torch.float32, torch.bfloat16):
            heads = 2 if "enable_gqa" in options else 4
            given = dict(options)
            if "attn_mask" in given:
                given["attn_mask"] = ints(*given["attn_mask"], dtype=dtype)
            q, k = ints(4, 4, 48, 40, dtype=dtype), ints(4, heads, 40, 40, dtype=dtype)
            results.append(derived(F.scaled_dot_product_attention, q, k, k.clone(), **given))
        return results


@case("attention/flex")
def _flex() -> Any:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q = ints(1, 2, 128, 16)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128, device="cuda")
    return flex_attention(q, q, q, block_mask=mask)


@case("attention/jagged")
def _jagged() -> Any:
    x = torch.nested.nested_tensor([ints(3, 64), ints(5, 64)], layout=torch.jagged, device="cuda", requires_grad=True)
    heads = x.unflatten(-1, (4, 16)).transpose(1, 2)
    out = F.scaled_dot_product_attention(heads, heads, heads)
    out.values().sum().backward()
    return out.values(), x.grad.values()


# Elementwise, reductions, indexing

ELEMENTWISE: dict[str, Callable[[torch.Tensor], Any]] = {
    "add": lambda x: x + x,
    "add scalar": lambda x: x + 2,
    "add broadcast": lambda x: x + x[0],
    "add_": lambda x: x.add_(x),
    "add out": lambda x: torch.add(x, x, out=torch.empty_like(x)),
    "mixed dtypes": lambda x: x + ints(*x.shape, dtype=torch.int32),
    "div": lambda x: x / 3,
    "floor_divide": lambda x: x // 3,
    "pow": lambda x: x**2,
    "where": lambda x: torch.where(x > 0, x, 0),
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp_": lambda x: x.clamp_(min=0),
    "relu_": lambda x: torch.relu_(x),
    "exp": lambda x: x.exp(),
    "addcmul": lambda x: torch.addcmul(x, x, x),
    "addcdiv_": lambda x: x.addcdiv_(x, x + 10),
    "lerp": lambda x: torch.lerp(x, x + 1, 0.5),
    "compare": lambda x: (x > 0, x == x, torch.isnan(x)),
    "logical": lambda x: (x > 0) & (x < 2),
    "cast": lambda x: (x.float(), x.half(), x.int(), x.bool()),
    "fill_": lambda x: x.fill_(3),
    "zero_": lambda x: x.zero_(),
    "copy_": lambda x: torch.empty_like(x).copy_(x),
    "sum": lambda x: x.sum(),
    "sum dim": lambda x: x.sum(0),
    "sum dims out": lambda x: torch.sum(x, (0, 1), out=torch.empty((), dtype=x.dtype, device="cuda")),
    "mean": lambda x: x.float().mean(1),
    "max": lambda x: x.max(),
    "max dim": lambda x: x.max(1),
    "argmax": lambda x: x.argmax(1),
    "any": lambda x: (x > 3).any(),
    "cumsum": lambda x: x.cumsum(0),
    "norm": lambda x: x.float().norm(),
    "var": lambda x: x.float().var(),
    "sort": lambda x: x.sort(dim=1, stable=True),
    "topk": lambda x: x.topk(3)[0],
    "unique": lambda x: x.unique(),
    "bincount": lambda x: torch.bincount(x.long().flatten() + 4),
    "histc": lambda x: torch.histc(x.float(), 10),
    "nonzero": lambda x: x.nonzero(),
    "masked_select": lambda x: x[x > 0],
    "masked_fill_": lambda x: x.masked_fill_(x > 0, 1),
    "index": lambda x: x[torch.tensor([1, 2], device="cuda")],
    "index from host": lambda x: x[torch.tensor([1, 2])],
    "index_put_": lambda x: x.index_put_((torch.tensor([1, 1], device="cuda"),), x[:2].clone(), accumulate=True),
    "setitem": lambda x: x.__setitem__((slice(None), 0), 7),
    "index_select": lambda x: x.index_select(0, torch.tensor([1, 2], device="cuda")),
    "gather": lambda x: x.gather(1, ints(*x.shape, dtype=torch.int64, low=0)),
    "scatter_add_": lambda x: x.scatter_add_(1, ints(*x.shape, dtype=torch.int64, low=0), x.clone()),
    "take_along_dim": lambda x: x.take_along_dim(x.argsort(1), 1),
    "cat": lambda x: torch.cat([x, x]),
    "stack": lambda x: torch.stack([x, x], 1),
    "split": lambda x: x.split(5),
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(1, 0),
    "repeat": lambda x: x.repeat(2, 2),
    "tril": lambda x: x.tril(),
    "diagonal": lambda x: x.diagonal().clone(),
    "contiguous": lambda x: x.t().contiguous(),
    "views": lambda x: (
        x.t(),
        x[1:, ::2],
        x.unfold(0, 2, 1),
        x.view(-1),
        x.expand(2, *x.shape),
        x.as_strided((2, 2), (1, 3)),
    ),
    "item": lambda x: (x[0, 0].item(), bool((x == x).all()), x.tolist()[0][:2]),
    "equal": lambda x: (torch.equal(x, x.clone()), torch.allclose(x.float(), x.float())),
    "host": lambda x: (x.cpu(), x.numpy(force=True).sum().item(), repr(x[:2, :2])),
    "storage": lambda x: (x.untyped_storage().nbytes(), x.data_ptr() % 512, x.is_cuda, x.get_device()),
    "clone": lambda x: (x.clone(), copy.deepcopy(x)),
    "factories": lambda x: (
        x.new_zeros(3),
        torch.ones_like(x),
        torch.arange(5, device="cuda"),
        torch.eye(3, device="cuda"),
        torch.linspace(0, 1, 5, device="cuda"),
    ),
}
for (_what, _run), _dtype in itertools.product(ELEMENTWISE.items(), (*FLOATS, torch.int64)):

    @case(f"elementwise/{_what} {SHORT[_dtype]}", exact=_dtype is torch.int64)
    def _elementwise(run: Any = _run, dtype: torch.dtype = _dtype) -> Any:
        x = ints(48, 40, dtype=dtype)
        return run(x), x


# Random numbers

DRAWS: dict[str, Callable[[], Any]] = {
    "rand": lambda: torch.rand(1000, device="cuda"),
    "rand half": lambda: torch.rand(1000, device="cuda", dtype=torch.half),
    "rand double": lambda: torch.rand(1000, device="cuda", dtype=torch.double),
    "randn": lambda: torch.randn(10, 33, device="cuda"),
    "randn bfloat16": lambda: torch.randn(1000, device="cuda", dtype=torch.bfloat16),
    "randint": lambda: torch.randint(10, (1000,), device="cuda"),
    "randint wide": lambda: torch.randint(-(2**40), 2**40, (1000,), device="cuda"),
    "randperm": lambda: (torch.randperm(100, device="cuda"), torch.randperm(40_000, device="cuda")),
    "bernoulli": lambda: torch.bernoulli(torch.full((100,), 0.3, device="cuda")),
    "bernoulli_": lambda: torch.empty(100, device="cuda").bernoulli_(0.3),
    "multinomial": lambda: torch.multinomial(torch.ones(4, 10, device="cuda"), 3),
    "multinomial with replacement": lambda: torch.multinomial(torch.ones(10, device="cuda"), 30, replacement=True),
    "uniform_": lambda: torch.empty(100, device="cuda").uniform_(-1, 2),
    "normal_": lambda: torch.empty(100, device="cuda").normal_(1, 2),
    "exponential_": lambda: torch.empty(100, device="cuda").exponential_(),
    "geometric_": lambda: torch.empty(100, device="cuda").geometric_(0.3),
    "cauchy_": lambda: torch.empty(100, device="cuda").cauchy_(),
    "log_normal_": lambda: torch.empty(100, device="cuda").log_normal_(),
    "random_": lambda: torch.empty(100, device="cuda", dtype=torch.int64).random_(),
    "poisson": lambda: torch.poisson(torch.full((100,), 3.0, device="cuda")),
    "binomial": lambda: torch.binomial(torch.full((100,), 9.0, device="cuda"), torch.full((100,), 0.5, device="cuda")),
    "gamma": lambda: torch._standard_gamma(torch.full((100,), 2.0, device="cuda")),
    "dirichlet": lambda: torch._sample_dirichlet(torch.ones(4, 5, device="cuda")),
    "dropout": lambda: derived(lambda x: F.dropout(x, 0.4), torch.ones(1000, device="cuda")),
    "feature dropout": lambda: F.dropout2d(torch.ones(4, 8, 3, 3, device="cuda"), 0.4),
    "alpha dropout": lambda: F.alpha_dropout(torch.ones(100, device="cuda"), 0.4, training=True),
    "rrelu": lambda: F.rrelu(-torch.ones(100, device="cuda"), training=True),
    "gumbel": lambda: F.gumbel_softmax(torch.zeros(4, 5, device="cuda")),
    "generator": lambda: (
        torch.rand(5, device="cuda", generator=torch.Generator("cuda").manual_seed(7)),
        torch.rand(5, device="cuda:1"),
    ),
    "state": lambda: (
        torch.rand(5, device="cuda"),
        torch.cuda.get_rng_state(),
        torch.rand(70_000, device="cuda")[-5:],
        torch.cuda.get_rng_state(),
        torch.cuda.initial_seed(),
    ),
    "init": lambda: (
        nn.init.xavier_uniform_(torch.empty(8, 8, device="cuda")),
        nn.init.trunc_normal_(torch.empty(8, 8, device="cuda")),
        nn.Linear(4, 4, device="cuda").weight,
    ),
}
BITS = (
    "rand",
    "rand half",
    "randint",
    "randint wide",
    "randperm",
    "bernoulli",
    "uniform_",
    "random_",
    "dropout",
    "state",
)
"""Draws that compute no function of the random bits."""
CASES += [Case(f"random/{_what}", _run, exact=_what in BITS) for _what, _run in DRAWS.items()]


# Optimizers

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    name: getattr(torch.optim, name)
    for name in ("SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop")
}
WAYS: dict[str, dict[str, Any]] = {
    "": {},
    "one by one": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "capturable": {"capturable": True},
}
for (_what, _class), (_way, _options) in itertools.product(OPTIMIZERS.items(), WAYS.items()):
    if not set(_options) <= set(inspect.signature(_class).parameters):
        continue

    @case(f"optimizers/{_what} {_way}".strip())
    def _optimizer(optimizer: Any = _class, options: dict[str, Any] = _options) -> Any:
        weights = [nn.Parameter(ints(n, 20)) for n in (1, 10, 300)]
        steps = optimizer(weights, lr=0.1, **options)
        for _ in range(2):
            for weight in weights:
                weight.grad = torch.ones_like(weight)
            steps.step()
        steps.zero_grad()
        return weights, [list(state.values()) for state in steps.state.values()]


FOREACH: dict[str, Callable[[list[torch.Tensor]], Any]] = {
    "add": lambda xs: torch._foreach_add(xs, 2),
    "add_": lambda xs: torch._foreach_add_(xs, xs, alpha=2),
    "mul_": lambda xs: torch._foreach_mul_(xs, torch.tensor(2.0, device="cuda")),
    "sqrt": lambda xs: torch._foreach_sqrt(torch._foreach_abs(xs)),
    "norm": lambda xs: torch._foreach_norm(xs),
    "copy_": lambda xs: torch._foreach_copy_(xs, [x + 1 for x in xs]),
    "addcdiv_": lambda xs: torch._foreach_addcdiv_(xs, xs, [x + 10 for x in xs], 0.5),
    "lerp_": lambda xs: torch._foreach_lerp_(xs, [x + 1 for x in xs], 0.5),
    "clip": lambda xs: nn.utils.clip_grad_norm_([with_gradient(x) for x in xs], 1.0),
}


def with_gradient(x: torch.Tensor) -> nn.Parameter:
    weight = nn.Parameter(x)
    weight.grad = torch.ones_like(x)
    return weight


for _what, _of_lists in FOREACH.items():

    @case(f"optimizers/foreach {_what}")
    def _foreach(run: Any = _of_lists) -> Any:
        xs = [ints(n, 30) for n in (1, 20, 300)]
        return run(xs), xs


# Copies, streams, graphs, memory


@case("copies/host and device", exact=True)
def _host_copies() -> Any:
    host = ints(1000, 100, device="cpu")
    pinned = host.pin_memory()
    there = [host.cuda(), pinned.cuda(non_blocking=True), host.to("cuda:1"), pinned.to("cuda:1", non_blocking=True)]
    torch.cuda.synchronize()
    back = [
        there[0].cpu(),
        there[1].to("cpu", non_blocking=True),
        torch.empty_like(pinned, pin_memory=True).copy_(there[2]),
    ]
    return there, back, host.to("cuda", torch.half), there[0].to("cuda:1"), there[0].t().cpu()


@case("copies/loader", exact=True)
def _loader() -> Any:
    data = torch.utils.data.TensorDataset(ints(100, 8, device="cpu"), ints(100, device="cpu"))
    loader = torch.utils.data.DataLoader(data, batch_size=32, pin_memory=True)
    return [(x.cuda(non_blocking=True).sum().item(), y.cuda().sum()) for x, y in loader]


@case("copies/save and load", exact=True)
def _saved() -> Any:
    file = io.BytesIO()
    torch.save({"x": ints(10), "y": ints(4, device="cuda:1")}, file)
    return [torch.load(io.BytesIO(file.getvalue()), map_location=where) for where in (None, "cpu", "cuda:1")]


@case("copies/dlpack and numpy", exact=True)
def _interop() -> Any:
    x = ints(10)
    return torch.from_dlpack(x), x.cpu().numpy().tolist(), torch.as_tensor(x.cpu().numpy(), device="cuda")


@case("streams/two kernels side by side")
def _streams() -> Any:
    x = ints(256, 256)
    streams = [torch.cuda.Stream(), torch.cuda.Stream(priority=-1)]
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    results = []
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            results.append(x @ x)
            x.record_stream(stream)
    for stream in streams:
        torch.cuda.current_stream().wait_stream(stream)
    end.record()
    end.synchronize()
    return results, begin.elapsed_time(end), end.query(), streams[0].query(), repr(torch.cuda.current_stream().priority)


@case("streams/a race")
def _race() -> Any:
    x = ints(512, 512)
    with torch.cuda.stream(torch.cuda.Stream()):
        y = x @ x
    return y + 1


@case("graphs/capture and replay")
def _graph() -> Any:
    x = ints(64, 64)
    y = x @ x
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = (x @ x).relu()
    x.add_(1)
    graph.replay()
    graph.replay()
    return y


@case("graphs/callables")
def _graphed() -> Any:
    model, x = nn.Linear(8, 8, device="cuda"), torch.ones(4, 8, device="cuda", requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(model, (x,))
    graphed(x).sum().backward()
    return x.grad, list(model.parameters())


@case("graphs/a wait in capture is refused")
def _refused_capture() -> Any:
    x = ints(4)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        return x.sum().item()


@case("graphs/random numbers")
def _graph_random() -> Any:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x = torch.rand(5, device="cuda")
    seen = []
    for _ in range(3):
        graph.replay()
        seen.append(x.clone())
    return seen, torch.rand(5, device="cuda")


@case("memory/statistics and controls", memory="4GiB")
def _controls() -> Any:
    keep = [
        torch.empty(n, dtype=torch.uint8, device="cuda") for n in (1, 512, 513, 2**20, 2**20 + 1, 10 * 2**20, 2**26)
    ]
    del keep[1::2]
    more = [torch.empty(2**20 * n, dtype=torch.uint8, device="cuda") for n in range(1, 12)]
    before = torch.cuda.memory_summary(), torch.cuda.mem_get_info()
    del more[::2]
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    after = torch.cuda.memory_summary(), torch.cuda.max_memory_allocated(), torch.cuda.memory_reserved()
    return *before, *after, len(keep)


@case("memory/snapshot")
def _memory_snapshot() -> Any:
    torch.cuda.memory._record_memory_history(stacks="python", context=None)
    x = [ints(100 * n) for n in range(1, 6)]
    del x[2]
    found = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(None)
    return (
        [
            (
                s["total_size"],
                s["allocated_size"],
                s["active_size"],
                s["stream"],
                s["segment_type"],
                s["is_expandable"],
                [(b["size"], b["requested_size"], b["state"]) for b in s["blocks"]],
            )
            for s in found["segments"]
        ],
        [(e["action"], e["size"]) for trace in found["device_traces"] for e in trace],
        sorted(found["allocator_settings"]),
    )


for _size in (2**31, 2**32, 2**40):

    @case(f"memory/out of memory {_size}", memory="4GiB")
    def _oom(size: int = _size) -> Any:
        keep = torch.empty(2**31, dtype=torch.uint8, device="cuda")
        return torch.empty(size, dtype=torch.uint8, device="cuda"), keep


SETTINGS = (
    "max_split_size_mb:32",
    "expandable_segments:True",
    "roundup_power2_divisions:4",
    "garbage_collection_threshold:0.5",
    "roundup_power2_divisions:[256:1,512:2,>:4]",
    "backend:native",
    "nonsense:1",
)
for _what in SETTINGS:

    @case(f"memory/{_what}", memory="4GiB")
    def _settings(text: str = _what) -> Any:
        torch.cuda.memory._set_allocator_settings(text)
        x = [torch.empty(n * 2**20 + 7, dtype=torch.uint8, device="cuda") for n in (1, 3, 20, 40)]
        del x[1]
        x.append(torch.empty(2**20, dtype=torch.uint8, device="cuda"))
        return torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), len(x)


@case("memory/fraction and pool", memory="4GiB")
def _fraction() -> Any:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        x = torch.empty(2**22, device="cuda")
    seen = [torch.cuda.memory_allocated(), len(pool.snapshot())]
    torch.cuda.set_per_process_memory_fraction(0.25)
    try:
        return seen, torch.empty(2**28, device="cuda"), x
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@case("memory/pinned")
def _pinned() -> Any:
    keep = torch.empty(2**20, pin_memory=True)
    return keep.is_pinned(), sorted(torch.cuda.host_memory_stats().items())


# Errors

ERRORS: dict[str, Callable[[], Any]] = {
    "two devices": lambda: ints(3) + ints(3, device="cuda:1"),
    "host and device": lambda: ints(3) + ints(3, device="cpu"),
    "product of host and device": lambda: ints(3, 3) @ ints(3, 3, device="cpu"),
    "linear": lambda: nn.Linear(3, 3)(ints(3)),
    "convolution": lambda: nn.Conv2d(3, 3, 1).cuda()(ints(1, 3, 4, 4, device="cpu")),
    "embedding": lambda: nn.Embedding(3, 3).cuda()(torch.tensor([1])),
    "cat": lambda: torch.cat([ints(3), ints(3, device="cpu")]),
    "index from another device": lambda: ints(3)[torch.tensor([0], device="cuda:1")],
    "loss": lambda: F.cross_entropy(ints(3, 3), torch.tensor([0, 1, 2])),
    "numpy": lambda: ints(3).numpy(),
    "shapes": lambda: ints(3, 4) @ ints(3, 4),
    "assert": lambda: (ints(3)[torch.tensor([5], device="cuda")], torch.cuda.synchronize()),
    "assert of an embedding": lambda: nn.Embedding(3, 3).cuda()(torch.tensor([5], device="cuda")).cpu(),
    "assert of a loss": lambda: F.nll_loss(ints(3, 3), torch.tensor([0, 1, 7], device="cuda")).item(),
    "assert of probabilities": lambda: torch.multinomial(-torch.ones(3, device="cuda"), 1).item(),
    "no such device": lambda: torch.ones(1, device="cuda:7"),
    "dtype": lambda: ints(3, 3, dtype=torch.int64) @ ints(3, 3, dtype=torch.int64),
    "dtypes": lambda: ints(3, 3) @ ints(3, 3, dtype=torch.half),
    "generator of the host": lambda: torch.rand(3, device="cuda", generator=torch.Generator()),
    "deterministic": lambda: deterministic(lambda: torch.bincount(ints(9, dtype=torch.int64, low=0), ints(9))),
    "deterministic product": lambda: deterministic(lambda: ints(3, 3) @ ints(3, 3)),
    "bad stream": lambda: torch.cuda.Event().elapsed_time(torch.cuda.Event()),
    "invalid ordinal": lambda: torch.cuda.set_device(9),
    "float64 on a complex": lambda: torch.complex(ints(3), ints(3)).floor(),
    "quantized": lambda: torch.quantize_per_tensor(ints(3), 0.1, 0, torch.qint8).dequantize(),
    "sync debug mode": lambda: in_sync_debug_mode(lambda: ints(3).sum().item()),
}


def deterministic(run: Callable[[], Any]) -> Any:
    torch.use_deterministic_algorithms(True)
    try:
        return run()
    finally:
        torch.use_deterministic_algorithms(False)


def in_sync_debug_mode(run: Callable[[], Any]) -> Any:
    torch.cuda.set_sync_debug_mode("error")
    try:
        return run()
    finally:
        torch.cuda.set_sync_debug_mode("default")


CASES += [Case(f"errors/{_what}", _run, exact=True) for _what, _run in ERRORS.items()]


# Training: mixed precision, profilers, compile, sparse, meta


class Gpt(nn.Module):
    def __init__(self, vocabulary: int = 65, width: int = 64) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, 0.1, batch_first=True, norm_first=True) for _ in range(2)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.tokens(x)
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        for block in self.blocks:
            x = block(x, src_mask=mask, is_causal=True)
        return self.head(self.norm(x))


def steps(dtype: torch.dtype | None, *, scale: bool = False, checkpoint: bool = False) -> Any:
    """Three steps of a small GPT; the losses, and what the profiler's table says of the last."""
    model = Gpt().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cuda", enabled=scale)
    x = (torch.arange(4 * 17) * 7 % 65).view(4, 17).cuda()
    losses = []
    for _ in range(3):
        with torch.autocast("cuda", dtype or torch.half, enabled=dtype is not None):
            if checkpoint:
                logits = torch.utils.checkpoint.checkpoint(model, x[:, :-1], use_reentrant=False)
            else:
                logits = model(x[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten())
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, torch.cuda.max_memory_allocated()


CASES += [
    Case("training/gpt", lambda: steps(None)),
    Case("training/gpt in bfloat16", lambda: steps(torch.bfloat16), spec="h100"),
    Case("training/gpt in float16", lambda: steps(torch.half, scale=True), spec="t4"),
    Case("training/gpt checkpointed", lambda: steps(None, checkpoint=True)),
]


@case("training/resnet block")
def _resnet() -> Any:
    model = nn.Sequential(
        nn.Conv2d(3, 16, 7, 2, 3, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(16, 32, 3, 1, 1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    ).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    losses = []
    for _ in range(2):
        loss = F.cross_entropy(model(ints(4, 3, 64, 64)), torch.arange(4, device="cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@case("training/profiler")
def _profiler() -> Any:
    from torch.profiler import ProfilerActivity, profile, record_function

    model, x = nn.Linear(64, 64).cuda(), ints(64, 64)
    with (
        profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU], record_shapes=True, profile_memory=True) as p,
        record_function("mine"),
    ):
        model(x).sum().backward()
    rows = p.key_averages()
    return [
        (r.key, r.count, r.device_time_total, r.self_device_time_total, r.self_device_memory_usage)
        for r in sorted(rows, key=lambda r: r.key)
        if not r.key.startswith("cuda")
    ]


@case("training/compiled")
def _compiled() -> Any:
    model = torch.compile(nn.Sequential(nn.Linear(8, 8), nn.ReLU()).cuda())
    return derived(model, ints(4, 8))


@case("training/sparse")
def _sparse() -> Any:
    x = ints(8, 8) * (ints(8, 8) > 2)
    coo, csr = x.to_sparse(), x.to_sparse_csr()
    return coo, csr, coo @ x, csr @ x, torch.sparse.mm(coo, x), (coo + coo).coalesce(), coo.to_dense(), csr.values()


@case("training/linear algebra")
def _linalg() -> Any:
    x = ints(16, 16) + 20 * torch.eye(16, device="cuda")
    return [
        tree.shape if isinstance(tree, torch.Tensor) else None
        for tree in (
            torch.linalg.inv(x),
            torch.linalg.solve(x, x),
            torch.linalg.qr(x)[0],
            torch.linalg.svd(x)[1],
            torch.linalg.eigh(x + x.T)[0],
            torch.linalg.cholesky(x @ x.T),
            torch.linalg.det(x),
            torch.linalg.lstsq(x, x)[0],
            torch.fft.fft(x),
            torch.linalg.matrix_norm(x),
            torch.cdist(x, x),
            torch.linalg.matrix_power(x, 3),
        )
    ]


@case("training/data parallel")
def _data_parallel() -> Any:
    model = nn.DataParallel(nn.Linear(8, 8).cuda())
    model(ints(6, 8)).sum().backward()
    return [p.grad for p in model.parameters()]


@case("training/names and properties")
def _names() -> Any:
    p = torch.cuda.get_device_properties(0)
    return (
        p.name,
        p.total_memory,
        p.multi_processor_count,
        p.major,
        p.minor,
        torch.cuda.get_device_capability(1),
        torch.cuda.device_count(),
        torch.cuda.is_bf16_supported(),
        torch.version.cuda,
        torch.backends.cudnn.version(),
        torch.cuda.can_device_access_peer(0, 1),
        torch.cuda.get_arch_list(),
        torch.cuda.utilization(),
    )


# Ranks


def collectives() -> Any:
    import torch.distributed as dist

    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(rank)
    x = ints(1000) + rank
    dist.all_reduce(x)
    dist.broadcast(x, 0)
    parts = [torch.empty_like(x) for _ in range(world)]
    dist.all_gather(parts, x)
    whole = torch.empty(world * 1000, device="cuda")
    dist.all_gather_into_tensor(whole, x)
    dist.reduce_scatter_tensor(x, whole)
    dist.all_to_all_single(whole, whole.clone())
    dist.reduce(x, 0, op=dist.ReduceOp.MAX)
    work = dist.all_reduce(x, async_op=True)
    assert work is not None
    work.wait()
    if rank == 0:
        dist.send(x, 1)
    elif rank == 1:
        dist.recv(x, 0)
    objects = [None] * world
    dist.all_gather_object(objects, rank)
    dist.barrier()
    pair = dist.new_group([0, 1])
    if rank < 2:
        dist.all_reduce(x, op=dist.ReduceOp.AVG, group=pair)
    dist.destroy_process_group()
    return x, whole, objects


def distributed_training(kind: str) -> Any:
    import torch.distributed as dist

    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank())
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)).cuda()
    if kind == "ddp":
        model = nn.parallel.DistributedDataParallel(model, device_ids=[dist.get_rank()])
    elif kind == "fsdp":
        for layer in model:
            torch.distributed.fsdp.fully_shard(layer)
        torch.distributed.fsdp.fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(2):
        loss = model(ints(8, 32) + dist.get_rank()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()
    return loss.item(), torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()


def hangs() -> Any:
    import torch.distributed as dist

    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank())
    if dist.get_rank() == 0:
        dist.all_reduce(ints(4))
    else:
        dist.broadcast(ints(4), 0)


CASES += [
    Case("ranks/collectives of two", lambda: lab.run_ranks(collectives, 2, show=[])),
    Case("ranks/collectives of eight", lambda: lab.run_ranks(collectives, 8, show=[]), spec="dgx-h100"),
    Case("ranks/ddp", lambda: lab.run_ranks(distributed_training, 2, "ddp", show=[])),
    Case("ranks/fsdp", lambda: lab.run_ranks(distributed_training, 2, "fsdp", show=[])),
    Case("ranks/a mismatch", lambda: lab.run_ranks(hangs, 2, show=[])),
]
