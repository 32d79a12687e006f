"""What a filter demands of an event: which values its names must have some of, and which none of.

Every atom holds for some value (SEMANTICS §2), so a filter is a tree of demands "some value of this name is in that
set" and "none is". Atoms of which nothing is known here (`Riddle`) are told apart by equality alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from nearcast.decision.algebra.expressions import TEXTS, about_one, constant_truth, reads_nothing, turned
from nearcast.decision.algebra.grids import INTEGERS, NUMBERS
from nearcast.decision.algebra.intervals import Intervals
from nearcast.decision.algebra.patterns import Undecided
from nearcast.decision.algebra.value_sets import ALL_VALUES, NUMBER_VALUES, TEXT_VALUES, Values, satisfying, united
from nearcast.decision.evaluate import Wanted
from nearcast.decision.normal_form import Every, Form, Literal, plain_form
from nearcast.decision.truths import Truth
from nearcast.model.expression import ARITHMETIC, Call
from nearcast.model.filter import Atom, Count, Distance, Entities, Filter, Operator

OWN = ("id", "type", "source")
"""Attributes that every event has once, as text."""


@dataclass(frozen=True, slots=True)
class Assumed:
    """What else is known of every event: no attribute has several values (`single`); every number is an integer."""

    single: bool = False
    integers: bool = False


NOTHING_ASSUMED = Assumed()


@dataclass(frozen=True, slots=True)
class Variable:
    """Something that has values in an event: an attribute, a distance, a count, an expression. `domain`: which it can
    have.

    `single`: at most one; `required`: at least one; `whole`: its numbers are integers. All that follows from the name
    and what is assumed, so the name alone counts for equality.
    """

    name: str | Distance | Count | Call
    domain: Values = field(default=ALL_VALUES, compare=False)
    single: bool = field(default=False, compare=False)
    required: bool = field(default=False, compare=False)
    whole: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Demand:
    """Some value of the variable is in the set (`some`), or none is."""

    variable: Variable
    values: Values
    some: bool


@dataclass(frozen=True, slots=True)
class Riddle:
    """The truth of an atom of which nothing is known is one of these."""

    atom: Atom
    truths: frozenset[Truth]


@dataclass(frozen=True, slots=True)
class Joint:
    """All parts are met."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Some part is met."""

    parts: tuple[Condition, ...]


Condition = Demand | Riddle | Joint | Choice


def demanded(filter: Filter, assumed: Assumed = NOTHING_ASSUMED) -> Condition:
    """What an event must meet for the filter to be TRUE."""
    return _condition(plain_form(filter), assumed)


def _condition(form: Form, assumed: Assumed) -> Condition:
    if isinstance(form, Literal):
        return _literal(form.atom, form.wanted, assumed)
    return join(isinstance(form, Every), [_condition(part, assumed) for part in form.parts])


def join(joint: bool, parts: Iterable[Condition]) -> Condition:
    """Parts of which all, or one, must be met; demands that together are one demand are united."""
    kind = Joint if joint else Choice
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, kind) else (part,))]
    once = tuple(dict.fromkeys(_united(flat, joint)))
    return once[0] if len(once) == 1 else kind(once)


def _united(parts: list[Condition], joint: bool) -> list[Condition]:
    """No value in A and none in B: none in their union. One in A or one in B: one in their union."""
    together: dict[Variable, list[Values]] = {}
    rest: list[Condition] = []
    for part in parts:
        if isinstance(part, Demand) and part.some != joint:
            together.setdefault(part.variable, []).append(part.values)
        else:
            rest.append(part)
    # Some of A and some of B is no demand on their intersection: two values may do it.
    for variable, sets in together.items():
        try:
            rest.append(Demand(variable, united(sets), not joint))
        except Undecided:
            # Too many patterns for one set: they stay apart, which is as right and only slower.
            rest += [Demand(variable, values, not joint) for values in sets]
    return rest


@lru_cache(maxsize=16_384)
def _literal(atom: Atom, wanted: Wanted, assumed: Assumed) -> Condition:
    if isinstance(atom.name, Call):
        # Of repeated names only so many choices count, so what is said otherwise may not be the same.
        atom = ((about_one(atom) or turned(atom)) if assumed.single else None) or atom
    if isinstance(atom.name, Call) and reads_nothing(atom.name):
        return Joint(()) if wanted.holds(constant_truth(atom)) else Choice(())
    variable = _variable(atom, assumed)
    if variable is None:
        return Riddle(atom, frozenset(truth for truth in (True, False, None) if wanted.holds(truth)))
    if atom.operator is Operator.IS_NULL:
        return Demand(variable, variable.domain, not wanted.holds(True))
    try:
        holding, comparable = (values & variable.domain for values in satisfying(atom, variable.whole))
        # With one value at most, FALSE is simply: a value that compares and does not satisfy.
        if variable.single and wanted in (Wanted.FALSE, Wanted.NOT_FALSE):
            return Demand(variable, comparable - holding, wanted is Wanted.FALSE)
    except Undecided:
        return Riddle(atom, frozenset(truth for truth in (True, False, None) if wanted.holds(truth)))
    some, none = Demand(variable, holding, True), Demand(variable, holding, False)
    match wanted:
        case Wanted.TRUE:
            return some
        case Wanted.NOT_TRUE:
            return none
        # No value satisfies, and one at least compares: else it would be UNKNOWN.
        case Wanted.FALSE:
            return join(True, [Demand(variable, comparable, True), none])
    return join(False, [some, Demand(variable, comparable, False)])


@lru_cache(maxsize=4096)
def _named(name: str, assumed: Assumed) -> Variable:
    if name in OWN:
        return Variable(name, TEXT_VALUES, single=True, required=True)
    return Variable(name, _attribute_values(assumed), single=assumed.single, whole=assumed.integers)


def _attribute_values(assumed: Assumed) -> Values:
    return ALL_VALUES if not assumed.integers else ALL_VALUES - Values(nan=True)


def _variable(atom: Atom, assumed: Assumed) -> Variable | None:
    """What an atom is about; None where that is not known here."""
    name = atom.name
    if atom.operator not in _KNOWN:
        return None
    # By exact type: whatever else an atom may be about is not known here, and is a riddle.
    if type(name) is str:
        return _named(name, assumed)
    if atom.operator is Operator.IS_NULL:
        return None
    if type(name) is Call and name.function in (*ARITHMETIC, *TEXTS):
        return Variable(name, TEXT_VALUES if name.function in TEXTS else NUMBER_VALUES, single=True)
    if type(name) is Distance:
        # From either end it should be the same, but on the ellipsoid that is true up to rounding only.
        # Between two single places there is one distance at most; with entities on a side there may be many.
        several = isinstance(name.a, Entities) or isinstance(name.b, Entities)
        return Variable(name, Values(numbers=_from_zero(), nan=True), single=not several)
    if type(name) is Count:
        # Without a centre there is always a count; around a place that nobody knows there is none.
        alone = name.around is None or name.within is None
        return Variable(name, Values(numbers=_from_zero(whole=True)), single=True, required=alone, whole=True)
    return None


_KNOWN = frozenset(Operator)


def _from_zero(whole: bool = False) -> Intervals:
    return (INTEGERS if whole else NUMBERS).compared(Operator.GE, 0)
