"""What a relation with durations must tell of real reports, computed apart: from the page on semantics (§7, §11) alone.

pandas holds the reports, a tree of shapely's finds who may be near, pyproj measures. No rule here is nearcast's own.
`python -m tests.system.durations SHARED` prints how much there is to tell, with the data sets in that folder.
"""

from __future__ import annotations

import gzip
import heapq
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import shapely
from pyproj import Geod

GLOBE = Geod(ellps="WGS84")
SECOND = 1_000_000
SHIPS = "ais_us_20220103/AISdata.csv.gz"
FIRES = "nsw_rfs_fires/changes_20191230_20200104.jsonl.gz"


@dataclass(frozen=True, slots=True)
class Durations:
    """A relation: within so many metres of each other; to last, and to be silent, for so many seconds."""

    metres: float
    lasting: int
    time_to_live: int


class Told(NamedTuple):
    """One thing that is told: at which position, of when (microseconds since 1970), of whom, since when, and why."""

    position: int
    detect: str
    a: str
    b: str
    time: int
    since: int
    reason: str | None


def ships(path: Path) -> pd.DataFrame:
    """The reports of the AIS day as they stand in the file. What has no place has NaN."""
    with gzip.open(path, "rt") as file:
        rows = pd.read_csv(file, dtype={"MMSI": str})
    place = rows[["LON", "LAT"]].where(rows["LAT"].abs().le(90) & rows["LON"].abs().le(180))
    return _reports(rows["MMSI"], rows["BaseDateTime"], place.to_numpy(), np.ones(len(rows), bool))


def fires(path: Path) -> pd.DataFrame:
    """The incidents in the order in which they were seen, each as of its update, which is not always in that order; one
    that is gone is of no side any more.
    """
    with gzip.open(path, "rt") as file:
        records = sorted((json.loads(line) for line in file), key=lambda one: one["seen"])
    names = [one["properties"]["guid"] for one in records]
    times = [one["properties"].get("updated", one["seen"]) for one in records]
    places = np.array([one.get("point") or (np.nan, np.nan) for one in records], float)
    return _reports(names, times, places, np.array([one["action"] != "gone" for one in records]))


def _reports(entity: Any, time: Any, place: Any, member: Any) -> pd.DataFrame:
    moment = pd.to_datetime(pd.Series(time), utc=True, format="ISO8601").dt.as_unit("us").astype("int64")
    columns = {"entity": entity, "moment": moment, "lon": place[:, 0], "lat": place[:, 1], "member": member}
    return pd.DataFrame(columns).assign(accepted=moment)


def by_time(reports: pd.DataFrame) -> pd.DataFrame:
    """The same by their times; those of one time as they stand."""
    return reports.sort_values("moment", kind="stable", ignore_index=True)


