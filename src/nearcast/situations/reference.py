"""The plain reference: every reading looks at every rule, every situation, and every other reading."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from nearcast.situations.lifecycle import SituationInstance, makes_hold
from nearcast.situations.readings import ContextReading, PlainReadingStore, SituationCentre, separation
from nearcast.situations.rule_plan import PlannedRule, RulePlan


@dataclass(slots=True)
class PlainScene:
    """A scene without any index."""

    plan: RulePlan
    readings: PlainReadingStore = field(default_factory=PlainReadingStore)
    situations: dict[str, SituationInstance] = field(default_factory=dict)

    def put_reading(self, reading: ContextReading) -> bool:
        """Takes a reading in; anything may come of it."""
        self.readings.put_reading(reading)
        return True

    def add_situation(self, instance: SituationInstance, rule: PlannedRule) -> None:
        """Takes in a situation."""
        self.situations[instance.id] = instance

    def drop_situation(self, instance: SituationInstance) -> None:
        """Forgets a situation that ended."""
        del self.situations[instance.id]

    def running(self, rule: PlannedRule) -> Iterable[SituationInstance]:
        """The situations of a rule."""
        return [one for one in self.situations.values() if one.rule == rule.id]

    @property
    def any(self) -> bool:
        """Whether there is any situation."""
        return bool(self.situations)

    def around(
        self, rules: Iterable[PlannedRule], centre: SituationCentre, rule: PlannedRule, metres: float
    ) -> Sequence[SituationInstance]:
        """The situations of these rules within the validity of another rule around a centre."""
        named = {one.id: one for one in rules}
        found = [one for one in self.situations.values() if one.rule in named]
        return [one for one in found if is_around(one, named[one.rule], centre, rule, metres)]

    def concerned(
        self, name: str, keys: Sequence[tuple[str, str]], centre: SituationCentre
    ) -> Iterable[SituationInstance]:
        """Every situation that is."""
        return list(self.situations.values())

    def completed(self, reading: ContextReading, now: int) -> Iterable[PlannedRule]:
        """The rules of which the reading makes some condition hold."""
        return [rule for rule in self.plan.rules if makes_hold(rule, reading, self.plan)]


def is_around(
    instance: SituationInstance, own: PlannedRule, centre: SituationCentre, rule: PlannedRule, metres: float
) -> bool:
    """Whether a situation, of the rule `own`, is within the validity of another rule around a centre."""
    if rule.area is not None:
        return rule.area in instance.centre.areas
    if own.area is not None:
        return own.area in centre.areas
    apart = separation(centre, instance.centre)
    return apart is not None and apart <= metres
