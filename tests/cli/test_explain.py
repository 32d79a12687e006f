"""`nearcast explain`, over a journal and over files."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from nearcast.cli.explain import command
from nearcast.cli.options import journal_path
from nearcast.errors import Fault, Mark, SetupError
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.control_events import to_event
from nearcast.language.cql2 import parse
from nearcast.model.changes import ClientChange, SubscriptionChange
from nearcast.model.columns import DELIVERIES, OUTCOMES, to_table
from nearcast.model.event import Event
from nearcast.model.subscription import Subscription

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
BIG = SubscriptionChange(Subscription("big", ("ann", "bob"), parse("size >= 10", Mark("here"))))


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder: the event `large` reached ann, waits for bob; `small` reached nobody; `new` is not decided."""
    journal = SqliteJournal(journal_path(tmp_path))
    controls = [
        to_event(change, str(number), "test")
        for number, change in enumerate((ClientChange("ann"), ClientChange("bob"), BIG))
    ]
    sizes = {"large": 12, "small": 9, "new": 10}
    told = [Event(id, "t", "s", attributes=(("size", size),), accepted=NOON) for id, size in sizes.items()]
    journal.append(
        "events", to_table([*controls, *told, replace(told[0], id="twice"), replace(told[0], id="twice", source="r")])
    )
    rows = [{"position": 4, "part": 0, "client": name, "subscription": "big", "level": 2} for name in ("ann", "bob")]
    journal.commit_range("deliveries", pa.Table.from_pylist(rows, DELIVERIES), 5)
    outcome = {
        "position": 0,
        "client": "ann",
        "event": 4,
        "part": 0,
        "outcome": "acknowledged",
        "priority": 0,
        "attempts": 1,
        "early": True,
    }
    times = {"queued": NOON, "sent": NOON, "settled": NOON}
    journal.append("outcomes", pa.Table.from_pylist([{**outcome, **times}], OUTCOMES))
    journal.close()
    return tmp_path


def test_what_happened_to_every_client(data: Path) -> None:
    """Lines for a person: why, and what became of the delivery."""
    result = run("large", "--data", data)
    ann, bob = result.output.split("\n\n")[1:]
    assert result.output.startswith("event large of s, type t, about s, position 4\n")
    assert ann.startswith("client ann: selected by big, level 2, priority 0\n")
    assert "TRUE     class 2   size >= 10  (the value was 12)" in ann
    assert "delivery: decided by the access server first, accepted" in ann
    assert "1 attempt, at last priority 0, acknowledged 2026-01-01T12:00:00.000Z" in ann
    assert "it waits, or was sent and is not acknowledged" in bob


def test_why_not(data: Path) -> None:
    """For one client, with the journal named."""
    result = run("small", "--journal", journal_path(data), "--client", "bob")
    assert "why not: subscription big: size >= 10 was false: the value was 9" in result.output
    assert "delivery: none" in result.output
    assert "client ann" not in result.output


def test_what_is_not_decided_yet(data: Path) -> None:
    """It says how far deciding has come."""
    assert "not decided yet (decided through position 5)" in run("new", "--data", data).output


def test_data_for_machines(data: Path) -> None:
    """One JSON object for each client, with everything the text says."""
    ann, bob = (orjson.loads(line) for line in run("large", "--data", data, "--json").output.splitlines())
    assert {"id": "large", "source": "s", "type": "t", "entity": "s", "position": 4} == ann["event"]
    assert ("ann", "big", 2, 0, []) == tuple(
        ann[key] for key in ("client", "subscription", "level", "priority", "why_not")
    )
    assert [
        {
            "atom": "size >= 10",
            "class": 2,
            "truth": True,
            "values": [12],
            "read": None,
            "unknown": None,
            "undecided": None,
            "blocked": False,
        }
    ] == (ann["subscriptions"][0]["atoms"])
    assert ("acknowledged", "waiting") == (ann["delivery"]["outcome"], bob["delivery"]["outcome"])


