"""nearcast.spark in a session of Spark Connect, whose server and workers are other processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nearcast
from nearcast.api.history import replay
from nearcast.api.matching import match
from nearcast.pipeline.spark_session import java_home
from tests.spark.test_dataframes import RELATED

pytestmark = pytest.mark.spark

FILTERS = {"one": "subject = 'deer-1'", "later": "at >= 9"}
ROWS = [{"id": str(n), "subject": f"deer-{1 + n % 2}", "x": 20.0 * (n % 4 // 2), "y": 0.0, "at": n} for n in range(12)]

PROGRAM = """
import json
import sys

definitions, filters, rows, source = map(json.loads, sys.argv[1:])
sys.path.insert(0, source)

from pyspark.sql import SparkSession, functions
from nearcast import spark as nearcast_spark

spark = SparkSession.builder.remote("local[1]").getOrCreate()
nearcast_spark.ship(spark)
events = spark.createDataFrame(rows, "id string, subject string, x double, y double, at int")
pairs = nearcast_spark.match(events, filters)
found = nearcast_spark.deliveries(events, definitions, order="at")
derived = nearcast_spark.derived_events(events, definitions, order="at")
letters = nearcast_spark.dead_letters(events.drop("x", "y").withColumn("lat", functions.lit(95.0)))
print(json.dumps([[list(row) for row in one.collect()] for one in (pairs, found, derived, letters)]))
spark.stop()
"""


def test_a_connect_session_has_the_same_outcome() -> None:
    """Pairs, deliveries, derived events and dead letters; the workers have the code by `ship` alone."""
    for name in ("grpc", "grpc_status", "google.rpc", "zstandard"):
        pytest.importorskip(name, reason="Spark Connect needs pyspark[connect]")
    arguments = [json.dumps(one) for one in (RELATED, FILTERS, ROWS, str(Path(nearcast.__file__).parents[1]))]
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")}
    environment |= {"PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(java_home())}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert 0 == done.returncode, done.stderr[-3000:]
    pairs, deliveries, derived, letters = json.loads(done.stdout.splitlines()[-1])
    assert sorted([one["event"], one["filter"]] for one in match(ROWS, FILTERS)) == sorted(pairs)
    names = ("event", "client", "subscription", "level", "priority")
    told: list[object] = []
    expected = [[one[name] for name in names] for one in replay(ROWS, RELATED, on_derived=told.append)]
    assert len(expected) > 2
    assert expected == deliveries
    assert told == [json.loads(content) for _, _, content in derived]
    assert [str(number) for number in range(12)] == sorted((id for id, _ in letters), key=int)
