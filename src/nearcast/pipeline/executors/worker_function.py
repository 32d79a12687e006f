"""The function that Spark carries to its Python workers: it runs a job there, or says what is missing.

A job travels pickled within the function, and is unpickled once by each worker, not by each task. What is large beside
it is carried as broadcasts (`shared_files`).
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

import nearcast
from nearcast.errors import Fault, JournalError, NearcastError, SetupError
from nearcast.pipeline.executors.shared_files import receive

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import DataFrame

KEPT = 2
"""Jobs of which a worker keeps what it unpickled."""

OWN_ADVICE = (
    "give the workers a Python with what nearcast rests on: PYSPARK_PYTHON names it, or spark.pyspark.python and"
    " spark.archives in the file of --spark-properties"
)
"""What to do where nearcast has started the session, and sent its code."""


class WorkerJob(Protocol):
    """What is done with the record batches of a partition. Can be pickled."""

    def run(self, parts: Iterable[pa.RecordBatch], /) -> Iterator[pa.RecordBatch]:
        """What comes of them."""
        ...


def worker_function(
    job: WorkerJob, advice: str, carried: Mapping[str, Broadcast[bytes]] | None = None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What `mapInArrow` takes to have a job done, `carried` being the contents of shared files by their checksums.

    On a worker without nearcast, with another version of it, or without what it rests on, it raises `ImportError`: what
    was expected, what came, in which Python, and the `advice`.
    """
    packed, version, broadcasts = pickle.dumps(job), nearcast.__version__, dict(carried or {})

    # Pickled by value, for it is no module's own; so it may name nothing of this module.
    def run(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import platform
        import sys

        here = f"the Python {sys.executable} of worker {platform.node()}"
        try:
            import nearcast
            from nearcast.pipeline.executors.worker_function import begin

            if nearcast.__version__ != version:
                raise ImportError(f"nearcast {nearcast.__version__}")
            job = begin(packed, broadcasts)
        except ImportError as error:
            raise ImportError(
                f"expected nearcast {version} and what it needs in {here}, got: {error}; {advice}"
            ) from error
        yield from job.run(parts)

    # What Spark's plans and its page call it.
    run.__name__ = f"nearcast_{type(job).__name__}"
    return run


def begin(packed: bytes, carried: Mapping[str, Broadcast[bytes]]) -> WorkerJob:
    """On a worker: the job that was pickled; what is carried is there for it from now on."""
    receive(carried)
    job = loaded(packed)
    for name in getattr(job, "needs", ()):
        import_module(name)
    return job


@lru_cache(maxsize=KEPT)
def loaded(packed: bytes) -> WorkerJob:
    """The job that was pickled, kept for the worker's next task."""
    job: WorkerJob = pickle.loads(packed)
    return job


_TOLD = re.compile(r"^(?:\w+\.)*(ImportError|JournalError|SetupError): (.+)$", re.MULTILINE)
_OTHER_PYTHON = re.compile(r"different version: (\S+?) than that in driver: (\S+?)[,.]?\s")
_NO_PYTHON = re.compile(r'Cannot run program "([^"]+)"')


def outcome_of(frame: DataFrame) -> pa.Table:
    """Runs what such functions do, and brings it here. Raises `SetupError` where workers lack something, `JournalError`
    where they do not reach the log.
    """
    try:
        return frame.toArrow()
    except Exception as error:
        told = told_by_worker(error)
        if told is None:
            raise
        raise told from error


def told_by_worker(error: Exception) -> NearcastError | None:
    """What a worker lacks, where it is that for which a job of Spark failed; None: it failed for something else."""
    text = str(error)
    if told := _TOLD.findall(text):
        # The last line of a traceback, behind those of its causes.
        kind, said = told[-1]
        return JournalError(said) if kind == "JournalError" else SetupError(said)
    if other := _OTHER_PYTHON.search(text):
        came, expected = other.groups()
        return SetupError(str(Fault(f"Python {expected} on the workers, as the driver has", came, None, OWN_ADVICE)))
    if missing := _NO_PYTHON.search(text):
        return SetupError(str(Fault(f"a Python at {missing[1]} on every worker", "none", None, OWN_ADVICE)))
    return None
