"""Events as Arrow columns."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.columns import EVENTS, entered_events, to_events, to_table
from nearcast.model.event import Event, Place
from nearcast.model.values import time_of

MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
VALUES = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(),
    MOMENTS,
    MOMENTS.map(datetime.isoformat),
)
PLACES = st.builds(Place, st.sampled_from(["planar", "geographic"]), st.floats(-90, 90), st.floats(-90, 90))
EVENT = st.builds(
    Event,
    st.text(min_size=1),
    st.text(min_size=1),
    st.text(min_size=1),
    st.none() | st.text(min_size=1),
    st.none() | MOMENTS,
    st.none() | PLACES,
    st.lists(st.tuples(st.text(), VALUES), max_size=6).map(tuple),
    st.binary(max_size=9),
)


@given(st.lists(EVENT, max_size=5))
def test_what_goes_in_comes_out(events: list[Event]) -> None:
    """Of any attributes: typed values, in their order, a text that names a moment as the text that it is."""
    table = to_table(events)
    assert EVENTS == table.schema
    assert events == to_events(table)


def test_a_text_that_names_a_moment_has_it_beside() -> None:
    """And nothing else has two values."""
    text = "2020-01-31T12:00:00Z"
    [row] = to_table([Event("1", "t", "s", attributes=(("a", text), ("b", True), ("c", 1)))]).to_pylist()
    empty = dict.fromkeys(("integer", "double", "text", "boolean", "time"))
    expected = [
        {"name": "a", **empty, "text": text, "time": time_of(text)},
        {"name": "b", **empty, "boolean": True},
        {"name": "c", **empty, "integer": 1},
    ]
    assert expected == row["attributes"]


class Colour(StrEnum):
    """A text that is more than a text."""

    RED = "red"


def test_values_of_derived_types_are_what_they_are_derived_from() -> None:
    """As other libraries and enumerations have them."""
    [found] = to_events(to_table([Event("1", "t", "s", attributes=(("a", np.float64(0.5)), ("b", Colour.RED)))]))
    assert (("a", 0.5), ("b", "red")) == found.attributes


def test_events_enter_at_a_node() -> None:
    """All of them, whatever they said before."""
    events = [Event("1", "t", "s"), Event("2", "t", "s", node="there")]
    assert ["here", "here"] == entered_events(events, "here").column("node").to_pylist()
    assert [None, "there"] == to_table(events).column("node").to_pylist()
