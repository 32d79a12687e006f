"""How lines look on a terminal."""

from __future__ import annotations

import sys

import pytest

from nearcast.cli import output, status


def test_on_a_terminal_a_long_line_is_broken_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows is indented further, a time is never cut, and a pipe gets the line as it is."""
    line = "  delivery: decided, accepted 2026-01-01T00:00:00.000Z, sent 2026-01-01T00:00:01.000Z"
    monkeypatch.setenv("COLUMNS", "60")
    assert f"{line}\n" == output.wrapped([line, ""])
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    first, second, empty = output.wrapped([line, ""]).split("\n")
    assert ("  delivery: decided, accepted 2026-01-01T00:00:00.000Z, sent", "") == (first, empty)
    assert "      2026-01-01T00:00:01.000Z" == second


def test_long_waits_are_told_in_seconds() -> None:
    """A client that was away for hours is no matter of milliseconds."""
    table = status.latency_table(
        {
            "waiting": {"0": 1},
            "latency": {"send": {"0": {"p50": 0.1234, "p99": 7200.4}}, "acknowledge": {}},
        }
    )
    assert [["0"], ["1"], ["123 ms"], ["7,200 s"], ["–"], ["–"]] == [list(column.cells) for column in table.columns]
