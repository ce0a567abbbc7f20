"""The pydantic models that a GPU's, a node's or a host's YAML file must fit.

The figures are in ``profiles/gpus``, ``profiles/nodes`` and ``profiles/hosts``;
`fakegpu_lab.hardware.catalogue.lookup` finds and reads them. In YAML, sizes have a unit (``memory: 80 GiB``); in
Python, every number is in base units: bytes, bytes per second, FLOP/s.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from fakegpu_lab.hardware.catalogue.sizes import format_size, parse_size
from fakegpu_lab.hardware.errors import FakeGpuError

_SCALE = {"": 1.0, "G": 1e9, "T": 1e12, "P": 1e15}
_FLOPS = re.compile(r"(\d+(?:\.\d+)?) ?([GTP])(?:FL)?OP/s", re.ASCII)


def _rate(value: object) -> object:
    if isinstance(value, str):
        if not value.endswith("/s"):
            raise FakeGpuError(f"{value!r} is not a rate in bytes per second: write it as 900 GB/s")
        return parse_size(value[:-2])
    return value


def _flops(value: object) -> object:
    if isinstance(value, str):
        match = _FLOPS.fullmatch(value.strip())
        if match is None:
            raise FakeGpuError(
                f"{value!r} is not a rate of arithmetic: write it as 312 TFLOP/s, or 624 TOP/s for integers"
            )
        return float(match[1]) * _SCALE[match[2]]
    return value


def _capability(value: object) -> object:
    if isinstance(value, (str, float)):
        match = re.fullmatch(r"(\d{1,2})\.(\d)", str(value))
        if match is None:
            raise FakeGpuError(f'{value!r} is not a compute capability: write it as "8.0", in quotes')
        return int(match[1]), int(match[2])
    return value


def _size(value: object) -> object:
    return parse_size(value) if isinstance(value, (str, int)) else value


Bytes = Annotated[int, BeforeValidator(_size)]
BytesPerSecond = Annotated[int, Field(ge=10**6), BeforeValidator(_rate)]
Flops = Annotated[float, Field(ge=1e6), BeforeValidator(_flops)]
Capability = Annotated[tuple[int, int], BeforeValidator(_capability)]
Status = Literal["measured", "reference", "derived", "synthetic", "estimated"]
Dtype = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8", "int4"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False)


class PeakFlops(_Model):
    """Peak arithmetic by number format, FLOP/s (OP/s for integers); None if the card has no such unit.

    fp64 and fp32 are for the CUDA cores, the others for the tensor cores if there are any. fp16, bf16 and fp8 are with
    fp32 accumulation, as PyTorch multiplies matrices: half of the marketed figure on GeForce cards.
    """

    fp64: Flops | None = Field(default=None, examples=["9.7 TFLOP/s"])
    fp64_tensor: Flops | None = Field(default=None, examples=["19.5 TFLOP/s"])
    fp32: Flops | None = Field(default=None, examples=["19.5 TFLOP/s"])
    tf32: Flops | None = Field(default=None, examples=["156 TFLOP/s"])
    fp16: Flops | None = Field(default=None, examples=["312 TFLOP/s"])
    bf16: Flops | None = Field(default=None, examples=["312 TFLOP/s"])
    fp8: Flops | None = Field(default=None, examples=["1979 TFLOP/s"])
    fp4: Flops | None = Field(default=None, examples=["9000 TFLOP/s"])
    int8: Flops | None = Field(default=None, examples=["624 TOP/s"])

    def given(self) -> dict[str, float]:
        """Return the figures by format, without those that are None."""
        return {name: value for name, value in self if value is not None}


class Pcie(_Model):
    """The slot: PCI Express generation and lanes."""

    generation: int = Field(ge=1, le=7, examples=[4])
    lanes: Literal[1, 2, 4, 8, 16] = Field(examples=[16])

    @property
    def bandwidth(self) -> float:
        """Bytes per second one way on the wire, before protocol overhead."""
        per_lane = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9, 7: 15.125e9}
        return per_lane[self.generation] * self.lanes


class Nvlink(_Model):
    """A GPU's NVLink ports."""

    generation: int = Field(ge=1, le=6, examples=[3])
    links: int = Field(ge=1, examples=[12])
    bandwidth: BytesPerSecond = Field(
        description="bytes/s of all links, both directions together", examples=["600 GB/s"]
    )
    bridge: bool = Field(default=False, description="a bridge joins two cards; else the board joins all of them")


