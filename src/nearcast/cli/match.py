"""`nearcast match FILTER FILE…`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nearcast.api.filters import refuse_surroundings
from nearcast.cli.options import INPUT_FILE
from nearcast.cli.output import DeadLetterLog, print_json, progress, warn
from nearcast.errors import DefinitionError, Mark
from nearcast.filters.spatial_atoms import truth_alone
from nearcast.language.cql2 import parse
from nearcast.language.definitions.degree_limits import beyond_degrees
from nearcast.language.event_files import FEATURES, as_tables, read_events, suffix_of
from nearcast.model.event import Event
from nearcast.model.filter import Filter, atoms

if TYPE_CHECKING:
    import pyarrow as pa

SMALL = 10_000
"""Conditions of events, all together, that are evaluated one by one: fewer take less than columns take to load."""

STEP = 1_000
"""Events after which progress is shown: for each alone it would take longer than the event."""

Found = tuple[str, bytes]
"""The id and the payload of an event that matches."""


@click.command("match")
@click.argument("filter_text", metavar="FILTER")
@click.argument("files", nargs=-1, required=True, type=INPUT_FILE)
@click.option("--count", is_flag=True, help="Print only how many events match.")
@click.option("--engine", type=click.Choice(["local", "spark"]), default="local", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the matching events as they came, one a line.")
def command(filter_text: str, files: tuple[Path, ...], count: bool, engine: str, as_json: bool) -> None:
    """Print the ids of the events that FILTER, CQL2 text or JSON, selects.

    FILES hold CloudEvents or GeoJSON features (properties by name, the geometry as geom), one a line or in a list, also
    gzipped; - is standard input. Exits with 1 if no event matches.
    """
    filter = parse(filter_text, Mark("FILTER", 1, 1))
    refuse_surroundings(filter)
    if any(suffix_of(path) in (*FEATURES, ".json") for path in files):
        _refuse_beyond_degrees(filter)
    letters, found = DeadLetterLog(), 0
    with progress("matching") as advance:
        for some in matching(engine)(filter, _counted(read_events(files, (), letters), advance)):
            found += len(some)
            if not count:
                _show(some, as_json)
    letters.summary()
    if count:
        print_json({"count": found}) if as_json else click.echo(found)
    sys.exit(0 if found else 1)


def _refuse_beyond_degrees(filter: Filter) -> None:
    """GeoJSON is in degrees, so a geometry beyond them is a slip: most often longitude and latitude are swapped."""
    faults = list(beyond_degrees(filter))
    if faults:
        raise DefinitionError(faults)


def _counted(events: Iterable[Event], advance: Callable[[int], None]) -> Iterator[Event]:
    for number, event in enumerate(events, 1):
        yield event
        if number % STEP == 0:
            advance(STEP)


Engine = Callable[[Filter, Iterator[Event]], Iterator[Sequence[Found]]]


def matching(engine: str) -> Engine:
    """The function that gives the matching ones of events, in their order."""
    return _locally if engine == "local" else _on_spark


def _locally(filter: Filter, events: Iterator[Event]) -> Iterator[Sequence[Found]]:
    room = SMALL // sum(1 for _ in atoms(filter)) + 1
    first = list(islice(events, room))
    if len(first) < room:
        yield [(event.id, event.payload) for event in first if truth_alone(filter, event)]
        return
    import pyarrow as pa

    from nearcast.matching.spatial.geometry_sharing import SingleFilter

    index = SingleFilter(filter)
    for table in as_tables(chain(first, events)):
        yield _of_table(table.filter(pa.array(index.selects(table))))


def _on_spark(filter: Filter, events: Iterator[Event]) -> Iterator[Sequence[Found]]:
    from nearcast.pipeline.spread import select  # Spark is imported only by those who ask for it

    warn("note", "starting Spark, which takes some seconds")
    return map(_of_table, select(filter, as_tables(events)))


def _of_table(table: pa.Table) -> Sequence[Found]:
    return list(zip(table.column("id").to_pylist(), table.column("payload").to_pylist(), strict=True))


def _show(found: Sequence[Found], as_json: bool) -> None:
    sys.stdout.writelines(f"{payload.decode() if as_json else id}\n" for id, payload in found)
