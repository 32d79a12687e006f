"""Metrics, status, health."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from nearcast.journal.memory import Abort, MemoryJournal
from tests.server.conftest import received, run, running, unit, until


def test_everything_is_counted() -> None:
    """Published, queued, sent, acknowledged, refused; by priority or reason."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a", "b")
            await server.publish(unit("1"), unit("2"))
            await server.http.post("/events", content=b"{}", headers={"Content-Type": "application/cloudevents+json"})
            async with server.client("a") as client:
                await received(client, 2)
                await until(lambda: server.journal.end("outcomes") == 2)
                text = (await server.http.get("/metrics")).text
            found = {
                (sample.name, *sorted(sample.labels.items())): sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
            }
            assert 2 == found["nearcast_published_total",]
            assert 4 == found["nearcast_deliveries_total", ("priority", "0")]
            assert 2 == found["nearcast_waiting", ("priority", "0")]
            assert 2 == found["nearcast_outcomes_total", ("outcome", "acknowledged")]
            assert 1 == found["nearcast_rejected_total", ("reason", "event")]
            assert 1 == found["nearcast_sessions", ("state", "connected")]
            assert 2 == found["nearcast_send_seconds_count", ("priority", "0")]

    run(test)


def test_the_status_tells_a_person_and_its_balance_is_zero() -> None:
    """Queued, outcomes, waiting, latencies by priority."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            await server.publish(unit("1"), unit("2"), unit("3"))
            async with server.client("a") as client:
                await received(client, 3)
                await until(lambda: server.journal.end("outcomes") == 3)
            status = (await server.http.get("/status")).json()
            assert (3, 0, 3) == (status["queued"], status["balance"], status["outcomes"]["acknowledged"])
            assert 3 == status["latency"]["send"]["0"]["count"]
            assert 0 < status["latency"]["send"]["0"]["p50"] <= status["latency"]["acknowledge"]["0"]["p99"]

    run(test)


def test_health_tells_when_the_journal_cannot_be_written() -> None:
    """503 while it fails; outcomes are tried again until they are written."""

    async def test() -> None:
        async with running(MemoryJournal([Abort("outcomes", 1, "append")])) as server:
            assert 200 == (await server.http.get("/health")).status_code
            await server.declare("a")
            await server.publish(unit("1"))
            async with server.client("a") as client:
                await received(client, 1)
                await until(lambda: server.service.failing())
                failing = await server.http.get("/health")
                assert (503, ["writing outcomes"]) == (failing.status_code, failing.json()["failing"])
                await until(lambda: server.journal.end("outcomes") == 1)
            assert 200 == (await server.http.get("/health")).status_code

    run(test)
