"""Pairs written from masks, by whatever the processor has for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.matching.kernels import PairBuffer
from nearcast.matching.simd import BESIDE, PADDING, emit, emit_singly

masks = st.one_of(
    st.integers(1, (1 << 64) - 1),
    st.integers(0, 63).map(lambda bit: 1 << bit),
    # Of many bits few are left, or of few many: sixteens are full, or one short of it, or one more.
    st.integers(1, 64).map(lambda bits: (1 << 64) - (1 << (64 - bits))),
)


@pytest.mark.parametrize("way", [emit, emit_singly])
@settings(max_examples=300, deadline=None)
@given(st.lists(masks, min_size=1, max_size=6), st.integers(0, 100), st.integers(0, 1 << 20))
def test_a_pair_for_each_bit_of_each_mask_in_order(way: Any, some: list[int], lane: int, first: int) -> None:
    """Each has the block's first lane added to that of its place in the order, and the mask's own name."""
    order = np.random.default_rng(lane).permutation(16_384).astype(np.uint16)[: lane + PADDING]
    expected = [
        (first + int(order[lane + bit]), 7 + number)
        for number, mask in enumerate(some)
        for bit in range(64)
        if mask >> bit & 1
    ]
    size = len(expected) + BESIDE
    pairs, at = PairBuffer(np.zeros(size, np.int32), np.zeros(size, np.int32)), 0
    for number, mask in enumerate(some):
        at = way(np.uint64(mask), order, lane, first, np.int32(7 + number), pairs, at)
    assert len(expected) == at
    assert expected == list(zip(pairs.lanes[:at].tolist(), pairs.names[:at].tolist(), strict=True))


@pytest.mark.parametrize("way", [emit, emit_singly])
def test_what_is_written_beyond_the_last_pair_stays_within_the_room_that_is_asked_for(way: Any) -> None:
    """A full mask at the end of the room, and not a byte behind it."""
    order, size = np.arange(1 + PADDING, dtype=np.uint16), 100 + BESIDE
    lanes, names = np.full(size + 64, -1, np.int32), np.full(size + 64, -1, np.int32)
    for bits in range(1, 65):
        mask = np.uint64((1 << bits) - 1)
        way(mask, order, 0, 0, np.int32(3), PairBuffer(lanes, names), 100)
    assert {-1} == set(lanes[size:].tolist()) | set(names[size:].tolist())
