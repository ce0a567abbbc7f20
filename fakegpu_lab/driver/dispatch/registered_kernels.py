"""Kernels registered with torch's dispatcher: how ``torch.empty(3, device="cuda:1")`` gets here.

Every factory function ends in `empty.memory_format` or `empty_strided`. They are registered for the keys CUDA (users
write ``cuda``) and PrivateUse1 (C++ passes on a tensor's own options). So no torch function needs a patch, every thread
has them, and plain CPU tensors do not get slower.
"""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base import current, not_simulated
from fakegpu_lab.driver.base.device_memory import take_bytes
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, inner_of, wrap
from fakegpu_lab.driver.copies import transfer
from fakegpu_lab.driver.cost.launching import kernel
from fakegpu_lab.driver.cost.work import Work
from fakegpu_lab.driver.ops import fused_kernels
from fakegpu_lab.driver.ops.attention.attention import scaled_dot_product_attention
from fakegpu_lab.driver.ops.recurrent import cudnn_rnn
from fakegpu_lab.driver.placement import dtypes
from fakegpu_lab.user_code import interrupts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fakegpu_lab.hardware.device import Device


class _Reducer(threading.local):
    under_construction = False
    agreeing = False


reducer = _Reducer()
"""Whether this thread is constructing DDP's C++ reducer, and whether that is comparing or sending shapes and orders;
`ranks.process_groups.ddp_reducer` sets both."""


def _inner_device(dtype: torch.dtype | None = None) -> str:
    if not current.meta() or (reducer.agreeing and dtype in (torch.int32, torch.int64)):
        return "cpu"
    return "meta"


