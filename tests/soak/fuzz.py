"""Random programs that run on the CPU and on a simulated GPU in step: ``python fuzz.py KIND SEED COUNT [--only N]``.

KIND is ``autograd`` (graphs, hooks, writes in place, second derivatives), ``layout`` (views, strides, memory formats),
``out`` (``out=`` of any shape, dtype and stride) or ``streams`` (side streams, events, waits, `record_stream`). After
each op, both results must have the same values, shape, strides, offset, dtype and version, or both
must raise an error. Program N of a seed is always the same: ``--only N`` repeats it and shows its ops.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.nn import functional as F

import fakegpu_lab as lab

if TYPE_CHECKING:
    from collections.abc import Callable

    Op = Callable[..., Any]

OPS_EACH = 12
"""Ops of a program, at most."""
TOLERANCE = {torch.float32: 2e-4, torch.complex64: 2e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Relative and absolute; on a card, half precision is often computed in float32 and rounded once."""
LARGEST = 4096
"""Elements of a tensor that is still used: programs that double a tensor again and again end nowhere."""


class Different(AssertionError):
    """The two devices disagree."""


class Pair(NamedTuple):
    """A tensor on the CPU, and what should be the same on the GPU.

    Attributes
    ----------
    versions
        By how much their versions differ since they were made: what made them may have written to them more or less
        often, what the program writes counts the same.
    """

    cpu: torch.Tensor
    gpu: torch.Tensor
    versions: int


def pair_of(cpu: torch.Tensor, gpu: torch.Tensor) -> Pair:
    return Pair(cpu, gpu, 0 if cpu.is_inference() else cpu._version - gpu._version)


class Program:
    """A random program of a seed and a number."""

    def __init__(self, kind: str, seed: int, number: int, shows: bool) -> None:
        self.kind, self.shows = kind, shows
        self.dice = random.Random(f"{kind} {seed} {number}")
        self.values = torch.Generator().manual_seed(self.dice.getrandbits(40))
        self.tensors: list[Pair] = []
        self.leaves: list[Pair] = []
        self.errors = self.ops = 0
        self.said: list[str] = []

    def new(self, shape: list[int], dtype: torch.dtype, leaf: bool = False) -> Pair:
        """A tensor with random values."""
        if dtype.is_complex or dtype.is_floating_point:
            cpu = torch.randn(shape, generator=self.values, dtype=torch.float64).to(dtype)
        else:
            cpu = torch.randint(0, 2 if dtype == torch.bool else 5, shape, generator=self.values).to(dtype)
        gpu = cpu.to("cuda")
        if leaf:
            cpu.requires_grad_()
            gpu.requires_grad_()
        made = pair_of(cpu, gpu)
        self.tensors.append(made)
        if leaf:
            self.leaves.append(made)
        return made

    def shape(self, most: int = 4) -> list[int]:
        return [
            self.dice.choice([0, 1, 1, 2, 3, 4, 5]) if self.dice.random() < 0.1 else self.dice.choice([1, 2, 3, 4])
            for _ in range(self.dice.randint(0, most))
        ]

    def pick(self) -> Pair:
        return self.dice.choice(self.tensors[-5:] + self.tensors[:2])

    def forget(self, written: Pair) -> None:
        """Drop a tensor that an op was to write to, with its views: what a failed write leaves behind may differ."""
        storage = written.gpu.untyped_storage()._cdata
        self.tensors = [pair for pair in self.tensors if pair.gpu.untyped_storage()._cdata != storage]
        if not self.tensors:
            self.new([2, 2], torch.float32)

    def both(self, name: str, function: Op, *pairs: Pair, keep: bool = True) -> bool:
        """Apply a function to the tensors of each device, and compare; whether it succeeded."""
        if any(pair.cpu.numel() > LARGEST for pair in pairs):
            return True
        self.ops += 1
        if self.shows:
            print(name, [(tuple(pair.cpu.shape), pair.cpu.stride(), pair.cpu.dtype) for pair in pairs], flush=True)
        self.said.append(name)
        found: list[Any] = []
        for side in (0, 1):
            torch.manual_seed(0)
            try:
                found.append(function(*[pair[side] for pair in pairs]))
            except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
                found.append(error)
        cpu, gpu = found
        if isinstance(cpu, Exception) or isinstance(gpu, Exception):
            if isinstance(cpu, Exception) and isinstance(gpu, Exception):
                self.errors += 1
                if self.shows:
                    print("  both:", str(cpu).split("\n")[0][:150], "|", str(gpu).split("\n")[0][:150])
                return False
            if _excused(name, cpu, gpu):
                self.errors += 1
                return False
            raise Different(f"{name}: the CPU gives {_short(cpu)}, the GPU {_short(gpu)}")
        results = [cpu, gpu] if isinstance(cpu, torch.Tensor) else None
        if results is None and isinstance(cpu, (tuple, list)):
            if len(cpu) != len(gpu):
                raise Different(f"{name}: {len(cpu)} results, {len(gpu)} results")
            for one, other in zip(cpu, gpu, strict=True):
                self.compare(name, one, other)
                if keep:
                    self.tensors.append(pair_of(one, other))
        elif results is not None:
            self.compare(name, cpu, gpu)
            if keep:
                self.tensors.append(pair_of(cpu, gpu))
        for pair in pairs:
            self.compare(name + ", its argument", pair.cpu, pair.gpu)
            if self.kind != "out" and pair_of(pair.cpu, pair.gpu).versions != pair.versions:
                raise Different(f"{name}: its argument's version")
        return True

    def compare(self, name: str, cpu: torch.Tensor, gpu: torch.Tensor) -> None:
        """Raise if two tensors differ in anything that a program sees."""
        for what in (
            lambda t: t.dtype,
            lambda t: tuple(t.shape),
            lambda t: [step for step, size in zip(t.stride(), t.shape, strict=True) if size > 1],
            lambda t: t.storage_offset(),
            lambda t: t.requires_grad,
            lambda t: t.is_leaf,
            lambda t: name == "max_pool1d" or t._is_view(),  # the CPU has a kernel that needs no view
            lambda t: (t.is_conj(), t.is_neg()),
        ):
            if what(cpu) != what(gpu):
                raise Different(f"{name}: {what(cpu)} on the CPU, {what(gpu)} on the GPU")
        if gpu.device.type != "cuda":
            raise Different(f"{name}: the result is on {gpu.device}")
        tolerance = TOLERANCE.get(cpu.dtype, 1e-9)
        back = gpu.detach().cpu()
        if not torch.allclose(cpu.detach(), back, rtol=tolerance, atol=tolerance, equal_nan=True):
            error = (cpu.detach() - back).abs().max() if cpu.dtype != torch.bool else "some"
            raise Different(f"{name}: values differ by {error}: {cpu.detach().flatten()[:6]}, {back.flatten()[:6]}")


