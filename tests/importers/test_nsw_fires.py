"""Incidents of the Rural Fire Service as events, and receivers among them."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from nearcast.errors import Fault, Mark
from nearcast.filters.evaluate import EmptyContext, level_of
from nearcast.filters.relevance import classes_of
from nearcast.importers.event_documents import Document
from nearcast.importers.nsw_fires import MATRIX, RELEVANCE, events, receivers
from nearcast.language.cloudevents import read_event
from nearcast.model.context import matrix_fault
from nearcast.model.event import Event, Place
from nearcast.model.filter import Filter, atoms
from nearcast.model.subscription import Channel

CHANGES = "nsw_rfs_fires/changes_20191230_20200104.jsonl.gz"
CHANNEL = Channel("fires", "geographic", ("incident", "incident.gone"))


def record(
    seen: str, action: str, level: str = "Advice", updated: str = "2020-01-01T10:00:00+11:00", **more: Any
) -> Any:
    """A record of a changes file about one incident."""
    guid = {"guid": "https://example.org/incidents/7"}
    if action == "gone":
        return {"seen": seen, "action": action, "properties": guid}
    names = ("title", "status", "type", "fire", "council-area", "responsible-agency", "location")
    properties = {**dict.fromkeys(names, "…"), **guid, "size": 5, "alert-level": level, "updated": updated}
    properties |= {"pub-date": "2019-12-31T23:00:00+11:00", **more}
    return {"seen": seen, "action": action, "properties": properties, "point": [150.0, -33.0], "polygon_bbox": None}


def imported(tmp_path: Path, *records: Any) -> list[Document]:
    """What the importer makes of these records."""
    path = tmp_path / "changes.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n".join(orjson.dumps(entry) for entry in records)))
    return list(events(path))


def rises(found: list[Document]) -> list[Any]:
    """The attribute `rise` of each event."""
    return [event["data"].get("rise") for event in found]


def test_records_that_cannot_be_read_are_told_with_their_line(tmp_path: Path) -> None:
    """In a plain file as in a packed one; the others come."""
    good = record("2020-01-01T00:00:00Z", "new")
    bad = [
        {**good, "properties": {"guid": "7"}},
        {**good, "point": [-33.0, 150.0]},
        {**good, "seen": "yesterday"},
        {"action": "new"},
        7,
    ]
    path = tmp_path / "changes.jsonl"
    path.write_bytes(
        b"\n".join([*map(orjson.dumps, [good, *bad]), b"{", b"", orjson.dumps({**good, "action": "gone"})])
    )
    faults: list[Fault] = []
    assert ["incident", "incident.gone"] == [event["type"] for event in events(path, faults.append)]
    assert [4, 5, 6, 7, 2, 3] == [fault.where and fault.where.line for fault in faults]
    assert "expected a record of the feed, with its fields, got none called 'alert-level'" in str(faults[4])


def test_rise(tmp_path: Path) -> None:
    """A level above the one before is a rise; the first, an equal and a lower one are not."""
    levels = ("Advice", "Emergency Warning", "Emergency Warning", "Watch and Act")
    found = imported(tmp_path, *(record(f"2020-01-01T00:0{n}:00Z", "new", level) for n, level in enumerate(levels)))
    assert [False, True, False, False] == rises(found)
    assert [1, 3, 3, 2] == [event["data"]["alert_rank"] for event in found]


def test_rise_across_absence(tmp_path: Path) -> None:
    """An incident that vanished at Advice and returns at Watch and Act has risen."""
    found = imported(
        tmp_path,
        record("2020-01-01T00:00:00Z", "new"),
        record("2020-01-01T00:05:00Z", "gone"),
        record("2020-01-01T00:10:00Z", "new", "Watch and Act"),
    )
    assert [False, None, True] == rises(found)
    assert ("incident.gone", "Advice", 150.0) == (
        found[1]["type"],
        found[1]["data"]["last_alert_level"],
        found[1]["data"]["lon"],
    )


def test_records_out_of_order(tmp_path: Path) -> None:
    """Records are taken by when they were seen; equal times keep the file's order."""
    times = ("2020-01-01T00:05:00Z", "2020-01-01T00:00:00Z", "2020-01-01T00:05:00Z")
    found = imported(tmp_path, *(record(time, "changed", title=str(n)) for n, time in enumerate(times)))
    assert ["1", "0", "2"] == [event["data"]["title"] for event in found]
    assert 3 == len({event["id"] for event in found})


