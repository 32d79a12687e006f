"""The language on Spark: other people's predicates, each as a subscription of its own, over a journal."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from nearcast.errors import Mark
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.cql2 import parse
from nearcast.model.changes import ClientChange, SubscriptionChange
from nearcast.model.columns import to_table
from nearcast.model.event import Event
from nearcast.model.subscription import Subscription
from nearcast.pipeline.batch_replay import replay
from nearcast.pipeline.spread import select
from nearcast.stages.fold import StateFold
from nearcast.state.registry import Registry
from tests.language.test_cql2_counts import cases, tables
from tests.shared import shared

pytestmark = pytest.mark.spark

HERE = Mark("here")


def subscribed(*filters: str) -> Registry:
    """A client and a subscription for each filter, named by its number."""
    registry = Registry()
    for number, text in enumerate(filters):
        registry.apply(ClientChange(f"{number}"))
        registry.apply(SubscriptionChange(Subscription(f"s{number}", (f"{number}",), parse(text, HERE))))
    return registry


def test_predicates_select_as_many_features_as_they_should(spark: SparkSession, tmp_path: Path) -> None:
    """Every predicate over the features of its source, decided by the executors."""
    shared("cases", "cql2", "predicates.json")
    listed = [each.values for each in cases()]
    known, last, source_of = StateFold(subscribed(*(text for _, text, _ in listed))), 0, {}
    with closing(SqliteJournal(tmp_path / "some.journal")) as journal:
        for source in sorted({source for source, _, _ in listed}):
            for table in tables(source):
                journal.append("events", table)
            source_of |= dict.fromkeys(range(last + 1, journal.end("events") + 1), source)
            last = journal.end("events")
        found: Counter[int] = Counter()
        for _, deliveries in replay(spark, journal, known, tmp_path, spread=1):
            for position, client in zip(
                *(deliveries.column(name).to_pylist() for name in ("position", "client")), strict=True
            ):
                found[int(client)] += source_of[position] == listed[int(client)][0]
    wrong = [(text, count, found[number]) for number, (_, text, count) in enumerate(listed) if found[number] != count]
    assert wrong == []


def test_a_previous_event_is_known_however_a_history_is_cut(spark: SparkSession, tmp_path: Path) -> None:
    """Also where the two lie in different batches, or with different executors."""
    levels = [1, 1, 2, 5, 5, 4]
    events = [
        Event(f"{number}-{name}", "t", "s", name, attributes=(("level", level),), payload=b"{}")
        for number, level in enumerate(levels)
        for name in ("a", "b")
    ]
    known = StateFold(subscribed("CHANGED(level)", "level > PREVIOUS(level)", "NOT CHANGED(level)"))
    with closing(SqliteJournal(tmp_path / "some.journal")) as journal:
        journal.append("events", to_table(events))
        decided = [
            (row["position"], row["client"])
            for _, deliveries in replay(spark, journal, known, tmp_path, range_size=5, spread=1, partitions=3)
            for row in deliveries.to_pylist()
        ]
    expected = {"0": [2, 3, 5], "1": [2, 3], "2": [1, 4]}
    assert {client: [2 * index + 1 + more for index in at for more in (0, 1)] for client, at in expected.items()} == {
        client: [position for position, name in decided if name == client] for client in expected
    }


def test_a_filter_selects_on_spark_what_it_selects_here(spark: SparkSession) -> None:
    """A single filter over files, as `match --engine spark` has it."""
    shared("cases", "cql2", "predicates.json")
    filter = parse("S_INTERSECTS(geom, BBOX(150, -90, -150, 90))", HERE)
    assert 10 == sum(len(table) for table in select(filter, iter(tables("ne_110m_admin_0_countries"))))