def _excused(name: str, cpu: Any, gpu: Any) -> bool:
    """What CUDA has a kernel for, and the CPU has not; and the other way round."""
    said = str(gpu if isinstance(gpu, Exception) else cpu)
    return (
        "not implemented for" in said
        or "getCudnnDataType" in said
        or said == "ZeroDivisionError"
        or (name in ("max_pool1d", "attention") and "expected" in said.lower())  # the CPU's own kernels check less
    )


def _short(found: Any) -> str:
    if isinstance(found, Exception):
        return f"{type(found).__name__}: {str(found).splitlines()[0][:200]}"
    return f"{type(found).__name__} {getattr(found, 'shape', '')}"


# Ops: (the name, what makes a function of the dice and the tensor, how many other tensors it takes).
def _dim(dice: random.Random, x: torch.Tensor) -> int:
    return dice.randint(-max(1, x.dim()), max(1, x.dim()) - 1)


def _dims(dice: random.Random, x: torch.Tensor) -> list[int]:
    return dice.sample(range(x.dim()), x.dim())


def _split(dice: random.Random, count: int) -> list[int]:
    """Factors whose product is `count`."""
    factors = []
    for prime in (2, 3, 5):
        while count > 1 and count % prime == 0:
            factors.append(prime)
            count //= prime
    factors.append(max(count, 1))
    dice.shuffle(factors)
    while len(factors) > 1 and dice.random() < 0.6:
        factors[:2] = [factors[0] * factors[1]]
    return factors


def _cross_entropy(x: torch.Tensor) -> torch.Tensor:
    if x.dim() < 2 or x.shape[1] == 0:
        raise ValueError("no class: an IndexError of the CPU is an assert on a device, after which nothing works")
    return F.cross_entropy(x, torch.zeros(x.shape[0], dtype=torch.long, device=x.device))


