"""The operations of Triton's language, on arrays whose first axis is that of the programs that run together.

Triton's semantic layer checks types and shapes, then calls a builder; its interpreter has one that runs one program at
a time on numpy arrays. This one derives from it: elementwise operations are the same with one more axis, and what
depends on axes, memory or precision is defined here. bfloat16 is rounded to nearest even, as on a card.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton._C.libtriton import interpreter as _native
from triton.language.semantic import TritonSemantic
from triton.runtime.interpreter import InterpreterBuilder, InterpreterOptions, TensorHandle, _get_np_dtype

from fakegpu_lab.kernels.launch import AssertFailed
from fakegpu_lab.kernels.triton_programs.loads_and_stores import aligned, load, store, update
from fakegpu_lab.kernels.triton_programs.running import now, user_line

Array = Any

FORMATS = {"fp16": "fp16", "bf16": "bf16", "fp32": "fp32", "fp64": "fp64"}
_COUNTED = {np.add, np.subtract, np.multiply, np.divide}
_UNCOUNTED = {np.negative, np.abs, np.floor, np.ceil}


def widened(data: Array) -> Array:
    """bfloat16, kept as uint16, in float32."""
    return (np.ascontiguousarray(data).astype(np.uint32) << 16).view(np.float32)


def narrowed(data: Array) -> Array:
    """float32 in bfloat16, rounded to nearest even."""
    bits = np.ascontiguousarray(data, dtype=np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(data), 0x7FC0, rounded).astype(np.uint16)


def in_torch(data: Array) -> torch.Tensor:
    """An array as torch takes it without a warning: in one piece, and not one that may only be read."""
    return torch.from_numpy(np.require(data, requirements=("C", "W")))


def _origin(handle: Any) -> str:
    return str(handle.attr.get("origin", ""))


def _marked(handle: Any, like: Any) -> Any:
    """A pointer that comes from the same argument as another one."""
    if "origin" in like.attr:
        handle.attr["origin"] = like.attr["origin"]
    return handle


class Builder(InterpreterBuilder):  # type: ignore[misc]
    """See the module's docstring."""

    def __init__(self) -> None:
        super().__init__()
        self.options = InterpreterOptions(sanitize_overflow=False)

    # ---------------------------------------------------------- the program

    def create_get_program_id(self, axis: int) -> Any:
        return TensorHandle(now[-1].program_id(axis), tl.int32)

    def create_get_num_programs(self, axis: int) -> Any:
        return TensorHandle(np.array([now[-1].grid[axis]], dtype=np.int32), tl.int32)

    # --------------------------------------------------------------- memory

    def create_load(self, ptr: Any, cache_policy: Any, is_volatile: bool) -> Any:
        return self.create_masked_load(ptr, None, None, cache_policy, is_volatile)

    def create_store(self, ptr: Any, val: Any, cache_policy: Any) -> None:
        self.create_masked_store(ptr, val, None, cache_policy)

    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, cache_policy: Any, is_volatile: bool) -> Any:
        dtype = ptrs.get_element_ty()
        found = load(
            ptrs.data,
            None if mask is None else mask.data,
            None if other is None else other.data,
            _get_np_dtype(dtype),
            _origin(ptrs),
        )
        return TensorHandle(found, dtype)

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, cache_policy: Any) -> None:
        store(ptrs.data, aligned(value.data, ptrs.data.ndim), None if mask is None else mask.data, _origin(ptrs))

    def create_atomic_rmw(self, rmwOp: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:  # noqa: N803
        kind = self.ir_rmw_op_to_interpreter_rmw_op[rmwOp]
        order = self.ir_sem_to_interpreter_sem[sem]

        def operation(where: Array, values: Array, on: Array) -> Array:
            return _native.atomic_rmw(kind, where, values, on, order)

        old = update(operation, ptr.data, aligned(val.data, ptr.data.ndim), mask.data, _origin(ptr))
        return TensorHandle(old, val.dtype.scalar)

    def create_atomic_cas(self, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
        order = self.ir_sem_to_interpreter_sem[sem]

        def operation(where: Array, values: Array, on: Array) -> Array:
            expected = np.ascontiguousarray(np.broadcast_to(aligned(cmp.data, where.ndim), where.shape))
            return _native.atomic_cas(where, expected, values, order)

        old = update(operation, ptr.data, aligned(val.data, ptr.data.ndim), None, _origin(ptr))
        return TensorHandle(old, cmp.dtype.scalar)

    def create_addptr(self, ptr: Any, offset: Any) -> Any:
        size = max(1, ptr.get_element_ty().primitive_bitwidth // 8)
        moved = ptr.data.view(np.int64) + size * aligned(offset.data, ptr.data.ndim).astype(np.int64)
        return _marked(TensorHandle(moved.view(np.uint64), ptr.dtype), ptr)

    # ----------------------------------------------------------- arithmetic

    def _count(self, output: Array, dtype: Any, each: float = 1.0) -> None:
        name = FORMATS.get(dtype.scalar.name)
        if name is not None:
            now[-1].computed(each * output.size / len(output), name)

    def binary_op(self, lhs: Any, rhs: Any, op: Any) -> Any:
        dims = max(lhs.data.ndim, rhs.data.ndim)
        if lhs.data.ndim != rhs.data.ndim:
            lhs = TensorHandle(aligned(lhs.data, dims), lhs.dtype, lhs.attr)
            rhs = TensorHandle(aligned(rhs.data, dims), rhs.dtype, rhs.attr)
        dtype = lhs.dtype.scalar
        with np.errstate(all="ignore"):
            if dtype.is_bf16():
                output = op(widened(lhs.data), widened(rhs.data))
                found = TensorHandle(output if output.dtype == np.bool_ else narrowed(output), dtype)
            else:
                found = super().binary_op(lhs, rhs, op)
        if op in _COUNTED:
            self._count(found.data, dtype)
        return found

    def ternary_op(self, lhs: Any, rhs: Any, other: Any, op: Any) -> Any:
        dims = max(lhs.data.ndim, rhs.data.ndim, other.data.ndim)
        handles = [TensorHandle(aligned(one.data, dims), one.dtype, one.attr) for one in (lhs, rhs, other)]
        found = super().ternary_op(*handles, op)
        return _marked(found, rhs) if _origin(rhs) and _origin(rhs) == _origin(other) else found

    def unary_op(self, arg: Any, op: Any) -> Any:
        with np.errstate(all="ignore"):
            if arg.dtype.is_bf16():
                found = TensorHandle(narrowed(op(widened(arg.data))), arg.dtype.scalar)
            else:
                found = TensorHandle(op(arg.data), arg.dtype.scalar)
        if op not in _UNCOUNTED:
            self._count(found.data, arg.dtype)
        return found

    def create_fma(self, x: Any, y: Any, z: Any) -> Any:
        found = super().create_fma(x, y, z)
        self._count(found.data, z.dtype, 2.0)
        return found

    def create_rsqrt(self, arg: Any) -> Any:
        return self.unary_op(arg, lambda data: (1 / np.sqrt(data)).astype(data.dtype))

    def create_erf(self, arg: Any) -> Any:
        return self.unary_op(arg, lambda data: torch.erf(in_torch(data)).numpy())

    def create_fdiv(self, lhs: Any, rhs: Any) -> Any:
        return self.binary_op(lhs, rhs, np.divide)

    def create_idiv(self, lhs: Any, rhs: Any) -> Any:
        def divide(left: Array, right: Array) -> Array:
            """Towards zero, as the card does; 0 where the card's result is undefined."""
            safe = np.where(right == 0, 1, right)
            return ((left - np.fmod(left, safe)) // safe).astype(left.dtype)

        return self.binary_op(lhs, rhs, divide)

    def cast_impl(self, src: Any, dst_type: Any) -> Any:
        old, new = src.dtype.scalar, dst_type.scalar
        data = widened(src.data) if old.is_bf16() and not new.is_bf16() else src.data
        with np.errstate(all="ignore"):
            if new.is_bf16() and not old.is_bf16():
                return TensorHandle(narrowed(data.astype(np.float32)), new)
            return TensorHandle(data.astype(_get_np_dtype(dst_type)), new)

    def create_fp_to_fp(self, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        plain = all(one.scalar.name in FORMATS for one in (src.dtype, dst_type))
        return self.cast_impl(src, dst_type) if plain else super().create_fp_to_fp(src, dst_type, rounding_mode)

    def create_dot(self, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
        left, right = self._factor(a), self._factor(b)
        product = np.matmul(left, right)
        flops = 2.0 * left.shape[-1] * math.prod(product.shape[1:])
        exact = a.dtype.scalar.name in ("fp32", "fp64")
        tf32 = exact and a.dtype.scalar.is_fp32() and "tf32" in str(input_precision).lower()
        fmt = "tf32" if tf32 else {"fp8e5": "fp8", "fp8e4nv": "fp8"}.get(a.dtype.scalar.name, a.dtype.scalar.name)
        now[-1].computed(flops, fmt, tensor_core=now[-1].tensor_cores and (not exact or tf32))
        total = widened(d.data) if d.dtype.is_bf16() else d.data
        output = (product + total).astype(total.dtype)
        return TensorHandle(narrowed(output) if d.dtype.is_bf16() else output, d.dtype.scalar)

    def _factor(self, handle: Any) -> Array:
        kind = handle.dtype.scalar
        if kind.is_bf16():
            return widened(handle.data)
        if kind.is_floating() and kind.primitive_bitwidth == 8:
            handle = super().create_fp_to_fp(handle, tl.float16, None)
        return handle.data if kind.is_fp64() else handle.data.astype(np.float32 if kind.is_floating() else np.int32)

    # ---------------------------------------------------------------- shapes

    def create_make_range(self, ret_ty: Any, start: int, stop: int) -> Any:
        return TensorHandle(np.arange(start, stop, dtype=np.int32)[None], tl.int32)

    def create_splat(self, ret_ty: Any, arg: Any) -> Any:
        shape = tuple(ret_ty.shape)
        data = aligned(arg.data.reshape(len(arg.data)), 1 + len(shape))
        return _marked(TensorHandle(np.broadcast_to(data, (len(data), *shape)), arg.dtype.scalar), arg)

    def create_unsplat(self, arg: Any) -> Any:
        return _marked(TensorHandle(arg.data.reshape(len(arg.data)), arg.dtype.scalar), arg)

    def create_expand_dims(self, arg: Any, axis: int) -> Any:
        return _marked(TensorHandle(np.expand_dims(arg.data, axis + 1), arg.dtype.scalar), arg)

    def create_broadcast(self, arg: Any, shape: Any) -> Any:
        return _marked(TensorHandle(np.broadcast_to(arg.data, (len(arg.data), *shape)), arg.dtype.scalar), arg)

    def create_reshape(self, arg: Any, shape: Any, allow_reorder: bool) -> Any:
        return _marked(TensorHandle(arg.data.reshape(len(arg.data), *shape), arg.dtype.scalar), arg)

    def create_trans(self, arg: Any, perm: Any) -> Any:
        axes = (0, *(axis + 1 for axis in perm))
        return _marked(TensorHandle(np.transpose(arg.data, axes), arg.dtype.scalar), arg)

    def create_cat(self, lhs: Any, rhs: Any) -> Any:
        count = max(len(lhs.data), len(rhs.data))
        both = [np.broadcast_to(one.data, (count, *one.data.shape[1:])) for one in (lhs, rhs)]
        return TensorHandle(np.concatenate(both, axis=1), lhs.dtype.scalar)

    def create_join(self, lhs: Any, rhs: Any) -> Any:
        return TensorHandle(np.stack(np.broadcast_arrays(lhs.data, rhs.data), axis=-1), lhs.dtype.scalar)

    def create_gather(self, src: Any, indices: Any, axis: int) -> Any:
        count = max(len(src.data), len(indices.data))
        data, places = (np.broadcast_to(one.data, (count, *one.data.shape[1:])) for one in (src, indices))
        return TensorHandle(np.take_along_axis(data, places.astype(np.int64), axis=axis + 1), src.dtype.scalar)

    def create_histogram(self, data: Any, bins: int, mask: Any) -> Any:
        rows = data.data.reshape(len(data.data), -1).astype(np.int64)
        valid = (rows >= 0) & (rows < bins)
        if mask is not None:
            valid = valid & mask.data.reshape(len(mask.data), -1)
        rows, valid = np.broadcast_arrays(rows, valid)
        counts = np.zeros((len(rows), bins), dtype=np.int32)
        program = np.nonzero(valid)[0]
        np.add.at(counts, (program, rows[valid]), 1)
        return TensorHandle(counts, tl.int32)

    # ---------------------------------------------------------- descriptors

    def create_make_tensor_descriptor(
        self, base: Any, shape: Any, strides: Any, tensor_shape: Any, is_signed: bool, padding: Any = "zero"
    ) -> Any:
        return _Descriptor(base, shape, strides, list(tensor_shape), padding)

    def create_descriptor_load(self, desc: Any, indices: Any, cache_policy: Any) -> Any:
        pointers, mask = desc.pointers(indices)
        dtype = pointers.get_element_ty()
        other = None
        if "NAN" in str(desc.padding).upper():
            other = TensorHandle(np.full((1,) * pointers.data.ndim, np.nan, dtype=_get_np_dtype(dtype)), dtype)
        return self.create_masked_load(pointers, mask, other, cache_policy, False)

    def create_descriptor_store(self, desc: Any, value: Any, indices: Any) -> None:
        pointers, mask = desc.pointers(indices)
        self.create_masked_store(pointers, value, mask, None)

    # ---------------------------------------------------------------- others

    def create_print(self, prefix: str, hex: bool, values: Any, isSigned: Any) -> None:  # noqa: A002, N803
        """As lib/Conversion/TritonGPUToLLVM/PrintOpToLLVM.cpp: a line for each element, program by program."""
        running = now[-1]
        for row, number in enumerate(running.ids):
            program = f"pid {running.place_of(int(number))}"
            if not values:
                print(f"{program}{prefix}")
            for place, value in enumerate(values):
                data = widened(value.data) if value.dtype.scalar.is_bf16() else value.data
                block = data[row if len(data) > 1 else 0]
                start = f"{prefix}(operand {place}) " if len(values) > 1 else prefix
                lines = []
                for index, one in np.ndenumerate(block):
                    at = ", ".join(f"{i:{math.ceil(math.log10(n))}}" for i, n in zip(index, block.shape, strict=True))
                    shown = f"{one:f}" if block.dtype.kind == "f" else f"{int(one):#x}" if hex else str(int(one))
                    lines.append(f"{program} idx ({at}){start}{shown}")
                print("\n".join(lines))

    def create_assert(self, condition: Any, message: str) -> None:
        """As lib/Conversion/TritonGPUToLLVM/AssertOpToLLVM.cpp, for the first element. Its thread is assumed."""
        failed = ~np.asarray(condition.data, dtype=np.bool_)
        running = now[-1]
        if failed.any() and not running.memory.tried:
            row = int(failed.reshape(len(failed), -1).any(axis=1).argmax())
            block = running.place_of(int(running.ids[row]))
            thread = int(failed[row].ravel().argmax()) % running.threads
            file, line = user_line()
            x, y, z = block
            raise AssertFailed(
                f"{file}:{line}: unknown: block: [{x},{y},{z}], thread: [{thread},0,0] Assertion `{message}` failed."
            )

    def create_assume(self, condition: Any) -> None:
        pass

    def create_barrier(self) -> None:
        pass


class _Descriptor:
    """A tensor descriptor: a block of a tensor of several axes, cut off at its edges."""

    def __init__(self, base: Any, shape: Any, strides: Any, block: list[int], padding: Any) -> None:
        self.base, self.shape, self.strides, self.block, self.padding = base, shape, strides, block, padding
        self.round_f32_to_tf32 = False

    def pointers(self, offsets: Any) -> tuple[Any, Any]:
        """The pointers of the block at some offsets, and which of them are inside."""
        dims = len(self.block)
        size = max(1, self.base.dtype.element_ty.primitive_bitwidth // 8)
        addresses = aligned(self.base.data.view(np.int64), dims + 1)
        inside: Array = np.True_
        for axis, extent in enumerate(self.block):
            line = np.arange(extent).reshape([-1 if other == axis else 1 for other in range(dims)])
            at = aligned(offsets[axis].data.astype(np.int64), dims + 1) + line[None]
            addresses = addresses + size * at * aligned(self.strides[axis].data.astype(np.int64), dims + 1)
            inside = inside & (at >= 0) & (at < aligned(self.shape[axis].data.astype(np.int64), dims + 1))
        handle = TensorHandle(np.ascontiguousarray(addresses).view(np.uint64), self.base.dtype.scalar)
        return _marked(handle, self.base), TensorHandle(np.broadcast_to(inside, addresses.shape), tl.int1)


builder = Builder()
semantic = TritonSemantic(builder)
