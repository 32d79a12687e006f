"""`nearcast explain EVENT`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nearcast.cli.explain_text import as_data, as_text, told_situation
from nearcast.cli.options import DATA, INPUT_FILE, journal_of, named_place, place_option
from nearcast.cli.output import DeadLetterLog, print_json, progress
from nearcast.explain.explanation import explain
from nearcast.explain.past_state import PastState
from nearcast.explain.single_pass import SinglePass
from nearcast.explain.why_not import why_not
from nearcast.journal.locations import Location
from nearcast.language.control_events import changes
from nearcast.language.cql2 import write
from nearcast.language.definitions import files
from nearcast.language.event_files import read_events
from nearcast.state.registry import Registry

if TYPE_CHECKING:
    from nearcast.explain.delivery_status import DeliveryStatus

    StatusOf = Callable[[str], DeliveryStatus | None]

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("explain")
@click.argument("event_id", metavar="[EVENT]", required=False)
@click.option("--client", help="The client it is about; else every client known then, or named by a subscription.")
@click.option("--source", help="The event's source, where several events have the id.")
@place_option(f"A system, {DATA} unless given")
@click.option(
    "--archive",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Its archive, for what the journal has let go of.",
)
@click.option("--definitions", "definition_files", multiple=True, type=FILE, help="With --events: as in replay.")
@click.option("--events", "event_files", multiple=True, type=INPUT_FILE, help="Files of events instead of a journal.")
@click.option("--situation", "rule", help="Explain this situation rule around EVENT, instead of clients.")
@click.option("--relation", help="Explain this relation between --a and --b, instead of an event.")
@click.option("--a", "side_a", help="An entity; with --relation.")
@click.option("--b", "side_b", help="The other one.")
@click.option("--zones", "layer", help="Explain where --entity is among the zones of this layer, instead of an event.")
@click.option("--entity", help="An entity; with --zones.")
@click.option("--zone", help="With --zones: this zone alone.")
@click.option(
    "--at", "moment", help="With --relation or --zones: at this time, as in 2020-01-31T12:00:00Z; else at the end."
)
@click.option("--position", type=click.IntRange(min=1), help="With these: after the event at this position.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per client.")
def command(
    event_id: str | None,
    client: str | None,
    source: str | None,
    places: tuple[Location, ...],
    archive: Path | None,
    definition_files: tuple[Path, ...],
    event_files: tuple[Path, ...],
    rule: str | None,
    relation: str | None,
    side_a: str | None,
    side_b: str | None,
    layer: str | None,
    entity: str | None,
    zone: str | None,
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

    With --zones and --entity: in which zones of a layer an entity is and since when, or why it is in none, or not in
    --zone.
    """
    if sum(one is not None for one in (event_id, relation, layer)) != 1:
        raise click.UsageError("give EVENT, or --relation with --a and --b, or --zones with --entity")
    if (layer is None) != (entity is None) or (zone is not None and layer is None):
        raise click.UsageError("give --zones with --entity, and --zone with them or not")
    if relation is not None and (side_a is None or side_b is None or (moment is not None and position is not None)):
        raise click.UsageError("give --relation with --a and --b, and one of --at and --position or none")
    if bool(definition_files) != bool(event_files) or (event_files and (places or archive)):
        raise click.UsageError("give --definitions and --events together, or a journal alone")
    place = named_place(places) or DATA
    if event_id is not None and rule is None and _can_be_read_again(event_files):
        past = _single_pass(event_id, source, definition_files, event_files)
        if past is not None:
            _print(past, client, lambda _: None, as_json)
            return
    # Columns take longer to load than a history of files to read.
    from nearcast.cli import explain_history as folded

    about = None if side_a is None or side_b is None else {side_a, side_b}
    about = about if entity is None else {entity}
    heard = event_id is not None and rule is None and _can_be_read_again(event_files)
    with folded.folded_history(journal_of(place), archive, definition_files, event_files, about, heard) as history:
        if relation is not None and side_a is not None and side_b is not None:
            folded.print_pair(history, relation, (side_a, side_b), position, moment, as_json)
        elif layer is not None and entity is not None:
            folded.print_zones(history, layer, entity, zone, position, moment, as_json)
        elif rule is not None:
            folded.print_rule(history, rule, str(event_id), source, as_json)
        else:
            past = folded.state_around(history, str(event_id), source)
            _print(past, client, folded.delivery_statuses_of(history, past.scene.event), as_json)


def _print(past: PastState, client: str | None, status_of: StatusOf, as_json: bool) -> None:
    """Prints what the event was to one client, or to everyone."""
    told = told_situation(past.scene.event)
    situation = {} if told is None else {"situation": told}
    for number, name in enumerate([client] if client is not None else _everyone(past)):
        found = explain(past.scene, name)
        reasons = why_not(found, past, write)
        if as_json:
            print_json(as_data(found, reasons, status_of(name)) | situation)
        else:
            click.echo(as_text(found, reasons, status_of(name), headed=number == 0, situation=told))


def _can_be_read_again(event_files: tuple[Path, ...]) -> bool:
    """Whether there are files, and none of them is standard input or a pipe."""
    return bool(event_files) and all(path.is_file() for path in event_files)


def _single_pass(
    id: str, source: str | None, definition_files: tuple[Path, ...], event_files: tuple[Path, ...]
) -> PastState | None:
    """The state around an event of files, read once; None where they are to be folded. Raises `Fault`."""
    registry, letters = Registry(), DeadLetterLog()
    for change in files.load(definition_files).changes():
        registry.apply(change)
    settings = registry.settings
    found = SinglePass(id, source, registry, changes)
    with progress("reading") as advance:
        for event in read_events(event_files, settings.channels, letters, None, settings.limits.name_length):
            found.follow(event)
            advance(1)
    letters.summary()
    return found.meant()


def _everyone(around: PastState) -> list[str]:
    """The clients known then and those that a subscription names, then or later, in the order of their names."""
    there = around.scene.registry
    named = [name for subscription in there.subscriptions.values() for name in subscription.clients]
    later = [name for names in around.after.receivers.values() for name in names]
    return sorted({*there.clients, *named, *later})
