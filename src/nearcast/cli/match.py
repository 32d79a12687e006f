"""`nearcast match FILTER FILE…`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pyarrow as pa

from nearcast.api.filters import refuse_surroundings
from nearcast.cli.output import DeadLetters, print_json, progress, warn
from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.language.cql2 import parse
from nearcast.language.cql2_geometry import within_degrees
from nearcast.language.cql2_text import expression
from nearcast.language.event_files import FEATURES, read_tables
from nearcast.matching.matcher import FilterMatcher
from nearcast.model.expression import Box, Call, Shape, parts
from nearcast.model.filter import Filter, atoms


@click.command("match")
@click.argument("filter_text", metavar="FILTER")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--count", is_flag=True, help="Print only how many events match.")
@click.option("--engine", type=click.Choice(["local", "spark"]), default="local", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the matching events as they came, one a line.")
def command(filter_text: str, files: tuple[Path, ...], count: bool, engine: str, as_json: bool) -> None:
    """Print the ids of the events that FILTER, CQL2 text or JSON, selects.

    FILES hold CloudEvents, one a line (.jsonl, also gzipped), or GeoJSON features (.geojson, .json: properties by name,
    the geometry as geom). Exits with 1 if no event matches.
    """
    filter = parse(filter_text, Mark("FILTER", 1, 1))
    refuse_surroundings(filter)
    if any(path.suffix.lower() in FEATURES for path in files):
        _refuse_beyond_degrees(filter)
    letters, found = DeadLetters(), 0
    with progress("matching") as advance:
        for table in matching(engine)(filter, _counted(files, letters, advance)):
            found += len(table)
            if not count:
                _show(table, as_json)
    letters.summary()
    if count:
        print_json({"count": found}) if as_json else click.echo(found)
    sys.exit(0 if found else 1)


def _refuse_beyond_degrees(filter: Filter) -> None:
    """GeoJSON is in degrees, so a geometry beyond them is a slip: most often longitude and latitude are swapped."""
    for atom in atoms(filter):
        for part in parts(atom.name) if isinstance(atom.name, Call) else ():
            if isinstance(part, (Shape, Box)) and not within_degrees(part):
                expected = "a geometry in degrees: longitudes to 180, latitudes to 90"
                raise DefinitionError(Fault(expected, expression(part)[:80], atom.where, "longitude comes first"))


def _counted(files: tuple[Path, ...], letters: DeadLetters, advance: Callable[[int], None]) -> Iterator[pa.Table]:
    for table in read_tables(files, (), letters):
        yield table
        advance(len(table))


Engine = Callable[[Filter, Iterator[pa.Table]], Iterator[pa.Table]]


def matching(engine: str) -> Engine:
    """The function that gives the matching rows of tables, in their order."""
    if engine == "local":
        return _locally
    from nearcast.pipeline.spread import select  # Spark is imported only by those who ask for it

    warn("note", "starting Spark, which takes some seconds")
    return select


def _locally(filter: Filter, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    index = FilterMatcher((), [filter])
    for table in tables:
        yield table.filter(pa.array(index.selected(table)[0]))


def _show(table: pa.Table, as_json: bool) -> None:
    if as_json:
        for payload in table.column("payload").to_pylist():
            sys.stdout.write(payload.decode() + "\n")
    else:
        sys.stdout.writelines(f"{id}\n" for id in table.column("id").to_pylist())