VIEWS: dict[str, Callable[[random.Random, torch.Tensor], Op]] = {
    "transpose": lambda d, x: lambda t, a=_dim(d, x), b=_dim(d, x): t.transpose(a, b),
    "permute": lambda d, x: lambda t, p=_dims(d, x): t.permute(p),
    "movedim": lambda d, x: lambda t, a=_dim(d, x), b=_dim(d, x): t.movedim(a, b),
    "narrow": lambda d, x: lambda t, a=_dim(d, x), s=d.randint(0, 2), n=d.randint(0, 2): t.narrow(a, s, n),
    "slice": lambda d, x: lambda t, s=slice(d.randint(-3, 3), d.choice([None, 1, 2, 3]), d.randint(1, 3)): t[s],
    "slice of the last": lambda d, x: lambda t, s=slice(d.randint(0, 2), None, d.randint(1, 2)): t[..., s],
    "select": lambda d, x: lambda t, a=_dim(d, x), i=d.randint(-2, 2): t.select(a, i),
    "unsqueeze": lambda d, x: lambda t, a=d.randint(-1, x.dim()): t.unsqueeze(a),
    "squeeze": lambda d, x: lambda t: t.squeeze(),
    "squeeze a dim": lambda d, x: lambda t, a=_dim(d, x): t.squeeze(a),
    "expand": lambda d, x: lambda t, n=d.randint(1, 3): t.unsqueeze(0).expand(n, *t.shape),
    "broadcast_to": lambda d, x: lambda t: t.broadcast_to([2, *t.shape]),
    "view": lambda d, x: lambda t, s=_split(d, x.numel()): t.view(s),
    "reshape": lambda d, x: lambda t, s=_split(d, x.numel()): t.reshape(s),
    "flatten": lambda d, x: lambda t: t.flatten(),
    "unflatten": lambda d, x: lambda t, s=_split(d, x.shape[-1] if x.dim() else 1): t.unflatten(-1, s),
    "diagonal": lambda d, x: lambda t, o=d.randint(-1, 1): t.diagonal(o, -2, -1),
    "unfold": lambda d, x: lambda t, a=_dim(d, x), s=d.randint(1, 2): t.unfold(a, 2, s),
    "as_strided": lambda d, x: (
        lambda t, s=d.choice([(2,), (1, 2), (2, 2)]), o=d.randint(0, 1): t.clone().as_strided(s, (1,) * len(s), o)
    ),
    "T": lambda d, x: lambda t: t.mT,
    "chunk": lambda d, x: lambda t, n=d.randint(1, 3), a=_dim(d, x): t.chunk(n, a),
    "split": lambda d, x: lambda t, n=d.randint(1, 3), a=_dim(d, x): t.split(n, a),
    "unbind": lambda d, x: lambda t: t.unbind(),
    "detach": lambda d, x: lambda t: t.detach(),
    "view_as_real": lambda d, x: lambda t: torch.view_as_real(t),
    "conj": lambda d, x: lambda t: t.conj(),
    "real": lambda d, x: lambda t: t.real,
    "view of a dtype": lambda d, x: lambda t, k=d.choice([torch.int32, torch.uint8, torch.float16]): t.detach().view(k),
}

COPIES: dict[str, Callable[[random.Random, torch.Tensor], Op]] = {
    "contiguous": lambda d, x: lambda t: t.contiguous(),
    "clone": lambda d, x: lambda t: t.clone(),
    "clone of a format": lambda d, x: (
        lambda t, f=d.choice([torch.channels_last, torch.contiguous_format, torch.preserve_format]): t.clone(
            memory_format=f
        )
    ),
    "to": lambda d, x: lambda t, k=d.choice([torch.float32, torch.float64, torch.float16]): t.to(k),
    "empty_like": lambda d, x: lambda t: torch.zeros_like(t),
    "ones_like": lambda d, x: lambda t: torch.ones_like(t, dtype=torch.float64),
    "new_zeros": lambda d, x: lambda t: t.new_zeros(2, 3),
    "flip": lambda d, x: lambda t, a=_dim(d, x): t.flip(a),
    "roll": lambda d, x: lambda t, a=_dim(d, x), n=d.randint(-2, 2): t.roll(n, a),
    "rot90": lambda d, x: lambda t, n=d.randint(0, 3): t.rot90(n),
    "repeat": lambda d, x: lambda t: t.repeat(*[2] * max(1, t.dim())),
    "repeat_interleave": lambda d, x: lambda t, a=_dim(d, x): t.repeat_interleave(2, a),
    "tile": lambda d, x: lambda t: t.tile(2, 2),
    "tril": lambda d, x: lambda t, k=d.randint(-1, 1): t.tril(k),
    "index_select": lambda d, x: lambda t, a=_dim(d, x): t.index_select(a, torch.tensor([0, 0], device=t.device)),
    "index": lambda d, x: lambda t: t[torch.tensor([0, -1, 0], device=t.device)],
    "index of two": lambda d, x: (
        lambda t: t[torch.tensor([0, 0], device=t.device), ..., torch.tensor([0, -1], device=t.device)]
    ),
    "mask": lambda d, x: lambda t: t[t.detach() > 0],
    "take_along": lambda d, x: lambda t, a=_dim(d, x): t.take_along_dim(t.argsort(a, stable=True), a),
    "cat": lambda d, x: lambda t, a=_dim(d, x): torch.cat([t, t], a),
    "stack": lambda d, x: lambda t, a=_dim(d, x): torch.stack([t, t], a),
    "pad": lambda d, x: lambda t: F.pad(t, (1, 2)),
    "diag_embed": lambda d, x: lambda t: torch.diag_embed(t),
    "meshgrid": lambda d, x: lambda t: torch.meshgrid(t.flatten(), t.flatten(), indexing="ij"),
    "pixel_shuffle": lambda d, x: lambda t: F.pixel_unshuffle(t, 2),
}

