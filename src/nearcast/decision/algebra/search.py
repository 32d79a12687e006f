"""Looking for an event that meets demands: assumptions are tried, and given up where no event can meet them.

The way is led by candidates: from what is assumed so far an event is made; only a choice that it does not meet is
worth branching on. Trying is exponential at worst, so the number of assumptions has a limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_

from nearcast.decision.algebra.demands import Choice, Condition, Demand, Joint, Riddle, Variable
from nearcast.decision.algebra.patterns import Undecided
from nearcast.decision.algebra.value_sets import NO_VALUES, Values
from nearcast.decision.truths import Truth
from nearcast.model.filter import Atom
from nearcast.model.values import Value, kind_of

STEPS = 100_000
"""How many choices one question may look at, each time it does: about a second."""

_TRUTHS: frozenset[Truth] = frozenset({True, False, None})


@dataclass(frozen=True, slots=True)
class Known:
    """What is assumed of one variable: some value in each of `some`, none in `none`, all within its domain."""

    some: tuple[Values, ...] = ()
    none: Values = NO_VALUES

    def with_demand(self, demand: Demand) -> Known | None:
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


def _possible(values: Values, none: Values) -> bool:
    try:
        return (values - none).some() is not None
    except Undecided:
        return True


@dataclass(frozen=True, slots=True)
class Candidate:
    """The values of each variable, and the truths of what is not known here, that would meet some assumptions."""

    values: Mapping[Variable, tuple[Value, ...]]
    riddles: Mapping[Atom, frozenset[Truth]]

    def meets(self, condition: Condition) -> bool:
        """Whether it meets a condition, as far as can be told."""
        match condition:
            case Demand(variable, values, some):
                return some == any(value in values for value in self._of(variable))
            case Riddle(atom, truths):
                # What is left open may turn out as any truth, so all of them have to do.
                return self.riddles.get(atom, _TRUTHS) <= truths
            case Joint(parts):
                return all(self.meets(part) for part in parts)
            case Choice(parts):
                return any(self.meets(part) for part in parts)

    def _of(self, variable: Variable) -> tuple[Value, ...]:
        return self.values.get(variable) or _chosen(variable, Known())


def _chosen(variable: Variable, known: Known) -> tuple[Value, ...]:
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


def _shared(known: Known) -> Value | None:
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
class Assumptions:
    """What is assumed, and the choices still to be made."""

    known: Mapping[Variable, Known] = field(default_factory=dict)
    riddles: Mapping[Atom, frozenset[Truth]] = field(default_factory=dict)
    choices: tuple[Choice, ...] = ()

    def assume(self, condition: Condition) -> Assumptions | None:
        """With one more condition; None if no event can meet them all."""
        known, riddles, choices = dict(self.known), dict(self.riddles), list[Choice]()
        waiting = [condition]
        while waiting:
            match waiting.pop():
                case Joint(parts):
                    waiting.extend(parts)
                # Choices wait: most are met by what the rest demands, and are never branched on.
                case Choice() as choice:
                    choices.append(choice)
                case Riddle(atom, truths):
                    riddles[atom] = riddles.get(atom, _TRUTHS) & truths
                    if not riddles[atom]:
                        return None
                case Demand() as demand:
                    after = known.get(demand.variable, Known()).with_demand(demand)
                    if after is None:
                        return None
                    known[demand.variable] = after
        return Assumptions(known, riddles, (*self.choices, *choices) if choices else self.choices)

    def candidate(self) -> Candidate | None:
        """Values that would meet what is assumed; None where they cannot be told."""
        try:
            values = {variable: _chosen(variable, known) for variable, known in self.known.items()}
        except Undecided:
            return None
        return Candidate(values, self.riddles)
