"""What PyTorch's own work takes on the host: for an op by its kind, for a module's call, for an optimizer's lists.

All times are nanoseconds on the reference host, whose factor is 1 (`HostProfile.factor`); the launch of a kernel is
extra (`HostProfile.launch_us`). An op's time has two parts: what C++ does for it (dispatcher, checks, autograd's
bookkeeping, the allocator, cuBLAS's or cuDNN's choice of a kernel), and what surrounds it. In the forward pass, that is
Python: the function of `torch.nn.functional`, the binding, the arguments. In the backward pass, it is the node of
autograd's engine, and no Python.

The constants were chosen on half of the host-bound series of tests/fidelity, and compared with the times of ops in
public traces of torch.profiler (tests/fidelity/host_traces.csv); docs/fidelity.md shows how far off they are.
"""

from __future__ import annotations

from typing import NamedTuple


class OpCost(NamedTuple):
    """What an op takes on the reference host, ns, without its launches: called by Python, and by autograd's engine."""

    forward: int
    backward: int


RATED = 2_900
"""A host's factor times PassMark's rating of one thread of its processor.

The median of 14 series of the known host-bound rows, by card: 1,300 (a laptop, torch 2.2) to 4,700 (torch 1.9). Hosts
that no series was measured on have this factor. Others have the mean of it and of what their series fit, where the two
differ much. The same program with the same RTX 4090 took 7.5 to 8.5 ms a word with a Core i9-13900K and 18 with an EPYC
of the 7000 series (https://github.com/mit-han-lab/llm-awq/issues/61): 2.2 times as long. The ratings of a Core
i9-12900K and an EPYC 7742 differ by 2.0 times.
"""

NOTHING = OpCost(0, 0)
"""An op that C++ decomposes into others, which have their own times."""
VIEW = OpCost(1_600, 1_600)
"""A view: no kernel. C++ makes most of them itself, inside of other ops."""
DETACH = OpCost(1_000, 2_000)
"""In the forward pass, C++ saves a result for later. In the backward pass, a node takes such a result, or a gradient is
stored (AccumulateGrad): in the known traces, 1 to 3 µs within nodes whose own time is 5, with the profiler's cost."""
EMPTY = OpCost(2_500, 2_500)
"""Memory without a kernel."""
POINTWISE = OpCost(10_000, 8_000)
"""A kernel of TensorIterator: elementwise ops, reductions, copies on the device. The usual kind."""
IN_PLACE = OpCost(6_000, 5_000)
"""The same, writing to a tensor that is there: no memory, no new tensor, less bookkeeping. In traces, such ops take
half as long (11 to 13 instead of 18 to 20 µs on a V100 and an A100, with the profiler's cost)."""
PRODUCT = OpCost(26_000, 24_000)
"""cuBLAS: its handle, workspace and heuristics."""
LINEAR_BACKWARD = OpCost(55_000, 55_000)
"""The two products, the sum and the views of a linear layer's backward, which are one op here (`driver.ops.linear`)."""
CONVOLUTION = OpCost(33_000, 55_000)
"""cuDNN: descriptors, the choice of an algorithm from its cache, a workspace; the backward has two products of it."""
BATCH_NORM = OpCost(30_000, 26_000)
"""cuDNN's, or PyTorch's: five to eight tensors, some of them new."""
NORM = OpCost(24_000, 24_000)
"""Layer norm, group norm and their relatives."""
ATTENTION = OpCost(34_000, 45_000)
"""A fused kernel, the choice of it, and its philox state."""
LIST = OpCost(20_000, 20_000)
"""An op on lists of tensors (foreach, fused optimizers), without the tensors."""
RECURRENT = OpCost(60_000, 90_000)
"""cuDNN's recurrent layers: descriptors and all weights."""
USER_KERNEL = OpCost(12_000, 12_000)
"""A kernel that the program compiled itself (Triton, numba): its launcher is Python."""

PYTHON = 3_000
"""The part of an op's time in the forward pass that Python takes before C++ begins; a timeline shows them apart."""
LISTED_TENSOR = 250
"""Each tensor of the longest list of an op on lists: C++ checks it, and what goes with it, and packs the addresses. In
a trace of a V100 (ns_resolution_trace), `_foreach_mul_` of 161 tensors took 116 to 136 µs, and `_foreach_add_` of twice
as many no more: 95 to 111 µs."""
LISTED_RESULT = 1_000
"""Each new tensor that an op on lists returns: it takes memory."""
OPTIMIZED_PARAMETER = 1_500
"""Each parameter in an optimizer's step: Python collects it, its gradient and its state (`Optimizer._init_group`)."""
MODULE_CALL = 4_000
"""A module's call: `nn.Module.__call__`, the look-up of its parameters, and its `forward`."""
FUNCTION_BACKWARD = 12_000
"""The backward of an autograd.Function, for which the engine calls Python."""
