"""FakeCudaTensor: a tensor on a simulated GPU.

It is a wrapper subclass. Its C++ half (sizes, strides, dtype, autograd metadata, device PrivateUse1) holds no data;
`_inner` is a CPU (or meta) tensor with the values; `_buffer` is the device memory of its storage. Every kernel,
including those of backward and of optimizers, arrives in `__torch_dispatch__`, below autograd (`dispatcher.run`).

Views share `_inner`'s storage and the `Buffer`. When the last of them dies, the memory is free again, as with CUDA's
reference-counted storages. The attributes live as long as the C++ tensor (torch preserves the Python object while C++
holds the tensor), so tensors that autograd saved for backward still count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch._C import DispatchKey, DispatchKeySet

from fakegpu_lab.driver.base import not_simulated
from fakegpu_lab.driver.base.privateuse1 import CPP_DEVICES, CUDA_DEVICES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fakegpu_lab.hardware.buffer import Buffer
    from fakegpu_lab.hardware.device import Device

_make_wrapper = torch.Tensor._make_wrapper_subclass
_strided = torch.strided
_set_class = object.__dict__["__class__"].__set__

share: Callable[[torch.Tensor, torch.Tensor], None] = torch._functionalize_unsafe_set
"""``share(view, base)``: give the C++ half of `view` the storage of `base`'s (it holds no data), so that C++ sees them
as aliases: DDP checks its buckets with `torch._C._is_alias_of`."""


class FakeCudaTensor(torch.Tensor):
    """A tensor on a simulated GPU; see the module's docstring. `tensor_api.methods` adds Python's methods.

    Attributes
    ----------
    _inner
        The values: a CPU tensor, or a meta tensor under ``compute="meta"``.
    _buffer
        The device memory of the storage, shared by all its views.
    _device
        The simulated device, ``_buffer.device``; kept here because the dispatch path reads it at every call.
    """

    # No __slots__: `tensor_api.conversion` exchanges classes with plain tensors.
    _inner: torch.Tensor
    _buffer: Buffer
    _device: Device
    _unusual = False  # sparse, or with C++'s conjugate or negative bit: not for the flat plans

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """``type(x)(...)``: on a real GPU, the type of a parameter is `Parameter`, that of other tensors `Tensor`."""
        if cls is not FakeCudaTensor:
            return super().__new__(cls, *args, **kwargs)
        parameter = "requires_grad" in kwargs or (len(args) == 2 and args[1].__class__ is bool)
        return (torch.nn.Parameter if parameter else torch.Tensor)(*args, **kwargs)

    def __coerce_same_metadata_as_tangent__(self, metadata: Any, expected_type: Any = None) -> FakeCudaTensor:
        """Itself: on CUDA it is a plain tensor, of which AOTAutograd asks nothing."""
        return self

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """``cuda:i``, not the C++ device."""
        return CUDA_DEVICES[self._device.index]

    @property
    def layout(self) -> torch.layout:  # type: ignore[override]
        """The layout of the values."""
        return self._inner.layout

    @property
    def is_sparse(self) -> bool:  # type: ignore[override]
        """Whether the layout is COO."""
        return self._inner.is_sparse

    @property
    def is_sparse_csr(self) -> bool:  # type: ignore[override]
        """Whether the layout is CSR."""
        return self._inner.is_sparse_csr


# On a real GPU, print(type(x)) shows torch.Tensor.
FakeCudaTensor.__name__ = FakeCudaTensor.__qualname__ = "Tensor"
FakeCudaTensor.__module__ = "torch"


class SparseCudaTensor(FakeCudaTensor):
    """A device tensor of a sparse layout. Its ``__class__`` is FakeCudaTensor, which the dispatch path looks for."""

    on_first: ClassVar[list[Callable[[], None]]] = []
    """Called when the first one is made: earlier plans ignore sparse tensors (`dispatch.sparse`)."""
    _adopt_parts: Callable[[torch.Tensor, Device], Buffer]  # set by `dispatch.sparse`
    _unusual = True
    _subclass_on_the_host = FakeCudaTensor  # none: `user_subclasses.on_host`
    __class__ = property(lambda self: FakeCudaTensor, _set_class)

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        """0: its parts have the memory. Torch would raise, but the driver reads this."""
        return 0

    def data_ptr(self) -> int:
        """Raises, as C++ does for a tensor without storage."""
        return self._inner.data_ptr()


SparseCudaTensor.__name__ = SparseCudaTensor.__qualname__ = "Tensor"
SparseCudaTensor.__module__ = "torch"


DEVICE_TENSORS = (FakeCudaTensor, SparseCudaTensor)
"""The types of device tensors; the ``__class__`` of each is FakeCudaTensor."""


def wrap(inner: torch.Tensor, device: Device, buffer: Buffer) -> FakeCudaTensor:
    """The tensor on `device` with the values `inner`, which fill the new storage `buffer`."""
    if inner.layout is not _strided:
        return _wrap_sparse(inner, device)
    try:
        shape = inner.shape
    except RuntimeError:
        raise not_simulated.error("strided nested tensors") from None
    if inner.is_contiguous() and 1 not in shape and 0 not in shape:  # the stride of such an extent may be anything
        tensor = _make_wrapper(FakeCudaTensor, shape, device=CPP_DEVICES[device.index], dtype=inner.dtype)
    else:
        tensor = _make_wrapper(
            FakeCudaTensor, inner.shape, inner.stride(), device=CPP_DEVICES[device.index], dtype=inner.dtype
        )
    tensor._inner = inner
    tensor._buffer = buffer
    tensor._device = device
    return tensor


def wrap_view_of(base: FakeCudaTensor, inner: torch.Tensor) -> FakeCudaTensor:
    """The view of `base` with the values `inner`.

    A view of a normal tensor is a normal tensor, even in inference mode (C++ gives it the base's version counter).
    """
    if torch.is_inference_mode_enabled() and not base.is_inference():
        with torch.inference_mode(False):
            return wrap_view(inner, base._device, base._buffer, base)
    return wrap_view(inner, base._device, base._buffer, base)


def wrap_view(
    inner: torch.Tensor, device: Device, buffer: Buffer, base: FakeCudaTensor | None = None
) -> FakeCudaTensor:
    """The tensor on `device` with the values `inner`, a part of the storage `buffer` (and of `base`'s)."""
    if inner.layout is not _strided:
        return _wrap_sparse(inner, device)
    tensor = _make_wrapper(
        FakeCudaTensor,
        inner.shape,
        inner.stride(),
        inner.storage_offset(),
        device=CPP_DEVICES[device.index],
        dtype=inner.dtype,
    )
    tensor._inner = inner
    tensor._buffer = buffer
    tensor._device = device
    if base is not None and not isinstance(base, SparseCudaTensor):
        share(tensor, base)
    if inner.is_conj() or inner.is_neg():
        set_conj_neg_bits(tensor)
    return tensor


def set_conj_neg_bits(tensor: FakeCudaTensor) -> None:
    """Set the C++ half's conjugate and negative bits as `_inner` has them.

    C++ then resolves the tensor (to a clone) before ops that cannot take it, as on CUDA. Ops that can take it (views,
    `clone`, `copy_`) reach the inner tensor, which has the bits too.
    """
    torch._C._set_conj(tensor, tensor._inner.is_conj())
    torch._C._set_neg(tensor, tensor._inner.is_neg())
    tensor._unusual = True


def _wrap_sparse(inner: torch.Tensor, device: Device) -> SparseCudaTensor:
    """Wrap a tensor of a sparse layout, whose parts have the memory.

    Its C++ half is not a SparseTensorImpl, but has the dispatch keys of one and calls us for its layout. So C++ takes
    the paths for sparse tensors, and all of them go through the dispatcher.
    """
    while SparseCudaTensor.on_first:
        SparseCudaTensor.on_first.pop(0)()
    keys = DispatchKey.SparsePrivateUse1 if inner.layout is torch.sparse_coo else DispatchKey.SparseCsrPrivateUse1
    tensor = _make_wrapper(
        SparseCudaTensor,
        inner.shape,
        device=CPP_DEVICES[device.index],
        dtype=inner.dtype,
        dispatch_layout=True,
        _extra_dispatch_keys=DispatchKeySet(keys),
    )
    tensor._inner = inner
    tensor._buffer = SparseCudaTensor._adopt_parts(inner, device)
    tensor._device = device
    return tensor


def inner_of(value: Any) -> Any:
    """The inner tensor of a device tensor; anything else is returned unchanged."""
    return value._inner if value.__class__ is FakeCudaTensor else value


def dispatches_itself(tensor: torch.Tensor) -> bool:
    """Whether a tensor is of another wrapper subclass (DTensor, for one), whose `__torch_dispatch__` must run first."""
    cls = tensor.__class__
    return (
        cls is not FakeCudaTensor
        and cls is not torch.Tensor
        and cls.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
    )


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """All tensors in an argument or a result: itself, or those in lists, tuples and dictionaries."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_of(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_of(item)
