"""A system's journal is named in one way by whoever reads it, and who names something else is told what is meant."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from nearcast.cli import explain, pipeline, replay, server, status, tail, up
from nearcast.cli.options import JOURNAL
from nearcast.journal.jetstream.nats_journal import NatsJournal
from nearcast.journal.sqlite import SqliteJournal
from nearcast.model.columns import DELIVERIES
from tests.journal.rows import events

AT_NATS = "nats://h:4222/x"


@pytest.mark.parametrize(
    ("command", "words", "told"),
    [
        (up.command, ("--data", AT_NATS), "expected a folder, got an address of NATS; give it as --journal"),
        (server.command, ("--data", AT_NATS), "expected a folder, got an address of NATS"),
        (pipeline.command, ("--data", AT_NATS), "expected a folder, got an address of NATS"),
        (status.command, ("--url", AT_NATS), "expected an access server, like http://127.0.0.1:8640, got the address"),
        (tail.command, ("a", "--url", AT_NATS), "expected an access server"),
        (replay.command, ("--data", "nats://h?more=1"), "like nats://host:4222,host2:4222/NAME, got the option more"),
        (explain.command, ("e", "--journal", "nats://h/a.b"), "like nats://host:4222,host2:4222/NAME, got the name"),
        (explain.command, ("e", "--data", "a", "--journal", "b"), "give one system, with --data or --journal; got 2"),
    ],
)
def test_what_is_named_wrongly_is_told(command: click.Command, words: tuple[str, ...], told: str) -> None:
    """As a usage error, with what is right."""
    found = CliRunner().invoke(command, words)
    assert (2, True) == (found.exit_code, told in " ".join(found.output.split())), found.output


@pytest.mark.parametrize("option", ["--data", "--journal", None])
def test_a_folder_a_file_and_an_address_are_named_alike(
    option: str | None, tmp_path: Path, new_stream: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By either option, or by the environment."""
    url = new_stream()
    with closing(SqliteJournal(tmp_path / "journal")) as file, closing(NatsJournal(url)) as on_nats:
        for journal in (file, on_nats):
            journal.append("events", events("abc"))
            journal.commit_range("deliveries", DELIVERIES.empty_table(), 3)
    for place in (str(tmp_path), str(tmp_path / "journal"), url):
        words = ["--compare", "--engine", "local", "--json"]
        if option:
            words += [option, place]
        else:
            monkeypatch.setenv(JOURNAL, place)
        found = CliRunner().invoke(replay.command, words)
        assert (0, True) == (found.exit_code, "3 events" in found.output), found.output
