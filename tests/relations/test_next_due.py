"""Relations say exactly when they will tell something though nothing is reported."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.model.event import Event
from nearcast.relations import stage
from nearcast.relations.lanes import delayed
from nearcast.relations.lanes.scopes import Scopes
from nearcast.state.lateness import FOREVER
from nearcast.state.stream_clocks import StreamClocks
from tests.relations.stories import Step, defined, events_told, report

WHEN = [
    "distance(a, b) <= 10",
    "distance(a, b) <= 10 AND AVG(a.speed, 6 s) > 5",
    "distance(a, b) <= 50 AND COUNT(a.speed, 4 s) >= 2",
]
DETECTED = [["enter"], ["enter", "exit"], ["dwell"], ["dwell", "exit"], ["enter", "dwell", "exit"]]


def relation(id: str, detect: list[str], lasting: int, alive: int | None, lateness: int, **about: Any) -> Step:
    """A definition with what it may have."""
    fields: dict[str, Any] = {"detect": detect, "lateness": lateness, **about}
    fields |= {"lasting": lasting} if "dwell" in detect else {}
    return defined(id, **fields, **({} if alive is None else {"time_to_live": alive}))


lives = (st.sampled_from(DETECTED), st.sampled_from([3, 9]), st.sampled_from([None, 5, 8]), st.sampled_from([0, 0, 4]))
pairs = st.builds(
    lambda when, life: relation("r", *life, when=when, a="type = 'car'", b="type = 'car'"),
    st.sampled_from(WHEN),
    st.tuples(*lives),
)
crowds = st.builds(lambda life: relation("g", *life, among="type = 'car'", count=2, within=10), st.tuples(*lives))
reports = st.builds(
    lambda entity, x, second, early, speed: report(entity, x, second=second - early, accepted=second, speed=speed),
    st.sampled_from("abc"),
    st.sampled_from([0.0, 5.0, 30.0]),
    st.integers(0, 12),
    st.sampled_from([0, 0, 1, 3]),
    st.sampled_from([2.0, 9.0]),
)
OF_RELATIONS = [
    {"a": "type = 'nearcast.relation'", "b": "type = 'car'", "when": "distance(a, b) <= 10"},
    {"a": "type = 'nearcast.relation'", "b": "type = 'nearcast.relation'", "when": "a.distance <= b.distance"},
    {"among": "type = 'nearcast.relation'", "count": 2, "within": 10},
]
derived = st.builds(lambda about, life: relation("d", *life, **about), st.sampled_from(OF_RELATIONS), st.tuples(*lives))
stories = st.tuples(pairs, crowds, st.none() | derived, st.lists(reports, min_size=1, max_size=10)).map(
    lambda parts: [one for one in parts[:3] if one] + sorted(parts[3], key=lambda one: one.accepted)
)


def told_at(scopes: Scopes, clocks: StreamClocks) -> list[Event]:
    """What a tick tells."""
    return events_told(scopes, [clocks.tick()])


@settings(max_examples=40, deadline=None)
@given(stories, st.integers(500_000, 3_000_000))
def test_it_is_due_exactly_when_a_tick_tells_something(story: Sequence[Step], step: int) -> None:
    """As clocks go on by themselves, also of relations about what relations tell; ticks that tell nothing change
    nothing, nor does looking ahead.
    """
    ticked, looked = Scopes(), Scopes()
    events_told(ticked, story)
    events_told(looked, story)
    clocks = looked.clocks
    for _ in range(8):
        is_due = looked.next_due(clocks) <= 0
        told = told_at(looked, clocks) if is_due else []
        assert (is_due, told) == (bool(told), told_at(ticked, clocks))
        clocks = clocks.later(step)


@pytest.mark.parametrize(("module", "limit"), [(stage, "LOOKED"), (stage, "COPIED"), (delayed, "COUNTED")])
def test_looking_ahead_is_bounded(module: ModuleType, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond that something may be said to be due of which nothing is told."""
    mean = "distance(a, b) <= 10 AND AVG(a.speed, 6 s) > 5"
    late = defined(when=mean, a="type = 'car'", b="type = 'car'", lateness=1 if module is delayed else 0)
    story = [late, report("a", 0, second=0, speed=9), report("a", 0, second=8, speed=9)]
    scopes = Scopes()
    events_told(scopes, story)
    clocks = scopes.clocks.later(20_000_000)
    assert FOREVER == scopes.next_due(clocks)
    monkeypatch.setattr(module, limit, 0)
    assert scopes.next_due(clocks) <= 0
    assert [] == told_at(scopes, clocks)
