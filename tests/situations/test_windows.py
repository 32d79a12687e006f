"""Aggregates over a time in rules: what they are of, when they have a value, and what is kept for them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.cli.explain_rule import rule_data, rule_lines
from nearcast.cli.explain_text import situation_lines
from nearcast.errors import Mark
from nearcast.language.cql2 import parse
from nearcast.model.changes import Change, ClockTick, SettingsChange
from nearcast.model.event import Event
from nearcast.model.expression import Call
from nearcast.model.filter import Atom
from nearcast.model.limits import Limits
from nearcast.model.situation import Situation
from nearcast.model.subscription import Settings
from nearcast.model.values import Value, microseconds_of
from nearcast.situations.stage import BEYOND, SituationStage
from nearcast.state.derived import StageInput
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository
from nearcast.state.stream_clocks import StreamClocks
from nearcast.state.windows import Aggregate, IndexedReadingWindows, KeptReading, aggregates_in
from nearcast.testing.situations import PlainReadingWindows, PlainScene
from tests.situations.scenes import ONTOLOGY, START, advanced, data_of, defined, inferred, rule, table_of, told
from tests.situations.test_lasting import END, seen

SCENES = pytest.mark.parametrize("scene", [None, PlainScene], ids=["indexed", "plain"])
SECOND = 1_000_000
LIMITS = Limits()


def aggregate(text: str) -> Aggregate:
    atom = parse(f"{text} > 0", Mark("here"), over_time=True)
    assert isinstance(atom, Atom) and isinstance(atom.name, Call)
    [found] = aggregates_in(atom.name)
    return found


def over(text: str, *readings: tuple[float, object], now: float = 100) -> float | None:
    """An aggregate of (second, value) pairs at a second."""
    windows = IndexedReadingWindows()
    windows.prepare({"Temperature": 1000 * SECOND})
    for number, (second, value) in enumerate(readings, 1):
        moment = round(second * SECOND)
        windows.put_reading(("a", "Temperature"), KeptReading(moment, number, value), round(now * SECOND))  # type: ignore[arg-type]
    return windows.find(("a", "Temperature"), aggregate(text), round(now * SECOND), 0).value


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (20.0, "AVG(Temperature, 30 s)"),
        (30, "MAX(Temperature, 30 s)"),
        (10, "MIN(Temperature, 30 s)"),
        (60.0, "SUM(Temperature, 30 s)"),
        (3, "COUNT(Temperature, 30 s)"),
        (4, "COUNT(Temperature, 31 s)"),
        (1, "COUNT(Temperature, 10 s)"),
        (None, "COUNT(Temperature, 9 s)"),
        (3, "COUNT(Temperature, 0.5 min, 3)"),
        (None, "COUNT(Temperature, 0.5 min, 4)"),
        (1.0, "RATE(Temperature, 30 s)"),
        (60.0, "RATE(Temperature, 0.5 min)"),
        (3600.0, "RATE(Temperature, 0.008334 h)"),
        (None, "RATE(Temperature, 10 s)"),
        (None, "RATE(Temperature, 30 s, 4)"),
    ],
)
def test_what_an_aggregate_is(expected: float | None, text: str) -> None:
    """Of the readings of the last so many seconds, the first of them still in it; a rate is per unit of its time."""
    found = over(text, (69, 99), (70, 10), (80, 20), (90, 30))
    assert found is None if expected is None else found == pytest.approx(expected)


def test_only_a_count_is_of_others_than_numbers() -> None:
    """Texts and truths are counted, and neither added nor compared."""
    readings = ((98, True), (99, "hot"), (100, 5))
    assert (3, 5, 5.0) == tuple(over(f"{name}(Temperature, 9 s)", *readings) for name in ("COUNT", "MAX", "AVG"))
    assert None is over("MAX(Temperature, 9 s)", (99, "hot"))


def test_readings_of_one_moment_have_no_rate() -> None:
    """However many there are."""
    assert None is over("RATE(Temperature, 9 s)", (99, 1), (99, 5))


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(-9, 9)), max_size=30), st.integers(1, 20), st.integers(0, 50))
def test_a_mean_is_that_of_the_readings_in_the_window(
    readings: Sequence[tuple[int, int]], seconds: int, now: int
) -> None:
    """In whatever order they came."""
    inside = [value for second, value in readings if now - seconds <= second <= now]
    known = [one for one in readings if one[0] <= now]
    found = over(f"AVG(Temperature, {seconds} s)", *known, now=now)
    assert (None if not inside else statistics.fmean(inside)) == (found if found is None else pytest.approx(found))


def stuffy(when: str, **fields: object) -> Situation:
    return rule("hot", "Fire", when, **{"valid": None, **fields})


def temperatures(*readings: tuple[float, float], entity: str = "a") -> list[Event]:
    return [told(second, entity, 0, Temperature=value) for second, value in readings]


@SCENES
def test_a_rule_over_a_time_begins_with_a_reading_and_ends_when_it_leaves(scene: type[PlainScene] | None) -> None:
    """At the microsecond after: without the 20 it is 75, without the 90 too it is 60. What it rests on is told."""
    stage = SituationStage(scene) if scene else None
    events = [*temperatures((0, 20), (10, 90), (20, 60), (60, 30)), END]
    found = inferred([stuffy("AVG(Temperature, 25 s) > 55")], events, stage)
    assert [(20.0, "hot", "begin"), (45.000001, "hot", "stale")] == seen(found)
    begun = data_of(found[0])
    told_ = {"of": "AVG(Temperature, 25 s)", "value": 170 / 3, "readings": 3}
    assert told_.items() <= begun["evidence"][0]["aggregate"].items()
    assert "2026-01-01T00:00:00Z" == begun["evidence"][0]["aggregate"]["from"]
    assert {"Temperature": 60} == begun["readings"]
    assert "AVG(Temperature, 25 s) is 56.6667, of 3 from" in "\n".join(situation_lines(begun))


def test_a_reading_leaves_where_time_passes_by_itself() -> None:
    """At a tick, when it is due."""
    stage = SituationStage()
    advanced(stage, defined([stuffy("COUNT(Temperature, 25 s) >= 2")]), table_of(temperatures((0, 20), (10, 90))))
    assert START.timestamp() + 25.000001 == stage.next_due(StreamClocks.alone(0)) / 1_000_000
    [ended] = advanced(stage, [(3, ClockTick(START + timedelta(seconds=26)))], table_of([], 2))
    assert [(25.000001, "hot", "false")] == seen([ended])


@SCENES
def test_of_several_entities_around_each_has_its_own(scene: type[PlainScene] | None) -> None:
    """One that has such an aggregate makes the condition hold; subclasses are each by themselves."""
    stage = SituationStage(scene) if scene else None
    events = [*temperatures((0, 90)), *temperatures((1, 20), entity="b"), *temperatures((2, 90), entity="b"), END]
    found = inferred([stuffy("COUNT(Weather, 1 min) >= 2 AND AVG(Temperature, 1 min) > 80")], events, stage)
    assert [(2.0, "hot", "begin")] == seen(found)[:1]
    assert ["b", "a"] == [one["entity"] for one in data_of(found[0])["evidence"]]


@SCENES
def test_a_rule_sees_the_readings_behind_its_definition(scene: type[PlainScene] | None) -> None:
    """Also in windows that another rule keeps."""
    stage = SituationStage(scene) if scene else SituationStage()
    one, other = stuffy("SUM(Temperature, 1 min) > 500"), rule("drill", "Drill", "SUM(Temperature, 1 min) > 150")
    first = defined([one])
    found = _advanced(stage, first, temperatures((0, 90), (1, 90)), 0)
    later = [(2, change) for _, change in defined([other])[1:]]
    found += _advanced(stage, later, [*temperatures((2, 90), (3, 90)), END], 2)
    assert [(3.0, "drill", "begin")] == seen(found)[:1]


def _advanced(
    stage: SituationStage, changes: list[tuple[int, Change]], events: list[Event], after: int, limits: Limits = LIMITS
) -> list[Event]:
    known = Registry(Settings(limits=limits))
    return stage.derive(StageInput(changes, {}, table_of(events, after), known, Repository()))


def test_more_readings_than_are_kept_leave_it_unknown_until_they_have_left() -> None:
    """They are counted, and explained; another entity's are not touched."""
    stage, limits = SituationStage(), Limits(window_readings=3)
    changes = [(0, SettingsChange(Settings(ontology=ONTOLOGY, limits=limits))), *defined([COUNTED])[1:]]
    events = temperatures(*((second, 90) for second in range(5)))
    other = temperatures((5, 90), (6, 90), entity="b")
    found = _advanced(stage, changes, [*events, *other], 0, limits)
    assert [("begin", 1.0), ("unknown", 3.0), ("begin", 6.0)] == [(phase, at) for at, _, phase in seen(found)]
    assert {("Temperature", BEYOND): 2} == stage.refused
    finding = stage.find("hot", events[-1])
    assert "at most 3 readings of one entity and 5,000,000 of all are kept" in "\n".join(rule_lines(finding))
    again = _advanced(stage, [], temperatures((20, 90), (21, 90)), 7, limits)
    assert [("false", 15.000001), ("begin", 21.0)] == [(phase, at) for at, _, phase in seen(again)]


