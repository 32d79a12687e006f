"""Expressions of all filters together: what is beyond the limit is refused at the same position in any batches."""

from __future__ import annotations

import pytest

from nearcast.language.control_events import changes
from nearcast.model.changes import Change, ClientChange, SettingsChange, SubscriptionRemoval
from nearcast.model.event import Event
from nearcast.model.limits import Limits
from nearcast.model.subscription import Settings
from nearcast.stages.decide import decide
from nearcast.stages.fold import StateFold
from tests.stages.test_adapt import subscribed
from tests.stages.test_stages import as_table

EVENT = Event("e", "t", "s", attributes=(("a", 1), ("b", 1)))
STORY: list[Event | Change] = [
    SettingsChange(Settings(limits=Limits(expressions=2))),
    ClientChange("ann"),
    subscribed("one", text="a + b > 0"),
    subscribed("two", text="a + b > 1"),
    subscribed("three", text="a + b < 9"),
    EVENT,
    subscribed("two", text="a * b > 5 OR a * b > 6"),
    SubscriptionRemoval("one"),
    subscribed("three", text="a + b < 9"),
    EVENT,
]


@pytest.mark.parametrize("cuts", [[], [4], [4, 6, 7, 9]])
def test_what_is_beyond_is_refused(cuts: list[int]) -> None:
    """It changes nothing: what it would have replaced stays. The refusal says what to do."""
    known, table, told = StateFold(), as_table(STORY), list[tuple[int, str]]()
    for begin, end in zip([0, *cuts], [*cuts, len(table)], strict=True):
        for batch in known.fold(table.slice(begin, end - begin), changes):
            rows = decide(batch, batch.events).to_pylist()
            told += [(row["position"], row["subscription"]) for row in rows]
    assert [(6, "one"), (10, "two")] == told
    assert [5, 7] == [one.event.position for one in known.refusals]
    assert "remove subscriptions" in str(known.refusals[0].error)
    assert ["two", "three"] == list(known.registry.subscriptions)
