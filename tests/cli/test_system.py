"""A system that cannot be started changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from nearcast.cli import up
from nearcast.cli.options import journal_path
from nearcast.cli.system import _locked
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
