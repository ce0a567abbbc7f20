"""Error texts: wrong devices, wrong dtypes, devices that are not there, loading, and device-side asserts."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - its name everywhere

from .common import DEVICE, attempt, refusal

Cases = dict[str, Callable[[], Any]]


def _devices() -> Cases:
    c, g = torch.ones(2, 2), torch.ones(2, 2, device=DEVICE)
    i, j = torch.tensor([0, 1]), torch.tensor([0, 1], device=DEVICE)
    image, filters = torch.ones(1, 1, 4, 4), torch.ones(1, 1, 3, 3)
    return {
        "add": lambda: g + c,
        "add_": lambda: g.clone().add_(c),
        "where": lambda: torch.where(g > 0, c, g),
        "addcmul": lambda: torch.addcmul(g, c, g),
        "lerp": lambda: torch.lerp(g, c, 0.5),
        "mm": lambda: g @ c,
        "mm_reversed": lambda: c @ g,
        "bmm": lambda: torch.bmm(g[None], c[None]),
        "addmm": lambda: torch.addmm(c, g, g),
        "mv": lambda: g @ c[0],
        "dot": lambda: torch.dot(g[0], c[0]),
        "linear_weight": lambda: F.linear(g, c),
        "linear_input": lambda: F.linear(c, g),
        "linear_bias": lambda: F.linear(g, g, c[0]),
        "linear_module": lambda: nn.Linear(2, 2).to(DEVICE)(c),
        "conv2d_weight": lambda: F.conv2d(image.to(DEVICE), filters),
        "conv2d_input": lambda: F.conv2d(image, filters.to(DEVICE)),
        "conv2d_bias": lambda: F.conv2d(image.to(DEVICE), filters.to(DEVICE), torch.ones(1)),
        "batch_norm": lambda: nn.BatchNorm2d(1)(image.to(DEVICE)),
        "layer_norm": lambda: nn.LayerNorm(2)(g),
        "embedding": lambda: F.embedding(i, g),
        "embedding_weight": lambda: F.embedding(j, c),
        "cross_entropy": lambda: F.cross_entropy(g, i),
        "mse_loss": lambda: F.mse_loss(g, c),
        "bce": lambda: F.binary_cross_entropy(g, c),
        "cat": lambda: torch.cat([g, c]),
        "stack": lambda: torch.stack([g, c]),
        "index": lambda: c[j],
        "index_put": lambda: g.clone().index_put_((j,), c[0]),
        "index_select": lambda: g.index_select(0, i),
        "gather": lambda: g.gather(0, i[None]),
        "scatter_": lambda: g.clone().scatter_(0, j[None], c),
        "masked_fill": lambda: g.masked_fill(c > 0, 1.0),
        "masked_select": lambda: g.masked_select(c > 0),
        "sdpa": lambda: F.scaled_dot_product_attention(g[None, None], c[None, None], g[None, None]),
        "lstm": lambda: nn.LSTM(2, 2).to(DEVICE)(torch.ones(1, 1, 2)),
        "out": lambda: torch.add(g, g, out=c),
        "grad": lambda: setattr(nn.Parameter(c), "grad", g),
        "numpy": g.numpy,
        "from_host_generator": lambda: torch.rand(2, device=DEVICE, generator=torch.Generator()),
        "pin_memory": g.pin_memory,
        "equal": lambda: torch.equal(g, c),
        "allclose": lambda: torch.allclose(g, c),
        "foreach_add": lambda: torch._foreach_add([g], [c]),
        "clip_grad": lambda: torch.nn.utils.get_total_norm([g, c]),
    }


def _dtypes() -> Cases:
    g = torch.ones(2, 2, device=DEVICE)
    half, whole = g.half(), g.long()
    return {
        "mm_half": lambda: g @ half,
        "mm_long": lambda: whole @ whole,
        "addmm_half": lambda: torch.addmm(half, g, g),
        "linear_half": lambda: F.linear(half, g),
        "bmm_half": lambda: torch.bmm(g[None], half[None]),
        "conv_half": lambda: F.conv2d(torch.ones(1, 1, 3, 3, device=DEVICE).half(), g[None, None]),
        "embedding_float": lambda: F.embedding(g, g),
        "cross_entropy_int": lambda: F.cross_entropy(g, torch.tensor([0, 1], device=DEVICE, dtype=torch.int32)),
        "add_out_cast": lambda: torch.add(g, g, out=whole),
        "add_inplace_cast": lambda: whole.clone().add_(g),
        "softmax_long": lambda: whole.softmax(0),
        "mean_long": whole.mean,
        "bce_long": lambda: F.binary_cross_entropy(g, whole),
        "sdpa_mixed": lambda: F.scaled_dot_product_attention(g[None, None], half[None, None], g[None, None]),
        "inverse_half": lambda: torch.linalg.inv(half),
        "bf16_numpy": lambda: g.bfloat16().cpu().numpy(),
    }


def _loading() -> Cases:
    def load(**options: Any) -> Any:
        file = io.BytesIO()
        torch.save(torch.ones(1, device=DEVICE), file)
        raw = file.getvalue().replace(b"cuda:0", b"cuda:9")  # as if saved on a machine with ten GPUs
        return torch.load(io.BytesIO(raw), **options)

    return {
        "from_ninth": load,
        "to_ninth": lambda: load(map_location="cuda:9"),
        "to_nonsense": lambda: load(map_location="gpu"),
    }


def _invalid() -> Cases:
    return {
        "ones": lambda: torch.ones(1, device="cuda:9"),
        "to": lambda: torch.ones(1).to("cuda:9"),
        "cuda": lambda: torch.ones(1).cuda(9),
        "set_device": lambda: torch.cuda.set_device(9),
        "properties": lambda: torch.cuda.get_device_properties(9),
        "device_name": lambda: torch.cuda.get_device_name(-2),
        "memory_allocated": lambda: torch.cuda.memory_allocated(9),
        "synchronize": lambda: torch.cuda.synchronize(9),
        "stream": lambda: torch.cuda.Stream(9),
        "generator": lambda: torch.Generator("cuda:9"),
        "nonsense": lambda: torch.ones(1, device="gpu"),
        "module": lambda: nn.Linear(1, 1).to("cuda:9"),
        "fraction": lambda: torch.cuda.set_per_process_memory_fraction(2.0),
        "negative_size": lambda: torch.ones(-1, device=DEVICE),
        "elapsed_unrecorded": lambda: torch.cuda.Event(enable_timing=True).elapsed_time(
            torch.cuda.Event(enable_timing=True)
        ),
    }


ASSERTS = {
    "embedding": "torch.nn.functional.embedding(torch.tensor([9], device='cuda'), torch.ones(3, 2, device='cuda'))",
    "cross_entropy": "torch.nn.functional.cross_entropy(torch.ones(2, 3, device='cuda'), torch.tensor([0, 7]).cuda())",
    "index": "torch.ones(3, device='cuda')[torch.tensor([5], device='cuda')]",
    "gather": "torch.ones(3, device='cuda').gather(0, torch.tensor([5], device='cuda'))",
    "scatter": "torch.ones(3, device='cuda').scatter_(0, torch.tensor([5], device='cuda'), 1.0)",
    "index_select": "torch.ones(3, device='cuda').index_select(0, torch.tensor([5], device='cuda'))",
    "bce": "torch.nn.functional.binary_cross_entropy(torch.tensor([2.0]).cuda(), torch.tensor([1.0]).cuda())",
    "multinomial": "torch.multinomial(torch.tensor([-1.0, 2.0], device='cuda'), 1)",
    "one_hot": "torch.nn.functional.one_hot(torch.tensor([5], device='cuda'), 3)",
}
"""Programs that poison the device, each in a process of its own."""

_PROGRAM = """
import torch
torch.ones(1, device="cuda")
try:
    result = {call}
    print("launch: no error", flush=True)
