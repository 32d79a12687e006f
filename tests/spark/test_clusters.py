"""nearcast.spark on clusters: within this machine, and of processes that share no folder with the driver."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import nearcast
from nearcast.cli.system import free_port
from nearcast.pipeline.spark_session import java_home
from tests.conftest import SHORT_LIVED
from tests.spark.standalone import Machine, standalone

pytestmark = pytest.mark.spark

JOB = """
import sys
from pyspark.sql import SparkSession
from nearcast import spark as nearcast_spark

builder = SparkSession.builder.master(sys.argv[1]).config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.task.maxFailures", "1")
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
PAIRS = str([(number, "queues") for number in (0, 3, 6, 9)])


def run(folder: Path, master: str, how: str, **environment: str) -> list[str]:
    """What the job prints, line by line, in a process of its own in a folder of its own."""
    surroundings = {
        **os.environ,
        "PYTHONPATH": str(Path(nearcast.__file__).parents[1]),
        "JAVA_HOME": str(java_home()),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        **environment,
    }
    done = subprocess.run(
        [sys.executable, "-c", JOB, master, how, SHORT_LIVED],
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


def test_workers_that_share_nothing_are_sent_the_package(tmp_path: Path) -> None:
    """A master and two workers, whose Python lacks nearcast: the error says what to do, and that does it."""
    python = bare_python(tmp_path / "python")
    here = Machine(None, "127.0.0.1")
    with standalone(here, [here, here], tmp_path, port=free_port()) as url:
        (tmp_path / "driver").mkdir()
        fault, pairs = run(tmp_path / "driver", url, "ship", PYSPARK_PYTHON=str(python))
    assert f"expected nearcast {nearcast.__version__} and what it needs in the Python {python}" in fault
    assert "send it by nearcast.spark.ship(spark) before the DataFrame is made, or install" in fault
    assert PAIRS == pairs
