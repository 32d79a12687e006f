"""Dwells, ends and silences in real reports, as replay tells them, are those of a computation of its own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

import nearcast
from nearcast.errors import Mark
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.cloudevents import read_event
from nearcast.language.event_files import as_tables
from nearcast.model.values import time_of
from tests.cli.test_offline import nearcast as command
from tests.shared import shared
from tests.system.durations import FIRES, SHIPS, Durations, Told, by_time, computed, documents, fires, in_bursts, ships
from tests.system.durations import definitions as defined

pytestmark = pytest.mark.data

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

AT_SEA = Durations(300, 240, 300)
ON_LAND = Durations(15_000, 6 * 3600, 24 * 3600)

Order = Callable[[pd.DataFrame], pd.DataFrame]


def as_they_stand(reports: pd.DataFrame) -> pd.DataFrame:
    """In the file's order, which is not that of times."""
    return reports


ORDERS = [as_they_stand, by_time, partial(in_bursts, seconds=60)]


def micros(text: str) -> int:
    moment = time_of(text)
    assert moment is not None
    return (moment - EPOCH) // timedelta(microseconds=1)


def told(event: dict[str, Any]) -> Told:
    """What a derived event says."""
    data = event["data"]
    position = int(event["id"].rpartition("/")[2].partition(".")[0])
    times = micros(event["time"]), micros(data["since"])
    return Told(position, data["detect"], data["a"], data["b"], *times, data.get("reason"))


def replayed(reports: pd.DataFrame, durations: Durations, folder: Path) -> list[Told]:
    """What replay derives: of a file, or of a journal where events were accepted otherwise than they happened."""
    if (reports["accepted"] == reports["moment"]).all():
        found: list[dict[str, Any]] = []
        nearcast.replay(
            list(documents(reports)), nearcast.Definitions.read(defined(durations)), on_derived=found.append
        )
        return [told(event) for event in found]
    times = [EPOCH + timedelta(microseconds=one) for one in reports["accepted"].tolist()]
    both = zip(documents(reports), times, strict=True)
    with closing(SqliteJournal(folder / "journal")) as journal:
        for table in as_tables(read_event(one, Mark("report"), (), accepted) for one, accepted in both):
            journal.append("events", table)
    (folder / "d.yaml").write_text(yaml.safe_dump(defined(durations)))
    done = command(folder, "replay", "--journal", "journal", "--definitions", "d.yaml", "--derived", "derived.jsonl")
    assert 0 == done.returncode, done.stderr
    return [told(json.loads(line)) for line in (folder / "derived.jsonl").read_text().splitlines()]


def compare(reports: pd.DataFrame, durations: Durations, folder: Path) -> Counter[tuple[str, str | None]]:
    """Holds both against each other; how much of each kind there is."""
    expected, found = computed(reports, durations), replayed(reports, durations, folder)
    assert sorted(expected, key=str) == sorted(found, key=str)
    return Counter((one.detect, one.reason) for one in found)


@pytest.mark.parametrize("order", ORDERS)
def test_fires_that_burn_side_by_side(order: Order, tmp_path: Path) -> None:
    """Six days: near each other for six hours, not heard of for a day, or gone; some are updated out of order."""
    kinds = compare(order(fires(shared(f"data/{FIRES}"))), ON_LAND, tmp_path)
    assert min(kinds["dwell", None], kinds["exit", "left"], kinds["exit", None]) > 30
    assert kinds["exit", "silent"] > 30


HARBOURS = (-91.5, -88.0, 29.0, 31.0)
"""Degrees west to east, south to north: the mouth of the Mississippi."""


@pytest.mark.parametrize("order", ORDERS)
def test_ships_that_lie_side_by_side(order: Order, tmp_path: Path) -> None:
    """Half an hour at the mouth of the Mississippi."""
    reports = ships(shared(f"data/{SHIPS}"))
    west, east, south, north = HARBOURS
    here = reports["lon"].between(west, east) & reports["lat"].between(south, north)
    kinds = compare(order(reports[here].reset_index(drop=True)), AT_SEA, tmp_path)
    assert order is as_they_stand or min(kinds["dwell", None], kinds["exit", "silent"]) > 300


@pytest.mark.long
@pytest.mark.parametrize("order", ORDERS)
def test_all_ships_of_the_day(order: Order, tmp_path: Path) -> None:
    """In all waters."""
    compare(order(ships(shared(f"data/{SHIPS}"))), AT_SEA, tmp_path)
