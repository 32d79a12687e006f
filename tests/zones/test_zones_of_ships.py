"""Zones over real reports of ships: the same as an independent computation with pandas and Shapely, row by row."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import pandas as pd
import pyarrow as pa
import pytest
import shapely

from nearcast.model.changes import ZoneRuleChange
from nearcast.model.columns import EVENTS, to_events
from nearcast.model.subscription import Settings
from nearcast.model.values import time_text
from nearcast.model.zone import Zone
from nearcast.state.derived import StageInput
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository
from nearcast.zones.stage import ZoneStage
from tests.shared import shared
from tests.zones.stories import rule, zone, zones

DWELL = 300
"""Seconds."""


class Told(NamedTuple):
    """What is told at a row, which counts from 1."""

    row: int
    detect: str
    entity: str
    zone: str
    since: str


def ships(path: Path, count: int) -> pd.DataFrame:
    """The first reports of the file, in its order."""
    with gzip.open(path) as file:
        frame = pd.read_csv(file, usecols=["MMSI", "BaseDateTime", "LAT", "LON"], nrows=count, dtype={"MMSI": str})
    frame["time"] = pd.to_datetime(frame.pop("BaseDateTime"))
    return frame


def shapes(frame: pd.DataFrame, count: int) -> list[shapely.Geometry]:
    """Polygons of several forms around places where ships are, many over each other."""
    chance = np.random.default_rng(7)
    found = []
    for lon, lat in frame[["LON", "LAT"]].to_numpy()[chance.integers(0, len(frame), count)]:
        radius = 10 ** chance.uniform(-2.5, 0)
        angles = np.sort(chance.uniform(0, 2 * np.pi, int(chance.integers(5, 40))))
        reach = radius * chance.uniform(0.4, 1, len(angles))
        outline = shapely.Polygon(np.c_[lon + reach * np.cos(angles), lat + reach * np.sin(angles)]).buffer(0)
        kind = chance.integers(0, 3)
        if kind == 1:
            outline = outline.difference(shapely.Point(lon, lat).buffer(radius / 4, 3))
        elif kind == 2:
            outline = outline.union(shapely.box(lon + radius, lat, lon + 2 * radius, lat + radius))
        found.append(outline)
    return [one for one in found if not one.is_empty]


def events(frame: pd.DataFrame) -> pa.Table:
    """The reports as a journal has them."""
    count, times = len(frame), pa.array(frame["time"].to_numpy("datetime64[us]"), EVENTS.field("time").type)
    columns: dict[str, Any] = {
        "position": pa.array(np.arange(count) + 1),
        "part": pa.array(np.zeros(count, np.int32)),
        "id": pa.array([str(number) for number in range(count)]),
        "type": pa.array(["vessel"] * count),
        "source": pa.array(["ais"] * count),
        "subject": pa.array(frame["MMSI"]),
        "time": times,
        "coordinates": pa.array(["geographic"] * count, EVENTS.field("coordinates").type),
        "x": pa.array(frame["LON"], pa.float64()),
        "y": pa.array(frame["LAT"], pa.float64()),
    }
    missing = {
        field.name: pa.array([[]] * count, field.type) if field.name == "attributes" else pa.nulls(count, field.type)
        for field in EVENTS
        if field.name not in columns
    }
    return pa.table({**columns, **missing}).select(EVENTS.names).cast(EVENTS)


def independently(frame: pd.DataFrame, given: dict[str, shapely.Geometry]) -> list[Told]:
    """What is told, from sets of zones: those of a report that counts against those of the one before."""
    names = list(given)
    tree = shapely.STRtree(list(given.values()))
    report, zone_ = tree.query(shapely.points(frame["LON"], frame["LAT"]), predicate="intersects")
    inside = pd.Series(zone_).groupby(report).agg(set)
    now, moments = frame["time"].cummax().to_numpy(), frame["time"].to_numpy()
    told: list[Told] = []
    newest: dict[str, pd.Timestamp] = {}
    where: dict[str, dict[int, int]] = {}
    held: list[tuple[str, int, int, int]] = []
    for row, (entity, time) in enumerate(zip(frame["MMSI"], frame["time"], strict=True)):
        if entity in newest and time < newest[entity]:
            continue
        newest[entity] = time
        before, after = where.setdefault(entity, {}), inside.get(row, set())
        held += [(entity, number, before.pop(number), row) for number in before.keys() - after]
        before |= dict.fromkeys(after - before.keys(), row)
    held += [(entity, *one, len(frame)) for entity, own in where.items() for one in own.items()]
    for entity, number, first, last in held:
        what = entity, names[number], _text(frame["time"][first])
        told.append(Told(first + 1, "enter", *what))
        # Durations are of moments: who enters late, by the clock, may have lasted at once.
        lasted = max(first, int(np.searchsorted(now, moments[first] + np.timedelta64(DWELL, "s"))))
        if lasted <= min(last, len(frame) - 1):
            told.append(Told(lasted + 1, "dwell", *what))
        if last < len(frame):
            told.append(Told(last + 1, "exit", *what))
    return told


def _text(time: pd.Timestamp) -> str:
    return time_text(time.to_pydatetime().replace(tzinfo=UTC))


def by_stage(frame: pd.DataFrame, given: list[Zone], batch: int) -> Iterator[Told]:
    """What the stage tells, a batch of reports at a time."""
    registry, repository, stage = Registry(Settings()), Repository(), ZoneStage()
    watching = rule(of="type = 'vessel'", coordinates="geographic", lasting=DWELL)
    began = datetime(2022, 1, 3, tzinfo=UTC) - timedelta(days=1)
    changes = [(0, ZoneRuleChange(watching)), (0, zones(*given))]
    for _, change in changes:
        registry.apply(change)
    table = events(frame)
    for first in range(0, len(table), batch):
        some = table.slice(first, batch)
        told = stage.derive(StageInput(changes, {0: began}, some, registry, repository))
        for event in (one for each in told for one in to_events(each)):
            data = orjson.loads(event.payload)["data"]
            yield Told(event.position, data["detect"], data["entity"], data["zone"], data["since"])
        repository.fold_events(some)
        changes = []


def agree(count: int, areas: int, batch: int) -> int:
    """Holds both computations against each other; how much is told."""
    frame = ships(shared("data/ais_us_20220103/AISdata.csv.gz"), count)
    given = {f"z{number}": shape for number, shape in enumerate(shapes(frame, areas))}
    layer = [zone(name, orjson.loads(shapely.to_geojson(one)), "depots", "geographic") for name, one in given.items()]
    expected = independently(frame, given)
    assert sorted(expected) == sorted(by_stage(frame, layer, batch))
    return len(expected)


@pytest.mark.data
def test_ships_enter_stay_in_and_leave_zones() -> None:
    """Every enter, dwell and exit of 20,000 reports and 300 zones, in the order of the file, which is not that of
    time.
    """
    assert 5_000 < agree(20_000, 300, 1_777)
