"""Quantized tensors on a device: moved, made, printed and saved as on CUDA."""

from __future__ import annotations

import copy
import io

import pytest
import torch

pytestmark = pytest.mark.filterwarnings("ignore:.*quantized tensor creation functions")

VALUES = torch.tensor([[-1.0, 0.5], [0.25, 2.0]])


def per_tensor(values: torch.Tensor) -> torch.Tensor:
    return torch.quantize_per_tensor(values, 0.25, 1, torch.qint8)


def per_channel(values: torch.Tensor) -> torch.Tensor:
    scales = torch.tensor([0.5, 0.25], device=values.device)
    return torch.quantize_per_channel(values, scales, torch.zeros_like(scales, dtype=torch.int64), 0, torch.quint8)


@pytest.mark.parametrize("quantize", [per_tensor, per_channel])
def test_made_there_and_moved_there(machine, quantize):
    host = quantize(VALUES)
    for tensor in (quantize(VALUES.cuda(1)), host.cuda(1), host.to("cuda:1")):
        assert tensor.device == torch.device("cuda:1")
        assert tensor.is_quantized
        assert (tensor.dtype, tensor.qscheme(), tensor.nbytes) == (host.dtype, host.qscheme(), 4)
        assert torch.equal(tensor.dequantize().cpu(), host.dequantize())
        assert torch.equal(tensor.int_repr().cpu(), host.int_repr())
        assert tensor.cpu().is_quantized
        assert torch.equal(tensor.cpu(), host)


def test_another_dtype_needs_dequantize(machine):
    with pytest.raises(RuntimeError, match="please use dequantize"):
        per_tensor(VALUES).to("cuda", torch.float32)


def test_memory_is_a_byte_a_value(machine):
    values = torch.zeros(2**20, device="cuda")
    before = torch.cuda.memory_allocated()
    held = [per_tensor(values), per_tensor(torch.zeros(2**20)).cuda()]
    assert torch.cuda.memory_allocated() - before == len(held) * 2**20


def test_questions_and_texts(machine):
    tensor = per_tensor(VALUES.cuda())
    assert (tensor.q_scale(), tensor.q_zero_point()) == (0.25, 1)
    assert tensor.type() == "torch.cuda.quantized.QInt8Tensor"
    assert " ".join(repr(tensor).split()) == (
        "tensor([[-1.0000, 0.5000], [ 0.2500, 2.0000]], device='cuda:0', size=(2, 2), dtype=torch.qint8, "
        "quantization_scheme=torch.per_tensor_affine, scale=0.25, zero_point=1)"
    )
    assert "scale=tensor([0.5000, 0.2500], device='cuda:0', dtype=torch.float64)" in repr(per_channel(VALUES.cuda()))
    assert not VALUES.cuda().is_quantized


@pytest.mark.parametrize("quantize", [per_tensor, per_channel])
def test_copies_and_files(machine, quantize):
    tensor = quantize(VALUES.cuda())
    file = io.BytesIO()
    torch.save(tensor, file)
    for where in (None, "cpu"):
        file.seek(0)
        loaded = torch.load(file, map_location=where)
        assert loaded.is_cuda is (where is None)
        assert torch.equal(loaded.cpu(), tensor.cpu())
    twin = copy.deepcopy(tensor)
    assert twin.is_quantized
    assert torch.equal(twin.cpu(), tensor.cpu())
    assert twin.data_ptr() != tensor.data_ptr()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_modules_that_compute_with_integers_are_the_cpus(machine):
    quantization = torch.ao.quantization
    module = torch.nn.Sequential(quantization.QuantStub(), torch.nn.Linear(4, 4)).eval()
    module.qconfig = quantization.get_default_qconfig("x86")
    quantization.prepare(module, inplace=True)(VALUES.repeat(1, 2))
    quantization.convert(module, inplace=True).cuda()
    with pytest.raises(NotImplementedError, match=r"Could not run 'quantized::linear' .* the 'QuantizedCUDA' backend"):
        module(VALUES.repeat(1, 2).cuda())
    dynamic = quantization.quantize_dynamic(torch.nn.Sequential(torch.nn.Linear(4, 4))).cuda()
    with pytest.raises(NotImplementedError, match=r"Could not run 'quantized::linear_dynamic' .* the 'CUDA' backend"):
        dynamic(VALUES.repeat(1, 2).cuda())
