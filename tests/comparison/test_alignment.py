"""Which kernels of one recording are which of another."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakegpu_lab.comparison import alignment
from fakegpu_lab.comparison.alignment import Match, aligned, lcs, normalized
from fakegpu_lab.comparison.steps import period, steps
from tests.comparison.conftest import kernel, sequence

if TYPE_CHECKING:
    from fakegpu_lab.hardware.time.records import Kernel

letters = st.text("abcd", max_size=14)


def longest(first: str, second: str) -> int:
    """The length of a longest common subsequence, by the textbook's table."""
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i, k in itertools.product(range(len(first)), range(len(second))):
        table[i + 1][k + 1] = table[i][k] + 1 if first[i] == second[k] else max(table[i][k + 1], table[i + 1][k])
    return table[-1][-1]


@given(letters, letters)
def test_a_longest_common_subsequence_is_common_ordered_and_longest(first: str, second: str) -> None:
    pairs = lcs(first, second)
    assert all(first[i] == second[k] for i, k in pairs)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(pairs))
    assert len(pairs) == longest(first, second)


@given(letters, letters)
def test_what_is_too_long_for_the_table_is_still_common_and_ordered(first: str, second: str) -> None:
    pairs = alignment._numbered(first, second)
    assert all(first[i] == second[k] for i, k in pairs)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(pairs))


@given(st.text("abm", max_size=12), st.text("abmx", max_size=12))
def test_every_kernel_is_in_exactly_one_match_in_order(first: str, second: str) -> None:
    names = {"a": "add", "b": "gelu", "m": "mm", "x": "softmax"}
    old, new = ([kernel(f"aten::{names[letter]}") for letter in text] for text in (first, second))
    found = aligned(old, new)
    assert [place for match in found for place in match.before] == list(range(len(old)))
    assert [place for match in found for place in match.after] == list(range(len(new)))
    assert all(match.before or match.after for match in found)
    assert aligned(old, new) == found


@given(st.text("abm", max_size=12))
def test_a_recording_is_like_itself(text: str) -> None:
    one = sequence(text)
    assert aligned(one, one) == [Match((place,), (place,)) for place in range(len(text))]


def ops(*names: str, **more: str) -> list[Kernel]:
    return [kernel(f"aten::{name}", **more) for name in names]


def test_kernels_are_the_same_if_module_op_and_phase_are() -> None:
    old = [kernel("aten::linear", module="Net.0"), kernel("aten::linear", module="Net.1")]
    new = [kernel("aten::linear", module="DistributedDataParallel.module.1")]
    assert aligned(old, new) == [Match((0,), ()), Match((1,), (0,))]


def test_if_only_one_recording_knows_modules_they_do_not_count() -> None:
    old = [kernel("aten::linear", module="Net.0"), kernel("aten::relu", module="Net.1")]
    new = ops("addmm", "clamp_min")
    assert aligned(old, new) == [Match((0,), (0,)), Match((1,), (1,))]


def test_a_card_s_own_names_are_matched_by_kind() -> None:
    real = [kernel("ampere_sgemm_128x64_nn"), kernel("void at::native::vectorized_elementwise_kernel<4, Add>(int)")]
    other = [
        kernel("volta_sgemm_64x32_sliced1x4_tn"),
        kernel("void at::native::vectorized_elementwise_kernel<2, Add>(char)"),
    ]
    assert aligned(real, other) == [Match((0,), (0,)), Match((1,), (1,))]
    assert normalized(real[0].name) == normalized(other[0].name) == "sgemm"


def test_three_elementwise_kernels_that_became_one_are_a_fusion() -> None:
    old = ops("mm", "add", "gelu", "mul", "mm")
    new = [*ops("mm"), kernel("triton_poi_fused_add_gelu_mul_0"), *ops("mm")]
    assert aligned(old, new) == [Match((0,), (0,)), Match((1, 2, 3), (1,)), Match((4,), (2,))]
    assert aligned(new, old)[1] == Match((1,), (1, 2, 3))  # and the other way around, it was split


def test_two_fusions_next_to_each_other_are_cut_where_their_names_say() -> None:
    old = ops("add", "gelu", "sum", "div")
    new = [kernel("triton_poi_fused_add_gelu_0"), kernel("triton_red_fused_sum_div_1")]
    assert aligned(old, new) == [Match((0, 1), (0,)), Match((2, 3), (1,))]


def test_a_product_that_is_gone_was_not_fused_into_an_elementwise_kernel() -> None:
    assert aligned(ops("mm", "mm"), ops("add")) == [Match((0,), ()), Match((1,), ()), Match((), (0,))]


def test_programs_that_have_nothing_in_common_have_no_matches() -> None:
    old, new = ops(*["add"] * 100), ops(*["gelu"] * 90)
    assert all(not match.before or not match.after for match in aligned(old, new))


@pytest.mark.parametrize("many", [10_000])
def test_ten_thousand_kernels_are_aligned_in_seconds(many: int) -> None:
    names = ("mm", "add", "gelu", "mul", "native_layer_norm", "sum", "div", "softmax", "copy_", "bmm", "tanh")
    old = [kernel(f"aten::{names[place * place % 11]}", module=f"Net.{place % 97}") for place in range(many)]
    new = [
        kernel(f"aten::{names[place * place % 11]}", module=f"Net.{place % 97}") for place in range(many) if place % 7
    ]
    began = time.process_time()
    found = aligned(old, new)
    assert time.process_time() - began < 5
    assert sum(bool(match.before and match.after) for match in found) == len(new)


@given(st.text("abc", min_size=1, max_size=6), st.integers(1, 5))
def test_a_sequence_repeats_its_period(text: str, times: int) -> None:
    length = period(text * times)
    assert (text * times) == (text * times)[:length] * (len(text) * times // length)
    assert length <= len(text)
    assert steps(text * times) == (len(text) * times // length if length > 1 else 1)


def test_kernels_that_became_nearly_as_many_others_were_not_fused() -> None:
    found = aligned(ops("add", "gelu", "sum", "div"), ops("tanh", "mul", "sigmoid"))
    assert all(not match.before or not match.after for match in found)
