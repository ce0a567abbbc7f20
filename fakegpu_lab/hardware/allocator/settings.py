"""Settings of the caching allocator, and the parser of ``PYTORCH_CUDA_ALLOC_CONF`` / ``PYTORCH_ALLOC_CONF``.

>>> AllocatorSettings.parse("max_split_size_mb:128,expandable_segments:True").max_split_bytes
134217728

Grammar, defaults and error texts: c10/core/AllocatorConfig.cpp (keys common to all accelerators) and
c10/cuda/CUDAAllocatorConfig.cpp (keys of CUDA). As there, every parse starts from the defaults, and a bad value or an
unknown key is a ValueError.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

KIB = 1024
MIB = 1024 * KIB

MIN_BLOCK_BYTES = 512
"""Every request is rounded up to a multiple of this (kMinBlockSize)."""
SMALL_LIMIT_BYTES = MIB
"""The largest request served from the small pool (kSmallSize)."""
SMALL_SEGMENT_BYTES = 2 * MIB
"""A segment of the small pool (kSmallBuffer)."""
LARGE_SEGMENT_BYTES = 20 * MIB
"""A segment for a request over 1 MiB and under 10 MiB (kLargeBuffer, large_segment_size)."""
MIN_LARGE_BYTES = 10 * MIB
"""From here on, a request gets a segment of its own size (kMinLargeAlloc) ..."""
LARGE_ROUND_BYTES = 2 * MIB
"""... rounded up to a multiple of this (kRoundLarge)."""

UNLIMITED = 2**64 - 1
"""std::numeric_limits<size_t>::max(), the default max_split_size."""

_ROUNDUP_INTERVALS = 16  # 1 MiB to 64 GiB, one for each power of two (kRoundUpPowerOfTwoIntervals)
_NO_ROUNDUP = (0,) * _ROUNDUP_INTERVALS

# Keys that are accepted, but change nothing in a simulated device: pinned host memory, locking, graph capture.
_ACCEPTED_BOOL = frozenset(
    {
        "graph_capture_record_stream_reuse",
        "pinned_free_catch_all",
        "pinned_use_background_threads",
        "pinned_use_cuda_host_register",
        "pinned_use_hip_host_register",
        "release_lock_on_cudamalloc",
        "release_lock_on_hipmalloc",
    }
)
_ACCEPTED_INT = frozenset(
    {
        "pinned_max_cached_size_mb",
        "pinned_max_round_threshold_mb",
        "pinned_num_register_threads",
        "pinned_reserve_segment_size_mb",
    }
)


@dataclass(frozen=True)
class AllocatorSettings:
    """The allocator's settings; the defaults are PyTorch's."""

    max_split_bytes: int = UNLIMITED
    """Blocks of at least this size are never split."""
    max_non_split_rounding_bytes: int = LARGE_SEGMENT_BYTES
    """A request of max_split_bytes or more takes a block at most this much larger."""
    large_segment_bytes: int = LARGE_SEGMENT_BYTES
    roundup_power2_divisions: tuple[int, ...] = _NO_ROUNDUP
    """Divisions for requests of 1 MiB, 2 MiB, … 32 GiB and more; 0 and 1 mean none."""
    garbage_collection_threshold: float = 0.0
    expandable_segments: bool = False
    per_process_memory_fraction: float = 1.0
    throw_on_cudamalloc_oom: bool = False
    backend: str = "native"
    text: str = ""
    """The string these settings were parsed from (``last_allocator_settings``)."""
    flags: Mapping[str, bool | int] = field(default_factory=dict)
    """Known keys that do not change the simulation, kept for the snapshot's ``allocator_settings``."""

    @classmethod
    def parse(cls, text: str) -> AllocatorSettings:
        """The settings that ``PYTORCH_CUDA_ALLOC_CONF=text`` gives."""
        return _Parser(text).settings()

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> AllocatorSettings:
        """PYTORCH_CUDA_ALLOC_CONF, else PYTORCH_ALLOC_CONF, else the defaults.

        That order is CUDAAllocatorConfig::instance()'s (c10/cuda/CUDAAllocatorConfig.h).
        """
        for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
            if name in environ:
                return cls.parse(environ[name])
        return cls()

    def round_size(self, nbytes: int) -> int:
        """The size of the block for a request of ``nbytes`` (round_size in CUDACachingAllocator.cpp)."""
        if nbytes < MIN_BLOCK_BYTES:
            return MIN_BLOCK_BYTES
        index = min(max(nbytes.bit_length() - 1 - 20, 0), _ROUNDUP_INTERVALS - 1)
        divisions = self.roundup_power2_divisions[index]
        if divisions > 1 and nbytes > MIN_BLOCK_BYTES * divisions:
            return _round_up_to_division(nbytes, divisions)
        return (nbytes + MIN_BLOCK_BYTES - 1) & -MIN_BLOCK_BYTES

    def segment_size(self, size: int) -> int:
        """The size of the segment for a block of ``size`` (get_allocation_size)."""
        if size <= SMALL_LIMIT_BYTES:
            return SMALL_SEGMENT_BYTES
        if size < MIN_LARGE_BYTES:
            return self.large_segment_bytes
        return (size + LARGE_ROUND_BYTES - 1) // LARGE_ROUND_BYTES * LARGE_ROUND_BYTES

    def as_snapshot(self) -> dict[str, object]:
        """The ``allocator_settings`` of a memory snapshot (torch/csrc/cuda/memory_snapshot.cpp)."""
        divisions = {str(2**i): n for i, n in enumerate(self.roundup_power2_divisions)}
        return {
            "PYTORCH_CUDA_ALLOC_CONF": self.text,
            "max_split_size": -1 if self.max_split_bytes == UNLIMITED else self.max_split_bytes,
            "garbage_collection_threshold": self.garbage_collection_threshold,
            "expandable_segments": self.expandable_segments,
            "pinned_num_register_threads": self.flags.get("pinned_num_register_threads", 1),
            "release_lock_on_cudamalloc": self.flags.get("release_lock_on_cudamalloc", False),
            "pinned_use_cuda_host_register": self.flags.get("pinned_use_cuda_host_register", False),
            "graph_capture_record_stream_reuse": self.flags.get("graph_capture_record_stream_reuse", False),
            "roundup_power2_divisions": divisions,
        }


