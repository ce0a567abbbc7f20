"""What the first use of a card costs: the CUDA context, and the libraries that a process loads there.

A process's first tensor, product, convolution and collective on a card take the host much longer than the next ones:
run a program once before you time it. They also take device memory that PyTorch's allocator does not count.

Their time goes to `Host.first_uses`: the clocks that a program reads include it. On the machine's own axis, where
kernels and copies are placed and drawn, they take no time: the first picture of a short program would be a gap of half
a second. So a card does not stand still meanwhile, and ranks do not wait for each other's first uses.

The software is today's, which loads a kernel when it is first launched (lazy loading, from CUDA 11.7 on; before that a
context with all kernels of PyTorch took 0.7 to 1.4 GiB more). Simplified: a process loads some 350 kernels for a GPT
(github.com/lupinemachines/lupine/pull/489), each at its first launch; here they are loaded with their library, those
of PyTorch with cuBLAS's. Published times differ by a factor of two to three between machines, those of NCCL by more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fakegpu_lab.hardware.time.clock import here

if TYPE_CHECKING:
    from fakegpu_lab.hardware.allocator.device_memory import DeviceMemory
    from fakegpu_lab.hardware.time.concurrent_kernels import Timeline

CONTEXT_NS = 300_000_000
"""The driver's start, 0.08 s with one visible GPU (github.com/rapidsai/cudf/issues/627), and a context, 0.22 s
(0.23 s on a V100: github.com/Xpra-org/xpra/issues/2415)."""

NEW_CONVOLUTION_NS = 1_268_000
"""What cuDNN takes to choose an algorithm for a convolution that is new to it: the mean of 1,741
(github.com/pytorch/pytorch/pull/187212)."""

COMMUNICATOR_NS = 150_000_000
"""For each rank, up to eight, what NCCL takes to connect a group, after its kernels are loaded. With `NCCL`, 2, 4, 8
and 16 ranks take 0.5, 0.8, 1.4 and 1.4 s. In 30 logs (the lines "Init timings", such as in
github.com/NVIDIA/nccl/issues/1412 and 2094) the medians are 0.4, 1.2, 1.5 and 1.6 s."""

CHANNEL_BYTES = 24 * 2**20
"""What a channel of NCCL's takes for a ring and a tree: for each, a buffer of 10 MiB to receive and one of 2 MiB to
send (github.com/NVIDIA/nccl/issues/1685). On A100s with NVLink, groups took 544 and 688 MiB (nccl/issues/964), and 24
channels take 576 here. A communicator of two ranks that only send and receive takes half. Simplified: batched sends,
all-to-all, NVLS and the network take no more."""


class Library(NamedTuple):
    """A library that is loaded at its first use.

    Attributes
    ----------
    ns, nbytes
        The host's time, and the device's memory.
    failure
        What PyTorch's error says if that memory is not free.
    """

    name: str
    ns: int
    nbytes: int
    failure: str


CUBLAS = Library(
    "cuBLAS", 60_000_000, 10 * 2**20, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
)
"""A small BERT's first forward pass takes 65 ms, and the next ones 6; memory grows by 10.5 MB (Hugging Face's dataset
optimum-benchmark/cuda). The handle itself takes 3 ms (github.com/Cytnx-dev/Cytnx/issues/1144). Its workspace is
PyTorch's."""

CUDNN = Library("cuDNN", 100_000_000, 12 * 2**20, "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED")
"""The first call of a network with convolutions takes 20 to 70 ms longer with cuDNN 9.8 (github.com/NVIDIA/
cudnn-frontend/issues/1066), and took 1 to 2 s longer with cuDNN 8 (pytorch/issues/51044): an estimate in between, at
the lower end. ResNet-50 ends with 12.6 MB more than BERT starts with (optimum-benchmark/cuda)."""

NCCL = Library(
    "NCCL", 210_000_000, 50 * 2**20,
    "NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)\nncclUnhandledCudaError: Call to CUDA "
    "function failed.\nLast error:\nCuda failure 2 'out of memory'",
)  # fmt: skip
"""Its kernels: the median of 32 logs; 50 MiB stay when a communicator is gone (github.com/NVIDIA/nccl/issues/604)."""


class FirstUses:
    """What a process has used on one card.

    Parameters
    ----------
    memory
        The card's, of which libraries take a part.
    timeline
        Knows the recorder.
    """

    __slots__ = ("_libraries", "_memory", "_started", "_timeline")

    def __init__(self, memory: DeviceMemory, timeline: Timeline) -> None:
        self._started = False
        self._memory = memory
        self._timeline = timeline
        self._libraries: set[str] = set()

    def context(self) -> None:
        """Create the CUDA context, unless there is one. Its memory counts from the beginning (`GpuProfile`)."""
        if not self._started:
            self._started = True
            self.spend(CONTEXT_NS, "the CUDA context")

    def library(self, library: Library) -> None:
        """Load a library, unless it is loaded.

        Raises
        ------
        RuntimeError
            The card has no memory for it.
        """
        if library.name not in self._libraries:
            self._take(library.nbytes, library.failure)
            self._libraries.add(library.name)
            self.spend(library.ns, library.name)

    def communicator(self, ranks: int, nbytes: int) -> int:
        """Connect a group of NCCL's ranks, and return the bytes of its buffers; giving them back is the caller's.

        Raises
        ------
        RuntimeError
            The card has no memory for its buffers.
        """
        self.library(NCCL)
        self._take(nbytes, NCCL.failure)
        self.spend(COMMUNICATOR_NS * min(ranks, 8), f"NCCL between {ranks} ranks")
        return nbytes

    def spend(self, ns: int, what: str) -> None:
        """Let the calling host thread spend time on a first use."""
        host = here.host
        host.first_uses += ns
        recorder = self._timeline.recorder
        if recorder is not None:
            recorder.used_first(host, what, ns)

    def _take(self, nbytes: int, failure: str) -> None:
        if nbytes > self._memory.free_bytes:
            raise RuntimeError(failure)
        self._memory.context_bytes += nbytes
