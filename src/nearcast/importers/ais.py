"""Position reports of ships (AIS) in United States waters, 3 January 2022, as CloudEvents, and receivers among them.

The file holds 99,999 reports of 10,631 vessels. Its dirt, and what becomes of it:

- Values that stand for "not available" are absent: heading 511, course 360, speed 102.3 and above, vessel type 0,
  navigation status 15, IMO number 0, and a length, width, draft of 0.
- Times have no zone: they are UTC. The file is not in time order (32,027 steps back): choose `order`.
- 75 pairs of reports share vessel and time, and one is an exact duplicate: each is a report; the line number is its id.
- Numbers shorter than nine digits, and jumps that no ship makes (a number two ships share), stay as they are.
"""

from __future__ import annotations

import csv
import gzip
import math
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from nearcast.importers.event_documents import Document, client_change, document, moment, place

SOURCE = "marine-cadastre-ais"
RECEIVERS = "ais-receivers"
START = datetime(2022, 1, 3, tzinfo=UTC)

METRES_PER_DEGREE = 111_320.0
METRES_PER_SECOND = 0.514444
"""Of one knot."""


def events(path: Path, order: Literal["file", "time"] = "file") -> Iterator[Document]:
    """The reports of a csv.gz file: as they stand in it, or by time (stable).

    Type `vessel`, the subject is the MMSI: lon, lat, speed (knots), course, heading (degrees), name, imo, call_sign,
    vessel_type (AIS code: 31 towing, 37 pleasure, 60s passenger, 70s cargo, 80s tanker), status (AIS code), length,
    width, draft (metres), cargo (AIS code), transceiver. What a vessel did not report is absent.
    """
    reports = _reports(path)
    if order == "time":
        # All times have one form, so as texts they sort as the moments they name, and faster.
        return iter(sorted(reports, key=lambda event: str(event["time"])))
    return reports


def receivers(
    path: Path, seed: int = 1, count: int = 1000, seconds: int = 1500, every: int = 300
) -> tuple[dict[str, Any], Iterator[Document]]:
    """Definitions of `count` receivers at sea, and the changes of place by which they move, by time.

    Each wants vessels of one type, as frequent as in the file, within 0.5 to 20 km of itself, and is first near one
    such vessel. It moves at 2 to 25 knots, turning as it goes, and says where it is every `every` seconds.
    """
    chance = random.Random(f"ais {seed}")
    vessels = [event["data"] for event in events(path) if "vessel_type" in event["data"]]
    chosen = [chance.choice(vessels) for _ in range(count)]
    places = [(_near(chance, vessel["lon"]), _near(chance, vessel["lat"])) for vessel in chosen]
    ids = [f"receiver {index + 1}" for index in range(count)]
    definitions: dict[str, Any] = {
        "channels": {"sea": {"coordinates": "geographic", "types": ["vessel"]}},
        "clients": [{"id": id, "position": place(*at)} for id, at in zip(ids, places, strict=True)],
        "subscriptions": [
            _subscription(id, vessel["vessel_type"], chance.choice((500, 1000, 2000, 5000, 10_000, 20_000)))
            for id, vessel in zip(ids, chosen, strict=True)
        ],
    }
    return definitions, _movement(chance, dict(zip(ids, places, strict=True)), seconds, every)


def _near(chance: random.Random, degrees: float) -> float:
    return degrees + chance.gauss(0, 1000 / METRES_PER_DEGREE)


def _subscription(id: str, vessel_type: int, metres: int) -> dict[str, Any]:
    text = f"vessel_type = {vessel_type} AND distance(user('{id}'), this) <= {metres}"
    return {"id": f"near {id}", "client": id, "filter": text}


def _movement(
    chance: random.Random, places: dict[str, tuple[float, float]], seconds: int, every: int
) -> Iterator[Document]:
    """Rounds in which every receiver says once where it has got to."""
    knots = {id: chance.uniform(2, 25) for id in places}
    course = {id: chance.uniform(0, 360) for id in places}
    for step, at in enumerate(range(every, seconds + 1, every), start=1):
        for index, (id, here) in enumerate(places.items(), start=1):
            course[id] += chance.gauss(0, 20)
            places[id] = _travelled(*here, course[id], knots[id] * METRES_PER_SECOND * every)
            time = moment(START, at)
            yield client_change(RECEIVERS, f"{index}-{step}", time, id, position=place(*places[id]))


def _travelled(lon: float, lat: float, course: float, metres: float) -> tuple[float, float]:
    """Where one gets on a course: on a plane that touches here, good for some kilometres."""
    angle = math.radians(course)
    north = metres * math.cos(angle) / METRES_PER_DEGREE
    east = metres * math.sin(angle) / (METRES_PER_DEGREE * math.cos(math.radians(lat)))
    return lon + east, lat + north


def _reports(path: Path) -> Iterator[Document]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
        # Line 1 has the names of the columns.
        for number, row in enumerate(csv.DictReader(lines), start=2):
            yield document("vessel", SOURCE, f"line-{number}", f"{row['BaseDateTime']}Z", _data(row), row["MMSI"])


def _data(row: dict[str, str]) -> dict[str, Any]:
    data: dict[str, Any] = {"lon": float(row["LON"]), "lat": float(row["LAT"])}
    for column, name, read, absent in COLUMNS:
        text = row[column]
        if text and not absent(value := read(text)):
            data[name] = value
    return data


def _code(text: str) -> int:
    """A whole number; the file writes some as 31.0."""
    return int(float(text))


def _never(value: Any) -> bool:
    return False


def _zero(value: float) -> bool:
    return value == 0


Column = tuple[str, str, Callable[[str], Any], Callable[[Any], bool]]

COLUMNS: tuple[Column, ...] = (
    ("SOG", "speed", float, lambda knots: knots >= 102.3),
    ("COG", "course", float, lambda degrees: degrees >= 360),
    ("Heading", "heading", int, lambda degrees: degrees == 511),
    ("VesselName", "name", str, _never),
    ("IMO", "imo", str, lambda number: number == "IMO0000000"),
    ("CallSign", "call_sign", str, _never),
    ("VesselType", "vessel_type", _code, _zero),
    ("Status", "status", _code, lambda status: status == 15),
    ("Length", "length", float, _zero),
    ("Width", "width", float, _zero),
    ("Draft", "draft", float, _zero),
    ("Cargo", "cargo", _code, _never),
    ("TransceiverClass", "transceiver", str, _never),
)
"""The file's column, the attribute's name, how it reads, and which values mean "not available"."""