def empty(
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> FakeCudaTensor:
    """``aten::empty.memory_format`` on a device; memory is taken on the device first, then on the host."""
    if pin_memory:
        raise RuntimeError("Only dense CPU tensors can be pinned")
    where = current.device(device.index if device is not None else None)
    if where.retired:
        raise device_asserts.retired_error(where)
    if dtype is torch.int32 and reducer.under_construction:
        return used_parameters_map(size, where)  # type: ignore[return-value]
    dtype = dtype or torch.get_default_dtype()
    nbytes = dtype.itemsize
    for extent in size:
        nbytes *= extent
    buffer = take_bytes(where, max(nbytes, 0))
    options: dict[str, Any] = {} if memory_format is None else {"memory_format": memory_format}
    try:
        with torch._C.DisableTorchFunction():
            inner = torch.empty(tuple(size), dtype=dtype, layout=layout, device=_inner_device(dtype), **options)
    except RuntimeError as error:
        raise dtypes.as_cuda(error.with_traceback(None)) from None
    return wrap(inner, where, buffer)


def used_parameters_map(size: Sequence[int], where: Device) -> torch.Tensor:
    """The reducer's map of used parameters: on the host, but it counts as a tensor on `where`.

    C++ fills it through pinned memory (reducer.cpp, all_reduce_local_used_map), which PrivateUse1 cannot have.
    """
    used: Any = torch.empty(tuple(size), dtype=torch.int32, device="cpu")
    used._fakegpu_lab_device = where
    return used  # type: ignore[no-any-return]


def empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> FakeCudaTensor:
    """``aten::empty_strided`` on a device."""
    where = current.device(device.index if device is not None else None)
    if where.retired:
        raise device_asserts.retired_error(where)
    dtype = dtype or torch.get_default_dtype()
    extent = 0 if 0 in size else 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    buffer = take_bytes(where, extent * dtype.itemsize)
    with torch._C.DisableTorchFunction():
        inner = torch.empty_strided(tuple(size), tuple(stride), dtype=dtype, device=_inner_device(dtype))
    return wrap(inner, where, buffer)


def _computed_on_inner_device(name: str) -> Callable[..., Any]:
    """A factory that does not go through `empty`: the inner tensor is computed, then wrapped."""

    def factory(*args: Any, device: torch.device | None = None, pin_memory: bool | None = None, **kwargs: Any) -> Any:
        where = current.device(device.index if device is not None else None)
        if where.retired:
            raise device_asserts.retired_error(where)
        packet, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        inner = op(*args, device=_inner_device(), **kwargs)
        roofline = where.roofline
        work = Work(roofline.streaming(inner.nbytes), 0, inner.nbytes, roofline.share(inner.numel()))
        kernel(where, work)
        return wrap(inner, where, take_bytes(where, inner.nbytes))

    return factory


def copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """``aten::_copy_from``: `copy_`, called by C++."""
    transfer.copy_(None, (target, source, non_blocking), {})  # type: ignore[arg-type]
    return target


def record_stream(source: FakeCudaTensor, stream: torch.Stream) -> None:
    """``aten::record_stream`` without Python dispatch, which FSDP turns off around the call."""
    transfer.record_stream(None, (source, stream), {})  # type: ignore[arg-type]


def _metadata_below_dispatch(name: str) -> Callable[..., Any]:
    """A view or `set_` while Python's dispatch is off (`no_dispatch`): a wrapper subclass's metadata, as on a card."""
    packet, _, overload = name.partition(".")
    op = getattr(getattr(torch.ops.aten, packet), overload or "default")

    def view(source: torch.Tensor, *args: Any) -> Any:
        if isinstance(source, FakeCudaTensor):
            return FakeCudaTensor.__torch_dispatch__(op, (), (source, *args), {})
        return op._op_dk(torch._C.DispatchKey.CPU, source, *args)

    return view


def local_scalar_dense(source: FakeCudaTensor) -> Any:
    """``aten::_local_scalar_dense``, called by C++: ``torch.tensor([loss, loss])``."""
    return transfer.local_scalar_dense(None, (source,), {})  # type: ignore[arg-type]


def sparse_empty(size: Sequence[int], *, device: torch.device | None = None, **options: Any) -> torch.Tensor:
    """``aten::empty.memory_format`` of a sparse layout: no elements, and so no memory."""
    where = current.device(device.index if device is not None else None)
    for name in ("pin_memory", "memory_format"):
        options.pop(name, None)
    inner = torch.empty(tuple(size), device=_inner_device(), **options)
    return wrap(inner, where, take_bytes(where, 0))


def sparse_with_dims(
    sparse_dim: int, dense_dim: int, size: Sequence[int], *, device: torch.device | None = None, **options: Any
) -> torch.Tensor:
    """``aten::_sparse_coo_tensor_with_dims``: no elements."""
    where = current.device(device.index if device is not None else None)
    options.pop("pin_memory", None)
    inner = torch.ops.aten._sparse_coo_tensor_with_dims.default(
        sparse_dim, dense_dim, tuple(size), device=_inner_device(), **options
    )
    return wrap(inner, where, take_bytes(where, 0))


def validate_sparse(indices: torch.Tensor, values: torch.Tensor, *rest: Any) -> None:
    """``aten::_validate_sparse_coo_tensor_args``, of which torch has kernels for the CPU and for CUDA alone."""
    torch._validate_sparse_coo_tensor_args(inner_of(indices), inner_of(values), *rest)


def sparse_of_parts(*args: Any, **kwargs: Any) -> torch.Tensor:
    """``aten::_sparse_compressed_tensor_unsafe``, called by C++ (`values_backward`), whose result has no wrapper."""
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.aten._sparse_compressed_tensor_unsafe.default(*args, **kwargs)  # type: ignore[no-any-return]


FACTORIES: dict[str, Callable[..., Any]] = {
    "empty.memory_format": empty,
    "empty_strided": empty_strided,
    "_efficientzerotensor": _computed_on_inner_device("zeros"),
    "tril_indices": _computed_on_inner_device("tril_indices"),
    "triu_indices": _computed_on_inner_device("triu_indices"),
}


METADATA = (
    "as_strided",
    "view",
    "unfold",
    "_reshape_alias",
    "set_.source_Tensor",
    "set_.source_Storage_storage_offset",
)
"""Ops that change only what a tensor says of its memory."""

_library: Any = torch.library.Library


def refuse() -> list[torch.library.Library]:
    """Register kernels that raise torch's own errors for ``device="cuda"`` while no machine is enabled.

    C++ remembers that CUDA was initialised and does not call torch.cuda again, which would raise them.
    """

    def refused(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("Torch not compiled with CUDA enabled")

    def unknown(*args: Any, **kwargs: Any) -> Any:  # `device=0`: to C++ it is still our device
        raise RuntimeError("Cannot access accelerator device when none is available.")

    library: Any = _library("aten", "IMPL")
    for name in FACTORIES:
        library.impl(name, refused, "CUDA")
        library.impl(name, unknown, "PrivateUse1")
    library.impl("_pin_memory", unknown, "CPU")  # C++ would call our hooks for an allocator
    return [library]


def register() -> list[torch.library.Library]:
    """Register all kernels; they last until the returned libraries are destroyed."""
    with warnings.catch_warnings():  # a CUDA build has some of them and warns once that they are replaced
        warnings.filterwarnings("ignore", "Warning only once for all operators", UserWarning)
        return _register()


def quantized_to_copy(source: torch.Tensor, *, device: torch.device | None = None, **options: Any) -> torch.Tensor:
    """``aten::_to_copy`` of a quantized tensor on the host."""
    if device is not None and current.is_ours(device):
        raise not_simulated.error("quantized tensors")
    plain = torch._C.DispatchKey.CompositeExplicitAutograd
    return torch.ops.aten._to_copy.default._op_dk(plain, source, device=device, **options)  # type: ignore[no-any-return]


def _register() -> list[torch.library.Library]:
    library: Any = _library("aten", "IMPL")
    for key in ("CUDA", "PrivateUse1"):
        for name, function in FACTORIES.items():
            library.impl(name, interrupts.whole_but_for_users_code(function), key)
    for key in ("SparseCUDA", "SparsePrivateUse1", "SparseCsrCUDA", "SparseCsrPrivateUse1"):
        library.impl("empty.memory_format", sparse_empty, key)
    for key in ("SparseCUDA", "SparsePrivateUse1"):
        library.impl("_sparse_coo_tensor_with_dims", sparse_with_dims, key)
    library.impl("_validate_sparse_coo_tensor_args", validate_sparse, "PrivateUse1")
    library.impl("_sparse_compressed_tensor_unsafe", sparse_of_parts, "AutogradPrivateUse1")
    library.impl("_copy_from", copy_from, "PrivateUse1")
    library.impl("record_stream", record_stream, "PrivateUse1")
    for name in METADATA:
        library.impl(name, _metadata_below_dispatch(name), "PrivateUse1")
    library.impl("scaled_dot_product_attention", scaled_dot_product_attention, "AutogradPrivateUse1")
    for key in ("NestedTensorCUDA", "NestedTensorPrivateUse1"):
        library.impl("_to_copy", not_simulated.refuse("strided nested tensors"), key)
    cudnn_rnn.register(library)
    for key in ("QuantizedCUDA", "QuantizedPrivateUse1"):
        library.impl("_to_copy", quantized_to_copy, key)
        for name in ("_empty_affine_quantized", "_empty_per_channel_affine_quantized"):
            library.impl(name, not_simulated.refuse("quantized tensors"), key)
    fused_kernels.register(library)
    library.impl("_local_scalar_dense", local_scalar_dense, "PrivateUse1")
    return [library]
