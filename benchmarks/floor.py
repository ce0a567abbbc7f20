"""How much of the overhead is torch's own: a bare wrapper subclass, nothing simulated, beside the simulation.

    python benchmarks/floor.py [--quick]

The bare one takes the inner tensors out, computes, and wraps the results: no device check, no memory, no counter. It
has the simulation's one-op `linear` and attention, so that both make the same number of calls. What is left is the way
through `__torch_dispatch__` and the making of wrappers, which every tensor subclass pays.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from overhead import Step, gpt_step, small_add

import fakegpu_lab as lab
from fakegpu_lab.driver.base.privateuse1 import CPP_DEVICES
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.cost.op import Op

_aten = torch.ops.aten
_make_wrapper: Any = torch.Tensor._make_wrapper_subclass
_known: dict[int, tuple[Any, bool, bool]] = {}
_any: dict[str, Any] = {}


def bare(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """`__torch_dispatch__` of a wrapper that does nothing but wrap."""
    known = _known.get(id(func))
    if known is None:
        op = Op(func)
        known = _known[id(func)] = (_OWN.get(op.name, op.call), bool(op.written), not op.returns)
    compute, written, silent = known
    options = {k: v for k, v in kwargs.items() if k not in ("pin_memory", "device")}
    result = compute(*[a._inner if a.__class__ is FakeCudaTensor else _unwrap(a) for a in args], **options)
    if written:
        return None if silent else args[0]
    return _wrap(result)


def _unwrap(value: Any) -> Any:
    if value.__class__ is FakeCudaTensor:
        return value._inner
    return [_unwrap(v) for v in value] if value.__class__ in (list, tuple) else value


def _wrap(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        strides = () if value.is_contiguous() else (value.stride(),)
        tensor = _make_wrapper(FakeCudaTensor, value.shape, *strides, dtype=value.dtype, device=CPP_DEVICES[0])
        tensor._inner, tensor._device, tensor._buffer = value, _any["device"], _any["buffer"]
        return tensor
    return type(value)(_wrap(v) for v in value) if isinstance(value, (list, tuple)) else value


def _linear_backward(source: Any, grad: Any, weight: Any, mask: Any) -> Any:
    rows = grad.reshape(-1, weight.shape[0])
    return (
        (rows @ weight).view(source.shape) if mask[0] else None,
        rows.t() @ source.reshape(-1, weight.shape[1]) if mask[1] else None,
        rows.sum(0) if mask[2] else None,
    )


def _attention(query: Any, key: Any, value: Any, bias: Any, sums: bool, dropout: float, causal: bool) -> Any:
    out, rows = _aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout, causal)
    return out, rows, _any["seed"], _any["seed"]


def _attention_backward(
    grad: Any, query: Any, key: Any, value: Any, bias: Any, out: Any, rows: Any, seed: Any, offset: Any,
    dropout: float, mask: Any, causal: bool,
) -> Any:  # fmt: skip
    backward = _aten._scaled_dot_product_flash_attention_for_cpu_backward
    return (*backward(grad, query, key, value, out, rows, dropout, causal), None)


_OWN: dict[str, Any] = {  # what the CPU has in several ops, or under another name
    "linear": torch._C._nn.linear,
    "linear_backward": _linear_backward,
    "_scaled_dot_product_efficient_attention": _attention,
    "_scaled_dot_product_efficient_attention_backward": _attention_backward,
}


def more(cpu: Step, device: Step, calls: int, rounds: int) -> tuple[float, float]:
    """Median ratio, and median difference in seconds a call, of batches that alternate."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            cpu()
        middle = time.perf_counter()
        for _ in range(calls):
            device()
        times.append(((middle - start) / calls, (time.perf_counter() - middle) / calls))
    return statistics.median(b / a for a, b in times), statistics.median(b - a for a, b in times)


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="3 rounds, for a look")
    rounds = 3 if parser.parse_args().quick else 41
    lab.enable("a100:2")
    anything: Any = torch.ones(1, device="cuda")
    _any.update(device=anything._device, buffer=anything._buffer, seed=torch.zeros((), dtype=torch.int64))
    work = {name: (make("cpu"), make("cuda:0")) for name, make in (("add", small_add), ("gpt", gpt_step))}
    simulated = FakeCudaTensor.__torch_dispatch__
    print(f"{'':12}{'4x4 add':>12}{'GPT step':>12}")
    for name, dispatch in (("simulated", simulated), ("bare", bare)):
        FakeCudaTensor.__torch_dispatch__ = staticmethod(dispatch)  # type: ignore[method-assign]
        for steps in work.values():
            for step in steps:
                step()
        _, seconds = more(*work["add"], 2000, rounds)
        ratio, _ = more(*work["gpt"], 1, rounds)
        print(f"{name:12}{seconds * 1e6:+9.1f} µs{ratio:10.2f} ×")


if __name__ == "__main__":
    main()
