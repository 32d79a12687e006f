"""What an events file tells becomes the steps of a story."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from nearcast.cli import demo
from nearcast.cli.demo import _documents, _one_listener
from nearcast.demo.performance import steps_of
from nearcast.language.definitions import files


def event(type: str = "t", time: str | None = None, **data: Any) -> dict[str, Any]:
    found = {"specversion": "1.0", "id": "1", "type": type, "source": "s", "data": data}
    return found if time is None else {**found, "time": time}


def test_steps_are_at_their_times_and_in_their_order() -> None:
    """Counted from the first time; without one, or with an earlier one, a step is with the one before."""
    times = (None, "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", "2026-01-01T00:00:30Z", None, "noon")
    assert [0, 0, 60, 60, 60, 60] == [step.at for step in steps_of(event(time=time) for time in times)]


def test_a_reading_of_bandwidth_is_a_link_too() -> None:
    """Before the client says so; what says nothing of a link, or nonsense, is left to the server."""
    change = "nearcast.client"
    found = list(steps_of([event(change, client="a", readings={"bandwidth": 200})]))
    assert [("link", "a", 200.0), ("client", "a", 0.0)] == [(one.kind, one.client, one.bandwidth) for one in found]
    nonsense: list[dict[str, Any]] = [{"readings": {"bandwidth": "fast"}}, {"readings": 3}, {}]
    assert ["client"] * 3 == [step.kind for step in steps_of(event(change, client="a", **one) for one in nonsense)]
    assert ["event"] == [step.kind for step in steps_of([event(change, client=7)])]


def test_what_is_no_event_is_told_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With file and line."""
    (tmp_path / "e.jsonl").write_text(
        '{"specversion": "1.0", "id": "1", "type": "t", "source": "s"}\n[]\n{"id": "2"}\n'
    )
    assert ["1"] == [one["id"] for one in _documents(tmp_path / "e.jsonl")]
    assert 2 == capsys.readouterr().err.count("dead letter: ")


def test_without_definitions_one_receiver_gets_everything(tmp_path: Path) -> None:
    """And definitions without events are asked about."""
    [client] = files.load([_one_listener(tmp_path)]).clients
    assert "everything" == client.id
    path = tmp_path / "d.yaml"
    path.write_text(yaml.safe_dump({"clients": [{"id": "a"}]}))
    found = CliRunner().invoke(demo.command, ["--definitions", str(path)])
    assert (2, True) == (found.exit_code, "give these too" in found.stderr)
