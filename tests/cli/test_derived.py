"""What is derived from events, through the commands: replayed, delivered, explained."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.test_offline import event, nearcast

DEFINITIONS = """\
channels: {road: {coordinates: planar, types: [car]}}
clients: [{id: ann}]
relations:
  - {id: close, a: "type = 'car'", b: "type = 'car'", when: "distance(a, b) < 10", margin: 3}
subscriptions:
  - {id: near, client: ann, filter: "type = 'nearcast.relation' AND detect = 'enter'"}
"""


def car(number: int, subject: str, x: float) -> str:
    """A car's report; reports are a second apart."""
    told = json.loads(event(str(number), "car", x=x, y=0))
    return json.dumps({**told, "subject": subject, "time": f"2026-01-01T00:00:{number:02}Z"})


def written(folder: Path) -> Path:
    """Definitions, and two cars that meet, drift within the margin, and part."""
    (folder / "d.yaml").write_text(DEFINITIONS)
    reports = [("u1", 0), ("u2", 100), ("u2", 5), ("u2", 12), ("u2", 14)]
    (folder / "e.jsonl").write_text("\n".join(car(number, *one) for number, one in enumerate(reports, 1)))
    return folder


def test_a_relation_is_told_and_delivered_where_it_begins(tmp_path: Path) -> None:
    """And where it ends, beyond its margin; whoever subscribes to it has it at the position of its cause."""
    found = nearcast(
        written(tmp_path), "replay", "--definitions", "d.yaml", "--events", "e.jsonl", "--derived", "r.jsonl"
    )
    told = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    data = [one["data"] for one in told]
    assert [("enter", 5.0), ("exit", 14.0)] == [(one["detect"], one["distance"]) for one in data]
    assert {"close"} == {one["relation"] for one in data} and {"nearcast.relation"} == {one["type"] for one in told}
    [delivered] = [json.loads(line) for line in found.stdout.splitlines()]
    assert (told[0]["id"], "ann", 3) == (delivered["event"], delivered["client"], delivered["position"])


def test_check_takes_derived_types_for_types_that_occur(tmp_path: Path) -> None:
    """Though no channel has them."""
    assert "0 faults, 0 warnings" in nearcast(written(tmp_path), "check", "d.yaml").stdout


def test_what_was_derived_is_explained_by_its_id(tmp_path: Path) -> None:
    """As of its cause."""
    files = ("--definitions", "d.yaml", "--events", "e.jsonl")
    nearcast(written(tmp_path), "replay", *files, "--derived", "r.jsonl")
    id = json.loads((tmp_path / "r.jsonl").read_text().splitlines()[0])["id"]
    [found] = [json.loads(line) for line in nearcast(tmp_path, "explain", id, *files, "--json").stdout.splitlines()]
    assert ("near", 3) == (found["subscription"], found["event"]["position"])


def test_a_control_event_that_changes_nothing_is_named_with_its_place(tmp_path: Path) -> None:
    """By its file and line, which count what was left out before it, and by its id and position."""
    relation = {"id": "bad", "a": {"entity": "p"}, "when": "distance(a, b) < 10"}
    told = {**json.loads(event("c1", "nearcast.relation.defined")), "data": relation}
    (written(tmp_path) / "e.jsonl").write_text("\n".join(["nothing", car(1, "u1", 0), json.dumps(told)]))
    found = nearcast(tmp_path, "replay", "--definitions", "d.yaml", "--events", "e.jsonl")
    [line] = [line for line in found.stderr.splitlines() if "c1" in line]
    assert line.startswith("dead letter: e.jsonl:3: expected b in a relation, got none")
    assert line.endswith("(event c1 at position 2)")


def test_what_counts_derived_events_is_explained_with_them(tmp_path: Path) -> None:
    """As it was decided, though for other filters nothing is derived once more."""
    folder = written(tmp_path)
    together = "  - {id: pairs, client: ann, filter: \"count(uform(type = 'nearcast.relation')) >= 1\"}\n"
    (folder / "d.yaml").write_text(DEFINITIONS + together)
    files = ("--definitions", "d.yaml", "--events", "e.jsonl")
    replayed = [json.loads(line) for line in nearcast(folder, "replay", *files).stdout.splitlines()]
    told = {one["position"] for one in replayed if one["subscription"] == "pairs" and one["event"].isdigit()}
    assert {4, 5} == told
    for id in "345":
        [found] = [json.loads(line) for line in nearcast(folder, "explain", id, *files, "--json").stdout.splitlines()]
        assert ("pairs" if int(id) in told else None) == found["subscription"]
