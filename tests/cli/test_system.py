"""Systems that cannot be started, and servers that are others."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from nearcast.cli import status, tail, up
from nearcast.cli.options import journal_path
from nearcast.cli.system import _locked, fetch
from nearcast.errors import SetupError


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
