"""Position reports of ships (AIS) in United States waters as CloudEvents, and receivers among them.

Files of MarineCadastre, a day each; that of 3 January 2022, from which the figures are, holds 99,999 reports of 10,631
vessels. Their dirt, and what becomes of it:

- Values that stand for "not available" are absent: latitude 91, longitude 181, heading 511, course 360, speed 102.3 and
  above, vessel type 0, navigation status 15, IMO number 0, and a length, width, draft of 0.
- Times have no zone: they are UTC. The file is not in time order (32,027 steps back): choose `order`.
- 75 pairs of reports share vessel and time, and one is an exact duplicate: each is a report. An id has the vessel, the
  time and the line, so that no two reports share it, of several days either.
- Numbers shorter than nine digits, and jumps that no ship makes (a number two ships share), stay as they are.
- Newer files write the names of columns in another way, and so may others: only letters count.
"""

from __future__ import annotations

import csv
import io
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from nearcast.errors import Fault, Mark
from nearcast.importers.event_documents import (
    Document,
    OnFault,
    client_change,
    document,
    moment,
    place,
    refuse,
    time_of,
)
from nearcast.language.input_files import opened
from nearcast.model import values

SOURCE = "marine-cadastre-ais"
RECEIVERS = "ais-receivers"

METRES_PER_DEGREE = 111_320.0
METRES_PER_SECOND = 0.514444
"""Of one knot."""


def events(path: Path, order: Literal["file", "time"] = "file", told: OnFault = refuse) -> Iterator[Document]:
    """The reports of a CSV file, plain or gzipped: as they stand in it, or by time (stable).

    Type `vessel`, the subject is the MMSI: lon, lat, speed (knots), course, heading (degrees), name, imo, call_sign,
    vessel_type (AIS code: 31 towing, 37 pleasure, 60s passenger, 70s cargo, 80s tanker), status (AIS code), length,
    width, draft (metres), cargo (AIS code), transceiver. What a vessel did not report is absent.
    Reports that cannot be read are `told`, and left out. Raises `Fault` for a file that is none of such reports.
    """
    reports = _reports(path, told)
    if order == "time":
        # All times have one form, so as texts they sort as the moments they name, and faster.
        return iter(sorted(reports, key=lambda event: str(event["time"])))
    return reports


def receivers(
    path: Path, seed: int = 1, count: int = 1000, seconds: int = 1500, every: int = 300, told: OnFault = refuse
) -> tuple[dict[str, Any], Iterator[Document]]:
    """Definitions of `count` receivers at sea, and the changes of place by which they move, by time.

    Each wants vessels of one type, as frequent as in the file, within 0.5 to 20 km of itself, and is first near one
    such vessel. It moves at 2 to 25 knots, turning as it goes, and says where it is every `every` seconds.
    """
    chance = random.Random(f"ais {seed}")
    found = [event for event in events(path, told=told) if {"vessel_type", "lon"} <= event["data"].keys()]
    if not found:
        raise Fault("vessels with a type and a position, to be near", "none", Mark(str(path)), "leave out --receivers")
    vessels, start = [event["data"] for event in found], min(map(time_of, found))
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
    return definitions, _movement(chance, dict(zip(ids, places, strict=True)), start, seconds, every)


def _near(chance: random.Random, degrees: float) -> float:
    return degrees + chance.gauss(0, 1000 / METRES_PER_DEGREE)


def _subscription(id: str, vessel_type: int, metres: int) -> dict[str, Any]:
    text = f"vessel_type = {vessel_type} AND distance(user('{id}'), this) <= {metres}"
    return {"id": f"near {id}", "client": id, "filter": text}


def _movement(
    chance: random.Random, places: dict[str, tuple[float, float]], start: datetime, seconds: int, every: int
) -> Iterator[Document]:
    """Rounds in which every receiver says once where it has got to."""
    knots = {id: chance.uniform(2, 25) for id in places}
    course = {id: chance.uniform(0, 360) for id in places}
    for at in range(every, seconds + 1, every):
        time = moment(start, at)
        for index, (id, here) in enumerate(places.items(), start=1):
            course[id] += chance.gauss(0, 20)
            places[id] = _travelled(*here, course[id], knots[id] * METRES_PER_SECOND * every)
            yield client_change(RECEIVERS, f"{index}-{time}", time, id, position=place(*places[id]))


def _travelled(lon: float, lat: float, course: float, metres: float) -> tuple[float, float]:
    """Where one gets on a course: on a plane that touches here, good for some kilometres."""
    angle = math.radians(course)
    north = metres * math.cos(angle) / METRES_PER_DEGREE
    east = metres * math.sin(angle) / (METRES_PER_DEGREE * math.cos(math.radians(lat)))
    return lon + east, lat + north


