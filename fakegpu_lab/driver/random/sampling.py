"""Random ops that take tensors or make new ones: `bernoulli`, `normal`, `randperm`, `multinomial`, RReLU.

They draw the numbers of CUDA's kernels, and advance the generator's offset as on CUDA. `multinomial` with replacement
compares with a running sum, which a GPU adds up in another order: a sample on the border of two categories may differ.

Not reproduced are `poisson`, `binomial`, `_standard_gamma` and `_sample_dirichlet`. The CPU's kernels compute them from
a seed that follows from the generator's state, so they are repeatable, and they advance the offset as on CUDA. The
dropout inside fused attention (`ops.attention.fused`) and recurrent layers (`ops.recurrent`) is elsewhere: its seed
comes from the device's generator, but its mask is not that of a GPU.
"""

from __future__ import annotations

from functools import lru_cache, partial
from math import ceil, log, log2
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fakegpu_lab.driver.placement.dtypes import scalar_type
from fakegpu_lab.driver.random import generators
from fakegpu_lab.driver.random.distributions import FLOATING, exponential_, fills, integers, normal_, supported
from fakegpu_lab.driver.random.elementwise_rng import draw
from fakegpu_lab.hardware.philox import curand

if TYPE_CHECKING:
    from fakegpu_lab.driver.cost.op import Op
    from fakegpu_lab.driver.random.generators import CudaGenerator
    from fakegpu_lab.hardware.device import Device

    Arguments = dict[str, Any]

_DISCRETE = FLOATING | {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool}


def decomposes(op: Op) -> bool:
    """Whether C++ decomposes that random op on every device (`rand_like`: into `empty_like` and `uniform_`)."""
    key = "CompositeExplicitAutograd"
    if op.row.draws is not None or not torch._C._dispatch_has_kernel_for_dispatch_key(op.func.name(), key):
        return False
    op.composite = torch._C.DispatchKey.CompositeExplicitAutograd
    return True


def run(op: Op, device: Device, *args: Any, **kwargs: Any) -> Any:
    """Compute a random op on inner tensors with the generator in its arguments, or the device's."""
    arguments = _defaults(op).copy()
    arguments.update(zip(op.arguments, args, strict=False))
    arguments.update(kwargs)
    given = None if arguments.get("n") == 0 else arguments.get("generator")  # randperm(0) takes any, and draws nothing
    generator = generators.of(given, device.index)
    if op.row.draws is not None:
        return op.row.draws(op, device, generator, arguments)
    return _on_cpu(op, generator, args, kwargs)


@lru_cache(maxsize=256)
def _defaults(op: Op) -> dict[str, Any]:
    return {a.name: a.default_value for a in op.schema.arguments if a.has_default_value()}