COUNTED = rule("hot", "Fire", "COUNT(Temperature, 10 s) >= 2", valid=None, within=0)


def test_all_that_is_kept_is_bounded_too() -> None:
    """Beyond it an entity loses its own oldest; what is too old by now makes room first."""
    windows = IndexedReadingWindows()
    windows.limits = Limits(windows_readings=4)
    windows.prepare({"Temperature": 10 * SECOND})
    for second in range(3):
        windows.put_reading(("a", "Temperature"), KeptReading(second * SECOND, 1, second), second * SECOND)
    for second in (11, 12):
        windows.put_reading(("b", "Temperature"), KeptReading(second * SECOND, 1, second), second * SECOND)
    count = aggregate("COUNT(Temperature, 10 s)")
    # Of a the readings at 0 and 1 were too old when the fifth came.
    assert (3, {}) == (windows.total, windows.beyond)
    for second in (12, 12):
        windows.put_reading(("c", "Temperature"), KeptReading(second * SECOND, 1, second), second * SECOND)
    assert (4, {"Temperature": 1}) == (windows.total, windows.beyond)
    assert (2, None) == tuple(windows.find((one, "Temperature"), count, 12 * SECOND, 0).value for one in "bc")


def test_ordinary_readings_meet_no_limit() -> None:
    """A second apart for two hours."""
    windows = IndexedReadingWindows()
    windows.prepare({"Temperature": 7200 * SECOND})
    for second in range(7200):
        windows.put_reading(("a", "Temperature"), KeptReading(second * SECOND, 1, 1), second * SECOND)
    found = windows.find(("a", "Temperature"), aggregate("COUNT(Temperature, 2 h)"), 7200 * SECOND, 0)
    assert (7200, {}) == (found.value, windows.beyond)


