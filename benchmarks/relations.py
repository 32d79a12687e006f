"""Relations between moving things, beside a plain self-join in Spark SQL: `python -m benchmarks.relations`.

Named pairs: so many relations over 20,000 entities that report once a second each; a crowd: any two of these within
1 km, which is some 50 for each; ships: every two vessels of a day within 500 m, if the file is there. nearcast tells
what began and ended, report by report; the self-join of the latest positions, once for each second's reports, gives
what holds by then. Times of nearcast are of the processor, those of Spark of the clock, as it has several processes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.machine import machine
from nearcast.errors import Mark
from nearcast.importers import ais
from nearcast.language.cloudevents import read_event
from nearcast.language.definitions.relation_documents import relation_document
from nearcast.model.changes import RelationChange
from nearcast.model.columns import EVENTS, to_table
from nearcast.model.relation import Named, Pair, Relation
from nearcast.pipeline.spark_session import session
from nearcast.relations.lanes.stored_pairs import stored
from nearcast.relations.shards import SHARDS
from nearcast.relations.stage import RelationStage
from nearcast.state.derived import StageInput
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository

METRES = 1_000
START = 1_767_268_800_000_000
"""The first report, in microseconds since 1970."""

EARTH = 6_371_008.8
"""Metres of the sphere's radius that the self-join takes the earth for."""

Positions = npt.NDArray[np.float64]


@dataclass(slots=True)
class World:
    """Entities that move about a region: longitudes and latitudes, and how many events there were."""

    chance: np.random.Generator
    lon: Positions
    lat: Positions
    position: int = 0

    def second(self, number: int) -> pa.Table:
        """One second of reports, one of every entity, in any order."""
        who = self.chance.permutation(len(self.lon))
        self.lon[who] += self.chance.normal(0, 1e-4, len(who))
        self.lat[who] += self.chance.normal(0, 1e-4, len(who))
        first, self.position = self.position, self.position + len(who)
        times = pa.array(
            START + number * 1_000_000 + np.arange(len(who)) * 1_000_000 // len(who), EVENTS.field("time").type
        )
        positions = pa.array(np.arange(first, first + len(who)) + 1)
        return reports([f"e{one}" for one in who.tolist()], self.lon[who], self.lat[who], positions, times)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entities", type=int, default=20_000)
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--ais", type=Path, default=Path("../shared/data/ais_us_20220103/AISdata.csv.gz"))
    parser.add_argument("--reports", type=int, default=100_000, help="of the vessels")
    parser.add_argument("--shards", type=int, default=SHARDS, help="of the state")
    parser.add_argument("--master", default="local[2]")
    asked = parser.parse_args()
    print(machine())
    spark = session(asked.master)
    _named(spark, asked.entities, asked.pairs, asked.seconds, asked.shards)
    _crowd(spark, asked.entities, asked.seconds, asked.shards)
    if asked.ais.exists():
        _any(spark, asked.ais, asked.reports, asked.shards)
    print(machine())


def _world(entities: int) -> World:
    chance = np.random.default_rng(4)
    return World(chance, chance.uniform(11.0, 11.5, entities), chance.uniform(48.0, 48.3, entities))


def _named(spark: SparkSession, entities: int, count: int, seconds: int, shards: int) -> None:
    """Named pairs: a second of reports at a time, both ways."""
    world = _world(entities)
    pairs = _pairs(world.chance, entities, count)
    relating, repository = RelationStage(shards), Repository()
    began = time.process_time()
    _defined(relating, list(_relations(pairs)))
    print(f"{count:,} named pairs over {entities:,} entities: defined in {time.process_time() - began:.1f} s")
    batches = [world.second(number) for number in range(seconds)]
    first, *others = batches
    _advance(relating, [first], repository)
    own = _advance(relating, others, repository)
    size = sum(table.nbytes for table in stored({None: relating.pairing})) / count
    reported = sum(map(len, others))
    evaluated = 2 * count * len(others)
    rates = f"{reported / own:,.0f} reports/s, {evaluated / own:,.0f} relations/s"
    print(f"nearcast: {rates}, {own / reported * 1e6:.1f} µs a report")
    print(f"state: {relating.size / count:,.0f} bytes a pair; {size:,.0f} stored, without the definitions")
    joined = _join_named(spark, pairs, batches)
    print(f"self-join: {reported / joined:,.0f} reports/s; nearcast is {joined / own:.1f} times as fast")


