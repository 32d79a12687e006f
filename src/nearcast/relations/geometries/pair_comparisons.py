"""What comparing geometries may take for the pairs of one event, of all relations that hear the same (semantics §12).

What is around geometries decides most pairs, and takes nothing. The others are decided in an order that rests on the
event and on what is known of the others alone, until the work that is allowed is done: those of whom tells the shortest
geometry first, so that whoever tells long ones comes behind everybody else. A relation that is defined looks at each
entity with those that are its side b as if that had reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

from nearcast.model.event import Event
from nearcast.model.geometry_budget import SPENT, EventGeometryWork
from nearcast.model.limits import Limits
from nearcast.relations.predicate import MarginPredicate, Truths, count_larger, told_length
from nearcast.state.timeline import Excess

UNDECIDED: Truths = (None, None)

Order = tuple[int, str, int, bool]

LISTED = 10_000
"""Pairs that are known as undecided; of more, those of the last reports."""


@dataclass(slots=True)
class PairEvaluation:
    """An evaluation that rests on comparing geometries: of a relation, for the newest events of two.

    `event` tells the one that it is of from others, `order` is its place among those of that event; `truths` are what
    was found, and `decided` is whether it came to that.
    """

    event: int | str
    order: Order
    relation: str
    predicate: MarginPredicate
    a: Event
    b: Event
    over_time: Mapping[str, float]
    truths: Truths = UNDECIDED
    decided: bool = False


def order_of(other: Event, sequence: int, first: bool) -> Order:
    """The place of an evaluation among those of an event: by the other entity's geometry and name, then by the order in
    which relations were defined; `first`: the event is that of side a.
    """
    return told_length(other), other.entity, sequence, not first


def decide(evaluations: Iterable[PairEvaluation], limits: Limits, excess: Counter[Excess]) -> None:
    """Finds the truths of evaluations, of each event in their order until the work that is allowed is done.

    Reading a geometry counts once for an event. What is left is UNKNOWN, and counted in `excess`, for the one of both
    that tells the larger geometry.
    """
    ordered = sorted(evaluations, key=lambda one: (one.event, one.order))
    for _, own in groupby(ordered, key=lambda one: one.event):
        together = EventGeometryWork(limits)
        for one in own:
            if together.beyond:
                count_larger(SPENT, one.a, one.b, excess)
            else:
                one.truths = one.predicate.truths(one.a, one.b, limits, excess, one.over_time, together)
                one.decided = True


class UndecidedPairs:
    """The pairs of which the last evaluation was left UNKNOWN for the work that is allowed, so that it can be said."""

    def __init__(self) -> None:
        self._listed: dict[tuple[str, str, str], None] = {}

    def __len__(self) -> int:
        return len(self._listed)

    def __contains__(self, pair: tuple[str, str, str]) -> bool:
        """Whether a pair is among them: the relation, and the entities in the order of its sides."""
        return pair in self._listed

    def note(self, pair: tuple[str, str, str], decided: bool) -> None:
        """Takes note of how a pair was evaluated."""
        self._listed.pop(pair, None)
        if not decided:
            self._listed[pair] = None
            if len(self._listed) > LISTED:
                del self._listed[next(iter(self._listed))]

    def end(self, relation: str) -> None:
        """Forgets a relation."""
        self._listed = {pair: None for pair in self._listed if pair[0] != relation}

    def forget(self, names: Collection[str]) -> None:
        """Forgets entities."""
        gone = set(names)
        self._listed = {pair: None for pair in self._listed if gone.isdisjoint(pair[1:])}
