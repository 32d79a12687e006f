"""The plain evaluator: what semantics §2 and §4 say of atoms, logic and location terms."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import pytest

from nearcast.errors import Mark
from nearcast.filters.evaluate import NO_CONTEXT, EmptyContext, satisfies, truth
from nearcast.language.cql2 import parse
from nearcast.model.event import Event, Place
from nearcast.model.filter import Atom, Operator, PlainNot
from nearcast.model.values import Value

HERE = Mark("here")
NAN = float("nan")


def event(*attributes: tuple[str, Value], place: Place | None = None) -> Event:
    return Event("e", "t", "s", place=place, attributes=attributes)


def holds(text: str, *attributes: tuple[str, Value]) -> bool | None:
    return truth(parse(text, HERE), event(*attributes), NO_CONTEXT)


@pytest.mark.parametrize(
    ("expected", "text", "value"),
    [
        (False, "a = 9007199254740992", 2**53 + 1),
        (True, "a = 9007199254740993", 2**53 + 1),
        (False, "a = 9007199254740993", 2**53),
        (True, "a = 2", 2.0),
        (True, "a = 0", -0.0),
        (None, "a = 1", True),
        (None, "a = TRUE", 1),
        (None, "a = 1", "1"),
        (None, "a <> '1'", 1),
        (True, "a < 'b'", "Z"),
        (True, "a <> 1", NAN),
        (False, "a = 1", NAN),
        (False, "a < 1", NAN),
        (False, "a >= 1", NAN),
        (True, "NOT (a < 1)", NAN),
        (False, "a IN (1, 2)", NAN),
        (True, "a IN (1, 'x')", 1),
        (None, "a IN (1, 2)", "x"),
        (True, "a BETWEEN 1 AND 3", 3),
        (False, "a BETWEEN 3 AND 1", 2),
        (None, "a BETWEEN 1 AND 3", "2"),
        (True, "a LIKE 'x%'", "xyz"),
        (None, "a LIKE '1%'", 1),
        (True, "a > TIMESTAMP('2026-01-01T00:00:00Z')", "2026-01-01T02:00:00+01:00"),
        (None, "a > TIMESTAMP('2026-01-01T00:00:00Z')", "tomorrow"),
    ],
)
def test_how_one_value_compares(expected: bool | None, text: str, value: Value) -> None:
    """Numbers exactly, no other two types at all; NaN satisfies only `<>`."""
    assert expected is holds(text, ("a", value))


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (True, "a = 2"),
        (False, "a = 3"),
        (False, "NOT (a = 2)"),
        (True, "NOT (a = 3)"),
        (True, "a <> 2"),
        (None, "b = 1"),
        (None, "NOT (b = 1)"),
        (None, "b = 1 AND a = 2"),
        (False, "b = 1 AND a = 3"),
        (True, "b = 1 OR a = 2"),
        (None, "b = 1 OR a = 3"),
        (True, "b IS NULL"),
        (False, "a IS NULL"),
        (True, "a IS NOT NULL"),
    ],
)
def test_repeated_and_missing_names(expected: bool | None, text: str) -> None:
    """An atom holds for at least one value, NOT for none; what is missing is UNKNOWN, as in SQL."""
    assert expected is holds(text, ("a", 1), ("a", 2))


def test_the_plain_negation_holds_where_its_atom_is_unknown() -> None:
    """The thesis' NOT, of its XML form, is never UNKNOWN."""
    missing = PlainNot(Atom("b", Operator.EQ, 1))
    assert truth(missing, event(("a", 1)), NO_CONTEXT) is True
    assert truth(missing, event(("b", 1)), NO_CONTEXT) is False


def test_an_events_own_attributes_go_before_data_of_the_same_name() -> None:
    """`type` is the event's, unless it has none of that name."""
    assert holds("type = 't'", ("type", "other")) is True
    assert holds("subject = 'data'", ("subject", "data")) is True


class Map(EmptyContext):
    """Where users and entities are."""

    def __init__(self, users: dict[str, Place], entities: Iterable[Event] = ()) -> None:
        self._users, self._entities = users, list(entities)

    def user(self, name: str) -> Place | None:
        return self._users.get(name)

    def entities(self) -> Iterable[Event]:
        return self._entities


def at(x: float, y: float, z: float | None = None) -> Place:
    return Place("planar", x, y, z)


def foe(x: float | None) -> Event:
    return event(("affiliation", "H"), place=None if x is None else at(x, 0))


@pytest.mark.parametrize(
    ("expected", "text", "around"),
    [
        (True, "distance(user('u'), this) <= 150", Map({"u": at(150, 0)})),
        (False, "distance(user('u'), this) <= 150", Map({"u": at(150.1, 0)})),
        (None, "distance(user('u'), this) <= 150", Map({})),
        (None, "distance(user('u'), this) <= 150", Map({"u": Place("geographic", 0, 0)})),
        (True, "distance(uform(affiliation = 'H'), this) <= 150", Map({}, [foe(1000), foe(100), foe(None)])),
        (True, "distance(uform(affiliation = 'H'), this) > 150", Map({}, [foe(1000), foe(100)])),
        (None, "distance(uform(affiliation = 'F'), this) <= 150", Map({}, [foe(100)])),
        (True, "count(uform(affiliation = 'H')) = 3", Map({}, [foe(1), foe(1000), foe(None)])),
        (True, "count(uform(affiliation = 'H'), user('u'), 150) = 1", Map({"u": at(0, 0)}, [foe(100), foe(1000)])),
        (True, "count(uform(affiliation = 'H'), user('u'), 150) <= 3", Map({"u": at(0, 0)})),
        (None, "count(uform(affiliation = 'H'), user('u'), 150) <= 3", Map({}, [foe(100)])),
    ],
)
def test_location_terms(expected: bool | None, text: str, around: Map) -> None:
    """A distance holds for some pair; where nobody knows a place, nothing holds."""
    assert expected is truth(parse(text, HERE), event(place=at(0, 0)), around)


def test_an_event_without_a_position_is_near_nothing() -> None:
    """Nor is it far."""
    around = Map({"u": at(0, 0)})
    for text in ("distance(user('u'), this) <= 150", "distance(user('u'), this) > 150"):
        assert truth(parse(text, HERE), event(), around) is None


def test_nothing_lies_between_bounds_of_two_kinds() -> None:
    """Though a text that names a moment compares with a time and with a text."""
    noon = "2026-01-01T12:00:00Z"
    atom = Atom("size", Operator.BETWEEN, (datetime(2026, 1, 1, 12, tzinfo=UTC), "a"))
    assert satisfies(atom, noon) is None
