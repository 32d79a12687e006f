"""Events of a batch read in columns: what is read there is what reading them one by one gives."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import EventError, Fault, Mark
from nearcast.language.alike_events import ALIKE_EVENTS, AlikeReader
from nearcast.language.cloudevents import MAX_ATTRIBUTES, EventReader
from nearcast.model.columns import entered_events
from nearcast.model.subscription import Channel

HERE = Mark("request")
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
NAMES = 40
"""Characters of a name at most."""

CHANNELS = (
    Channel("field", "planar", ("unit",)),
    Channel("sea", "geographic", ("ship",), entity="source and subject"),
    Channel("rest", "geographic"),
)

Pools = tuple[tuple[Any, ...], ...]
"""Values of which the column of a name may be, mostly plain ones of a kind."""

TIMES: Pools = (
    ("2026-05-01T11:59:59Z", "2026-05-01T11:59:59.5Z", "2026-05-01T11:59:59.123456Z", "2026-05-01T14:00:00+02:00"),
    ("2026-05-01T11:59:59Z", None),
    ("2026-05-01t11:59:59z",),
    ("2026-05-01T11:59:59.1234567Z",),
    ("2025-12-31T23:59:60Z",),
    ("1000-01-01T00:00:00-14:59", "2026-05-02T11:59:59Z"),
    *((one,) for one in ("2026-02-30T00:00:00Z", "2026-05-01T24:00:00Z", "2026-05-09T00:00:00Z", "yesterday")),
    *((one,) for one in ("0000-01-01T00:00:00Z", "2026-05-01T11:59:59", "2026-05-01T11:59:59+25:00", "", 7, None)),
)
VALUES: Pools = (
    ("a", "b", ""),
    ("seen from the road, on the river", "seen"),
    ("2026-05-01T11:59:59Z", "2026-05-01 11:59:00", "2026-13-01T11:59:59Z"),
    (0, 1, -1, 2**53 + 1, 2**63 - 1, -(2**63)),
    (0.5, 0.0, -0.0, 1e300),
    (True, False),
    (None,),
    ("a", 1, 1.0, True, None),
    (2**63,),
    (-(2**63) - 1,),
    ([1, "a"], []),
    ({"a": 1}, 1),
    ({"type": "Point", "coordinates": [1, 2]},),
)
PLACES: Pools = (
    (0.5, 1.5, -0.0),
    (1, 2, 2**60),
    (90,),
    (90.0000000001,),
    (181.0,),
    (None,),
    (1, None),
    ("1",),
    (True,),
)
CONTEXT: dict[str, Pools] = {
    "specversion": (("1.0",), ("1.0",), ("0.3", "1.0"), (None,)),
    "id": (("1", "2", "3"), ("1", "2"), ("", "1"), ("i" * 41,), (7,)),
    "type": (
        *(("unit",), ("ship",), ("other",), ("unit", "ship"), ("other", "more")),
        *(("nearcast.client", "unit"), ("nearcast.relation",), ("",), ("t" * 41,), (3,)),
    ),
    "source": (("city",), ("city", "a b"), ("",), (None,)),
    "subject": (("u", "v"), ("u", None), (None,), ("",), (5,), ("s" * 41,)),
    "time": TIMES,
    "channel": (("field",), ("sea",), ("rest",), ("rest", "sea"), ("nowhere",), (None,), (1,)),
    "datacontenttype": (("application/json",), (1, "a")),
    "data_base64": ((None,), ("e30=",)),
    "extra": VALUES,
    "Extra": VALUES,
}
DATA: dict[str, Pools] = {
    **dict.fromkeys(("x", "y", "z", "lon", "lat", "alt"), PLACES),
    **dict.fromkeys(("kind", "size", "subject", "id", "channel", "data", "", "geometry", "n" * 38, "e" * 41), VALUES),
}
USUAL = ("specversion", "id", "type", "source")


@st.composite
def batches(draw: st.DrawFn) -> list[Any]:
    """Documents of one or two forms, and one or the other that is none."""
    documents: list[Any] = []
    for _ in range(draw(st.integers(1, 2))):
        count = draw(st.integers(ALIKE_EVENTS - 1, ALIKE_EVENTS + 1))
        more = draw(st.lists(st.sampled_from([*CONTEXT]), max_size=4))
        own = draw(_objects([*USUAL, *more], CONTEXT, count))
        names = draw(st.none() | st.lists(st.sampled_from([*DATA]), max_size=5))
        if names is not None:
            data = draw(_objects(names, DATA, count))
            own = [{**one, "data": other} for one, other in zip(own, data, strict=True)]
        documents += own
    documents += draw(st.lists(st.sampled_from((None, 7, [], "text", {}, {"data": None})), max_size=2))
    return draw(st.permutations(documents))


@st.composite
def _objects(draw: st.DrawFn, names: list[str], pools: dict[str, Pools], count: int) -> list[dict[str, Any]]:
    objects: list[dict[str, Any]] = [{} for _ in range(count)]
    for name in dict.fromkeys(names):
        # The first of them is what is usual.
        pool = draw(st.just(pools[name][0]) | st.sampled_from(pools[name]))
        for one, value in zip(
            objects, draw(st.lists(st.sampled_from(pool), min_size=count, max_size=count)), strict=True
        ):
            one[name] = value
    return objects


@given(batches(), st.sampled_from(((), CHANNELS)))
def test_what_is_read_in_columns_is_what_is_read_one_by_one(
    documents: list[Any], channels: tuple[Channel, ...]
) -> None:
    """Row by row, whatever else is in the batch; and none of it has a fault."""
    payloads = [b"%d" % index + b" " * NAMES for index in range(len(documents))]
    one_by_one = EventReader(channels, NOW, NAMES)
    seen: list[int] = []
    for indices, rows in AlikeReader(channels, NOW, "north", NAMES).read(documents, payloads):
        events = [one_by_one.read(documents[index], HERE, payloads[index]) for index in indices]
        assert entered_events(events, "north").equals(rows)
        assert repr(entered_events(events, "north").to_pylist()) == repr(rows.to_pylist())
        assert indices == sorted(indices)
        seen += indices
    assert len(seen) == len(set(seen))


def unit(number: int, **more: Any) -> dict[str, Any]:
    data = {"kind": "a", "n": number, "x": 1.5, "y": 2, **more.pop("data", {})}
    return {"specversion": "1.0", "id": str(number), "type": "unit", "source": "city", **more, "data": data}


def read(documents: list[Any], channels: tuple[Channel, ...] = CHANNELS, **more: Any) -> list[list[int]]:
    payloads = [*map(orjson.dumps, documents)]
    return [one.indices for one in AlikeReader(channels, NOW, "north", **more).read(documents, payloads)]


def test_ordinary_events_are_all_read_in_columns() -> None:
    """Of several forms, mixed; some without a value that others have."""
    times = ["2026-05-01T11:59:59.5Z", "2026-05-01T14:00:00+02:00"]
    units = [unit(number, time=times[number % 2], subject="u") for number in range(0, 40, 2)]
    ships = [
        {**unit(number, type="ship", channel="sea"), "data": {"lon": 11, "lat": 48.5, "speed": number or None}}
        for number in range(1, 41, 2)
    ]
    mixed = [one for pair in zip(units, ships, strict=True) for one in pair]
    assert [[*range(0, 40, 2)], [*range(1, 40, 2)]] == read(mixed)
    assert [[*range(ALIKE_EVENTS)]] == read([unit(number) for number in range(ALIKE_EVENTS)])
    assert [] == read([unit(number) for number in range(ALIKE_EVENTS - 1)])


@pytest.mark.parametrize(
    "other",
    [
        unit(7, data={"n": [1]}),
        unit(7, data={"n": {"a": 1}}),
        unit(7, data={"n": 2**63}),
        unit(7, data={"x": "1"}),
        unit(7, type="nearcast.tick"),
        unit(7, id=""),
        unit(7, specversion="0.3"),
        unit(7, source="s" * 1_001),
    ],
)
def test_what_is_not_plain_in_one_is_left_with_its_form(other: dict[str, Any]) -> None:
    """Those of other forms are read."""
    alike = [unit(number) for number in range(10)]
    others = [unit(number, extra=1) for number in range(10)]
    assert [[*range(10)], [*range(10, 20)]] == read([*alike, *others])
    assert [[*range(11, 21)]] == read([*alike, other, *others])


def test_who_may_not_publish_an_event_is_asked_once_for_each_source_and_type() -> None:
    """Where one is refused all of its form are left."""
    asked: list[tuple[str, str]] = []

    def check(source: str, type_: str) -> None:
        asked.append((source, type_))
        if source == "other":
            raise EventError(Fault("a source", source, HERE))

    assert [[*range(10)]] == read([unit(number) for number in range(10)], check=check)
    assert [] == read([unit(number, source="other" if number == 7 else "city") for number in range(10)], check=check)
    assert [("city", "unit")] == asked[:1]
    assert {("city", "unit"), ("other", "unit")} >= set(asked)
    assert len(asked) <= 3


def test_many_attributes_and_an_order_of_arrival_are_left_to_the_other_reader() -> None:
    """As are events of any channel where one counts the time of acceptance."""
    many = {f"a{number}": number for number in range(MAX_ATTRIBUTES + 1)}
    assert [] == read([unit(number, data=many) for number in range(10)])
    assert [] == read([unit(number) for number in range(10)], (Channel("late", "planar", order="arrival"),))
