"""torch.backends.cuda and torch.backends.cudnn: readable, settable, consistent, and as before when the machine goes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fakegpu_lab as lab

cuda, cudnn = torch.backends.cuda, torch.backends.cudnn


@pytest.fixture(autouse=True)
def flags_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a user's process: `torch.testing._internal`, once any test imports it, forbids bare assignment for good."""
    monkeypatch.setitem(torch.backends.flags_frozen.__globals__, "__allow_nonbracketed_mutation_flag", True)


def test_what_a_cuda_build_has(machine: Any) -> None:
    assert cuda.is_built()
    assert cuda.is_flash_attention_available()
    assert cudnn.is_available()
    assert cudnn.is_acceptable(torch.ones(1, device="cuda"))
    assert not cudnn.is_acceptable(torch.ones(1))


def test_the_preferred_libraries(machine: Any) -> None:
    assert cuda.preferred_linalg_library().name == "Default"
    assert cuda.preferred_linalg_library("cusolver").name == "Cusolver"
    assert cuda.preferred_linalg_library("magma").name == "Magma"
    assert cuda.preferred_blas_library().name == "Cublas"
    assert cuda.preferred_blas_library("cublaslt").name == "Cublaslt"
    assert cuda.preferred_blas_library("default").name == "Cublas"
    with pytest.raises(RuntimeError, match="Unknown input value"):
        cuda.preferred_linalg_library("lapack")


def test_the_plan_cache_of_cufft(machine: Any) -> None:
    cache = cuda.cufft_plan_cache
    assert (cache.size, cache.max_size) == (0, 4096)
    cache[1].max_size = 5
    assert (cache[0].max_size, cache[1].max_size) == (4096, 5)
    with torch.cuda.device(1):
        assert cache.max_size == 5
    cache.clear()
    with pytest.raises(RuntimeError, match="cuFFT plan cache size must be non-negative, but got -1"):
        cache.max_size = -1
    with pytest.raises(RuntimeError, match="read-only property"):
        cache[0].size = 3
    with pytest.raises(RuntimeError, match="expected 0 <= device index < 2, but got device with index 7"):
        cache[7]


def test_tf32_has_three_names_and_one_meaning(machine: Any) -> None:
    assert (cuda.matmul.allow_tf32, torch.get_float32_matmul_precision()) == (False, "highest")
    torch.set_float32_matmul_precision("high")
    assert (cuda.matmul.allow_tf32, cuda.matmul.fp32_precision) == (True, "tf32")
    torch.set_float32_matmul_precision("highest")
    assert (cuda.matmul.allow_tf32, cuda.matmul.fp32_precision) == (False, "ieee")


SWITCHES = [
    (cuda.matmul, "allow_tf32", True),
    (cuda.matmul, "allow_fp16_reduced_precision_reduction", False),
    (cuda.matmul, "allow_bf16_reduced_precision_reduction", False),
    (cuda.matmul, "allow_fp16_accumulation", True),
    (cuda.matmul, "fp32_precision", "tf32"),
    (cudnn, "benchmark", True),
    (cudnn, "deterministic", True),
    (cudnn, "enabled", False),
    (cudnn, "allow_tf32", False),
    (cudnn, "benchmark_limit", 3),
]


@pytest.mark.parametrize(("owner", "name", "value"), SWITCHES, ids=[name for _, name, _ in SWITCHES])
def test_a_switch_is_remembered_until_the_machine_goes(owner: Any, name: str, value: Any) -> None:
    if name == "benchmark_limit":
        with lab_machine():
            setattr(owner, name, value)
            assert getattr(owner, name) == value
        with lab_machine():
            assert getattr(owner, name) == 10
        return
    before = getattr(owner, name)
    assert before != value
    with lab_machine():
        setattr(owner, name, value)
        assert getattr(owner, name) == value
    assert getattr(owner, name) == before


def test_switches_of_attention_and_precision_are_put_back() -> None:
    with lab_machine():
        cuda.enable_flash_sdp(False)
        cuda.enable_math_sdp(False)
        cuda.allow_fp16_bf16_reduction_math_sdp(True)
        torch.set_float32_matmul_precision("medium")
        assert not cuda.flash_sdp_enabled()
    assert cuda.flash_sdp_enabled()
    assert cuda.math_sdp_enabled()
    assert not cuda.fp16_bf16_reduction_math_sdp_allowed()
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_lower_precision_of_products_is_that_of_cuda() -> None:
    left, right = torch.randn(256, 256), torch.randn(256, 256)
    exact = left @ right
    try:
        torch.set_float32_matmul_precision("medium")  # bfloat16 on a CPU that has it, and TF32 on CUDA
        with lab_machine():
            for precision in ("high", "medium"):
                torch.set_float32_matmul_precision(precision)
                assert torch.get_float32_matmul_precision() == precision
                assert (cuda.matmul.fp32_precision, cuda.matmul.allow_tf32) == ("tf32", True)
                assert torch.equal((left.cuda() @ right.cuda()).cpu(), exact)
            torch.backends.fp32_precision = "tf32"
            assert torch.backends.mkldnn.matmul.fp32_precision == "ieee"
            torch.backends.fp32_precision = "none"
        assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_what_was_set_before_the_machine_stays_set() -> None:
    cudnn.benchmark = True
    try:
        with lab_machine():
            assert cudnn.benchmark
            cudnn.benchmark = False
        assert cudnn.benchmark
    finally:
        cudnn.benchmark = False


class lab_machine:
    def __enter__(self) -> None:
        lab.enable("a100", memory="1GiB")

    def __exit__(self, *error: object) -> None:
        lab.disable()
