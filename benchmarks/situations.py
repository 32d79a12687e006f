"""Inferring situations, beside a plain join in Spark: `python -m benchmarks.situations`.

Moving sensors report at a steady rate, and rules of two or three conditions each hold where readings of different
sensors come together. nearcast folds every second's readings into what it knows and gives the situations that begin,
change and end, in one process on one core. The join gets the newest reading of every sensor and gives, for every
reading of the last second, the rules that hold around it: what one would run every second, without any situation that
goes on.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections import Counter
from dataclasses import dataclass

import numpy as np
import orjson
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.machine import machine
from benchmarks.readings import Sensors, counting, ontology, rules
from nearcast.model.changes import Change, SettingsChange, SituationChange
from nearcast.model.columns import EVENTS
from nearcast.model.event import Event
from nearcast.model.filter import And, Atom, Operator
from nearcast.model.situation import Situation
from nearcast.model.subscription import Settings
from nearcast.pipeline.spark_session import session
from nearcast.runtime.gc_settings import GC_THRESHOLDS
from nearcast.situations.stage import SituationStage
from nearcast.state.derived import StageInput
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository

WARM = 3
"""Seconds of readings that are not counted: the first ones find nothing around."""


@dataclass(frozen=True, slots=True)
class Measured:
    """How long a way took for one second's readings, at the median: seconds by the clock, and of this process."""

    way: str
    clock: float
    process: float
    found: str


def main() -> None:
    """Runs both and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", type=int, default=1_000)
    parser.add_argument("--sensors", type=int, default=50_000)
    parser.add_argument("--rate", type=int, default=20_000, help="readings a second")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--counts", type=int, default=0, help="rules more, that count sensors")
    parser.add_argument("--cuts", type=int, default=1, help="batches a second")
    parser.add_argument("--no-spark", action="store_true")
    given = parser.parse_args()
    chance = np.random.default_rng(7)
    defined = rules(given.rules, chance)
    sensors = Sensors(given.sensors, chance)
    seconds = list(sensors.seconds(WARM + given.seconds, given.rate))
    gc.set_threshold(*GC_THRESHOLDS)
    console = Console(width=80)
    console.print(machine())
    measured = [_inferred([*defined, *counting(given.counts, chance)], seconds, given.cuts, given.counts > 0)]
    if not given.no_spark:
        measured.append(_joined(defined, seconds))
    title = f"{given.rules:,} rules, {given.sensors:,} sensors, {given.rate:,} readings/s, one second's readings"
    table = Table(
        "way",
        "s by the clock",
        "s of this process",
        "readings/s",
        "found",
        title=title,
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for one in measured:
        rate = f"{given.rate / one.clock:,.0f}"
        table.add_row(one.way, f"{one.clock:.2f}", f"{one.process:.2f}", rate, one.found)
    console.print(table)


def _inferred(defined: list[Situation], seconds: list[pa.Table], cuts: int, areas: bool = False) -> Measured:
    stage = SituationStage()
    changes: list[tuple[int, Change]] = [(0, SettingsChange(Settings(ontology=ontology(areas))))]
    changes += [(0, SituationChange(rule)) for rule in defined]
    _advance(stage, changes, EVENTS.empty_table())
    clock, process = [], []
    phases: Counter[str] = Counter()
    for number, table in enumerate(seconds):
        began, used = time.perf_counter(), time.process_time()
        size = -(-len(table) // cuts)
        found = [
            event for first in range(0, len(table), size) for event in _advance(stage, [], table.slice(first, size))
        ]
        if number >= WARM:
            clock.append(time.perf_counter() - began)
            process.append(time.process_time() - used)
            phases.update(orjson.loads(event.payload)["data"]["phase"] for event in found)
    told = ", ".join(f"{count / len(clock):.0f} {phase}" for phase, count in sorted(phases.items()))
    return Measured("nearcast, infer", float(np.median(clock)), float(np.median(process)), f"{told} a second")


def _advance(stage: SituationStage, changes: list[tuple[int, Change]], table: pa.Table) -> list[Event]:
    return stage.derive(StageInput(changes, {}, table, Registry(), Repository()))


def _joined(defined: list[Situation], seconds: list[pa.Table]) -> Measured:
    spark = session("local[2]")
    readings = spark.createDataFrame(pd.concat([_flat(number, table) for number, table in enumerate(seconds)])).cache()
    conditions = F.broadcast(_conditions(spark, defined))
    readings.count()
    clock, found = [], 0
    for last in range(WARM, min(WARM + 3, len(seconds))):
        began, used = time.perf_counter(), time.process_time()
        found = len(_holding(readings.where(F.col("second") <= last), conditions, last).collect())
        clock.append(time.perf_counter() - began)
    process = time.process_time() - used
    spark.stop()
    return Measured("Spark, join of the newest", float(np.median(clock)), process, f"{found} times a rule that holds")


def _flat(second: int, table: pa.Table) -> pd.DataFrame:
    """A second's readings with a column for everything, as the join needs them."""
    entries = table.column("attributes").combine_chunks().flatten()
    columns = {name: table.column(name).to_numpy() for name in ("position", "source", "x", "y")}
    columns |= {"name": entries.field("name").to_pylist(), "value": entries.field("double").to_numpy()}
    return pd.DataFrame({**columns, "second": second})


def _conditions(spark: SparkSession, defined: list[Situation]) -> DataFrame:
    rows = []
    for rule in defined:
        assert isinstance(rule.when, And)
        for number, atom in enumerate(rule.when.children):
            assert isinstance(atom, Atom) and isinstance(atom.value, float)
            low, high = (atom.value, 1e9) if atom.operator is Operator.GT else (-1e9, atom.value)
            rows.append((rule.id, number, len(rule.when.children), rule.within, str(atom.name), low, high))
    return spark.createDataFrame(
        rows, "rule string, number int, size int, within double, name string, low double, high double"
    )


def _holding(readings: DataFrame, conditions: DataFrame, last: int) -> DataFrame:
    """The rules that hold around readings of the last second."""
    newest = readings.groupBy("source").agg(
        F.max_by(F.struct("name", "value", "x", "y", "second"), "position").alias("r")
    )
    hits = newest.select("source", "r.*").where(F.col("second") > last - 10).join(conditions, "name")
    hits = hits.where((F.col("value") > F.col("low")) & (F.col("value") < F.col("high")))
    cell_x, cell_y = F.floor(F.col("x") / F.col("within")), F.floor(F.col("y") / F.col("within"))
    here = hits.select("rule", "number", "x", "y", cell_x.alias("i"), cell_y.alias("j"))
    steps = F.expr("explode(array(-1, 0, 1))")
    centres = hits.where(F.col("second") == last).select(
        "rule", "source", "size", "within", "x", "y", cell_x.alias("ci"), cell_y.alias("cj")
    )
    around = centres.withColumn("di", steps).withColumn("dj", steps)
    around = around.withColumn("i", F.col("ci") + F.col("di")).withColumn("j", F.col("cj") + F.col("dj"))
    pairs = around.alias("a").join(here.alias("b"), ["rule", "i", "j"])
    apart = F.hypot(F.col("a.x") - F.col("b.x"), F.col("a.y") - F.col("b.y"))
    near = (
        pairs.where(apart <= F.col("within"))
        .groupBy("rule", "source", "size")
        .agg(F.countDistinct("number").alias("n"))
    )
    return near.where(F.col("n") == F.col("size"))


if __name__ == "__main__":
    main()
