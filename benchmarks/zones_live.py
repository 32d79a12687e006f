"""A whole running system with zones: publishers that post batches, a server, a pipeline, and who is told.

Where everybody is, and the zones, are in the journal before the system starts. Then entities move, and the lag is that
from the acceptance of a report to the arrival of the zone event that it causes. Publishers and client are processes of
their own, so that what each process takes is known: two cores that are busy with other things still tell what two quiet
ones would carry.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import multiprocessing
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import shapely

from benchmarks.live import stage_seconds
from benchmarks.memory import processes, resident
from benchmarks.posts import processor
from nearcast.cli.options import journal_path
from nearcast.cli.serving_options import ServingOptions
from nearcast.cli.system import define, fetch, free_port, running, wait_until_ready
from nearcast.client import Client, Publisher
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.definitions import files

POST = 1_000
"""Reports of one post."""

LAST = 120.0
"""Seconds for which what is not decided yet is waited for at most when all is published."""

RULE = {"of": "type = 'car'", "detect": ["enter", "exit"]}


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """Reports a second that publishers try to post; for how many seconds it is not measured, and is; how many
    publishers there are.
    """

    rate: float
    warm: float
    seconds: float
    publishers: int


@dataclass(frozen=True, slots=True)
class _Flow:
    """What a publisher needs to know: its entities, where they are, and how fast it posts for how long."""

    url: str
    entities: range
    lon: tuple[float, ...]
    lat: tuple[float, ...]
    options: LiveOptions


def run(features: list[dict[str, Any]], first: pa.Table, options: LiveOptions) -> None:
    """Measures and prints; `first` has a report of each entity."""
    with TemporaryDirectory(prefix="nearcast-zones-") as folder:
        data = Path(folder)
        began = time.process_time()
        with closing(SqliteJournal(journal_path(data))) as journal:
            journal.append("events", first)
            define(journal, files.load([_definitions(data, features)]))
            print(f"zones: read from GeoJSON and defined in {time.process_time() - began:.1f} CPU-s")
            port, metrics = free_port(), free_port()
            url = f"http://127.0.0.1:{port}"
            with running(data, ServingOptions(port=port), None, metrics) as supervisor:
                began = time.monotonic()
                wait_until_ready(supervisor, url, data, seconds=400.0)
                told = fetch(url, "/status", None)["waiting"]
                print(f"ready after {time.monotonic() - began:.1f} s; waiting {sum(told.values()):,}")
                asyncio.run(_measure(journal, url, metrics, processes(supervisor), _flows(url, first, options)))


def _definitions(folder: Path, features: list[dict[str, Any]]) -> Path:
    collection = {"type": "FeatureCollection", "features": [{"type": "Feature", **one} for one in features]}
    (folder / "areas.geojson").write_bytes(orjson.dumps(collection))
    document = {
        "zones": {"areas": {**RULE, "file": "areas.geojson"}},
        "clients": [{"id": "control"}],
        # Who is where when the zones are defined is told to nobody.
        "subscriptions": [
            {"id": "told", "client": "control", "filter": "type = 'nearcast.zone' AND present IS NULL"},
        ],
    }
    path = folder / "definitions.yaml"
    path.write_bytes(orjson.dumps(document))
    return path


def _flows(url: str, first: pa.Table, options: LiveOptions) -> list[_Flow]:
    lon, lat = first.column("x").to_pylist(), first.column("y").to_pylist()
    order = [int(name[1:]) for name in first.column("subject").to_pylist()]
    places = {number: (x, y) for number, x, y in zip(order, lon, lat, strict=True)}
    flows = []
    for number in range(options.publishers):
        own = range(number, len(places), options.publishers)
        x, y = zip(*(places[one] for one in own), strict=True)
        flows.append(_Flow(url, own, x, y, options))
    return flows


def _publish(flow: _Flow) -> None:
    """Posts without end of its time: batch after batch, at the rate if the server answers fast enough."""
    asyncio.run(_post(flow))


async def _post(flow: _Flow) -> None:
    options, chance = flow.options, np.random.default_rng(flow.entities.start)
    batches = _batches(flow, chance)
    rate = options.rate / options.publishers
    begun, count = time.monotonic(), 0
    async with Publisher(flow.url) as publisher:
        while time.monotonic() - begun < options.warm + options.seconds:
            await asyncio.sleep(max(0.0, begun + count / rate - time.monotonic()))
            batch = next(batches)
            told = await publisher.publish(batch)
            assert not told.faults
            count += len(batch)


def _batches(flow: _Flow, chance: np.random.Generator) -> Iterator[list[dict[str, Any]]]:
    lon, lat = np.array(flow.lon), np.array(flow.lat)
    size, turn = min(POST, len(lon)), 0
    while True:
        for start in range(0, len(lon), size):
            own = np.arange(start, min(start + size, len(lon)))
            lon[own] += chance.normal(0, 1e-4, len(own))
            lat[own] += chance.normal(0, 1e-4, len(own))
            now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
            head = {"specversion": "1.0", "type": "car", "source": "benchmark", "time": now}
            yield [
                {**head, "id": f"{flow.entities[at]} {turn}", "subject": f"e{flow.entities[at]}", "data": place}
                for at, place in zip(
                    own.tolist(),
                    ({"lon": x, "lat": y} for x, y in zip(lon[own].tolist(), lat[own].tolist(), strict=True)),
                    strict=True,
                )
            ]
        turn += 1


async def _measure(
    journal: SqliteJournal, url: str, metrics: int, pids: dict[str, int], flows: Sequence[_Flow]
) -> None:
    arrived: list[tuple[int, float]] = []
    async with Client(url, "control") as client:
        receiving = asyncio.create_task(_receive(client, arrived))
        await client.connected()
        context = multiprocessing.get_context("spawn")
        publishers = [context.Process(target=_publish, args=(flow,)) for flow in flows]
        for one in publishers:
            one.start()
        start = journal.end("events")
        while journal.end("events") == start:
            await asyncio.sleep(0.01)
        await asyncio.sleep(flows[0].options.warm)
        own = {**pids, **{f"publisher {number}": one.pid or 0 for number, one in enumerate(publishers, 1)}}
        before, stages = _taken(own), await stage_seconds(metrics)
        begun, first, decided = time.monotonic(), journal.end("events"), journal.end("deliveries")
        client_cpu = time.process_time()
        workers = await _workers(pids["java"], flows[0].options.seconds * 0.9)
        after, stages_after = _taken(own), await stage_seconds(metrics)
        client_cpu = time.process_time() - client_cpu
        seconds, last, decided_last = time.monotonic() - begun, journal.end("events"), journal.end("deliveries")
        sizes = {name: resident(pid) for name, pid in own.items() if name in pids}
        for one in publishers:
            await asyncio.to_thread(one.join)
        ended = time.monotonic()
        while journal.end("deliveries") < journal.end("events") and time.monotonic() - ended < LAST:
            await asyncio.sleep(0.05)
        caught_up = time.monotonic() - ended
        await asyncio.sleep(1.0)
        receiving.cancel()
    count, done = last - first, decided_last - decided
    print(f"accepted {count / seconds:,.0f}/s, decided {done / seconds:,.0f}/s, over {seconds:.1f} s")
    print(f"behind at the end {last - decided_last:,}; all was decided {caught_up:.1f} s after the last post")
    _report_lags(journal, arrived, first, last)
    micros = {name: 1e6 * (after[name] - before[name]) for name in after} | {"workers": 1e6 * workers}
    deciding = ("pipeline", "java", "workers")
    each = {name: micros[name] / max(1, done if name in deciding else count) for name in micros}
    each["client"] = 1e6 * client_cpu / max(1, count)
    for name, one in each.items():
        size = f", {sizes[name]:,.0f} MiB" if name in sizes else ""
        share = micros.get(name, 1e6 * client_cpu) / seconds / 1e4
        print(f"  {name:12} {one:6.1f} CPU-us an event, {share:4.0f} % of a core{size}")
    batches = max(1.0, stages_after.get("batches", 0.0) - stages.get("batches", 0.0))
    names = [name for name in stages_after if name != "batches"]
    told = (f"{name} {1e6 * (stages_after[name] - stages.get(name, 0.0)) / max(1, done):.1f}" for name in names)
    print(f"  pipeline: {done / batches:,.0f} events a batch; us of the clock an event: {', '.join(told)}")
    system = [each[name] for name in ("server", *deciding)]
    carried = min(2e6 / max(1e-9, sum(system)), 1e6 / max(1e-9, max(each["server"], each["pipeline"])))
    print(f"two quiet cores, publishers elsewhere, would carry {carried:,.0f} reports/s")


async def _receive(client: Client, arrived: list[tuple[int, float]]) -> None:
    async for delivery in client.deliveries():
        arrived.append((int(str(delivery.position).partition(".")[0]), time.time()))


def _taken(pids: dict[str, int]) -> dict[str, float]:
    """Seconds of the processor of each."""
    return {name: processor(pid) for name, pid in pids.items()}


async def _workers(java: int, seconds: float) -> float:
    """Seconds of the processor of Spark's Python workers, which its Java begins, while so many pass."""
    until, first, last = time.monotonic() + seconds, dict[int, float](), dict[int, float]()
    while time.monotonic() < until:
        found = {pid: _spent(pid) for pid in _below(java)}
        # Those that are new began meanwhile; of those that have ended the last look counts.
        first = first or {**found, 0: 0.0}
        last.update(found)
        await asyncio.sleep(0.25)
    return sum(taken - first.get(pid, 0.0) for pid, taken in last.items())


