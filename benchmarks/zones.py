"""Reports held against zones, beside a spatial join without any state: `python -m benchmarks.zones [--zones 10000]`.

Moving entities and zones of a region, most of them small, some over each other. *Live* is the stage alone, so many
reports at a time, as the pipeline gives them; *history* is the stage alone in large batches, and `nearcast.replay` of
a file, from lines of JSON to deliveries. What the first second tells, who is where, is not counted but for that file.
Beside them what one would use instead, which knows no entity, no state and no order: the pairs of a report and a zone
by Shapely's tree (what `geopandas.sjoin` does), and by DuckDB's `ST_Intersects` on the same file, where `duckdb` and
its extension `spatial` are installed (the dependency group `benchmarks`). Figures are reports per CPU-second.

With `--live` it is a whole running system instead, see `zones_live`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

import nearcast
from benchmarks.machine import machine
from benchmarks.relations import START, reports
from benchmarks.zones_live import LiveOptions, add_live, moved_shapes, run, shapes_of
from nearcast.errors import Mark
from nearcast.language.definitions.zone_documents import zone_rule_document, zones_of_features
from nearcast.model.changes import ZoneRuleChange, ZoneShapesChange
from nearcast.model.columns import EVENTS
from nearcast.model.limits import Limits
from nearcast.state.derived import StageInput, merge_derived
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository
from nearcast.zones.stage import ZoneStage

Numbers = npt.NDArray[np.float64]

WEST, SOUTH, WIDE = 8.0, 46.0, 4.0
"""The region: so many degrees either way."""

RULE = {"id": "areas", "of": "type = 'car'", "detect": ["enter", "exit"]}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--zones", type=int, default=10_000)
    parser.add_argument("--entities", type=int, default=20_000)
    parser.add_argument("--seconds", type=int, default=5, help="of one report of each entity")
    parser.add_argument("--batch", type=int, default=2_000, help="reports at a time, live")
    parser.add_argument("--replayed", type=int, default=20_000, help="reports that are replayed from a file")
    add_live(parser)
    asked = parser.parse_args()
    print(machine())
    chance = np.random.default_rng(3)
    shapes = shapes_of(asked.shapes) if asked.shapes else []
    region = (WEST, SOUTH, WIDE)
    features = list(moved_shapes(chance, shapes, asked.zones, region) if shapes else _features(chance, asked.zones))
    if asked.live:
        options = LiveOptions(asked.rate, asked.warm, asked.flow, asked.publishers)
        run(features, next(_seconds(chance, asked.entities, 1)), options)
        print(machine())
        return
    seconds = list(_seconds(chance, asked.entities, asked.seconds))
    began = time.process_time()
    stage, registry, repository = _stage(features)
    print(f"{asked.zones:,} zones, defined in {time.process_time() - began:.1f} CPU-s")
    table = pa.concat_tables(seconds[1:])
    first, present = _by_stage(stage, registry, repository, seconds[0], asked.batch)
    _line("who is where at first", len(seconds[0]) / first, f"{present:,} told")
    live, told = _by_stage(stage, registry, repository, table, asked.batch)
    _line(f"live, {asked.batch:,} at a time", len(table) / live, f"{told:,} told")
    again = _stage(features)
    _by_stage(*again, seconds[0], 100_000)
    whole, _ = _by_stage(*again, table, 100_000)
    _line("history, the stage", len(table) / whole)
    joined, pairs = _by_tree(features, table)
    _line("spatial join, Shapely's tree", len(table) / joined, f"{pairs:,} pairs; the stage is {joined / whole:.2f} ×")
    _duckdb(features, table, whole)
    _replayed(features, pa.concat_tables(seconds).slice(0, asked.replayed))
    print(machine())


def _line(what: str, rate: float, more: str = "") -> None:
    print(f"{what:30} {rate:>10,.0f} reports/CPU-s  {more}".rstrip())


def _features(chance: np.random.Generator, count: int) -> Iterator[dict[str, Any]]:
    """Polygons of 5 to 40 corners, a tenth of them with a hole; radii from 200 metres to some 20 km."""
    for number in range(count):
        lon, lat = WEST + WIDE * chance.random(), SOUTH + WIDE * chance.random()
        radius, corners = 10 ** chance.uniform(-2.7, -0.7), int(chance.integers(5, 40))
        angles = np.linspace(0, 2 * np.pi, corners, endpoint=False)
        reach = radius * chance.uniform(0.6, 1, corners)
        ring = np.c_[lon + reach * np.cos(angles), lat + reach * np.sin(angles)]
        hole = np.c_[lon + radius / 4 * np.cos(angles), lat + radius / 4 * np.sin(angles)]
        rings = [np.vstack([one, one[:1]]).tolist() for one in ([ring, hole] if number % 10 == 0 else [ring])]
        yield {"id": f"z{number}", "geometry": {"type": "Polygon", "coordinates": rings}}


def _seconds(chance: np.random.Generator, entities: int, seconds: int) -> Iterator[pa.Table]:
    """One report of each entity for each second; they go some 10 metres from one to the next."""
    lon, lat = WEST + WIDE * chance.random(entities), SOUTH + WIDE * chance.random(entities)
    for second in range(seconds):
        who = chance.permutation(entities)
        lon, lat = lon + chance.normal(0, 1e-4, entities), lat + chance.normal(0, 1e-4, entities)
        times = START + second * 1_000_000 + np.arange(entities) * 1_000_000 // entities
        positions = pa.array(np.arange(entities) + second * entities + 1)
        names = [f"e{one}" for one in who.tolist()]
        yield reports(names, lon[who], lat[who], positions, pa.array(times, EVENTS.field("time").type))


def _stage(features: list[dict[str, Any]]) -> tuple[ZoneStage, Registry, Repository]:
    """A stage with these zones."""
    zones, faults = zones_of_features(features, "areas", "geographic", None, Limits(), "benchmark")
    assert not faults
    changes = [ZoneRuleChange(zone_rule_document(RULE, Mark("benchmark"))), ZoneShapesChange("areas", tuple(zones))]
    registry, stage = Registry(), ZoneStage()
    for change in changes:
        registry.apply(change)
    list(stage.derive(StageInput([(0, one) for one in changes], {}, EVENTS.empty_table(), registry, Repository())))
    return stage, registry, Repository()


def _by_stage(
    stage: ZoneStage, registry: Registry, repository: Repository, table: pa.Table, batch: int
) -> tuple[float, int]:
    """CPU-seconds of the stage, and how many events it tells, as columns too."""
    told, seconds = 0, 0.0
    for first in range(0, len(table), batch):
        some = table.slice(first, batch)
        began = time.process_time()
        derived = merge_derived(some, stage.derive(StageInput([], {}, some, registry, repository)))
        seconds += time.process_time() - began
        told += len(derived) - len(some)
    return seconds, told


def _by_tree(features: list[dict[str, Any]], table: pa.Table) -> tuple[float, int]:
    """CPU-seconds of the pairs of a report and a zone, zones being in a tree already, and how many pairs there are."""
    shapes = np.array([shapely.from_geojson(orjson.dumps(one["geometry"])) for one in features])
    tree = shapely.STRtree(shapes)
    began = time.process_time()
    points = shapely.points(table.column("x").to_numpy(), table.column("y").to_numpy())
    pairs = tree.query(points, predicate="intersects")
    return time.process_time() - began, pairs.shape[1]


def _duckdb(features: list[dict[str, Any]], table: pa.Table, own: float) -> None:
    """The same join by DuckDB over Parquet."""
    try:
        import duckdb  # type: ignore[import-not-found]  # It is no dependency, and seldom there.

        connection = duckdb.connect(config={"threads": 1})
        connection.execute(f"LOAD '{_spatial_extension()}'")
    except Exception as error:
        print(f"spatial join, DuckDB: left out, {str(error).splitlines()[0][:100]}")
        return
    with TemporaryDirectory() as folder:
        shapes = [shapely.to_wkb(shapely.from_geojson(orjson.dumps(one["geometry"]))) for one in features]
        pq.write_table(pa.table({"id": [one["id"] for one in features], "geom": shapes}), f"{folder}/zones.parquet")
        pq.write_table(table.select(["position", "x", "y"]), f"{folder}/reports.parquet")
        connection.execute(f"CREATE TABLE z AS SELECT id, ST_GeomFromWKB(geom) g FROM '{folder}/zones.parquet'")
        began = time.process_time()
        [[pairs]] = connection.execute(
            f"SELECT count(*) FROM '{folder}/reports.parquet' r JOIN z ON ST_Intersects(ST_Point(r.x, r.y), z.g)"
        ).fetchall()
        seconds = time.process_time() - began
    _line("spatial join, DuckDB", len(table) / seconds, f"{pairs:,} pairs; the stage is {seconds / own:.2f} ×")


def _spatial_extension() -> str:
    """The file of DuckDB's extension where a package brings it, else its name."""
    found = find_spec("duckdb_extension_spatial")
    files = sorted(Path(found.origin).parent.rglob("spatial.duckdb_extension")) if found and found.origin else []
    return str(files[0]) if files else "spatial"


