"""A file tells the same whether it is replayed, published at once, or published at its own pace; and so does a journal.

Apart from what time alone brings: a tick that goes ahead of an event, because the machine was slow for a moment, may
tell of a silence that the event would have broken. Whom that happened to is left out, and so is what is due only after
the file's end.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from nearcast.cli.options import journal_path
from nearcast.cli.serving_options import ServingOptions
from nearcast.cli.system import define, free_port, running, wait_until_ready
from nearcast.importers import ais
from nearcast.importers.event_documents import write
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.definitions import files
from nearcast.model.event import CONTROL_PREFIX
from nearcast.model.values import time_of, time_text
from tests.cli.test_offline import nearcast
from tests.pipeline.histories import until_decided
from tests.shared import shared

pytestmark = [pytest.mark.faults, pytest.mark.data]

AGAIN = " again"
"""What the names of the second file end with: its vessels are others."""


def near(again: str = "") -> dict[str, Any]:
    """The relation of either file's vessels: that they lie side by side, for a while, unless they fall silent."""
    vessel = f"type = 'vessel{again}'"
    spans = {"for": 100, "time_to_live": 150, "detect": ["enter", "dwell", "exit"]}
    return {"id": f"near{again}", "a": vessel, "b": vessel, "when": "distance(a, b) < 300", **spans}


DEFINITIONS = {
    "channels": {"sea": {"coordinates": "geographic"}},
    "ontology": {"classes": {"speed": {}}, "situations": {"Still": {}, "Crowd": {}}},
    "clients": [{"id": "ann"}],
    "relations": [near(), near(AGAIN)],
    "situations": [
        {"id": "still", "class": "Still", "when": "speed < 0.2", "within": 5, "valid": 100},
        {"id": "crowd", "class": "Crowd", "when": "count(uform(speed < 0.2)) >= 3", "within": 500, "valid": 100},
    ],
    "subscriptions": [{"id": "told", "client": "ann", "filter": "type IN ('nearcast.relation', 'nearcast.situation')"}],
}

MINUTES, SPEED = 6, 90
LATER = timedelta(days=1)
"""By so much the file that is published at its pace is later than the one that is published at once."""


def reports() -> list[dict[str, Any]]:
    """The first minutes at the mouth of the Mississippi, by time."""
    source = shared("data/ais_us_20220103/AISdata.csv.gz")
    found = [one for one in ais.events(source, order="time") if _is_here(one["data"])]
    end = moment(found[0]["time"]) + timedelta(minutes=MINUTES)
    return [one for one in found if moment(one["time"]) <= end]


def _is_here(data: dict[str, Any]) -> bool:
    return "lon" in data and -91.0 <= data["lon"] <= -89.0 and 29.0 <= data["lat"] <= 30.5


def again(report: dict[str, Any]) -> dict[str, Any]:
    """The same of another vessel, a day later."""
    names = {name: report[name] + AGAIN for name in ("id", "type", "subject")}
    return {**report, **names, "time": time_text(moment(report["time"]) + LATER)}


def moment(text: str) -> datetime:
    found = time_of(text)
    assert found is not None
    return found


@dataclass(frozen=True)
class Published:
    """A system that was given the file at once, then once more at its pace, and has decided all of it."""

    folder: Path
    replayed: list[dict[str, Any]]
    derived: list[dict[str, Any]]
    overtaken: frozenset[str]
    end: datetime


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Published]:
    folder = tmp_path_factory.mktemp("live")
    found = reports()
    write(folder / "once.jsonl", iter(found))
    write(folder / "again.jsonl", map(again, found))
    (folder / "d.yaml").write_text(yaml.safe_dump(DEFINITIONS))
    replayed = nearcast(
        folder, "replay", "--engine", "local", "--definitions", "d.yaml", "--events", "once.jsonl", "--derived", "r"
    )
    assert 0 == replayed.returncode, replayed.stderr
    data = folder / "data"
    data.mkdir()
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with closing(SqliteJournal(journal_path(data))) as journal:
        define(journal, files.load([folder / "d.yaml"]))
        with running(data, ServingOptions(port=port), "local[2]") as supervisor:
            wait_until_ready(supervisor, url, data, seconds=600)
            for words in (("once.jsonl",), ("again.jsonl", "--speed", str(SPEED))):
                done = nearcast(folder, "publish", "--url", url, *words)
                assert f"note: {len(found):,} events published, 0 refused\n" == done.stderr
                until_decided(journal, journal.end("events"))
            # While it runs.
            yield Published(data, derived_in(folder / "r"), _derived(journal), _overtaken(journal), _end(found))


