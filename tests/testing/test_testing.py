"""What `nearcast.testing` gives out does what a test needs of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

import nearcast
from nearcast.errors import DefinitionError, JournalError
from nearcast.model.columns import to_table
from nearcast.model.event import Event
from nearcast.testing import Abort, ManualClock, MemoryJournal, run_actions

FIRE = nearcast.Definitions.read(
    {
        "ontology": {"classes": {"Temperature": {"unit": "degC", "within": 100}}, "situations": {"Fire": {}}},
        "situations": [{"id": "fire", "class": "Fire", "when": "Temperature > 80"}],
        "actions": [{"id": "alarm", "when": "Fire", "run": {"name": "ring", "arguments": {"times": 3}}}],
    }
)


def reading(number: int, degrees: float) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "id": str(number),
        "type": "reading",
        "source": "sensor",
        "time": f"2026-01-01T12:00:{number:02}Z",
        "data": {"Temperature": degrees, "x": 0, "y": 0},
    }


def test_a_python_action_is_called_with_the_event_and_its_arguments() -> None:
    """Once for each situation that begins."""
    rung: list[tuple[str, int]] = []
    runs = run_actions(
        [reading(1, 20), reading(2, 90), reading(3, 95)],
        FIRE,
        {"ring": lambda event, arguments: rung.append((event["data"]["situation"]["class"], arguments["times"]))},
    )
    assert [("Fire", 3)] == rung
    assert [("ring", None)] == [(run.name, run.error) for run in runs]


def test_what_an_action_raises_is_told() -> None:
    """And one that is not there is a fault."""

    def ring(event: dict[str, Any], arguments: dict[str, Any]) -> None:
        raise OSError("no bell")

    [run] = run_actions([reading(1, 90)], FIRE, {"ring": ring})
    assert "no bell" == str(run.error)
    with pytest.raises(DefinitionError, match="the action ring, got horn"):
        run_actions([], FIRE, {"horn": ring})


def test_a_clock_moves_as_it_is_told() -> None:
    """Never back."""
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    began = clock()
    assert datetime(2026, 1, 1, 0, 1, tzinfo=UTC) == clock.move(60)
    assert 60 == clock() - began
    with pytest.raises(ValueError, match="-1"):
        clock.move(-1)


def test_a_journal_dies_where_its_marker_stands() -> None:
    """Once: the next call finds what was kept."""
    journal = MemoryJournal([Abort("events", at=1, kept=True)])
    events = to_table([Event("1", "t", "s")])
    with pytest.raises(JournalError):
        journal.append("events", events)
    assert [1] == journal.append("events", events)
