"""`nearcast replay --compare`: what a system delivered beside what it would deliver."""

from __future__ import annotations

from typing import Any

import click

from nearcast.cli.engine_choice import Decided
from nearcast.cli.output import plain, pluralize, print_json
from nearcast.explain.decision_differences import DecisionDifferences, DeliveryDifference
from nearcast.journal.seam import Journal
from nearcast.pipeline.past_journal import PositionSpan

MOST_CLIENTS = 20
"""Clients in the table: those with the most differences."""

COLUMNS = ("delivered", "would be", "no longer", "new", "otherwise")


def compared(journal: Journal, span: PositionSpan, decided: Decided, differences: DecisionDifferences) -> Decided:
    """The same batches; how they differ from the journal's own logs is noted."""
    done = span.after
    for batch, deliveries in decided:
        if len(batch.events):
            through = int(batch.events.column("position")[-1].as_py())
            derived, delivered = (journal.read(log, done, through - done) for log in ("derived", "deliveries"))
            differences.note(batch.events, derived, delivered, deliveries)
            done = through
        yield batch, deliveries


def shown(differences: DecisionDifferences, span: PositionSpan, as_json: bool) -> None:
    """Prints the counts of each client, of derived events, and the first differences."""
    if as_json:
        print_json(_document(differences, span))
        return
    ordered = _ordered(differences)
    rows = [("client", *COLUMNS), *((client, *_counts(differences, client)) for client in ordered[:MOST_CLIENTS])]
    widths = [max(len(plain(row[column])) for row in rows) for column in range(len(COLUMNS) + 1)]
    for client, *counts in rows:
        cells = [count.rjust(width) for count, width in zip(counts, widths[1:], strict=True)]
        click.echo("  ".join([plain(client).ljust(widths[0]), *cells]))
    if len(ordered) > MOST_CLIENTS:
        click.echo(f"and {pluralize(len(ordered) - MOST_CLIENTS, 'more client', 'more clients')}")
    derived = ", ".join(f"{name} {differences.derived[name]:,}" for name in ("then", "now", "no longer", "new"))
    click.echo(f"derived events: {derived}")
    for one in differences.examples:
        click.echo(plain(_line(one)))


def _ordered(differences: DecisionDifferences) -> list[str]:
    """The clients, those with the most differences first."""

    def order(client: str) -> tuple[int, str]:
        counts = differences.clients[client]
        return -sum(counts[kind] for kind in COLUMNS[2:]), client

    return sorted(differences.clients, key=order)


def _counts(differences: DecisionDifferences, client: str) -> list[str]:
    return [f"{differences.clients[client][column]:,}" for column in COLUMNS]


def _line(one: DeliveryDifference) -> str:
    told = " → ".join(f"{by}, level {level}" for by, level in filter(None, (one.before, one.after)))
    key = one.key
    return f"{one.kind}: {key.client}, {key.event} ({one.type}, about {one.subject}) at {key.position:,}: {told}"


def _document(differences: DecisionDifferences, span: PositionSpan) -> dict[str, Any]:
    """All of it as JSON."""
    return {
        "from": span.after + 1,
        "to": span.through,
        "clients": [
            {"client": client, **{_name(one): differences.clients[client][one] for one in COLUMNS}}
            for client in _ordered(differences)
        ],
        "derived": {_name(one): differences.derived[one] for one in ("then", "now", "no longer", "new")},
        "examples": [_example(one) for one in differences.examples],
    }


def _example(one: DeliveryDifference) -> dict[str, Any]:
    sides = (
        (name, None if side is None else {"subscription": side[0], "level": side[1]})
        for name, side in (("delivered", one.before), ("would_be", one.after))
    )
    key = one.key
    found = {"client": key.client, "event": key.event, "type": one.type, "subject": one.subject}
    return {"kind": _name(one.kind), **found, "position": key.position, **dict(sides)}


def _name(words: str) -> str:
    return words.replace(" ", "_")