def in_bursts(reports: pd.DataFrame, seconds: int) -> pd.DataFrame:
    """The same as if each was kept until the end of its stretch of so many seconds, and all of those taken at once."""
    span = seconds * SECOND
    taken = reports.assign(accepted=(reports["moment"] // span + 1) * span)
    return taken.sort_values("accepted", kind="stable", ignore_index=True)


def documents(reports: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """The reports as CloudEvents of type `member`, or `other` where they are of no side."""
    times = pd.to_datetime(reports["moment"], unit="us", utc=True).dt.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    rows = zip(reports["entity"], times, reports["lon"], reports["lat"], reports["member"], strict=True)
    for number, (entity, time, lon, lat, member) in enumerate(rows):
        head = {"specversion": "1.0", "id": str(number), "source": "data", "type": "member" if member else "other"}
        data = {} if np.isnan(lon) else {"lon": lon, "lat": lat}
        yield {**head, "subject": entity, "time": time, "data": data}


def definitions(durations: Durations) -> dict[str, Any]:
    """The relation, as nearcast is given it."""
    member = "type = 'member'"
    relation = {"id": "near", "a": member, "b": member, "when": f"distance(a, b) < {durations.metres}"}
    spans = {"for": durations.lasting, "time_to_live": durations.time_to_live}
    return {
        "channels": {"all": {"coordinates": "geographic"}},
        "relations": [{**relation, **spans, "detect": ["enter", "dwell", "exit"]}],
    }


Pair = tuple[str, str]


@dataclass(slots=True)
class _Newest:
    moment: int
    lon: float
    lat: float
    member: bool


@dataclass(slots=True)
class _Held:
    since: int
    dwells: bool = True
    """Whether that is still to be told."""


@dataclass(slots=True)
class _Computation:
    durations: Durations
    clock: int = -(1 << 62)
    known: dict[str, _Newest] = field(default_factory=dict)
    held: dict[Pair, _Held] = field(default_factory=dict)
    partners: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    due: list[tuple[int, Pair]] = field(default_factory=list)
    silent: list[tuple[int, str]] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)

    def report(self, position: int, entity: str, new: _Newest, near: list[str]) -> None:
        """One report: first the time that it brings, then what it changes; `near` are those that may be near it."""
        self.clock = max(self.clock, new.moment)
        self.lapse(position)
        before = self.known.get(entity)
        if before is not None and new.moment < before.moment:
            # Late: it moves nothing.
            return
        self.known[entity] = new
        heapq.heappush(self.silent, (self.silence(entity), entity))
        others = sorted({*self.partners[entity], *(one for one in near if one in self.known)} - {entity})
        metres = self.distances(new, others)
        for other, distance in zip(others, metres, strict=True):
            pair = (min(entity, other), max(entity, other))
            members = self.is_member(entity) and self.is_member(other)
            if pair in self.held and (not members or distance >= self.durations.metres):
                self.end(position, pair, new.moment, None if members else "left")
            elif pair not in self.held and members and distance < self.durations.metres:
                self.begin(position, pair, new.moment)

    def silence(self, entity: str) -> int:
        """Through when it counts."""
        return self.known[entity].moment + self.durations.time_to_live * SECOND

    def is_member(self, entity: str) -> bool:
        return self.known[entity].member and self.silence(entity) >= self.clock

    def distances(self, new: _Newest, others: list[str]) -> list[float]:
        """The metres to each; NaN where one is nowhere."""
        if not others:
            return []
        lon, lat = np.array([(self.known[one].lon, self.known[one].lat) for one in others]).T
        found: list[float] = GLOBE.inv(np.full(len(lon), new.lon), np.full(len(lat), new.lat), lon, lat)[2].tolist()
        return found

    def lapse(self, position: int) -> None:
        """What is due by the clock: dwells, and ends by silence; of one pair what was due first."""
        lapsed: set[Pair] = set()
        while self.due and self.due[0][0] <= self.clock:
            lapsed.add(heapq.heappop(self.due)[1])
        while self.silent and self.silent[0][0] < self.clock:
            _, entity = heapq.heappop(self.silent)
            lapsed |= {(min(entity, one), max(entity, one)) for one in self.partners[entity]}
        for pair in lapsed & self.held.keys():
            silence = min(map(self.silence, pair))
            self.dwell(position, pair, min(silence, self.clock))
            if silence < self.clock:
                self.end(position, pair, silence, "silent")

    def begin(self, position: int, pair: Pair, moment: int) -> None:
        self.held[pair] = _Held(moment)
        self.partners[pair[0]].add(pair[1])
        self.partners[pair[1]].add(pair[0])
        self.tell(position, "enter", pair, moment)
        heapq.heappush(self.due, (moment + self.durations.lasting * SECOND, pair))
        # Of a report from long before the clock it may have lasted already.
        self.dwell(position, pair, self.clock)

    def dwell(self, position: int, pair: Pair, until: int) -> None:
        """Tells that a pair has lasted, if it has by then."""
        held = self.held[pair]
        time = held.since + self.durations.lasting * SECOND
        if held.dwells and time <= until:
            held.dwells = False
            self.tell(position, "dwell", pair, time)

    def end(self, position: int, pair: Pair, moment: int, reason: str | None) -> None:
        self.tell(position, "exit", pair, moment, reason)
        del self.held[pair]
        self.partners[pair[0]].discard(pair[1])
        self.partners[pair[1]].discard(pair[0])

    def tell(self, position: int, detect: str, pair: Pair, time: int, reason: str | None = None) -> None:
        self.told.append(Told(position, detect, *pair, time, self.held[pair].since, reason))


def computed(reports: pd.DataFrame, durations: Durations) -> list[Told]:
    """What is to be told of reports, in the order in which they stand; positions count from 1."""
    found = _Computation(durations)
    near = _candidates(reports, durations.metres)
    columns = (reports[name].tolist() for name in ("entity", "moment", "lon", "lat", "member"))
    for row, (entity, *newest) in enumerate(zip(*columns, strict=True)):
        found.report(row + 1, entity, _Newest(*newest), near[row])
    return found.told


def _candidates(reports: pd.DataFrame, metres: float) -> list[list[str]]:
    """For each report the entities whose places, all in one box, come near it; none lives across the antimeridian."""
    boxes = reports.groupby("entity")[["lon", "lat"]].agg(["min", "max"])
    names, sides = boxes.index.tolist(), boxes.to_numpy()
    tree = shapely.STRtree(shapely.box(sides[:, 0], sides[:, 2], sides[:, 1], sides[:, 3]))
    lon, lat = reports["lon"].to_numpy(), reports["lat"].to_numpy()
    # A degree of latitude has 110,574 m at least; a little more room does no harm.
    north = metres / 110_000
    east = north / np.cos(np.radians(np.minimum(np.abs(lat) + north, 89)))
    placed = np.flatnonzero(~np.isnan(lon))
    around = shapely.box(lon - east, lat - north, lon + east, lat + north)
    found: list[list[str]] = [[] for _ in range(len(reports))]
    for row, entity in tree.query(around[placed]).T.tolist():
        found[placed[row]].append(names[entity])
    return found


def main(shared: Path) -> None:
    """Prints how often each is told, in each order."""
    for reports, durations in (
        (ships(shared / SHIPS), Durations(300, 240, 300)),
        (fires(shared / FIRES), Durations(15_000, 6 * 3600, 24 * 3600)),
    ):
        for ordered in (reports, by_time(reports), in_bursts(reports, 60)):
            told = Counter((one.detect, one.reason or "") for one in computed(ordered, durations))
            print(f"{len(ordered):,} reports: {dict(sorted(told.items()))}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
