"""Guarded relations: their strategies let reports be held back; their guards, and how each relation stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from nearcast.errors import Fault
from nearcast.model.arrays import Flags, Integers
from nearcast.model.event import Event
from nearcast.model.relation import Named, Pair, Relation, Side
from nearcast.model.relation import StrategyChoice as Choice
from nearcast.relations.pairs import PairRelations
from nearcast.relations.predicate import bound_of
from nearcast.relations.sides import sees_derived
from nearcast.suppression.strategies.builtin import RangeRing, SharedRing
from nearcast.suppression.strategies.choice import chosen
from nearcast.suppression.strategies.guards import Guard, TakenReport
from nearcast.suppression.strategies.measure import UNREADABLE, Measure, measure_of
from nearcast.suppression.strategies.seam import PairKnowledge, Strategy, guards

Sides = tuple[Guard, Guard]

RINGS = (RangeRing.name, SharedRing.name)
"""The strategies that a relation between any entities may have: rings, for everybody half of what room there is."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """A relation between two named entities, and the strategy by which their reports may be held back."""

    a: str
    b: str
    measure: Measure
    strategy: Strategy

    def side(self, entity: str) -> Literal["a", "b"]:
        """The side of one of both."""
        return "a" if entity == self.a else "b"

    def other(self, entity: str) -> str:
        """The partner of one of both."""
        return self.b if entity == self.a else self.a

    def guards(self, a: Event, b: Event, holds: bool) -> Sides | None:
        """The guards of both sides from their events; None if an event says nothing that a strategy understands."""
        reports = [self._report("a", a), self._report("b", b)]
        if any(report.value is UNREADABLE for report in reports):
            return None
        bound = self.measure.bound_for(*(report.value for report in reports))
        turned = self.measure.first == "b"
        first, second = reports[::-1] if turned else reports
        found = guards(self.strategy, PairKnowledge(first, second, holds), bound)
        return (found[1], found[0]) if turned else found

    def permits(self, found: Sides, event: Event) -> bool:
        """Whether the guard of an event's entity permits it."""
        side = self.side(event.entity)
        report = self._report(side, event)
        return report.value is not UNREADABLE and found[side == "b"].permits(report)

    def _report(self, side: Literal["a", "b"], event: Event) -> TakenReport:
        moment = event.moment
        return TakenReport(event.position, self.measure.value(side, event), moment.timestamp() if moment else 0.0)


@dataclass(frozen=True, slots=True)
class ProximityRelation:
    """A relation that is being within so many metres, whose sides are not both named; `margin` before that ends.

    `node`: where what it sees enters; None: anywhere.
    """

    a: Side
    b: Side
    metres: float
    margin: float
    node: str | None


def proximity_relation(relation: Relation) -> ProximityRelation | None:
    """The relation as one whose subjects have one ring each for all their partners; None if it is not like that."""
    found = _held_back(relation)
    if found is None:
        return None
    about, asked = found
    bound = bound_of(about.when)
    if bound is None or asked.name not in RINGS or (isinstance(about.a, Named) and isinstance(about.b, Named)):
        return None
    return ProximityRelation(about.a, about.b, bound.metres, relation.margin, relation.node)


def is_guarded(relation: Relation) -> bool:
    """Whether reports of a relation's sides may be held back."""
    return guarded(relation) is not None or proximity_relation(relation) is not None


def guarded(relation: Relation) -> Guarded | None:
    """The relation as one that has guards; None if every report of its sides must be evaluated.

    Only between named entities that never fall silent: elsewhere an event counts by more than what it measures.
    """
    found = _held_back(relation)
    if found is None:
        return None
    about, asked = found
    measure = measure_of(relation)
    if measure is None or not isinstance(about.a, Named) or not isinstance(about.b, Named):
        return None
    try:
        strategy = chosen(asked.name, asked.parameters, measure.bound)
    except Fault:
        # A plug-in that was there when the relation was defined, and is not here: then nothing is held back.
        return None
    return Guarded(about.a.entity, about.b.entity, measure, strategy) if strategy.evaluated == "entry" else None


def _held_back(relation: Relation) -> tuple[Pair, Choice] | None:
    """The pair and the strategy asked for, where reports may be held back at all: of what never falls silent, and does
    not wait for late reports.
    """
    about, asked = relation.about, relation.strategy
    if (
        asked is None
        or relation.time_to_live is not None
        or relation.lateness
        or not isinstance(about, Pair)
        or sees_derived(relation)
    ):
        return None
    return about, asked


@dataclass(frozen=True, slots=True)
class GuardedState:
    """A relation between two named entities as of `position`: from this both entry nodes make the same guards."""

    position: int
    relation: str
    a: str
    b: str
    a_position: int
    b_position: int
    holds: bool


class GuardedStates:
    """What was emitted of guarded relations; it can begin anywhere, and then emits all of them once."""

    def __init__(self) -> None:
        self._pairing: PairRelations | None = None
        self._guarded: Flags = np.zeros(0, np.bool_)
        self._told: Integers = np.zeros((3, 0), np.int64)

    def changes_until(self, pairing: PairRelations, position: int) -> list[GuardedState]:
        """What has changed since the last time; `position` is that of the last event that counts."""
        if pairing is not self._pairing:
            self.__init__()  # type: ignore[misc]
            self._pairing = pairing
        self._note_rules(pairing)
        # A relation between named entities has one pair, so its number tells it.
        rule, now = pairing.standing()
        own = self._guarded[rule] & (now[:2] >= 0).all(axis=0)
        rule, now = rule[own], now[:, own]
        changed = (now != self._told[:, rule]).any(axis=0)
        rule, now = rule[changed], now[:, changed]
        self._told[:, rule] = now
        return [
            self._standing(pairing, position, *each)
            for each in zip(rule.tolist(), now[0].tolist(), now[1].tolist(), now[2].tolist(), strict=True)
        ]

    def _note_rules(self, pairing: PairRelations) -> None:
        """PairRules are only added; what has ended has no pair any more."""
        new = pairing.rules.all[len(self._guarded) :]
        if new:
            flags = [rule is not None and guarded(rule.relation) is not None for rule in new]
            self._guarded = np.concatenate([self._guarded, np.array(flags, np.bool_)])
            self._told = np.concatenate([self._told, np.full((3, len(new)), -1)], axis=1)

    @staticmethod
    def _standing(pairing: PairRelations, position: int, number: int, a: int, b: int, holds: int) -> GuardedState:
        rule = pairing.rules.all[number]
        assert rule, "there is a pair of it"
        found = guarded(rule.relation)
        assert found, "only guarded ones are emitted"
        return GuardedState(position, rule.relation.id, found.a, found.b, a, b, bool(holds))
