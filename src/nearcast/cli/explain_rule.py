"""What a situation rule found around an event, as lines for a person and as data for machines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from nearcast.cli.explain_text import TRUTHS, unit_text
from nearcast.language.cql2 import write
from nearcast.model.event import place_data
from nearcast.model.filter import Not
from nearcast.model.values import moment_at, time_text
from nearcast.situations.diagnosis import ConditionFinding, ReadingFinding, RuleFinding, area_text
from nearcast.situations.events import aggregate_data, count_data
from nearcast.state.windows import AggregateFinding


def rule_lines(found: RuleFinding) -> Iterator[str]:
    """Every condition of a rule around an event, and what was missing."""
    inside = found.rule.area_at(found.centre) is not None
    reach = f"{'in ' if inside else ''}{area_text(found.rule, found.centre)}"
    there = f"; there is {found.situation}" if found.situation else "; there is no situation of it"
    yield f"rule {found.rule.id}, {reach}: {TRUTHS[found.truth]}{there}"
    if found.begins is not None:
        yield f"  one begins {_at(found.begins)}, if the rule holds on until then"
    if found.ends is not None:
        yield f"  it ends {_at(found.ends)}, unless the rule holds again until then"
    if found.refuted:
        yield f"  refuted by the necessary rule {found.refuted}"
    for one in found.unusable:
        yield f"  no reading: {one.name} {one.value!r}{unit_text(one.unit)} of this event: {one.why}"
    yield from _condition_lines(found.conditions)
    for id, conditions in found.necessary:
        yield f"  necessary, by rule {id}:"
        yield from _condition_lines(conditions)


def _at(moment: int) -> str:
    return time_text(moment_at(moment))


def _condition_lines(conditions: Iterable[ConditionFinding]) -> Iterator[str]:
    for one in conditions:
        yield f"    {TRUTHS[one.truth]:<7}  {_written(one)}  ({_observed(one)})"


def _written(found: ConditionFinding, held: bool = False) -> str:
    atom = found.held if held and found.held is not None else found.atom
    return write(Not(atom) if found.negated else atom)


def _observed(found: ConditionFinding) -> str:
    if found.missing:
        return found.missing
    parts = [f"holds on while {_written(found, held=True)}"] if found.held is not None else []
    parts += [f"the situation {id}" for id in found.situations]
    if found.count is not None:
        newest = f", the newest of them {', '.join(found.count.newest)}" if found.count.newest else ""
        parts.append(f"{found.count.counted:,} count{newest}")
    parts += [aggregate_text(entity, one) for entity, one in found.aggregates]
    parts += [_reading(one) for one in found.readings]
    return "; ".join(parts) or "so say the rules for it"


def aggregate_text(entity: str, found: AggregateFinding) -> str:
    """An aggregate of an entity: its value, and of how many readings, from when to when, it is; or why it has none."""
    if found.value is None:
        return f"{found.text} of {entity}: {found.why}"
    readings = f"{found.readings:,} reading{'' if found.readings == 1 else 's'}"
    return f"{found.text} is {found.value:g}, of {readings} of {entity} from {_at(found.first)} to {_at(found.last)}"


def _reading(found: ReadingFinding) -> str:
    away = "" if found.metres is None else f", {found.metres:,.1f} m away"
    reading = found.reading
    return f"{reading.name} {reading.value}{unit_text(found.unit)} of {reading.entity}, {found.age:g} s old{away}"


def rule_data(found: RuleFinding) -> dict[str, Any]:
    """The same as one JSON object."""
    return {
        "rule": found.rule.id,
        "entity": found.centre.entity,
        "position": None if found.centre.place is None else place_data(found.centre.place),
        "truth": found.truth,
        "refuted": found.refuted or None,
        "situation": found.situation,
        "begins": None if found.begins is None else _at(found.begins),
        "ends": None if found.ends is None else _at(found.ends),
        "unusable": [
            {"class": one.name, "value": one.value, "unit": one.unit, "reason": one.why} for one in found.unusable
        ],
        "conditions": [_condition_data(one) for one in found.conditions],
        "necessary": {id: [_condition_data(one) for one in conditions] for id, conditions in found.necessary},
    }


def _condition_data(found: ConditionFinding) -> dict[str, Any]:
    return {
        "condition": _written(found),
        "held": None if found.held is None else _written(found, held=True),
        "truth": found.truth,
        "readings": [
            {
                "class": one.reading.name,
                "value": one.reading.value,
                "unit": one.unit,
                "entity": one.reading.entity,
                "time": time_text(moment_at(one.reading.moment)),
                "age": one.age,
                "metres": one.metres,
                "event": one.reading.position,
            }
            for one in found.readings
        ],
        "aggregates": [
            {**aggregate_data(one), "entity": entity, "why": one.why or None} for entity, one in found.aggregates
        ],
        "count": None if found.count is None else count_data(found.count),
        "situations": list(found.situations),
        "missing": found.missing or None,
    }
