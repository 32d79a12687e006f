"""Why a relation holds between two entities, or does not: their reports alone are gone through once more.

Pure, as `explanation`: reports, definitions and the clock come in as steps, in the order of the journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from nearcast.errors import Fault
from nearcast.explain.pair_finding import PairFinding, PredicateFinding, SideFinding
from nearcast.explain.pair_past import PairPast, PairStep
from nearcast.filters.evaluate import NO_CONTEXT, atom_truths
from nearcast.filters.spatial_atoms import spatial_atoms
from nearcast.filters.truth import Truth
from nearcast.geo.distance import distance
from nearcast.model.changes import RelationChange
from nearcast.model.event import Event
from nearcast.model.expression import Call, Property, parts
from nearcast.model.filter import Atom, Filter, atoms
from nearcast.model.limits import Limits
from nearcast.model.relation import SIDES, Matching, Named, Pair, Relation, Side
from nearcast.model.values import Value
from nearcast.relations.aggregates.entity_windows import known_value
from nearcast.relations.predicate import RelationPredicate, is_symmetric, side_aggregates, widened
from nearcast.relations.reports import moment_of
from nearcast.relations.sides import sees_derived
from nearcast.relations.transitions import deadline, micros
from nearcast.state.lateness import FOREVER, NEVER
from nearcast.state.windows import AggregateFinding, by_name


def explain_pair(id: str, a: str, b: str, steps: Iterable[PairStep]) -> PairFinding:
    """What steps lead to for a relation between two entities. Raises `Fault` where the relation is not there, or is not
    one of pairs of what was published.
    """
    followed = list(steps)
    defined = [step.happened.relation for step in followed if isinstance(step.happened, RelationChange)]
    # A local relation sees what enters at its node, also of the time before it was defined.
    last = next((one for one in reversed(defined) if one.id == id), None)
    past = PairPast(id, last)
    for step in followed:
        past.follow(step)
    relation = past.relation
    if relation is None:
        raise Fault(
            "a relation that there was then", id, None, f"there were {', '.join(sorted(past.others)) or 'none'}"
        )
    if not isinstance(relation.about, Pair) or sees_derived(relation):
        raise Fault(
            "a relation between two entities that are published", id, None, "this is of a crowd, or of relations"
        )
    return _PairExplanation(past).finding(relation, relation.about, a, b)


class _PairExplanation:
    """Says of two entities what their past led to."""

    def __init__(self, past: PairPast) -> None:
        self._past = past

    def finding(self, relation: Relation, about: Pair, a: str, b: str) -> PairFinding:
        """What is so now."""
        if about.a == about.b and is_symmetric(about.when):
            # Where both orders are one pair, the lesser name is a.
            a, b = sorted((a, b))
        sides = (self._side(about.a, a, relation), self._side(about.b, b, relation))
        reports = [side.report for side in sides]
        conditions: tuple[PredicateFinding, ...] = ()
        whole: Truth = None
        metres = None
        if reports[0] is not None and reports[1] is not None:
            both = reports[0], reports[1]
            limits, over_time = self._past.relations.limits, self._over_time(relation.id, about, (a, b))
            whole = RelationPredicate(about.when).truth(*both, limits, over_time=_values(over_time))
            conditions = tuple(_of_predicate(about.when, relation.margin, *both, limits, over_time))
            metres = distance(both[0].place, both[1].place) if both[0].place and both[1].place else None
        held = self._past.relations.held(relation.id, (a, b))
        now = self._time((a, b))
        return PairFinding(
            relation=relation,
            position=self._past.position,
            time=None if now == NEVER else moment_of(now),
            a=sides[0],
            b=sides[1],
            metres=metres,
            predicate=whole,
            conditions=conditions,
            holds=held is not None,
            since=None if held is None or held.started_at == NEVER else moment_of(held.started_at),
            due=None if held is None or held.due == FOREVER else moment_of(held.due),
            dwelt=held is not None and held.dwell_sent,
            told=tuple(one for one in self._past.told if {one[1].a.entity, one[1].b[0].entity} == {a, b}),
            reasons=() if held else tuple(self._reasons(relation, sides, whole, conditions)),
        )

    def _time(self, pair: tuple[str, str]) -> int:
        """How far the slower clock of the two has come, of those that are set."""
        relations = self._past.relations
        every = [relations.clock_of(one) for one in pair if one in relations.known] or [relations.now]
        return min((one for one in every if one != NEVER), default=NEVER)

    def _over_time(self, id: str, about: Pair, pair: tuple[str, str]) -> OverTimeFindings:
        """What the aggregates of the predicate are of the two, by how they are written."""
        found = {}
        for one in side_aggregates(about.when):
            entity = pair[SIDES.index(one.side)]
            found[one.text] = entity, self._past.relations.aggregate(id, entity, one)._replace(text=one.text)
        return found

    def _side(self, side: Side, entity: str, relation: Relation) -> SideFinding:
        known = self._past.relations.known.get(entity)
        if known is None:
            return SideFinding(entity, None, False, (), None)
        live = FOREVER if relation.time_to_live is None else micros(relation.time_to_live)
        ends = deadline(known.heard, live)
        silent = moment_of(ends) if ends < self._past.relations.clock_of(entity) else None
        if isinstance(side, Named):
            return SideFinding(entity, known.event, side.entity == entity, (), silent)
        assert isinstance(side, Matching)
        limits = self._past.relations.limits
        spatial = any(spatial_atoms(side.filter))
        undecided = self._past.relations.sides.budget(known.event, limits).undecided if spatial else ()
        found = atom_truths(side.filter, known.event, NO_CONTEXT, limits, undecided)
        conditions = tuple(PredicateFinding(atom, own, own, _read(atom, known.event)) for atom, own in found)
        selects = self._past.relations.sides.selects(side.filter, known.event, limits)
        return SideFinding(entity, known.event, selects, conditions, silent)

    def _beyond(self, side: SideFinding) -> str:
        """Why an atom of a side's filter is not decided, where the work for the event did not suffice."""
        assert side.report is not None, "it was heard of"
        if not any(any(spatial_atoms(one.atom)) for one in side.conditions):
            return ""
        budget = self._past.relations.sides.budget(side.report, self._past.relations.limits)
        reasons = (budget.reason(one.atom) for one in side.conditions)
        return next((f": {one}" for one in reasons if one), "")

    def _reasons(
        self,
        relation: Relation,
        sides: tuple[SideFinding, SideFinding],
        whole: Truth,
        conditions: tuple[PredicateFinding, ...],
    ) -> Iterator[str]:
        """Why it does not hold."""
        if sides[0].entity == sides[1].entity:
            yield "an entity is not related to itself"
        for name, side in zip(("a", "b"), sides, strict=True):
            if side.report is None:
                elsewhere = self._past.other_nodes.get(side.entity)
                where = f", only at {elsewhere}, and the relation is local to {relation.node}" if elsewhere else ""
                yield f"{side.entity} was not heard of{where}"
            elif not side.member:
                yield f"{side.entity} is not of side {name}{self._beyond(side)}"
            elif side.silent_since is not None:
                yield f"{side.entity} was silent for longer than time_to_live, {relation.time_to_live:g} s"
        if all(side.report is not None for side in sides):
            if whole is False:
                yield "the predicate is FALSE"
            elif whole is None:
                unknown = [one for one in conditions if one.truth is None]
                lacking = [f"there is no {name}" for one in unknown for name, values in one.read if not values]
                for entity, one in (pair for each in unknown for pair in each.aggregates):
                    lacking += [f"{one.text} of {entity}: {one.why}"] if known_value(one) is None else []
                why = f": {', '.join(dict.fromkeys(lacking))}" if lacking else ""
                yield f"the predicate is UNKNOWN{why}"


