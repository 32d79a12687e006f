"""Timelines: the values as of every position of a batch."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.event import Place
from nearcast.state.timeline import FOREVER, EntityMembership, TermMembers, Timeline

KEYS = st.sampled_from(["ann", "bob"])
changes = st.lists(st.tuples(KEYS, st.integers(1, 12), st.integers()), max_size=8).map(
    lambda found: sorted(found, key=lambda change: change[1])
)
tracks = st.dictionaries(KEYS, st.integers())


def made(base: dict[str, int], found: list[tuple[str, int, int]]) -> Timeline[str, int]:
    track: Timeline[str, int] = Timeline(dict(base))
    for key, position, value in found:
        track.record_change(key, position, value)
    return track


def test_a_change_holds_for_the_events_after_it() -> None:
    """Not for one at its own position."""
    track = made({"ann": 0}, [("ann", 5, 1), ("ann", 7, 2)])
    assert [0, 0, 1, 1, 2] == [track.at("ann", position) for position in (1, 5, 6, 7, 8)]
    assert track.at("nobody", 9) is None


@given(tracks, changes, KEYS, st.sets(st.integers(1, 13), max_size=6))
def test_segments_agree_with_at(
    base: dict[str, int], found: list[tuple[str, int, int]], key: str, at: set[int]
) -> None:
    """For any ascending positions, and several changes at one position too."""
    track, positions = made(base, found), sorted(at)
    segments = track.segments(key, np.array(positions, np.int64))
    starts = [start for start, _ in segments]
    assert starts[0] == 0
    assert sorted(set(starts)) == starts
    for index, position in enumerate(positions):
        value = [value for start, value in segments if start <= index][-1]
        assert track.at(key, position) == value


@given(tracks, changes, KEYS)
def test_the_next_batch_begins_with_the_newest_values(
    base: dict[str, int], found: list[tuple[str, int, int]], key: str
) -> None:
    """And without changes."""
    track = made(base, found)
    assert track.at(key, FOREVER) == track.after().base.get(key)
    assert not track.after().changes


moves = st.lists(st.tuples(st.integers(1, 9), st.sampled_from("xyz"), st.booleans()), max_size=8).map(sorted)


@given(st.sets(st.sampled_from("xyz")), moves)
def test_the_next_batch_begins_with_who_joined_and_did_not_leave(
    base: set[str], found: list[tuple[int, str, bool]]
) -> None:
    """However often somebody did."""
    here = EntityMembership(Place("planar", 0, 0))
    members = TermMembers(dict.fromkeys(base, here), [(q, name, here if joins else None) for q, name, joins in found])
    final = dict.fromkeys(base, True) | {name: joins for _, name, joins in found}
    assert {name for name, inside in final.items() if inside} == set(members.after().base)
