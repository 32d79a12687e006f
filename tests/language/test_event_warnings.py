"""Definitions held against the events beside them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from nearcast.errors import Fault
from nearcast.language.checks.fault_tally import SHOWN, SHOWN_IN_ALL, FaultTally
from nearcast.language.checks.file_check import check

ROAD = {"type": "closure", "source": "city", "data": {"kind": "road", "lanes": 2, "lon": 11.0, "lat": 48.0}}

CHANNEL = "channels: {all: {coordinates: geographic}}"


def checked(folder: Path, definitions: str, *events: Mapping[str, Any]) -> list[str]:
    """What check warns of, without the files' names."""
    (folder / "d.yaml").write_text(
        f"channels: {{all: {{coordinates: geographic}}}}\nclients: [{{id: ops}}]\n{definitions}"
    )
    lines = [orjson.dumps({"specversion": "1.0", "id": str(n), **one}) for n, one in enumerate(events)]
    (folder / "events").write_bytes(b"\n".join(lines))
    report = check([folder / "d.yaml"], events=[folder / "events"])
    assert report.good, report.faults
    return [f"{one.expected}: {one.came}; {one.advice}" for one in report.warnings]


def subscribed(filter: str) -> str:
    """Definitions with one subscription."""
    return f'subscriptions: [{{id: s, client: ops, filter: "{filter}"}}]'


@pytest.mark.parametrize(
    ("filter", "warning"),
    [
        ("Kind = 'road'", "an attribute that some event has: Kind; did you mean kind?"),
        ("casei(knid) = casei('road')", "an attribute that some event has: knid; did you mean kind?"),
        ("size > 3", "an attribute that some event has: size; they have kind, lanes, lat, lon, source, type"),
        ("PREVIOUS(lane) > 3", "an attribute that some event has: lane; did you mean lanes?"),
        ("type = 'closre'", "a value of type that some event has: 'closre'; did you mean closure?"),
        ("kind IN ('road', 'ROAD')", "a value of kind that some event has: 'ROAD'; did you mean road?"),
        ("kind = 'sea'", "a value of kind that some event has: 'sea'; there are road"),
        ("lanes = '2'", "values that compare: lanes = '2'; lanes is a number in these events"),
        (
            "distance(uform(Kind = 'road'), this) < 5",
            "an attribute that some event has: Kind; did you mean kind?",
        ),
    ],
)
def test_what_no_event_has_is_told_with_a_guess(tmp_path: Path, filter: str, warning: str) -> None:
    """Of attributes, types and values; the subscription then selects nothing, which is told too."""
    first, *others = checked(tmp_path, subscribed(filter), ROAD)
    assert warning == first
    rest = "an event that subscription s selects: none among 1; "
    assert [rest] == others or "ROAD" in filter


@pytest.mark.parametrize(
    "filter",
    [
        "kind = 'road' AND lanes > 1",
        "type = 'nearcast.relation' AND relation = 'close' OR lanes = 2",
        "size IS NULL",
        "time > TIMESTAMP('2020-01-01T00:00:00Z') OR subject = 'x' OR lanes = 2",
        "S_INTERSECTS(geom, POINT(11 48)) OR lanes = 2",
        "lanes = 7 OR kind <> 'sea'",
    ],
)
def test_what_events_have_is_no_warning(tmp_path: Path, filter: str) -> None:
    """Nor what derived events have, what every event may have, absence, or a number that did not come."""
    assert [] == checked(tmp_path, subscribed(filter), {**ROAD, "subject": "x", "time": "2026-01-01T00:00:00Z"})


def test_places_under_other_names_are_told_how_to_be_given(tmp_path: Path) -> None:
    """Once for all of them; so is a distance where no event has a place."""
    data = {"position": {"Latitude": 48.0, "longitude": 11.0}}
    event = {"type": "bus", "source": "b", "data": data}
    first, second, _ = checked(tmp_path, subscribed("distance(this, POINT(11 48)) < 5"), event, event)
    assert first.startswith(
        "events that tell where they are: position.Latitude and position.longitude in 2 without a place; a place is lon"
    )
    assert second.startswith("events with a place, for a distance: none among 2; ")
    assert [] == checked(
        tmp_path, subscribed("distance(this, POINT(11 48)) < 5"), ROAD | {"data": {"lon": 11, "lat": 48}}
    )


RELATION = """relations: [{id: close, a: "type = 'bus'", b: "type = 'bus'", when: "distance(a, b) < 100"}]"""