SMOOTH: dict[str, Callable[[random.Random, torch.Tensor], Op]] = {
    "neg": lambda d, x: torch.neg,
    "sin": lambda d, x: torch.sin,
    "cos": lambda d, x: torch.cos,
    "tanh": lambda d, x: torch.tanh,
    "sigmoid": lambda d, x: torch.sigmoid,
    "square": lambda d, x: torch.square,
    "atan": lambda d, x: torch.atan,
    "erf": lambda d, x: torch.erf,
    "expm1": lambda d, x: torch.expm1,
    "abs": lambda d, x: torch.abs,
    "relu": lambda d, x: torch.relu,
    "gelu": lambda d, x: F.gelu,
    "silu": lambda d, x: F.silu,
    "softplus": lambda d, x: F.softplus,
    "elu": lambda d, x: F.elu,
    "leaky": lambda d, x: F.leaky_relu,
    "hardswish": lambda d, x: F.hardswish,
    "mish": lambda d, x: F.mish,
    "sqrt": lambda d, x: lambda t: (t.abs() + 1).sqrt(),
    "log": lambda d, x: lambda t: (t.abs() + 1).log(),
    "rsqrt": lambda d, x: lambda t: (t.abs() + 1).rsqrt(),
    "reciprocal": lambda d, x: lambda t: 1 / (t.abs() + 1),
    "pow": lambda d, x: lambda t, n=d.choice([2, 3, 0.5]): (t.abs() + 1) ** n,
    "clamp": lambda d, x: lambda t: t.clamp(-0.5, 0.5),
    "softmax": lambda d, x: lambda t, a=_dim(d, x): t.softmax(a),
    "log_softmax": lambda d, x: lambda t, a=_dim(d, x): t.log_softmax(a),
    "logsumexp": lambda d, x: lambda t, a=_dim(d, x): t.logsumexp(a),
    "cumsum": lambda d, x: lambda t, a=_dim(d, x): t.cumsum(a),
    "cumprod": lambda d, x: lambda t, a=_dim(d, x): t.cumprod(a),
    "sum": lambda d, x: lambda t: t.sum(),
    "mean": lambda d, x: lambda t: t.mean(),
    "sum of a dim": lambda d, x: lambda t, a=_dim(d, x), k=d.random() < 0.5: t.sum(a, keepdim=k),
    "mean of a dim": lambda d, x: lambda t, a=_dim(d, x), k=d.random() < 0.5: t.mean(a, keepdim=k),
    "var": lambda d, x: lambda t, a=_dim(d, x): t.var(a, correction=0),
    "std": lambda d, x: lambda t: (t * 1.0).std(correction=0) + 1,
    "norm": lambda d, x: lambda t, a=_dim(d, x): torch.linalg.vector_norm(t + 3, dim=a),
    "amax": lambda d, x: lambda t, a=_dim(d, x): t.amax(a),
    "max": lambda d, x: lambda t, a=_dim(d, x): t.max(a)[0],
    "prod": lambda d, x: lambda t, a=_dim(d, x): t.prod(a),
    "sort": lambda d, x: lambda t, a=_dim(d, x): t.sort(a, stable=True)[0],
    "topk": lambda d, x: lambda t: t.topk(1)[0],
    "median": lambda d, x: lambda t: t.median(),
    "layer_norm": lambda d, x: lambda t: F.layer_norm(t, t.shape[-1:]),
    "normalize": lambda d, x: lambda t: F.normalize(t + 2, dim=-1),
    "group_norm": lambda d, x: lambda t: F.group_norm(t, 1),
    "batch_norm": lambda d, x: lambda t: F.batch_norm(t, None, None, training=True),
    "max_pool1d": lambda d, x: lambda t: F.max_pool1d(t, 2, 1),
    "avg_pool2d": lambda d, x: lambda t: F.avg_pool2d(t, 2, 1),
    "adaptive": lambda d, x: lambda t: F.adaptive_avg_pool2d(t, 2),
    "interpolate": lambda d, x: (
        lambda t, m=d.choice(["nearest", "bilinear", "bicubic"]): F.interpolate(t, scale_factor=2, mode=m)
    ),
    "einsum": lambda d, x: lambda t: torch.einsum("...i,...i->...", t, t),
    "gram": lambda d, x: lambda t: t @ t.mT,
    "outer": lambda d, x: lambda t: torch.outer(t, t),
    "trace": lambda d, x: lambda t: t.trace(),
    "fft": lambda d, x: lambda t: torch.fft.rfft(t.flatten()).abs().sum(),
    "cross_entropy": lambda d, x: _cross_entropy,
    "mse": lambda d, x: lambda t: F.mse_loss(t, torch.zeros_like(t)),
    "huber": lambda d, x: lambda t: F.huber_loss(t, torch.ones_like(t)),
    "dropout of none": lambda d, x: lambda t: F.dropout(t, 0.0),
    "checkpoint": lambda d, x: (
        lambda t: torch.utils.checkpoint.checkpoint(lambda s: s.tanh().mul(2), t, use_reentrant=False)
    ),
    "nan_to_num": lambda d, x: lambda t: t.nan_to_num(),
    "logcumsumexp": lambda d, x: lambda t, a=_dim(d, x): t.logcumsumexp(a),
    "glu": lambda d, x: lambda t: F.glu(t, -1),
    "renorm": lambda d, x: lambda t: t.renorm(2, 0, 1.0),
    "where": lambda d, x: lambda t: torch.where(t > 0, t, 2 * t),
    "addcmul": lambda d, x: lambda t: torch.addcmul(t, t, t, value=0.5),
    "lerp": lambda d, x: lambda t: t.lerp(t.detach() + 1, 0.25),
    "unique": lambda d, x: lambda t: t.detach().round().unique(),
    "det": lambda d, x: lambda t: torch.linalg.det(t @ t.mT + torch.eye(t.shape[-2], dtype=t.dtype, device=t.device)),
    "solve": lambda d, x: (
        lambda t: torch.linalg.solve(t @ t.mT + 3 * torch.eye(t.shape[-2], dtype=t.dtype, device=t.device), t)
    ),
    "cholesky": lambda d, x: (
        lambda t: torch.linalg.cholesky(t @ t.mT + 3 * torch.eye(t.shape[-2], dtype=t.dtype, device=t.device))
    ),
}

