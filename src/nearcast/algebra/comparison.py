"""The questions about filters: can one hold, does one cover another, have two something in common.

An answer is True, False, or None where neither was found within the budget: never a guess.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from nearcast.algebra.constraints import NOTHING_ASSUMED, AnyOf, Constraint, Premises, ValueConstraint, demanded
from nearcast.algebra.search import STEPS, SearchState, WitnessEvent, witness
from nearcast.algebra.texts import Undecided
from nearcast.filters.truth import Truth, negated
from nearcast.model.filter import And, Filter, Or, PlainNot


class FilterRelation(StrEnum):
    """How the events that a first filter accepts relate to those that a second one accepts."""

    EQUAL = "EQUAL"
    SUBSET = "SUBSET"
    SUPERSET = "SUPERSET"
    INTERSECT = "INTERSECT"
    EMPTY = "EMPTY"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class FilterComparison:
    """A relation and what it rests on.

    `within`: the second covers the first; `covers`: the first the second; `meet`: they have something in common. The
    witnesses are an event that only the first, only the second, both accept, where one was found.
    """

    relation: FilterRelation
    within: Truth
    covers: Truth
    meet: Truth
    only_first: WitnessEvent | None
    only_second: WitnessEvent | None
    both: WitnessEvent | None


@dataclass(frozen=True, slots=True)
class Satisfiability:
    """Whether a filter can hold (None: unknown), and an event for which it does."""

    possible: Truth
    witness: WitnessEvent | None = None


def compare(first: Filter, second: Filter, assumed: Premises = NOTHING_ASSUMED) -> FilterComparison:
    """How two filters relate; where the first never holds, or the second, they are EMPTY."""
    only_first = find(first, assumed, but=second)
    only_second = find(second, assumed, but=first)
    both = find(And((first, second)), assumed)
    within, covers, meet = negated(only_first.possible), negated(only_second.possible), both.possible
    relation = _relation(within, covers, meet)
    return FilterComparison(relation, within, covers, meet, only_first.witness, only_second.witness, both.witness)


def _relation(within: Truth, covers: Truth, meet: Truth) -> FilterRelation:
    # First of all: two filters of which one never holds would be SUBSET too, and nobody means that.
    if meet is False:
        return FilterRelation.EMPTY
    if within and covers:
        return FilterRelation.EQUAL
    # Where the other direction is unknown the relation still holds as it is said; it may even be EQUAL.
    if within:
        return FilterRelation.SUBSET
    if covers:
        return FilterRelation.SUPERSET
    known = within is False and covers is False and meet is True
    return FilterRelation.INTERSECT if known else FilterRelation.UNKNOWN


def covers(wide: Filter, narrow: Filter, assumed: Premises = NOTHING_ASSUMED) -> Truth:
    """Whether every event that `narrow` accepts is accepted by `wide`."""
    return negated(find(narrow, assumed, but=wide).possible)


def intersects(first: Filter, second: Filter, assumed: Premises = NOTHING_ASSUMED) -> Truth:
    """Whether some event is accepted by both."""
    return find(And((first, second)), assumed).possible


@dataclass(slots=True)
class StepBudget:
    """How many steps are left: choices looked at, each time they are."""

    left: int = STEPS

    def spend(self, steps: int) -> bool:
        """Takes some; False if there were not enough."""
        self.left -= steps
        return self.left >= 0


def find(
    filter: Filter, assumed: Premises = NOTHING_ASSUMED, steps: int = STEPS, but: Filter | None = None
) -> Satisfiability:
    """Whether a filter can hold, where `but` does not, with an event of which that is so; gives up after so many
    `steps`.
    """
    budget = StepBudget(steps)
    try:
        if but is None:
            return _found(filter, but, SearchState().assume(_accepted(filter, assumed)), budget)
        # Part by part: what both have alike needs no search, and each of the rest is a smaller question.
        known = set(but.children) if isinstance(but, Or) else {but}
        parts = filter.children if isinstance(filter, Or) else (filter,)
        asked = [part for part in parts if part not in known]
        # What `but` excludes is the same for every part, so it is assumed once.
        start = SearchState().assume(_refused(but, assumed)) if asked else None
        return _first(asked, but, start, assumed, budget) if start else Satisfiability(False)
    except Undecided:
        return Satisfiability(None)


def _first(
    parts: list[Filter], but: Filter, start: SearchState, assumed: Premises, budget: StepBudget
) -> Satisfiability:
    """What is found of the first of some filters that can hold where `but` does not."""
    unsure = False
    for part in parts:
        if not budget.spend(len(start.choices)):
            return Satisfiability(None)
        found = _found(part, but, start.assume(_accepted(part, assumed)), budget)
        if found.possible:
            return found
        unsure = unsure or found.possible is None
    return Satisfiability(None if unsure else False)


# The same filters are asked about again and again: each against all others of a table.
@lru_cache(maxsize=4096)
def _accepted(filter: Filter, assumed: Premises) -> Constraint:
    return demanded(filter, assumed)


@lru_cache(maxsize=4096)
def _refused(filter: Filter, assumed: Premises) -> Constraint:
    return demanded(PlainNot(filter), assumed)


def _found(filter: Filter, but: Filter | None, start: SearchState | None, budget: StepBudget) -> Satisfiability:
    """Searches from some assumptions on, deepest first."""
    unsure = False
    waiting = [start] if start else []
    while waiting:
        now = waiting.pop()
        candidate = now.candidate()
        # The candidate is made from what is certain; choices that it happens to meet need no branch.
        unmet = [choice for choice in now.choices if not candidate or not candidate.meets(choice)]
        found = witness(candidate, filter, but) if candidate and not unmet else None
        if found:
            return Satisfiability(True, found)
        # Nothing is left to choose and still the evaluator does not agree: what is not known here decides it.
        if not now.choices:
            unsure = True
            continue
        # The fewest ways first: that is where contradictions show soonest.
        choice = min(unmet or now.choices, key=lambda one: len(one.parts))
        if not budget.spend(len(now.choices) + len(choice.parts)):
            return Satisfiability(None)
        waiting += _branches(now, choice)
    return Satisfiability(None if unsure else False)


def _branches(now: SearchState, choice: AnyOf) -> list[SearchState]:
    """The assumptions that make one more choice, each in its way; the way to try first comes last.

    Each way excludes those before it, so that no event is looked for twice.
    """
    rest: SearchState | None = replace(now, choices=tuple(other for other in now.choices if other is not choice))
    found: list[SearchState] = []
    for part in choice.parts:
        after = rest.assume(part) if rest else None
        if after:
            found.insert(0, after)
        # Only a single demand has a negation that is one demand again.
        if rest and isinstance(part, ValueConstraint):
            rest = rest.assume(replace(part, some=not part.some))
    return found
