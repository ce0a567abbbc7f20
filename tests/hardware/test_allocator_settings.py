"""PYTORCH_CUDA_ALLOC_CONF, compared with c10's own parser where it is at hand."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from fakegpu_lab.hardware.allocator.settings import UNLIMITED, AllocatorSettings

MIB = 2**20


def test_defaults() -> None:
    settings = AllocatorSettings.parse("")
    assert settings == AllocatorSettings()
    assert settings.max_split_bytes == UNLIMITED
    assert settings.large_segment_bytes == settings.max_non_split_rounding_bytes == 20 * MIB


def test_everything_at_once() -> None:
    settings = AllocatorSettings.parse(
        " max_split_size_mb : 128 , garbage_collection_threshold:0.8,expandable_segments:True,"
        "large_segment_size_mb:32,per_process_memory_fraction:0.5,throw_on_cudamalloc_oom:True,backend:native,"
        "max_non_split_rounding_mb:40,pinned_num_register_threads:8,release_lock_on_cudamalloc:True,"
    )
    assert settings.max_split_bytes == 128 * MIB
    assert settings.garbage_collection_threshold == 0.8
    assert settings.expandable_segments
    assert settings.large_segment_bytes == 32 * MIB
    assert settings.max_non_split_rounding_bytes == 40 * MIB
    assert settings.per_process_memory_fraction == 0.5
    assert settings.throw_on_cudamalloc_oom
    shown = settings.as_snapshot()
    assert shown["pinned_num_register_threads"] == 8
    assert shown["release_lock_on_cudamalloc"] is True
    assert shown["max_split_size"] == 128 * MIB


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("max_split_size_mb:19", "CachingAllocator option max_split_size_mb too small, must be >= 20"),
        ("max_split_size_mb:30,large_segment_size_mb:32", "max_split_size_mb too small, must be >= 32"),
        ("max_non_split_rounding_mb:1", "max_non_split_rounding_mb too small, must be >= 20"),
        ("large_segment_size_mb:10", "large_segment_size_mb must be > 10 MB"),
        ("garbage_collection_threshold:1.0", r"garbage_collect_threshold is invalid, set it in \(0.0, 1.0\)"),
        ("roundup_power2_divisions:3", "For roundups, the divisions has to be power of 2 "),
        ("roundup_power2_divisions:[256:3]", "power of 2 or 0 to disable roundup"),
        ("roundup_power2_divisions:[3:4]", "For roundups, the intervals have to be power of 2 "),
        ("roundup_power2_divisions:[256:1", "end where a value is expected"),
        ("expandable_segments:true", "Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'true'"),
        ("max_split_size_mb:many", "whole number"),
        ("max_split_size_mb=30", "Unrecognized key 'max_split_size_mb=30' in CUDA allocator config."),
        ("garbage_collection_threshold:x", "Expected a number"),
        ("foo:1", "Unrecognized key 'foo' in CUDA allocator config."),
        ("expandable_segments", "end where a value is expected"),
        ("expandable_segments:True max_split_size_mb:30", "Expected 'True' or 'False'"),
        ("max_split_size_mb:30:40", "Expected ',' but got ':'"),
        ("backend:jemalloc", "Unknown allocator backend"),
        ("per_process_memory_fraction:2", "per_process_memory_fraction is invalid"),
    ],
)
def test_bad_settings(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        AllocatorSettings.parse(text)


def test_environment() -> None:
    assert AllocatorSettings.from_environ({}) == AllocatorSettings()
    assert AllocatorSettings.from_environ({"PYTORCH_ALLOC_CONF": "expandable_segments:True"}).expandable_segments
    both = {"PYTORCH_ALLOC_CONF": "max_split_size_mb:30", "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:40"}
    assert AllocatorSettings.from_environ(both).max_split_bytes == 40 * MIB


ROUNDUPS = (
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
    "roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:4,>:1]",
    "roundup_power2_divisions:[>:4]",
    "roundup_power2_divisions:[4:2,1:8]",
    "roundup_power2_divisions:[65536:2,>:8]",
)


def test_roundup_intervals() -> None:
    divisions = AllocatorSettings.parse(ROUNDUPS[1]).roundup_power2_divisions
    assert divisions == (1,) * 9 + (2, 4) + (8,) * 5


@pytest.mark.parametrize("text", ROUNDUPS)
def test_roundup_intervals_are_c10s(text: str) -> None:
    """The installed torch's libc10 parses the same text; only a symbol of the C++ library shows the
    result."""
    torch = pytest.importorskip("torch")
    try:
        c10 = ctypes.CDLL(str(next((Path(torch.__file__).parent / "lib").glob("libc10.*"))))
        divisions = c10._ZN3c1016CachingAllocator26AcceleratorAllocatorConfig24roundup_power2_divisionsEm
        parse = torch._C._accelerator_setAllocatorSettings
    except (AttributeError, OSError, StopIteration):
        pytest.skip("this torch does not show its parser")
    divisions.restype, divisions.argtypes = ctypes.c_size_t, [ctypes.c_size_t]
    parse(text)
    try:
        theirs = tuple(divisions(2 ** (20 + i)) for i in range(16))
    finally:
        parse("")
    assert AllocatorSettings.parse(text).roundup_power2_divisions == theirs
