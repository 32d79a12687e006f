"""Which rules the report of an entity that counts may complete: those for which enough count where it comes.

Around it cells tell that for all rules at once; in a named place the number of those who are there does. Of rules that
hold by other counts, as by few or by just so many, nothing is known before they are looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from nearcast.situations.counts.counted_reports import IndexedEntityCounts
from nearcast.situations.counts.report_cells import CountLook
from nearcast.situations.readings import ContextReading
from nearcast.situations.rule_plan import ConditionBranch, ConditionLeaf, PlannedRule, asks_for_more
from nearcast.situations.trigger_index import TriggerCondition, TriggerIndex


class CountTriggers:
    """The conditions that a report that counts makes hold, or may. `looks` are what cells look for around each, by what
    is counted.
    """

    def __init__(self, completing: TriggerIndex, names: Iterable[str]) -> None:
        self.looks: list[tuple[str, CountLook]] = []
        self._by_look: list[TriggerCondition] = []
        self._around: dict[str, list[TriggerCondition]] = defaultdict(list)
        self._inside: dict[str, list[tuple[TriggerCondition, int, tuple[str, str]]]] = defaultdict(list)
        self._zones: dict[str, list[tuple[TriggerCondition, int, str]]] = defaultdict(list)
        self._always: dict[str, list[TriggerCondition]] = defaultdict(list)
        for name in names:
            for condition in completing.held(name, True):
                self._add(name, condition)

    def _add(self, name: str, condition: TriggerCondition) -> None:
        leaf, rule = condition.leaf, condition.rule
        if leaf.counted is None or not _must_be_enough(leaf, rule):
            self._always[name].append(condition)
        elif rule.zones is not None:
            self._zones[name].append((condition, leaf.counted.enough, rule.zones))
        elif rule.area is not None:
            self._inside[name].append((condition, leaf.counted.enough, (name, rule.area)))
        else:
            self._around[name].append(condition)
            self._by_look.append(condition)
            look = CountLook(0, rule.reach[name], leaf.counted.enough, rule.valid, rule.after)
            self.looks.append((name, look))

    def held(
        self,
        report: ContextReading,
        counts: IndexedEntityCounts,
        goes_on: Callable[[PlannedRule, ContextReading], bool],
    ) -> list[TriggerCondition]:
        """Those of a report that was just put. `goes_on`: whether a situation of a rule that nothing ends by now is
        around a report.
        """
        if report.value is not True:
            return []
        name, found = report.name, list(self._always.get(report.name, ()))
        if report.place is None:
            # Without a place nothing is known of what is around.
            found += self._around.get(name, ())
        else:
            for look in counts.passing:
                one = self._by_look[look]
                if name in one.served and not goes_on(one.rule, report):
                    found.append(one)
        for one, enough, place in self._inside.get(name, ()):
            if counts.at(place) >= enough and not goes_on(one.rule, report):
                found.append(one)
        for one, enough, zones in self._zones.get(name, ()):
            if any(counts.at((name, area)) >= enough for area in report.areas if area.startswith(zones)):
                found.append(one)
        return found


def _must_be_enough(leaf: ConditionLeaf, rule: PlannedRule) -> bool:
    """Whether a rule holds nowhere unless enough count."""
    tree = rule.tree
    top = tree.parts if isinstance(tree, ConditionBranch) and tree.every else (tree,)
    return leaf in top and asks_for_more(leaf)
