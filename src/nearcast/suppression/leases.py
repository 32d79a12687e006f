"""Leases: a subject's guards in force, lent to its publisher, who need not send what lies in all (semantics §7).

As long as a lease lasts its publisher keeps the newest report and sends none; whoever rests on where the subject is
calls for it first. Guards travel as JSON; what a guard of another kind permits is not lent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nearcast.model.event import Event, Place
from nearcast.suppression.strategies.dimensions import DIMENSIONS
from nearcast.suppression.strategies.guards import Anywhere, Guard, Line, Nowhere, Ring, Same, TakenReport
from nearcast.suppression.strategies.measure import UNREADABLE, value_of


@dataclass(frozen=True, slots=True)
class LeasedGuard:
    """A guard, and which attribute of the subject's events it is about; '': where they are."""

    reads: str
    guard: Guard

    def permits(self, event: Event) -> bool:
        """Whether the event need not be sent for the relation that the guard is of."""
        value, moment = value_of(self.reads, event), event.time
        return (
            value is not UNREADABLE
            and moment is not None
            and self.guard.permits(TakenReport(0, value, _seconds(moment)))
        )


def _seconds(moment: datetime) -> float:
    return moment.timestamp()


@dataclass(frozen=True, slots=True)
class Lease:
    """What the publisher of a subject need not send: events of these types, later than `after`, in all the guards."""

    id: int
    subject: str
    types: frozenset[str]
    after: datetime
    guards: tuple[LeasedGuard, ...]

    def permits(self, event: Event) -> bool:
        """Whether an event is of those; whether it is the newest is not looked at."""
        return (
            event.subject is not None
            and event.entity == self.subject
            and event.type in self.types
            and event.time is not None
            and event.time > self.after
            and all(one.permits(event) for one in self.guards)
        )


def lease_json(lease: Lease) -> dict[str, Any] | None:
    """A lease as JSON; None where it has a guard that does not travel."""
    guards = [_guard_json(one.guard) for one in lease.guards]
    if any(one is None for one in guards):
        return None
    return {
        "id": lease.id,
        "subject": lease.subject,
        "types": sorted(lease.types),
        "after": lease.after.isoformat(),
        "guards": [{"reads": one.reads, **(guard or {})} for one, guard in zip(lease.guards, guards, strict=True)],
    }


def lease_of(data: Mapping[str, Any]) -> Lease:
    """The lease of its JSON. Raises KeyError, ValueError, TypeError where it is none."""
    return Lease(
        data["id"],
        data["subject"],
        frozenset(data["types"]),
        datetime.fromisoformat(data["after"]),
        tuple(LeasedGuard(one["reads"], _guard_of(one)) for one in data["guards"]),
    )


def _guard_json(guard: Guard) -> dict[str, Any] | None:
    match guard:
        case Anywhere():
            return {"guard": "anywhere"}
        case Nowhere():
            return {"guard": "nowhere"}
        case Same(value) if _travels(value):
            return {"guard": "same", "value": _value_json(value)}
        case Ring(dimension, centre, radius, quiet, trust) if _travels(centre.value) and dimension.name in DIMENSIONS:
            about = {"dimension": dimension.name, "value": _value_json(centre.value), "time": centre.time}
            return {"guard": "ring", **about, "radius": _bounded(radius), "quiet": _bounded(quiet), "trust": trust}
        case Line(dimension, centre, start, ahead, reach) if _travels(centre.value) and dimension.name in DIMENSIONS:
            about = {"dimension": dimension.name, "value": _value_json(centre.value), "time": centre.time}
            return {"guard": "line", **about, "start": start, "ahead": ahead, "reach": _bounded(reach)}
    return None


def _guard_of(data: Mapping[str, Any]) -> Guard:
    match data["guard"]:
        case "anywhere":
            return Anywhere()
        case "same":
            return Same(_value_of(data["value"]))
        case "ring":
            centre = TakenReport(0, _value_of(data["value"]), data["time"])
            radius, quiet = _unbounded(data["radius"]), _unbounded(data["quiet"])
            return Ring(DIMENSIONS[data["dimension"]], centre, radius, quiet, data["trust"])
        case "line":
            centre = TakenReport(0, _value_of(data["value"]), data["time"])
            start, ahead = tuple(data["start"]), tuple(data["ahead"])
            return Line(DIMENSIONS[data["dimension"]], centre, start, ahead, _unbounded(data["reach"]))
    # Also of a kind that this library does not know yet.
    return Nowhere()


def _travels(value: Any) -> bool:
    """Whether JSON holds a value exactly."""
    if value is None or isinstance(value, Place):
        return True
    return (type(value) is float and math.isfinite(value)) or (type(value) is int and abs(value) < 1 << 63)


def _value_json(value: Any) -> Any:
    return [value.coordinates, value.x, value.y, value.z] if isinstance(value, Place) else value


def _value_of(data: Any) -> Any:
    return Place(*data) if isinstance(data, list) else data


def _bounded(number: float) -> float | None:
    """JSON has no number without bounds."""
    return number if number < math.inf else None


def _unbounded(number: float | None) -> float:
    return math.inf if number is None else number
