"""Ships' reports as events, and receivers that move among them."""

from __future__ import annotations

import gzip
import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nearcast.errors import Fault, Mark
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
    full, empty = "367379190-2022-01-03T00:00:07Z", "3338148-2022-01-03T00:00:00Z"
    assert [f"{full}-2", f"{empty}-3", f"{full}-4"] == [event["id"] for event in events(small)]
    assert [f"{empty}-3", f"{full}-2", f"{full}-4"] == [event["id"] for event in events(small, order="time")]


def written(tmp_path: Path, *rows: str, name: str = "ais.csv") -> Path:
    (tmp_path / name).write_text("\n".join(rows), encoding="utf-8")
    return tmp_path / name


def told_of(path: Path) -> tuple[list[Any], list[str]]:
    """The events of a file, and what is told of the rest."""
    faults: list[str] = []
    found = list(events(path, told=lambda fault: faults.append(str(fault).rpartition("/")[2])))
    return found, faults


def test_a_plain_file_is_read_as_a_packed_one(small: Path, tmp_path: Path) -> None:
    """Also with a byte order mark, and whole numbers written as 511.0."""
    plain = written(tmp_path, "\ufeff" + HEADER, FULL, EMPTY.replace(",511,", ",511.0,"), FULL)
    assert list(events(small)) == list(events(plain))


def test_a_vessel_that_does_not_know_its_place_is_nowhere(tmp_path: Path) -> None:
    """91 and 181 stand for "not available"; the event is taken, without a place."""
    path = written(tmp_path, HEADER, FULL.replace("30.4,-88.5", "91.0,181.0"), FULL.replace("30.4,-88.5", "91,181"))
    found, faults = told_of(path)
    assert ([], [None, None]) == (faults, [read_event(one, Mark("e")).place for one in found])


def test_what_cannot_be_read_is_told_with_its_line(tmp_path: Path) -> None:
    """The report is left out, the others come."""
    bad = {
        "ais.csv:3: expected a number as LAT, got 'north'": FULL.replace("30.4", "north"),
        "ais.csv:4: expected a number as Heading, got 'nan'": FULL.replace(",12,", ",nan,"),
        "ais.csv:5: expected LON from -180 to 180 and LAT from -90 to 90, got -88.5 and 130.4": FULL.replace(
            "30.4", "130.4"
        ),
        "ais.csv:6: expected BaseDateTime as 2022-01-03T00:00:00, got '3.1.2022'": FULL.replace(
            "2022-01-03T00:00:07", "3.1.2022"
        ),
        "ais.csv:7: expected a number as LON, got ''": "367379190,2022-01-03T00:00:07",
        "ais.csv:8: expected the vessel's MMSI, got none": FULL.removeprefix("367379190"),
    }
    found, faults = told_of(written(tmp_path, HEADER, FULL, *bad.values(), "", FULL))
    assert [f"{one}; this report is left out" for one in bad] == faults
    assert ["2", "10"] == [event["id"].rpartition("-")[2] for event in found]
    (tmp_path / "ais.csv").write_bytes("\n".join([HEADER, FULL, FULL]).encode().replace(b"EAGLE", b"\xc4GLE", 1))
    found, faults = told_of(tmp_path / "ais.csv")
    assert (1, ["ais.csv:2: expected text in UTF-8, got bytes that are none; this report is left out"]) == (
        len(found),
        faults,
    )


def test_columns_are_found_by_their_names(tmp_path: Path) -> None:
    """As older and newer files write them; one that is missing is told, one that is needed ends it."""
    newer = "mmsi,base_date_time,longitude,latitude,sog,vessel_type"
    found, faults = told_of(written(tmp_path, newer, "7,2025-01-01 00:00:00,-88.5,30.4,3.5,31"))
    assert {"lon": -88.5, "lat": 30.4, "speed": 3.5, "vessel_type": 31} == found[0]["data"]
    assert "ais.csv:1: expected the column COG, got none; no vessel has it then" == faults[0]
    for header, columns in (("MMSI;LAT;LON", "MMSI, BaseDateTime, LAT, LON"), ("MMSI,LAT,LON", "BaseDateTime")):
        with pytest.raises(Fault, match=rf"ais.csv:1: expected CSV with the columns {columns}, got {header}"):
            told_of(written(tmp_path, header, "1,2,3"))
    with pytest.raises(Fault, match=r"got an empty file; names of columns stand in the first line"):
        told_of(written(tmp_path))


def test_the_ids_of_several_days_are_unique(tmp_path: Path) -> None:
    """Of reports, and of the receivers that move among them: none of a second day is known already."""
    first = written(tmp_path, HEADER, FULL, EMPTY)
    second = written(
        tmp_path, HEADER, *(row.replace("2022-01-03", "2022-01-04") for row in (FULL, EMPTY)), name="b.csv"
    )
    days = [[*events(path), *receivers(path, count=3)[1]] for path in (first, second)]
    ids = [(event["source"], event["id"]) for day in days for event in day]
    assert len(set(ids)) == len(ids)
    assert ["2022-01-03T00:05:07.000Z", "2022-01-04T00:05:07.000Z"] == [day[2]["time"] for day in days]


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