class GpuProfile(_Model):
    """A kind of GPU. The YAML key is the field's name, or its alias if it has one.

    If no source was found for a figure, ``estimated`` names its key, and these rules apply. ``total_memory``: the value
    that cards of that size and ECC setting are known to report, else 98% of the label. ``context``: 2 KiB for
    each thread that can be resident, because a context keeps local memory for all of them; at least 60 MiB. Seven
    published contexts, from a V100 to an RTX 5090, are within 5% of that (tests/fidelity). The limits of an SM (shared
    memory, threads, blocks) are those of its compute capability in the CUDA C++ Programming Guide.
    """

    id: str = Field(description="the name in the catalog: the file's name without .yaml")
    name: str = Field(description="torch.cuda.get_device_name, word for word", examples=["NVIDIA A100-SXM4-80GB"])
    aliases: tuple[str, ...] = Field(default=(), description="other names people write", examples=[["a100-80gb"]])
    architecture: str = Field(examples=["ampere"])
    segment: Literal["consumer", "laptop", "workstation", "datacenter", "embedded"] = Field(examples=["datacenter"])
    compute_capability: Capability = Field(examples=['"8.0"'])
    pci_device_id: int = Field(default=0, ge=0, description="PCI device ID; 0 where unknown", examples=["0x20b2"])
    status: Status = Field(examples=["reference"])

    memory_bytes: Bytes = Field(
        ge=2**20, validation_alias="memory", description="bytes on the label", examples=["80 GiB"]
    )
    total_memory_bytes: Bytes = Field(
        validation_alias="total_memory",
        description="bytes cudaGetDeviceProperties reports: what is left of memory after ECC and the driver",
        examples=["79.25 GiB"],
    )
    memory_bandwidth: BytesPerSecond = Field(description="bytes/s", examples=["2039 GB/s"])
    memory_bus_bits: PositiveInt = Field(description="bits", examples=[5120])
    memory_clock_mhz: PositiveFloat = Field(description="MHz", examples=[1593])
    memory_pumps: PositiveInt = Field(
        default=2, description="transfers a clock: bandwidth = bus/8 x clock x pumps", examples=[2]
    )
    ecc: bool = Field(default=False, description="error correction is on")
    l2_bytes: Bytes = Field(validation_alias="l2", description="bytes of L2 cache", examples=["40 MiB"])
    context_bytes: Bytes = Field(
        validation_alias="context",
        description="bytes a CUDA context holds outside PyTorch's allocator",
        examples=["432 MiB"],
    )

    sm_count: PositiveInt = Field(description="streaming multiprocessors", examples=[108])
    core_clock_mhz: PositiveFloat = Field(description="boost clock, MHz", examples=[1410])
    power_limit_w: PositiveFloat = Field(description="TDP, watts", examples=[400])
    shared_mem_per_sm: Bytes = Field(description="bytes", examples=["164 KiB"])
    shared_mem_per_block: Bytes = Field(description="bytes", examples=["48 KiB"])
    shared_mem_per_block_optin: Bytes = Field(description="bytes", examples=["163 KiB"])
    regs_per_sm: PositiveInt = Field(default=65536, description="32-bit registers", examples=[65536])
    max_threads_per_sm: PositiveInt = Field(examples=[2048])
    max_blocks_per_sm: PositiveInt = Field(examples=[32])
    warp_size: PositiveInt = Field(default=32, examples=[32])

    dtypes: tuple[Dtype, ...] = Field(description="formats with hardware arithmetic", examples=[["fp32", "fp16"]])
    peak_flops: PeakFlops = Field(description="dense", examples=["{fp32: 19.5 TFLOP/s}"])
    sparse_flops: PeakFlops = Field(default=PeakFlops(), description="with 2:4 sparsity, as marketed")
    pcie: Pcie = Field(examples=["{generation: 4, lanes: 16}"])
    nvlink: Nvlink | None = Field(default=None, examples=["{generation: 3, links: 12, bandwidth: 600 GB/s}"])

    estimated: tuple[str, ...] = Field(
        default=(), description="YAML keys whose figure is derived by a rule, not sourced"
    )
    source: tuple[str, ...] = Field(min_length=1, examples=[["https://www.nvidia.com/en-us/data-center/a100/"]])

    @model_validator(mode="after")
    def _memory_fits(self) -> GpuProfile:
        if self.total_memory_bytes > self.memory_bytes:
            raise FakeGpuError(
                f"total_memory ({format_size(self.total_memory_bytes)}) is more than memory "
                f"({format_size(self.memory_bytes)}): lower total_memory, or leave it out"
            )
        if "fp32" not in self.peak_flops.given():
            raise FakeGpuError("peak_flops has no fp32 figure: add `fp32: 19.5 TFLOP/s`")
        return self

    def peak(self, dtype: str) -> float:
        """The dense peak of a format, FLOP/s.

        A format without hardware units is computed in fp32, as cuBLAS does for bf16 on a T4.

        Parameters
        ----------
        dtype
            A name such as ``"fp16"``; an unknown one counts as fp32.
        """
        given = self.peak_flops.given()
        return given.get(dtype, given["fp32"])

    def with_memory(self, total_memory_bytes: int) -> GpuProfile:
        """Return this card with another size of memory, in bytes, for CUDA to report."""
        return self.model_copy(update={"total_memory_bytes": total_memory_bytes})


