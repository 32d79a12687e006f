"""What is spread out leaves nothing behind, in this process or on disk; and what was derived is delivered with it."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.control_events import changes
from nearcast.model.columns import to_events
from nearcast.model.event import Event
from nearcast.pipeline.batch_replay import replay
from nearcast.pipeline.source import BLOCKS
from nearcast.pipeline.spread import BatchSpreader, is_spread, submit_batch
from nearcast.stages.fold import FoldedBatch, StateFold
from nearcast.state.derived import StageInput
from tests.pipeline.histories import documents, with_roles, written


class Nobody:
    """Executors of this machine that decide nothing."""

    class sparkContext:
        master = "local"

    def mapInArrow(self, function: Any, schema: Any) -> Nobody:
        return self

    def toArrow(self) -> pa.Table:
        return BLOCKS.empty_table()


class Spreader(BatchSpreader):
    """Spreads batches over nobody."""

    def __init__(self, journal: SqliteJournal, folder: Path) -> None:
        super().__init__(Nobody(), journal, folder)  # type: ignore[arg-type]

    def blocks(self, batch: FoldedBatch, first: int, last: int) -> DataFrame:
        return Nobody()  # type: ignore[return-value]


def batch_of(folder: Path) -> FoldedBatch:
    with closing(written(folder, with_roles(), documents(40))) as journal:
        # The first one is of the settings alone.
        [*_, batch] = StateFold().fold(journal.read("events", 0, 1_000), changes)
        return batch


def test_a_batch_that_was_spread_leaves_no_file_open_and_none_on_disk(tmp_path: Path) -> None:
    """Else a pipeline that catches up for long runs out of descriptors."""
    batch = batch_of(tmp_path)
    folder = tmp_path / "batches"
    with closing(SqliteJournal(tmp_path / "some.journal")) as journal:
        spreader = Spreader(journal, folder)
    before = len(os.listdir("/dev/fd"))
    for _ in range(5):
        submit_batch(batch, spreader, spread=0)()
    assert before == len(os.listdir("/dev/fd"))
    assert [] == list(folder.iterdir())


def test_executors_read_what_is_of_their_batch_alone(tmp_path: Path) -> None:
    """Where a stretch of the journal is cut into batches, its events are read once and not with each."""
    asked: list[tuple[int, int]] = []
    few = with_roles() | {"limits": {"entities": 5}}
    with closing(written(tmp_path, few, documents(200))) as journal:
        spreader = Spreader(journal, tmp_path / "batches")
        spreader.blocks = lambda batch, *between: (asked.append(between), Nobody())[1]  # type: ignore
        batches = [one for one in StateFold().fold(journal.read("events", 0, 1_000), changes) if len(one.events)]
        for batch in batches:
            submit_batch(batch, spreader, spread=1)()
    spans = [(one.events.column("position")[0].as_py(), one.events.column("position")[-1].as_py()) for one in batches]
    assert len(spans) > 1
    assert spans == asked


class Shouting:
    """A stage that derives an event from every third."""

    def passes_over(self, stage_input: StageInput) -> bool:
        return False

    def derive(self, stretch: StageInput) -> list[Event]:
        return [
            replace(event, id=f"loud {event.id}", type="nearcast.relation")
            for event in to_events(stretch.events)
            if event.position % 3 == 0
        ]


def test_derived_events_are_delivered_alike_in_the_driver_and_from_executors(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Behind their causes, with the deliveries of the events that executors read from the journal."""
    with closing(written(tmp_path, with_roles(), documents(200))) as journal:
        found = [
            pa.concat_tables(
                deliveries
                for _, deliveries in replay(
                    spark, journal, StateFold(stages=[Shouting()]), tmp_path / "b", spread=spread
                )
            )
            for spread in (1_000_000, 1)
        ]
    assert found[0].num_rows and 0 < sum(found[0].column("part").to_pylist())
    assert found[0].to_pylist() == found[1].to_pylist()


def test_what_was_beyond_limits_is_known_alike_in_the_driver_and_from_executors(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Which senders, which limit, and how often."""
    told = [
        {"specversion": "1.0", "id": str(number), "type": "zone", "source": "city", "data": {"area": star(number)}}
        for number in range(60)
    ]
    definitions = {
        "limits": {"geometry_work": 3_000, "event_geometry_work": 2_000},
        "clients": [{"id": "ann"}],
        "subscriptions": [
            {"id": "s", "client": "ann", "filter": "S_INTERSECTS(area, BBOX(0, 0, 20, 20))"},
            {"id": "t", "client": "ann", "filter": f"S_INTERSECTS(area, POLYGON((0 0, {'1 0, ' * 9} 1 1, 0 0)))"},
        ],
    }
    with closing(written(tmp_path, definitions, told)) as journal:
        batches = [
            batch
            for spread in (1_000_000, 1)
            for batch, _ in replay(spark, journal, StateFold(), tmp_path / "b", spread=spread)
        ]
    here, there = (
        sum((batch.around.excess for batch in half), Counter())
        for half in (batches[: len(batches) // 2], batches[len(batches) // 2 :])
    )
    assert here == there
    # The first atom does all that is allowed for the event.
    assert {("city", "zone", limit): 60 for limit in ("geometry_work", "event_geometry_work")} == here


def star(number: int) -> dict[str, Any]:
    """A polygon that crosses itself, another one for each number."""
    ring = [[corner * 7 % 13 + number / 100, corner * 5 % 11] for corner in range(40)]
    return {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}


class Crowding:
    """A stage that derives so many events from each."""

    def __init__(self, times: int) -> None:
        self.times = times

    def passes_over(self, stage_input: StageInput) -> bool:
        return False

    def derive(self, stretch: StageInput) -> list[Event]:
        return [
            replace(event, id=f"{number} of {event.id}", type="nearcast.relation")
            for event in to_events(stretch.events)
            for number in range(self.times)
        ]


@pytest.mark.parametrize("times", [0, 10])
def test_a_batch_is_spread_for_what_was_published_and_not_for_what_was_derived(tmp_path: Path, times: int) -> None:
    """Executors read published events alone: a crowd of few reports would wait for them in vain."""
    with closing(written(tmp_path, with_roles(), documents(40))) as journal:
        [*_, batch] = StateFold(stages=[Crowding(times)]).fold(journal.read("events", 0, 1_000), changes)
    published = len(batch.events) // (times + 1)
    assert (True, False) == (is_spread(batch, published), is_spread(batch, published + 1))
    with closing(SqliteJournal(tmp_path / "some.journal")) as journal:
        spreader = Spreader(journal, tmp_path / "batches")
        spreader.blocks = lambda *_: pytest.fail("spread out")  # type: ignore[method-assign]
        submit_batch(batch, spreader, spread=published + 1)()
