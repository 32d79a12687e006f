"""One pure function over many parameters: one after the other, or each a Spark task, over cores and machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

if TYPE_CHECKING:
    from pyspark import SparkContext

Parameter = TypeVar("Parameter")
Outcome = TypeVar("Outcome")

POLL_SECONDS = 0.2
"""How often Spark is asked how far it is."""


def in_turn(
    work: Callable[[Parameter], Outcome],
    parameters: Sequence[Parameter],
    advance: Callable[[int], None] = lambda _: None,
) -> list[Outcome]:
    """What `work` makes of each parameter, one after the other, in this process. `advance` is told of each."""
    outcomes = []
    for parameter in parameters:
        outcomes.append(work(parameter))
        advance(1)
    return outcomes


def sweep(
    work: Callable[[Parameter], Outcome],
    parameters: Sequence[Parameter],
    advance: Callable[[int], None] = lambda _: None,
    master: str | None = None,
) -> list[Outcome]:
    """The same as Spark tasks, the outcomes in the order of the parameters. `advance` is told how many more are done.

    Parameters and outcomes travel pickled, `work` by its module and name. Tasks begin in the order of the parameters,
    so the longest should stand first. All are tried; then the first exception of `work` is raised.
    """
    if not parameters:
        return []
    # Here, for Spark takes a second to import.
    from nearcast.pipeline.spark_session import session

    context, group = session(master).sparkContext, str(uuid4())
    # The package is installed where the workers are, its experiments are in this folder only.
    context.environment["PYTHONPATH"] = str(Path(__file__).parents[1])

    def tried() -> list[Outcome | _Failed]:
        """Runs the job, a task for each parameter, under a name by which its stage is found."""
        context.setJobGroup(group, "sweep", interruptOnCancel=True)
        return context.parallelize(parameters, len(parameters)).map(lambda one: _attempt(work, one)).collect()

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(tried)
        _watch(running, context, group, len(parameters), advance)
    return [_outcome(found) for found in running.result()]


@dataclass(frozen=True, slots=True)
class _Failed:
    """What a task raised: as an exception it would end the job, and hide in one of Spark's."""

    error: Exception


def _attempt(work: Callable[[Parameter], Outcome], parameter: Parameter) -> Outcome | _Failed:
    try:
        return work(parameter)
    except Exception as error:
        return _Failed(error)


def _outcome(found: Outcome | _Failed) -> Outcome:
    if isinstance(found, _Failed):
        raise found.error
    return found


def _watch(running: Future[Any], context: SparkContext, group: str, tasks: int, advance: Callable[[int], None]) -> None:
    """Tells of tasks as they end, until the job has; an interruption cancels it."""
    told = 0
    try:
        while not running.done():
            wait([running], POLL_SECONDS)
            done = tasks if running.done() else _ended(context, group)
            if done > told:
                advance(done - told)
                told = done
    except BaseException:
        context.cancelJobGroup(group)
        raise


def _ended(context: SparkContext, group: str) -> int:
    """How many tasks of a group of jobs have ended well."""
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    return sum(stage.numCompletedTasks for stage in stages if stage)