TWO: dict[str, Op] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": lambda a, b: a / (b.abs() + 1),
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "atan2": lambda a, b: torch.atan2(a, b + 3),
    "hypot": torch.hypot,
    "matmul": torch.matmul,
    "linear": F.linear,
    "bmm": torch.bmm,
    "where": lambda a, b: torch.where(a > b, a, b),
    "addmm": lambda a, b: torch.addmm(a, b, b),
    "baddbmm": lambda a, b: torch.baddbmm(a, b, b.mT),
    "cat": lambda a, b: torch.cat([a, b]),
    "stack": lambda a, b: torch.stack([a, b]),
    "dot": torch.dot,
    "mv": torch.mv,
    "outer": torch.outer,
    "kron": torch.kron,
    "cdist": torch.cdist,
    "conv1d": lambda a, b: F.conv1d(a, b, padding=1),
    "conv2d": lambda a, b: F.conv2d(a, b, padding=2),
    "conv_transpose2d": F.conv_transpose2d,
    "tensordot": lambda a, b: torch.tensordot(a, b, 1),
    "cosine": F.cosine_similarity,
    "mse": F.mse_loss,
    "attention": lambda a, b: F.scaled_dot_product_attention(a, b, b),
    "logaddexp": torch.logaddexp,
    "scatter_add": lambda a, b: a.scatter_add(0, torch.zeros(b.shape, dtype=torch.long, device=b.device), b),
    "index_add": lambda a, b: a.index_add(0, torch.zeros(b.shape[0], dtype=torch.long, device=b.device), b),
    "index_put": lambda a, b: a.index_put((torch.tensor([0], device=a.device),), b, accumulate=True),
    "masked_scatter": lambda a, b: a.masked_scatter(a > 0, b.flatten()[:1].expand(a.numel())),
    "embedding": lambda a, b: F.embedding((b.detach().abs() * 0).long(), a),
    "bilinear": lambda a, b: F.bilinear(a, a, b),
    "multi_dot": lambda a, b: torch.linalg.multi_dot([a, b, a]),
    "fmod": lambda a, b: torch.fmod(a, b.abs() + 1),
    "remainder": lambda a, b: torch.remainder(a, b.abs() + 1),
    "eq": lambda a, b: a == b,
    "lt": lambda a, b: a < b,
    "isclose": torch.isclose,
    "copysign": torch.copysign,
    "floor_divide": lambda a, b: torch.floor_divide(a.detach(), b.detach().abs() + 1),
}