def test_wrong_zone(tmp_path: Path) -> None:
    """The publication date is UTC though it claims another zone; the update's zone is right."""
    (event,) = imported(tmp_path, record("2020-01-01T00:00:00Z", "new"))
    assert "2019-12-31T23:00:00.000Z" == event["data"]["published"]
    assert "2019-12-31T23:00:00.000Z" == event["data"]["updated"]


def test_size_zero(tmp_path: Path) -> None:
    """A size of 0 was not measured, so it is absent."""
    (event,) = imported(tmp_path, record("2020-01-01T00:00:00Z", "new", size=0))
    assert "size" not in event["data"]


def test_late(tmp_path: Path) -> None:
    """A report older than what was known is late, and its level counts all the same."""
    first = record("2020-01-01T00:00:00Z", "new")
    (_, late) = imported(
        tmp_path,
        first,
        record("2020-01-01T00:05:00Z", "changed", "Watch and Act", updated="2020-01-01T09:00:00+11:00"),
    )
    assert (True, True) == (late["data"]["late"], late["data"]["rise"])


@pytest.mark.data
def test_real_incidents(data: Callable[[str], Path]) -> None:
    """The numbers of the data's description hold: records, incidents, the 81 rises, the late ones."""
    found = list(events(data(CHANGES)))
    assert {"incident": 4685, "incident.gone": 970} == Counter(event["type"] for event in found)
    assert 1139 == len({event["subject"] for event in found})
    assert 81 == sum(event["data"].get("rise", False) for event in found)
    assert 29 == sum(event["data"].get("late", False) for event in found)
    assert len(found) == len({event["id"] for event in found})
    assert sorted(event["time"] for event in found) == [event["time"] for event in found]


@pytest.mark.data
def test_real_incidents_are_events(data: Callable[[str], Path]) -> None:
    """Every record becomes a valid event with a place."""
    found = [read_event(event, Mark("test"), [CHANNEL]) for event in events(data(CHANGES))]
    assert {"geographic"} == {event.place.coordinates for event in found if event.place}
    assert 5655 == sum(event.place is not None for event in found)


@pytest.mark.data
def test_receivers(data: Callable[[str], Path], tree: Callable[[Any], Filter]) -> None:
    """Two hundred receivers in three roles, the same for the same seed; each role's vector fits its filters."""
    path = data(CHANGES)
    definitions = receivers(path, seed=7)
    assert definitions == receivers(path, seed=7) != receivers(path, seed=8)
    assert 200 == len(definitions["clients"]) == len(definitions["subscriptions"])
    assert set(RELEVANCE) == {client["role"] for client in definitions["clients"]}
    vectors = {
        id: len(v) for tasks in definitions["roles"].values() for task in tasks.values() for id, v in task.items()
    }
    assert {wish["id"]: len(list(atoms(tree(wish["filter"])))) for wish in definitions["subscriptions"]} == vectors


class At(EmptyContext):
    """Surroundings in which every user is at one place."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def user(self, name: str) -> Place:
        """The one place."""
        return self.place

    def entities(self) -> list[Event]:
        """None."""
        return []


@pytest.mark.data
@pytest.mark.parametrize("role", sorted(RELEVANCE))
def test_rises_come_first(data: Callable[[str], Path], tree: Callable[[Any], Filter], role: str) -> None:
    """Inside the radius a rise is of the top level, everything else of a lower one."""
    path = data(CHANGES)
    wish = receivers(path, count=1)["subscriptions"][0]
    filter = tree(wish["filter"])
    (vector,) = RELEVANCE[role].values()
    levels: dict[bool, set[int | None]] = {True: set(), False: set()}
    for found in events(path):
        event = read_event(found, Mark("test"))
        assert event.place is not None
        level = level_of(filter, classes_of(vector, 5, 3), event, At(event.place))
        levels[found["data"].get("rise", False)].add(level)
    assert {2} == levels[True]
    assert levels[False] <= {0, 1}


def test_matrix() -> None:
    """The receivers' matrix is valid, and keeps the top level apart in every context class."""
    assert matrix_fault(MATRIX, 3) is None
    assert all(row[2] < row[1] for row in MATRIX)
