"""Explanations: what held, at which level and priority, and why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.cli.explain_text import as_data, as_text
from nearcast.errors import Mark
from nearcast.explain.delivery_status import DeliveryStatus, delivery_statuses, undelivered
from nearcast.explain.explanation import AtomFinding, ExplanationScene, explain
from nearcast.explain.state_at import PastState, state_at
from nearcast.explain.why_not import observed, why_not
from nearcast.language.control_events import changes, to_event
from nearcast.language.cql2 import parse, write
from nearcast.model.changes import (
    Change,
    ClientChange,
    ClientRemoval,
    SettingsChange,
    SubscriptionChange,
    SubscriptionRemoval,
)
from nearcast.model.columns import DELIVERIES, OUTCOMES
from nearcast.model.context import Awareness, ContextSpace, restriction_matrix
from nearcast.model.event import Event, Place
from nearcast.model.limits import Limits
from nearcast.model.subscription import Roles, Settings, Subscription
from nearcast.model.values import Value, microseconds_of
from nearcast.state.registry import Registry
from tests.random_filters import events
from tests.stages.test_stages import all_settings, as_table, every_change, plainly

HERE = Mark("here")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SPACE = ContextSpace((Awareness("bandwidth", (1250.0, 2500.0)),))
ANN = ClientChange("ann")


def event(*attributes: tuple[str, Value], place: Place | None = None) -> Event:
    return Event("e", "t", "s", attributes=attributes, place=place)


def subscribed(id: str, text: str, *relevance: float) -> SubscriptionChange:
    return SubscriptionChange(Subscription(id, ("ann",), parse(text, HERE), relevance or None))


def around(history: Sequence[Event | Change], position: int, stretch: int = 3) -> PastState:
    table = as_table(history)
    return state_at((table.slice(start, stretch) for start in range(0, len(table), stretch)), position, changes)


def reasons(*history: Event | Change, at: int | None = None, name: str = "ann") -> list[str]:
    """Why a client does not get the event at a position, the last one unless given."""
    found = around(history, at or len(history))
    return why_not(explain(found.scene, name), found, write)


def atoms_of(text: str, told: Event, *history: Event | Change) -> tuple[AtomFinding, ...]:
    found = around([ANN, *history, subscribed("s", text), told], len(history) + 3)
    return explain(found.scene, "ann").subscriptions[0].atoms


def test_a_class_that_is_held_is_told() -> None:
    """Which class the reading has by itself, and since when it is beyond the margin, if it is."""
    module = Awareness("bandwidth", (1250.0, 2500.0), 5, True, 3)
    held = SettingsChange(Settings(space=ContextSpace((module,))))
    fast, slow = (to_event(ClientChange("ann", readings={"bandwidth": one}), "c", "s", NOON) for one in (3000, 2400))
    for expected, reading in (("within the margin", slow), ("beyond the margin since 2026-01-01T12:00:00.000Z", None)):
        reading = reading or to_event(ClientChange("ann", readings={"bandwidth": 100}), "c", "s", NOON)
        found = explain(around([held, fast, reading, subscribed("s", "a = 1"), event(("a", 1))], 5).scene, "ann")
        [own] = found.modules
        assert (2, 2) == (own.context_class, found.context_class) and own.alone < 2
        assert expected in as_text(found, [], None)


def test_a_reading_that_lapsed_is_told() -> None:
    """Since when it is unknown, of when it was, and for how long it was valid."""
    module = Awareness("bandwidth", (1250.0, 2500.0), valid=600.0)
    settings = SettingsChange(Settings(space=ContextSpace((module,))))
    slow = to_event(ClientChange("ann", readings={"bandwidth": 100}), "c", "s", NOON)
    lapse = ClientChange("ann", lapsed={"bandwidth": microseconds_of(NOON)})
    found = explain(around([settings, slow, lapse, subscribed("s", "a = 1"), event(("a", 1))], 5).scene, "ann")
    told, read = as_text(found, [], None), "the reading of 2026-01-01T12:00:00.000Z was valid for 10 min"
    assert f"bandwidth unknown since 2026-01-01T12:10:00.000Z, {read}; counts as the best: class 2" in told
    assert [None, "2026-01-01T12:00:00.000Z"] == [
        as_data(found, [], None)["modules"][0][name] for name in ("reading", "lapsed")
    ]


def test_what_takes_too_much_work_is_told() -> None:
    """The atom is UNKNOWN, and the limit is named; under the settings as they were then."""
    shape = '{"type": "Polygon", "coordinates": [[[0, 0], [2, 0], [2, 2], [0, 0]]]}'
    text = "S_INTERSECTS(area, POLYGON((0 0, 1 0, 1 1, 0 0)))"
    allowed = replace(Settings(), limits=Limits(geometry_work=100))
    [free] = atoms_of(text, event(("area", shape)))
    [bound] = atoms_of(text, event(("area", shape)), SettingsChange(allowed))
    assert (True, "") == (free.truth, free.unknown)
    assert bound.truth is None
    assert "comparing its geometries takes more than 100 units of work (limit geometry_work)" == bound.unknown


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(events(), events(), every_change), max_size=14), st.data())
def test_an_explanation_tells_what_is_decided(history: list[Event | Change], data: st.DataObject) -> None:
    """The same subscription, level and priority for every event and client of any history, and a reason where none."""
    story = [SettingsChange(data.draw(all_settings())), ANN, *history]
    decided = {key: outcome[:3] for key, outcome in plainly(story).items()}
    stretch = data.draw(st.sampled_from([1, 4, 100]))
    for position, item in enumerate(story, 1):
        if not isinstance(item, Event):
            continue
        for name in ("ann", "bob"):
            then = around(story, position, stretch)
            found = explain(then.scene, name)
            told = None if found.chosen is None else (found.chosen, found.level, found.priority)
            assert decided.get((position, name)) == told
            assert bool(why_not(found, then, write)) == (found.priority is None or found.priority < 0)


def test_every_step_of_the_way_is_told() -> None:
    """Atoms, level, reading, context class, matrix row and priority."""
    history = [
        SettingsChange(Settings(space=SPACE)),
        ClientChange("ann", role="boss", readings={"bandwidth": 195.6}),
        subscribed("s", "a = 1 OR b > 2", 1, 0.5),
        event(("a", 2), ("b", 3)),
    ]
    found = explain(around(history, 4).scene, "ann")
    assert [("bandwidth", 195.6, 0)] == [(m.name, m.reading, m.context_class) for m in found.modules]
    assert (0, (2, 1, 0), "boss", None) == (found.context_class, found.row, found.role, found.task)
    assert ("s", 1, 1) == (found.chosen, found.level, found.priority)
    told = [(write(one.atom), one.relevance, one.truth, one.values) for one in found.subscriptions[0].atoms]
    assert [("a = 1", 2, False, (2,)), ("b > 2", 1, True, (3,))] == told


def test_the_state_is_that_of_the_events_position() -> None:
    """What changed later is not seen."""
    history = [SettingsChange(Settings(space=SPACE)), ANN, subscribed("s", "a = 1", 0.3), event(("a", 1))]
    later = [ClientChange("ann", readings={"bandwidth": 1}), SubscriptionRemoval("s")]
    found = explain(around([*history, *later], 4).scene, "ann")
    assert ("s", 0, 0) == (found.chosen, found.level, found.priority)
    assert found.modules[0].reading is None


def test_a_late_event_is_told_as_such() -> None:
    """Another of its entity was known that is of a later moment; that one counts for what comes."""
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    newer = replace(event(("a", 1)), time=noon.replace(hour=13))
    late = replace(event(("a", 2)), time=noon)
    found = explain(around([ANN, subscribed("s", "CHANGED(a)"), newer, late], 4).scene, "ann")
    assert found.newer and 3 == found.newer.position
    assert (None, "s") == (explain(around([ANN, newer, newer], 3).scene, "ann").newer, found.chosen)
    told = as_text(found, [], None).splitlines()
    assert "  late: one of 2026-01-01T13:00:00.000Z, at position 3, was known already; this one" in told[1]


@pytest.mark.parametrize(("minutes", "said"), [(59, 0), (60, 1)])
def test_of_a_clock_that_fell_back_it_says_so(minutes: int, said: int) -> None:
    """From an hour on; what is less late is only late."""
    newer = replace(event(("a", 1)), time=datetime(2026, 1, 1, 13, tzinfo=UTC))
    late = replace(event(("a", 2)), time=datetime(2026, 1, 1, 13, tzinfo=UTC) - timedelta(minutes=minutes))
    found = explain(around([ANN, newer, late], 3).scene, "ann")
    text = as_text(found, [], None)
    assert said == text.count("  late by 1:00:00: its sender's clock fell back, or it was kept back for so long\n")
    data = as_data(found, [], None)
    assert (60.0 * minutes, bool(said)) == (data["late_by"], data["clock_fell_back"])


def test_the_default_role_is_told() -> None:
    """A client that states no role has the default one."""
    roles = Roles({("boss", "attack"): {"s": (0.5,)}}, ("boss", "attack"))
    history = [SettingsChange(Settings(roles=roles)), ANN, subscribed("s", "a = 1"), event(("a", 1))]
    found = explain(around(history, 4).scene, "ann")
    assert ("boss", "attack", 1) == (found.role, found.task, found.level)
    assert found.subscriptions[0].by_role


@pytest.mark.parametrize(
    ("expected", "text", "told"),
    [
        ("the value was 101", "size <= 100", event(("size", 101))),
        ("the values were 101, 'x'", "size <= 100", event(("size", 101), ("size", "x"))),
        ("the event has no size", "size <= 100", event()),
        ("the value and the literal are of types that do not compare", "size <= 100", event(("size", "1"))),
        ("there was no value", "size IS NULL", event()),
        ("the event has no position", "distance(this, POINT(0 0)) < 9", event()),
        ("nobody knows where user 'ann' was", "distance(this, user('ann')) < 9", event(place=Place("planar", 0, 0))),
        ("the count was 0", "count(uform(size = 1)) > 0", event()),
        ("no such entity with a known position", "count(uform(a = 1), uform(b = 1), 9) > 0", event()),
        (
            "one place is planar, the other geographic",
            "distance(this, POINT(0 0)) < 9",
            event(place=Place("planar", 0, 0)),
        ),
    ],
)
def test_what_made_an_atoms_truth(expected: str, text: str, told: Event) -> None:
    """The values, or why there are none."""
    assert expected == observed(atoms_of(text, told)[0])


def test_the_nearest_distances_are_told() -> None:
    """Of many, the three least."""
    units = [Event(str(x), "u", str(x), place=Place("planar", x, 0)) for x in (400, 100, 300, 200)]
    told = event(place=Place("planar", 0, 0))
    (found,) = atoms_of("distance(uform(type = 'u'), this) < 50", told, *units)
    assert (100, 200, 300) == found.values
    assert observed(found) == "the nearest were 100.0 m, 200.0 m, 300.0 m"


def blocked(text: str, *relevance: float) -> list[str]:
    """The atoms that keep a filter from selecting an event with a = 1, b = 1 and no c."""
    history = [ANN, subscribed("s", text, *relevance), event(("a", 1), ("b", 1))]
    found = explain(around(history, 3).scene, "ann").subscriptions[0]
    return [write(one.atom) for one in found.atoms if one.blocked]


def test_only_the_atoms_that_matter_are_blamed() -> None:
    """Those that held, and alternatives of what held, are not."""
    assert ["a = 2"] == blocked("a = 2 AND b = 1")
    assert ["a = 2", "c = 1"] == blocked("a = 2 OR c = 1")
    assert ["c = 1"] == blocked("(a = 2 OR b = 1) AND c = 1")
    assert ["a = 1"] == blocked("NOT (a = 1) AND b = 1")
    assert ["c = 1"] == blocked("NOT (c = 1)")
    assert [] == blocked("a = 2 OR b = 1")
    assert ["a = 2"] == blocked("a = 2 OR b = 1", 1, 0)


def test_why_an_atom_kept_the_subscription_from_selecting() -> None:
    """Its text, its truth, and what made it so."""
    history = [ANN, subscribed("s", "size <= 100 AND kind = 'x'"), event(("size", 101))]
    expected = "subscription s: size <= 100 was false: the value was 101; kind = 'x' was unknown: the event has no kind"
    assert [expected] == reasons(*history)


@pytest.mark.parametrize(
    ("truth", "said", "text"),
    [
        (True, "a was 1, b were 2, 3", "a < b"),
        (False, "a was 1, PREVIOUS(a) was 1", "CHANGED(a)"),
        (None, "the values are of types that do not compare, or the arithmetic has no result: a was 1", "a / 0 > 1"),
        (None, "there was no c: a was 1, c was not there", "a + c = 2"),
        (None, "there was no c", "CASEI(c) = 'x'"),
        (True, "geom was 'POINT (5.0 6.0)'", "S_WITHIN(geom, BBOX(0, 0, 9, 9))"),
        (
            None,
            "there was no user('bob'): geom was 'POINT (5.0 6.0)', user('bob') was not there",
            "S_DWITHIN(geom, user('bob'), 5)",
        ),
        (True, "it is the same for every event", "1 = 1"),
    ],
)
def test_a_computed_atom_shows_what_it_read(truth: bool | None, said: str, text: str) -> None:
    """Every attribute by its name, of the previous event too, and positions."""
    place = Place("geographic", 5.0, 6.0)
    (found,) = atoms_of(text, event(("a", 1), ("b", 2), ("b", 3), place=place), event(("a", 1)))
    assert (truth, said) == (found.truth, observed(found))


def test_a_computed_atom_without_a_previous_event() -> None:
    """It says of which entity there was none."""
    (found,) = atoms_of("CHANGED(a)", event(("a", 1)))
    assert "there was no event before it of s: a was 1, PREVIOUS(a) was not there" == observed(found)


def test_why_relevance_0_kept_it_from_selecting() -> None:
    """Of all atoms, or of one that held."""
    told = event(("a", 1), ("b", 1))
    assert ["subscription s: its relevance gives every atom relevance 0"] == reasons(
        ANN, subscribed("s", "a = 1", 0), told
    )
    roles = SettingsChange(Settings(roles=Roles({("boss", "day"): {"s": (0,)}}, ("boss", "day"))))
    assert ["subscription s: the role and task give every atom relevance 0"] == reasons(
        roles, ANN, subscribed("s", "a = 1"), told
    )
    expected = "subscription s: a = 2 was false: the value was 1; relevance 0 leaves out b = 1, which held"
    assert [expected] == reasons(ANN, subscribed("s", "a = 2 OR b = 1", 1, 0), told)


def test_why_it_is_withheld() -> None:
    """Priority −1, by which row."""
    history = [
        SettingsChange(Settings(space=SPACE, matrix=restriction_matrix(3))),
        ClientChange("ann", readings={"bandwidth": 100}),
        subscribed("s", "a = 1", 0.5),
        event(("a", 1)),
    ]
    (reason,) = reasons(*history)
    assert reason.startswith("withheld: context class 0 has -1 for level 1")


def test_why_a_client_was_not_there() -> None:
    """It came after the event, had been removed, or never came."""
    told, later = event(("a", 1)), ClientChange("ann")
    assert ["the client was not known then: it came at position 2, after the event"] == reasons(told, later, at=1)
    assert ["the client was not known then: it was removed at position 2"] == reasons(ANN, ClientRemoval("ann"), told)
    assert ["the client was not known then, nor has it come since"] == reasons(told)


def test_why_a_subscription_was_not_there() -> None:
    """It came after the event, had ended, or there is none."""
    told, s = event(("a", 1)), subscribed("s", "a = 1")
    assert ["subscription s: it came at position 3, after the event"] == reasons(ANN, told, s, at=2)
    assert ["subscription s: it ended at position 3, before the event"] == reasons(
        ANN, s, SubscriptionRemoval("s"), told
    )
    assert ["no subscription names this client"] == reasons(ANN, told)


def test_why_an_event_that_changes_the_system_reaches_nobody() -> None:
    """Nobody can subscribe to it."""
    (reason,) = reasons(ANN, subscribed("s", "a = 1"), ClientChange("bob"))
    assert "changes the system" in reason


def test_a_registry_may_be_there_before_the_first_event() -> None:
    """As definitions put it beside files of events."""
    registry = Registry()
    for change in (ANN, subscribed("s", "a = 1")):
        registry.apply(change)
    found = state_at([as_table([event(("a", 1))])], 1, changes, registry)
    assert explain(found.scene, "ann").chosen == "s"


def test_atoms_are_looked_at_once_for_all_clients() -> None:
    """What clients share is the same object."""
    both = SubscriptionChange(Subscription("s", ("ann", "bob"), parse("a = 1", HERE)))
    scene = ExplanationScene(
        around([ANN, ClientChange("bob"), both, event(("a", 1))], 4).scene.registry, [], event(("a", 1))
    )
    assert scene.atoms(both.subscription) is scene.atoms(both.subscription)


def moment(second: int) -> datetime:
    return datetime(2026, 1, 1, second=second, tzinfo=UTC)


DELIVERED = pa.Table.from_pylist(
    [{"position": 5, "part": 0, "client": name, "subscription": "s", "level": 2} for name in ("ann", "bob")], DELIVERIES
)


def outcomes(**more: object) -> pa.Table:
    row = {
        "position": 1,
        "client": "ann",
        "event": 5,
        "part": 0,
        "outcome": "acknowledged",
        "priority": 1,
        "attempts": 2,
    }
    return pa.Table.from_pylist(
        [{**row, "queued": moment(2), "sent": moment(3), "settled": moment(4), **more}], OUTCOMES
    )


def test_what_became_of_a_delivery() -> None:
    """Its outcome if there is one, for this event and client; else it waits."""
    told = replace(event(), position=5, accepted=moment(1))
    found = delivery_statuses(told, DELIVERED, [outcomes(event=4, outcome="expired"), outcomes()], 9)
    times = moment(1), moment(2), moment(3), moment(4)
    assert DeliveryStatus("acknowledged", 9, "s", 2, 1, 2, *times) == found["ann"]
    assert DeliveryStatus("waiting", 9, "s", 2, accepted=moment(1)) == found["bob"]


def test_without_a_delivery_an_event_is_decided_or_not_yet() -> None:
    """The end of the log of deliveries tells."""
    told = replace(event(), position=5)
    assert DeliveryStatus("undecided", 4) == undelivered(told, 4)
    assert DeliveryStatus("none", 5) == undelivered(told, 5)


def test_no_outcomes_are_read_where_there_is_no_delivery() -> None:
    """A long log is not searched for nothing, nor beyond the last that was looked for."""
    told = replace(event(), position=5)
    assert {} == delivery_statuses(told, DELIVERED.slice(0, 0), iter([None]), 9)  # type: ignore[list-item]
    tables = iter([outcomes(), outcomes(client="bob"), None])
    delivery_statuses(told, DELIVERED, tables, 9)  # type: ignore[arg-type]
    assert next(tables) is None
