"""Systems that cannot be started, and servers that are others."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from nearcast.cli import pipeline, server, status, tail, up
from nearcast.cli.options import journal_path, state_path
from nearcast.cli.supervisor import Supervisor
from nearcast.cli.system import _locked, define, fetch, free_port, registry_of, wait_until_ready
from nearcast.errors import DefinitionError, SetupError
from nearcast.journal.memory import MemoryJournal
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.control_events import to_event
from nearcast.language.definitions import files
from nearcast.model.changes import ClientChange, ClientRemoval
from nearcast.model.columns import DELIVERIES, to_table
from nearcast.model.event import Event, Place
from nearcast.pipeline.snapshots import ready_file
from nearcast.runtime.file_lock import file_lock
from nearcast.server.app import _alone
from nearcast.server.config import ServerConfig

DEFINED = """\
channels: {ops: {coordinates: planar}}
awareness: {bandwidth: {maximum: 3750}, battery: {intervals: [20, 60]}}
clients: [{id: a, readings: {%s}, position: {x: 0, y: 0}}]
"""


def test_definitions_are_not_taken_in_where_another_system_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`up` on its data folder is refused, and the other goes on with its own."""
    monkeypatch.setattr("signal.signal", lambda *_: None)
    file = tmp_path / "definitions.yaml"
    file.write_text("clients: [{id: a}]\n")
    with _locked(tmp_path):
        result = CliRunner().invoke(up.command, ["--data", str(tmp_path), "--definitions", str(file)])
    assert isinstance(result.exception, SetupError)
    assert not journal_path(tmp_path).exists()


def test_a_second_server_of_a_name_and_a_second_pipeline_are_refused(tmp_path: Path) -> None:
    """On one journal; each says what to do. A server of another name may run beside."""
    state_path(tmp_path).mkdir()
    north = ServerConfig(journal_path(tmp_path), port=-1, node="north/1")
    with _alone(north), file_lock(state_path(tmp_path) / "running", "", "", ""):
        said = str(CliRunner().invoke(server.command, ["--data", str(tmp_path), "--node", "north/1"]).exception)
        assert said.startswith(f"expected no other access server 'north/1' on {journal_path(tmp_path)}, got one that")
        assert said.endswith("end that one, or give this one another name with --node")
        with _alone(replace(north, node="north")):
            pass
        said = str(CliRunner().invoke(pipeline.command, ["--data", str(tmp_path)]).exception)
        assert said.startswith(f"expected no other pipeline in {state_path(tmp_path)}, got one that runs (process ")


@pytest.mark.parametrize("answer", ["<html>", "[]", "{}", '{"balance": 0}', "null"])
def test_another_server_at_the_address_is_told_as_that(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it answers, by the commands that ask it and by `status` of the pipeline."""
    monkeypatch.setattr(
        "httpx.get", lambda url, **_: httpx.Response(200, text=answer, request=httpx.Request("GET", url))
    )
    for command, words in ((status.command, ["--json"]), (tail.command, ["a"])):
        found = CliRunner().invoke(command, words).exception
        assert isinstance(found, SetupError)
        assert "is the address right?" in str(found)
    assert not status.pipeline_status("http://127.0.0.1:1")


def test_an_address_that_is_none_is_told_as_that() -> None:
    """As one where nobody answers."""
    with pytest.raises(SetupError, match="--url"):
        fetch("http://[", "/health", None)
    assert status.pipeline_status("http://[") is None


def test_who_waits_is_told_what_for(tmp_path: Path) -> None:
    """First for the pipeline to begin, then for what it has to decide, then for the server."""
    with closing(SqliteJournal(journal_path(tmp_path))) as journal:
        wait = partial(wait_until_ready, Supervisor([]), f"http://127.0.0.1:{free_port()}", tmp_path, seconds=0.01)
        with pytest.raises(SetupError, match=r"within 0\.01 s, got none yet: the pipeline has not begun.*--wait"):
            wait()
        state_path(tmp_path).mkdir()
        ready_file(state_path(tmp_path)).touch()
        journal.append("events", to_table([Event("e", "t", "s")]))
        with pytest.raises(SetupError, match="the pipeline has decided 0 of 1 events"):
            wait()
        journal.commit_range("deliveries", DELIVERIES.empty_table(), 1)
        with pytest.raises(SetupError, match="the access server does not answer at"):
            wait()


def test_definitions_with_a_fault_are_not_taken_in(tmp_path: Path) -> None:
    """None of them, whatever the others are: the files are to be mended."""
    journal, path = MemoryJournal(), tmp_path / "d.yaml"
    path.write_text(
        "ontology: {situations: {Fire: {}}}\n"
        "actions: [{id: act, when: Fire, run: {name: ring, arguments: {n: 9223372036854775808}}}]"
    )
    with pytest.raises(DefinitionError, match=r"d\.yaml:2:66: expected an integer within 64 bits"):
        define(journal, files.load([path]))
    assert 0 == journal.end("events")


def test_definitions_given_again_leave_what_clients_said_since(tmp_path: Path) -> None:
    """Readings, places, roles and tasks in files are those at the beginning; what is new in a file counts again."""
    journal, path = MemoryJournal(), tmp_path / "d.yaml"

    def given(readings: str) -> tuple[dict[str, float], Place | None]:
        """How the client is after these definitions."""
        path.write_text(DEFINED % readings)
        define(journal, files.load([path]))
        client = registry_of(journal).clients["a"]
        return dict(client.readings), client.place

    first, moved = Place("planar", 0, 0), Place("planar", 5, 5)
    assert ({"bandwidth": 3000, "battery": 90}, first) == given("bandwidth: 3000, battery: 90")
    said = ClientChange("a", readings={"bandwidth": 200}, place=moved)
    journal.append("events", to_table([to_event(said, "1", "nearcast/server/said")]))
    end = journal.end("events")
    assert ({"bandwidth": 200, "battery": 90}, moved) == given("bandwidth: 3000, battery: 90")
    assert end == journal.end("events")
    assert ({"bandwidth": 200, "battery": 50}, moved) == given("bandwidth: 3000, battery: 50")
    assert ({"bandwidth": 1000, "battery": 50}, moved) == given("bandwidth: 1000, battery: 50")
    journal.append("events", to_table([to_event(ClientRemoval("a"), "2", "nearcast/server/managed")]))
    assert ({"bandwidth": 1000, "battery": 50}, first) == given("bandwidth: 1000, battery: 50")
