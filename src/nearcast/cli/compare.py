"""`nearcast compare FIRST SECOND`."""

from __future__ import annotations

import sys
from typing import Any

import click

from nearcast.algebra.comparison import FilterComparison, FilterRelation, compare, find
from nearcast.algebra.constraints import Premises
from nearcast.algebra.merging import advertised
from nearcast.algebra.search import USUAL, WitnessEvent
from nearcast.cli.output import print_json, warn
from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.language.cql2 import parse
from nearcast.model.filter import Filter
from nearcast.model.values import Value

MEANING = {
    "only_first": "only FIRST accepts",
    "only_second": "only SECOND accepts",
    "both": "both accept",
}


@click.command("compare")
@click.argument("first")
@click.argument("second")
@click.option("--repeated", is_flag=True, help="Of events in which an attribute may have several values, too.")
@click.option("--integers", is_flag=True, help="Of events in which every number is an integer.")
@click.option("--advertisements", is_flag=True, help="Read both as what publishers say their events will carry.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(first: str, second: str, repeated: bool, integers: bool, advertisements: bool, as_json: bool) -> None:
    """Compare the events that FIRST, a CQL2 text, accepts with those that SECOND accepts.

    Prints EQUAL, SUBSET (SECOND accepts them all), SUPERSET, INTERSECT, EMPTY (nothing in common) or UNKNOWN, then an
    event for each difference. The events are those in which an attribute has one value at most; a note says where the
    relation is another as soon as lists come in. An advertisement allows the attributes it names and no others; two of
    them are compared on events that carry what both name.

    Exits with 1 if the relation is UNKNOWN.
    """
    filters = _parsed(first, second)
    if advertisements:
        filters = advertised(*filters)
    assumed = Premises(not repeated, integers)
    found = compare(*filters, assumed)
    any_event = found if repeated else compare(*filters, Premises(False, integers))
    if as_json:
        print_json(_data(found, any_event))
    else:
        _show(found)
        _notes(filters, assumed, found, any_event)
    sys.exit(1 if found.relation is FilterRelation.UNKNOWN else 0)


def _parsed(first: str, second: str) -> tuple[Filter, Filter]:
    """Both filters. Raises `DefinitionError` with the faults of both."""
    found: list[Filter] = []
    faults: list[Fault] = []
    for text, name in ((first, "FIRST"), (second, "SECOND")):
        try:
            found.append(parse(text, Mark(name, 1, 1)))
        except DefinitionError as error:
            faults += error.faults
    if faults:
        raise DefinitionError(faults)
    return found[0], found[1]


def _show(found: FilterComparison) -> None:
    click.echo(found.relation)
    for name, meaning in MEANING.items():
        witness = getattr(found, name)
        if witness:
            click.echo(f"{meaning}: {_text(witness)}")


def _notes(
    filters: tuple[Filter, Filter], assumed: Premises, found: FilterComparison, any_event: FilterComparison
) -> None:
    # Where both accept an event, neither accepts none.
    for filter, name in () if found.meet else zip(filters, ("FIRST", "SECOND"), strict=True):
        if find(filter, assumed).possible is False:
            warn("note", f"{name} accepts no event at all")
    if None in (found.within, found.covers) and found.relation in (FilterRelation.SUBSET, FilterRelation.SUPERSET):
        warn("note", "they may be EQUAL: that was not decided")
    if any_event.relation is not found.relation:
        warn("note", f"{any_event.relation} where an attribute may have several values (--repeated)")


def _data(found: FilterComparison, any_event: FilterComparison) -> dict[str, Any]:
    return {
        "relation": found.relation,
        "second_covers_first": found.within,
        "first_covers_second": found.covers,
        "intersect": found.meet,
        "repeated": any_event.relation,
        **{name: witness and _event(witness) for name in MEANING for witness in [getattr(found, name)]},
    }


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
    told = [(name, value) for name, value in own if value != USUAL[name]]
    parts = [f"{name} = {_literal(value)}" for name, value in (*told, *event.attributes)]
    places = [("the event", event.place), *witness.users] if event.place else []
    parts += [f"{name} at {place.x:.6g}, {place.y:.6g}" for name, place in places if place]
    return ", ".join(parts) or "any other event"


def _literal(value: Value) -> str:
    return repr(value) if isinstance(value, (str, int, float)) else value.isoformat()