def _reports(path: Path, told: OnFault) -> Iterator[Document]:
    with opened(path) as file:
        # A byte that is no UTF-8 spoils its own line only.
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
        lines = csv.reader(text)
        try:
            columns = _columns(next(lines, []), path, told)
            for row in lines:
                if row:
                    yield from _report(row, columns, Mark(str(path), lines.line_num), told)
        except csv.Error as error:
            raise Fault("CSV", str(error), Mark(str(path), lines.line_num)) from None


def _columns(header: list[str], path: Path, told: OnFault) -> dict[str, int]:
    """Where each column is, by the name that the files of MarineCadastre have had."""
    found = {_plain(name): index for index, name in enumerate(header)}
    columns: dict[str, int] = {}
    missing: list[str] = []
    for name in (*REQUIRED, *(column for column, *_ in COLUMNS)):
        index = next((found[one] for one in (_plain(name), *_ALSO.get(name, ())) if one in found), None)
        if index is None:
            missing.append(name)
        else:
            columns[name] = index
    where = Mark(str(path), 1)
    if lost := [name for name in missing if name in REQUIRED]:
        came = ",".join(header)[:80] or "an empty file"
        raise Fault(f"CSV with the columns {', '.join(lost)}", came, where, "names of columns stand in the first line")
    for name in missing:
        told(Fault(f"the column {name}", "none", where, "no vessel has it then"))
    return columns


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _report(row: list[str], columns: dict[str, int], where: Mark, told: OnFault) -> Iterator[Document]:
    """The event of a line, if it can be read."""
    cells = {name: row[index].strip() if index < len(row) else "" for name, index in columns.items()}
    try:
        ",".join(row).encode()
        time = _time(cells["BaseDateTime"], where)
        if not cells["MMSI"]:
            raise Fault("the vessel's MMSI", "none", where)
        data = _place(cells, where) | _data(cells, where)
        yield document("vessel", SOURCE, f"{cells['MMSI']}-{time}-{where.line}", time, data, cells["MMSI"])
    except UnicodeEncodeError:
        told(Fault("text in UTF-8", "bytes that are none", where, "this report is left out"))
    except Fault as fault:
        told(replace(fault, advice=fault.advice or "this report is left out"))


def _time(text: str, where: Mark) -> str:
    time = f"{text.replace(' ', 'T')}Z"
    if values.time_of(time) is None:
        raise Fault("BaseDateTime as 2022-01-03T00:00:00", repr(text)[:60], where)
    return time


def _place(cells: dict[str, str], where: Mark) -> dict[str, Any]:
    """Longitude and latitude; none where the vessel does not know them."""
    lon, lat = (_number(cells[name], name, where) for name in ("LON", "LAT"))
    if lon == NO_LONGITUDE or lat == NO_LATITUDE:
        return {}
    if not (-180 <= lon <= 180 and -90 <= lat <= 90):
        raise Fault("LON from -180 to 180 and LAT from -90 to 90", f"{lon} and {lat}", where)
    return {"lon": lon, "lat": lat}


def _number(text: str, name: str, where: Mark) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Fault(f"a number as {name}", repr(text)[:60], where)
    return value


def _data(cells: dict[str, str], where: Mark) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for column, name, kind, absent in COLUMNS:
        text = cells.get(column)
        if not text:
            continue
        # Files write whole numbers also as 31.0.
        value = text if kind is str else kind(_number(text, column, where))
        if not absent(value):
            data[name] = value
    return data


def _never(value: Any) -> bool:
    return False


def _zero(value: float) -> bool:
    return value == 0


REQUIRED = ("MMSI", "BaseDateTime", "LAT", "LON")
_ALSO = {"LAT": ("latitude",), "LON": ("longitude",), "TransceiverClass": ("transceiver",)}
NO_LATITUDE, NO_LONGITUDE = 91.0, 181.0

Column = tuple[str, str, Callable[[Any], Any], Callable[[Any], bool]]

COLUMNS: tuple[Column, ...] = (
    ("SOG", "speed", float, lambda knots: knots >= 102.3),
    ("COG", "course", float, lambda degrees: degrees >= 360),
    ("Heading", "heading", int, lambda degrees: degrees == 511),
    ("VesselName", "name", str, _never),
    ("IMO", "imo", str, lambda number: number == "IMO0000000"),
    ("CallSign", "call_sign", str, _never),
    ("VesselType", "vessel_type", int, _zero),
    ("Status", "status", int, lambda status: status == 15),
    ("Length", "length", float, _zero),
    ("Width", "width", float, _zero),
    ("Draft", "draft", float, _zero),
    ("Cargo", "cargo", int, _never),
    ("TransceiverClass", "transceiver", str, _never),
)
"""The file's column, the attribute's name, how it reads, and which values mean "not available"."""
