"""Relations, zones and situations do not depend on how the journal is cut, or on where it is decided."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
import yaml
from pyspark.sql import SparkSession

from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.control_events import changes
from nearcast.pipeline.batch_replay import replay
from nearcast.stages import decide
from nearcast.stages.fold import StateFold
from nearcast.state.derived import derived_of
from tests.pipeline.histories import row_ranges, rows, written

DEFINITIONS = """\
channels: {field: {coordinates: planar}}
ontology: {classes: {Temperature: {unit: degC}, Humidity: {unit: percent}}, situations: {Fire: {}, Crowd: {}}}
clients: [{id: ann, position: {x: 0, y: 0}}, {id: ben}]
relations:
  - {id: close, a: "type = 'car'", b: "type = 'car'", when: "distance(a, b) < 30", margin: 5}
  - {id: crowd, among: "type = 'car'", within: 40, count: 3}
  - {id: often, a: "type = 'car'", b: {entity: car-0}, when: "distance(a, b) < 60 AND COUNT(a.type, 30 s) > 1"}
  - {id: rare, a: "type = 'car'", b: {entity: car-1}, when: "distance(a, b) < 60 AND COUNT(a.id, 9 s) = 1",
     lateness: 5 s}
  - {id: north, a: "type = 'car'", b: "type = 'car'", when: "distance(a, b) < 30", scope: {local: north}}
  - {id: main, among: "type = 'car'", within: 40, count: 2, scope: local}
  - {id: again, a: "type = 'nearcast.relation' AND detect = 'enter'", b: {entity: car-0}, when: "distance(a, b) < 20"}
situations:
  - {id: fire, class: Fire, when: "Temperature > 60 AND Humidity < 40", within: 50, valid: 20 s}
  - {id: around, class: Crowd, when: "count(uform(type = 'car')) >= 4", within: 40, valid: 30 s}
  - {id: halls, class: Crowd, when: "count(uform(type = 'car')) >= 3", in: {zones: halls}, valid: 40 s, lateness: 5 s}
zones:
  yards:
    of: "type = 'car'"
    coordinates: planar
    detect: [enter, dwell, exit, inside, outside]
    for: 20 s
    margin: 5
    time_to_live: 40 s
    features:
      - {id: west, geometry: {type: Polygon, coordinates: [[[-60, -60], [0, -60], [0, 60], [-60, 60], [-60, -60]]]}}
      - {id: middle, geometry: {type: Polygon, coordinates: [[[-30, -30], [30, -30], [30, 30], [-30, 30], [-30, -30]]]}}
  halls:
    {of: "type = 'none'", coordinates: planar, features: [{id: west, geometry: {type: Polygon, coordinates:
      [[[-60, -60], [0, -60], [0, 60], [-60, 60], [-60, -60]]]}}]}
actions:
  - {id: alert, when: Fire, publish: {type: alert, data: {text: "fire near {place}"}}}
subscriptions:
  - {id: near, client: ann, filter: "distance(user('ann'), this) < 60 AND type LIKE 'nearcast.%'"}
  - {id: all, client: ben, filter: "type LIKE 'nearcast.%' OR type IN ('alert', 'car')"}
"""


def documents(count: int) -> Iterator[dict[str, Any]]:
    """Cars that wander, sensors that measure now and then, and a client that moves."""
    chance = random.Random(7)
    for number in range(count):
        place = {"x": chance.uniform(-60, 60), "y": chance.uniform(-60, 60)}
        moment = f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"
        head = {"specversion": "1.0", "id": str(number), "source": "s", "time": moment}
        kind = chance.random()
        if kind < 0.1:
            yield head | {"type": "nearcast.client", "data": {"client": "ann", "position": place}}
        elif kind < 0.7:
            yield head | {"type": "car", "subject": f"car-{chance.randrange(6)}", "data": place}
        else:
            measured = {"Temperature": chance.uniform(20, 100)} if kind < 0.85 else {"Humidity": chance.uniform(0, 80)}
            yield head | {"type": "reading", "subject": f"sensor-{chance.randrange(4)}", "data": {**place, **measured}}


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteJournal]:
    """A journal of definitions and some minutes of reports."""
    folder = tmp_path_factory.mktemp("deriving")
    with closing(written(folder, yaml.safe_load(DEFINITIONS), documents(400), ("main", "north"))) as found:
        yield found


Outcome = tuple[list[dict[str, Any]], list[dict[str, Any]]]


def outcome(journal: SqliteJournal, stretch: int) -> Outcome:
    """What is derived, and what is delivered, in batches of so many events."""
    batches = list(decide.replay(StateFold(), iter(row_ranges(journal, stretch)), changes))
    return pa.concat_tables(derived_of(batch.events) for batch, _ in batches).to_pylist(), rows(batches)


@pytest.fixture(scope="module")
def whole(journal: SqliteJournal) -> Outcome:
    """The outcome in one batch, which the others are held against."""
    return outcome(journal, 1_000)


def test_every_kind_is_derived(whole: Outcome) -> None:
    """Else the other tests would show little."""
    found = [orjson.loads(event["payload"]) for event in whole[0]]
    names = ("relation", "situation", "layer")
    told = {next((one["data"][name] for name in names if name in one["data"]), one["type"]) for one in found}
    assert {"close", "crowd", "often", "rare", "north", "main", "again", "yards", "fire", "alert"} <= told
    zones = [one["data"] for one in found if one["type"] == "nearcast.zone"]
    assert {"enter", "dwell", "exit", "inside", "outside"} == {one["detect"] for one in zones}
    assert {"silent", None} == {one.get("reason") for one in zones}


@pytest.mark.parametrize("stretch", [1, 7])
def test_what_is_derived_does_not_depend_on_batches(journal: SqliteJournal, whole: Outcome, stretch: int) -> None:
    """Batches of one, of seven, of all: equal payloads, positions and parts, equal deliveries."""
    assert whole == outcome(journal, stretch)


@pytest.mark.parametrize("stretch, partitions", [(50, 2), (1_000, 1), (1_000, 5)])
def test_executors_deliver_what_is_derived_alike(
    journal: SqliteJournal, whole: Outcome, spark: SparkSession, tmp_path: Path, stretch: int, partitions: int
) -> None:
    """Whatever the number of partitions."""
    there = replay(spark, journal, StateFold(), tmp_path, range_size=stretch, spread=1, partitions=partitions)
    assert whole[1] == rows(there)
