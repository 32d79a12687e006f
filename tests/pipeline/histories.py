"""Histories in a journal, and what the stages give for them in this process, to compare with."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from nearcast.cli.system import define
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.control_events import changes
from nearcast.language.definitions import files
from nearcast.language.event_files import read_tables
from nearcast.model.columns import EVENTS
from nearcast.model.event import MAIN
from nearcast.stages import decide as decide_module
from nearcast.stages.decide import decide, priorities
from nearcast.stages.fold import FoldedBatch, StateFold
from tests.system import history as reports

CLIENTS = ["ann", "bob", "eve"]
Row = dict[str, Any]


def with_roles() -> dict[str, Any]:
    """The reports' definitions, and one subscription whose relevance comes from roles and tasks."""
    found = reports.definitions(CLIENTS)
    for client, task in zip(found["clients"], ("watch", "rest", "watch"), strict=True):
        client |= {"role": "guard", "task": task}
    by_role = {"id": "large or hostile", "clients": CLIENTS, "filter": "size > 60 OR kind = 'H'"}
    found["subscriptions"].append(by_role)
    found["roles"] = {"guard": {"watch": {by_role["id"]: [0.5, 1]}, "rest": {by_role["id"]: [0, 0.2]}}}
    return found


def documents(count: int) -> list[dict[str, Any]]:
    """Reports and changes, among them changes of task."""
    found = reports.documents(CLIENTS, count)
    for number in range(9, count, 40):
        task = {"client": CLIENTS[number % 3], "task": ("rest", "watch")[number % 2]}
        found[number] = found[number] | {"type": "nearcast.client", "data": task}
    return found


def written(
    folder: Path, defined: Mapping[str, Any], history: Iterable[Mapping[str, Any]], nodes: Sequence[str] = (MAIN,)
) -> SqliteJournal:
    """A journal that begins with the definitions and goes on with the history, whose events enter at nodes in turn."""
    (folder / "definitions.yaml").write_text(yaml.safe_dump(dict(defined)))
    found = files.load([folder / "definitions.yaml"])
    (folder / "history.jsonl").write_text("".join(json.dumps(document) + "\n" for document in history))
    journal = SqliteJournal(folder / "some.journal")
    define(journal, found)
    for table in read_tables([folder / "history.jsonl"], found.settings.channels, pytest.fail):
        entered = pa.array([nodes[number % len(nodes)] for number in range(len(table))])
        journal.append("events", table.set_column(EVENTS.get_field_index("node"), EVENTS.field("node"), entered))
    return journal


def row_ranges(journal: SqliteJournal, length: int) -> Iterable[pa.Table]:
    """The journal in tables of so many positions."""
    return (journal.read("events", after, length) for after in range(0, journal.end("events"), length))


def in_this_process(journal: SqliteJournal, stretch: int = 100_000) -> list[Row]:
    """What replay gives without Spark, in stretches of so many positions."""
    return rows(decide_module.replay(StateFold(), iter(row_ranges(journal, stretch)), changes))


def live_rows(journal: SqliteJournal) -> list[Row]:
    """The deliveries that the live pipeline is to write, at every role's level."""
    [*tables] = (decide(batch, batch.events) for batch in StateFold().fold(journal.read("events", 0, 100_000), changes))
    return pa.concat_tables(tables).to_pylist()


def until_decided(journal: SqliteJournal, through: int) -> None:
    """Waits until the deliveries cover this position, at most three minutes: a machine may have much else to do."""
    end = time.monotonic() + 180
    while journal.end("deliveries") < through:
        assert time.monotonic() < end, "the pipeline did not get there"
        time.sleep(0.02)


def rows(decided: Iterable[tuple[FoldedBatch, pa.Table]]) -> list[Row]:
    """Every delivery with the priority as of its position."""
    return [
        row | {"priority": priority}
        for batch, deliveries in decided
        for row, priority in zip(deliveries.to_pylist(), priorities(batch, deliveries).tolist(), strict=True)
    ]
