"""Situations that are, what is told of them, and the world that they run in."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from nearcast.model.situation import Phase
from nearcast.situations.evaluation import (
    Evidence,
    SituationWorld,
)
from nearcast.situations.readings import ContextReading, NamedAreas, SituationCentre
from nearcast.situations.rule_plan import PlannedRule


@dataclass(slots=True, eq=False)
class SituationInstance:
    """A situation that is: one rule at one seat, which holds since a moment. `order` ascends with beginning.

    `begins`: when it begins, if it has not; `ends`: when it ends unless its rule holds again, and the `reason`.
    `lapses`: when it is to be looked at, though nothing comes.
    """

    id: str
    rule: str
    concludes: str
    centre: SituationCentre
    since: int
    order: int
    grounds: tuple[Evidence, ...]
    lapses: int
    seen: frozenset[tuple[str, str]]
    running: bool = True
    begins: int | None = None
    ends: int | None = None
    reason: str = ""

    @property
    def begun(self) -> bool:
        """Whether it is; else its rule has not held for long enough."""
        return self.begins is None


@dataclass(frozen=True, slots=True)
class SituationChanged:
    """A situation began, was updated or ended: at a moment, and the reason, where it ended. `zone`: the place that is
    the zone in which it is, where its rule looks into zones.
    """

    phase: Phase
    rule: str
    situation: str
    concludes: str
    centre: SituationCentre
    since: int
    moment: int
    grounds: tuple[Evidence, ...]
    reason: str = ""
    hidden: bool = False
    zone: str | None = None


class SituationScene(SituationWorld, Protocol):
    """A world that situations run in, and what of it a reading concerns."""

    def put_reading(self, reading: ContextReading) -> bool:
        """Takes a reading in; False only where neither a situation is concerned nor a rule completed."""

    def put_readings(
        self, readings: Sequence[ContextReading], now: int, denied: Sequence[str] = ()
    ) -> Sequence[ContextReading]:
        """Takes in the readings of one event, at a moment; those of which anything may come. As what is `denied` its
        entity does not count: of many counts it counts for few, and a reading for each would take long.
        """

    def unsettled(self, now: int) -> Iterable[SituationInstance]:
        """The situations that end at a moment, or sooner than was thought, by what was put or forgotten last, and that
        `concerned` leaves out: those of which nothing but the number of entities matters.
        """

    def rezone(self, areas: NamedAreas) -> None:
        """Lets readings be in the zones that their places are in by now."""

    def known(self) -> Iterator[tuple[str, str]]:
        """The class and the entity of each reading, and of each report that counts, or may."""

    @property
    def size(self) -> int:
        """How many readings and reports are kept."""

    def add_situation(self, instance: SituationInstance, rule: PlannedRule) -> None:
        """Takes in a situation; also one that moved, or rests on other things."""

    def drop_situation(self, instance: SituationInstance) -> None:
        """Forgets a situation that ended."""

    def left_by(self, entity: str) -> Collection[SituationCentre]:
        """Where an entity counts until its next report comes."""

    def forget(self, entities: Collection[str]) -> Iterable[ContextReading]:
        """Drops the readings of some entities, but for those that a situation looked at; the reports of them by which
        they counted, or might.
        """

    def around(
        self, rules: Iterable[PlannedRule], centre: SituationCentre, rule: PlannedRule, metres: float
    ) -> Sequence[SituationInstance]:
        """The situations of these rules within the validity of another rule around a centre, oldest first, also such
        as have not begun.
        """

    def running(self, rule: PlannedRule) -> Iterable[SituationInstance]:
        """The situations of a rule."""

    @property
    def any(self) -> bool:
        """Whether there is any situation."""

    def concerned(
        self, names: Collection[str], keys: Sequence[tuple[str, str]], centre: SituationCentre
    ) -> Iterable[SituationInstance]:
        """At least the situations that readings or situations of these classes at a centre may change, and those that
        looked at one of these keys; but for those that are `unsettled`.
        """

    def completed(self, reading: ContextReading, now: int) -> Iterable[PlannedRule]:
        """At least the rules that hold at a moment and of which the reading makes some condition hold."""
