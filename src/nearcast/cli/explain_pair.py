"""`nearcast explain --relation`: what is read of a history for two entities, and how the finding is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.cli.explain_rule import aggregate_text
from nearcast.errors import EventError, Fault
from nearcast.explain.pair_explanation import explain_pair
from nearcast.explain.pair_finding import PairFinding, PredicateFinding, SideFinding, compares, within_limits
from nearcast.explain.pair_past import PairStep
from nearcast.filters.truth import Truth
from nearcast.language.control_events import changes
from nearcast.language.cql2 import write
from nearcast.language.definitions.relation_documents import relation_data
from nearcast.model.changes import Change, ClockTick, RelationChange, RelationRemoval, SettingsChange
from nearcast.model.columns import are_control, nodes_of, to_events
from nearcast.model.event import MAIN, Event
from nearcast.model.relation import Named, Pair, Relation
from nearcast.model.subscription import Settings
from nearcast.model.values import time_of, time_text
from nearcast.relations.reports import micros_of
from nearcast.relations.transition_events import Transition
from nearcast.situations.events import aggregate_data
from nearcast.stages.fold import StateFold
from nearcast.state.lateness import NEVER, moments_of
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository, entities

_TRUTHS: Mapping[Truth, str] = {True: "TRUE", False: "FALSE", None: "UNKNOWN"}


Tables = Callable[[], Iterable[pa.Table]]
"""Gives the tables of EVENTS of a history from the first on, each time that it is asked."""


def pair_finding(
    tables: Tables, registry: Registry, relation: str, pair: tuple[str, str], until: int | datetime | None
) -> PairFinding:
    """Why a relation holds between two entities or does not, after the event at a position, or at the clock.

    `registry` is what was there before the events. Raises `Fault`.
    """
    held: list[Change] = [SettingsChange(registry.settings), *map(RelationChange, registry.relations.values())]
    before = [PairStep(0, NEVER, MAIN, one) for one in held]
    return explain_pair(relation, *pair, [*before, *steps_about(tables, registry, pair, until)])


def pair_finding_among_all(
    tables: Tables,
    registry: Registry,
    relation: str,
    pair: tuple[str, str],
    until: int | datetime | None,
) -> PairFinding:
    """The same, with what of the relation did not begin for its limits: for that all entities are gone through where it
    would hold for the two alone, or where all pairs share what comparing geometries may take.
    """
    before = registry.copy()
    found = pair_finding(tables, registry, relation, pair, until)
    about = found.relation.about
    named = isinstance(about, Pair) and isinstance(about.a, Named) and isinstance(about.b, Named)
    if not compares(found.relation) and (not found.holds or named):
        return found
    own = partial(_concerns, found.relation)
    before = Registry(before.settings, relations={id: one for id, one in before.relations.items() if own(one)})
    known = StateFold(before)
    for table in tables():
        for _ in known.fold(
            table.filter(pc.less_equal(table.column("position"), found.position)),
            _only(own, {*before.relations, relation}),
        ):
            pass
    pairing = known.pairing_of(relation)
    assert pairing is not None, "the relation is there"
    standing = pairing.pair_standing(relation, found.a.entity, found.b.entity)
    crowding = pairing.admission.crowded.get(relation)
    return within_limits(found, standing, crowding, known.registry.settings.limits)


def _concerns(relation: Relation, other: Relation) -> bool:
    """Whether another relation has to be known for one: if they await reports together, or share work on geometries."""
    together = bool(relation.lateness and other.lateness == relation.lateness)
    return other.id == relation.id or together or (compares(relation) and compares(other))


def _only(own: Callable[[Relation], bool], kept: set[str]) -> Callable[[Event, Settings], list[Change]]:
    """Reads of control events what a relation, and the limits, depend on; `kept` are the relations that count."""

    def counts(change: Change) -> bool:
        match change:
            case RelationChange(one):
                # Where it is another one by now its end is to be known.
                if own(one):
                    kept.add(one.id)
                return one.id in kept
            case RelationRemoval(id):
                return id in kept
        return isinstance(change, SettingsChange | ClockTick)

    return lambda event, settings: [one for one in changes(event, settings) if counts(one)]


def moment_of_text(text: str) -> datetime:
    """The moment that a text names. Raises `Fault`."""
    found = time_of(text)
    if found is None:
        raise Fault("a time, as in 2020-01-31T12:00:00Z", repr(text))
    return found


def steps_about(
    tables: Tables, registry: Registry, about: Sequence[str], until: int | datetime | None
) -> Iterator[PairStep]:
    """Only reports of some entities and control events are read out of the columns; of the others the time."""
    wanted = pa.array(about, pa.string())
    for table in tables():
        read = pc.or_(are_control(table), pc.is_in(entities(table), wanted))
        events = {event.position: event for event in to_events(table.filter(read))}
        columns = (table.column(name).to_pylist() for name in ("position", "channel"))
        rows = zip(*columns, moments_of(table).tolist(), nodes_of(table).to_pylist(), strict=True)
        for position, channel, moment, node in rows:
            event = events.get(position)
            control = event is not None and event.control
            found = _changes(event, registry) if event is not None and control else []
            # Of control events ticks alone move the clock.
            brought = [micros_of(one.clock) for one in found if isinstance(one, ClockTick)] if control else [moment]
            if (isinstance(until, int) and position > until) or (
                isinstance(until, datetime) and max(brought, default=NEVER) > micros_of(until)
            ):
                return
            if not control:
                yield PairStep(position, moment, node, event, channel)
            for change in found:
                registry.apply(change)
                yield PairStep(position, moment, node, change, newest=partial(newest_before, tables, position))


def newest_before(tables: Tables, position: int, node: str | None) -> pa.Table:
    """The newest event of each entity before a position, of those that entered at a node, or at any."""
    found = Repository()
    for table in tables():
        own = pc.and_(pc.less(table.column("position"), position), pc.invert(are_control(table)))
        own = own if node is None else pc.and_(own, pc.equal(nodes_of(table), node))
        found.fold_events(table.filter(own))
        if len(table) and table.column("position")[-1].as_py() >= position:
            break
    return found.newest()


def _changes(event: Event, registry: Registry) -> list[Change]:
    """What a control event changes; nothing where it was refused."""
    try:
        return changes(event, registry.settings)
    except EventError:
        return []


def pair_lines(found: PairFinding) -> Iterator[str]:
    """A finding for people."""
    a, b = found.a.entity, found.b.entity
    at = "" if found.time is None else f", the time {time_text(found.time)}"
    yield f"relation {found.relation.id} between {a} (a) and {b} (b), after position {found.position:,}{at}"
    if found.holds:
        since = "" if found.since is None else f" since {time_text(found.since)}"
        yield f"  holds{since}{_dwelling(found)}"
    else:
        # Else it ended, or it was redefined, and no report came since.
        reasons = found.reasons or ("none of them reported since it could",)
        yield f"  does not hold: {'; '.join(reasons)}"
    if found.undecided and found.undecided not in found.reasons:
        yield f"  {found.undecided}"
    for name, side in (("a", found.a), ("b", found.b)):
        yield from _side(name, side)
    metres = "" if found.metres is None else f", {found.metres:,.1f} m apart"
    yield f"  the predicate is {_TRUTHS[found.predicate]}{metres}"
    margin = found.relation.margin
    for condition in found.conditions:
        wider = f"; with the margin {margin:g} {_TRUTHS[condition.staying]}" if margin else ""
        yield f"    {_TRUTHS[condition.truth]:7}  {write(condition.atom)}{_read(condition)}{wider}"
    for position, told in found.told:
        reason = f", {told.reason}" if told.reason else ""
        yield f"  told at position {position:,}: {told.detect}{reason}"


def _dwelling(found: PairFinding) -> str:
    if found.relation.lasting is None:
        return ""
    if found.dwelt:
        return f", and lasted {found.relation.lasting:g} s"
    return "" if found.due is None else f"; it has lasted {found.relation.lasting:g} s at {time_text(found.due)}"


def _side(name: str, side: SideFinding) -> Iterator[str]:
    if side.report is None:
        yield f"  {side.entity}: no report"
        return
    event = side.report
    time = event.time or event.accepted
    at = "" if time is None else f", {time_text(time)}"
    silent = "" if side.silent_since is None else f", silent since {time_text(side.silent_since)}"
    is_of = "is" if side.member else "is not"
    yield f"  {side.entity} {is_of} of side {name}; newest report {event.id} at position {event.position:,}{at}{silent}"
    for condition in side.conditions:
        yield f"    {_TRUTHS[condition.truth]:7}  {write(condition.atom)}{_read(condition)}"


def _read(condition: PredicateFinding) -> str:
    told = [f"{name} {', '.join(map(repr, values)) if values else 'none'}" for name, values in condition.read]
    told += [aggregate_text(entity, one) for entity, one in condition.aggregates]
    return f"  ({'; '.join(told)})" if told else ""


def pair_data(found: PairFinding) -> dict[str, Any]:
    """A finding as JSON-able data."""
    return {
        "relation": relation_data(found.relation),
        "position": found.position,
        "time": _time(found.time),
        "holds": found.holds,
        "since": _time(found.since),
        "due": _time(found.due),
        "dwelt": found.dwelt,
        "reasons": list(found.reasons),
        "undecided": found.undecided or None,
        "a": _side_data(found.a),
        "b": _side_data(found.b),
        "metres": found.metres,
        "predicate": found.predicate,
        "conditions": [_condition(one) for one in found.conditions],
        "told": [_told(position, one) for position, one in found.told],
    }


def _side_data(side: SideFinding) -> dict[str, Any]:
    event = side.report
    report = None if event is None else {"id": event.id, "position": event.position, "time": _time(event.time)}
    conditions = [_condition(one) for one in side.conditions]
    told = {"entity": side.entity, "report": report, "member": side.member, "conditions": conditions}
    return told | {"silent_since": _time(side.silent_since)}


def _condition(one: PredicateFinding) -> dict[str, Any]:
    read = {name: [_plain(value) for value in values] for name, values in one.read}
    told = {"condition": write(one.atom), "truth": one.truth, "staying": one.staying, "read": read}
    found = [{**aggregate_data(own), "entity": entity, "why": own.why or None} for entity, own in one.aggregates]
    return told | ({"aggregates": found} if found else {})


def _told(position: int, told: Transition) -> dict[str, Any]:
    return {"position": position, "detect": told.detect, "reason": told.reason}


def _plain(value: object) -> object:
    return time_text(value) if isinstance(value, datetime) else value


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else time_text(moment)
