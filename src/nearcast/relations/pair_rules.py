"""Relations between pairs as columns: one row a relation, with all that deciding a pair of it takes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from nearcast.geo.distance import surely_beyond, surely_within
from nearcast.model.arrays import Flags
from nearcast.model.filter import Filter
from nearcast.model.relation import Named, Pair, Relation
from nearcast.relations.entity_table import GrowableTable
from nearcast.relations.geometries.boxes import met_sides, readings
from nearcast.relations.predicate import (
    MarginPredicate,
    SideAggregate,
    bound_of,
    is_symmetric,
    side_aggregates,
    widened,
)
from nearcast.relations.transitions import Lifecycle
from nearcast.state.lateness import FOREVER

NOBODY = -1
"""In place of a filter's number: a side that is one named entity."""


@dataclass(frozen=True, slots=True)
class PairRule:
    """One relation between pairs: its number among the rules, and the order of its definition.

    `metres` is how far its predicate reaches (see `MarginPredicate`), `boxes` which geometries meet where it is TRUE
    (see `boxes`), and `readings` how often it reads them, 0 where boxes alone do not tell that it is FALSE.
    `unordered`: a pair is one pair, whoever is side a. `aggregates` are of readings behind the position `after`.
    """

    number: int
    sequence: int
    relation: Relation
    pair: Pair
    unordered: bool
    metres: float
    boxes: tuple[bool, bool] | None
    predicate: MarginPredicate | None
    readings: int
    aggregates: tuple[SideAggregate, ...]
    after: int

    @property
    def is_named(self) -> bool:
        """Whether both sides are named, so that there is one pair."""
        return isinstance(self.pair.a, Named) and isinstance(self.pair.b, Named)

    def __reduce__(self) -> tuple[object, ...]:
        # All else follows from these; pickled, the parts of a hundred thousand take seconds.
        return _rule, (self.number, self.sequence, self.relation, self.after)


class PairRules:
    """All relations between pairs, by number; what ends leaves an empty place.

    `open` are those with a side that is not named, `general` those with a predicate that is no plain bound, `over_time`
    those with aggregates.

    Of each: the bound of a plain distance, for entering (`near`) and for staying (`stay`), with the squares of chords
    that are surely within and surely beyond; times in microseconds; what is told, as bits of `DETECTS`.
    """

    def __init__(self) -> None:
        self.all: list[PairRule | None] = []
        self.by_id: dict[str, PairRule] = {}
        self.open: dict[str, PairRule] = {}
        self.general: dict[str, PairRule] = {}
        self.over_time: dict[str, PairRule] = {}
        self.filters: dict[Filter, int] = {}
        self._numbers = count()
        self.columns = GrowableTable(
            {
                "bounded": np.False_,
                "inclusive": np.False_,
                "near": np.float64(0),
                "near_in": np.float64(-1),
                "near_out": np.float64(-1),
                "stay": np.float64(0),
                "stay_in": np.float64(-1),
                "stay_out": np.float64(-1),
                "lasting": np.int64(FOREVER),
                "time_to_live": np.int64(FOREVER),
                "detects": np.int8(0),
                "filter_a": np.int32(NOBODY),
                "filter_b": np.int32(NOBODY),
            }
        )

    def filter_numbers(self, rule: PairRule) -> tuple[int, int]:
        """The numbers of the filters of a rule's sides; `NOBODY` where a side is named."""
        return int(self.columns["filter_a"][rule.number]), int(self.columns["filter_b"][rule.number])

    @property
    def named(self) -> Flags:
        """Of each rule whether both of its sides are named."""
        return (self.columns["filter_a"] == NOBODY) & (self.columns["filter_b"] == NOBODY)

    def add_relation(self, relation: Relation, sequence: int, after: int = 0) -> PairRule:
        """Takes a relation between pairs; `after` is the position of its definition."""
        rule = _rule(len(self.all), sequence, relation, after)
        pair, lifecycle = rule.pair, Lifecycle.of(relation)
        self.all.append(rule)
        self._file(rule)
        values: dict[str, Any] = {"filter_a": self._filter(pair.a), "filter_b": self._filter(pair.b)}
        bound = None if rule.predicate else bound_of(pair.when)
        if bound is not None:
            stay = bound_of(widened(pair.when, relation.margin))
            assert stay is not None, "a margin leaves a bound a bound"
            values |= {"bounded": True, "inclusive": bound.inclusive}
            values |= {
                "near": bound.metres,
                "near_in": surely_within(bound.metres),
                "near_out": surely_beyond(bound.metres),
            }
            values |= {
                "stay": stay.metres,
                "stay_in": surely_within(stay.metres),
                "stay_out": surely_beyond(stay.metres),
            }
        values |= {
            "detects": lifecycle.detects,
            "lasting": lifecycle.lasting,
            "time_to_live": lifecycle.time_to_live,
        }
        self.columns.append(**values)
        return rule

    def _filter(self, side: object) -> int:
        filter = getattr(side, "filter", None)
        return NOBODY if filter is None else self.filters.setdefault(filter, next(self._numbers))

    def end(self, rule: PairRule) -> None:
        """Forgets a relation; its number is not used again."""
        for filed in (self.by_id, self.open, self.general, self.over_time):
            filed.pop(rule.relation.id, None)
        self.all[rule.number] = None

    def _file(self, rule: PairRule) -> None:
        id = rule.relation.id
        self.by_id[id] = rule
        if not rule.is_named:
            self.open[id] = rule
        if rule.predicate is not None:
            self.general[id] = rule
        if rule.aggregates:
            self.over_time[id] = rule


def _rule(number: int, sequence: int, relation: Relation, after: int) -> PairRule:
    """What a relation between pairs is among the rules."""
    pair = relation.about
    assert isinstance(pair, Pair), "gatherings are no pairs"
    unordered, bound = pair.a == pair.b and is_symmetric(pair.when), bound_of(pair.when)
    if bound is not None:
        # Of a plain bound the rest is known, and there may be very many.
        return PairRule(number, sequence, relation, pair, unordered, bound.metres, None, None, 0, (), after)
    predicate = MarginPredicate(pair.when, relation.margin)
    return PairRule(
        number,
        sequence,
        relation,
        pair,
        unordered,
        metres=predicate.metres,
        boxes=met_sides(pair.when),
        predicate=predicate,
        readings=readings(pair.when),
        aggregates=side_aggregates(pair.when),
        after=after,
    )