def _replayed(features: list[dict[str, Any]], table: pa.Table) -> None:
    """A file of reports, from its lines to deliveries of what is told."""
    layer = {key: value for key, value in RULE.items() if key != "id"}
    with TemporaryDirectory() as folder:
        collection = {"type": "FeatureCollection", "features": [{"type": "Feature", **one} for one in features]}
        (Path(folder) / "areas.geojson").write_bytes(orjson.dumps(collection))
        document = {
            "zones": {"areas": {**layer, "file": "areas.geojson"}},
            "clients": [{"id": "control"}],
            "subscriptions": [{"id": "told", "client": "control", "filter": "type = 'nearcast.zone'"}],
        }
        path = Path(folder) / "definitions.yaml"
        path.write_bytes(orjson.dumps(document))
        definitions = nearcast.Definitions.read(path)
    lines = [orjson.dumps(one) for one in _documents(table)]
    began = time.process_time()
    found = nearcast.replay((orjson.loads(line) for line in lines), definitions)
    deliveries = sum(1 for _ in found)
    seconds = time.process_time() - began
    _line("history, from lines of JSON", len(table) / seconds, f"{deliveries:,} deliveries, zones defined with it")


def _documents(table: pa.Table) -> Iterator[dict[str, Any]]:
    columns = (table.column(name).to_pylist() for name in ("position", "subject", "x", "y"))
    for position, subject, x, y in zip(*columns, strict=True):
        head = {"specversion": "1.0", "id": str(position), "type": "car", "source": "benchmark", "subject": subject}
        yield {**head, "data": {"lon": x, "lat": y}}


if __name__ == "__main__":
    main()
