"""Relations and situations on a real system: delivered behind their causes, also by a pipeline that was killed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from nearcast.cli.options import journal_path
from nearcast.cli.serving_options import ServingOptions
from nearcast.cli.supervisor import Supervisor
from nearcast.cli.system import define, free_port, running, wait_until_ready
from nearcast.client import Client, Publisher
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.control_events import changes
from nearcast.language.definitions import files
from nearcast.stages.fold import StateFold
from nearcast.state.derived import derived_of
from tests.system.test_killing import look_after

pytestmark = pytest.mark.faults

DEFINITIONS = """\
channels: {field: {coordinates: planar}}
ontology: {classes: {Temperature: {unit: degC}, Humidity: {unit: percent}}, situations: {Fire: {}}}
clients: [{id: ann}]
relations:
  - {id: close, a: "type = 'car'", b: "type = 'car'", when: "distance(a, b) < 10"}
situations:
  - {id: fire, class: Fire, when: "Temperature > 80 AND Humidity < 10", within: 100}
subscriptions:
  - {id: derived, client: ann, filter: "type IN ('nearcast.relation', 'nearcast.situation')"}
"""

ROUNDS = 30


def report(id: str, subject: str, **data: object) -> dict[str, Any]:
    kind = "car" if subject.startswith("car") else "reading"
    return {"specversion": "1.0", "id": id, "type": kind, "source": "s", "subject": subject, "data": data}


def story(number: int) -> list[dict[str, Any]]:
    """A round: a car comes close to another and goes away, and it gets hot where it is dry, and cool again."""
    return [
        report(f"{number} near", "car-2", x=5, y=0),
        report(f"{number} hot", "sensor", x=0, y=0, Temperature=90, Humidity=5),
        report(f"{number} far", "car-2", x=500, y=0),
        report(f"{number} cool", "sensor", x=0, y=0, Temperature=20, Humidity=5),
    ]


async def performed(url: str, supervisor: Supervisor) -> list[Any]:
    """What ann is delivered of some rounds, in whose midst the pipeline is killed."""
    found: list[Any] = []
    looking = asyncio.create_task(look_after(supervisor))
    async with Publisher(url) as publisher, Client(url, "ann") as ann:
        await publisher.publish([report("parked", "car-1", x=0, y=0)])
        for number in range(ROUNDS):
            if number == ROUNDS // 2:
                [pipeline] = [part for part in supervisor.parts if part.name == "pipeline"]
                assert pipeline.process
                pipeline.process.kill()
            await publisher.publish(story(number))
            await asyncio.sleep(0.05)
        async with asyncio.timeout(120):
            async for delivery in ann.deliveries():
                found.append(delivery)
                if len(found) == 4 * ROUNDS:
                    break
        await ann.acknowledge(found[-1].position)
        looking.cancel()
        # Nothing comes twice, and nothing that nobody expects.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                async for delivery in ann.deliveries():
                    found.append(delivery)
    return found


def test_derived_events_arrive_once_and_in_order_though_the_pipeline_is_killed(tmp_path: Path) -> None:
    """At the positions of their causes, and just as a replay of the journal derives them."""
    (tmp_path / "d.yaml").write_text(DEFINITIONS)
    journal = SqliteJournal(journal_path(tmp_path))
    define(journal, files.load([tmp_path / "d.yaml"]))
    port = free_port()
    with running(tmp_path, ServingOptions(port=port), "local[2]") as supervisor:
        url = f"http://127.0.0.1:{port}"
        wait_until_ready(supervisor, url, tmp_path)
        arrived = asyncio.run(performed(url, supervisor))
    kinds = [(one.event["data"].get("detect"), one.event["data"].get("phase")) for one in arrived]
    assert [("enter", None), (None, "begin"), ("exit", None), (None, "end")] * ROUNDS == kinds
    batches = StateFold().fold(journal.read("events", 0, journal.end("events")), changes)
    derived = derived_of(pa.concat_tables([batch.events for batch in batches]))
    assert [one.event["id"] for one in arrived] == derived.column("id").to_pylist()
    assert derived.drop_columns("payload").equals(
        journal.read("derived", 0, journal.end("events")).drop_columns("payload")
    )
    assert [f"{position}.1" for position in derived.column("position").to_pylist()] == [one.position for one in arrived]
    journal.close()
