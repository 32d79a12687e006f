"""A tick does to situations what an event does that brings the same time and tells nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.model.changes import Change, ClockTick
from nearcast.model.event import Event
from nearcast.situations.stage import SituationStage
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


def stage_start() -> int:
    """The beginning of stories in microseconds since 1970."""
    return int(START.timestamp() * 1e6)
