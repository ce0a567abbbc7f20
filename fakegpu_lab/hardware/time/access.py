"""`Access`: what a launch did to the hardware, for people, checks and pictures to read."""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How full a kernel makes a multiprocessor.

    Attributes
    ----------
    blocks
        Blocks on a multiprocessor at a time; 0 if not even one fits.
    warps, max_warps
        Their warps, and those that the multiprocessor has room for.
    limited_by
        ``"threads"``, ``"blocks"``, ``"registers"`` or ``"shared memory"``.
    limits
        The blocks that each of these would allow.
    """

    blocks: int
    warps: int
    max_warps: int
    limited_by: str
    limits: dict[str, int]

    @property
    def fraction(self) -> float:
        """Warps as a fraction of those possible."""
        return self.warps / self.max_warps


@dataclass(frozen=True, slots=True)
class LaunchTime:
    """How long a launch takes, and why.

    Attributes
    ----------
    ns
        Nanoseconds, with the shortest kernel's time.
    parts
        Nanoseconds that each resource would take by itself: ``"DRAM"``, ``"L2"``, ``"L1 and shared memory"``,
        ``"arithmetic"``, ``"tensor cores"``, ``"atomics"``.
    bound_by
        The one that takes longest; ``"the launch"`` if all are shorter than an empty kernel.
    waves, tail
        Full waves, and the blocks of the last, partial one.
    resident
        Blocks on the card at a time.
    """

    ns: int
    parts: dict[str, float]
    bound_by: str
    waves: int
    tail: int
    resident: int


@dataclass(slots=True)
class LineAccess:
    """All accesses of one kind by one line of a kernel.

    Attributes
    ----------
    line
        File and line number.
    kind, space
        ``"load"``, ``"store"`` or ``"atomic"``; ``"global"`` or ``"shared"``.
    requests
        Instructions of warps.
    nbytes
        Bytes that the lanes requested.
    sectors
        32-byte sectors that the requests touch (global memory).
    wavefronts
        Cycles that the requests take in L1 or shared memory, one after another.
    conflicts
        Additional wavefronts because of bank conflicts (shared memory).
    example
        The addresses of one of the requests, by lane, to draw it; −1 for a lane that is masked off.
    itemsize
        Bytes of a lane in it.
    """

    line: tuple[str, int]
    kind: str
    space: str
    requests: int = 0
    nbytes: int = 0
    sectors: int = 0
    wavefronts: int = 0
    conflicts: int = 0
    example: tuple[int, ...] = field(default=(), repr=False)
    itemsize: int = 0

    @property
    def sectors_per_request(self) -> float:
        """4 if 32 lanes access neighboring 4-byte words; 32 if each is in its own sector."""
        return self.sectors / self.requests if self.requests else 0.0

    @property
    def efficiency(self) -> float:
        """The fraction of the moved bytes that the lanes requested; above 1 where lanes read the same bytes."""
        return self.nbytes / (self.sectors * 32) if self.sectors else 0.0

    @property
    def ways(self) -> float:
        """Wavefronts for each request: in shared memory, 2.0 is a two-way bank conflict of 4-byte words."""
        return self.wavefronts / self.requests if self.requests else 0.0

    def scaled(self, factor: float) -> LineAccess:
        """The same for more blocks."""
        if factor == 1:
            return self
        names = ("requests", "nbytes", "sectors", "wavefronts", "conflicts")
        return replace(self, **{name: round(getattr(self, name) * factor) for name in names})


@dataclass(frozen=True, slots=True)
class Access:
    """What one launch did to the hardware.

    Attributes
    ----------
    lines
        Its accesses by line.
    l2_bytes
        Bytes that moved between L1 and L2: what a block reads again is found in L1.
    dram_read_bytes, dram_written_bytes
        Bytes that moved between L2 and DRAM, if L2 is empty when the kernel starts.
    atomics_on_one_address
        The most atomic operations on one address.
    flops_by_format
        FLOPs by (format, whether tensor cores compute them).
    sampled
        The fraction of the blocks that ran (`sample_programs`); the other figures are for all of them.
    grid, threads, registers, shared_bytes
        Blocks along x, y and z; threads of a block; registers of a thread (None: not counted, so that they limit
        nothing); bytes of shared memory of a block.
    shared_counted
        Whether accesses to shared memory were counted: not in Triton, whose compiler decides on them.
    occupancy, time
        Set once the kernel was launched on a device.
    """

    lines: tuple[LineAccess, ...]
    l2_bytes: int = 0
    dram_read_bytes: int = 0
    dram_written_bytes: int = 0
    atomics_on_one_address: int = 0
    flops_by_format: dict[tuple[str, bool], float] | None = None
    sampled: float = 1.0
    grid: tuple[int, ...] = (1,)
    threads: int = 0
    registers: int | None = None
    shared_bytes: int = 0
    shared_counted: bool = True
    occupancy: Occupancy | None = None
    time: LaunchTime | None = None

    def _sum(self, name: str, space: str, *kinds: str) -> int:
        chosen = (line for line in self.lines if line.space == space and (not kinds or line.kind in kinds))
        return sum(getattr(line, name) for line in chosen)

    @property
    def bytes_loaded(self) -> int:
        """Bytes that lanes requested from global memory."""
        return self._sum("nbytes", "global", "load")

    @property
    def bytes_stored(self) -> int:
        """Bytes that lanes wrote to global memory; an atomic operation counts, too."""
        return self._sum("nbytes", "global", "store", "atomic")

    @property
    def requests(self) -> int:
        """Instructions of warps that access global memory."""
        return self._sum("requests", "global")

    @property
    def sectors(self) -> int:
        """32-byte sectors of global memory that the requests touch."""
        return self._sum("sectors", "global")

    @property
    def sectors_per_request(self) -> float:
        """The average over all requests to global memory."""
        return self.sectors / self.requests if self.requests else 0.0

    @property
    def global_wavefronts(self) -> int:
        """Cycles that the requests to global memory take in L1."""
        return self._sum("wavefronts", "global")

    @property
    def shared_requests(self) -> int:
        """Instructions of warps that access shared memory."""
        return self._sum("requests", "shared")

    @property
    def shared_wavefronts(self) -> int:
        """Cycles that they take."""
        return self._sum("wavefronts", "shared")

    @property
    def bank_conflicts(self) -> int | None:
        """Cycles that they would not take without bank conflicts; None if they are not counted."""
        return self._sum("conflicts", "shared") if self.shared_counted else None

    @property
    def dram_bytes(self) -> int:
        """Bytes that moved between L2 and DRAM."""
        return self.dram_read_bytes + self.dram_written_bytes

    @property
    def flops(self) -> float:
        """Floating-point operations in all formats."""
        return sum((self.flops_by_format or {}).values())

    @property
    def intensity(self) -> float:
        """Arithmetic intensity: FLOPs for each byte of DRAM."""
        return self.flops / self.dram_bytes if self.dram_bytes else 0.0

    def line(self, number: int, kind: str | None = None) -> LineAccess | None:
        """The accesses of a line by its number, if it has any."""
        return next((one for one in self.lines if one.line[1] == number and kind in (None, one.kind)), None)