def _on_cpu(op: Op, generator: CudaGenerator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the CPU's kernel with a seed that follows from the generator's state."""
    offset = generator.advance(op.row.offset)
    low, high, *_ = curand.words(generator.state.seed, offset // 4, 0, 1)
    seed = int(low[0]) | int(high[0]) << 32
    if op.has_generator:
        host = torch.Generator().manual_seed(seed)
        position = op.position["generator"]
        if position < len(args):
            args = (*args[:position], host, *args[position + 1 :])
        else:
            kwargs["generator"] = host
        return op.func._op(*args, **kwargs)
    host = torch.default_generator
    state = host.get_state()
    host.manual_seed(seed)
    try:
        return op.func._op(*args, **kwargs)
    finally:
        host.set_state(state)


def bernoulli_by_tensor(op: Op, device: Device, generator: CudaGenerator, arguments: Arguments) -> Any:
    """`bernoulli_tensor_cuda_kernel`: four neighbours for each thread, in the order of `CUDA_tensor_apply2`."""
    target, p = arguments["self"], arguments["p"]
    if target.numel():
        _bernoulli(op, target, p, generator)
    return target


def bernoulli_out(op: Op, device: Device, generator: CudaGenerator, arguments: Arguments) -> Any:
    """``torch.bernoulli(p, out=out)``."""
    out, p = arguments["out"], arguments["self"]
    out.resize_(p.shape)
    if out.numel():
        _bernoulli(op, out, p, generator)
    return out


def _bernoulli(op: Op, target: torch.Tensor, p: torch.Tensor, generator: CudaGenerator) -> None:
    if 0 in target.stride() and target.numel() > 1:
        target.bernoulli_(0.5)  # raises: it would write an element twice
    offset = generator.advance(10)
    if not p.is_floating_point():
        raise RuntimeError(f"expected probabilities tensor to have floating type, got {scalar_type(p.dtype)}")
    p = p.to(torch.float64 if target.dtype is torch.float64 else torch.float32).expand(target.shape)
    supported("bernoulli_tensor_cuda_self_", target.dtype, _DISCRETE)
    if target.device.type == "meta":
        return
    if not bool(((p >= 0) & (p <= 1)).all()):
        # On CUDA this is a device-side assert: `device_asserts.failed` turns the error into one.
        raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true")
    drawn = np.empty(target.numel(), np.float32)
    curand.interleaved(drawn, generator.state.seed, offset, curand.uniform)
    order = _apply_order(target, p)
    ordered = target.permute(order)
    ordered.copy_(torch.from_numpy(drawn).view(ordered.shape) <= p.permute(order))


def _apply_order(a: torch.Tensor, b: torch.Tensor) -> list[int]:
    """CUDAApplyUtils.cuh, rearrangeDims: sorts dimensions by decreasing stride, where both tensors agree."""
    order = list(range(a.dim()))
    if a.is_contiguous() and b.is_contiguous():
        return order
    for i in range(len(order) - 1):
        for j in range(i + 1, len(order)):
            first, second = order[i], order[j]
            if a.shape[first] == 1 or a.shape[second] == 1:
                continue
            steps = [(t.stride(first), t.stride(second)) for t in (a, b)]
            if any(x < y for x, y in steps) and not any(x > y for x, y in steps):
                order[i], order[j] = second, first
    return order


def normal_by_tensors(op: Op, device: Device, generator: CudaGenerator, arguments: Arguments) -> Any:
    """``torch.normal(mean, std)`` with at least one tensor (native/DistributionTemplates.h: normal_out_impl)."""
    mean, std = arguments["mean"], arguments["std"]
    if isinstance(std, torch.Tensor):
        if std.is_complex():
            raise RuntimeError("normal expects standard deviation to be non-complex")
        if std.numel() and std.device.type != "meta" and not bool(std.min() >= 0):
            raise RuntimeError("normal expects all elements of std >= 0.0")
    elif std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
    tensors = [value for value in (mean, std) if isinstance(value, torch.Tensor)]
    shape = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))  # type: ignore[no-untyped-call]
    out = arguments.get("out")
    if out is None:
        out = torch.empty(shape, dtype=tensors[0].dtype, device=tensors[0].device)
    elif out.shape != shape:
        out.resize_(shape)
    alone = not isinstance(std, torch.Tensor)
    if out.numel():
        normal_(out, device, generator, {"mean": 0.0, "std": std if alone else 1.0})
    if not alone:
        out.mul_(std)
    return out.add_(mean)


def randperm(op: Op, device: Device, generator: CudaGenerator, arguments: Arguments) -> Any:
    """`randperm_out_cuda`: an arange sorted by random keys; equal keys are shuffled (cuda/Randperm.cu)."""
    n, out = arguments["n"], arguments["out"]
    _check_precision(n, out.dtype)
    order = torch.arange(n, dtype=out.dtype, device=out.device)
    out.resize_(n)
    if n == 0:
        return out
    bits = min(64, ceil(log2(n - (6 * n * n + 1) / (log(0.9) * 12))))
    wide = bits > 32
    keys = torch.empty(n, dtype=torch.int64 if wide else torch.int32, device=out.device)
    integers(keys, device, generator, *((-(2**63), 2**64 - 1) if wide else (-(2**31), 2**32 - 1)))
    supported("randperm_out_cuda", out.dtype, _DISCRETE - {torch.bfloat16, torch.bool})
    offset = generator.advance(n)
    if out.device.type == "meta":
        return out
    numbers = keys.numpy().astype(np.int64)
    if bits < (64 if wide else 32):  # without the sign, which would change the order
        numbers &= (1 << bits) - 1
    sorting = torch.sort(torch.from_numpy(numbers), stable=True).indices.numpy()
    _shuffle_equal(sorting, numbers[sorting], generator.state.seed, offset)
    out.copy_(order[torch.from_numpy(sorting)])
    return out


def _check_precision(n: int, dtype: torch.dtype) -> None:
    """`check_supported_max_int_with_precision` (TensorFactories.h)."""
    torch.scalar_tensor(max(n - 1, 0), dtype=dtype)  # raises where it is too large
    for limited, bits, most, name in _PRECISION:
        if dtype is limited and n > (1 << bits) + 1:
            raise RuntimeError(f"n cannot be greater than {most} for {name} type.")


_PRECISION = (
    (torch.float16, 11, "2049", "Half"),
    (torch.float32, 24, "2^24+1", "Float"),
    (torch.float64, 53, "2^53+1", "Double"),
)


def _shuffle_equal(order: np.ndarray[Any, Any], keys: np.ndarray[Any, Any], seed: int, offset: int) -> None:
    """`randperm_handle_duplicate_keys_kernel`: Fisher–Yates within each run of equal keys, by its first thread."""
    equal = keys[1:] == keys[:-1]
    starts = np.flatnonzero(equal & ~np.concatenate(([False], equal[:-1])))
    for start in starts.tolist():
        size = 2
        while start + size < len(keys) and keys[start + size] == keys[start]:
            size += 1
        for drawn, i in enumerate(range(size - 1, 0, -1)):
            words = curand.words(seed, offset // 4 + drawn // 4, start, 1)
            other = int(words[drawn % 4][0]) % (i + 1)
            order[[start + i, start + other]] = order[[start + other, start + i]]


def multinomial(op: Op, device: Device, generator: CudaGenerator, arguments: Arguments) -> Any:
    """`multinomial` (native/Distributions.cpp): by exponential numbers, or by a search with replacement."""
    weights, samples, replacement = arguments["self"], arguments["num_samples"], arguments["replacement"]
    _check_weights(weights, samples, replacement)
    shape = (*weights.shape[:-1], samples)
    result = arguments.get("out")
    if result is None:
        result = torch.empty(shape, dtype=torch.int64, device=weights.device)
    else:
        result.resize_(shape)
    if not result.numel():
        return result
    if weights.device.type != "meta":
        if not bool((weights.max() < torch.inf) & (weights.min() >= 0)):
            raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
        if bool((weights.sum(-1) == 0).any()):
            raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    if replacement and samples > 1:
        return result.copy_(_with_replacement(weights.reshape(-1, weights.shape[-1]), samples, generator).view(shape))
    rivals = torch.empty_like(weights)
    fills(exponential_)(_exponential(), device, generator, {"self": rivals, "lambd": 1.0})
    torch.div(weights, rivals, out=rivals)
    if weights.device.type == "meta":
        return result
    if samples == 1:
        return result.copy_(rivals.argmax(-1, keepdim=True))
    return result.copy_(rivals.topk(samples).indices)


@lru_cache(maxsize=1)
def _exponential() -> Any:
    from fakegpu_lab.driver.cost.op import Op

    return Op(torch.ops.aten.exponential_.default)


def _check_weights(weights: torch.Tensor, samples: int, replacement: bool) -> None:
    """The checks of native/Distributions.cpp."""
    if not weights.is_floating_point():
        raise RuntimeError(
            f"multinomial only supports floating-point dtypes for input, got: {scalar_type(weights.dtype)}"
        )
    if not 0 < weights.dim() <= 2:
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and samples > weights.shape[-1]:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    if weights.shape[-1] > 2**24:
        raise RuntimeError("number of categories cannot exceed 2^24")


def _with_replacement(weights: torch.Tensor, samples: int, generator: CudaGenerator) -> torch.Tensor:
    """`sampleMultinomialWithReplacement`: blocks of 128 samples, for up to 65535 distributions at a time."""
    count, categories = weights.shape
    rows = min(count, 65535)
    width = ((samples - 1) // 128 + 1) * 128
    offset = generator.advance(((count - 1) // rows + 1) * 4)
    result = torch.empty(count, samples, dtype=torch.int64, device=weights.device)
    if weights.device.type == "meta":
        return result
    normed = weights / weights.sum(1, keepdim=True)
    running = normed.cumsum(1)
    for turn, first in enumerate(range(0, count, rows)):
        here = slice(first, first + rows)
        drawn = np.empty((len(running[here]), width), np.float32)
        curand.interleaved(drawn.reshape(-1), generator.state.seed, offset + 4 * turn, curand.uniform, 1)
        values = torch.from_numpy(drawn[:, :samples]).to(weights.dtype).contiguous()
        result[here] = torch.searchsorted(running[here].contiguous(), values)
    result.clamp_(max=categories - 1)
    while bool((impossible := (normed.gather(1, result) == 0) & (result > 0)).any()):
        result -= impossible.to(torch.int64)
    return result


def rrelu_with_noise(op: Op, device: Device, generator: CudaGenerator, arguments: Arguments) -> Any:
    """RReLU in training (cuda/RreluWithNoise.cu): a random slope where the input is not positive."""
    tensor, noise = arguments["self"], arguments["noise"]
    lower, upper = float(arguments["lower"]), float(arguments["upper"])
    out = tensor if op.name.endswith("_") else arguments.get("out")
    if out is None:
        out = torch.empty_like(tensor, memory_format=torch.contiguous_format)
    elif out is not tensor and out.shape != tensor.shape:
        out.resize_(tensor.shape)
    if not arguments["training"]:
        return out.copy_(torch.nn.functional.leaky_relu(tensor, (lower + upper) / 2))
    if tensor.numel():
        slopes = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        supported("rrelu_with_noise_out_cuda", tensor.dtype)
        double = tensor.dtype is torch.float64
        draw(
            slopes, device, generator, curand.uniform_double if double else curand.uniform,
            double, partial(_slopes, dtype=tensor.dtype, lower=lower, upper=upper),
        )  # fmt: skip
        negative = tensor <= 0
        noise.copy_(torch.where(negative, slopes, 1))
        out.copy_(torch.where(negative, tensor * slopes, tensor))
    return out


def _slopes(values: np.ndarray[Any, Any], dtype: torch.dtype, lower: float, upper: float) -> torch.Tensor:
    """Uniform numbers of dtype `dtype`, scaled to between `lower` and `upper` in float64."""
    return torch.from_numpy(values).to(dtype).to(torch.float64) * (upper - lower) + lower