def derived_in(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def _derived(journal: SqliteJournal) -> list[dict[str, Any]]:
    table: pa.Table = journal.read("derived", 0, journal.end("events"))
    return [json.loads(payload) for payload in table.column("payload").to_pylist()]


def _end(found: list[dict[str, Any]]) -> datetime:
    return moment(found[-1]["time"])


def _overtaken(journal: SqliteJournal) -> frozenset[str]:
    """The entities of events of which a tick went ahead."""
    clock: datetime | None = None
    found = set()
    for row in journal.read("events", 0, journal.end("events")).to_pylist():
        if row["type"] == "nearcast.tick":
            clock = moment(json.loads(row["payload"])["data"]["clock"])
        elif not row["type"].startswith(CONTROL_PREFIX) and clock is not None and row["time"] < clock:
            found.add(row["subject"])
    return frozenset(found)


def told(event: dict[str, Any], back: timedelta) -> tuple[Any, ...] | None:
    """What a derived event says, but for positions; of an event of the second file as of the first one's."""
    data = event["data"]
    # A crowd rests on all around, also on those of whom something was overtaken.
    if data.get("situation") == "crowd":
        return None
    names = [data["a"], data["b"]] if "a" in data else [one["entity"] for one in data["evidence"]]
    if all(name.endswith(AGAIN) for name in names) != bool(back):
        return None
    times = [moment(data[name]) - back for name in ("since", "moment") if name in data]
    kind = data.get("detect") or data["phase"], data.get("reason")
    what = data.get("distance"), data.get("readings"), json.dumps(data.get("position"))
    return *kind, tuple(name.removesuffix(AGAIN) for name in names), moment(event["time"]) - back, *times, str(what)


def all_told(
    events: list[dict[str, Any]], published: Published, back: timedelta, left_out: frozenset[str]
) -> list[str]:
    """What derived events say of all but some, until the file's end."""
    found = [one for event in events if (one := told(event, back)) is not None]
    return sorted(str(one) for one in found if one[3] < published.end and left_out.isdisjoint(one[2]))


@pytest.mark.parametrize("back", [timedelta(), LATER], ids=["at once", "at its pace"])
def test_a_file_tells_the_same_live_as_replayed(published: Published, back: timedelta) -> None:
    """Of whom, since when and when: dwells, silences, and readings that got too old too."""
    names = (name for name in published.overtaken if name.endswith(AGAIN) == bool(back))
    left_out = frozenset(name.removesuffix(AGAIN) for name in names)
    expected = all_told(published.replayed, published, timedelta(), left_out)
    assert expected == all_told(published.derived, published, back, left_out)
    kinds = Counter(event["data"].get("detect") or event["data"]["phase"] for event in published.replayed)
    assert min(kinds[kind] for kind in ("enter", "dwell", "exit", "begin", "end")) > 10
    assert len(expected) > 200


def test_replay_of_the_running_system_is_what_it_decided(published: Published) -> None:
    """Each delivery and each derived event, ticks and all; a range of it too."""
    for bounds in ((), ("--from", "500", "--to", "900")):
        done = nearcast(published.folder, "replay", "--data", ".", "--engine", "local", "--compare", "--json", *bounds)
        assert 0 == done.returncode, done.stdout
        [found] = [json.loads(line) for line in done.stdout.splitlines()]
        assert 0 == found["derived"]["new"] == found["derived"]["no_longer"]
        assert found["derived"]["then"] > 20
        assert [] == found["examples"]