def _crowd(spark: SparkSession, entities: int, seconds: int, shards: int) -> None:
    """Any two within 1 km: a second of reports at a time by nearcast, one self-join of the latest by Spark."""
    world, relating, repository = _world(entities), RelationStage(shards), Repository()
    _defined(relating, [_any_two("car", METRES)])
    first, *others = batches = [world.second(number) for number in range(seconds)]
    _advance(relating, [first], repository)
    own = _advance(relating, others, repository)
    reported = sum(map(len, others))
    held = sum(int(shard.pairs["held"].sum()) for shard in relating.pairing.shards)
    print(f"a crowd of {entities:,}, any two within {METRES:,} m, {held:,} pairs at the end:", end=" ")
    print(f"{reported / own:,.0f} reports/s, {own / reported * 1e6:.1f} µs a report")
    joined = _join_all(spark, batches[-1], METRES)
    print(f"self-join of the latest positions, once: {joined:.1f} s; nearcast takes {own / len(others):.2f} s a second")


def _any_two(kind: str, metres: float) -> Relation:
    """The relation of any two of a type within so many metres."""
    sides = dict.fromkeys("ab", f"type = '{kind}'")
    return relation_document({"id": "near", **sides, "when": f"distance(a, b) <= {metres}"}, Mark("benchmark"))


def _any(spark: SparkSession, path: Path, count: int, shards: int) -> None:
    """Any two vessels within 500 m: batches of 2,000 reports by nearcast, one self-join of the latest by Spark."""
    table = _vessels(path, count)
    relating = RelationStage(shards)
    _defined(relating, [_any_two("vessel", 500)])
    batches = [table.slice(first, 2_000) for first in range(0, len(table), 2_000)]
    own = _advance(relating, batches, Repository())
    span = (table.column("time")[-1].as_py() - table.column("time")[0].as_py()).total_seconds()
    print(
        f"any two of {len(table.column('subject').unique()):,} vessels: {len(table):,} reports in {own:.1f} s,", end=" "
    )
    print(f"{own / len(table) * 1e6:.0f} µs a report, {span / own:,.0f} times real time")
    joined = _join_all(spark, table, 500)
    print(
        f"self-join of the latest positions, once: {joined:.1f} s; nearcast takes {own / len(batches):.3f} s a batch,",
        end=" ",
    )
    print(f"which is {joined * len(batches) / own:,.0f} times as fast")


def _pairs(chance: np.random.Generator, entities: int, count: int) -> npt.NDArray[np.int64]:
    """So many different pairs of entities, shape (count, 2)."""
    drawn = np.sort(chance.integers(0, entities, (3 * count, 2)), axis=1)
    different = np.unique(drawn[drawn[:, 0] != drawn[:, 1]], axis=0)
    return chance.permutation(different)[:count]


def _relations(pairs: npt.NDArray[np.int64]) -> Iterator[Relation]:
    one = {"id": "p", "a": {"entity": "a"}, "b": {"entity": "b"}, "when": f"distance(a, b) < {METRES}", "margin": 50}
    form = relation_document(one, Mark("benchmark"))
    assert isinstance(form.about, Pair)
    for number, (a, b) in enumerate(pairs.tolist()):
        yield replace(form, id=f"p{number}", about=replace(form.about, a=Named(f"e{a}"), b=Named(f"e{b}")))