def bus(source: str, subject: str, lon: float = 11.0) -> dict[str, Any]:
    """A bus's report."""
    return {"type": "bus", "source": source, "subject": subject, "data": {"lon": lon, "lat": 48.0, "line": "7"}}


def test_what_selects_and_tells_nothing_is_told(tmp_path: Path) -> None:
    """Subscriptions and relations are decided with the events, as replay does."""
    apart = checked(tmp_path, RELATION, bus("a", "1"), bus("a", "2", 12.0))
    assert ["entities between which relation close begins: none in 2 events; "] == apart
    assert [] == checked(tmp_path, RELATION, bus("a", "1"), bus("a", "2"))


def test_a_subscription_counts_also_where_another_is_more_urgent(tmp_path: Path) -> None:
    """A client gets an event once; both its subscriptions selected it."""
    filters = [f'{{id: s{n}, client: ops, filter: "{one}"}}' for n, one in enumerate(("lanes = 2", "type = 'closure'"))]
    assert [] == checked(tmp_path, f"subscriptions: [{', '.join(filters)}]", ROAD)


@pytest.mark.parametrize("asking", [RELATION, subscribed("CHANGED(line) OR lon > 0")])
def test_one_subject_of_several_sources_or_types_is_told_where_it_would_be_mixed(tmp_path: Path, asking: str) -> None:
    """Two cities both have a bus 17: for what asks for an entity's newest event they are one."""
    mixed = (bus("city-a", "17"), bus("city-b", "17"), bus("a", "3"), {**bus("a", "3"), "type": "stop"})
    found = [one for one in checked(tmp_path, asking, *mixed) if one.startswith("one ")]
    assert ["one source of the subject 17: city-a, city-b", "one type of the subject 3: bus, stop"] == [
        one.partition(";")[0] for one in found
    ]
    assert "entity: source and subject" in found[0]
    assert [] == checked(tmp_path, subscribed("line = '7'"), *mixed)


def test_of_a_kind_the_first_are_kept_and_all_are_counted() -> None:
    """What is expected may name what the input chose, so there is a bound on kinds as well."""
    tally = FaultTally(Fault("a time", str(n)) for n in range(1_154))
    assert (SHOWN, 1_154, [("a time", 1_134)]) == (len(tally.shown), tally.total, tally.further())
    tally.extend(Fault("a number", "x") for _ in range(SHOWN))
    assert [("a time", 1_134)] == tally.further()
    many = FaultTally(Fault(f"n{n} here", "x") for n in range(3 * SHOWN_IN_ALL))
    assert (SHOWN_IN_ALL, 3 * SHOWN_IN_ALL) == (len(many.shown), many.total)
    assert [("", 2 * SHOWN_IN_ALL)] == many.further()


SHAPE = [[11.0, 48.0], [11.2, 48.0], [11.2, 48.1], [11.0, 48.0]]


def shaped(corners: list[list[float]], name: str = "area") -> dict[str, Any]:
    """A closure with an outline."""
    return {**ROAD, "data": {"kind": "road", "lanes": 2, name: {"type": "Polygon", "coordinates": [corners]}}}


@pytest.mark.parametrize("name", ["area", "geometry"])
def test_outlines_with_latitude_first_are_warned_of(tmp_path: Path, name: str) -> None:
    """Where they lie among the others if turned round, and elsewhere as they are."""
    swapped = [[y, x] for x, y in SHAPE]
    filter = subscribed("kind = 'road'")
    advice = "longitude comes first: are they swapped?"
    warned = [f"geometries where events have their places: {name} around [48.05, 11.1]; {advice}"]
    assert warned == checked(tmp_path, filter, ROAD, shaped(swapped, name), shaped(swapped, name))
    assert [] == checked(tmp_path, filter, ROAD, shaped(SHAPE, name))
    assert [] == checked(tmp_path, filter, shaped(swapped, name))


def test_a_filter_with_latitude_first_is_warned_of(tmp_path: Path) -> None:
    """With the events at hand; without them it may be meant so."""
    filter = "S_INTERSECTS(geom, POLYGON((48 11, 48.1 11, 48.1 11.1, 48 11)))"
    first, *_ = checked(tmp_path, subscribed(filter), ROAD)
    assert "geometries where events have their places: one around [48.05, 11.05]" == first.partition(";")[0]
    right = "S_INTERSECTS(geom, POLYGON((11 48, 11 48.1, 11.1 48.1, 11 48)))"
    assert [] == checked(tmp_path, subscribed(right), ROAD)