def test_an_unknown_id_says_how_many_there_are(data: Path) -> None:
    """And where an event may be that could not be taken."""
    result = run("nope", "--data", data)
    assert isinstance(result.exception, Fault)
    assert "expected the id of one of the 8 events there are, got 'nope'" in str(result.exception)
    assert "dead letters" in str(result.exception)


def test_an_ambiguous_id_asks_for_its_source(data: Path) -> None:
    """It names the sources to choose from."""
    assert "choose one with --source: 's', 'r'" in str(run("twice", "--data", data).exception)
    assert "event twice of r" in run("twice", "--data", data, "--source", "r").output


def test_a_journal_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """Reading leaves nothing behind."""
    assert isinstance(run("e", "--data", tmp_path).exception, SetupError)
    assert not list(tmp_path.iterdir())


DEFINITIONS = """\
clients: [{id: ann}]
subscriptions: [{id: big, client: ann, filter: size >= 10}]
"""
EVENTS = """\
{"specversion":"1.0","id":"1","source":"s","type":"t","data":{"size":12}}
{"specversion":"1.0","id":"2","source":"s","type":"t","data":{"size":9}}
"""


def test_over_files(tmp_path: Path) -> None:
    """Definitions and events instead of a journal: the same, but there are no deliveries to tell of."""
    (tmp_path / "d.yaml").write_text(DEFINITIONS)
    (tmp_path / "e.jsonl").write_text(EVENTS)
    files = "--definitions", tmp_path / "d.yaml", "--events", tmp_path / "e.jsonl"
    assert "client ann: selected by big, level 2, priority 0" in run("1", *files).output
    assert "the value was 9" in run("2", *files).output
    assert orjson.loads(run("1", *files, "--json").output)["delivery"] is None


def test_definitions_and_events_go_together(tmp_path: Path) -> None:
    """One without the other is a mistake of usage."""
    (tmp_path / "d.yaml").write_text(DEFINITIONS)
    assert run("1", "--definitions", tmp_path / "d.yaml").exit_code == 2


DEFINED = """\
ontology: {classes: {Temperature: {unit: degC}, Humidity: {}}, situations: {Fire: }}
clients: [{id: ann}]
subscriptions: [{id: fires, client: ann, filter: "class = 'Fire'"}]
situations: [{id: fire, class: Fire, when: "Temperature > 80 AND Humidity < 10", within: 100, valid: 10 s}]
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str | Path]:
    """Options that name definitions with a rule, and two readings that together make a fire."""
    (tmp_path / "d.yaml").write_text(DEFINED, encoding="utf-8")
    told = [("a", 0, {"Temperature": 90, "x": 0, "y": 0}), ("b", 3, {"Humidity": 5, "x": 60, "y": 0})]
    lines = [
        orjson.dumps(
            {
                "specversion": "1.0",
                "id": id,
                "type": "r",
                "source": id,
                "time": f"2026-01-01T00:00:0{at}Z",
                "data": data,
            }
        )
        for id, at, data in told
    ]
    (tmp_path / "e.jsonl").write_bytes(b"\n".join(lines))
    return ["--definitions", tmp_path / "d.yaml", "--events", tmp_path / "e.jsonl"]


def test_what_a_situation_rested_on(files: list[str | Path]) -> None:
    """Which conditions held, from which readings, of whom, how old; and who got it."""
    output = run("fire@2:begin:2.1", *files).stdout
    assert "situation fire@2, Fire by rule fire: begin" in output
    assert "Temperature 90 degC, of a, 3 s old, event 1" in output
    assert "client ann: selected by fires" in output


def test_why_there_was_no_situation(files: list[str | Path]) -> None:
    """What was missing of a rule around an event."""
    output = run("a", "--situation", "fire", *files).stdout
    assert "rule fire, within 100 m of a: UNKNOWN; there is no situation of it" in output
    assert "UNKNOWN  Humidity < 10  (no reading of Humidity has come)" in output
    data = orjson.loads(run("b", "--situation", "fire", "--json", *files).stdout)
    assert (True, "fire@2") == (data["truth"], data["situation"])
    assert [3.0, 0.0] == [one["readings"][0]["age"] for one in data["conditions"]]
