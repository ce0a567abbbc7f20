"""Constructors that take a tensor: when they copy, on which device the result is, and what they refuse."""

from __future__ import annotations

import pytest
import torch
from torch.utils import dlpack

pytestmark = pytest.mark.usefixtures("machine")


def test_as_tensor_and_asarray_share_memory_on_the_same_device() -> None:
    x = torch.ones(3, device="cuda")
    assert torch.as_tensor(x, device="cuda") is x
    assert torch.asarray(x, device="cuda:0").data_ptr() == x.data_ptr()
    assert torch.asarray(x, device="cuda", copy=True).data_ptr() != x.data_ptr()
    with torch.device("cuda"):
        assert torch.as_tensor(x) is x
        assert torch.asarray(x).data_ptr() == x.data_ptr()
    with torch.device("cuda:1"):
        assert torch.as_tensor(x).device == torch.asarray(x).device == torch.device("cuda:1")


def test_asarray_takes_a_dlpack_capsule() -> None:
    x = torch.ones(3, device="cuda")
    assert torch.asarray(dlpack.to_dlpack(x)).data_ptr() == x.data_ptr()
    moved = torch.asarray(dlpack.to_dlpack(x), device="cuda:1", dtype=torch.float64)
    assert (moved.device, moved.dtype) == (torch.device("cuda:1"), torch.float64)


@pytest.mark.parametrize("where", ["cpu", "cuda:1"])
def test_asarray_refuses_to_share_memory_across_devices(where: str) -> None:
    with pytest.raises(ValueError, match=rf"^can't alias tensor from device 'cuda:0' to '{where}'\.$"):
        torch.asarray(torch.ones(3, device="cuda"), device=where, copy=False)


def test_new_takes_a_device() -> None:
    assert torch.ones(1, device="cuda:0").new([0], device=1).device == torch.device("cuda:1")


@pytest.mark.parametrize(
    ("dtype", "most", "message"),
    [
        (torch.uint8, 256, "value cannot be converted to type uint8_t without overflow"),
        (torch.float16, 2049, r"n cannot be greater than 2049 for Half type\."),
        (torch.float64, 2**53 + 1, r"n cannot be greater than 2\^53\+1 for Double type\."),
    ],
)
def test_randperm_refuses_numbers_that_the_dtype_lacks(dtype: torch.dtype, most: int, message: str) -> None:
    out = torch.empty(0, dtype=dtype, device="cuda")
    if most < 10_000:
        assert len(torch.randperm(most, out=out)) == most
    with pytest.raises(RuntimeError, match=rf"^{message}"):
        torch.randperm(most + 1, out=out)


def test_a_permutation_of_nothing_takes_any_generator() -> None:
    assert len(torch.randperm(0, device="cuda", generator=torch.Generator())) == 0
    assert len(torch.randperm(0, generator=torch.Generator("cuda"))) == 0
    with pytest.raises(RuntimeError, match=r"^Expected a 'cuda' device type for generator but found 'cpu'"):
        torch.randperm(1, device="cuda", generator=torch.Generator())


def test_the_legacy_types_warn_as_on_cuda() -> None:
    torch.set_warn_always(True)
    try:
        with pytest.warns(UserWarning, match=r"^The torch\.cuda\.\*DtypeTensor constructors are no longer recommended"):
            torch.cuda.FloatTensor([0])
    finally:
        torch.set_warn_always(False)
    assert torch.cuda.CharTensor in torch._tensor_classes


def test_a_copy_to_the_host_converts_on_the_device() -> None:
    numbers = torch.tensor([3e9, float("nan"), -1.5], device="cuda")
    integers = torch.zeros(3, dtype=torch.int32)
    integers.copy_(numbers)
    assert integers.tolist() == numbers.to(torch.int32).tolist() == [2**31 - 1, 0, -1]


def test_a_lazy_clone_copies_on_the_first_write() -> None:
    x = torch.ones(3, device="cuda")
    clone = x._lazy_clone()
    assert torch._C._is_cow_tensor(x)  # type: ignore[attr-defined]
    assert torch._C._is_cow_tensor(clone)  # type: ignore[attr-defined]
    clone += 1
    assert not torch._C._is_cow_tensor(clone)  # type: ignore[attr-defined]
    assert x.tolist() == [1.0, 1.0, 1.0]


def test_a_storage_without_values_can_be_copied_nowhere() -> None:
    meta = torch.UntypedStorage(4, device="meta")
    with pytest.raises(NotImplementedError, match=r"^Cannot copy out of meta tensor; no data!$"):
        torch.UntypedStorage(4, device="cuda").copy_(meta)
    with pytest.raises(RuntimeError, match=r"^_share_cuda_: only available on CUDA$"):
        meta._share_cuda_()


def test_a_tangent_follows_a_copy_to_the_host() -> None:
    from torch.autograd import forward_ad

    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.ones(2, device="cuda"), torch.full((2,), 3.0, device="cuda"))
        host = torch.zeros(2)
        host.copy_(dual)
        tangent = forward_ad.unpack_dual(host).tangent
    assert tangent is not None
    assert tangent.tolist() == [3.0, 3.0]


def test_matrix_rank_writes_to_out() -> None:
    out = torch.full((2, 2), 7, device="cuda")
    result = torch.linalg.matrix_rank(torch.stack([torch.eye(3), torch.zeros(3, 3)]).cuda(), out=out)
    assert result is out
    assert out.tolist() == [3, 0]


def test_embedding_refuses_a_weight_that_is_no_matrix() -> None:
    with pytest.raises(RuntimeError, match=r"^'weight' must be 2-D$"):
        torch.nn.functional.embedding(torch.tensor([0], device="cuda"), torch.tensor(1.0, device="cuda"))
