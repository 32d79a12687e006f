"""With which engine a history is decided: in this process, by Spark, or what is done sooner."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pyarrow as pa

from nearcast.cli.output import pluralize, warn
from nearcast.journal.seam import Journal
from nearcast.language.control_events import changes
from nearcast.pipeline.replay_engine import BatchCosts, EngineEstimate, cores_of
from nearcast.stages import decide
from nearcast.stages.fold import FoldedBatch, Parse, StateFold

Decided = Iterator[tuple[FoldedBatch, pa.Table]]

STRETCH = 10_000
"""Events of a batch that is decided in this process."""

FIRST_STRETCH = 1_000
"""And of the first two with `auto`: where one costs a second, it knows that soon."""


class EngineChoice:
    """Decides with the engine that was asked for; `auto` begins here and goes on with Spark where that is done sooner.

    `told` says which it was, and why.
    """

    def __init__(self, engine: str, master: str | None, folder: Path, properties: Path | None = None) -> None:
        self.told = "spark" if engine == "spark" else "local"
        self._engine, self._master, self._folder, self._properties = engine, master, folder, properties

    def decided(self, journal: Journal, known: StateFold, through: int, parse: Parse = changes) -> Decided:
        """Each batch of a journal behind what is known, up to a position, with its deliveries; `parse` reads control
        events.
        """
        if self._engine == "auto":
            yield from self._measured(journal, known, through, parse)
        elif self._engine == "local":
            tables = journal.row_ranges("events", known.position, through, STRETCH)
            yield from decide.replay(known, tables, parse)
        else:
            yield from self._on_spark(journal, known, through, parse)

    def _measured(self, journal: Journal, known: StateFold, through: int, parse: Parse) -> Decided:
        costs, after = BatchCosts(cores_of(self._master)), known.position
        begin = min(after + 2 * FIRST_STRETCH, through)
        first = journal.row_ranges("events", after, begin, FIRST_STRETCH)
        for table in chain(first, journal.row_ranges("events", begin, through, STRETCH)):
            yield from costs.decided(known, table, parse)
            found = costs.estimate(through - known.position)
            if found and found.spark_pays:
                self.told = f"local, then spark for {found.events:,} events: {_seconds(found)}"
                warn("note", f"{found.events:,} events are left: {_seconds(found)}")
                yield from self._on_spark(journal, known, through, parse)
                return
            if found and self.told == "local":
                self.told = f"local: for {found.events:,} events {_seconds(found)}"

    def _on_spark(self, journal: Journal, known: StateFold, through: int, parse: Parse) -> Decided:
        from nearcast.pipeline.batch_replay import replay  # Spark is imported only by those who ask for it
        from nearcast.pipeline.executors.cluster_session import cluster_session

        warn("note", "starting Spark, which takes some seconds")
        spark = cluster_session(self._master, self._properties)
        return replay(spark, journal, known, self._folder, through=through, parse=parse)


def _seconds(found: EngineEstimate) -> str:
    """What an estimate says, in words."""
    on = "a cluster" if math.isinf(found.cores) else pluralize(int(found.cores), "core")
    return f"about {found.here:.0f} s in this process, {found.spark:.0f} s by Spark on {on}"
