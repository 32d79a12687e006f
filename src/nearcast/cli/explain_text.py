"""An explanation as lines for a person, and as data for machines."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import orjson

from nearcast.cli.output import plain, wrapped
from nearcast.explain.explanation import AtomFinding, Explanation, ModuleFinding, SubscriptionFinding
from nearcast.explain.why_not import observed
from nearcast.filters.relevance import ABSENT
from nearcast.language.cql2 import write
from nearcast.language.quantities import duration_text
from nearcast.model.context import WITHHELD
from nearcast.model.event import Event
from nearcast.model.situation import SITUATION_TYPE
from nearcast.model.values import moment_at

if TYPE_CHECKING:
    # It has columns, which take longer to load than a history of files to read.
    from nearcast.explain.delivery_status import DeliveryStatus

TRUTHS = {True: "TRUE", False: "FALSE", None: "UNKNOWN"}


def told_situation(event: Event) -> dict[str, Any] | None:
    """What a situation's event has as data; None for any other event."""
    if event.type != SITUATION_TYPE:
        return None
    data: dict[str, Any] = orjson.loads(event.payload)["data"]
    return data


def situation_lines(data: dict[str, Any]) -> Iterator[str]:
    """What a situation rested on when its event told of it."""
    ended = f", {data['reason']}" if data.get("reason") else ""
    place = f" in {data['place']}" if "place" in data else ""
    yield f"situation {data['id']}, {data['class']} by rule {data['situation']}{place}: {data['phase']}{ended}"
    yield f"  since {data['since']}, told of {data['moment']}"
    for one in data["evidence"]:
        if "situation" in one:
            yield f"  {one['condition']}: the situation {one['situation']}"
            continue
        if "count" in one:
            yield f"  {one['condition']}: {one['count']['counted']:,}, the newest {', '.join(one['count']['newest'])}"
            continue
        unit = unit_text(one.get("unit"))
        if "aggregate" in one:
            over = one["aggregate"]
            yield f"  {over['of']} is {over['value']:g}, of {over['readings']:,} from {over['from']} to {over['to']}"
        what = one["condition"] if one["condition"] == one["class"] else f"{one['condition']}, {one['class']}"
        yield f"  {what} {one['value']}{unit}, of {one['entity']}, {one['age']:g} s old, event {one['event']:,}"


def unit_text(unit: str | None) -> str:
    """A unit as it stands behind a value."""
    return "" if unit is None else f" {unit}"


def as_text(
    found: Explanation,
    reasons: list[str],
    status: DeliveryStatus | None,
    headed: bool = True,
    situation: dict[str, Any] | None = None,
) -> str:
    """Lines, a section for each subscription; `headed`: the event's own lines come first, and those of the
    `situation` that it tells of.
    """
    lines = list(_event(found)) if headed else []
    if headed and situation is not None:
        lines += situation_lines(situation)
    lines += ["", f"client {found.name}: {_answer(found, status)}"]
    lines += [f"  why not: {reason}" for reason in reasons]
    if found.client is not None:
        lines += _context(found)
        for subscription in found.subscriptions:
            lines += _subscription(subscription, subscription.subscription.id == found.chosen)
    lines += _delivery(status)
    return wrapped(map(plain, lines))


def _event(found: Explanation) -> Iterator[str]:
    event, newer = found.event, found.newer
    yield f"event {event.id} of {event.source}, type {event.type}, about {event.entity}, position {event.position:,}"

    if newer is not None and newer.moment is not None:
        came = f"one of {_moment(newer.moment)}, at position {newer.position:,}"
        yield f"  late: {came}, was known already; this one is delivered, and moves nothing"
        if found.fell_back:
            why = "its sender's clock fell back, or it was kept back for so long"
            yield f"  late by {timedelta(seconds=round(found.late_by.total_seconds()))}: {why}"


def _answer(found: Explanation, status: DeliveryStatus | None) -> str:
    if found.priority is None:
        return "not selected" + (", but a delivery was decided" if status and status.subscription else "")
    what = "withheld" if found.priority == WITHHELD else f"priority {found.priority}"
    note = ", but no delivery was decided" if status and status.outcome == "none" else ""
    return f"selected by {found.chosen}, level {found.level}, {what}{note}"


