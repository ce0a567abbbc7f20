"""What CUDA refuses and a CPU would compute; and gradients that hooks send to another card."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fakegpu_lab as lab
import fakegpu_lab.driver.op_sheet
from fakegpu_lab.driver.cost.op_row import rows
from fakegpu_lab.driver.placement.mismatch_errors import _entries

NOT_REFUSED = {
    "_empty_affine_quantized", "_empty_per_channel_affine_quantized", "_foobar", "_functional_assert_async",
    "_make_dep_token", "_scaled_dot_product_flash_attention_for_cpu", "_test_functorch_fallback",
    "_scaled_dot_product_flash_attention_for_cpu_backward", "_test_optional_filled_intlist",
    "_test_optional_floatlist", "_test_optional_intlist", "from_file", "mkldnn_rnn_layer", "mkldnn_rnn_layer_backward",
    "narrow_copy", "quantize_per_tensor",
}  # fmt: skip


def backends(entry: str) -> set[str]:
    section = re.search(r"^  dispatch:\n((?:    .*\n?)+)", entry, re.MULTILINE)
    keys = re.findall(r"^    ([\w, ]+):", section[1], re.MULTILINE) if section else []
    return {key.strip() for line in keys for key in line.split(",")}


def test_the_list_is_that_of_native_functions() -> None:
    found = set()
    for name, entry in _entries().items():
        delegate = re.search(r"^  structured_delegate: (\S+)", entry, re.MULTILINE)
        keys = backends(_entries()[delegate[1]] if delegate else entry)
        if "CPU" in keys and "CUDA" not in keys and not any(key.startswith("Composite") for key in keys):
            found.add(name.partition(".")[0])
    refused = {name for name, row in rows().items() if row.no_kernel == "CUDA"}
    assert found - NOT_REFUSED - {f"{name}_" for name in refused} <= refused
    assert refused - found <= {"_upsample_lanczos2d_aa", "_upsample_lanczos2d_aa_backward"}  # not in every version


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda a: torch.histogram(a, 3), "histogram.bin_ct"),
        (lambda a: torch.histogram(a, a[0]), "histogram.bins_tensor"),
        (lambda a: torch.histogramdd(a, 3), "_histogramdd_bin_edges"),
        (lambda a: a.to_mkldnn(), "to_mkldnn"),
        (lambda a: torch._add_relu(a, a), "_add_relu.Tensor"),
        (lambda a: torch.sparse.spdiags(a, torch.tensor([0, 1], device="cuda"), (3, 3)), "_spdiags"),
    ],
)
def test_an_op_without_a_cuda_kernel(machine: Any, call: Any, name: str) -> None:
    with pytest.raises(NotImplementedError) as raised:
        call(torch.ones(2, 3, device="cuda"))
    assert str(raised.value).startswith(
        f"Could not run 'aten::{name}' with arguments from the 'CUDA' backend. This could be because the operator "
        "doesn't exist for this backend, or was omitted during the selective/custom build process (if using custom "
        "build). If you are a Facebook employee using PyTorch on mobile, please visit https://fburl.com/ptmfixes for "
        f"possible resolutions. 'aten::{name}' is only available for these backends: [CPU, Meta"
    )
    assert torch.histogram(torch.ones(4), 2).hist.sum() == 4  # the CPU's own goes on


@pytest.mark.parametrize(("spec", "able"), [("v100", False), ("a100", False), ("l4", True), ("h100", True)])
def test_products_of_float8_need_a_card_that_can(spec: str, able: bool) -> None:
    lab.enable(spec, memory="1GiB")
    try:
        a = torch.ones(16, 16, device="cuda").to(torch.float8_e4m3fn)
        one = torch.ones((), device="cuda")
        if able:
            assert torch._scaled_mm(a, a.t(), one, one, out_dtype=torch.bfloat16)[0, 0].item() == 16
        else:
            with pytest.raises(RuntimeError) as raised:
                torch._scaled_mm(a, a.t(), one, one, out_dtype=torch.bfloat16)
            assert str(raised.value) == (
                "torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0 or 8.9, or "
                "ROCm MI300+"
            )
        with pytest.raises(NotImplementedError, match="\"addmm_cuda\" not implemented for 'Float8_e4m3fn'"):
            a @ a
        assert a.float().sum().item() == 256
    finally:
        lab.disable()


@pytest.mark.parametrize("shape", [(3, 2), (1, 2), (1,), ()])
@pytest.mark.parametrize("batch", [(3,), (4, 3)])
def test_linear_with_a_bias_of_any_shape(machine: Any, shape: tuple[int, ...], batch: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    host = [torch.randn(*batch, 5), torch.randn(2, 5), torch.randn(shape)]
    device = [t.cuda().requires_grad_() for t in host]
    for t in host:
        t.requires_grad_()
    weights = torch.randn(*batch, 2)
    (F.linear(*host) * weights).sum().backward()
    (F.linear(*device) * weights.cuda()).sum().backward()
    for one, other in zip(host, device, strict=True):
        torch.testing.assert_close(other.grad.cpu(), one.grad)


def test_a_hook_may_not_move_a_gradient(machine: Any) -> None:
    x = torch.ones(2, device="cuda", requires_grad=True)
    y = x * 3
    y.register_hook(lambda grad: grad.to("cuda:1"))
    sentence = "Function MulBackward0 returned an invalid gradient at index 0 - expected device cuda:0 but got cuda:1"
    with pytest.raises(RuntimeError, match=f"^{sentence}$"):
        (y * 2).sum().backward()
    y = x * 3
    y.register_hook(lambda grad: grad.cpu())
    with pytest.raises(RuntimeError, match=r"has changed the type of value \(was torch\.cuda\.FloatTensor got"):
        (y * 2).sum().backward()
    assert x.grad is None


def test_hooks_that_stay_are_as_before(machine: Any) -> None:
    x = torch.ones(2, device="cuda", requires_grad=True)
    y = x * 3
    seen = []
    handle = y.register_hook(lambda grad: seen.append(grad.device.index))
    y.register_hook(lambda grad: grad * 10)
    (y * 2).sum().backward(retain_graph=True)
    assert (x.grad.tolist(), seen) == ([60, 60], [0])
    handle.remove()
    y.sum().backward()
    assert seen == [0]


def test_graphs_name_cuda(machine: Any) -> None:
    traced = torch.jit.trace(lambda x: x + torch.zeros(2, device=x.device), torch.ones(2, device="cuda"))
    text = f"{traced.graph} {traced.graph!r} {traced.code} {traced.inlined_graph} {list(traced.graph.nodes())}"
    assert "cuda:0" in text
    assert "fakegpu" not in text


def test_an_average_pool_has_fewer_than_two_billion_results(machine: Any) -> None:
    images = torch.zeros((), device="cuda").expand(2**16, 1, 2**8, 2**7)
    with pytest.raises(RuntimeError, match=r"^integer out of range$"):
        F.avg_pool2d(images, kernel_size=1)


def test_a_solution_is_written_only_to_its_own_device(machine: Any) -> None:
    factor = torch.eye(2, device="cuda")
    with pytest.raises(
        RuntimeError,
        match=r"^cholesky_solve: Expected result and input tensors to be on the same device, but got result on cpu and "
        r"input on cuda:0$",
    ):
        torch.cholesky_solve(factor, factor, out=torch.empty(2, 2))


@pytest.mark.parametrize("driver", ["gelsy", "gelsd", "gelss"])
def test_least_squares_have_one_driver(machine: Any, driver: str) -> None:
    a, b = torch.randn(6, 4), torch.randn(6, 2)
    with pytest.raises(RuntimeError, match="other than `gels` is not supported on CUDA"):
        torch.linalg.lstsq(a.cuda(), b.cuda(), driver=driver)
    with pytest.raises(RuntimeError, match="parameter `driver` should be one of"):
        torch.linalg.lstsq(a.cuda(), b.cuda(), driver="else")
    found, expected = torch.linalg.lstsq(a.cuda(), b.cuda()), torch.linalg.lstsq(a, b, driver="gels")
    torch.testing.assert_close(found.solution.cpu(), expected.solution)
    torch.testing.assert_close(found.residuals.cpu(), expected.residuals)  # the CPU's default has none
    assert found.rank.numel() == 0


@pytest.mark.parametrize("driver", ["gesvd", "gesvdj", "gesvda", None])
def test_singular_values_by_each_of_cusolvers_drivers(machine: Any, driver: str | None) -> None:
    a = torch.randn(6, 4)
    expected = torch.linalg.svdvals(a)
    torch.testing.assert_close(torch.linalg.svdvals(a.cuda(), driver=driver).cpu(), expected)
    torch.testing.assert_close(torch.linalg.svd(a.cuda(), driver=driver).S.cpu(), expected)
    with pytest.raises(RuntimeError, match=r"^torch\.linalg\.svd: unknown svd driver else in svd_cusolver computation"):
        torch.linalg.svd(a.cuda(), driver="else")
    with pytest.raises(RuntimeError, match="is only supported on CUDA inputs"):
        torch.linalg.svd(a, driver="gesvd")


@pytest.mark.parametrize(
    ("mode", "dims", "name"),
    [
        ("linear", 1, "upsample_linear1d_out_frame"),
        ("bilinear", 2, "upsample_bilinear2d_out_frame"),
        ("bicubic", 2, "upsample_bicubic2d_out_frame"),
        ("trilinear", 3, "upsample_trilinear3d_out_frame"),
    ],
)
def test_interpolation_takes_no_bytes(machine: Any, mode: str, dims: int, name: str) -> None:
    image = torch.ones(1, 2, *[4] * dims, dtype=torch.uint8, device="cuda")
    with pytest.raises(NotImplementedError, match=f"^\"{name}\" not implemented for 'Byte'$"):
        F.interpolate(image, scale_factor=2, mode=mode)
    assert F.interpolate(image, scale_factor=2, mode="nearest").sum().item() == 2 * 8**dims
    assert F.interpolate(image.float(), scale_factor=2, mode=mode).dtype is torch.float32


@pytest.mark.parametrize(
    ("m", "k", "n", "words"),
    [
        (16, 16, 16, "self.size(0) needs to be greater than 16, but got 16"),
        (17, 12, 16, "self.size(1) needs to be greater than 0 and a multiple of 8, but got 12"),
        (17, 16, 12, "mat2.size(1) needs to be greater than 0 and a multiple of 8, but got 12"),
    ],
)
def test_products_of_int8_need_sizes_of_cublaslts(machine: Any, m: int, k: int, n: int, words: str) -> None:
    a, b = (torch.ones(size, dtype=torch.int8, device="cuda") for size in ((m, k), (k, n)))
    with pytest.raises(RuntimeError, match=f"^{re.escape(words)}$"):
        torch._int_mm(a, b)
    whole = torch.ones(24, 16, dtype=torch.int8, device="cuda")
    assert torch._int_mm(whole, whole.t().contiguous()).eq(16).all()


@pytest.mark.parametrize("size", [4, 600])
def test_a_refused_product_takes_no_workspace(machine: Any, size: int) -> None:
    a = torch.ones(size, size, dtype=torch.int64, device="cuda")
    products = (lambda: a @ a, lambda: torch.mv(a, a[0]), lambda: a[0] @ a[0], lambda: torch.addmm(a, a, a))
    before = torch.cuda.memory_allocated()
    with lab.record() as trace:
        for product in products:
            with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
                product()
    assert torch.cuda.memory_allocated() == before
    assert not trace.kernels
