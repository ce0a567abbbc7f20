"""Stretches of time: merged, they are a set of moments."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fakegpu_lab.recording_views import spans

some = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda pair: (pair[0], sum(pair))), max_size=8)


def moments(stretches: list[spans.Span]) -> set[int]:
    return {moment for start, end in stretches for moment in range(start, end)}


@given(some, some)
def test_shared_is_what_both_have_in_common(first: list[spans.Span], second: list[spans.Span]) -> None:
    one, other = spans.merged(first), spans.merged(second)
    assert spans.length(one) == len(moments(first))
    assert spans.shared(one, other) == len(moments(first) & moments(second))
    assert all(end < start for (_, end), (start, _) in pairwise(one))
