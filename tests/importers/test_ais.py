"""Ships' reports as events, and receivers that move among them."""

from __future__ import annotations

import gzip
import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nearcast.errors import Mark
from nearcast.geo.distance import distance
from nearcast.importers.ais import events, receivers
from nearcast.importers.event_documents import merged, time_of
from nearcast.language.cloudevents import read_event
from nearcast.model.event import Place
from nearcast.model.filter import Filter, atoms
from nearcast.model.subscription import Channel

FILE = "ais_us_20220103/AISdata.csv.gz"
HEADER = (
    "MMSI,BaseDateTime,LAT,LON,SOG,COG,Heading,VesselName,IMO,CallSign,VesselType,Status,"
    "Length,Width,Draft,Cargo,TransceiverClass"
)
FULL = "367379190,2022-01-03T00:00:07,30.4,-88.5,3.5,336.2,12,EAGLE,IMO8207721,WTD4583,31.0,0.0,28.0,11.0,3.3,52.0,A"
EMPTY = "3338148,2022-01-03T00:00:00,33.6,-117.9,102.3,360.0,511,,IMO0000000,,0.0,15.0,0.0,,,,B"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A file of three reports, the second of which came before the first."""
    path = tmp_path / "ais.csv.gz"
    path.write_bytes(gzip.compress("\n".join([HEADER, FULL, EMPTY, FULL]).encode()))
    return path


def test_full_report(small: Path) -> None:
    """A report becomes an event of its vessel, with typed attributes."""
    event = next(events(small))
    assert ("vessel", "367379190", "2022-01-03T00:00:07Z") == (event["type"], event["subject"], event["time"])
    expected = {"lon": -88.5, "lat": 30.4, "speed": 3.5, "course": 336.2, "heading": 12, "name": "EAGLE"}
    expected |= {"imo": "IMO8207721", "call_sign": "WTD4583", "vessel_type": 31, "status": 0, "length": 28.0}
    assert expected | {"width": 11.0, "draft": 3.3, "cargo": 52, "transceiver": "A"} == event["data"]


def test_not_available_is_absent(small: Path) -> None:
    """Every value that stands for "not available" is absent."""
    assert {"lon": -117.9, "lat": 33.6, "transceiver": "B"} == list(events(small))[1]["data"]


def test_order(small: Path) -> None:
    """Events come as in the file or by time; an id names the same line in both, also where lines are equal."""
    assert ["line-2", "line-3", "line-4"] == [event["id"] for event in events(small)]
    assert ["line-3", "line-2", "line-4"] == [event["id"] for event in events(small, order="time")]


@pytest.mark.data
def test_real_reports(data: Callable[[str], Path]) -> None:
    """The counts of the data's description hold, and what is "not available" is absent."""
    found = list(events(data(FILE)))
    assert 99_999 == len(found) == len({event["id"] for event in found})
    assert 10_631 == len({event["subject"] for event in found})
    absent = Counter(name for event in found for name in ("course", "heading", "speed") if name not in event["data"])
    assert {"course": 14_023, "heading": 52_249, "speed": 173} == absent
    assert 32_027 == sum(before["time"] > after["time"] for before, after in itertools.pairwise(found))


@pytest.mark.data
def test_real_reports_are_events(data: Callable[[str], Path]) -> None:
    """Reports are valid events with a geographic place."""
    channel = Channel("sea", "geographic", ("vessel",))
    found = [read_event(event, Mark("test"), [channel]) for event in itertools.islice(events(data(FILE)), 0, None, 100)]
    assert [1000, 1000] == [len(found), sum(event.place is not None for event in found)]


@pytest.mark.data
def test_receivers(data: Callable[[str], Path], tree: Callable[[Any], Filter]) -> None:
    """Receivers are the same for the same seed, each wants one type of vessel near itself, and all of them move."""
    definitions, movement = receivers(data(FILE), seed=3, count=20)
    again, same = receivers(data(FILE), seed=3, count=20)
    moves = list(movement)
    assert (definitions, moves) == (again, list(same))
    assert [20, 20, 100] == [len(definitions["clients"]), len(definitions["subscriptions"]), len(moves)]
    assert {2} == {len(list(atoms(tree(wish["filter"])))) for wish in definitions["subscriptions"]}
    assert {client["id"] for client in definitions["clients"]} == {move["data"]["client"] for move in moves}


@pytest.mark.data
def test_plausible_movement(data: Callable[[str], Path]) -> None:
    """Nobody moves faster than 26 knots, and times ascend."""
    definitions, movement = receivers(data(FILE), seed=3, count=20)
    places = {client["id"]: client["position"] for client in definitions["clients"]}
    moves = list(movement)
    for move in moves:
        here, there = places[move["subject"]], move["data"]["position"]
        metres = distance(
            Place("geographic", here["lon"], here["lat"]), Place("geographic", there["lon"], there["lat"])
        )
        assert metres is not None
        assert metres <= 26 * 0.514444 * 300
        places[move["subject"]] = there
    assert sorted(map(time_of, moves)) == list(map(time_of, moves))


@pytest.mark.data
def test_merged_with_movement(data: Callable[[str], Path]) -> None:
    """Reports by time and movements make one events file in time order."""
    path = data(FILE)
    _, movement = receivers(path, count=10)
    together = list(merged(events(path, order="time"), movement))
    assert 99_999 + 50 == len(together)
    assert sorted(map(time_of, together)) == list(map(time_of, together))
