"""`nearcast explain --zones`: what is read of a history for an entity, and how the finding is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from nearcast.cli.explain_pair import Tables, steps_about
from nearcast.explain.zone_explanation import ZoneFinding, ZoneStanding, explain_zones
from nearcast.filters.truth import Truth
from nearcast.language.cql2 import write
from nearcast.language.definitions.zone_documents import zone_rule_data
from nearcast.model.values import time_text
from nearcast.state.registry import Registry

_TRUTHS: Mapping[Truth, str] = {True: "TRUE", False: "FALSE", None: "UNKNOWN"}


def zone_finding(
    tables: Tables,
    registry: Registry,
    layer: str,
    entity: str,
    zone: str | None,
    until: int | datetime | None,
) -> ZoneFinding:
    """Why an entity is in zones of a layer or not, after the event at a position, or at the stream's time.

    `registry` is what was there before the events. Raises `Fault`.
    """
    return explain_zones(layer, entity, zone, registry, steps_about(tables, registry, (entity,), until))


def zone_lines(found: ZoneFinding) -> Iterator[str]:
    """A finding for people."""
    at = "" if found.time is None else f", the time {time_text(found.time)}"
    yield f"{found.entity} and the zones {found.rule.id}, after position {found.position:,}{at}"
    if found.reasons:
        yield f"  is in none of them: {'; '.join(found.reasons)}" if not found.standings else _not_in(found)
    for one in found.standings:
        yield from _standing(one, found)
    if found.uncounted:
        yield f"  its place is in {found.uncounted:,} more, which do not count (limit zones_at_once)"
    if found.unlooked:
        yield f"  whether its place is in {found.unlooked:,} more is UNKNOWN (limit zone_work)"
    if found.report is not None:
        place = "nowhere" if found.report.place is None else f"{found.report.place.x:g}, {found.report.place.y:g}"
        yield f"  newest report {found.report.id}, position {found.report.position:,}, at {place}"
        for atom, truth in found.conditions:
            yield f"    {_TRUTHS[truth]:7}  {write(atom)}"
    for position, told in found.told:
        reason = f", {told.reason}" if told.reason else ""
        zone = f" {told.zone.name}" if told.zone else ""
        yield f"  told at position {position:,}: {told.detect}{zone}{reason}"


def _not_in(found: ZoneFinding) -> str:
    names = ", ".join(one.zone for one in found.standings)
    return f"  is not in {names}: {'; '.join(found.reasons)}"


def _standing(one: ZoneStanding, found: ZoneFinding) -> Iterator[str]:
    if not one.holds:
        return
    since = "" if one.since is None else f" since {time_text(one.since)}"
    remark = f"; {one.remark}" if one.remark else ""
    lasting = ""
    if found.rule.lasting is not None and one.dwelt:
        lasting = f", and lasted {found.rule.lasting:g} s"
    elif one.due is not None:
        lasting = f"; it has lasted {found.rule.lasting:g} s at {time_text(one.due)}"
    yield f"  is in {one.zone}{since}{lasting}{remark}"


def zone_data(found: ZoneFinding) -> dict[str, Any]:
    """A finding as JSON-able data."""
    event = found.report
    return {
        "layer": zone_rule_data(found.rule),
        "count": found.zones,
        "position": found.position,
        "time": _time(found.time),
        "entity": found.entity,
        "report": None if event is None else {"id": event.id, "position": event.position, "time": _time(event.time)},
        "watched": found.watched,
        "conditions": [{"condition": write(atom), "truth": truth} for atom, truth in found.conditions],
        "silent_since": _time(found.silent_since),
        "zones": [_standing_data(one) for one in found.standings],
        "reasons": list(found.reasons),
        "uncounted": found.uncounted,
        "unknown": found.unlooked,
        "told": [
            {
                "position": position,
                "detect": told.detect,
                "zone": told.zone.name if told.zone else None,
                "reason": told.reason,
            }
            for position, told in found.told
        ],
    }


def _standing_data(one: ZoneStanding) -> dict[str, Any]:
    times = {"since": _time(one.since), "due": _time(one.due), "dwelt": one.dwelt}
    return {
        "zone": one.zone,
        "holds": one.holds,
        **times,
        "inside": one.inside,
        "beyond": one.beyond,
        "remark": one.remark,
    }


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else time_text(moment)
