"""`nearcast compare FIRST SECOND`."""

from __future__ import annotations

import sys
from dataclasses import asdict

import click

from nearcast.algebra.merging import advertised
from nearcast.api.comparing import compared
from nearcast.cli.output import print_json, warn
from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.language.cql2 import parse
from nearcast.model.filter import Filter


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
    found = compared(*filters, repeated, integers)
    if as_json:
        print_json({name: value for name, value in asdict(found).items() if name not in ("notes", "lines")})
    else:
        click.echo("\n".join([found.relation, *found.lines]))
        for note in found.notes:
            warn("note", note.replace("repeated=True", "--repeated"))
    sys.exit(1 if found.relation == "UNKNOWN" else 0)


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
