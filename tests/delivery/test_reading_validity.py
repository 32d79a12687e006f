"""Readings that are valid for a stated time: the fold of readings and of what withdraws them (semantics §3)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nearcast.delivery.priority import priority
from nearcast.language.control_events import changes, to_event
from nearcast.language.definitions.client_documents import client_data
from nearcast.language.definitions.files import load
from nearcast.model.changes import Change, ClientChange, ClientRemoval, SettingsChange
from nearcast.model.context import Awareness, ContextSpace
from nearcast.model.subscription import ClientProfile, Settings
from nearcast.state.registry import UNKNOWN_MOMENT, Registry

BOUNDS = (1250.0, 2500.0)
VALID = Awareness("bandwidth", BOUNDS, valid=600.0)


def settings(module: Awareness = VALID) -> SettingsChange:
    return SettingsChange(Settings(space=ContextSpace((module,))))


def said(moment: int | None, bandwidth: float | None) -> ClientChange:
    return ClientChange("a", readings={"bandwidth": bandwidth}, moment=moment)


def lapse(moment: int) -> ClientChange:
    return ClientChange("a", lapsed={"bandwidth": moment})


def folded(*told: Change) -> Registry:
    registry = Registry()
    for change in told:
        registry.apply(change)
    return registry


def test_a_reading_that_lapsed_is_as_if_it_had_never_been_given() -> None:
    """Priorities are those without it, held classes too; what is kept is of when it was."""
    held = Awareness("bandwidth", BOUNDS, 5, True, valid=600.0)
    for module in (VALID, held):
        registry = folded(settings(module), said(7, 100))
        assert 2 == priority(registry.settings, registry.clients["a"], 0)
        registry.apply(lapse(7))
        found = registry.clients["a"]
        assert ({}, {}, {"bandwidth": 7}) == (found.readings, found.classes, found.lapsed())
        assert 0 == priority(registry.settings, found, 0)


def test_a_newer_reading_is_not_withdrawn() -> None:
    """The withdrawal names the moment of the reading, whichever of the two comes first."""
    for told in ((said(7, 100), said(8, 200), lapse(7)), (said(7, 100), lapse(7), said(8, 200))):
        assert {"bandwidth": 200} == folded(settings(), *told).clients["a"].readings


def test_what_lapses_of_a_client_that_was_removed_does_not_declare_it() -> None:
    """Neither after it went nor before it came."""
    assert {} == folded(settings(), said(7, 100), ClientRemoval("a"), lapse(7)).clients
    again = ClientChange("a", role="cook", lapsed={"bandwidth": 7})
    assert "cook" == folded(settings(), again).clients["a"].role


def test_a_reading_of_which_nobody_knows_when_it_was_can_be_withdrawn() -> None:
    """Such as one that was known before the settings had a validity."""
    registry = folded(settings(Awareness("bandwidth", BOUNDS)), said(7, 100), settings())
    assert {} == registry.clients["a"].moments
    registry.apply(lapse(UNKNOWN_MOMENT))
    assert {} == registry.clients["a"].readings


def test_without_a_validity_no_moments_are_kept() -> None:
    """And under settings that have none any more they go."""
    assert {} == folded(settings(Awareness("bandwidth", BOUNDS)), said(7, 100)).clients["a"].moments
    assert {} == folded(settings(), said(7, 100), settings(Awareness("bandwidth", BOUNDS))).clients["a"].moments


def test_definitions_have_a_validity() -> None:
    """It comes out of a control event again."""
    found = load([{"awareness": {"bandwidth": {"intervals": list(BOUNDS), "for": "3 s", "valid": "10 min"}}}]).settings
    assert (Awareness("bandwidth", BOUNDS, lasting=3.0, valid=600.0),) == found.space.modules
    assert [SettingsChange(found)] == changes(to_event(SettingsChange(found), "x", "s"), Settings())


def test_a_client_shows_what_lapsed() -> None:
    """By the time of the reading; who says that again withdraws none that came since."""
    shown = client_data(folded(settings(), said(7_000_000, 100), lapse(7_000_000)).clients["a"])
    assert {"id": "a", "lapsed": {"bandwidth": "1970-01-01T00:00:07Z"}} == shown
    assert {"id": "a", "readings": {"bandwidth": 1.0}} == client_data(ClientProfile("a", readings={"bandwidth": 1.0}))


STEPS = st.lists(
    st.tuples(st.just("said"), st.integers(1, 5), st.none() | st.integers(0, 3000))
    | st.tuples(st.just("lapse"), st.integers(1, 5), st.none())
    | st.tuples(st.just("cut"), st.just(0), st.none()),
    max_size=25,
)


@given(STEPS)
def test_any_order_of_readings_lapses_and_cuts_is_the_plain_reference(
    steps: list[tuple[str, int, int | None]],
) -> None:
    """What was said last is known, unless the last reading is withdrawn by its moment; snapshots change nothing."""
    registry = folded(settings())
    value: int | None = None
    moment = 0
    for kind, at, reading in steps:
        if kind == "said":
            registry.apply(said(at, reading))
            value, moment = reading, at
        elif kind == "lapse":
            registry.apply(lapse(at))
            value = None if at == moment else value
        else:
            registry = _written(registry)
        known = registry.clients.get("a")
        assert value == (known.readings.get("bandwidth") if known else None)


def _written(registry: Registry) -> Registry:
    """A registry out of the control events that another one is written as."""
    found = Registry()
    for change in registry.changes():
        for again in changes(to_event(change, "x", "s"), found.settings):
            found.apply(again)
    assert registry == found
    return found
