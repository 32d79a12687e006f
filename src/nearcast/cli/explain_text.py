"""An explanation as lines for a person, and as data for machines."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from nearcast.cli.explain_situation import situation_lines
from nearcast.cli.output import fitted, plain
from nearcast.decision.explain import AtomFinding, Explanation, SubscriptionFinding
from nearcast.decision.fate import Fate
from nearcast.decision.relevance import ABSENT
from nearcast.decision.why_not import observed
from nearcast.language.cql2 import write
from nearcast.model.event import Event
from nearcast.model.matrices import WITHHELD

TRUTHS = {True: "TRUE", False: "FALSE", None: "UNKNOWN"}


def as_text(
    found: Explanation,
    reasons: list[str],
    fate: Fate | None,
    headed: bool = True,
    situation: dict[str, Any] | None = None,
) -> str:
    """Lines, a section for each subscription; `headed`: the event's own lines come first, and those of the
    `situation` that it tells of.
    """
    lines = list(_event(found.event)) if headed else []
    if headed and situation is not None:
        lines += situation_lines(situation)
    lines += ["", f"client {found.name}: {_answer(found, fate)}"]
    lines += [f"  why not: {reason}" for reason in reasons]
    if found.client is not None:
        lines += _context(found)
        for subscription in found.subscriptions:
            lines += _subscription(subscription, subscription.subscription.id == found.chosen)
    lines += _fate(fate)
    return fitted(map(plain, lines))


def _event(event: Event) -> Iterator[str]:
    yield f"event {event.id} of {event.source}, type {event.type}, about {event.entity}, position {event.position:,}"


def _answer(found: Explanation, fate: Fate | None) -> str:
    if found.priority is None:
        return "not selected" + (", but a delivery was decided" if fate and fate.subscription else "")
    what = "withheld" if found.priority == WITHHELD else f"priority {found.priority}"
    note = ", but no delivery was decided" if fate and fate.outcome == "none" else ""
    return f"selected by {found.chosen}, level {found.level}, {what}{note}"


def _context(found: Explanation) -> Iterator[str]:
    role, task = found.role or "none", found.task or "none"
    yield f"  role {role}, task {task}"
    for module in found.modules:
        reading = "not known, counts as the best" if module.reading is None else f"{module.reading:g}"
        yield f"  {module.name} {reading}: class {module.context_class}"
    row = ", ".join(f"level {level} → {priority}" for level, priority in enumerate(found.row))
    yield f"  context class {found.context_class}: {row}"


def _subscription(found: SubscriptionFinding, chosen: bool) -> Iterator[str]:
    level = "does not select" if found.level is None else f"level {found.level}"
    yield f"  subscription {found.subscription.id}: {level}{', the most urgent' if chosen else ''}"
    for atom in found.atoms:
        yield f"    {TRUTHS[atom.truth]:<7}  {_class(atom)}  {write(atom.atom)}  ({observed(atom)})"


def _class(atom: AtomFinding) -> str:
    return "left out" if atom.relevance == ABSENT else f"class {atom.relevance} "


def _fate(fate: Fate | None) -> Iterator[str]:
    if fate is None:
        return
    match fate.outcome:
        case "undecided":
            yield f"  delivery: not decided yet (decided through position {fate.decided_through:,})"
        case "none":
            yield "  delivery: none"
        case "waiting":
            yield f"  delivery: decided{_at('accepted', fate.accepted)}; it waits, or was sent and is not acknowledged"
        case outcome:
            times = "".join(_at(name, getattr(fate, name)) for name in ("accepted", "queued", "sent"))
            attempts = f", {fate.attempts} attempt{'' if fate.attempts == 1 else 's'}"
            yield f"  delivery: decided{times}{attempts}, at last priority {fate.priority}{_at(outcome, fate.settled)}"


def _at(what: str, moment: datetime | None) -> str:
    return f", {what} {_moment(moment)}" if moment else ""


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def as_data(found: Explanation, reasons: list[str], fate: Fate | None) -> dict[str, Any]:
    """The same as one JSON object; `fate` is null where there is no log of deliveries."""
    event = found.event
    return {
        "event": {name: getattr(event, name) for name in ("id", "source", "type", "entity", "position")},
        "client": found.name,
        "known": found.client is not None,
        "role": found.role,
        "task": found.task,
        "modules": [{"name": m.name, "reading": m.reading, "class": m.context_class} for m in found.modules],
        "context_class": found.context_class,
        "row": found.row,
        "subscription": found.chosen,
        "level": found.level,
        "priority": found.priority,
        "why_not": reasons,
        "subscriptions": [_subscription_data(one) for one in found.subscriptions],
        "delivery": None if fate is None else {name: getattr(fate, name) for name in Fate.__slots__},
    }


def _subscription_data(found: SubscriptionFinding) -> dict[str, Any]:
    return {
        "id": found.subscription.id,
        "by_role": found.by_role,
        "level": found.level,
        "atoms": [_atom_data(atom) for atom in found.atoms],
    }


def _atom_data(found: AtomFinding) -> dict[str, Any]:
    return {
        "atom": write(found.atom),
        "class": found.relevance,
        "truth": found.truth,
        "values": found.values,
        "read": {one.name: one.values for one in found.read} or None,
        "unknown": found.unknown or None,
        "blocked": found.blocked,
    }
