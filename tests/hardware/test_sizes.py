"""Sizes: what people write, and what PyTorch prints."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakegpu_lab.hardware.catalogue.sizes import format_size, parse_size
from fakegpu_lab.hardware.errors import FakeGpuError

UNITS = {
    "B": 1,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
}


@given(st.integers(1, 10**6), st.sampled_from(sorted(UNITS)), st.sampled_from(["", " ", "  "]), st.booleans())
def test_a_number_and_its_unit_multiply(number: int, unit: str, gap: str, lower: bool) -> None:
    text = f"{number}{gap}{unit}"
    assert parse_size(text.lower() if lower else text) == number * UNITS[unit]


@given(st.integers(1, 2**60))
def test_plain_bytes_stand_for_themselves(size: int) -> None:
    assert parse_size(size) == parse_size(str(size)) == size


def test_a_fraction_of_a_unit_is_rounded_to_bytes() -> None:
    assert parse_size("1.5GiB") == 3 * 2**29
    assert parse_size("79.25 GiB") == 317 * 2**28


@pytest.mark.parametrize(
    "text",
    ["-4GiB", "0", "0 GiB", 0, -1, "", "GiB", "4 GiBB", "4G", "1e3GiB", "nan", "4,5GiB", True, None, 2.5],
)
def test_nonsense_is_refused_with_an_example(text: object) -> None:
    with pytest.raises(FakeGpuError, match=r"2GiB") as caught:
        parse_size(text)  # type: ignore[arg-type]
    assert repr(text) in str(caught.value)


@given(st.text())
def test_any_text_is_a_size_or_a_clear_refusal(text: str) -> None:
    with contextlib.suppress(FakeGpuError):
        assert parse_size(text) > 0


@pytest.mark.parametrize(
    ("size", "printed"),
    [
        (0, "0 bytes"),
        (512, "512 bytes"),
        (1024, "1024 bytes"),
        (1025, "1.00 KiB"),
        (2**20, "1024.00 KiB"),
        (20 * 2**20, "20.00 MiB"),
        (2**30, "1024.00 MiB"),
        (2**30 + 1, "1.00 GiB"),
        (85094039552, "79.25 GiB"),
    ],
)
def test_sizes_print_as_in_pytorch(size: int, printed: str) -> None:
    assert format_size(size) == printed


@given(st.integers(1, 2**50))
def test_what_is_printed_reads_back_within_its_two_decimals(size: int) -> None:
    assert parse_size(format_size(size)) == pytest.approx(size, rel=0.006)
