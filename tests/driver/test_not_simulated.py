"""What is not simulated is refused in one sentence, and all of it stands on one page."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.sparse import to_sparse_semi_structured

import fakegpu_lab as lab
from fakegpu_lab.driver.base.not_simulated import TABLE, NotSimulatedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.hardware.machine import Machine

DOCS = Path(__file__).parents[2] / "docs"

pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{words}")
    for words in (
        "The PyTorch API of nested tensors",
        "The PyTorch API of SparseSemiStructured",
        "ComplexHalf support",
        ".*quantized tensor creation functions",
    )
]


def rows(device: str = "cpu") -> list[torch.Tensor]:
    return [torch.ones(length, 4, device=device) for length in (2, 5)]


def halves() -> torch.Tensor:
    return torch.ones(2, 2, device="cuda", dtype=torch.float16)


def image() -> torch.Tensor:
    return torch.ones(1, 1, 4, 4, device="cuda")


REFUSED: dict[str, list[Callable[[], Any]]] = {
    "strided nested tensors": [
        lambda: torch.nested.nested_tensor(rows(), device="cuda"),
        lambda: torch.nested.nested_tensor(rows("cuda")),
        lambda: torch.nested.as_nested_tensor(rows("cuda")),
        lambda: torch.nested.nested_tensor(rows()).cuda(),
        lambda: torch.nested.nested_tensor(rows()).to("cuda:1"),
        lambda: torch._nested_tensor_from_mask(torch.ones(2, 3, 4).cuda(), torch.ones(2, 3).bool().cuda()),
    ],
    "semi-structured sparsity": [
        lambda: to_sparse_semi_structured(torch.tensor([0, 0, 1, 1]).half().tile(128, 32).cuda()),
        lambda: torch._sparse_semi_structured_tile(torch.ones(32, 32).half().cuda()),
    ],
    "CUDA's alone": [
        lambda: torch._mixed_dtypes_linear(
            torch.ones(8, 8).half().cuda(), torch.ones(8, 8).char().cuda(), torch.ones(8).cuda()
        ),
    ],
    "half-precision transforms": [
        lambda: torch.fft.fft(torch.ones(8).half().cuda()),
        lambda: torch.fft.irfftn(input=torch.ones(8, 8).cuda().half()),
        lambda: torch.fft.hfft(torch.ones(8).half().cuda()),
        lambda: torch.fft.irfft(torch.ones(8).cuda().to(torch.complex32)),
    ],
    "complex32": [
        lambda: torch.ones(4).cuda().to(torch.complex32).sum(),
        lambda: torch.ones(4).cuda().to(torch.complex32).exp(),
    ],
    "quantized tensors": [
        lambda: torch.quantize_per_tensor(torch.ones(3, device="cuda"), 0.25, 1, torch.qint8),
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.25, 1, torch.qint8).cuda(),
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.25, 1, torch.qint8).to("cuda:1"),
        lambda: torch._empty_affine_quantized([3], scale=0.25, zero_point=1, dtype=torch.qint8, device="cuda"),
    ],
    "products of another dtype": [
        lambda: torch.mm(halves(), halves(), out_dtype=torch.float32),
        lambda: torch.addmm(halves(), halves(), halves(), out_dtype=torch.float32),
        lambda: torch.bmm(halves()[None], halves()[None], out_dtype=torch.float32),
    ],
    "cuDNN by name": [
        lambda: torch.cudnn_convolution(image(), image(), [0, 0], [1, 1], [1, 1], 1, False, True, True),
    ],
}


@pytest.mark.parametrize(("key", "call"), [(key, call) for key, calls in REFUSED.items() for call in calls])
def test_it_says_what_is_not_simulated_and_what_to_do(machine: Machine, key: str, call: Callable[[], Any]) -> None:
    with pytest.raises(NotSimulatedError) as raised:
        call()
    assert str(raised.value) == TABLE[key].sentence
    assert isinstance(raised.value, lab.FakeGpuError)


def test_functions_and_names_refuse_and_come_back(machine: Machine) -> None:
    names = {name: key for key, row in TABLE.items() for name in row.functions}
    for name, key in names.items():
        with pytest.raises(NotSimulatedError) as raised:
            getattr(torch._C, name)()
        assert str(raised.value) == TABLE[key].sentence
    lab.disable()
    assert not any(
        getattr(getattr(torch._C, name, None), "__module__", "") == NotSimulatedError.__module__ for name in names
    )


@pytest.mark.parametrize("mask", [False, True])
def test_an_encoder_in_eval_mode_takes_the_ordinary_ops(machine: Machine, mask: bool) -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2).eval()
    x, padding = torch.randn(2, 5, 32), torch.tensor([[False] * 3 + [True] * 2, [False] * 5])
    with torch.no_grad():
        expected = model(x, src_key_padding_mask=padding if mask else None)
        found = model.cuda()(x.cuda(), src_key_padding_mask=padding.cuda() if mask else None)
    real = ~padding if mask else slice(None)  # the host's fast path makes zeros of the padding
    torch.testing.assert_close(found.cpu()[real], expected[real])
    with torch.no_grad(), pytest.raises(NotSimulatedError, match=r"(?s)fast path .* is not simulated"):
        torch._native_multi_head_attention(*[x.cuda()] * 3, 32, 4, *[x.cuda()] * 4)


def test_the_page_has_the_whole_table() -> None:
    page = runpy.run_path(str(DOCS / "not_simulated.py"))["page"]
    assert (DOCS / "not-simulated.md").read_text(encoding="utf-8") == page(), "python docs/not_simulated.py"
