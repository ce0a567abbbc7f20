"""Sends of one card share its links out, and those to one card its links in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fakegpu_lab.hardware.catalogue.spec import parse_spec
from fakegpu_lab.hardware.network.fabric import Fabric
from fakegpu_lab.hardware.network.peer_links import PeerLinks

SENDS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 50), st.integers(1, 20)), max_size=20)


@given(SENDS)
def test_no_link_carries_two_sends_at_once_and_none_waits_without_need(
    sends: list[tuple[int, int, int, int]],
) -> None:
    cards = [PeerLinks() for _ in range(4)]
    carried: list[tuple[int, int, int, int]] = []
    for sender, receiver, ready, ns in sends:
        end = cards[sender].carry(cards[receiver], ready, ns)
        begin = end - ns
        assert begin >= ready
        others = [one for one in carried if one[0] == sender or one[1] == receiver]
        assert all(end <= one[2] or begin >= one[3] for one in others)
        for earlier in range(ready, begin):  # nowhere before would it have fitted
            assert any(earlier < one[3] and one[2] < earlier + ns for one in others)
        carried.append((sender, receiver, begin, end))


def test_where_each_pair_has_links_of_its_own_nothing_is_shared() -> None:
    nbytes = 64 << 20
    switched = Fabric(parse_spec("dgx-a100")).cost("send", (0, 1), nbytes)
    assert 0.9 * switched.ns < switched.on_links_ns < switched.ns
    assert Fabric(parse_spec("dgx-a100")).cost("all_reduce", (0, 1), nbytes).on_links_ns == 0
    assert Fabric(parse_spec("dgx-1v")).cost("send", (0, 1), nbytes).on_links_ns == 0
