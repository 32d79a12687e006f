"""Situations explained: what one rested on, and why a rule concluded none, as lines and as data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from nearcast.decision.infer.finding import ConditionFinding, ReadingFinding, RuleFinding
from nearcast.decision.infer.tell import moment_of
from nearcast.language.cql2 import write
from nearcast.model.event import Event
from nearcast.model.filter import Not
from nearcast.model.place import place_data
from nearcast.model.situation import SITUATION_TYPE
from nearcast.model.values import time_text

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
        unit = _unit(one.get("unit"))
        what = one["condition"] if one["condition"] == one["class"] else f"{one['condition']}, {one['class']}"
        yield f"  {what} {one['value']}{unit}, of {one['entity']}, {one['age']:g} s old, event {one['event']:,}"


def rule_lines(found: RuleFinding) -> Iterator[str]:
    """Every condition of a rule around an event, and what was missing."""
    reach = f"in {found.rule.area}" if found.rule.area else f"within {found.rule.widest:g} m of {found.centre.entity}"
    there = f"; there is {found.situation}" if found.situation else "; there is no situation of it"
    yield f"rule {found.rule.id}, {reach}: {TRUTHS[found.truth]}{there}"
    if found.refuted:
        yield f"  refuted by the necessary rule {found.refuted}"
    for one in found.unusable:
        yield f"  no reading: {one.name} {one.value!r}{_unit(one.unit)} of this event: {one.why}"
    yield from _condition_lines(found.conditions)
    for id, conditions in found.necessary:
        yield f"  necessary, by rule {id}:"
        yield from _condition_lines(conditions)


def _condition_lines(conditions: Iterable[ConditionFinding]) -> Iterator[str]:
    for one in conditions:
        yield f"    {TRUTHS[one.truth]:<7}  {_written(one)}  ({_observed(one)})"


def _written(found: ConditionFinding) -> str:
    return write(Not(found.atom) if found.negated else found.atom)


def _observed(found: ConditionFinding) -> str:
    if found.missing:
        return found.missing
    parts = [f"the situation {id}" for id in found.situations] + [_reading(one) for one in found.readings]
    return "; ".join(parts) or "so say the rules for it"


def _reading(found: ReadingFinding) -> str:
    away = "" if found.metres is None else f", {found.metres:,.1f} m away"
    reading = found.reading
    return f"{reading.name} {reading.value}{_unit(found.unit)} of {reading.entity}, {found.age:g} s old{away}"


def _unit(unit: str | None) -> str:
    return "" if unit is None else f" {unit}"


def rule_data(found: RuleFinding) -> dict[str, Any]:
    """The same as one JSON object."""
    return {
        "rule": found.rule.id,
        "entity": found.centre.entity,
        "position": None if found.centre.place is None else place_data(found.centre.place),
        "truth": found.truth,
        "refuted": found.refuted or None,
        "situation": found.situation,
        "unusable": [
            {"class": one.name, "value": one.value, "unit": one.unit, "reason": one.why} for one in found.unusable
        ],
        "conditions": [_condition_data(one) for one in found.conditions],
        "necessary": {id: [_condition_data(one) for one in conditions] for id, conditions in found.necessary},
    }


def _condition_data(found: ConditionFinding) -> dict[str, Any]:
    return {
        "condition": _written(found),
        "truth": found.truth,
        "readings": [
            {
                "class": one.reading.name,
                "value": one.reading.value,
                "unit": one.unit,
                "entity": one.reading.entity,
                "time": time_text(moment_of(one.reading.moment)),
                "age": one.age,
                "metres": one.metres,
                "event": one.reading.position,
            }
            for one in found.readings
        ],
        "situations": list(found.situations),
        "missing": found.missing or None,
    }
