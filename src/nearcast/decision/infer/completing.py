"""Which rules a reading may complete: those of which it makes some condition hold, while something near it makes each
of the others hold.

The conditions on a class that a reading makes hold are found by their sorted limits. For each condition that a rule
cannot do without there is kept in which cells readings make it hold, fresh or not: a rule none of whose readings is
in the cells around need not be looked at. So nearly all are left out by a few look-ups each.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from nearcast.decision.infer.grid import Cell, beside, level_of
from nearcast.decision.infer.plan import Joint, Leaf, Plan, Rule
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

Cells = Mapping[int, Cell]
"""The cell of a place at each level; empty for what is nowhere."""


@dataclass(slots=True, eq=False)
class Condition:
    """A condition of a rule: in which cells of its level readings make it hold, and how many are nowhere.

    `others` are those without which the rule cannot hold either.
    """

    leaf: Leaf
    rule: Rule
    level: int
    others: tuple[Condition, ...] = ()
    cells: dict[Cell, int] = field(default_factory=dict)
    nowhere: int = 0

    def add(self, cells: Cells) -> None:
        """Counts a reading that makes the condition hold."""
        cell = cells.get(self.level)
        if cell is None:
            self.nowhere += 1
        else:
            self.cells[cell] = self.cells.get(cell, 0) + 1

    def remove(self, cells: Cells) -> None:
        """Counts it no more."""
        cell = cells.get(self.level)
        if cell is None:
            self.nowhere -= 1
        elif self.cells[cell] == 1:
            del self.cells[cell]
        else:
            self.cells[cell] -= 1

    def may_hold(self, around: Mapping[int, tuple[Cell, ...]]) -> bool:
        """Whether some reading near a place, whose cells are these, may make the condition hold."""
        # What is nowhere is with its entity, wherever that is; and in a named place nobody asks for metres.
        if self.nowhere or self.rule.area is not None:
            return True
        return not self.cells.keys().isdisjoint(around[self.level])


@dataclass(slots=True)
class _Limits:
    """The limits of one operator, ascending, and whose they are."""

    values: list[float] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)

    def sort(self) -> None:
        """Brings both into the order of the limits."""
        order = sorted(range(len(self.values)), key=self.values.__getitem__)
        self.values = [self.values[one] for one in order]
        self.conditions = [self.conditions[one] for one in order]


@dataclass(slots=True)
class _Class:
    """The conditions on one class: by operator those with a number as limit, and all others."""

    limits: dict[Operator, _Limits] = field(default_factory=lambda: {one: _Limits() for one in NEGATED})
    rest: list[Condition] = field(default_factory=list)

    def add(self, condition: Condition) -> None:
        """Takes in a condition."""
        leaf = condition.leaf
        limit, operator = leaf.atom.value, leaf.atom.operator
        simple = isinstance(leaf.atom.name, str) and leaf.situation is None and operator in NEGATED
        if simple and isinstance(limit, (int, float)) and not isinstance(limit, bool):
            found = self.limits[NEGATED[operator] if leaf.negated else operator]
            found.values.append(limit)
            found.conditions.append(condition)
        else:
            self.rest.append(condition)

    def held(self, value: Value) -> Iterator[Condition]:
        """The conditions that a value makes hold."""
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            above, at_least = self.limits[Operator.GT], self.limits[Operator.GE]
            below, at_most = self.limits[Operator.LT], self.limits[Operator.LE]
            yield from above.conditions[: bisect_left(above.values, value)]
            yield from at_least.conditions[: bisect_right(at_least.values, value)]
            yield from below.conditions[bisect_right(below.values, value) :]
            yield from at_most.conditions[bisect_left(at_most.values, value) :]
        for condition in self.rest:
            if satisfied(condition.leaf, value):
                yield condition


class Completing:
    """The conditions of all rules, by the classes that serve them, and what makes them hold where."""

    def __init__(self, plan: Plan) -> None:
        self._by_class: dict[str, _Class] = defaultdict(_Class)
        self._held: dict[tuple[str, str], tuple[Cells, tuple[Condition, ...]]] = {}
        for rule in plan.rules:
            for condition in conditions_of(rule):
                for served in {sub for name in condition.leaf.names for sub in plan.served.get(name, (name,))}:
                    self._by_class[served].add(condition)
        for found in self._by_class.values():
            for limits in found.limits.values():
                limits.sort()

    def put(self, reading: Reading, cells: Cells) -> None:
        """Takes in a reading in place of the one of the same entity and class."""
        key = (reading.entity, reading.name)
        before = self._held.get(key)
        if before is not None:
            for condition in before[1]:
                condition.remove(before[0])
        found = self._by_class.get(reading.name)
        held = () if found is None else tuple(found.held(reading.value))
        self._held[key] = (cells, held)
        for condition in held:
            condition.add(cells)

    def rules(self, reading: Reading) -> Iterable[Rule]:
        """The rules that a reading that was put may complete, each once."""
        cells, held = self._held[reading.entity, reading.name]
        if not held:
            return ()
        # Without a place nothing is known of what is around.
        if not cells:
            return dict.fromkeys(condition.rule for condition in held)
        around = {level: tuple(beside(cell)) for level, cell in cells.items()}
        return dict.fromkeys(
            condition.rule for condition in held if all(other.may_hold(around) for other in condition.others)
        )


def conditions_of(rule: Rule) -> Iterator[Condition]:
    """The conditions by which a rule may be completed, each knowing those that the rule cannot do without."""
    tree = rule.tree
    top = tree.parts if isinstance(tree, Joint) and tree.every else (tree,)
    needed = [
        part for part in top if isinstance(part, Leaf) and part.situation is None and isinstance(part.atom.name, str)
    ]
    found = {leaf: Condition(leaf, rule, _level(leaf, rule)) for leaf in rule.contributing}
    for leaf, condition in found.items():
        condition.others = tuple(found[other] for other in needed if other is not leaf)
    yield from found.values()


def _level(leaf: Leaf, rule: Rule) -> int:
    # A condition of a rule below, which this one denies, is nobody's other.
    return level_of(max((rule.reach[name] for name in leaf.names if name in rule.reach), default=0.0))