class NodeGpus(_Model):
    """A number of GPUs of one kind in a node."""

    gpu: str = Field(description="an id of the catalog, or a path", examples=["a100"])
    count: int = Field(default=1, ge=1, le=16, examples=[8])


class Fabric(_Model):
    """The links between a node's GPUs."""

    kind: Literal["nvswitch", "nvlink-mesh", "pcie"] = Field(examples=["nvswitch"])
    bandwidth: BytesPerSecond = Field(
        description="bytes/s a GPU has to all its peers, both directions together", examples=["600 GB/s"]
    )
    in_network_reduction: bool = Field(default=False, description="NVLink SHARP: the switches add (Hopper and later)")
    latency_factor: PositiveFloat | None = Field(
        default=None, description="how much longer collectives' latencies are than NCCL's tables say", examples=[1.3]
    )


class NodePcie(Pcie):
    """A node's PCI Express tree."""

    gpus_per_switch: PositiveInt = Field(default=1, description="GPUs that share one uplink to the CPU", examples=[2])
    peer_to_peer: bool = Field(default=True, description="GPUs may copy to each other without host memory")


class Nics(_Model):
    """Network cards for GPU traffic between nodes."""

    name: str = Field(examples=["ConnectX-7, 400 Gb/s"])
    count: PositiveInt = Field(examples=[8])
    bandwidth: BytesPerSecond = Field(description="bytes/s of one card, one way", examples=["50 GB/s"])


class Host(_Model):
    """The CPU side."""

    cpu: str = Field(examples=["AMD EPYC 7742"])
    sockets: PositiveInt = Field(examples=[2])
    cores: PositiveInt = Field(description="physical cores of all sockets", examples=[128])
    memory_bytes: Bytes = Field(validation_alias="memory", description="bytes", examples=["2 TiB"])
    profile: str = Field(
        default="", description="how fast it is: an id of profiles/hosts; else that of its GPUs", examples=["dgx-a100"]
    )


class Usual(_Model):
    """Cards that are usually rented or sold with a host."""

    segments: tuple[Literal["consumer", "laptop", "workstation", "datacenter", "embedded"], ...] = Field(
        examples=[["datacenter"]]
    )
    architectures: tuple[str, ...] = Field(examples=[["ampere"]])


class HostProfile(_Model):
    """How long a kind of host takes for PyTorch's own work.

    `hardware.time.host_costs` has the times of ops on a host whose factor is 1.
    """

    id: str
    name: str = Field(examples=["DGX A100"])
    aliases: tuple[str, ...] = Field(default=(), examples=[["epyc-7742"]])
    cpu: str = Field(examples=["AMD EPYC 7742"])
    factor: NonNegativeFloat = Field(
        description="how many times as long Python and PyTorch take as on the reference host", examples=[1.2]
    )
    launch_us: PositiveFloat = Field(description="microseconds that a kernel launch takes", examples=[5])
    single_thread: PositiveFloat | None = Field(
        default=None, description="PassMark's rating of one thread of the processor", examples=[2145]
    )
    usual_for: tuple[Usual, ...] = Field(
        default=(), description="the cards that have this host if nothing else is said"
    )
    status: Status = Field(examples=["estimated"])
    source: tuple[str, ...] = Field(min_length=1, examples=[["https://www.nvidia.com/en-us/data-center/dgx-a100/"]])

    def ns(self, reference_ns: float) -> int:
        """What takes `reference_ns` nanoseconds on the reference host."""
        return round(reference_ns * self.factor)


class NodeProfile(_Model):
    """A machine: its GPUs, the links between them, and its host."""

    id: str
    name: str = Field(examples=["NVIDIA DGX A100"])
    aliases: tuple[str, ...] = Field(default=(), examples=[["dgxa100"]])
    gpus: tuple[NodeGpus, ...] = Field(min_length=1, examples=[[{"gpu": "a100", "count": 8}]])
    fabric: Fabric = Field(examples=["{kind: pcie, bandwidth: 64 GB/s}"])
    pcie: NodePcie = Field(examples=["{generation: 4, lanes: 16}"])
    nics: Nics | None = Field(default=None, examples=["{name: ConnectX-7, count: 8, bandwidth: 50 GB/s}"])
    host: Host = Field(examples=["{cpu: AMD EPYC 7742, sockets: 2, cores: 128, memory: 1 TiB}"])
    status: Status = Field(examples=["reference"])
    source: tuple[str, ...] = Field(min_length=1, examples=[["https://www.nvidia.com/en-us/data-center/dgx-a100/"]])

    @property
    def gpu_count(self) -> int:
        """The number of GPUs in the node."""
        return sum(group.count for group in self.gpus)