def _round_up_to_division(size: int, divisions: int) -> int:
    """roundup_power2_next_division: with 4 divisions 1200 lies in 1024, 1280, 1536, 1792, so 1280."""
    floor = 1 << (size.bit_length() - 1)
    if size == floor:
        return size
    step = floor >> (divisions.bit_length() - 1)
    return (size + step - 1) & -step if step else floor << 1


class _Parser:
    """Reads key:value pairs separated by commas; a value may be a list in brackets (ConfigTokenizer)."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = re.findall(r"[,:\[\]]|[^,:\[\]]+", re.sub(r"\s", "", text))
        self._at = 0

    def settings(self) -> AllocatorSettings:
        # large_segment_size_mb is read first, wherever it stands: the smallest max_split_size depends on it
        # (AcceleratorAllocatorConfig::parseArgs).
        large = LARGE_SEGMENT_BYTES
        while self._at < len(self._tokens):
            if self._take() == "large_segment_size_mb":
                self._expect(":")
                large = self._large_segment()
        self._at = 0
        settings = AllocatorSettings(large_segment_bytes=large, max_non_split_rounding_bytes=large, text=self._text)
        flags: dict[str, bool | int] = {}
        while self._at < len(self._tokens):
            key = self._take()
            if key in _ACCEPTED_BOOL:
                self._expect(":")
                flags[key] = self._bool()
            elif key in _ACCEPTED_INT:
                self._expect(":")
                flags[key] = self._int()
            elif key in _READERS:
                self._expect(":")
                settings = _READERS[key](self, settings)
            else:
                raise ValueError(f"Unrecognized key '{key}' in CUDA allocator config.")
            if self._at < len(self._tokens):
                self._expect(",")
        return replace(settings, flags=flags)

    def _take(self) -> str:
        if self._at >= len(self._tokens):
            raise ValueError(f"Allocator settings {self._text!r} end where a value is expected.")
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, token: str) -> None:
        got = self._take()
        if got != token:
            raise ValueError(f"Expected '{token}' but got '{got}' in the allocator settings {self._text!r}.")

    def _int(self) -> int:
        token = self._take()
        digits = re.match(r"\d+", token)  # std::stoull: leading digits count, what follows is ignored
        if not digits:
            raise ValueError(f"Expected a whole number in the allocator settings but got '{token}'.")
        return int(digits.group())

    def _float(self) -> float:
        token = self._take()
        try:
            return float(token)
        except ValueError:
            raise ValueError(f"Expected a number in the allocator settings but got '{token}'.") from None

    def _bool(self) -> bool:
        token = self._take()
        if token not in ("True", "False"):
            raise ValueError(f"Expected 'True' or 'False' at index {self._at - 1} in ConfigTokenizer but got '{token}'")
        return token == "True"

    def _large_segment(self) -> int:
        value = self._int()
        if value * MIB <= MIN_LARGE_BYTES:
            raise ValueError("CachingAllocator option large_segment_size_mb must be > 10 MB")
        return value * MIB

    def _at_least_a_large_segment(self, key: str, settings: AllocatorSettings) -> int:
        minimum_mib = settings.large_segment_bytes // MIB
        value = self._int()
        if value < minimum_mib:
            raise ValueError(f"CachingAllocator option {key} too small, must be >= {minimum_mib}")
        return min(value * MIB, UNLIMITED // MIB * MIB)

    def _skip_large_segment(self, settings: AllocatorSettings) -> AllocatorSettings:
        self._take()  # already read
        return settings

    def _max_split(self, settings: AllocatorSettings) -> AllocatorSettings:
        return replace(settings, max_split_bytes=self._at_least_a_large_segment("max_split_size_mb", settings))

    def _max_rounding(self, settings: AllocatorSettings) -> AllocatorSettings:
        value = self._at_least_a_large_segment("max_non_split_rounding_mb", settings)
        return replace(settings, max_non_split_rounding_bytes=value)

    def _gc_threshold(self, settings: AllocatorSettings) -> AllocatorSettings:
        value = self._float()
        if not 0.0 < value < 1.0:
            raise ValueError("garbage_collect_threshold is invalid, set it in (0.0, 1.0)")
        return replace(settings, garbage_collection_threshold=value)

    def _expandable(self, settings: AllocatorSettings) -> AllocatorSettings:
        return replace(settings, expandable_segments=self._bool())

    def _fraction(self, settings: AllocatorSettings) -> AllocatorSettings:
        value = self._float()
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"per_process_memory_fraction is invalid, set it in [0.0, 1.0], got {value}")
        return replace(settings, per_process_memory_fraction=value)

    def _throw_on_oom(self, settings: AllocatorSettings) -> AllocatorSettings:
        return replace(settings, throw_on_cudamalloc_oom=self._bool())

    def _backend(self, settings: AllocatorSettings) -> AllocatorSettings:
        value = self._take()
        if value not in ("native", "cudaMallocAsync"):
            raise ValueError("Unknown allocator backend, options are native and cudaMallocAsync")
        return replace(settings, backend=value)

    def _roundup(self, settings: AllocatorSettings) -> AllocatorSettings:
        if self._at < len(self._tokens) and self._tokens[self._at] == "[":
            self._take()
            divisions = self._roundup_list()
        else:  # one number for all intervals
            divisions = (self._power_of_two("For roundups, the divisions has to be power of 2 "),) * 16
        return replace(settings, roundup_power2_divisions=divisions)

    def _roundup_list(self) -> tuple[int, ...]:
        """``[256:1,512:2,1024:4,>:8]``: intervals in MiB; ``>`` stands for all above the last one named."""
        divisions = list(_NO_ROUNDUP)
        last: int | None = None
        while (bound := self._take()) != "]":
            self._expect(":")
            value = self._power_of_two(
                "For roundups, the divisions has to be power of 2 or 0 to disable roundup ", zero=True
            )
            if bound == ">":
                first = (last or 0) + 1
                divisions[first:] = [value] * (_ROUNDUP_INTERVALS - first)
            else:
                if not bound.isdigit() or not _is_power_of_two(int(bound)):
                    raise ValueError("For roundups, the intervals have to be power of 2 ")
                index = min(int(bound).bit_length() - 1, _ROUNDUP_INTERVALS - 1)
                if last is None:
                    divisions[:index] = [value] * index
                divisions[index] = value
                last = index
            if self._at < len(self._tokens) and self._tokens[self._at] != "]":
                self._expect(",")
        return tuple(divisions)

    def _power_of_two(self, complaint: str, *, zero: bool = False) -> int:
        value = self._int()
        if not (_is_power_of_two(value) or (zero and value == 0)):
            raise ValueError(complaint)
        return value


def _is_power_of_two(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


_READERS: dict[str, Callable[[_Parser, AllocatorSettings], AllocatorSettings]] = {
    "backend": _Parser._backend,
    "expandable_segments": _Parser._expandable,
    "garbage_collection_threshold": _Parser._gc_threshold,
    "large_segment_size_mb": _Parser._skip_large_segment,
    "max_non_split_rounding_mb": _Parser._max_rounding,
    "max_split_size_mb": _Parser._max_split,
    "per_process_memory_fraction": _Parser._fraction,
    "roundup_power2_divisions": _Parser._roundup,
    "throw_on_cudamalloc_oom": _Parser._throw_on_oom,
}
