"""Situations that begin once their rule has held for so long, and end once it has not (semantics §8)."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.model.changes import ClockTick
from nearcast.model.event import Event
from nearcast.model.situation import Situation
from nearcast.situations.stage import SituationStage
from nearcast.state.lateness import FOREVER
from nearcast.state.stream_clocks import StreamClocks
from nearcast.testing.situations import PlainScene
from tests.situations.scenes import FIRE, START, advanced, data_of, defined, inferred, rule, table_of, told

SCENES = pytest.mark.parametrize("scene", [None, PlainScene], ids=["indexed", "plain"])


def hot(second: float, entity: str = "a", x: float = 0, degrees: float = 90) -> Event:
    return told(second, entity, x, Temperature=degrees)


def since(second: float, text: str) -> float:
    return (datetime.fromisoformat(text) - START).total_seconds() - second


def seen(events: list[Event]) -> list[tuple[float, str, str]]:
    """The moment, rule and phase of what is told, in seconds; with an end its reason."""
    data = [data_of(one) for one in events]
    return [(since(0, one["moment"]), one["situation"], one.get("reason", one["phase"])) for one in data]


def lasting(**fields: float) -> Situation:
    return rule("hot", "Fire", "Temperature > 80", **{"valid": None, **fields})


END = told(1000, "z", 9999)


@SCENES
def test_it_begins_once_it_has_held_for_so_long(scene: type[PlainScene] | None) -> None:
    """At that very moment, though no reading comes; what failed before is not told of."""
    stage = SituationStage(scene) if scene else None
    events = [hot(0), hot(9, degrees=20), hot(20), hot(25, degrees=95), END]
    found = inferred([lasting(begin=10)], events, stage)
    assert [(30.0, "hot", "begin")] == seen(found)
    assert 20.0 == since(0, data_of(found[0])["since"])
    assert {"Temperature": 95} == data_of(found[0])["readings"]


@SCENES
def test_it_ends_once_it_has_not_held_for_so_long(scene: type[PlainScene] | None) -> None:
    """For what reason it failed first; if it holds again meanwhile, it goes on, and its readings are told."""
    stage = SituationStage(scene) if scene else None
    events = [hot(0), hot(5, degrees=20), hot(14, degrees=91), hot(20, degrees=20), hot(29, degrees=10), END]
    told_ = [(0.0, "hot", "begin"), (14.0, "hot", "update"), (30.0, "hot", "false")]
    assert told_ == seen(inferred([lasting(end=10)], events, stage))


@SCENES
def test_a_reading_that_gets_too_old_is_a_failure_too(scene: type[PlainScene] | None) -> None:
    """From the microsecond after its validity."""
    stage = SituationStage(scene) if scene else None
    assert [(3.0, "hot", "begin"), (15.000001, "hot", "stale")] == seen(
        inferred([lasting(valid=5, begin=3, end=10)], [hot(0), END], stage)
    )
    assert [] == inferred([lasting(valid=5, begin=6)], [hot(0), END], SituationStage(scene) if scene else None)


@SCENES
def test_an_ending_one_is_carried_on_by_what_is_near(scene: type[PlainScene] | None) -> None:
    """Also where nothing but what it rested on could change it before; far away another begins."""
    stage = SituationStage(scene) if scene else None
    events = [hot(0), hot(5, degrees=20), hot(8, "b", 60), hot(30, "c", 500), END]
    found = inferred([lasting(end=10)], events, stage)
    assert [(0.0, "hot", "begin"), (8.0, "hot", "update"), (30.0, "hot", "begin")] == seen(found)
    assert [0, 500] == [data_of(one)["position"]["x"] for one in found[1:]]


@SCENES
def test_one_ending_that_holds_again_between_two_readings(scene: type[PlainScene] | None) -> None:
    """The rule holds around it, and around neither of the two."""
    stage = SituationStage(scene) if scene else None
    both = rule("fire", "Fire", "Temperature > 80 AND Humidity < 10", valid=None, end=10)
    start = [told(0, "m", 0, Temperature=90, Humidity=5), told(2, "m", 0, Temperature=20, Humidity=50)]
    around = [hot(3, "a", -90), told(5, "b", 90, Humidity=5)]
    assert [(0.0, "fire", "begin"), (5.0, "fire", "update")] == seen(inferred([both], [*start, *around, END], stage))


@SCENES
def test_rules_above_see_what_has_begun(scene: type[PlainScene] | None) -> None:
    """What has yet to hold on is not, and what is ending is."""
    stage = SituationStage(scene) if scene else None
    alarm = rule("alarm", "Alarm", "Fire", valid=None)
    calm = rule("calm", "Drill", "NOT Fire", valid=None)
    events = [hot(0, degrees=20), hot(10), hot(30, degrees=20), END]
    assert [
        (0.0, "calm", "begin"),
        # The reading that it rested on is another now.
        (10.0, "calm", "update"),
        (15.0, "hot", "begin"),
        (15.0, "alarm", "begin"),
        (15.0, "calm", "false"),
        (37.0, "hot", "false"),
        (37.0, "alarm", "false"),
        (37.0, "calm", "begin"),
    ] == seen(inferred([lasting(begin=5, end=7), alarm, calm], events, stage))


def test_a_rule_that_goes_takes_both_kinds_along() -> None:
    """What has not begun without a word, what is ending at once."""
    stage = SituationStage()
    found = advanced(
        stage, defined([lasting(begin=5, end=7)]), table_of([hot(0), hot(10, degrees=20), hot(11, "b", 500)])
    )
    assert [(5.0, "hot", "begin")] == seen(found)
    again = advanced(stage, [(3, one) for _, one in defined([lasting(begin=5)])[1:]], table_of([END], 3))
    assert [(11.0, "hot", "removed")] == seen(again)


def test_it_begins_and_ends_where_time_passes_by_itself() -> None:
    """What is due next is known, and a tick of the clock brings it about, with nothing else."""
    stage = SituationStage()
    assert [] == advanced(stage, defined([lasting(begin=5, end=7)]), table_of([hot(0)]))
    assert START.timestamp() + 5 == stage.next_due(StreamClocks.alone(0)) / 1_000_000
    [begun] = advanced(stage, [(2, ClockTick(START + timedelta(seconds=5)))], table_of([], 1))
    assert (2, [(5.0, "hot", "begin")]) == (begun.position, seen([begun]))
    assert FOREVER == stage.next_due(StreamClocks.alone(0))
    assert [] == advanced(stage, [], table_of([hot(10, degrees=20)], 2))
    assert START.timestamp() + 17 == stage.next_due(StreamClocks.alone(0)) / 1_000_000
    [ended] = advanced(stage, [(4, ClockTick(START + timedelta(seconds=18)))], table_of([], 3))
    assert [(17.0, "hot", "false")] == seen([ended])


def test_what_waits_is_explained() -> None:
    """When one begins, if the rule holds on; when the one that is there ends."""
    stage = SituationStage()
    first = [hot(0)]
    inferred([lasting(begin=5, end=7)], first, stage)
    found = stage.find("hot", first[-1])
    assert (None, 5.0, None) == (found.situation, _second(found.begins), found.ends)
    advanced(stage, [], table_of([hot(10, degrees=20)], 1))
    found = stage.find("hot", hot(10, degrees=20))
    assert ("hot@1", None, 17.0) == (found.situation, found.begins, _second(found.ends))


def _second(moment: int | None) -> float:
    assert moment is not None
    return moment / 1_000_000 - START.timestamp()


steps = st.lists(st.tuples(st.integers(0, 6), st.sampled_from("ab"), st.sampled_from([20, 90])), max_size=20)


@given(steps, st.sampled_from([None, 4.0]), st.integers(0, 8), st.integers(0, 8))
@settings(max_examples=100, deadline=None)
def test_it_is_what_begins_and_ends_at_once_with_short_ones_and_short_gaps_left_out(
    changes: list[tuple[int, str, int]], valid: float | None, begin: int, end: int
) -> None:
    """Of a rule around one spot the intervals in which it holds say all."""
    now, events = 0, []
    for step, entity, degrees in changes:
        now += step
        events.append(hot(now, entity, degrees=degrees))
    bare = seen(inferred([lasting(valid=valid)], [*events, END]))
    edges = [(moment, phase == "begin") for moment, _, phase in bare if phase != "update"]
    found = seen(inferred([lasting(valid=valid, begin=begin, end=end)], [*events, END]))
    assert _kept(edges, begin, end) == [(moment, phase == "begin") for moment, _, phase in found if phase != "update"]


def _kept(edges: list[tuple[float, bool]], begin: float, end: float) -> list[tuple[float, bool]]:
    """The beginnings and ends that are left: what falls due comes before what happens at its moment."""
    found: list[tuple[float, bool]] = []
    is_, due = False, None
    for moment, holds in [*edges, (999.0, not edges[-1][1] if edges else True)]:
        if due is not None and due <= moment:
            is_ = not is_
            found.append((round(due, 6), is_))
        wait = begin if holds else end
        due = moment + wait if holds is not is_ else None
        if due is not None and not wait and moment < 999:
            is_, due = holds, None
            found.append((moment, holds))
    return found


def test_fire_and_its_time_are_one_rule_more() -> None:
    """Beside one that begins at once."""
    events = [told(0, "a", Temperature=90, Humidity=5), told(5, "z", 9999)]
    assert [(0.0, "fire", "begin"), (2.0, "slow", "begin")] == seen(
        inferred([FIRE, rule("slow", "Hazard", "Temperature > 80 AND Humidity < 10", begin=2, end=3)], events)
    )
