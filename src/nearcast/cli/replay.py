"""`nearcast replay --definitions D --events E…`."""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import click
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.cli.options import INPUT_FILE, node_option
from nearcast.cli.output import DeadLetterLog, pluralize, progress, warn, warn_of
from nearcast.errors import Fault
from nearcast.journal.memory import MemoryJournal
from nearcast.journal.seam import Journal
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.control_events import changes
from nearcast.language.definitions import files
from nearcast.language.definitions.relation_documents import warnings_of_nodes
from nearcast.language.event_files import Marks, read_tables
from nearcast.language.nodes import listed
from nearcast.model.columns import are_control, entering
from nearcast.model.relation import Relation
from nearcast.model.subscription import Settings
from nearcast.pipeline.replay_engine import BatchCosts, EngineEstimate, cores_of
from nearcast.stages import decide
from nearcast.stages.decide import priorities
from nearcast.stages.fold import FoldedBatch, StateFold
from nearcast.state.derived import derived_of
from nearcast.state.registry import Registry

Decided = Iterator[tuple[FoldedBatch, pa.Table]]

STRETCH = 10_000
"""Events of a batch that is decided in this process."""

FIRST_STRETCH = 1_000
"""And of the first two with `auto`: where one costs a second, it knows that soon."""


@click.command("replay")
@click.option(
    "--definitions",
    "definition_files",
    multiple=True,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML definitions; several are read together.",
)
@click.option(
    "--events",
    "event_files",
    multiple=True,
    required=True,
    type=INPUT_FILE,
    help="CloudEvents, one a line, or GeoJSON features, also gzipped (- for standard input); several are read in turn.",
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Where to write; else standard output.")
@click.option(
    "--derived",
    "derived_out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write the events that were derived (relations, situations), as CloudEvents, one a line.",
)
@node_option("Where the events count as entered; scope: local is local to it.")
@click.option("--engine", type=click.Choice(["auto", "local", "spark"]), default="auto", show_default=True)
@click.option("--master", help="Where Spark runs, for example local[*] or local-cluster[2,1,1024].")
def command(
    definition_files: tuple[Path, ...],
    event_files: tuple[Path, ...],
    out: Path | None,
    derived_out: Path | None,
    node: str,
    engine: str,
    master: str | None,
) -> None:
    """Decide a history: who would have got what, at which priority.

    Goes through the same stages as live events. Writes a JSON line for each event and client, in the order of the
    events: event, client, subscription, level, the priority as of the event's position (-1: withheld), position. Exits
    with 1 if no event could be taken.
    """
    found = files.load(definition_files)
    warn_of("warning", (*found.warnings, *warnings_of_nodes(found.relations, node)))
    registry = Registry()
    for change in found.changes(node):
        registry.apply(change)
    letters, marks = DeadLetterLog(), Marks()
    with tempfile.TemporaryDirectory(prefix="nearcast-replay-") as folder:
        journal = _journal(event_files, registry.settings, letters, marks, node, engine, Path(folder))
        warn_of("warning", _without_times(journal, found.relations))
        known, choice = StateFold(registry), EngineChoice(engine, master, Path(folder))
        decided = choice.decided(journal, known)
        with ExitStack() as stack:
            file = stack.enter_context(out.open("wb")) if out else sys.stdout.buffer
            if derived_out:
                decided = _derived(stack.enter_context(derived_out.open("wb")), decided)
            lines = _write(file, decided, journal.end("events"))
    for refusal in known.refusals:
        event = refusal.event
        fault = replace(refusal.error.fault, where=marks.get((event.source, event.id)))
        letters.refuse(fault, f" (event {event.id} at position {event.position})")
    letters.summary()
    events, letters_of = pluralize(journal.end("events"), "event"), pluralize(letters.count, "dead letter")
    warn("note", f"{events}, {pluralize(lines, 'delivery', 'deliveries')}, {letters_of} ({choice.told})")
    if journal.end("events") == len(known.refusals):
        warn("error", f"expected events to decide, got {letters_of if letters.count else 'none'}")
        sys.exit(1)


def _journal(
    files: tuple[Path, ...],
    settings: Settings,
    letters: DeadLetterLog,
    marks: Marks,
    node: str,
    engine: str,
    folder: Path,
) -> Journal:
    """The events in a journal."""
    # Spark reads the journal in its workers, from a file; and `auto` knows only later whether it is Spark.
    journal: Journal = MemoryJournal() if engine == "local" else SqliteJournal(folder / "journal")
    repeated = 0
    with progress("reading") as advance:
        for table in read_tables(files, settings.channels, letters, marks):
            end = journal.end("events")
            journal.append("events", entering(table, node))
            repeated += end + len(table) - journal.end("events")
            advance(len(table))
    if repeated:
        warn("note", f"events left out because their source and id came before: {repeated:,}")
    return journal


def _without_times(journal: Journal, relations: Sequence[Relation]) -> Iterator[Fault]:
    """A warning where relations wait for time to pass and events have none: live ones have that of acceptance."""
    waiting = [one.id for one in relations if one.lasting is not None or one.time_to_live is not None]
    if not waiting:
        return
    count = 0
    for table in journal.row_ranges("events", 0, journal.end("events"), STRETCH):
        world = table.filter(pc.invert(are_control(table)))
        count += world.column("time").null_count
    if count:
        expected = f"events with a time, for the relations that wait for it to pass: {listed(waiting)}"
        yield Fault(
            expected, f"{pluralize(count, 'event')} without", None, "such events let no time pass, as for dwell"
        )


class EngineChoice:
    """Decides with the engine that was asked for; `auto` begins here and goes on with Spark where that is done sooner.

    `told` says which it was, and why.
    """

    def __init__(self, engine: str, master: str | None, folder: Path) -> None:
        self.told = "spark" if engine == "spark" else "local"
        self._engine, self._master, self._folder = engine, master, folder

    def decided(self, journal: Journal, known: StateFold) -> Decided:
        """Each batch of a journal with its deliveries."""
        if self._engine == "auto":
            yield from self._measured(journal, known)
        elif self._engine == "local":
            yield from decide.replay(known, journal.row_ranges("events", 0, journal.end("events"), STRETCH), changes)
        else:
            yield from self._on_spark(journal, known)

    def _measured(self, journal: Journal, known: StateFold) -> Decided:
        costs, end = BatchCosts(cores_of(self._master)), journal.end("events")
        begin = min(2 * FIRST_STRETCH, end)
        first = journal.row_ranges("events", 0, begin, FIRST_STRETCH)
        for table in chain(first, journal.row_ranges("events", begin, end, STRETCH)):
            yield from costs.decided(known, table, changes)
            found = costs.estimate(end - known.position)
            if found and found.spark_pays:
                self.told = f"local, then spark for {found.events:,} events: {_seconds(found)}"
                warn("note", f"{found.events:,} events are left: {_seconds(found)}")
                yield from self._on_spark(journal, known)
                return
            if found and self.told == "local":
                self.told = f"local: for {found.events:,} events {_seconds(found)}"

    def _on_spark(self, journal: Journal, known: StateFold) -> Decided:
        from nearcast.pipeline.batch_replay import replay  # Spark is imported only by those who ask for it
        from nearcast.pipeline.spark_session import session

        assert isinstance(journal, SqliteJournal)
        warn("note", "starting Spark, which takes some seconds")
        return replay(session(self._master), journal, known, self._folder)


def _seconds(found: EngineEstimate) -> str:
    """What an estimate says, in words."""
    on = "a cluster" if math.isinf(found.cores) else pluralize(int(found.cores), "core")
    return f"about {found.here:.0f} s in this process, {found.spark:.0f} s by Spark on {on}"


def _derived(file: BinaryIO, decided: Decided) -> Decided:
    """The same, and writes what was derived in each batch."""
    for batch, deliveries in decided:
        for payload in derived_of(batch.events).column("payload").to_pylist():
            file.write(payload + b"\n")
        yield batch, deliveries


def _write(file: BinaryIO, decided: Decided, events: int) -> int:
    lines = 0
    with progress("deciding", events) as advance:
        for batch, deliveries in decided:
            keys = zip(batch.events["position"].to_pylist(), batch.events["part"].to_pylist(), strict=True)
            ids = dict(zip(keys, batch.events["id"].to_pylist(), strict=True))
            columns = [deliveries[name].to_pylist() for name in ("position", "part", "client", "subscription", "level")]
            for position, part, client, subscription, level, priority in zip(
                *columns, priorities(batch, deliveries).tolist(), strict=True
            ):
                row = {
                    "event": ids[position, part],
                    "client": client,
                    "subscription": subscription,
                    "level": level,
                    "priority": priority,
                    "position": position,
                }
                file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
            lines += len(deliveries)
            advance(len(batch.events))
    return lines
