"""A session of nearcast's own, wherever Spark runs: executors elsewhere are sent its code and looked at before they are
relied upon.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from nearcast.errors import Fault, SetupError
from nearcast.pipeline.executors.shipping import ship
from nearcast.pipeline.executors.worker_function import OWN_ADVICE, outcome_of, worker_function
from nearcast.pipeline.spark_session import is_local, session
from nearcast.pipeline.spread import WorkerProbe

EXECUTOR_SECONDS = 120.0
"""That the first executor is waited for."""

ANSWER_SECONDS = 900.0
"""And for the answer where some are there: on a machine that does much else they take long to load what they need."""


def cluster_session(master: str | None = None, properties: Path | None = None, **settings: str) -> SparkSession:
    """`spark_session.session`; on a cluster its executors have nearcast's code then.

    Raises `SetupError` where no executor is there after two minutes, or where one lacks what it needs.
    """
    spark = session(master, properties, **settings)
    if not is_local(spark):
        ship(spark)
        check_workers(spark)
    return spark


def check_workers(spark: SparkSession, seconds: float = EXECUTOR_SECONDS, answering: float = ANSWER_SECONDS) -> None:
    """Has workers load what they need, as many as there are cores; those that come later say so themselves.

    Raises `SetupError` as `cluster_session` does.
    """
    cores = spark.sparkContext.defaultParallelism
    frame = spark.range(0, cores, 1, cores)
    probe = frame.mapInArrow(worker_function(WorkerProbe(), OWN_ADVICE), frame.schema)
    with ThreadPoolExecutor(1) as thread:
        answer: Future[Any] = thread.submit(outcome_of, probe)
        try:
            answer.result(seconds)
        except TimeoutError:
            try:
                answer.result(answering if _executors(spark) else 0)
            except TimeoutError:
                silent = _silent(spark, seconds, answering)
                # Else the thread would wait on.
                spark.sparkContext.cancelAllJobs()
                raise silent from None


def _executors(spark: SparkSession) -> int:
    """How many executors the driver knows."""
    context: Any = spark.sparkContext._jsc
    # The driver is among them.
    return int(context.sc().getExecutorMemoryStatus().size()) - 1


def _silent(spark: SparkSession, seconds: float, answering: float) -> SetupError:
    where, executors = spark.sparkContext.master, _executors(spark)
    if executors > 0:
        came, seconds = f"{executors} that did not answer", seconds + answering
        advice = "what they say of it is in their work folders"
    else:
        host = spark.sparkContext.getConf().get("spark.driver.host")
        came = "none"
        advice = (
            f"has it workers with the cores and memory that spark.executor.… ask for, and do they reach the driver at"
            f" {host} (spark.driver.host)?"
        )
    return SetupError(str(Fault(f"an executor of {where} within {seconds:.0f} s", came, None, advice)))
