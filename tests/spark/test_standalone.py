"""A cluster whose workers have another network, other folders and no nearcast decides as one process does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

import nearcast
from tests.conftest import SHORT_LIVED
from tests.spark.standalone import HEAD, Machine, machines, standalone
from tests.spark.test_clusters import bare_python

# `test_clusters` has the smaller instance: workers with folders of their own, on the same network.
pytestmark = [pytest.mark.spark, pytest.mark.long]

SOURCE = str(Path(nearcast.__file__).parents[1])


class Cluster:
    """A standalone cluster: its master's URL, the driver's machine and those of workers, which lack the `driver`'s
    folder and whose Python lacks nearcast.
    """

    def __init__(self, url: str, driver: Path, python: Path, head: Machine, workers: Sequence[Machine]) -> None:
        self.url, self.driver, self.python, self.head, self.workers = url, driver, python, head, workers
        self.folders = [driver.parent / "spark" / f"worker{number}" for number in range(len(workers))]
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


EVENTS = 21_000
"""So many that they are spread over executors."""

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
    # The index, once on each machine.
    assert [1, 1] == [len(list(folder.glob("tmp/nearcast-shared-*/*"))) for folder in cluster.folders]