def _spent(pid: int) -> float:
    with suppress(FileNotFoundError, ProcessLookupError):
        return processor(pid)
    return 0.0


def _below(pid: int) -> Iterator[int]:
    for one in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in map(int, one.read_text().split()):
                yield child
                yield from _below(child)


def _report_lags(journal: SqliteJournal, arrived: list[tuple[int, float]], first: int, last: int) -> None:
    """From the acceptance of the report that causes it to the arrival of an event."""
    times: dict[int, float] = {}
    for table in journal.row_ranges("events", first, last, 100_000):
        accepted = table.column("accepted").cast(pa.int64()).to_pylist()
        times.update(zip(table.column("position").to_pylist(), accepted, strict=True))
    lags = sorted(when - times[position] / 1e6 for position, when in arrived if position in times)
    if not lags:
        print("no zone event arrived")
        return
    middle, high = statistics.median(lags), lags[min(len(lags) - 1, int(len(lags) * 0.99))]
    print(f"zone events: {len(lags):,}, from acceptance to arrival median {middle:.2f} s, p99 {high:.2f} s")


def shapes_of(path: Path) -> list[shapely.Geometry]:
    """The polygons of files of GeoJSON in a folder, plain or gzipped."""
    found: list[shapely.Geometry] = []
    for one in sorted(path.glob("*.geojson*")):
        raw = one.read_bytes()
        text = gzip.decompress(raw) if one.suffix == ".gz" else raw
        geometries = shapely.get_parts(shapely.from_geojson(text))
        parts = shapely.get_parts(shapely.get_parts(geometries))
        found += [each for each in parts if each.geom_type == "Polygon" and each.is_valid]
    return found


