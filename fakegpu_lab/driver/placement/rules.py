"""Ops with device rules of their own: the devices that each may mix, and its own error message.

A rule (`Row.devices`) takes the op, its tensors, (name in the schema, tensor) in the caller's order, and its positional
arguments. It raises CUDA's error, or
returns if the devices are allowed. Its docstring names the source, in PyTorch's tree under aten/src/ATen/native.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.placement.mismatch_errors import (
    check_broadcast,
    check_iterator,
    check_one_device,
    generated_check,
    raise_two_devices,
    raise_wrong_out,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op
    from fakegpu_lab.driver.placement.mismatch_errors import Tensors

    Rule = Callable[[Op, Tensors, tuple[Any, ...]], None]


def elementwise(op: Op, tensors: Tensors, *rest: Any) -> None:
    """TensorIterator's operands: the outputs, then the inputs in the schema's order."""
    if (
        op.name == "add" and tensors[0][1].device.type == "cpu" and tensors[1][1].is_sparse
    ):  # cuda/SparseCUDATensorMath.cu
        raise RuntimeError("add: expected 'self' to be a CUDA tensor, but got a CPU tensor")
    inputs = [t for name, t in tensors if name not in op.outs]
    outputs = [t for name, t in tensors if name in op.written]
    if op.outs and not op.pointwise and not op.row.iterates_out:
        check_iterator([], inputs, cpu_scalars=False)
        for tensor in outputs:
            if tensor.device != inputs[0].device:
                raise_wrong_out(inputs[0].device, tensor.device)
    check_iterator(outputs, inputs, cpu_scalars=op.row.cpu_scalars, broadcast=op.pointwise)


def any_device(op: Op, tensors: Tensors, *rest: Any) -> None:
    """No check: the op copies what it needs, or reads it on the host."""


def reordered(*names: str) -> Rule:
    """Elementwise, with the operands in another order than in the schema."""

    def rule(op: Op, tensors: Tensors, *rest: Any) -> None:
        named = dict(tensors)
        check_iterator([], [named[name] for name in names], cpu_scalars=True, broadcast=True)

    return rule


def kernel(name: str, out: str = "", **arguments: str) -> Rule:
    """The generated check of the kernel that a composite op calls, with that kernel's argument names.

    `out` is that kernel's name if the op is called with ``out=``.
    """

    def rule(op: Op, tensors: Tensors, *rest: Any) -> None:
        order = [*(t for t in tensors if t[0] in op.outs), *(t for t in tensors if t[0] not in op.outs)]
        check_one_device(((arguments.get(n, n), t) for n, t in order), out if op.outs else name)

    return rule


CAT = kernel("cat", out="cat_out_out")
"""The rule of `cat`, which `stack` calls."""


def where(op: Op, tensors: Tensors, *rest: Any) -> None:
    """0-dim inputs go to the first device that is not the CPU (TensorCompare.cpp, where_self_out)."""
    named = dict(tensors)
    inputs = [named[name] for name in ("condition", "self", "other")]
    outputs = [named["out"]] if "out" in named else []
    device = next(t.device for t in (*outputs, *inputs) if t.device.type != "cpu")
    for tensor in (*outputs, *inputs):
        if tensor.device != device and (tensor.dim() or tensor is named.get("out")):
            check_broadcast(inputs)
            raise_two_devices(device, tensor.device)


def addcmul(op: Op, tensors: Tensors, *rest: Any) -> None:
    """Only `tensor2` may be a CPU scalar (PointwiseOps.cpp, addcmul's meta function)."""
    elementwise(op, tensors)
    named = dict(tensors)
    for name in ("self", "tensor1"):
        if named[name].device.type == "cpu":
            hint = (
                " However, CPU Scalar support for tensor2 is supported, please swap your tensor1 and tensor2 terms."
                if name == "tensor1"
                else ""
            )
            raise RuntimeError(
                f"CPU Scalar support for {name} argument is not supported when calling addcmul on CUDA tensors.{hint}"
            )


def mv(op: Op, tensors: Tensors, *rest: Any) -> None:
    """The result is allocated on the device of `vec`, then filled by addmv_ (Blas.cpp, mv)."""
    named = dict(tensors)
    vec = named["vec"]
    operands = [("self", named.get("out", vec)), ("mat", named["self"]), ("vec", vec)]
    check_one_device(operands, "addmv_out_out" if op.outs else "addmv_")


def batch_norm(op: Op, tensors: Tensors, *rest: Any) -> None:
    """CUDA inputs with an affine transform go to cuDNN (Normalization.cpp, _batch_norm_impl_index)."""
    source = tensors[0][1]
    names = {name for name, _ in tensors}
    statistics = {"running_mean", "running_var"} & names
    if source.is_cuda and source.dim() >= 3 and {"weight", "bias"} <= names and len(statistics) != 1:
        check_one_device(tensors, "_cudnn_batch_norm")
    else:
        check_one_device(tensors, "_native_batch_norm")


def masked_fill(op: Op, tensors: Tensors, *rest: Any) -> None:
    """The mask must be on self's device; the value is one element from any device, but a CPU self needs a CPU value.

    cuda/Indexing.cu, masked_fill__cuda; TensorAdvancedIndexing.cpp, masked_fill_impl_cpu.
    """
    named = dict(tensors)
    target, mask, value = named["self"], named["mask"], named.get("value")
    if mask.device != target.device:
        raise RuntimeError(
            f"expected self and mask to be on the same device, but got mask on {mask.device} and self on "
            f"{target.device}"
        )
    if value is not None and value.device != target.device and target.device.type == "cpu":
        raise RuntimeError("masked_fill_: Expected inputs to be on same device")


def index(op: Op, tensors: Tensors, *rest: Any) -> None:
    """Indices are on the CPU or on self's device (TensorAdvancedIndexing.cpp, make_info)."""
    named = {name: tensor for name, tensor in tensors if name != "indices"}
    target = named["self"].device
    for name, tensor in tensors:
        if name == "indices" and tensor.device not in (target, torch.device("cpu")):
            raise RuntimeError(
                f"indices should be either on cpu or on the same device as the indexed tensor ({target})"
            )
    if "out" in named:
        check_iterator([named["out"]], [named["self"]], cpu_scalars=False)


def index_put(op: Op, tensors: Tensors, *rest: Any) -> None:
    """Indices and a 0-dim value may be on any device (TensorAdvancedIndexing.cpp, _index_put_impl_)."""
    named = dict(tensors)
    target, values = named["self"], named["values"]
    if values.device != target.device and values.dim():
        check_iterator([target], [values], cpu_scalars=False)


def index_fill(op: Op, tensors: Tensors, *rest: Any) -> None:
    """The value is read on the host (TensorAdvancedIndexing.cpp, index_fill_)."""
    check_iterator([], [t for name, t in tensors if name in ("self", "index")], cpu_scalars=False)


def convolution(op: Op, tensors: Tensors, args: tuple[Any, ...]) -> None:
    """Types are compared before devices, weight before bias (Convolution.cpp, check_input_same_type_as_parameters)."""
    named = dict(tensors)
    source, weight, bias = named["input"], named["weight"], named.get("bias")
    for what, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.type() != source.type():
            dense = "" if source.is_cuda else f" or input should be a MKLDNN tensor and {what} is a dense tensor"
            raise RuntimeError(
                f"Input type ({source.type()}) and {what} type ({tensor.type()}) should be the same{dense}"
            )
    kernel = "_cudnn_convolution_transpose" if args[op.position["transposed"]] else "_cudnn_convolution"
    check_one_device([("input", source), ("weight", weight)], kernel)
    if bias is not None:  # added to cuDNN's result
        check_iterator([source], [source, bias], cpu_scalars=False)


def bce_with_logits(op: Op, tensors: Tensors, *rest: Any) -> None:
    """A chain of elementwise ops that starts with pos_weight, or else with target (Loss.cpp)."""
    named = dict(tensors)
    for names in (("pos_weight", "target"), ("target", "self"), ("self", "weight")):
        check_iterator([], [named[n] for n in names if n in named], cpu_scalars=True)


def cholesky_solve(op: Op, tensors: Tensors, *rest: Any) -> None:
    """LinearAlgebraUtils.h, checkSameDevice of `cholesky_solve_out`, and linearSolveCheckInputs."""
    named = dict(tensors)
    if "out" in named and named["out"].device != named["self"].device:
        raise RuntimeError(
            "cholesky_solve: Expected result and input tensors to be on the same device, but got result on "
            f"{named['out'].device} and input on {named['self'].device}"
        )
    if named["self"].device != named["input2"].device:
        raise RuntimeError(
            f"Expected b and A to be on the same device, but found b on {named['self'].device} and A on "
            f"{named['input2'].device} instead."
        )


def dot_out(op: Op, tensors: Tensors, *rest: Any) -> None:
    """Linear.cpp, dot_out and vdot_out; without ``out=``, the generated check."""
    if not op.outs:
        generated_check(op, tensors)
        return
    named = dict(tensors)
    first, second = (t for n, t in tensors if n != "out")
    if {named["out"].device} != {first.device, second.device}:
        raise RuntimeError(
            f"{op.name}: Expected the output and input tensors to be on the same device, but got the output tensor "
            f"on {named['out'].device}, the 'input' tensor on {first.device}, and the 'other' tensor on "
            f"{second.device}"
        )


def searchsorted(op: Op, tensors: Tensors, *rest: Any) -> None:
    """BucketizationUtils.h, searchsorted_pre_check, after the generated check."""
    generated_check(op, tensors)
    named = dict(tensors)
    sorter, boundaries = named.get("sorter"), named["sorted_sequence"]
    if sorter is not None and sorter.device != boundaries.device:
        raise RuntimeError(
            "torch.searchsorted(): sorter and boundary tensors should have same device type, but got sorter tensor "
            f"device type {sorter.device} and input value tensor device type {boundaries.device}"
        )


def block_diag(op: Op, tensors: Tensors, *rest: Any) -> None:
    """TensorShape.cpp, block_diag."""
    for i, (_, tensor) in enumerate(tensors):
        if tensor.device != tensors[0][1].device:
            raise RuntimeError(
                "torch.block_diag: input tensors must all be on the same device. "
                f"Input 0 is on device {tensors[0][1].device} and input {i} is on device {tensor.device}"
            )


def lstsq(op: Op, tensors: Tensors, *rest: Any) -> None:
    """The solution is allocated on the device of `self` (BatchLinearAlgebra.cpp, linalg_lstsq)."""
    named = dict(tensors)
    check_one_device([("self", named["self"]), ("b", named["b"])], "out_linalg_lstsq_out")


def segment_reduce(op: Op, tensors: Tensors, *rest: Any) -> None:
    """SegmentReduce.cpp, segment_reduce_kernel."""
    named = dict(tensors)
    for name in ("lengths", "offsets"):
        if name in named and named[name].device != named["data"].device:
            raise RuntimeError(
                f"Expected data.get_device() == {name}_value.get_device() to be true, but got false.  (Could this "
                "error message be improved?  If so, please report an enhancement request to PyTorch.)"
            )


def foreach(op: Op, tensors: Tensors, *rest: Any) -> None:
    """The scalar tensor of a fused kernel must be on the device of its lists (ForeachBinaryOpScalarTensor.cu)."""
    first, scalar = tensors[0][1], tensors[-1][1]
    if scalar.device != first.device:
        verb = "is expected" if op.written else "expected"
        raise RuntimeError(f"scalar tensor {verb} to be on {first.device} but is on {scalar.device}")


def fused_optimizer(op: Op, tensors: Tensors, *rest: Any) -> None:
    """A learning rate in a tensor may be on the CPU: it is read there (cuda/FusedAdamKernel.cu, FusedSgdKernel.cu)."""
    if op.schema.overload_name != "tensor_lr":
        generated_check(op, tensors)
        return
    named = dict(tensors)
    device = tensors[0][1].device
    # In words, SGD with momentum takes the learning rate for `found_inf`.
    lr_in_words = "found_inf" if "momentum_buffer_list" in named else "lr"
    for name in ("grad_scale", "found_inf", "lr"):
        tensor = named.get(name)
        if tensor is not None and tensor.device != device and not (name == "lr" and tensor.device.type == "cpu"):
            raise RuntimeError(f"{lr_in_words if name == 'lr' else name} must be on the same GPU device as the params")
    lists = [tensor for name, tensor in tensors if name not in ("grad_scale", "found_inf", "lr")]
    check_iterator([], lists, cpu_scalars=False)