IN_PLACE: dict[str, Op] = {
    "add_": lambda a, b: a.add_(b),
    "mul_": lambda a, b: a.mul_(b),
    "sub_": lambda a, b: a.sub_(b, alpha=2),
    "copy_": lambda a, b: a.copy_(b),
    "[:1] =": lambda a, b: a[:1].copy_(b[:1]),
    "+=": lambda a, b: a.__iadd__(b),
    "[...] = 2": lambda a, b: a.__setitem__(..., 2),
    "[0] +=": lambda a, b: a.__setitem__(0, a[0] + 1),
    "zero_": lambda a, b: a.zero_(),
    "fill_": lambda a, b: a.fill_(0.5),
    "clamp_": lambda a, b: a.clamp_(-1, 1),
    "masked_fill_": lambda a, b: a.masked_fill_(b.detach() > 0, 0.25),
    "tanh_": lambda a, b: a.tanh_(),
    "index_put_": lambda a, b: a.index_put_((torch.tensor([0], device=a.device),), b, accumulate=True),
    "relu_": lambda a, b: torch.relu_(a),
    "transpose_": lambda a, b: a.transpose_(0, -1),
    "squeeze_": lambda a, b: a.squeeze_(),
    "resize": lambda a, b: a.detach().clone().resize_(3, 2).zero_(),
    "lerp_": lambda a, b: a.lerp_(b, 0.5),
    "addcdiv_": lambda a, b: a.addcdiv_(b, b.detach().abs() + 1),
    "swap": lambda a, b: a.t_(),
    "[mask] =": lambda a, b: a.__setitem__(a > 0, 1.5),
    "set data": lambda a, b: setattr(a, "data", a.data * 2),
    "diagonal fill": lambda a, b: a.diagonal(0, -2, -1).fill_(1),
}


def autograd(program: Program) -> None:
    """Leaves, ops, writes in place, hooks; then a backward, and at times a second derivative."""
    dice = program.dice
    dtype = dice.choice([torch.float64, torch.float64, torch.float32])
    for _ in range(dice.randint(1, 3)):
        program.new(program.shape(), dtype, leaf=True)
    program.new(program.shape(), dtype)
    for _ in range(dice.randint(2, OPS_EACH)):
        _step(program, [SMOOTH, SMOOTH, VIEWS, COPIES], [TWO, IN_PLACE])
        if dice.random() < 0.1:
            pair, factor = program.pick(), dice.randint(2, 3)
            program.both("hook", lambda t, f=factor: t.register_hook(lambda g: g * f) and None, pair)
        if dice.random() < 0.1:
            program.both("retain_grad", lambda t: t.retain_grad(), program.pick())
    ends = [
        pair for pair in program.tensors[len(program.leaves) :] if pair.cpu.requires_grad and pair.cpu.dtype == dtype
    ]
    if not ends:
        return
    end = dice.choice(ends[-4:])
    again = dice.random() < 0.3
    if dice.random() < 0.5:
        leaves = [pair for pair in program.leaves if pair.cpu.requires_grad]
        cpu, gpu = ([pair[side] for pair in leaves] for side in (0, 1))
        count = len(program.tensors)
        program.both(
            "grad",
            lambda t: torch.autograd.grad(
                t.sum(), cpu if t.device.type == "cpu" else gpu, create_graph=again, materialize_grads=True
            ),
            end,
        )
        if again and len(program.tensors) > count and (first := program.tensors[-1]).cpu.requires_grad:
            program.both("grad of the grad", lambda t: t.square().sum().backward(), first)
    else:
        program.both("backward", lambda t: t.sum().backward(retain_graph=again), end)
        if again:
            program.both("backward again", lambda t: t.sum().backward(), end)
    for number, leaf in enumerate(program.tensors):
        if leaf.cpu.is_leaf or leaf.cpu.retains_grad:
            if (leaf.cpu.grad is None) != (leaf.gpu.grad is None):
                raise Different(f"only one of the gradients of tensor {number} is there")
            if leaf.cpu.grad is not None and leaf.gpu.grad is not None:
                program.compare(f"the gradient of tensor {number}", leaf.cpu.grad, leaf.gpu.grad)


def layout(program: Program) -> None:
    """Views of views, copies of them, and writes to them."""
    dice = program.dice
    dtype = dice.choice([torch.float32, torch.float64, torch.int64, torch.complex64, torch.bool, torch.float16])
    program.new(program.shape(5), dtype)
    program.new(program.shape(5), dtype)
    for _ in range(dice.randint(3, OPS_EACH)):
        _step(program, [VIEWS, VIEWS, COPIES, SMOOTH], [TWO, IN_PLACE])
    for pair in program.tensors:
        program.compare("at the end", pair.cpu, pair.gpu)


def _step(program: Program, ones: list[dict[str, Any]], twos: list[dict[str, Op]]) -> None:
    dice = program.dice
    if dice.random() < 0.7:
        table = dice.choice(ones)
        name, x = dice.choice(list(table)), program.pick()
        program.both(name, table[name](dice, x.cpu), x)
    else:
        table = dice.choice(twos)
        name = dice.choice(list(table))
        a, b = program.pick(), program.pick()
        if table is IN_PLACE and dice.random() < 0.5:
            a = program.tensors[-1]
        good = program.both(name, table[name], a, b)
        if not good and table is IN_PLACE:  # what a failed write leaves behind may differ
            program.forget(a)


