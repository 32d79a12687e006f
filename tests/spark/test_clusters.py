"""nearcast.spark on clusters: within this machine, and of processes that share no folder with the driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

import nearcast
from nearcast.pipeline.spark_session import java_home
from tests.conftest import SHORT_LIVED
from tests.spark.standalone import HEAD, Machine, machines, standalone

pytestmark = pytest.mark.spark

JOB = """
import sys
from pyspark.sql import SparkSession
from nearcast import spark as nearcast_spark

builder = SparkSession.builder.master(sys.argv[1]).config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", sys.argv[4]).config("spark.task.maxFailures", "1")
builder = builder.config("spark.executor.extraJavaOptions", sys.argv[3])
spark = builder.config("spark.executor.memory", "512m").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
rows = [(number, "closure" if number % 3 else "queue") for number in range(10)]
events = spark.createDataFrame(rows, "id long, type string").repartition(2)
pairs = nearcast_spark.match(events, {"queues": "type = 'queue'"})
if sys.argv[2] == "ship":
    try:
        pairs.collect()
    except Exception as error:
        print(*(line for line in str(error).splitlines() if "expected nearcast" in line))
    nearcast_spark.ship(spark)
    nearcast_spark.ship(spark)
    pairs = nearcast_spark.match(events, {"queues": "type = 'queue'"})
print(sorted(tuple(row) for row in pairs.collect()))
spark.stop()
"""
SOURCE = str(Path(nearcast.__file__).parents[1])
PAIRS = str([(number, "queues") for number in (0, 3, 6, 9)])


def run(folder: Path, master: str, how: str, **environment: str) -> list[str]:
    """What the job prints, line by line, in a process of its own in a folder of its own."""
    surroundings = {
        **os.environ,
        "PYTHONPATH": SOURCE,
        "JAVA_HOME": str(java_home()),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        **environment,
    }
    done = subprocess.run(
        [sys.executable, "-c", JOB, master, how, SHORT_LIVED, "127.0.0.1"],
        cwd=folder,
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert 0 == done.returncode, done.stderr[-3000:]
    return done.stdout.splitlines()


def test_a_cluster_within_this_machine(tmp_path: Path) -> None:
    """An executor of its own process finds the package as the driver does."""
    assert [PAIRS] == run(tmp_path, "local-cluster[1,2,1024]", "as it is", PYSPARK_PYTHON=sys.executable)


def bare_python(folder: Path) -> Path:
    """A Python with everything that nearcast rests on, and without nearcast."""
    venv.create(folder, symlinks=True)
    [site] = folder.glob("lib/python*/site-packages")
    # Of a folder named here Python reads no further .pth files: a package installed as editable is not found.
    found = [path for path in sys.path if path.endswith("site-packages")]
    (site / "everything.pth").write_text("\n".join(found))
    python = folder / "bin" / "python"
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if (
        subprocess.run([python, "-c", "import nearcast"], cwd=folder, env=alone, stderr=subprocess.DEVNULL).returncode
        == 0
    ):
        pytest.skip("nearcast is installed beside its dependencies: no Python is without it")
    return python


class Cluster:
    """A standalone cluster: its master's URL, the driver's machine and those of workers, which lack the `driver`'s
    folder and whose Python lacks nearcast.
    """

    def __init__(self, url: str, driver: Path, python: Path, head: Machine, workers: Sequence[Machine]) -> None:
        self.url, self.driver, self.python, self.head, self.workers = url, driver, python, head, workers
        self.properties = driver / "spark.conf"
        settings = {"spark.driver.host": HEAD, "spark.pyspark.python": python, "spark.executor.memory": "600m"}
        settings["spark.executor.extraJavaOptions"] = SHORT_LIVED
        self.properties.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))

    def nearcast(self, *words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs nearcast to its end on the driver's machine."""
        return self.head.run(sys.executable, "-m", "nearcast", *words, PYTHONPATH=SOURCE, **environment)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers, on three machines."""
    folder = tmp_path_factory.mktemp("cluster")
    driver = folder / "driver"
    driver.mkdir()
    python = bare_python(folder / "python")
    with machines([driver]) as (head, workers), standalone(head, workers, folder / "spark") as url:
        yield Cluster(url, driver, python, head, workers)


def test_workers_do_not_have_the_folder_of_the_driver(cluster: Cluster) -> None:
    """What the other tests rest on."""
    (cluster.driver / "file").write_text("content")
    assert "content" == cluster.head.run("cat", cluster.driver / "file").stdout
    for worker in cluster.workers:
        read = worker.run("cat", cluster.driver / "file")
        assert (1, "") == (read.returncode, read.stdout)
        assert read.stderr.endswith("No such file or directory\n")


def test_workers_that_share_nothing_are_sent_the_package(cluster: Cluster) -> None:
    """The error says what to do, and that does it."""
    words = (sys.executable, "-c", JOB, cluster.url, "ship", SHORT_LIVED, HEAD)
    done = cluster.head.run(*words, PYTHONPATH=SOURCE, PYSPARK_PYTHON=str(cluster.python), JAVA_HOME=str(java_home()))
    assert 0 == done.returncode, done.stderr[-3000:]
    fault, pairs = done.stdout.splitlines()
    assert f"expected nearcast {nearcast.__version__} and what it needs in the Python {cluster.python}" in fault
    assert "send it by nearcast.spark.ship(spark) before the DataFrame is made, or install" in fault
    assert PAIRS == pairs


EVENTS = 41_000
"""Two parts of a history that are spread over executors."""

FILTERS = 300
"""So many that they are matched by the compiled engine, whose index is a file of its own."""


def history_in(folder: Path) -> list[str | Path]:
    """Definitions and events in files, as options of `replay`."""
    filters = (f"type = 't{number % 7}' AND size < {number}" for number in range(FILTERS))
    subscriptions = [{"id": f"s{at}", "client": "ab"[at % 2], "filter": text} for at, text in enumerate(filters)]
    defined = {"clients": [{"id": "a"}, {"id": "b"}], "subscriptions": subscriptions}
    (folder / "definitions.yaml").write_text(yaml.safe_dump(defined))
    with (folder / "events.jsonl").open("w") as file:
        for at in range(EVENTS):
            event = {"specversion": "1.0", "id": str(at), "type": f"t{at % 11}", "source": "x"}
            file.write(json.dumps(event | {"data": {"size": at * 7919 % 1000}}) + "\n")
    return ["--definitions", folder / "definitions.yaml", "--events", folder / "events.jsonl"]


def test_a_history_in_files_is_decided_by_workers_that_do_not_see_them(cluster: Cluster) -> None:
    """The driver sends the events; the outcome is that of one process. What workers share of it they keep once."""
    files = history_in(cluster.driver)
    on_spark = ("--engine", "spark", "--master", cluster.url, "--spark-properties", cluster.properties)
    outcomes = [cluster.driver / "cluster.jsonl", cluster.driver / "local.jsonl"]
    for out, engine in zip(outcomes, (on_spark, ("--engine", "local")), strict=True):
        done = cluster.nearcast("replay", *files, *engine, "--out", out)
        assert 0 == done.returncode, done.stderr
    assert outcomes[0].read_bytes() == outcomes[1].read_bytes()