def moved_shapes(
    chance: np.random.Generator, shapes: Sequence[shapely.Geometry], count: int, region: tuple[float, float, float]
) -> Iterator[dict[str, Any]]:
    """So many features, in turn of these shapes, each somewhere in a region (west, south, degrees either way)."""
    west, south, wide = region
    for number in range(count):
        shape = shapes[number % len(shapes)]
        x, y = (low + wide * chance.random() for low in (west, south))
        middle = shape.envelope.centroid
        there = shapely.transform(shape, lambda corners, by=(x - middle.x, y - middle.y): corners + np.array(by))
        yield {"id": f"z{number}", "geometry": orjson.loads(shapely.to_geojson(there))}


def add_live(parser: argparse.ArgumentParser) -> None:
    """Options of the mode."""
    parser.add_argument("--live", action="store_true", help="a whole running system instead of the stage")
    parser.add_argument("--rate", type=float, default=20_000, help="reports a second, live")
    parser.add_argument("--warm", type=float, default=10.0, help="seconds of the flow before it is measured, live")
    parser.add_argument("--flow", type=float, default=20.0, help="seconds for which it is measured, live")
    parser.add_argument("--publishers", type=int, default=2, help="processes that publish, live")
    parser.add_argument("--shapes", type=Path, help="a folder of GeoJSON files whose polygons the zones are")
