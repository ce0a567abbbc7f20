"""What CUDA, NCCL and PyTorch say, word for word. Of a message of several lines the first stands here."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from functools import partial
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import fakegpu_lab as lab
from tests.driver.placement_table import read, run
from tests.fidelity.fact import Fact, enabled

if TYPE_CHECKING:
    from collections.abc import Callable

SAME = "Expected all tensors to be on the same device, but "
BUILD = "a CUDA build of torch 2.14.1 (tests/driver/{} says how it was asked)"
ATEN = "PyTorch, aten/src/ATen/native/"


def on(device: str, *shape: int) -> torch.Tensor:
    return torch.ones(shape or (2, 2), device=device)


def says(program: Callable[[], object], card: str) -> str:
    """The first line of the error that a program ends with."""
    with enabled(card):
        try:
            program()
        except Exception as error:
            return str(error).splitlines()[0]
    return "nothing"


def agree(table: str, card: str) -> str:
    """How many expressions of a table of tests end as they did there, the second tensor once on the CPU, once not."""
    cases, right, asked = read(table), 0, 0
    with enabled(f"{card}:2"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in cases:
            for verdict, there in ((case.cpu, "cpu"), (case.cuda, "cuda:1")):
                if there == "cuda:1" and not case.has_second_device:
                    continue
                asked += 1
                expected = "" if verdict.error is None else f"{verdict.error}: {verdict.text}"
                try:
                    run(case.expression, "cuda:0", there)
                    error = ""
                except Exception as raised:
                    error = f"{type(raised).__name__}: {raised}"
                right += error == expected.replace("{here}", "cuda:0").replace("{there}", there)
    return "all agree" if right == asked else f"{right} of {asked} agree"


def out_of_memory(card: str) -> str:
    """The message without its amounts, and without its advice, whose variable and address change with the version."""
    text = says(lambda: torch.empty(2**41, device="cuda"), card)
    return re.sub(r"[\d.]+ (bytes|[KMG]iB)", "…", text.partition(" If reserved")[0])


def index_out_of_range(card: str) -> str:
    """What a kernel prints, when the host next waits."""
    with enabled(card), contextlib.redirect_stderr(io.StringIO()) as printed:
        F.embedding(torch.tensor([0, 4], device="cuda"), on("cuda", 4, 5))
        with contextlib.suppress(torch.AcceleratorError):
            torch.cuda.synchronize()
    return re.sub(r"^.*(?=indexSelect)", "", printed.getvalue().splitlines()[0])


def assert_triggered() -> None:
    with contextlib.redirect_stderr(io.StringIO()):
        F.embedding(torch.tensor([0, 4], device="cuda"), on("cuda", 4, 5))
        torch.cuda.synchronize()


def ranks(program: Callable[[], object], pattern: str, card: str) -> str:
    """The line of the error that two ranks end with in which a pattern is found, without its figures."""

    def work() -> None:
        dist.init_process_group("nccl")
        program()

    with enabled(f"{card}:2"):
        try:
            lab.run_ranks(work, 2)
        except Exception as error:
            line = next((line for line in str(error).splitlines() if re.search(pattern, line)), str(error))
            return re.sub(r"\b\d+\b", "…", line)
    return "nothing"


def own_device(number: int | None = None) -> None:
    torch.cuda.set_device(dist.get_rank() if number is None else number)


def only_rank_1() -> None:
    own_device()
    if dist.get_rank() == 1:
        dist.broadcast(on("cuda", 80), 0)


def one_card() -> None:
    own_device(0)
    dist.all_reduce(on("cuda", 80))


def fact(what: str, real: str, source: str, program: Callable[[], object]) -> Fact:
    return Fact(what, "a100", real, source, partial(says, program))


FACTS = [
    *(
        Fact(
            f"{len(read(table))} expressions of {what}",
            "a100",
            "all agree",
            BUILD.format(table),
            partial(agree, table),
            tested="tests/driver/test_placement.py",
        )
        for table, what in (("placement_cases.txt", "tensors on two devices"), ("dtype_cases.txt", "unlike dtypes"))
    ),
    fact(
        "a + b, b on the CPU",
        SAME + "found at least two devices, cuda:0 and cpu!",
        "PyTorch, aten/src/ATen/TensorIterator.cpp",
        lambda: on("cuda") + on("cpu"),
    ),
    fact(
        "a @ b, b on the CPU",
        SAME + "got mat2 is on cpu, different from other tensors on cuda:0 (when checking "
        "argument in method wrapper_CUDA_mm)",
        "PyTorch, aten/src/ATen/core/adaption.cpp",
        lambda: on("cuda") @ on("cpu"),
    ),
    fact(
        "a CPU tensor, an index on the card",
        "indices should be either on cpu or on the same device as the indexed tensor (cpu)",
        ATEN + "TensorAdvancedIndexing.cpp",
        lambda: on("cpu")[torch.tensor([0], device="cuda")],
    ),
    fact(
        "a convolution whose weight stayed",
        "Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same",
        ATEN + "Convolution.cpp",
        lambda: nn.Conv2d(3, 4, 3)(on("cuda", 1, 3, 8, 8)),
    ),
    fact(
        "an LSTM that stayed",
        "Input and parameter tensors are not at the same device, found input tensor at cuda:0 and "
        "parameter tensor at cpu",
        ATEN + "RNN.h",
        lambda: nn.LSTM(8, 5)(on("cuda", 2, 3, 8)),
    ),
    fact(
        "x.numpy()",
        "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.",
        "PyTorch, torch/csrc/utils/tensor_numpy.cpp",
        lambda: on("cuda").numpy(),
    ),
    fact(
        "x.pin_memory()",
        "cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned",
        ATEN + "Memory.cpp",
        lambda: on("cuda").pin_memory(),
    ),
    fact(
        "a layer of halves, given floats",
        "mat1 and mat2 must have the same dtype, but got Float and Half",
        ATEN + "cuda/Blas.cpp",
        lambda: nn.Linear(2, 2).cuda().half()(on("cuda")),
    ),
    fact(
        'device="cuda:9"',
        "CUDA error: invalid device ordinal",
        "CUDA's runtime, cudaErrorInvalidDevice",
        lambda: on("cuda:9"),
    ),
    fact(
        "an index out of range",
        "CUDA error: device-side assert triggered",
        "CUDA's runtime, cudaErrorAssert",
        assert_triggered,
    ),
    Fact(
        "… and what the kernel printed",
        "a100",
        "indexSelectSmallIndex: block: [0,0,0], thread: [0,0,0] Assertion `srcIndex < srcSelectDimSize` failed.",
        "https://github.com/lishaofeng/NLP_Backdoor/issues/4",
        index_out_of_range,
    ),
    Fact(
        "8 TiB",
        "a100",
        "CUDA out of memory. Tried to allocate …. GPU 0 has a total capacity of … of which … is free. "
        "Including non-PyTorch memory, this process has … memory in use. Of the allocated memory … is allocated by "
        "PyTorch, and … is reserved by PyTorch but unallocated.",
        "https://github.com/murong-xu/CADS/issues/4",
        out_of_memory,
    ),
    Fact(
        "a broadcast that only rank 1 calls",
        "a100",
        "[Rank …] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=…, OpType=BROADCAST, NumelIn=…, NumelOut=…, Timeout(ms)=…) ran for … milliseconds before "
        "timing out.",
        "https://github.com/NVIDIA/nccl/issues/1409",
        partial(ranks, only_rank_1, "Watchdog"),
    ),
    Fact(
        "two ranks on one card",
        "a100",
        "Duplicate GPU detected : rank … and rank … both on CUDA device …",
        "https://github.com/verl-project/verl/issues/161",
        partial(ranks, one_card, "Duplicate"),
    ),
]
