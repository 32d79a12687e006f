"""What access servers decide themselves, through real servers, with a pipeline that decides when it is told to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from nearcast.client import Client
from nearcast.journal.memory import MemoryJournal
from nearcast.language.control_events import to_event
from nearcast.model.changes import SettingsChange
from nearcast.model.columns import DELIVERIES, to_table
from nearcast.model.sequence import sequence
from nearcast.model.subscription import Channel, Settings
from nearcast.server.config import ServerLimits
from nearcast.server.sessions.outcomes import SettledCheckpoint, SettledMark
from tests.server.conftest import Running, received, run, running, unit, until
from tests.server.test_deliver import outcomes, waiting
from tests.server.test_domain import knows, two

SETTINGS = Settings(
    channels=(Channel("prompt", "planar", ("unit",), delivery="decentralised"), Channel("steady", "planar"))
)


def journal_of(settings: Settings = SETTINGS) -> MemoryJournal:
    """A journal with these settings."""
    journal = MemoryJournal()
    journal.append("events", to_table([to_event(SettingsChange(settings), "settings", "test")]))
    return journal


async def published(server: Running, *events: dict[str, Any]) -> list[int]:
    """The positions of events that are published; the pipeline decides nothing."""
    async with server.publisher() as publisher:
        found = await publisher.publish(events)
    assert not found.faults
    return [position for position in found.positions if position]


def counted(server: Running, name: str) -> float:
    """A metric of the server."""
    text = server.service.metrics.text().decode()
    return sum(float(value) for value in re.findall(rf"^nearcast_{name}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE))


async def decided(server: Running) -> None:
    """The pipeline decides what there is, and the server has read it."""
    server.pipeline.decide()
    end = server.journal.end("deliveries")
    await until(lambda: server.service.session_manager.deliveries_through >= end)


def test_an_event_is_delivered_before_the_pipeline_decides_it_and_once() -> None:
    """It is acknowledged meanwhile, and told to be settled; what the pipeline decides then is recognised."""

    async def test() -> None:
        async with running(journal_of()) as server:
            await server.declare("a")
            await decided(server)
            async with server.client("a") as client:
                positions = await published(server, unit("e1"), unit("e2"))
                found = await received(client, 2)
                assert positions == [one.position for one in found]
                await client.acknowledge(*positions)
                await until(lambda: server.journal.end("outcomes") == 2)
                assert 0 == len(server.journal.read("deliveries", 0, 1_000))
                assert 4.0 == counted(server, "early_unconfirmed")
                await decided(server)
            assert dict.fromkeys(positions, "acknowledged") == outcomes(server)
            assert [True, True] == server.journal.read("outcomes", 0, 10).column("early").to_pylist()
            assert (2, 0, []) == (waiting(server).queued, waiting(server).balance(), [*waiting(server).waiting])
            assert (2.0, 0.0, 0.0) == tuple(
                counted(server, name)
                for name in ("early_deliveries_total", "early_differences_total", "early_unconfirmed")
            )

    run(test)


def test_events_of_other_channels_and_filters_that_ask_of_others_wait_for_the_pipeline() -> None:
    """And so does what comes behind the latter for the same client, which would overtake it."""

    async def test() -> None:
        async with running(journal_of()) as server:
            await server.declare("a")
            await server.declare("b", filter="type LIKE '%'")
            body = {"client": "b", "filter": "size = 3 AND count(uform(type = 'unit')) > 0"}
            (await server.http.put("/subscriptions/asks", json=body)).raise_for_status()
            await decided(server)
            other = {**unit("e2"), "type": "other"}
            first, steady, asked, last = await published(server, unit("e1"), other, unit("e3", size=3), unit("e4"))
            await until(lambda: server.service.session_manager.events_through >= last)
            assert [first, asked, last] == [one >> 20 for one in waiting(server, "a").waiting]
            assert [first] == [one >> 20 for one in waiting(server, "b").waiting]
            await decided(server)
            async with server.client("b") as client:
                found = await received(client, 4)
            assert [first, steady, asked, last] == [one.position for one in found]

    run(test)


def test_clients_of_another_server_get_it_before_the_pipeline_decides_it_and_once() -> None:
    """It entered at the one, and is decided at the other; the client goes to the first then, which does not send it."""

    async def test() -> None:
        async with two(journal=journal_of()) as (north, south):
            await north.declare("a")
            await knows(south, "a")
            north.pipeline.decide()
            async with Client([south.url, north.url], "a") as client:
                await client.connected()
                # Until then north does what is to be done for it, and who has the session is known at once.
                await until(lambda: north.service.domain.places.of("a") is not None)
                positions = await published(north, unit("e1"), unit("e2"))
                assert positions == [one.position for one in await received(client, 2)]
                await until(lambda: north.journal.end("outcomes") == 2)
                await client.move_to(north.url)
                [later] = await published(south, unit("e3"))
                north.pipeline.decide()
                assert [later] == [one.position for one in await received(client, 1)]
                await until(lambda: north.journal.end("outcomes") == 3)
            assert dict.fromkeys((*positions, later), "acknowledged") == outcomes(north)
            for server in (north, south):
                await until(lambda server=server: not server.service.session_manager.outstanding())
                assert 0.0 == counted(server, "early_differences_total")

    run(test)


def test_a_client_that_is_removed_meanwhile_has_each_delivery_once() -> None:
    """Its session is forgotten when the pipeline has decided what it had early."""

    async def test() -> None:
        async with running(journal_of()) as server:
            await server.declare("a")
            await decided(server)
            [position] = await published(server, unit("e1"))
            manager = server.service.session_manager
            await manager.reached(position)
            (await server.http.delete("/clients/a")).raise_for_status()
            await until(lambda: server.journal.end("outcomes") == 1)
            manager.prune()
            await decided(server)
            manager.prune()
            assert "a" not in manager.sessions
            assert {position: "unsubscribed"} == outcomes(server)

    run(test)


def test_a_server_that_starts_anew_does_not_send_again_what_was_acknowledged_early() -> None:
    """Though the log of deliveries does not have it yet; what was not acknowledged comes from there."""

    async def test() -> None:
        journal = journal_of()
        async with running(journal) as server:
            await server.declare("a")
            await decided(server)
            async with server.client("a", automatic=False) as client:
                first, second = await published(server, unit("e1"), unit("e2"))
                await received(client, 2)
                await client.acknowledge(first)
                await until(lambda: server.journal.end("outcomes") == 1)
        async with running(journal) as server:
            assert [] == [*waiting(server).waiting]
            server.pipeline.through = 0
            async with server.client("a") as client:
                server.pipeline.decide()
                [delivery] = await received(client, 1)
                assert second == delivery.position
                await client.acknowledge(second)
                await until(lambda: server.journal.end("outcomes") == 2)
        assert dict.fromkeys((first, second), "acknowledged") == outcomes(server)

    run(test)


def test_the_mark_of_what_is_settled_stays_behind_what_the_pipeline_has_decided(tmp_path: Path) -> None:
    """An outcome of what was decided early is behind the mark until its delivery is in the log, too."""

    async def test() -> None:
        async with running(journal_of()) as server:
            await server.declare("a")
            await decided(server)
            through = server.service.session_manager.deliveries_through
            checkpoint = SettledCheckpoint(tmp_path / "settled", "j")

            async def advanced() -> SettledMark:
                for _ in range(3):
                    await server.service._advance(checkpoint)
                return checkpoint.mark

            async with server.client("a") as client:
                positions = await published(server, unit("e1"), unit("e2"))
                await received(client, 2)
                await client.acknowledge(*positions)
                await until(lambda: server.journal.end("outcomes") == 2)
                mark = await advanced()
                assert mark.deliveries <= through
                assert 0 == mark.outcomes
                await decided(server)
                assert SettledMark(positions[-1], 2) == await advanced()

    run(test)


def test_settings_may_make_a_channel_decentralised_while_the_server_runs() -> None:
    """From then on, once the pipeline has decided what came before."""

    async def test() -> None:
        async with running(journal_of(Settings(channels=(Channel("prompt", "planar"),)))) as server:
            await server.declare("a")
            [before] = await published(server, unit("e1"))
            renewed = to_event(SettingsChange(SETTINGS), "renewed", "test")
            [position] = server.journal.append("events", to_table([renewed]))
            await server.service.session_manager.reached(position)
            [behind] = await published(server, unit("e2"))
            await server.service.session_manager.reached(behind)
            assert [] == [*waiting(server).waiting]
            await decided(server)
            [prompt] = await published(server, unit("e3"))
            await server.service.session_manager.reached(prompt)
            assert [before, behind, prompt] == [one >> 20 for one in waiting(server).waiting]

    run(test)


def test_what_is_decided_early_and_not_confirmed_has_a_bound() -> None:
    """Beyond it events wait for the pipeline, which is counted; once it goes on, so do they."""

    async def test() -> None:
        async with running(journal_of(), limits=ServerLimits(early_deliveries=4)) as server:
            await server.declare("a")
            await decided(server)
            positions = list[int]()
            for number in range(4):
                positions += await published(server, unit(f"e{number}"))
                # One after the other: what is read together is decided together, though it be beyond the limit.
                await server.service.session_manager.reached(positions[-1])
            assert positions[:2] == [one >> 20 for one in waiting(server).waiting]
            assert 2.0 == counted(server, "early_left_total")
            await decided(server)
            [last] = await published(server, unit("last"))
            await server.service.session_manager.reached(last)
            assert [*positions, last] == [one >> 20 for one in waiting(server).waiting]
            assert (2.0, 0.0) == (counted(server, "early_left_total"), counted(server, "early_differences_total"))

    run(test)


def test_what_is_decided_otherwise_is_counted_and_logged(caplog: Any) -> None:
    """Each delivery that only one of both decided, or at another level; the client has it once in any case."""

    async def test() -> None:
        async with running(journal_of()) as server:
            await server.declare("a", "b")
            await decided(server)
            [position] = await published(server, unit("e1"))
            await server.service.session_manager.reached(position)
            row = {"position": position, "client": "a", "subscription": "all-a", "level": 1, "part": 0}
            server.journal.commit_range("deliveries", DELIVERIES.empty_table().from_pylist([row], DELIVERIES), position)
            await until(lambda: server.service.session_manager.deliveries_through >= position)
            await until(lambda: counted(server, "early_differences_total") == 2.0)
            assert [sequence(position, 0)] == [*waiting(server, "a").waiting]
        assert "decided otherwise than the pipeline differences=2 kind=other" in caplog.text

    run(test)