OUT: dict[str, tuple[int, Op]] = {
    **{
        name: (1, getattr(torch, name))
        for name in """
        abs neg exp sin tanh sigmoid sqrt square floor ceil round sign rsqrt log1p expm1
        erf reciprocal trunc frac logit isposinf bitwise_not logical_not angle cos atan
        """.split()
    },
    **{
        name: (2, getattr(torch, name))
        for name in """
        add sub mul div maximum minimum atan2 pow fmod remainder eq lt ge ne logical_and
        logical_or matmul mm bmm mv dot outer bitwise_and bitwise_or hypot heaviside
        true_divide floor_divide copysign nextafter inner kron gcd
        """.split()
    },
    "sum": (1, lambda t, out: torch.sum(t, 0, out=out)),
    "mean": (1, lambda t, out: torch.mean(t, -1, out=out)),
    "prod": (1, lambda t, out: torch.prod(t, 0, out=out)),
    "cumsum": (1, lambda t, out: torch.cumsum(t, 0, out=out)),
    "amax": (1, lambda t, out: torch.amax(t, 0, out=out)),
    "argmax": (1, lambda t, out: torch.argmax(t, 0, out=out)),
    "any": (1, lambda t, out: torch.any(t, 0, out=out)),
    "var": (1, lambda t, out: torch.var(t, 0, correction=0, out=out)),
    "norm": (1, lambda t, out: torch.linalg.vector_norm(t, out=out)),
    "softmax": (1, lambda t, out: torch.softmax(t, 0, out=out)),
    "clamp": (1, lambda t, out: torch.clamp(t, 0, 1, out=out)),
    "cat": (2, lambda a, b, out: torch.cat([a, b], out=out)),
    "stack": (2, lambda a, b, out: torch.stack([a, b], out=out)),
    "tril": (1, lambda t, out: torch.tril(t, out=out)),
    "index_select": (1, lambda t, out: torch.index_select(t, 0, torch.tensor([0, 0], device=t.device), out=out)),
    "gather": (1, lambda t, out: torch.gather(t, 0, torch.zeros(t.shape, dtype=torch.long, device=t.device), out=out)),
    "take": (1, lambda t, out: torch.take(t, torch.tensor([0, 0], device=t.device), out=out)),
    "masked_select": (2, lambda a, b, out: torch.masked_select(a, b > 0, out=out)),
    "nonzero": (1, lambda t, out: torch.nonzero(t, out=out)),
    "addmm": (2, lambda a, b, out: torch.addmm(a, b, b, out=out)),
    "addcmul": (2, lambda a, b, out: torch.addcmul(a, b, b, out=out)),
    "lerp": (2, lambda a, b, out: torch.lerp(a, b, 0.5, out=out)),
    "where": (2, lambda a, b, out: torch.where(a > b, a, b, out=out)),
    "arange": (1, lambda t, out: torch.arange(5, out=out)),
    "zeros": (1, lambda t, out: torch.zeros(2, 3, out=out)),
    "full": (1, lambda t, out: torch.full((2, 2), 3, out=out)),
    "linspace": (1, lambda t, out: torch.linspace(0, 1, 5, out=out)),
    "eye": (1, lambda t, out: torch.eye(3, out=out)),
    "diag": (1, lambda t, out: torch.diag(t, out=out)),
    "inv": (1, lambda t, out: torch.linalg.inv(t @ t.mT + 3 * torch.eye(t.shape[-1], device=t.device), out=out)),
    "roll": (1, lambda t, out: torch.cumprod(t, 0, out=out)),
    "sort": (
        1,
        lambda t, out: torch.sort(t, 0, stable=True, out=(out, torch.empty(0, dtype=torch.long, device=t.device)))[0],
    ),
    "max": (1, lambda t, out: torch.max(t, 0, out=(out, torch.empty(0, dtype=torch.long, device=t.device)))[0]),
}


def out(program: Program) -> None:
    """Ops with ``out=``, which may have another shape, dtype or stride, or be a part of an argument."""
    dice = program.dice
    kinds = [torch.float32, torch.float32, torch.float64, torch.int64, torch.int32, torch.bool, torch.complex64]
    for _ in range(dice.randint(2, 4)):
        shape, dtype = program.shape(3), dice.choice(kinds)
        program.new(shape, dtype)
        if dice.random() < 0.7:
            program.new(shape, dtype)
    for _ in range(dice.randint(2, OPS_EACH)):
        name = dice.choice(list(OUT))
        count, function = OUT[name]
        of = [program.pick() for _ in range(count)]
        place, how = program.pick(), dice.choice(["", "", "T", "slice", "fresh", "fresh", "empty"])
        if how == "fresh":  # of the right shape at times
            place = program.new(list(of[0].cpu.shape), dice.choice([of[0].cpu.dtype, dice.choice(kinds)]))
        if how == "empty":
            place = program.new([0], dice.choice([of[0].cpu.dtype, dice.choice(kinds)]))

        def call(*tensors: torch.Tensor, how: str = how, function: Op = function) -> Any:
            *of, place = tensors
            given = place.mT if how == "T" else place[::2] if how == "slice" else place
            made = function(*of, out=given)
            assert made is given, "out= is not what was returned"
            return made

        if not program.both(f"{name} out={how}", call, *of, place):
            program.forget(place)


