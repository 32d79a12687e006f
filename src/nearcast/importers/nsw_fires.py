"""Incidents of the New South Wales Rural Fire Service, 30 December 2019 to 4 January 2020, as CloudEvents.

The data are changes between states of a feed that was polled every five minutes: 5,655 records of 1,139 incidents.
Their dirt, and what becomes of it:

- `pub-date` carries +11:00 but is UTC: `published` is that clock reading, in UTC. `updated` is right.
- Only `seen`, when the change was polled, orders the records; so it is the event's time. Many records share one
  (a whole state came at once); they keep the file's order, and records out of order are sorted.
- Twenty-nine reports are `updated` earlier than what was known: `late` marks them; they count, a rise among them too.
- Incidents vanish and return (gone, then new): the alert level before is remembered, so a rise across it is a rise.
- A hole of hours is simply a time without events; the level before and after it are compared as any others.
- Size 0 means that it was not measured: `size` is absent then. Polygons are reduced to `bbox` and `vertices`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nearcast.errors import EventError, Fault, Mark
from nearcast.importers.event_documents import Document, OnFault, document, moment, place, refuse
from nearcast.language.input_files import opened
from nearcast.language.json_text import loads

SOURCE = "nsw-rfs"
ALERT_LEVELS = ("Not Applicable", "Advice", "Watch and Act", "Emergency Warning")
"""In order: the index is `alert_rank`."""

METRES_PER_DEGREE = 111_320.0


@dataclass(frozen=True, slots=True)
class _Known:
    """The newest state of an incident."""

    data: dict[str, Any]
    updated: datetime


def events(path: Path, told: OnFault = refuse) -> Iterator[Document]:
    """The incidents of a changes file (JSON lines, plain or gzipped), in the order they were seen.

    Type `incident`: title, action (new, changed), alert_level, alert_rank 0..3, rise (the level rose against the
    incident's state before), status, size (hectares), category, fire, council_area, agency, location, published,
    updated, late, link, lon, lat, bbox.west/south/east/north, vertices. Type `incident.gone`: what is not news any
    more, with its last title, council_area, last_alert_level, lon and lat. The subject is the incident's guid.
    Records that cannot be read are `told`, and left out.
    """
    known: dict[str, _Known] = {}
    ids: Counter[str] = Counter()
    for where, record in sorted(_records(path, told), key=lambda one: datetime.fromisoformat(one[1]["seen"])):
        try:
            guid, gone = record["properties"]["guid"], record["action"] == "gone"
            state = known.get(guid) if gone else _state(record, known.get(guid))
            data = _farewell(state) if gone or state is None else state.data
        except (KeyError, IndexError, TypeError, ValueError) as error:
            told(_unreadable(error, where))
            continue
        if state is not None:
            known[guid] = state
        time = moment(datetime.fromisoformat(record["seen"]))
        id = _unique(f"{guid.rsplit('/', 1)[-1]}@{record['seen']}", ids)
        yield document("incident.gone" if gone else "incident", SOURCE, id, time, data, guid)


def _unreadable(error: Exception, where: Mark) -> Fault:
    came = f"none called {error}" if isinstance(error, KeyError) else str(error)
    return Fault("a record of the feed, with its fields", came[:80], where, "this record is left out")


def receivers(path: Path, seed: int = 1, count: int = 200, told: OnFault = refuse) -> dict[str, Any]:
    """Definitions of `count` receivers near incidents of the changes file, each with a radius from 10 to 80 km.

    Three roles; in each a rise inside the radius is of the highest relevance, a warning that goes on of a middle one
    (to some), any other report of the lowest. The user's matrix keeps rises before all else on good links too.
    """
    chance = random.Random(f"nsw fires {seed}")
    incidents = [event["data"] for event in events(path, told) if event["type"] == "incident"]
    points = [(data["lon"], data["lat"]) for data in incidents]
    if not points:
        raise Fault("incidents, to be near", "none", Mark(str(path)), "leave out --receivers")
    roles: dict[str, Any] = {role: {task: {} for task in tasks} for role, tasks in RELEVANCE.items()}
    clients, subscriptions = [], []
    for index in range(count):
        role, task = chance.choices(WHO, weights=(6, 3, 1))[0]
        lon, lat = _near(chance, *chance.choice(points))
        id, radius = f"receiver {index + 1}", chance.choice((10, 15, 20, 30, 50, 80)) * 1000
        readings = {"bandwidth": 3750}
        clients.append({"id": id, "role": role, "task": task, "readings": readings, "position": place(lon, lat)})
        subscriptions.append({"id": f"near {id}", "client": id, "filter": _filter(id, radius)})
        roles[role][task][f"near {id}"] = list(RELEVANCE[role][task])
    return {
        "awareness": {"bandwidth": {"maximum": 3750}},
        "matrix": [list(row) for row in MATRIX],
        "channels": {"fires": {"coordinates": "geographic", "types": ["incident", "incident.gone"]}},
        "roles": roles,
        "clients": clients,
        "subscriptions": subscriptions,
    }


MATRIX = ((2, 1, 0), (2, 1, 0), (1, 1, 0))
"""By default a good link sends all at priority 0; here a rise precedes what was published with it on any link."""

RELEVANCE = {
    "resident": {"home": (1, 1, 0.6, 0.3, 0.3)},
    "crew leader": {"attack": (1, 1, 0.5, 0.3, 0.1)},
    "regional officer": {"overview": (1, 1, 0.3, 0.2, 0.2)},
}
"""By role and task: the relevance of the filter's five atoms."""

WHO = [(role, task) for role, tasks in RELEVANCE.items() for task in tasks]


def _filter(id: str, radius: int) -> dict[str, Any]:
    near = f"distance(user('{id}'), this) <= {radius}"
    return {"all": [near, {"any": ["rise = true", "alert_rank >= 2", "type = 'incident'", "type = 'incident.gone'"]}]}


def _near(chance: random.Random, lon: float, lat: float) -> tuple[float, float]:
    """A point some 8 km off, as a home beside a fire may be."""
    off = 8000 / METRES_PER_DEGREE
    return lon + chance.gauss(0, off), lat + chance.gauss(0, off)


def _records(path: Path, told: OnFault) -> list[tuple[Mark, dict[str, Any]]]:
    found = []
    with opened(path) as file:
        for number, line in enumerate(file, 1):
            where = Mark(str(path), number)
            if line.isspace():
                continue
            try:
                record = loads(line.strip(), where)
                if datetime.fromisoformat(record["seen"]).tzinfo is None:
                    raise ValueError("a time without a zone as seen")
                found.append((where, record))
            except EventError as error:
                told(error.fault)
            except (KeyError, TypeError, ValueError) as wrong:
                told(_unreadable(wrong, where))
    return found


def _unique(id: str, ids: Counter[str]) -> str:
    """Two records of one incident at one moment do not occur; should they, the second gets a number."""
    ids[id] += 1
    return id if ids[id] == 1 else f"{id}#{ids[id]}"


def _state(record: dict[str, Any], before: _Known | None) -> _Known:
    properties = record["properties"]
    rank = ALERT_LEVELS.index(properties["alert-level"])
    updated = datetime.fromisoformat(properties["updated"])
    data = {
        "title": properties["title"],
        "action": record["action"],
        "alert_level": properties["alert-level"],
        "alert_rank": rank,
        "rise": before is not None and rank > before.data["alert_rank"],
        "status": properties["status"],
        "size": properties["size"] or None,
        "category": properties["type"],
        "fire": properties["fire"],
        "council_area": properties["council-area"],
        "agency": properties["responsible-agency"],
        "location": properties["location"],
        "published": moment(_published(properties["pub-date"])),
        "updated": moment(updated),
        "late": before is not None and updated < before.updated,
        "link": properties.get("link"),
        **_place(*record["point"]),
        **_extent(record),
    }
    return _Known(data, updated)


def _place(lon: float, lat: float) -> dict[str, float]:
    if not (-180 <= lon <= 180 and -90 <= lat <= 90):
        raise ValueError(f"longitude {lon} and latitude {lat}")
    return place(lon, lat)


def _published(text: str) -> datetime:
    """The moment of a `pub-date`: its clock reading is UTC, whatever zone it claims."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def _extent(record: dict[str, Any]) -> dict[str, Any]:
    if not record["polygon_bbox"]:
        return {}
    sides = dict(zip(("west", "south", "east", "north"), record["polygon_bbox"], strict=True))
    return {"bbox": sides, "vertices": record["polygon_vertices"]}


def _farewell(last: _Known | None) -> dict[str, Any]:
    if last is None:
        return {}
    kept = {name: last.data[name] for name in ("title", "council_area", "lon", "lat")}
    return {**kept, "last_alert_level": last.data["alert_level"]}
