"""Deciding early: what the pipeline decides too, whatever else is defined and however the log is cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.errors import EventError, Mark
from nearcast.filters.evaluate import truth
from nearcast.language.control_events import changes as parse
from nearcast.language.control_events import to_event
from nearcast.language.cql2 import parse as parse_filter
from nearcast.language.definitions.relation_documents import relation_document
from nearcast.model.changes import Change, ClientChange, RelationChange, SettingsChange, SubscriptionChange
from nearcast.model.columns import are_control, to_events
from nearcast.model.event import Event, Place
from nearcast.model.filter import atoms
from nearcast.model.limits import Limits
from nearcast.model.subscription import Channel, Settings, Subscription
from nearcast.stages.decide import decide
from nearcast.stages.early import EarlyDecider, EarlyDecisions, asks_of_others, decentralised, widened
from nearcast.stages.fold import StateFold
from nearcast.state.registry import Registry
from tests.random_filters import events, filters, places
from tests.stages.test_stages import ANY, CLIENTS, AsOf, all_settings, as_table, every_change

HERE = Mark("here")
PROMPT = Channel("prompt", "planar", delivery="decentralised")
CHANNELS = (PROMPT, Channel("steady", "planar", ("steady",)))
NAMES = ("prompt", "prompt", "steady")

Key = tuple[int, str]
History = Sequence[Event | Change]


def channelled(settings: Settings, channels: tuple[Channel, ...] = CHANNELS) -> SettingsChange:
    """The change to settings with a channel that is decided early and one that is not."""
    return SettingsChange(replace(settings, channels=channels))


told_events = st.builds(lambda event, name: replace(event, channel=name), events(), st.sampled_from(NAMES))
told_changes = st.one_of(
    every_change.filter(lambda change: not isinstance(change, SettingsChange)),
    st.builds(channelled, all_settings(), st.sampled_from([CHANNELS, CHANNELS, CHANNELS[1:]])),
)


def by_pipeline(table: pa.Table) -> dict[Key, dict[str, Any]]:
    """What the stages decide of the published events, everything that is defined taken into account."""
    known = StateFold()
    tables = [decide(batch, batch.events) for batch in known.fold(table, parse)]
    rows = [row for one in tables for row in one.to_pylist()]
    return {(row["position"], row["client"]): row for row in rows if row["part"] == 0}


def changes_of(table: pa.Table, registry: Registry) -> Mapping[int, Sequence[Change]]:
    """What the control events of a table change, by position; the registry is folded on."""
    found: dict[int, Sequence[Change]] = {}
    for event in to_events(table.filter(are_control(table))):
        with suppress(EventError):
            found[event.position] = parse(event, registry.settings)
            for change in found[event.position]:
                registry.apply(change)
    return found


def early(table: pa.Table, first: int, cuts: Sequence[int]) -> list[EarlyDecisions]:
    """What is decided early of the rows behind the first ones, cut so."""
    registry = Registry()
    changes_of(table.slice(0, first), registry)
    decider, found = EarlyDecider(registry), []
    for begin, end in zip([first, *cuts], [*cuts, len(table)], strict=True):
        piece = table.slice(begin, end - begin)
        found.append(decider.decide(piece, changes_of(piece, registry)))
    return found


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(told_events, told_events, told_changes), max_size=14), st.data())
def test_what_is_decided_early_is_what_the_pipeline_decides(history: list[Event | Change], data: st.DataObject) -> None:
    """With filters that ask of others, relations, roles, clients that move; from any position on, in any cuts."""
    near = RelationChange(relation_document(ANY, HERE))
    history = [channelled(data.draw(all_settings())), near, ClientChange("ann"), *history]
    table = as_table(history)
    first = data.draw(st.integers(0, len(history)))
    cuts = sorted(data.draw(st.lists(st.integers(first, len(history)), max_size=4)))
    found, expected = early(table, first, cuts), by_pipeline(table)
    decided = {position for one in found for position in one.positions}
    unsure = {key for one in found for key in one.unsure}
    rows = {(row["position"], row["client"]): row for one in found for row in one.deliveries.to_pylist()}
    assert {key: row for key, row in expected.items() if key[0] in decided and key not in unsure} == rows
    # What was not decided is told, so that nothing overtakes it.
    left = max(one.left_through for one in found)
    before = {position for position in _prompt(history, first) if position <= left}
    assert _prompt(history, first) - before <= decided <= _prompt(history, first)


def _prompt(history: History, first: int) -> set[int]:
    """The positions of events, behind the first ones, in a channel that is decided early as of there."""
    now, found = frozenset[str](), set()
    for position, item in enumerate(history, 1):
        if isinstance(item, SettingsChange):
            now = decentralised(item.settings)
        elif isinstance(item, Event) and item.channel in now and position > first:
            found.add(position)
    return found


@settings(max_examples=150, deadline=None)
@given(filters, events(), st.lists(events(), max_size=3), st.dictionaries(st.sampled_from(CLIENTS), places))
def test_a_widened_filter_covers_it_and_asks_of_nobody_else(
    filter: Any, event: Event, others: list[Event], where: dict[str, Place]
) -> None:
    """So an event that it does not select is not selected; and its atoms are as many, for relevances to fit."""
    registry = Registry()
    for client, place in where.items():
        registry.apply(ClientChange(client, place=place))
    newest = {one.entity: one for one in others}
    wide = widened(filter)
    assert [*map(type, atoms(filter))] == [*map(type, atoms(wide))]
    assert not any(map(asks_of_others, atoms(wide)))
    if truth(filter, event, AsOf(registry, newest)):
        assert truth(wide, event, AsOf(registry, {}))


def _of(text: str, id: str = "s") -> SubscriptionChange:
    return SubscriptionChange(Subscription(id, ("ann",), parse_filter(text, HERE), None))


def _unit(size: int) -> Event:
    return Event("e", "unit", "s", attributes=(("size", size),), place=Place("planar", 0.0, 0.0), channel="prompt")


@pytest.mark.parametrize(
    ("text", "positions", "rows", "unsure"),
    [
        ("size > 1", [4, 5], [5], []),
        ("size > 1 AND count(uform(size = 1)) > 0", [4, 5], [], [5]),
        ("size > 1 OR CHANGED(size)", [4, 5], [], [4, 5]),
        ("NOT (size > 1 AND PREVIOUS(size) = 1)", [4, 5], [], [4, 5]),
        ("S_INTERSECTS(PREVIOUS(geom), POINT(0 0))", [], [], []),
    ],
)
def test_only_what_rests_on_others_is_left_to_the_pipeline(
    text: str, positions: list[int], rows: list[int], unsure: list[int]
) -> None:
    """A filter on the event itself is decided; one that asks of others where the rest of it does not rule it out. While
    one compares geometries of events before, nothing is: it shares the work that an event's geometries may take.
    """
    history = [channelled(Settings()), ClientChange("ann"), _of(text), _unit(1), _unit(2)]
    [found] = early(as_table(history), 0, [])
    assert positions == list(found.positions)
    assert rows == found.deliveries.column("position").to_pylist()
    assert [(position, "ann") for position in unsure] == list(found.unsure)


def test_what_is_refused_beyond_a_limit_selects_nothing_early() -> None:
    """Though what it is widened to would have room."""
    settings = Settings(limits=Limits(expressions=1))
    listed = [_of("tag LIKE '%'", "first"), _of("CHANGED(size) OR size > 0", "second")]
    history = [channelled(settings), ClientChange("ann"), *listed, _unit(1)]
    [found] = early(as_table(history), 0, [])
    assert [] == [*found.unsure, *found.deliveries.to_pylist()]
    assert [5] == list(found.positions)


def test_the_delivery_of_a_channel_is_a_setting_of_it() -> None:
    """It is read, written, and read again; any other word is a fault."""
    settings = read({"delivery": "decentralised"})
    assert frozenset({"alarms"}) == decentralised(settings)
    [again] = parse(to_event(SettingsChange(settings), "1", "test"), Settings())
    assert SettingsChange(settings) == again
    assert frozenset() == decentralised(read({}))
    with pytest.raises(EventError, match="ordered or decentralised"):
        read({"delivery": "fast"})


def read(of_channel: dict[str, str]) -> Settings:
    """The settings of a document with one channel."""
    data = {"channels": {"alarms": {"coordinates": "planar", **of_channel}}}
    event = Event("1", "nearcast.settings", "test", payload=orjson.dumps({"data": data}))
    [change] = parse(event, Settings())
    assert isinstance(change, SettingsChange)
    return change.settings