def test_what_an_aggregate_lacks_is_explained() -> None:
    """How many readings came, and how many it needs; where it has a value, of what it is."""
    lacking, held = stuffy("AVG(Temperature, 1 min, 3) > 55"), rule("held", "Drill", "MAX(Temperature, 1 min) > 55")
    stage, events = SituationStage(), temperatures((0, 90), (5, 80))
    inferred([lacking, held], events, stage)
    assert "AVG(Temperature, 1 min, 3) of a: 2 came in that time, of 3 that it needs" in _lines(stage, "hot", events)
    assert "MAX(Temperature, 1 min) is 90, of 2 readings of a from 2026-01-01T00:00:00Z" in _lines(
        stage, "held", events
    )
    [condition] = rule_data(stage.find("held", events[-1]))["conditions"]
    assert {"value": 90, "readings": 2, "entity": "a"}.items() <= condition["aggregates"][0].items()


def _lines(stage: SituationStage, id: str, events: Sequence[Event]) -> str:
    return "\n".join(rule_lines(stage.find(id, events[-1])))


VALUES = st.integers(0, 9) | st.sampled_from([0.1, 2.5, True, "hot"])


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(-4, 0), st.sampled_from("ab"), VALUES), max_size=30),
    st.integers(1, 12),
    st.integers(0, 20),
)
def test_windows_find_what_keeping_all_finds(
    steps: list[tuple[int, int, str, Value]], seconds: int, after: int
) -> None:
    """Readings that come late among them, and readings that are not asked for any more."""
    indexed, plain, now = IndexedReadingWindows(), PlainReadingWindows(), 20 * SECOND
    indexed.prepare({"Temperature": seconds * SECOND})
    asked = [aggregate(f"{one}(Temperature, {seconds} s)") for one in ("AVG", "MAX", "SUM", "COUNT", "RATE")]
    for number, (step, late, entity, value) in enumerate(steps):
        now += step * SECOND
        key, reading = (entity, "Temperature"), KeptReading(now + late * SECOND, number, value)
        for windows in (indexed, plain):
            windows.put_reading(key, reading, now)
        for one in asked:
            for key in (("a", "Temperature"), ("b", "Temperature")):
                assert plain.find(key, one, now, after) == indexed.find(key, one, now, after)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from([50, 70, 90]), st.sampled_from("ab")), max_size=10),
    st.integers(0, 60),
    st.sampled_from(["AVG(Temperature, 20 s) > 60", "COUNT(Temperature, 20 s) >= 2", "MAX(Temperature, 9 s) > 80"]),
)
def test_where_a_clock_is_said_to_tell_nothing_it_tells_nothing(
    readings: list[tuple[int, int, str]], second: int, when: str
) -> None:
    """Also where readings leave windows until then; and where it is said to tell something it may."""
    events = [told(at, entity, 0, Temperature=value) for at, value, entity in sorted(readings)]
    stage = SituationStage()
    rules = [stuffy(when), rule("alarm", "Alarm", "Fire = TRUE")]
    advanced(stage, defined(rules), table_of(events))
    clock = START + timedelta(seconds=second, microseconds=1)
    wait = stage.next_due(StreamClocks.alone(microseconds_of(clock)))
    found = advanced(stage, [(99, ClockTick(clock))], table_of([], 99))
    assert wait <= 0 or not found
    assert found or wait > 0 or max((at for at, _, _ in readings), default=0) > second
