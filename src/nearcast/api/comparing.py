"""How two filters relate, with an event for each difference: for `Filter.compare` and `nearcast compare`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from nearcast.algebra.comparison import FilterComparison, FilterRelation, compare, find
from nearcast.algebra.constraints import Premises
from nearcast.algebra.search import USUAL, WitnessEvent
from nearcast.model.filter import Filter
from nearcast.model.values import Value

RelationName = Literal["EQUAL", "SUBSET", "SUPERSET", "INTERSECT", "EMPTY", "UNKNOWN"]

MEANING = {
    "only_first": "only {0} accepts",
    "only_second": "only {1} accepts",
    "both": "both accept",
}


@dataclass(frozen=True, slots=True)
class ComparedFilters:
    """How the events that a first filter accepts relate to those that a second one accepts.

    `relation` is EQUAL, SUBSET (the second accepts them all), SUPERSET, INTERSECT, EMPTY (nothing in common) or
    UNKNOWN; `repeated` is the relation among events in which an attribute may have several values. The next three are
    the parts of it, None where they were not decided. `only_first`, `only_second` and `both` are events, as dicts, that
    only the first, only the second, both accept; None where none was found. `str()` gives lines for a person.
    """

    relation: RelationName
    second_covers_first: bool | None
    first_covers_second: bool | None
    intersect: bool | None
    repeated: RelationName
    only_first: dict[str, Any] | None
    only_second: dict[str, Any] | None
    both: dict[str, Any] | None
    notes: tuple[str, ...] = ()
    lines: tuple[str, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return "\n".join([self.relation, *self.lines, *(f"note: {note}" for note in self.notes)])


def compared(
    first: Filter, second: Filter, repeated: bool, integers: bool, names: tuple[str, str] = ("FIRST", "SECOND")
) -> ComparedFilters:
    """The comparison of two filters, on events with lists too if `repeated`, with integers alone if `integers`."""
    assumed = Premises(not repeated, integers)
    found = compare(first, second, assumed)
    any_event = found if repeated else compare(first, second, Premises(False, integers))
    witnesses = {name: getattr(found, name) for name in MEANING}
    return ComparedFilters(
        relation=found.relation.value,
        second_covers_first=found.within,
        first_covers_second=found.covers,
        intersect=found.meet,
        repeated=any_event.relation.value,
        **{name: witness and _event(witness) for name, witness in witnesses.items()},
        notes=tuple(_notes((first, second), names, assumed, found, any_event)),
        lines=tuple(f"{MEANING[name].format(*names)}: {_text(one)}" for name, one in witnesses.items() if one),
    )


def _notes(
    filters: tuple[Filter, Filter],
    names: tuple[str, str],
    assumed: Premises,
    found: FilterComparison,
    any_event: FilterComparison,
) -> list[str]:
    # Where both accept an event, neither accepts none.
    never = [] if found.meet else [find(filter, assumed).possible is False for filter in filters]
    notes = [f"{name} accepts no event at all" for name, one in zip(names, never, strict=False) if one]
    if None in (found.within, found.covers) and found.relation in (FilterRelation.SUBSET, FilterRelation.SUPERSET):
        notes.append("they may be EQUAL: that was not decided")
    if any_event.relation is not found.relation:
        notes.append(f"{any_event.relation} where an attribute may have several values (repeated=True)")
    return notes


def _event(witness: WitnessEvent) -> dict[str, Any]:
    """An event as JSON: what it must have, and of several values of a name a list."""
    event, data = witness.event, dict[str, Any]()
    for name, value in (("id", event.id), ("type", event.type), ("source", event.source), *event.attributes):
        there = data.get(name)
        shown = str(value) if value != value else value
        data[name] = shown if there is None else [*(there if isinstance(there, list) else [there]), shown]
    if event.place:
        data["place"] = [event.place.x, event.place.y]
    if witness.users:
        data["users"] = {user: [place.x, place.y] for user, place in witness.users}
    return data


def _text(witness: WitnessEvent) -> str:
    """What matters of an event: all but what any event has."""
    event = witness.event
    own = (("id", event.id), ("type", event.type), ("source", event.source))
    stated = [(name, value) for name, value in own if value != USUAL[name]]
    parts = [f"{name} = {_literal(value)}" for name, value in (*stated, *event.attributes)]
    places = [("the event", event.place), *witness.users] if event.place else []
    parts += [f"{name} at {place.x:.6g}, {place.y:.6g}" for name, place in places if place]
    return ", ".join(parts) or "any other event"


def _literal(value: Value) -> str:
    return repr(value) if isinstance(value, (str, int, float)) else value.isoformat()
