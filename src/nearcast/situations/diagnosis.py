"""Why there is a situation around a place, or not: every condition of a rule, what it rests on, or what was missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from nearcast.filters.truth import Truth
from nearcast.model.expression import Call
from nearcast.model.filter import Atom
from nearcast.situations.counts.entity_counts import CountFinding
from nearcast.situations.evaluation import RuleEvaluation
from nearcast.situations.extract import UnusableReading
from nearcast.situations.instances import SituationScene
from nearcast.situations.readings import ContextReading, SituationCentre, separation
from nearcast.situations.rule_plan import SECOND, ConditionLeaf, PlannedRule, RulePlan, leaves, satisfied, unit_of
from nearcast.situations.zone_areas import OUTSIDE, zone_name
from nearcast.state.windows import AggregateFinding

SHOWN = 3
"""Of many readings those that decide, and the newest, are kept."""


@dataclass(frozen=True, slots=True)
class ReadingFinding:
    """A reading as it counted: how old, in seconds, and how far from the middle, in metres (None: not known).

    `unit` is that of its class, if it is a number and the class has one.
    """

    reading: ContextReading
    age: float
    metres: float | None
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class ConditionFinding:
    """A condition: its truth, the readings or situations that made it so, and why it is unknown, if it is.

    `aggregates` are those over a time, by the entities around whose readings they are of. `held`: the condition as
    what is there already has it, by its margin. `count`: how many entities there are, where it counts them.
    """

    atom: Atom
    negated: bool
    truth: Truth
    readings: tuple[ReadingFinding, ...] = ()
    situations: tuple[str, ...] = ()
    missing: str = ""
    aggregates: tuple[tuple[str, AggregateFinding], ...] = ()
    held: Atom | None = None
    count: CountFinding | None = None


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """A rule around a centre: its truth, the necessary rule that refutes it, the situation of it that is there.

    `unusable`: what the event itself has for readings that are none. `begins`: when a situation begins, if the rule
    holds on; `ends`: when the one that is there ends, unless it holds again; both in microseconds since 1970.
    """

    rule: PlannedRule
    centre: SituationCentre
    truth: Truth
    refuted: str
    situation: str | None
    conditions: tuple[ConditionFinding, ...]
    necessary: tuple[tuple[str, tuple[ConditionFinding, ...]], ...] = ()
    unusable: tuple[UnusableReading, ...] = ()
    begins: int | None = None
    ends: int | None = None


def find(
    scene: SituationScene,
    rule: PlannedRule,
    centre: SituationCentre,
    now: int,
    unusable: Iterable[UnusableReading] = (),
    uncounted: Mapping[str, str] = MappingProxyType({}),
) -> RuleFinding:
    """What a rule finds around a centre, where an event is that has these for readings that are none. `uncounted`: why
    it is not decided whether the event counts, by what is counted.
    """
    view = RuleEvaluation(scene, centre, now)
    there = scene.around((rule,), centre, rule, rule.widest)
    held = any(one.ends is None for one in there)
    truth, refuted = view.verdict(rule, held)
    return RuleFinding(
        rule,
        centre,
        truth,
        refuted,
        next((one.id for one in there if one.begun), None),
        tuple(_conditions(scene, rule, view, centre, now, held, uncounted)),
        tuple((one.id, tuple(_conditions(scene, one, view, centre, now, held, uncounted))) for one in rule.necessary),
        tuple(unusable),
        next((one.begins for one in there if not one.begun), None),
        next((one.ends for one in there if one.begun), None),
    )


def area_text(rule: PlannedRule, centre: SituationCentre) -> str:
    """The place in which a rule looks around a centre, or how far."""
    area = rule.area_at(centre)
    if rule.zones is None or area is None:
        return area or f"within {rule.widest:g} m of {centre.entity}"
    layer, zone = zone_name(rule.zones if area == OUTSIDE else area)
    return f"zone {zone} of {layer}" if zone else f"a zone of {layer}: {centre.entity} is in none"


def _conditions(
    scene: SituationScene,
    rule: PlannedRule,
    view: RuleEvaluation,
    centre: SituationCentre,
    now: int,
    held: bool,
    uncounted: Mapping[str, str],
) -> Iterator[ConditionFinding]:
    for plain, leaf in zip(leaves(rule.tree), leaves(rule.held if held else rule.tree), strict=True):
        truth = view.truth(leaf, rule)
        read = sorted((one for name in leaf.names for one in view.readings(name, rule)), key=_age)
        # Those that make it hold come first: they are what it rests on.
        read.sort(key=lambda one: not _makes_hold(leaf, one))
        found = tuple(_reading(one, centre, now, scene) for one in read[:SHOWN])
        situations: tuple[str, ...] = ()
        if leaf.situation is not None:
            below = scene.plan.concluding[leaf.situation]
            around = scene.around(below, centre, rule, rule.reach[leaf.names[0]])
            situations = tuple(one.id for one in around if one.begun)
        missing = _missing(scene, leaf, rule, view, centre, now) if truth is None else ""
        if leaf.counted is not None and missing and leaf.counted.name in uncounted:
            missing += f"; {centre.entity}: {uncounted[leaf.counted.name]}"
        aggregates = tuple(_over_time(leaf, rule, view))
        wider = None if leaf.atom == plain.atom else leaf.atom
        count = None if leaf.counted is None else view.count(leaf.counted, rule)
        yield ConditionFinding(plain.atom, leaf.negated, truth, found, situations, missing, aggregates, wider, count)


def _over_time(leaf: ConditionLeaf, rule: PlannedRule, view: RuleEvaluation) -> Iterator[tuple[str, AggregateFinding]]:
    """The aggregates of a condition, of those entities around that reported last."""
    for aggregate in leaf.aggregates:
        for one in sorted(view.readings(aggregate.name, rule), key=_age)[:SHOWN]:
            yield one.entity, view.over_time(one, aggregate, rule)


def _makes_hold(leaf: ConditionLeaf, reading: ContextReading) -> bool:
    return isinstance(leaf.atom.name, Call) or satisfied(leaf, reading.value)


def _age(reading: ContextReading) -> tuple[int, str]:
    return -reading.moment, reading.entity


def _reading(reading: ContextReading, centre: SituationCentre, now: int, scene: SituationScene) -> ReadingFinding:
    measured = isinstance(reading.value, (int, float)) and not isinstance(reading.value, bool)
    unit = unit_of(scene.plan.ontology, reading.name) if measured else None
    return ReadingFinding(reading, max(0, now - reading.moment) / SECOND, separation(centre, reading), unit)


def _missing(
    scene: SituationScene,
    leaf: ConditionLeaf,
    rule: PlannedRule,
    view: RuleEvaluation,
    centre: SituationCentre,
    now: int,
) -> str:
    """Why a condition is unknown."""
    if leaf.situation is not None:
        if not scene.plan.concluding[leaf.situation]:
            return f"no rule concludes {leaf.situation}, and no reading tells of it"
        return (
            f"the rules for {leaf.situation} are unknown themselves: {_unknown_rules(leaf.situation, scene.plan, view)}"
        )
    if (limited := view.limited.get((rule.id, leaf.number))) is not None:
        return limited
    if leaf.counted is not None:
        found_ = view.count(leaf.counted, rule)
        unknown = f"of {found_.unknown:,} more it is unknown whether they count: {', '.join(found_.doubtful)}"
        return "; ".join(
            [f"{found_.counted:,} count", *([unknown] if found_.unknown else []), *filter(None, [found_.why])]
        )
    lacking = [name for name in leaf.names if not view.readings(name, rule)]
    if not lacking and leaf.aggregates:
        found = ((entity, one) for entity, one in _over_time(leaf, rule, view) if one.why)
        why = "; ".join(f"{one.text} of {entity}: {one.why}" for entity, one in found)
        return why or "the values are of kinds that do not compare"
    if not lacking:
        values = sorted((one for name in leaf.names for one in view.readings(name, rule)), key=_age)[:SHOWN]
        told = ", ".join(f"{one.name} {one.value!r} of {one.entity}" for one in values)
        return f"the values are of kinds that do not compare: {told}"
    return "; ".join(_lacking(scene, name, rule, centre, now) for name in lacking)


def _unknown_rules(name: str, plan: RulePlan, view: RuleEvaluation) -> str:
    return ", ".join(one.id for one in plan.concluding[name] if view.truth(one.tree, one) is None) or "none"


def _lacking(scene: SituationScene, name: str, rule: PlannedRule, centre: SituationCentre, now: int) -> str:
    """What there is of a class instead of a fresh reading within reach."""
    served = scene.plan.served.get(name, frozenset({name}))
    all_of_it = [one for one in scene.readings.everything() if one.name in served and one.position > rule.after]
    if not all_of_it:
        return f"no reading of {name} has come"
    inside = [one for one in all_of_it if _is_within(one, name, rule, centre)]
    if inside:
        newest = min(inside, key=_age)
        age, valid = (now - newest.moment) / SECOND, (rule.valid or 0) / SECOND
        return f"the newest {name} around, of {newest.entity}, is {age:g} s old, and valid for {valid:g} s"
    area = rule.area_at(centre)
    if area is not None:
        return f"no reading of {name} is in {area_text(rule, centre)}"
    apart = [(metres, one.entity) for one in all_of_it if (metres := separation(centre, one)) is not None]
    if not apart:
        return f"nobody knows where the readings of {name} are"
    metres, entity = min(apart)
    return f"the nearest {name}, of {entity}, is {metres:,.1f} m away, and the rule reaches {rule.reach[name]:g} m"


def _is_within(reading: ContextReading, name: str, rule: PlannedRule, centre: SituationCentre) -> bool:
    area = rule.area_at(centre)
    if area is not None:
        return area in reading.areas
    apart = separation(centre, reading)
    return apart is not None and apart <= rule.reach[name]
