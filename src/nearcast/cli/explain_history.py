"""A history to explain events of: a journal, or files, folded in columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.cli.explain_pair import moment_of_text, pair_data, pair_finding_among_all, pair_lines
from nearcast.cli.explain_rule import rule_data, rule_lines
from nearcast.cli.explain_zone import zone_data, zone_finding, zone_lines
from nearcast.cli.output import DeadLetterLog, plain, print_json, progress, wrapped
from nearcast.errors import Fault, SetupError
from nearcast.explain.delivery_status import DeliveryStatus, delivery_statuses, undelivered
from nearcast.explain.past_state import PastState, rests_on_derived
from nearcast.explain.single_pass import several, unknown
from nearcast.explain.state_at import only_deriving, state_at, with_derived, without_subscriptions
from nearcast.journal.jetstream.nats_address import is_nats
from nearcast.journal.locations import Location, journal_at
from nearcast.journal.memory import MemoryJournal
from nearcast.journal.seam import Journal
from nearcast.journal.snapshot_log import REPOSITORY, base_position, base_table
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.cloudevents import DeadLetter
from nearcast.language.control_events import changes
from nearcast.language.definitions import files
from nearcast.language.event_files import as_tables, read_events
from nearcast.model.columns import to_events
from nearcast.model.event import Event
from nearcast.pipeline.base_snapshots import registry_until
from nearcast.pipeline.past_journal import opened_history
from nearcast.situations.stage import SituationStage
from nearcast.stages.fold import StateFold
from nearcast.state.derived import derived_of
from nearcast.state.registry import Registry

STRETCH = 100_000
"""Positions that are read at once."""


@dataclass(frozen=True, slots=True)
class FoldedHistory:
    """Events to explain, what was there before the first, and whether there are logs of deliveries and outcomes."""

    journal: Journal
    registry: Registry
    decided: bool

    def derived(self) -> Iterator[pa.Table]:
        """What was derived from the events: as the journal has it, else once more."""
        if self.decided:
            yield from _stretches(self.journal, "derived", self.journal.end("derived"))
            return
        known = StateFold(without_subscriptions(self.registry))
        for table in _stretches(self.journal, "events", self.journal.end("events")):
            yield from (derived_of(batch.events) for batch in known.fold(table, only_deriving(changes)))


@contextmanager
def folded_history(
    location: Location,
    archive: Path | None,
    definition_files: tuple[Path, ...],
    event_files: tuple[Path, ...],
    about: set[str] | None,
    heard: bool,
) -> Iterator[FoldedHistory]:
    """A journal and its archive, or the files where some are named; it is closed at the end. See `_from_files`."""
    if event_files:
        history = _from_files(definition_files, event_files, about, heard)
    else:
        history = _from_journal(location, archive)
    try:
        yield history
    finally:
        history.journal.close()


def _from_journal(location: Location, archive: Path | None) -> FoldedHistory:
    if archive is not None:
        return FoldedHistory(opened_history(location, archive), Registry(), True)
    history = _of_journal_alone(location)
    if not history.journal.trimmed("events"):
        return history
    # What was defined where its events begin; the newest events of entities come before the others.
    return replace(history, registry=registry_until(history.journal)[1])


def _of_journal_alone(location: Location) -> FoldedHistory:
    if is_nats(location):
        return FoldedHistory(journal_at(location, read_only=True), Registry(), True)
    path = Path(location)
    if not path.is_file():
        advice = "name another with --data or --journal, or files with --definitions and --events"
        raise SetupError(str(Fault("a journal", f"no file {path}", advice=advice)))
    return FoldedHistory(SqliteJournal(path), Registry(), True)


def _from_files(
    definition_files: tuple[Path, ...], event_files: tuple[Path, ...], about: set[str] | None, heard: bool
) -> FoldedHistory:
    """The events of files; of those that are not `about` some entities, if these are given, only when they were.

    `heard`: what cannot be taken of them was said already.
    """
    registry, journal, letters = Registry(), MemoryJournal(), DeadLetterLog()
    for change in files.load(definition_files).changes():
        registry.apply(change)
    with progress("reading") as advance:
        settings, on_dead = registry.settings, _unheard if heard else letters
        events = read_events(event_files, settings.channels, on_dead, None, settings.limits.name_length)
        for table in as_tables(events if about is None else (_bare(event, about) for event in events)):
            journal.append("events", table)
            advance(len(table))
    letters.summary()
    return FoldedHistory(journal, registry, False)


def _unheard(letter: DeadLetter) -> None:
    """Says nothing of an event that could not be taken."""


def _bare(event: Event, about: set[str]) -> Event:
    """An event, without what it tells if it is not about these entities: columns of all of it take the longest."""
    return event if event.control or event.entity in about else replace(event, attributes=(), payload=b"")


def _meant(history: FoldedHistory, id: str, source: str | None) -> tuple[int, Event | None]:
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
        if journal.trimmed("events") and found[0] <= base_position(journal):
            raise _before_base(journal, found[0])
        return found[0]
    if found:
        raise several(id, [journal.read("events", at - 1, 1)["source"][0].as_py() for at in found])
    raise unknown(id, source, journal.end("events"), journal.trimmed("events"))


def _before_base(journal: Journal, position: int) -> Fault:
    base = base_position(journal)
    came = f"position {position:,}: what was known then is no longer in the journal"
    return Fault(f"an event from position {base + 1:,} on", came, advice="give --archive DIR, where it was archived")


def state_around(history: FoldedHistory, id: str, source: str | None) -> PastState:
    """What was known as of the event of an id. Raises `Fault` where there is none, or several."""
    position, derived = _meant(history, id, source)
    end = history.journal.end("events")
    with progress("reading", end) as advance:
        tables = _stretches(history.journal, "events", end, advance)
        past = state_at(tables, position, changes, history.registry.copy(), derived)
    if not rests_on_derived(past):
        return past
    with progress("reading", position) as advance:
        tables = _stretches(history.journal, "events", position, advance)
        return with_derived(past, tables, changes, history.registry)


def print_rule(history: FoldedHistory, rule: str, id: str, source: str | None, as_json: bool) -> None:
    """Prints what a situation rule found around the event of an id."""
    position, _ = _meant(history, id, source)
    known = StateFold(without_subscriptions(history.registry))
    with progress("reading", position) as advance:
        for events in _stretches(history.journal, "events", position, advance):
            for _ in known.fold(events, only_deriving(changes)):
                pass
    stage = next(stage for stage in known.stages if isinstance(stage, SituationStage))
    found = stage.find(rule, to_events(history.journal.read("events", position - 1, 1))[0])
    print_json(rule_data(found)) if as_json else click.echo(wrapped(map(plain, rule_lines(found))))


def print_pair(
    history: FoldedHistory,
    relation: str,
    pair: tuple[str, str],
    position: int | None,
    moment: str | None,
    as_json: bool,
) -> None:
    """Prints why a relation holds between two entities or does not, after a position or at a time, else at the end."""
    until = position if moment is None else moment_of_text(moment)
    end = history.journal.end("events")
    found = pair_finding_among_all(
        lambda: _stretches(history.journal, "events", end), history.registry, relation, pair, until
    )
    print_json(pair_data(found)) if as_json else click.echo(wrapped(map(plain, pair_lines(found))))


def print_zones(
    history: FoldedHistory,
    layer: str,
    entity: str,
    zone: str | None,
    position: int | None,
    moment: str | None,
    as_json: bool,
) -> None:
    """Prints why an entity is in zones of a layer or not, after a position or at a time, else at the end."""
    until = position if moment is None else moment_of_text(moment)
    end = history.journal.end("events")
    found = zone_finding(
        lambda: _stretches(history.journal, "events", end), history.registry, layer, entity, zone, until
    )
    print_json(zone_data(found)) if as_json else click.echo(wrapped(map(plain, zone_lines(found))))


def _stretches(
    journal: Journal, log: str, end: int, advance: Callable[[int], None] = lambda _: None
) -> Iterator[pa.Table]:
    after = 0
    if log == "events" and journal.trimmed("events"):
        after, newest = base_table(journal, REPOSITORY)
        if newest is not None:
            yield newest.sort_by([("position", "ascending"), ("part", "ascending")])
    for table in journal.row_ranges(log, after, end, STRETCH):
        yield table
        advance(len(table))


def delivery_statuses_of(history: FoldedHistory, event: Event) -> Callable[[str], DeliveryStatus | None]:
    """What became of an event, by client; nothing where there are no logs of it."""
    if not history.decided:
        return lambda _: None
    journal = history.journal
    decided = journal.end("deliveries")
    outcomes = _stretches(journal, "outcomes", journal.end("outcomes"))
    rows = journal.read("deliveries", event.position - 1, 1)
    delivered, other = delivery_statuses(event, rows, outcomes, decided), undelivered(event, decided)
    return lambda name: delivered.get(name, other)