def _defined(relating: RelationStage, relations: list[Relation]) -> None:
    changes = [(0, RelationChange(relation)) for relation in relations]
    list(relating.derive(StageInput(changes, {}, EVENTS.empty_table(), Registry(), Repository())))


def _advance(relating: RelationStage, batches: list[pa.Table], repository: Repository) -> float:
    """Seconds of the processor that deciding some batches takes."""
    began = time.process_time()
    for batch in batches:
        list(relating.derive(StageInput((), {}, batch, Registry(), repository)))
    return time.process_time() - began


def reports(names: list[str], lon: Positions, lat: Positions, positions: pa.Array, times: pa.Array) -> pa.Table:
    """Reports of places as a table of EVENTS."""
    columns = {
        "position": positions,
        "id": pa.array(names),
        "subject": pa.array(names),
        "time": times,
        "accepted": times,
        "x": pa.array(lon),
        "y": pa.array(lat),
        "part": pa.array(np.zeros(len(names), np.int32)),
        "attributes": pa.array([[]] * len(names), EVENTS.field("attributes").type),
    }
    texts = {"type": "car", "source": "benchmark", "coordinates": "geographic"}
    columns |= {name: pa.array([text] * len(names)) for name, text in texts.items()}
    absent = {field.name: pa.nulls(len(names), field.type) for field in EVENTS if field.name not in columns}
    return pa.table([(columns | absent)[field.name] for field in EVENTS], schema=EVENTS)


def _vessels(path: Path, count: int) -> pa.Table:
    """The reports of a day by time."""
    found = []
    for document in ais.events(path, "time"):
        event = read_event(document, Mark("vessel"))
        found.append(replace(event, position=len(found) + 1, payload=b"", accepted=event.time))
        if len(found) == count:
            break
    return to_table(found)


def _distance(a: str, b: str) -> F.Column:  # type: ignore[name-defined]
    """Metres on the sphere, as one writes it in SQL."""
    expression = (
        f"2 * {EARTH} * asin(sqrt(pow(sin(radians({b}.lat - {a}.lat) / 2), 2)"
        f" + cos(radians({a}.lat)) * cos(radians({b}.lat)) * pow(sin(radians({b}.lon - {a}.lon) / 2), 2)))"
    )
    return F.expr(expression)


def _latest(spark: SparkSession, table: pa.Table) -> object:
    plain = pa.table({"id": table.column("subject"), "lon": table.column("x"), "lat": table.column("y")})
    return spark.createDataFrame(plain)


def _join_named(spark: SparkSession, pairs: npt.NDArray[np.int64], batches: list[pa.Table]) -> float:
    """Seconds in which Spark finds which pairs are near, once for each batch but the first, which warms it up."""
    names = pa.table({side: pa.array([f"e{one}" for one in pairs[:, at].tolist()]) for at, side in enumerate("ab")})
    wanted = spark.createDataFrame(names).cache()
    wanted.count()
    began = time.perf_counter()
    for number, batch in enumerate(batches):
        if number == 1:
            began = time.perf_counter()
        latest = _latest(spark, batch)
        found = wanted.join(latest.alias("p"), F.col("a") == F.col("p.id"))  # type: ignore[attr-defined]
        found = found.join(latest.alias("q"), F.col("b") == F.col("q.id"))  # type: ignore[attr-defined]
        found.where(_distance("p", "q") < METRES).count()
    return time.perf_counter() - began


def _join_all(spark: SparkSession, table: pa.Table, metres: float) -> float:
    """Seconds in which Spark finds any two entities that are near by their latest positions."""
    repository = Repository()
    repository.fold_events(table)
    latest = _latest(spark, repository.newest())
    one, other = latest.alias("p"), latest.alias("q")  # type: ignore[attr-defined]
    near = (F.col("p.id") < F.col("q.id")) & (_distance("p", "q") <= metres)
    began = time.perf_counter()
    one.join(other, near).count()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
