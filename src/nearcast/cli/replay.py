"""`nearcast replay`: a history out of files, or out of the journal of a system, decided once more."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

import click
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.cli.engine_choice import STRETCH, Decided, EngineChoice
from nearcast.cli.options import (
    INPUT_FILE,
    journal_of,
    named_place,
    node_option,
    place_option,
    spark_options,
    state_path,
)
from nearcast.cli.output import DeadLetterLog, pluralize, progress, warn, warn_of
from nearcast.cli.replay_comparison import compared, shown
from nearcast.errors import Fault
from nearcast.explain.decision_differences import DecisionDifferences
from nearcast.journal.locations import Location
from nearcast.journal.memory import MemoryJournal
from nearcast.journal.seam import Journal
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.control_events import changes
from nearcast.language.definitions import files
from nearcast.language.definitions.files import DefinitionSet
from nearcast.language.definitions.relation_documents import warnings_of_nodes
from nearcast.language.event_files import Marks, read_tables
from nearcast.language.nodes import listed
from nearcast.model.columns import are_control, entering
from nearcast.model.relation import Relation
from nearcast.model.values import has_zone, time_of
from nearcast.pipeline.past_journal import Bound, PositionSpan, RecordedClients, opened_history, span_of, state_before
from nearcast.stages.decide import priorities
from nearcast.stages.fold import FoldedBatch, Parse, StateFold
from nearcast.state.derived import derived_of
from nearcast.state.registry import Registry

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
OUTPUT = click.Path(dir_okay=False, path_type=Path)


class PositionOrTime(click.ParamType[Bound]):
    """A position of the journal, or a time with its zone."""

    name = "position or time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Bound:
        """Either of them; a usage error for anything else."""
        text = str(value)
        if text.isdecimal() and int(text) > 0:
            return int(text)
        moment = time_of(text) if has_zone(text) else None
        if moment is None:
            self.fail(f"expected a position from 1 on, or a time as in 2020-01-31T12:00:00Z, got {text!r}", param, ctx)
        return moment


@click.command("replay")
@click.option(
    "--definitions",
    "definition_files",
    multiple=True,
    type=FILE,
    help="YAML definitions; several are read together. With --data or --journal: instead of the journal's own.",
)
@click.option(
    "--events",
    "event_files",
    multiple=True,
    type=INPUT_FILE,
    help="CloudEvents, one a line, or GeoJSON features, also gzipped (- for standard input); several are read in turn.",
)
@place_option("A system, instead of --events")
@click.option(
    "--archive",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="An archive: before a system's journal, which may keep less, or alone.",
)
@click.option("--from", "first", type=PositionOrTime(), help="First position that is told of, or time of acceptance.")
@click.option("--to", "last", type=PositionOrTime(), help="Last one.")
@click.option("--out", type=OUTPUT, help="Where to write; else standard output.")
@click.option(
    "--derived",
    "derived_out",
    type=OUTPUT,
    help="Where to write the events that were derived (relations, situations), as CloudEvents, one a line.",
)
@click.option("--compare", is_flag=True, help="Show how it differs from what the system delivered.")
@click.option("--json", "as_json", is_flag=True, help="With --compare: as one JSON object.")
@node_option("Where the events count as entered; scope: local is local to it.")
@click.option("--engine", type=click.Choice(["auto", "local", "spark"]), default="auto", show_default=True)
@spark_options("Where Spark runs, for example local[*], local-cluster[2,1,1024] or spark://head:7077.")
def command(
    definition_files: tuple[Path, ...],
    event_files: tuple[Path, ...],
    places: tuple[Location, ...],
    archive: Path | None,
    first: Bound | None,
    last: Bound | None,
    out: Path | None,
    derived_out: Path | None,
    compare: bool,
    as_json: bool,
    node: str,
    engine: str,
    master: str | None,
    spark_properties: Path | None,
) -> None:
    """Decide a history: who would have got what, at which priority.

    Goes through the same stages as live events. Writes a JSON line for each event and client, in the order of the
    events: event, client, subscription, level, the priority as of the event's position (-1: withheld), position.

    With --data the history is that of a system, which may run meanwhile; nothing there is changed. What comes out is
    what the system decided; with --definitions what it would have decided under these, clients being as they were.
    --compare shows how both differ.

    Exits with 1 if no event could be taken, or if --compare finds a difference.
    """
    # What the environment names is not meant where files are.
    place = None if (event_files or archive) and not places else named_place(places)
    _check_usage(definition_files, event_files, place, archive, compare, as_json)
    found = files.load(definition_files)
    warn_of("warning", (*found.warnings, *warnings_of_nodes(found.relations, node)))
    with tempfile.TemporaryDirectory(prefix="nearcast-replay-") as folder, ExitStack() as stack:
        if event_files:
            history = _history_of_files(event_files, found, node, engine, Path(folder))
        else:
            history = _history_of_system(place, archive, found if definition_files else None, node)
        stack.callback(history.journal.close)
        with progress("looking for the range") as advance:
            span = span_of(history.journal, first, last, advance)
        if compare:
            span = _decided_part(history.journal, span)
        with progress("reading what came before", span.after) as advance:
            history.begin(span, advance)
        choice = EngineChoice(engine, master, Path(folder), spark_properties)
        decided = choice.decided(history.journal, history.known, span.through, history.parse)
        differences = DecisionDifferences()
        if derived_out:
            decided = _derived(stack.enter_context(derived_out.open("wb")), decided)
        if compare:
            decided = compared(history.journal, span, decided, differences)
        file = _output(out, compare, stack)
        lines = _write(file, decided, len(span))
    history.tell_refusals()
    letters = history.letters
    events, letters_of = pluralize(len(span), "event"), pluralize(letters.count, "dead letter")
    warn("note", f"{events}, {pluralize(lines, 'delivery', 'deliveries')}, {letters_of} ({choice.told})")
    if compare:
        shown(differences, span, as_json)
    if len(span) == len(history.known.refusals):
        warn("error", f"expected events to decide, got {letters_of if letters.count else 'none'}")
        sys.exit(1)
    sys.exit(1 if differences.any else 0)


def _check_usage(
    definitions: Sequence[Path],
    events: Sequence[Path],
    place: Location | None,
    archive: Path | None,
    compare: bool,
    as_json: bool,
) -> None:
    if bool(events) == (place is not None or archive is not None):
        raise click.UsageError("give one history: --events with --definitions, or a system with --data or --journal")
    if events and not definitions:
        raise click.UsageError("--events needs --definitions: who listens?")
    if (compare and events) or (as_json and not compare):
        raise click.UsageError("--compare is for --data or --journal, and --json is for --compare")


def _decided_part(journal: Journal, span: PositionSpan) -> PositionSpan:
    """What the system has decided of a range."""
    decided = journal.end("deliveries")
    if decided >= span.through:
        return span
    if decided <= span.after:
        raise Fault(f"positions that the system has decided, up to {decided:,}", f"from {span.after + 1:,}")
    warn("note", f"compared up to position {decided:,}: that far the system has decided")
    return replace(span, through=decided)


@dataclass
class _History:
    """Events to decide: their journal, what is known before the first, how control events are read, what is told."""

    journal: Journal
    known: StateFold
    parse: Parse = changes
    snapshots: Path | None = None
    letters: DeadLetterLog = field(default_factory=DeadLetterLog)
    marks: Marks = field(default_factory=dict)

    def begin(self, span: PositionSpan, advance: Callable[[int], None]) -> None:
        """Makes what is known that of the position before the first that is told of."""
        self.known = state_before(self.journal, span.after, self.snapshots, self.known, self.parse, advance)

    def tell_refusals(self) -> None:
        """Complains about control events that changed nothing, and about all else that could not be taken."""
        for refusal in self.known.refusals:
            event = refusal.event
            fault = replace(refusal.error.fault, where=self.marks.get((event.source, event.id)))
            self.letters.refuse(fault, f" (event {event.id} at position {event.position})")
        self.letters.summary()
        if isinstance(self.parse, RecordedClients):
            own = self.known.registry.settings.channels
            if own and self.parse.channels - {own}:
                warn("warning", "channels: events keep the channel and the entity under which they entered")


def _known(found: DefinitionSet, node: str) -> StateFold:
    registry = Registry()
    for change in found.changes(node):
        registry.apply(change)
    return StateFold(registry)


def _history_of_system(
    place: Location | None, archive: Path | None, found: DefinitionSet | None, node: str
) -> _History:
    """What a journal and its archive have; under their own definitions, or under others."""
    journal = opened_history(None if place is None else journal_of(place), archive)
    if found is not None:
        return _History(journal, _known(found, node), RecordedClients())
    folder = place if isinstance(place, Path) and place.is_dir() else None
    return _History(journal, StateFold(), snapshots=None if folder is None else state_path(folder) / "known")


def _history_of_files(files: tuple[Path, ...], found: DefinitionSet, node: str, engine: str, folder: Path) -> _History:
    """The events of files, in a journal."""
    known, letters, marks = _known(found, node), DeadLetterLog(), Marks()
    # Spark reads the journal in its workers, from a file; and `auto` knows only later whether it is Spark.
    journal: Journal = MemoryJournal() if engine == "local" else SqliteJournal(folder / "journal")
    settings, repeated = known.registry.settings, 0
    with progress("reading") as advance:
        for table in read_tables(files, settings.channels, letters, marks, settings.limits.name_length):
            end = journal.end("events")
            journal.append("events", entering(table, node))
            repeated += end + len(table) - journal.end("events")
            advance(len(table))
    if repeated:
        warn("note", f"events left out because their source and id came before: {repeated:,}")
    warn_of("warning", _without_times(journal, found.relations))
    return _History(journal, known, letters=letters, marks=marks)


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


def _derived(file: BinaryIO, decided: Decided) -> Decided:
    """The same, and writes what was derived in each batch."""
    for batch, deliveries in decided:
        for payload in derived_of(batch.events).column("payload").to_pylist():
            file.write(payload + b"\n")
        yield batch, deliveries


def _output(out: Path | None, compare: bool, stack: ExitStack) -> BinaryIO | None:
    """Where deliveries are written; None where standard output is for how they differ."""
    return stack.enter_context(out.open("wb")) if out else None if compare else sys.stdout.buffer


def _write(file: BinaryIO | None, decided: Decided, events: int) -> int:
    """Writes the deliveries; how many there are."""
    lines = 0
    with progress("deciding", events) as advance:
        for batch, deliveries in decided:
            if file is not None:
                _write_batch(file, batch, deliveries)
            lines += len(deliveries)
            advance(len(batch.events))
    return lines


def _write_batch(file: BinaryIO, batch: FoldedBatch, deliveries: pa.Table) -> None:
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