def streams(program: Program) -> None:
    """Ops on several streams, with events and waits where one needs another's result, and a recording's rules."""
    dice = program.dice
    program.new([dice.choice([4, 64, 512])] * 2, torch.float32)
    side = [torch.cuda.Stream(priority=dice.choice([0, -1])) for _ in range(3)] + [torch.cuda.default_stream()]
    last: dict[int, torch.cuda.Stream] = {id(program.tensors[0].gpu): side[-1]}
    events: list[tuple[torch.cuda.Event, torch.cuda.Stream]] = []
    torch.cuda.synchronize()
    with lab.record() as trace:
        for _ in range(dice.randint(4, 3 * OPS_EACH)):
            stream, pair = dice.choice(side), program.pick()
            before = last.get(id(pair.gpu), side[-1])
            with torch.cuda.stream(stream):
                if before != stream:
                    how = dice.choice(["event", "wait_stream", "synchronize", "all"])
                    if how == "event":
                        stream.wait_event(before.record_event())
                    elif how == "wait_stream":
                        stream.wait_stream(before)
                    elif how == "synchronize":
                        before.synchronize()
                    else:
                        torch.cuda.synchronize()
                    pair.gpu.record_stream(stream)
                what = dice.choice(["product", "sin", "in place", "copy", "host", "event", "new"])
                if what == "product":
                    program.both(what, lambda t: (t @ t).tanh(), pair)
                elif what == "sin":
                    program.both(what, lambda t: t.sin() + 1, pair)
                elif what == "in place":
                    program.both(
                        what,
                        lambda t: t.mul_(0.5).add_(1) and None if t.numel() == 1 else t.mul_(0.5),
                        pair,
                        keep=False,
                    )
                elif what == "copy":
                    program.both(what, lambda t: t.cpu().clone().pin_memory().to(t.device, non_blocking=True), pair)
                elif what == "host":
                    program.both(what, lambda t: torch.tensor(t.sum().item(), device=t.device), pair, keep=False)
                elif what == "new":
                    program.both(what, lambda t: torch.full_like(t, 0.5), pair)
                else:
                    event = torch.cuda.Event(enable_timing=True)
                    event.record(stream)
                    events.append((event, stream))
                last[id(program.tensors[-1].gpu)] = last[id(pair.gpu)] = stream
            if dice.random() < 0.1 and len(program.tensors) > 3:
                program.tensors.pop(dice.randint(1, len(program.tensors) - 2))
        torch.cuda.synchronize()
    _rules(trace, events)
    for one in program.tensors:
        program.compare("at the end", one.cpu, one.gpu)


def _rules(trace: Any, events: list[tuple[torch.cuda.Event, torch.cuda.Stream]]) -> None:
    if trace.races:
        raise Different(f"a race that there is not: {trace.races[0]}")
    ends: dict[int, int] = {}
    for kernel in sorted(trace.kernels, key=lambda one: one.start_ns):
        if kernel.start_ns < ends.get(kernel.stream, 0) or kernel.end_ns < kernel.start_ns:
            raise Different(f"two kernels of stream {kernel.stream} at once: {kernel}")
        ends[kernel.stream] = kernel.end_ns
    for (first, stream), (second, other) in itertools.pairwise(events):
        if stream == other and first.elapsed_time(second) < 0:
            raise Different("the time between two events of a stream is negative")


KINDS = {"autograd": autograd, "layout": layout, "out": out, "streams": streams}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--only", type=int, help="repeat this program, and show its ops")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    lab.enable("a100:2")
    torch.ones(1, device="cuda").sin()
    found: Counter[str] = Counter()
    ops = errors = 0
    for number in range(asked.count) if asked.only is None else [asked.only]:
        program = Program(asked.kind, asked.seed, number, asked.only is not None)
        try:
            KINDS[asked.kind](program)
        except Exception as error:
            what = program.said[-1] if program.said else ""
            found[what] += 1
            if found[what] <= 3:
                print(f"{asked.kind} {asked.seed} --only {number}: {type(error).__name__} {error}"[:600], flush=True)
            if asked.only is not None:
                raise
            lab.enable("a100:2")  # after a device-side assert, nothing works
        ops, errors = ops + program.ops, errors + program.errors
        program.tensors.clear()
        program.leaves.clear()
        if number % 500 == 0:
            torch.cuda.synchronize()
    print(
        f"{asked.kind}, seed {asked.seed}: {asked.count} programs, {ops} ops, of which {errors} raise on both", end="; "
    )
    print(f"{sum(found.values())} programs differ: {dict(found)}" if found else "no difference")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