except Exception as error:
    print(f"launch: {{type(error).__name__}}: {{error}}", flush=True)
for name, call in (("synchronize", torch.cuda.synchronize), ("later", lambda: torch.ones(1, device="cuda").item())):
    try:
        call()
        print(f"{{name}}: no error", flush=True)
    except Exception as error:
        print(f"{{name}}: {{type(error).__name__}}: {{error}}", flush=True)
"""


def _assert_of(call: str, blocking: bool) -> dict[str, Any]:
    environment = {**os.environ, "CUDA_LAUNCH_BLOCKING": "1" if blocking else "0"}
    command = [sys.executable, "-c", _PROGRAM.format(call=call)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    parts = re.split(r"^(launch|synchronize|later): ", done.stdout, flags=re.MULTILINE)
    said = {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}
    lines = [line for line in done.stderr.splitlines() if "Assertion" in line]
    return {
        **said,
        "kernel_lines": len(lines),
        "kernel_line": lines[0] if lines else None,  # its path and numbers are those of this build
        "assertion": re.sub(r"^.*(Assertion)", r"\1", lines[0]) if lines else None,
        "exit_status": done.returncode,
    }


def record(quick: bool) -> dict[str, Any]:
    """Record all texts; of the asserts, which cost a process each, one in `quick`."""
    groups = {"devices": _devices, "dtypes": _dtypes, "loading": _loading, "invalid": _invalid}
    found: dict[str, Any] = {
        group: attempt(lambda cases=cases: {name: refusal(case) for name, case in cases().items()})
        for group, cases in groups.items()
    }
    asserts = [("embedding", False)] if quick else [(name, blocking) for name in ASSERTS for blocking in (False, True)]
    found["asserts"] = {
        f"{name}{'_blocking' if blocking else ''}": attempt(
            lambda name=name, blocking=blocking: _assert_of(ASSERTS[name], blocking)
        )
        for name, blocking in asserts
    }
    return found