OverTimeFindings = Mapping[str, tuple[str, AggregateFinding]]
"""By how an aggregate is written its entity, and what was found."""


def _values(found: OverTimeFindings) -> dict[str, float]:
    """Those that have a value."""
    known = {text: known_value(one) for text, (_, one) in found.items()}
    return {text: value for text, value in known.items() if value is not None}


def _of_predicate(
    when: Filter, margin: float, a: Event, b: Event, limits: Limits, over_time: OverTimeFindings
) -> Iterator[PredicateFinding]:
    """Each atom of a predicate, for entering and for staying."""
    values = _values(over_time)
    for atom, wider in zip(atoms(when), atoms(widened(when, margin)), strict=True):
        found, staying = (RelationPredicate(one).truth(a, b, limits, over_time=values) for one in (atom, wider))
        own = tuple(over_time[one.text] for one in side_aggregates(atom))
        yield PredicateFinding(atom, found, staying, _read_of_both(atom, a, b), own)


def _read(atom: Atom, event: Event) -> tuple[tuple[str, tuple[Value, ...]], ...]:
    """The attributes that a side's atom reads, with their values."""
    names = [atom.name] if isinstance(atom.name, str) else _names(atom)
    return tuple((name, tuple(event.values(name))) for name in names)


def _read_of_both(atom: Atom, a: Event, b: Event) -> tuple[tuple[str, tuple[Value, ...]], ...]:
    found: list[tuple[str, tuple[Value, ...]]] = []
    for name in _names(atom):
        side, _, attribute = name.partition(".")
        if side not in SIDES:
            continue
        event = a if side == "a" else b
        if attribute and attribute not in ("position", "this"):
            found.append((name, tuple(event.values(attribute))))
        else:
            place = event.place
            found.append((f"place of {side}", () if place is None else (f"{place.x:g}, {place.y:g}",)))
    return tuple(found)


def _names(atom: Atom) -> list[str]:
    if not isinstance(atom.name, Call):
        return []
    # An aggregate reads no newest value.
    return list(dict.fromkeys(part.name for part in parts(by_name(atom.name)) if isinstance(part, Property)))
