"""What few events make of definitions without deciding them is what deciding them says."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.language.checks.definition_use import DefinitionUse
from nearcast.language.checks.sure_use import LOOKS, sure_use
from nearcast.language.definitions.files import load
from nearcast.model.event import MAIN, Event, Place

ATOMS = st.sampled_from(
    [
        "type = 't'",
        "type = 'nearcast.situation'",
        "x > 1",
        "y = 'a'",
        "x + 1 > 2",
        "y IS NULL",
        "distance(user('c'), this) <= 10",
        "distance(user('nobody'), this) <= 10",
        "distance(me, this) <= me.reach",
        "distance(me, this) <= me.unknown",
        "CHANGED(x)",
        "count(uform(type = 't'), this, 10) >= 1",
    ]
)
FILTERS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda two: f"({two[0]} AND {two[1]})"),
        st.tuples(inner, inner).map(lambda two: f"({two[0]} OR {two[1]})"),
        inner.map(lambda one: f"NOT {one}"),
    ),
    max_leaves=4,
)
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["t", "u"]),
        st.sampled_from(["a", "b"]),
        st.sampled_from([0, 1, 2, None]),
        st.sampled_from(["a", "b", None]),
        st.sampled_from([0.0, 100.0]),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(FILTERS, min_size=1, max_size=2), EVENTS, st.booleans())
def test_what_is_sure_is_what_deciding_says(
    filters: list[str], given: list[tuple[str, str, int | None, str | None, float]], relation: bool
) -> None:
    """Of subscriptions and of relations."""
    found = load(
        [
            {
                "clients": [{"id": "c", "position": {"x": 0, "y": 0}, "readings": {"reach": 5}}],
                "subscriptions": [{"id": f"s{n}", "client": "c", "filter": one} for n, one in enumerate(filters)],
                "relations": [{"id": "r", "a": "type = 't'", "b": "y = 'a'", "when": "distance(a, b) < 1"}] * relation,
            }
        ]
    )
    events = [
        Event(
            str(number),
            type,
            "s",
            entity,
            place=Place("planar", at, 0.0),
            attributes=tuple((name, value) for name, value in (("x", x), ("y", y)) if value is not None),
        )
        for number, (type, entity, x, y, at) in enumerate(given)
    ]
    use = DefinitionUse(found, MAIN)
    use.include(events)
    assert sure_use(found, events) in (None, (use.subscriptions, use.relations))


def test_much_is_sure() -> None:
    """What is about the event alone is; what is about anything else is where the rest says enough."""
    found = load(
        [
            {
                "clients": [{"id": "c", "position": {"x": 0, "y": 0}}, {"id": "far", "position": {"x": 99, "y": 0}}],
                "subscriptions": [
                    {"id": "yes", "client": "c", "filter": "x > 1"},
                    {"id": "no", "client": "c", "filter": "x > 2 AND count(uform(type = 't'), this, 10) >= 1"},
                    {"id": "near", "clients": ["c", "far"], "filter": "distance(me, this) <= 10"},
                ],
            }
        ]
    )
    here = Event("1", "t", "s", "e", place=Place("planar", 0.0, 0.0), attributes=(("x", 2),))
    assert ({"yes", "near"}, set()) == sure_use(found, [here])
    there = replace(here, place=Place("planar", 50.0, 0.0))
    assert ({"yes"}, set()) == sure_use(found, [there])
    assert None is sure_use(found, [Event("2", "t", "s", "e", attributes=(("x", 3),))])


def test_a_fleet_is_decided() -> None:
    """One by one it would take longer."""
    names = [f"c{number}" for number in range(LOOKS // 10 + 1)]
    found = load(
        [
            {
                "clients": [{"id": name, "position": {"x": 0, "y": 0}} for name in names],
                "subscriptions": [{"id": "near", "clients": names, "filter": "distance(me, this) <= 10"}],
            }
        ]
    )
    here = Event("1", "t", "s", "e", place=Place("planar", 0.0, 0.0))
    assert ({"near"}, set()) == sure_use(found, [here] * 9)
    assert None is sure_use(found, [here] * 10)
