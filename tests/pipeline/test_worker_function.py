"""The function that Spark carries runs a job, or says what its worker lacks; the driver finds that in Spark's words."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.cloudpickle import dumps

import nearcast
from nearcast.errors import JournalError, SetupError
from nearcast.pipeline.executors import worker_function as module
from nearcast.pipeline.executors.worker_function import loaded, told_by_worker, worker_function

PART = pa.record_batch({"number": [1, 2]})


@dataclass(frozen=True)
class Doubling:
    """A job that gives everything twice."""

    def run(self, parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            yield from (part, part)


def test_a_job_is_unpickled_once_and_done_for_each_task() -> None:
    """The second task finds it."""
    loaded.cache_clear()
    function = worker_function(Doubling(), "do something")
    assert [PART, PART] == list(function([PART])) == list(function([PART]))
    assert 1 == loaded.cache_info().misses
    assert "nearcast_Doubling" == function.__name__


def test_another_version_of_nearcast_is_told_with_the_python_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's version was expected."""
    function = worker_function(Doubling(), "do something")
    monkeypatch.setattr(nearcast, "__version__", "0.0.7")
    with pytest.raises(ImportError) as raised:
        list(function([PART]))
    assert "and what it needs in the Python " + sys.executable in str(raised.value)
    assert str(raised.value).endswith("got: nearcast 0.0.7; do something")


def test_a_worker_without_nearcast_says_so(tmp_path: Path) -> None:
    """In a process that has PySpark's pickling and nothing of nearcast."""
    packed = tmp_path / "function"
    packed.write_bytes(dumps(worker_function(Doubling(), "do something")))
    script = "import pickle, sys; sys.modules['nearcast'] = None; list(pickle.load(open(sys.argv[1], 'rb'))([]))"
    ran = subprocess.run([sys.executable, "-c", script, str(packed)], capture_output=True, text=True, timeout=120)
    [told] = [line for line in ran.stderr.splitlines() if "expected nearcast" in line]
    assert told.startswith(f"ImportError: expected nearcast {nearcast.__version__} and what it needs in the Python ")
    assert told.endswith("; do something")


SPARK = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "x.py", line 1, in run
{first}: the first

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
{last}

\tat org.apache.spark.api.python.BasePythonRunner
"""


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            SPARK.format(first="ModuleNotFoundError", last="ImportError: expected nearcast 1, got: no numba; send it"),
            SetupError("expected nearcast 1, got: no numba; send it"),
        ),
        (
            SPARK.format(first="TimeoutError", last="nearcast.errors.JournalError: journal a:4222/x: nobody answers"),
            JournalError("journal a:4222/x: nobody answers"),
        ),
        (
            SPARK.format(first="OSError", last="nearcast.errors.SetupError: expected the package nats-py, got none"),
            SetupError("expected the package nats-py, got none"),
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, PySpark"
            " cannot run with different minor versions.",
            SetupError(f"expected Python 3.11 on the workers, as the driver has, got 3.9; {module.OWN_ADVICE}"),
        ),
        (
            'java.io.IOException: Cannot run program "/opt/x/python": error=2, No such file or directory',
            SetupError(f"expected a Python at /opt/x/python on every worker, got none; {module.OWN_ADVICE}"),
        ),
        (SPARK.format(first="ValueError", last="ValueError: something else"), None),
    ],
)
def test_what_a_worker_lacks_is_found_in_what_spark_says(said: str, expected: Exception | None) -> None:
    """The last of a traceback counts; what is no lack is left as it is."""
    found = told_by_worker(RuntimeError(said))
    assert (type(expected), str(expected)) == (type(found), str(found))


def test_what_a_job_raises_is_its_own() -> None:
    """It is no lack of the worker's."""
    with pytest.raises(TypeError):
        list(worker_function(Doubling(), "")(None))  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(Doubling())) == Doubling()
