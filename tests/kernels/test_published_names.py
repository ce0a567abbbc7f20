"""Names and number of kernels, as others published them for the same program: listings of generated code, traces.

Each listing is of another version of torch than the one that the tests run with. Where kernels differ, the row says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import fakegpu_lab as lab
from fakegpu_lab.driver.compile import triton_version

if TYPE_CHECKING:
    from collections.abc import Callable

if triton_version.missing() is not None:
    pytest.skip(triton_version.missing() or "", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("compiling")


class Listing(NamedTuple):
    """What a program's kernels are, and who says so.

    Attributes
    ----------
    program
        Makes what is called, and its arguments.
    kernels
        All that run, in their order; `aten::…` stands for a kernel of a library (``extern_kernels.…`` in listings).
    otherwise
        What they are called here, if that differs.
    why
        Why it does.
    """

    torch: str
    source: str
    program: Callable[[], tuple[Callable[..., object], list[torch.Tensor]]]
    kernels: list[str]
    otherwise: list[str] | None = None
    why: str = ""


def on_the_card(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.rand(shape, device="cuda") for shape in shapes]


def padded(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.pad(x, (5, 5, 5, 5), mode="reflect") + F.pad(y, (5, 5, 5, 5), mode="reflect")


PYTORCH = "https://github.com/pytorch/pytorch/blob/v2.6.0/"
LISTINGS = {
    "pointwise": Listing(
        "2.6",
        f"{PYTORCH}test/inductor/test_profiler.py",
        lambda: (lambda x, y: (x + y).sin().cos(), on_the_card((4, 4), (4, 4))),
        ["triton_poi_fused_add_cos_sin_0"],
    ),
    "sums": Listing(
        "2.8",
        "https://tutorials.pytorch.kr/recipes/torch_logs.html",
        lambda: (lambda x, y: x + y + 2, on_the_card((2, 2), (2, 2))),
        ["triton_poi_fused_add_0"],
    ),
    "softmax of a product": Listing(
        "not said; January 2026",
        "https://github.com/w32zhong/simp-intelligence/blob/main/simp_intelligence/torch/torch_compile.ipynb",
        lambda: (lambda x, y: F.softmax(torch.matmul(x, y), dim=1), on_the_card((100, 100), (100, 100))),
        ["aten::mm", "triton_per_fused__softmax_0"],
        ["aten::mm", "triton_per_fused__softmax_prepare_softmax_online_0"],
        "torch 2.13 names its own op (fx_passes/post_grad.py), to which it turns a softmax",
    ),
    "cosine and sine": Listing(
        "2.6",
        f"{PYTORCH}test/inductor/test_torchinductor.py",
        lambda: (lambda x: x.cos().sin(), on_the_card((8,))),
        ["triton_poi_fused_cos_sin_0"],
    ),
    "reflection": Listing(
        "2.6",
        f"{PYTORCH}test/inductor/test_cuda_repro.py",
        lambda: (padded, on_the_card((10, 10, 10), (10, 10, 10))),
        ["triton_poi_fused_add_reflection_pad2d_0"],
    ),
    "a layer": Listing(
        "2.6, by AOTInductor",
        f"{PYTORCH}docs/source/torch.compiler_aot_inductor_minifier.rst",
        lambda: (nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Sigmoid()).cuda(), on_the_card((8, 10))),
        ["aten::mm", "triton_poi_fused_addmm_relu_sigmoid_0"],
    ),
    "a constant": Listing(
        "2.1",
        "https://docs.pytorch.org/tutorials/unstable/inductor_cpp_wrapper_tutorial.html",
        lambda: (lambda x: torch.tensor(list(range(2, 40, 2)), device=x.device) + x, on_the_card((1,))),
        ["triton_poi_fused_add_lift_fresh_0"],
        ["triton_poi_fused__to_copy_add_lift_fresh_0"],
        "a constant is traced on the host here, and then moved (`avoid_device_init`, driver/compile/export.py)",
    ),
}


@pytest.mark.parametrize("name", LISTINGS)
def test_the_kernels_are_those_of_the_listing(name: str) -> None:
    function, inputs = LISTINGS[name].program()
    compiled = torch.compile(function, fullgraph=True)
    with torch.no_grad():
        compiled(*inputs)
        with lab.record() as trace:
            compiled(*inputs)
    listing = LISTINGS[name]
    assert [kernel.name for kernel in trace.kernels] == (listing.otherwise or listing.kernels)
    assert len(trace.kernels) == len(listing.kernels)