def _context(found: Explanation) -> Iterator[str]:
    role, task = found.role or "none", found.task or "none"
    yield f"  role {role}, task {task}"
    for module in found.modules:
        reading = _unknown(module) if module.reading is None else f"{module.reading:g}"
        yield f"  {module.name} {reading}: class {module.context_class}{_held(module)}"
    row = ", ".join(f"level {level} → {priority}" for level, priority in enumerate(found.row))
    yield f"  context class {found.context_class}: {row}"


def _unknown(module: ModuleFinding) -> str:
    if module.lapsed is None or module.valid is None:
        return "not known, counts as the best"
    ended = _moment(moment_at(module.lapsed + round(module.valid * 1_000_000)))
    read = f"the reading of {_moment(moment_at(module.lapsed))} was valid for {duration_text(module.valid)}"
    return f"unknown since {ended}, {read}; counts as the best"


def _held(module: ModuleFinding) -> str:
    """What earlier readings have to do with it."""
    if module.alone == module.context_class:
        return ""
    since = module.held.toward[:1] if module.held else ()
    beyond = f"beyond the margin since {_moment(moment_at(since[0]))} only" if since else "within the margin"
    return f", held: by itself it is class {module.alone}, {beyond}"


def _subscription(found: SubscriptionFinding, chosen: bool) -> Iterator[str]:
    level = "does not select" if found.level is None else f"level {found.level}"
    yield f"  subscription {found.subscription.id}: {level}{', the most urgent' if chosen else ''}"
    for atom in found.atoms:
        yield f"    {TRUTHS[atom.truth]:<7}  {_class(atom)}  {write(atom.atom)}  ({observed(atom)})"


def _class(atom: AtomFinding) -> str:
    return "left out" if atom.relevance == ABSENT else f"class {atom.relevance} "


def _delivery(status: DeliveryStatus | None) -> Iterator[str]:
    if status is None:
        return
    match status.outcome:
        case "undecided":
            yield f"  delivery: not decided yet (decided through position {status.decided_through:,})"
        case "none":
            yield "  delivery: none"
        case "waiting":
            accepted = _at("accepted", status.accepted)
            yield f"  delivery: decided{accepted}; it waits, or was sent and is not acknowledged"
        case outcome:
            times = "".join(_at(name, getattr(status, name)) for name in ("accepted", "queued", "sent"))
            attempts = f", {status.attempts} attempt{'' if status.attempts == 1 else 's'}"
            settled = _at(outcome, status.settled)
            first = " by the access server first" if status.early else ""
            yield f"  delivery: decided{first}{times}{attempts}, at last priority {status.priority}{settled}"


def _at(what: str, moment: datetime | None) -> str:
    return f", {what} {_moment(moment)}" if moment else ""


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def as_data(found: Explanation, reasons: list[str], status: DeliveryStatus | None) -> dict[str, Any]:
    """The same as one JSON object; `delivery` is null where there is no log of deliveries."""
    event = found.event
    return {
        "event": {name: getattr(event, name) for name in ("id", "source", "type", "entity", "position")},
        "late_behind": found.newer.position if found.newer else None,
        "late_by": found.late_by.total_seconds(),
        "clock_fell_back": found.fell_back,
        "client": found.name,
        "known": found.client is not None,
        "role": found.role,
        "task": found.task,
        "modules": [
            {"name": m.name, "reading": m.reading, "class": m.context_class, "alone": m.alone}
            | ({} if m.lapsed is None else {"lapsed": _moment(moment_at(m.lapsed))})
            for m in found.modules
        ],
        "context_class": found.context_class,
        "row": found.row,
        "subscription": found.chosen,
        "level": found.level,
        "priority": found.priority,
        "why_not": reasons,
        "subscriptions": [_subscription_data(one) for one in found.subscriptions],
        "delivery": None if status is None else {name: getattr(status, name) for name in type(status).__slots__},
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
        "undecided": found.undecided or None,
        "blocked": found.blocked,
    }
