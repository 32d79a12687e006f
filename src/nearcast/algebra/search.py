"""Looking for an event that meets constraints, and the event that was found, held against the plain evaluator.

The way is led by candidates: from what is assumed so far an event is made; only a choice that it does not meet is
worth branching on. Trying is exponential at worst, so the number of assumptions has a limit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_

from nearcast.algebra.constraints import (
    AllOf,
    AnyOf,
    Constraint,
    OpaqueConstraint,
    ValueConstraint,
    Variable,
    read_alone,
)
from nearcast.algebra.texts import Undecided
from nearcast.algebra.value_sets import NO_VALUES, ValueSet
from nearcast.filters.evaluate import truth
from nearcast.filters.truth import Truth
from nearcast.geo.distance import wgs84
from nearcast.model.event import Event, Place
from nearcast.model.expression import Call
from nearcast.model.filter import Atom, Distance, Filter, This, User
from nearcast.model.values import Value, kind_of

STEPS = 100_000
"""How many choices one question may look at, each time it does: about a second."""

_TRUTHS: frozenset[Truth] = frozenset({True, False, None})


@dataclass(frozen=True, slots=True)
class VariableDomain:
    """What is assumed of one variable: some value in each of `some`, none in `none`, all within its domain."""

    some: tuple[ValueSet, ...] = ()
    none: ValueSet = NO_VALUES

    def with_demand(self, demand: ValueConstraint) -> VariableDomain | None:
        """With one more demand; None if no event can meet them all. Sets that are not decided count as not empty."""
        if not demand.some:
            after = replace(self, none=self.none | demand.values)
        elif demand.variable.single and self.some:
            after = replace(self, some=(self.some[0] & demand.values,))
        else:
            after = replace(self, some=(*self.some, demand.values))
        # A set more that is excluded may empty any of the sets; a set more of which some must be, only itself.
        fresh = after.some[-1:] if demand.some else after.some
        # Where nothing is demanded of a variable that always has a value, that value must still lie somewhere.
        must = fresh or ((demand.variable.domain,) if demand.variable.required else ())
        return after if all(_possible(values, after.none) for values in must) else None


def _possible(values: ValueSet, none: ValueSet) -> bool:
    try:
        return (values - none).some() is not None
    except Undecided:
        return True


@dataclass(frozen=True, slots=True)
class CandidateValues:
    """The values of each variable, and the truths of what is not known here, that would meet some assumptions."""

    values: Mapping[Variable, tuple[Value, ...]]
    riddles: Mapping[Atom, frozenset[Truth]]

    def meets(self, condition: Constraint) -> bool:
        """Whether it meets a condition, as far as can be told."""
        match condition:
            case ValueConstraint(variable, values, some):
                return some == any(value in values for value in self._of(variable))
            case OpaqueConstraint(atom, truths):
                # What is left open may turn out as any truth, so all of them have to do.
                return self.riddles.get(atom, _TRUTHS) <= truths
            case AllOf(parts):
                return all(self.meets(part) for part in parts)
            case AnyOf(parts):
                return any(self.meets(part) for part in parts)

    def _of(self, variable: Variable) -> tuple[Value, ...]:
        return self.values.get(variable) or _chosen(variable, VariableDomain())


def _chosen(variable: Variable, known: VariableDomain) -> tuple[Value, ...]:
    """Values of a variable that meet what is assumed of it. Raises `Undecided`."""
    if not known.some and variable.required:
        # A readable event rather than one with the least text there is.
        usual = USUAL.get(str(variable.name), 0)
        if usual not in known.none:
            return (usual,)
        known = replace(known, some=(variable.domain,))
    shared = _shared(known)
    found = [shared] if shared is not None else [(values - known.none).some() for values in known.some]
    # Python holds 0 and False to be one.
    return tuple({(kind_of(value), value): value for value in found if value is not None}.values())


def _shared(known: VariableDomain) -> Value | None:
    """One value that is in every set of which some must be, if it is easily found: a plainer event than several."""
    # Each set may have a value of its own, for names repeat; but then the example surprises whoever reads it.
    if len(known.some) < 2:
        return None
    try:
        return (reduce(and_, known.some) - known.none).some()
    except Undecided:
        return None


USUAL: dict[str, Value] = {"id": "e1", "type": "event", "source": "somewhere"}
"""What an event has that nothing is demanded of."""


@dataclass(frozen=True, slots=True)
class SearchState:
    """What is assumed, and the choices still to be made."""

    known: Mapping[Variable, VariableDomain] = field(default_factory=dict)
    riddles: Mapping[Atom, frozenset[Truth]] = field(default_factory=dict)
    choices: tuple[AnyOf, ...] = ()

    def assume(self, condition: Constraint) -> SearchState | None:
        """With one more condition; None if no event can meet them all."""
        known, riddles, choices = dict(self.known), dict(self.riddles), list[AnyOf]()
        waiting = [condition]
        while waiting:
            match waiting.pop():
                case AllOf(parts):
                    waiting.extend(parts)
                # Choices wait: most are met by what the rest demands, and are never branched on.
                case AnyOf() as choice:
                    choices.append(choice)
                case OpaqueConstraint(atom, truths):
                    riddles[atom] = riddles.get(atom, _TRUTHS) & truths
                    if not riddles[atom]:
                        return None
                case ValueConstraint() as demand:
                    after = known.get(demand.variable, VariableDomain()).with_demand(demand)
                    if after is None:
                        return None
                    known[demand.variable] = after
        return SearchState(known, riddles, (*self.choices, *choices) if choices else self.choices)

    def candidate(self) -> CandidateValues | None:
        """Values that would meet what is assumed; None where they cannot be told."""
        try:
            values = {variable: _chosen(variable, known) for variable, known in self.known.items()}
        except Undecided:
            return None
        return CandidateValues(values, self.riddles)


@dataclass(frozen=True, slots=True)
class WitnessEvent:
    """An event, and where users are, such that a filter is TRUE."""

    event: Event
    users: tuple[tuple[str, Place], ...] = ()

    def user(self, name: str) -> Place | None:
        """Where that client is."""
        return dict(self.users).get(name)

    def entities(self) -> Iterable[Event]:
        """The repository is empty."""
        return ()

    def undecided_conditions(self, newest: Event) -> Collection[Atom]:
        """So nothing is left undecided."""
        return ()


def witness(candidate: CandidateValues, filter: Filter, but: Filter | None = None) -> WitnessEvent | None:
    """The witness that a candidate describes, if the evaluator finds `filter` TRUE of it and `but` not; else None."""
    own = dict(USUAL)
    attributes: list[tuple[str, Value]] = []
    apart: dict[Distance, float] = {}
    named = {variable.name for variable, values in candidate.values.items() if values}
    for variable, values in candidate.values.items():
        name = variable.name
        if isinstance(name, str) and name in USUAL:
            own[name] = values[0]
        elif isinstance(name, str):
            attributes += [(name, value) for value in values]
        elif isinstance(name, Call) and (read := read_alone(name)):
            # A text without case and accents is mostly its own; if not, the evaluator says so.
            attributes += [(read, value) for value in values if read not in named]
        elif isinstance(name, Distance) and values and isinstance(values[0], (int, float)):
            apart[name] = float(values[0])
    # Counts, and distances to entities, are left as they come: the evaluator says whether it is a witness anyway.
    place, users = _places(apart)
    found = WitnessEvent(_event(own, attributes, place), tuple(users.items()))
    refused = but is None or truth(but, found.event, found) is not True
    return found if refused and truth(filter, found.event, found) is True else None


def _places(apart: Mapping[Distance, float]) -> tuple[Place | None, dict[str, Place]]:
    """Where the event and users are, such that distances between them, or to one point, are as wanted."""
    place = Place("planar", 0.0, 0.0) if apart else None
    for term, metres in apart.items():
        point = next((side for side in (term.a, term.b) if isinstance(side, Place)), None)
        if point and This() in (term.a, term.b):
            place = _beside(point, metres)
    users = {
        here.name: _beside(place, metres)
        for term, metres in apart.items()
        for here, there in ((term.a, term.b), (term.b, term.a))
        if isinstance(here, User) and isinstance(there, This) and place
    }
    return place, users


def _beside(place: Place, metres: float) -> Place:
    """A place so far from another one, to the east; up to rounding, which is for the evaluator to judge."""
    if place.coordinates == "planar":
        return Place("planar", place.x + metres, place.y)
    x, y, _ = wgs84().fwd(place.x, place.y, 90.0, metres)
    return Place("geographic", float(x), float(y))


def _event(own: dict[str, Value], attributes: list[tuple[str, Value]], place: Place | None) -> Event:
    return Event(str(own["id"]), str(own["type"]), str(own["source"]), place=place, attributes=tuple(attributes))
