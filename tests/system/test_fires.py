"""Six hours of real bushfires on a real system: receivers over measured mobile links, some of them slow or dead."""

from __future__ import annotations

import asyncio
import heapq
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from nearcast.cli.options import journal_path
from nearcast.cli.serving_options import ServingOptions
from nearcast.cli.system import define, free_port, running, wait_until_ready
from nearcast.demo.bushfire import StoryStep
from nearcast.demo.performance import DemoReceiver, Performance, steps_of
from nearcast.importers import nsw_fires
from nearcast.importers.event_documents import client_change, moment
from nearcast.importers.mobile_links import traces
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.definitions import files
from tests.shared import shared

pytestmark = [pytest.mark.faults, pytest.mark.data]

START, HOURS, SECONDS = datetime(2020, 1, 4, 2, tzinfo=UTC), 6, 40.0
"""The six hours with the most rises of alert levels, told in 40 seconds."""

RECEIVERS = 60
SPEED = HOURS * 3600 / SECONDS
DEAD = (0.3 * SECONDS, 0.65 * SECONDS)
"""When the dead links are dead."""

SLOW = 8.0
"""kbit/s of the slow links: a report takes the better part of a second."""

RISE = 2
"""The level of a rise inside the radius, in every role."""


@dataclass
class Afternoon:
    """What was performed, and what the journal says of it."""

    receivers: dict[str, DemoReceiver]
    deliveries: list[dict[str, Any]]
    outcomes: list[dict[str, Any]]

    def owed(self, client: str) -> set[int]:
        return {row["position"] for row in self.deliveries if row["client"] == client}


@pytest.fixture(scope="module")
def afternoon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Afternoon]:
    """The performance, after all that can arrive has arrived."""
    changes = shared("data/nsw_rfs_fires/changes_20191230_20200104.jsonl.gz")
    links = shared("data/hsdpa_norway_3g/3Glogs.tar.gz")
    data = tmp_path_factory.mktemp("fires")
    document = nsw_fires.receivers(changes, count=RECEIVERS)
    (data / "fires.yaml").write_text(yaml.safe_dump(document))
    journal = SqliteJournal(journal_path(data))
    define(journal, files.load([data / "fires.yaml"]))
    port = free_port()
    performance = Performance(f"http://127.0.0.1:{port}")
    with running(data, ServingOptions(port=port), "local[2]") as supervisor:
        wait_until_ready(supervisor, performance.url, data)
        steps = heapq.merge(fires(changes), mobile(links, sorted(kind(1))), cut_off(), key=lambda step: step.at)
        asyncio.run(performance.perform(document["clients"], steps))
    logs = {log: journal.read(log, 0, journal.end(log)).to_pylist() for log in ("deliveries", "outcomes")}
    yield Afternoon(performance.receivers, logs["deliveries"], logs["outcomes"])
    journal.close()


def kind(number: int) -> set[str]:
    """A third of the receivers: 0 has slow links, 1 measured ones, 2 good ones that are dead for a while."""
    return {f"receiver {index}" for index in range(1, RECEIVERS + 1) if index % 3 == number}


def fires(path: Path) -> Iterator[StoryStep]:
    """The reports of the six hours, in story time."""
    first, last = moment(START), moment(START, HOURS * 3600)
    events = (event for event in nsw_fires.events(path) if first <= event["time"] < last)
    for step in steps_of(events):
        yield StoryStep(step.at / SPEED, step.kind, step.client, step.document)


def mobile(path: Path, clients: list[str]) -> Iterator[StoryStep]:
    """Links that follow measured traces second by second, a tenth as fast so that six hours' reports are a load."""
    found = traces(path)
    for second in range(int(SECONDS)):
        for number, client in enumerate(clients):
            yield from changed(second, client, found[number % len(found)].bandwidth(number * 60.0 + second) / 10)


def cut_off() -> Iterator[StoryStep]:
    """The slow links, the dying of the good ones; and in the end every link is good."""
    for client in sorted(kind(0)):
        yield from changed(0.0, client, SLOW)
    for at, bandwidth in zip(DEAD, (0.0, 40.0), strict=True):
        for client in sorted(kind(2)):
            yield from changed(at, client, bandwidth)
    for client in sorted(kind(0) | kind(1) | kind(2)):
        yield from changed(SECONDS, client, 2000.0)


def changed(at: float, client: str, bandwidth: float) -> Iterator[StoryStep]:
    """A link changes; over one that lives the client says so."""
    yield StoryStep(at, "link", client, bandwidth=bandwidth)
    if bandwidth > 0:
        name = f"{client}-{at}"
        told = client_change("links", name, moment(START, at), client, readings={"bandwidth": bandwidth})
        yield StoryStep(at, "client", client, told)


def test_nothing_is_lost_whatever_the_link_did(afternoon: Afternoon) -> None:
    """What a receiver was owed has arrived, once; a link that was slow or dead only took longer."""
    assert 500 < len(afternoon.deliveries)
    for client, receiver in afternoon.receivers.items():
        arrived = [arrival.delivery.position for arrival in receiver.arrivals]
        assert sorted(afternoon.owed(client)) == sorted(arrived), client


def test_a_rise_is_sent_before_every_routine_update_that_still_waits(afternoon: Afternoon) -> None:
    """From when the rise is queued until it is sent nothing less urgent is, unless it was on its way already."""
    level = {(row["client"], row["position"]): row["level"] for row in afternoon.deliveries}
    by_client: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in afternoon.outcomes:
        by_client[row["client"]].append(row)
    rises = overtaken = 0
    for client, rows in by_client.items():
        routine = [row for row in rows if level[client, row["event"]] < RISE]
        for rise in (row for row in rows if level[client, row["event"]] == RISE):
            rises += 1
            late = [row for row in routine if rise["queued"] < row["sent"] < rise["sent"] and row["attempts"] == 1]
            overtaken += sum(row["queued"] <= rise["queued"] and row["sent"] > rise["sent"] for row in routine)
            assert [] == late or rise["attempts"] > 1
    assert rises >= 10
    assert overtaken >= 10, "the links must be slow enough for the claim to be tested"


def test_after_a_dead_link_returns_the_urgent_ones_come_first(afternoon: Afternoon) -> None:
    """Of what had waited for the link, in the order of arrival, no rise stands behind anything else."""
    waited = 0
    for client in kind(2):
        receiver = afternoon.receivers[client]
        queued = {row["event"]: row["queued"] for row in afternoon.outcomes if row["client"] == client}
        burst = [arrival.delivery for arrival in receiver.arrivals if arrival.waited and arrival.waited > 3.0]
        if len(burst) < 2:
            continue
        first_sent = min(row["sent"] for row in afternoon.outcomes
                         if row["client"] == client and row["event"] in {one.position for one in burst})  # fmt: skip
        held = [one for one in burst if queued[one.position] < first_sent and one.attempt == 1]
        waited += len(held)
        urgent = [one.level == RISE for one in held]
        assert sorted(urgent, reverse=True) == urgent, client
    assert waited >= 20
