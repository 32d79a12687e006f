"""From publishing to an acknowledged delivery, through a real server."""

from __future__ import annotations

from tests.server.conftest import received, run, running, unit, until


def test_an_event_goes_from_the_publisher_to_the_client_and_its_outcome_into_the_journal() -> None:
    """Published over HTTP, decided, delivered over a WebSocket, acknowledged, settled in the journal."""

    async def test() -> None:
        async with running() as server:
            await server.declare("a")
            async with server.client("a") as client:
                [position] = await server.publish(unit("e1", size=10))
                [delivery] = await received(client, 1)
                assert (position, 0, "all-a", 2, 1) == (
                    delivery.position,
                    delivery.priority,
                    delivery.subscription,
                    delivery.level,
                    delivery.attempt,
                )
                assert {"size": 10} == delivery.event["data"]
                await until(lambda: server.journal.end("outcomes"))
            [outcome] = server.journal.read("outcomes", 0, 10).to_pylist()
            assert ("a", position, "acknowledged", 0, 1) == tuple(
                outcome[name] for name in ("client", "event", "outcome", "priority", "attempts")
            )

    run(test)
