"""Which rules a reading may complete: those of which it makes some condition hold, found by sorted limits."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from nearcast.decision.infer.plan import Leaf, Plan, Rule
from nearcast.decision.infer.readings import Reading
from nearcast.decision.infer.view import satisfied
from nearcast.model.filter import Operator
from nearcast.model.values import Value

NEGATED = {
    Operator.LT: Operator.GE,
    Operator.LE: Operator.GT,
    Operator.GT: Operator.LE,
    Operator.GE: Operator.LT,
}
"""What is left of a comparison of numbers under NOT: readings are never NaN."""


@dataclass(slots=True)
class _Limits:
    """The limits of one operator, ascending, and whose they are."""

    values: list[float] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)

    def sort(self) -> None:
        """Brings both into the order of the limits."""
        order = sorted(range(len(self.values)), key=self.values.__getitem__)
        self.values = [self.values[one] for one in order]
        self.rules = [self.rules[one] for one in order]


@dataclass(slots=True)
class _Conditions:
    """The conditions on one class: by operator those with a number as limit, and all others."""

    limits: dict[Operator, _Limits] = field(default_factory=lambda: {one: _Limits() for one in NEGATED})
    others: list[tuple[Leaf, Rule]] = field(default_factory=list)

    def add(self, leaf: Leaf, rule: Rule) -> None:
        """Takes in a condition of a rule."""
        limit, operator = leaf.atom.value, leaf.atom.operator
        simple = isinstance(leaf.atom.name, str) and leaf.situation is None and operator in NEGATED
        if simple and isinstance(limit, (int, float)) and not isinstance(limit, bool):
            found = self.limits[NEGATED[operator] if leaf.negated else operator]
            found.values.append(limit)
            found.rules.append(rule)
        else:
            self.others.append((leaf, rule))

    def rules(self, value: Value) -> Iterator[Rule]:
        """The rules of which a value makes a condition hold, perhaps repeatedly."""
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            above, at_least = self.limits[Operator.GT], self.limits[Operator.GE]
            below, at_most = self.limits[Operator.LT], self.limits[Operator.LE]
            yield from above.rules[: bisect_left(above.values, value)]
            yield from at_least.rules[: bisect_right(at_least.values, value)]
            yield from below.rules[bisect_right(below.values, value) :]
            yield from at_most.rules[bisect_left(at_most.values, value) :]
        for leaf, rule in self.others:
            if satisfied(leaf, value):
                yield rule


class Completing:
    """The conditions of all rules, by the classes that serve them."""

    def __init__(self, plan: Plan) -> None:
        self._by_class: dict[str, _Conditions] = defaultdict(_Conditions)
        for rule in plan.rules:
            for leaf in rule.contributing:
                for served in {sub for name in leaf.names for sub in plan.served.get(name, (name,))}:
                    self._by_class[served].add(leaf, rule)
        for conditions in self._by_class.values():
            for limits in conditions.limits.values():
                limits.sort()

    def rules(self, reading: Reading) -> Iterable[Rule]:
        """The rules of which a reading makes a condition hold, each once."""
        conditions = self._by_class.get(reading.name)
        return () if conditions is None else dict.fromkeys(conditions.rules(reading.value))
