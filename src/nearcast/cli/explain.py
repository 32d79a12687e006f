"""`nearcast explain EVENT`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.cli.explain_pair import moment_of_text, pair_data, pair_finding, pair_lines
from nearcast.cli.explain_text import as_data, as_text, rule_data, rule_lines, told_situation
from nearcast.cli.options import INPUT_FILE, data_option, journal_path
from nearcast.cli.output import DeadLetterLog, plain, print_json, progress, wrapped
from nearcast.errors import Fault, SetupError
from nearcast.explain.delivery_status import DeliveryStatus, delivery_statuses, undelivered
from nearcast.explain.explanation import explain
from nearcast.explain.state_at import PastState, state_at
from nearcast.explain.why_not import why_not
from nearcast.journal.memory import MemoryJournal
from nearcast.journal.seam import Journal
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.control_events import changes
from nearcast.language.cql2 import write
from nearcast.language.definitions import files
from nearcast.language.event_files import as_tables, read_events
from nearcast.model.columns import to_events
from nearcast.model.event import Event
from nearcast.situations.diagnosis import RuleFinding
from nearcast.situations.stage import SituationStage
from nearcast.stages.fold import StateFold
from nearcast.state.derived import derived_of
from nearcast.state.registry import Registry

STRETCH = 100_000
"""Positions that are read at once."""

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("explain")
@click.argument("event_id", metavar="[EVENT]", required=False)
@click.option("--client", help="The client it is about; else every client known then, or named by a subscription.")
@click.option("--source", help="The event's source, where several events have the id.")
@data_option
@click.option("--journal", "journal_file", type=FILE, help="A journal, instead of the one in the data folder.")
@click.option("--definitions", "definition_files", multiple=True, type=FILE, help="With --events: as in replay.")
@click.option("--events", "event_files", multiple=True, type=INPUT_FILE, help="Files of events instead of a journal.")
@click.option("--situation", "rule", help="Explain this situation rule around EVENT, instead of clients.")
@click.option("--relation", help="Explain this relation between --a and --b, instead of an event.")
@click.option("--a", "side_a", help="An entity; with --relation.")
@click.option("--b", "side_b", help="The other one.")
@click.option("--at", "moment", help="With --relation: at this time, as in 2020-01-31T12:00:00Z; else at the end.")
@click.option("--position", type=click.IntRange(min=1), help="With --relation: after the event at this position.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per client.")
def command(
    event_id: str | None,
    client: str | None,
    source: str | None,
    data: Path,
    journal_file: Path | None,
    definition_files: tuple[Path, ...],
    event_files: tuple[Path, ...],
    rule: str | None,
    relation: str | None,
    side_a: str | None,
    side_b: str | None,
    moment: str | None,
    position: int | None,
    as_json: bool,
) -> None:
    """Explain why EVENT, an id, reached a client or did not.

    Shows every atom with its truth and what made it so, the level, the context, the matrix row, the priority as of the
    event's position, and what became of the delivery; and why not, if not. Of a situation's event also what the
    situation rested on; and with --situation every condition of a rule around EVENT, and what was missing.

    With --relation, --a and --b instead of EVENT: why a relation holds between two entities, or does not: their newest
    reports, the sides and the predicate by parts, with the margin, since when, dwell and silence.
    """
    if (event_id is None) == (relation is None):
        raise click.UsageError("give EVENT, or --relation with --a and --b")
    if relation is not None and (side_a is None or side_b is None or (moment is not None and position is not None)):
        raise click.UsageError("give --relation with --a and --b, and one of --at and --position or none")
    if bool(definition_files) != bool(event_files) or (event_files and journal_file):
        raise click.UsageError("give --definitions and --events together, or a journal alone")
    about = None if side_a is None or side_b is None else {side_a, side_b}
    with _history(journal_file or journal_path(data), definition_files, event_files, about) as history:
        if relation is not None and side_a is not None and side_b is not None:
            until = position if moment is None else moment_of_text(moment)
            tables = _stretches(history.journal, "events", history.journal.end("events"))
            pair = pair_finding(tables, history.registry, relation, (side_a, side_b), until)
            print_json(pair_data(pair)) if as_json else click.echo(wrapped(map(plain, pair_lines(pair))))
            return
        assert event_id is not None
        place, derived = _meant(history, event_id, source)
        if rule is not None:
            found_rule = _rule(history, rule, place)
            print_json(rule_data(found_rule)) if as_json else click.echo(wrapped(map(plain, rule_lines(found_rule))))
            return
        around = _around(history, place, derived)
        told = told_situation(around.scene.event)
        situation = {} if told is None else {"situation": told}
        decided = _fates(history.journal, around.scene.event) if history.decided else None
        for number, name in enumerate([client] if client is not None else _everyone(around)):
            found = explain(around.scene, name)
            reasons = why_not(found, around, write)
            delivery_status = None if decided is None else decided.of(name)
            if as_json:
                print_json(as_data(found, reasons, delivery_status) | situation)
            else:
                click.echo(as_text(found, reasons, delivery_status, headed=number == 0, situation=told))


@dataclass(frozen=True, slots=True)
class _History:
    """Events to explain, what was there before the first, and whether there are logs of deliveries and outcomes."""

    journal: Journal
    registry: Registry
    decided: bool

    def derived(self) -> Iterator[pa.Table]:
        """What was derived from the events: as the journal has it, else once more."""
        if self.decided:
            yield from _stretches(self.journal, "derived", self.journal.end("derived"))
            return
        known = StateFold(self.registry.copy())
        for table in _stretches(self.journal, "events", self.journal.end("events")):
            yield from (derived_of(batch.events) for batch in known.fold(table, changes))


@contextmanager
def _history(
    path: Path, definition_files: tuple[Path, ...], event_files: tuple[Path, ...], about: set[str] | None
) -> Iterator[_History]:
    history = _from_files(definition_files, event_files, about) if event_files else _from_journal(path)
    try:
        yield history
    finally:
        history.journal.close()


def _from_journal(path: Path) -> _History:
    if not path.is_file():
        advice = "name another with --data or --journal, or files with --definitions and --events"
        raise SetupError(str(Fault("a journal", f"no file {path}", advice=advice)))
    return _History(SqliteJournal(path), Registry(), True)


def _from_files(definition_files: tuple[Path, ...], event_files: tuple[Path, ...], about: set[str] | None) -> _History:
    """The events of files; of those that are not `about` some entities, if these are given, only when they were."""
    registry, journal, letters = Registry(), MemoryJournal(), DeadLetterLog()
    for change in files.load(definition_files).changes():
        registry.apply(change)
    with progress("reading") as advance:
        events = read_events(event_files, registry.settings.channels, letters)
        for table in as_tables(events if about is None else (_bare(event, about) for event in events)):
            journal.append("events", table)
            advance(len(table))
    letters.summary()
    return _History(journal, registry, False)


def _bare(event: Event, about: set[str]) -> Event:
    """An event, without what it tells if it is not about these entities: columns of all of it take the longest."""
    return event if event.control or event.entity in about else replace(event, attributes=(), payload=b"")


def _meant(history: _History, id: str, source: str | None) -> tuple[int, Event | None]:
    """The position of the event that is meant, and the event if it is a derived one."""
    # Published ones are found by an index; for derived ones all of them are read, or even derived once more.
    if history.journal.positions(id, source):
        return _position(history.journal, id, source), None
    for table in history.derived():
        for event in to_events(table.filter(pc.equal(table.column("id"), id))):
            if source in (None, event.source):
                return event.position, event
    return _position(history.journal, id, source), None


def _position(journal: Journal, id: str, source: str | None) -> int:
    """The position of the published event that is meant; a fault if there is none, or more than one."""
    found = journal.positions(id, source)
    if len(found) == 1:
        return found[0]
    if found:
        sources = [journal.read("events", at - 1, 1)["source"][0].as_py() for at in found]
        advice = f"choose one with --source: {', '.join(map(repr, sources))}"
        raise Fault("one event", f"{len(found)} with the id {id!r}", advice=advice)
    of = f" of {source!r}" if source is not None else ""
    advice = "an event that could not be taken is in the log of dead letters; ids and sources are compared exactly"
    raise Fault(f"the id of one of the {journal.end('events'):,} events there are", f"{id!r}{of}", advice=advice)


def _around(history: _History, position: int, derived: Event | None) -> PastState:
    end = history.journal.end("events")
    with progress("reading", end) as advance:
        tables = _stretches(history.journal, "events", end, advance)
        return state_at(tables, position, changes, history.registry, derived)


def _rule(history: _History, rule: str, position: int) -> RuleFinding:
    """What a situation rule found around the event at a position: everything up to there is folded once more."""
    known = StateFold(history.registry.copy())
    with progress("reading", position) as advance:
        for events in _stretches(history.journal, "events", position, advance):
            for _ in known.fold(events, changes):
                pass
    stage = next(stage for stage in known.stages if isinstance(stage, SituationStage))
    return stage.find(rule, to_events(history.journal.read("events", position - 1, 1))[0])


def _stretches(
    journal: Journal, log: str, end: int, advance: Callable[[int], None] = lambda _: None
) -> Iterator[pa.Table]:
    for table in journal.row_ranges(log, 0, end, STRETCH):
        yield table
        advance(len(table))


@dataclass(frozen=True, slots=True)
class _Fates:
    """The fate of the event for every client."""

    delivered: dict[str, DeliveryStatus]
    other: DeliveryStatus

    def of(self, name: str) -> DeliveryStatus:
        return self.delivered.get(name, self.other)


def _fates(journal: Journal, event: Event) -> _Fates:
    decided = journal.end("deliveries")
    outcomes = _stretches(journal, "outcomes", journal.end("outcomes"))
    rows = journal.read("deliveries", event.position - 1, 1)
    return _Fates(delivery_statuses(event, rows, outcomes, decided), undelivered(event, decided))


def _everyone(around: PastState) -> list[str]:
    """The clients known then and those that a subscription names, then or later, in the order of their names."""
    there = around.scene.registry
    named = [name for subscription in there.subscriptions.values() for name in subscription.clients]
    later = [name for names in around.after.receivers.values() for name in names]
    return sorted({*there.clients, *named, *later})
