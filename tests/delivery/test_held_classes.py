"""Classes that are held: a margin beside each bound, and a time for which readings must be beyond it (semantics §3)."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.delivery.priority import awareness_class, context_class, priority
from nearcast.language.control_events import changes, to_event
from nearcast.language.definitions.files import load
from nearcast.model.changes import Change, ClientChange, SettingsChange
from nearcast.model.context import Awareness, ContextSpace, HeldClass, equal_intervals
from nearcast.model.subscription import Settings
from nearcast.state.registry import Registry

SECOND = 1_000_000
BOUNDS = equal_intervals(3750, 3)
HELD = Awareness("bandwidth", BOUNDS, 5, True, 3)


def settings(module: Awareness = HELD) -> SettingsChange:
    return SettingsChange(Settings(space=ContextSpace((module,))))


def said(second: float, bandwidth: float | None) -> ClientChange:
    return ClientChange("a", readings={"bandwidth": bandwidth}, moment=round(second * SECOND))


def classes(module: Awareness, *readings: tuple[float, float | None]) -> list[int]:
    """The context class after each reading."""
    registry, found = Registry(), []
    registry.apply(settings(module))
    for second, reading in readings:
        registry.apply(said(second, reading))
        client = registry.clients["a"]
        found.append(context_class(registry.settings.space, client.readings, 3, client.classes))
    return found


def test_within_the_margin_either_class_stays() -> None:
    """Up above 1312.5, down at 1187.5; far readings cross several bounds at once."""
    margin = Awareness("bandwidth", BOUNDS, 5, True)
    assert [0, 0, 1, 1, 0] == classes(margin, *enumerate([1250, 1312.5, 1312.6, 1187.6, 1187.5]))
    assert [2, 0, 0, 2] == classes(margin, *enumerate([3000, 100, 1300, 3750]))


def test_a_class_changes_once_readings_have_been_beyond_for_so_long() -> None:
    """By their own times; one that is back within the margin lets the time begin anew."""
    assert [2, 2, 2, 1] == classes(HELD, (0, 3000), (1, 2000), (3.999, 2000), (4, 2000))
    assert [2, 2, 2, 2, 2, 1] == classes(HELD, (0, 3000), (1, 2000), (2, 2450), (4, 2000), (6.9, 2000), (7, 2000))


def test_each_bound_has_its_own_time() -> None:
    """A link that gets worse in two steps leaves the first class in time, and the second later."""
    assert [2, 2, 2, 1, 0] == classes(HELD, (0, 3000), (1, 2000), (2, 100), (4, 100), (5, 100))


def test_what_is_unknown_begins_anew() -> None:
    """And counts as the best meanwhile."""
    assert [0, 2, 1] == classes(HELD, (0, 100), (1, None), (2, 1300))


def test_a_reading_that_is_older_than_the_newest_moves_no_class() -> None:
    """Its value is what was said last, as ever."""
    assert [2, 2, 2] == classes(Awareness("bandwidth", BOUNDS, 5, True), (5, 3000), (4, 100), (5, 3000))


def test_without_margin_and_time_classes_are_those_of_the_readings_alone() -> None:
    """And nothing is kept of earlier ones."""
    registry = Registry()
    for change in (settings(Awareness("bandwidth", BOUNDS)), said(0, 3000), said(1, 2499)):
        registry.apply(change)
    assert {} == registry.clients["a"].classes
    assert 1 == awareness_class(Awareness("bandwidth", BOUNDS), 2499)


def test_a_margin_in_the_readings_unit() -> None:
    """Exact on the decimals that were written: 0.3 and 0.1 are 0.4."""
    battery = Awareness("bandwidth", (0.2, 0.3), 0.1)
    assert [1, 1, 2, 2, 1] == classes(battery, *enumerate([0.25, 0.4, 0.41, 0.21, 0.2]))


READINGS = st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(0, 40)), max_size=30)


@given(READINGS, st.sampled_from([0.0, 1.0, 3.0]), st.sampled_from([0, 1, 2]))
def test_classes_are_those_of_each_bound_looked_at_alone(
    steps: list[tuple[int, int | None]], margin: float, lasting: int
) -> None:
    """Each is crossed or not: how many are is the class."""
    module = Awareness("bandwidth", (10.0, 15.0, 30.0), margin, False, lasting)
    registry, now = Registry(), 0
    registry.apply(SettingsChange(Settings(levels=4, space=ContextSpace((module,)))))
    seen: list[tuple[int, int]] = []
    for step, reading in steps:
        now += step
        registry.apply(said(now, reading))
        seen = [] if reading is None else [*seen, (now, reading)]
        client = registry.clients["a"]
        found = awareness_class(module, client.readings.get("bandwidth"), client.classes.get("bandwidth"))
        expected = 3 if reading is None else sum(_crossed(bound, module, seen) for bound in module.bounds)
        assert expected == found


def _crossed(bound: float, module: Awareness, seen: list[tuple[int, int]]) -> bool:
    """Whether readings are above a bound, one looked at after another."""
    above, since = seen[0][1] > bound, None
    for now, reading in seen[1:]:
        margin = Fraction(module.margin)
        leaves = reading <= Fraction(bound) - margin if above else reading > Fraction(bound) + margin
        since = (now if since is None else since) if leaves else None
        if since is not None and now - since >= module.lasting:
            above, since = not above, None
    return above


@given(READINGS, st.data())
def test_a_registry_that_is_written_goes_on_as_it_was(steps: list[tuple[int, int | None]], data: st.DataObject) -> None:
    """Its control events have what earlier readings led to."""
    module = Awareness("bandwidth", (10.0, 15.0), 1.0, False, 2)
    told: list[Change] = [settings(module)]
    now = 0
    for step, reading in steps:
        told.append(said(now := now + step, reading))
    cut = data.draw(st.integers(0, len(told)))
    whole, first = Registry(), Registry()
    for change in told:
        whole.apply(change)
    for change in told[:cut]:
        first.apply(change)
    second = Registry()
    for held in first.changes():
        for change in changes(to_event(held, "x", "s"), second.settings):
            second.apply(change)
    assert first == second
    for change in told[cut:]:
        second.apply(change)
    assert whole == second


def test_other_settings_let_classes_begin_anew() -> None:
    """Of modules that are the same there they stay."""
    registry = Registry()
    for change in (settings(), said(0, 3000), said(1, 2400)):
        registry.apply(change)
    before = registry.clients["a"].classes
    registry.apply(SettingsChange(Settings(levels=3, space=ContextSpace((HELD, Awareness("battery", (1.0, 2.0)))))))
    assert before == registry.clients["a"].classes and 2 == before["bandwidth"].context_class
    registry.apply(settings(Awareness("bandwidth", BOUNDS, 6, True)))
    assert {} == registry.clients["a"].classes
    assert 1 == priority(registry.settings, registry.clients["a"], 0)


def test_a_reading_is_held_from_the_one_before_the_settings() -> None:
    """What was known then is what it is compared with."""
    registry = Registry()
    for change in (said(0, 3000), settings(Awareness("bandwidth", BOUNDS, 5, True)), said(1, 2400)):
        registry.apply(change)
    assert 2 == registry.clients["a"].classes["bandwidth"].context_class


def test_what_whoever_heard_all_readings_says_counts() -> None:
    """A server that tells few of them; of an older moment, or where there are no such classes, it does not."""
    told = HeldClass(1, 5 * SECOND, False, (4 * SECOND,))
    registry = Registry()
    registry.apply(settings())
    for expected, moment in ((1, 5), (1, 4)):
        given = HeldClass(moment % 4, moment * SECOND) if moment == 4 else told
        registry.apply(ClientChange("a", readings={"bandwidth": 3000}, classes={"bandwidth": given}))
        assert expected == registry.clients["a"].classes["bandwidth"].context_class
    registry.apply(ClientChange("b", readings={"bandwidth": 3000}, classes={"bandwidth": HeldClass(7, 1)}))
    assert HeldClass(2, 0) == registry.clients["b"].classes["bandwidth"]


@pytest.mark.parametrize(
    ("written", "margin", "relative"), [("5 %", 5.0, True), ("2.5%", 2.5, True), (40, 40.0, False)]
)
def test_definitions_have_margins(written: object, margin: float, relative: bool) -> None:
    """In percent of each bound, or in the reading's unit; and they come out of a control event again."""
    found = load([{"awareness": {"bandwidth": {"maximum": 3750, "margin": written, "for": "3 s"}}}]).settings
    assert (Awareness("bandwidth", BOUNDS, margin, relative, 3.0),) == found.space.modules
    [change] = changes(to_event(SettingsChange(found), "x", "s"), Settings())
    assert SettingsChange(found) == change


def test_the_time_of_a_reading_is_that_of_its_event() -> None:
    """The event's own, which is not after its acceptance."""
    event = to_event(ClientChange("a", readings={"bandwidth": 1}), "x", "s", datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC))
    [change] = changes(event, Settings())
    assert isinstance(change, ClientChange) and 2 * SECOND == change.moment
