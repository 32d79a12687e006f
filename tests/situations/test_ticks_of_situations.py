"""A tick does to situations what an event does that brings the same time and tells nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.model.changes import Change, ClockTick
from nearcast.model.event import Event
from nearcast.situations import reorder_buffer
from nearcast.situations.stage import SituationStage
from nearcast.state.lateness import FOREVER
from nearcast.state.stream_clocks import StreamClocks
from tests.situations.scenes import FIRE, START, advanced, defined, rule, table_of, told

RULES = (FIRE, rule("smoke", "Fire", "Smoke = TRUE", valid=6, lateness=3), rule("alarm", "Alarm", "Fire = TRUE"))

Step = Event | ClockTick

readings = st.builds(
    lambda second, early, entity, values: told(second - early, entity, 0, second, **values),
    st.integers(3, 40),
    st.sampled_from([0, 0, 0, 2, 3]),
    st.sampled_from(["a", "b"]),
    st.sampled_from([{"Temperature": 90.0}, {"Temperature": 20.0}, {"Humidity": 5.0}, {"Smoke": True}]),
)
ticks = st.integers(3, 60).map(lambda second: ClockTick(START + timedelta(seconds=second)))
stories = st.lists(st.one_of(readings, readings, ticks), max_size=16)


def silent(step: Step) -> Event:
    """For a tick an event that tells nothing."""
    return told((step.clock - START).total_seconds(), "nobody", None) if isinstance(step, ClockTick) else step


def data(stage: SituationStage, steps: Sequence[Step]) -> list[tuple[str, object, object]]:
    """What is told of a story, without what a position is called by."""
    changes: list[tuple[int, Change]] = defined(RULES)
    found = advanced(stage, changes, table_of([]))
    for position, step in enumerate(steps, 1):
        ticked = isinstance(step, ClockTick)
        own = [(position, step)] if isinstance(step, ClockTick) else []
        found += advanced(stage, own, table_of([] if ticked else [step], position - 1))
    return [(one.id, one.time, one.attributes) for one in found]


@settings(max_examples=60, deadline=None)
@given(stories)
def test_a_tick_tells_what_an_event_of_its_time_would(story: Sequence[Step]) -> None:
    """At the same position, with the same times; and before what is due next it tells nothing."""
    stage, seen = SituationStage(), data(SituationStage(), [silent(one) for one in story])
    assert seen == data(stage, story)
    due = stage.next_due(StreamClocks.alone(0))
    before = ClockTick(START + timedelta(microseconds=min(due - 1, 2**52) - stage_start()))
    assert [] == advanced(stage, [(99, before)], table_of([]))


KINDS = (
    rule("hot", "Fire", "Temperature > 80", valid=6, begin=3, end=4),
    rule("warm", "Hazard", "AVG(Temperature, '6 s') > 60", valid=60, lateness=4),
    rule("smoke", "Alarm", "Smoke = TRUE", valid=6, lateness=3),
    rule("drill", "Drill", "Fire = TRUE", valid=5),
    FIRE,
)


@settings(max_examples=40, deadline=None)
@given(st.sets(st.sampled_from(range(len(KINDS))), min_size=1), stories, st.integers(500_000, 3_000_000))
def test_it_is_due_exactly_when_a_tick_tells_something(kinds: set[int], story: Sequence[Step], step: int) -> None:
    """As clocks go on by themselves; ticks that tell nothing change nothing, nor does looking ahead."""
    events = [silent(one) for one in story]
    ticked, looked = SituationStage(), SituationStage()
    for stage in (ticked, looked):
        advanced(stage, defined([KINDS[kind] for kind in sorted(kinds)]), table_of(events))
    clocks = looked.clocks
    for number in range(10):
        tick = [(100 + number, clocks.tick())]
        is_due = looked.next_due(clocks) <= 0
        found = [advanced(stage, tick, table_of([])) for stage in ((looked, ticked) if is_due else (ticked,))]
        assert is_due == bool(found[0])
        assert found[0] == found[-1]
        clocks = clocks.later(step)


def test_looking_ahead_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond that something may be said to be due of which nothing is told."""
    stage = SituationStage()
    advanced(
        stage, defined([rule("smoke", "Alarm", "Smoke = TRUE", lateness=3)]), table_of([told(0, "a", Smoke=False)])
    )
    clocks = stage.clocks.later(20_000_000)
    assert FOREVER == stage.next_due(clocks)
    monkeypatch.setattr(reorder_buffer, "COPIED", 0)
    assert stage.next_due(clocks) <= 0
    assert [] == advanced(stage, [(2, clocks.tick())], table_of([]))


def stage_start() -> int:
    """The beginning of stories in microseconds since 1970."""
    return int(START.timestamp() * 1e6)
