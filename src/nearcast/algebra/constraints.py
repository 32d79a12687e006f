"""What a filter demands of an event: which values its names must have some of, which none; also through expressions.

Every atom holds for some value (semantics §2), so a filter is a tree of demands "some value of this name is in that
set" and "none is". Atoms of which nothing is known here (`OpaqueConstraint`) are told apart by equality alone.

Every atom holds for some value (semantics §2), so a filter is a tree of demands "some value of this name is in that
set" and "none is". Atoms of which nothing is known here (`OpaqueConstraint`) are told apart by equality alone.

A call that reads nothing of an event has one truth. `CASEI(name) = CASEI('x')` is a comparison of one expression with
literals: the expression has values as an attribute has, of which no more is known. And of the two ways in which most
relations between two expressions can be written, one is taken for both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache

from nearcast.algebra.intervals import INTEGERS, NUMBERS, Intervals
from nearcast.algebra.texts import Undecided
from nearcast.algebra.value_sets import ALL_VALUES, NUMBER_VALUES, TEXT_VALUES, ValueSet, satisfying, united
from nearcast.filters.evaluate import NO_CONTEXT, EventFacts, RequiredTruth, atom_truth
from nearcast.filters.expressions import values_of
from nearcast.filters.normal_form import Every, Form, Literal, plain_form
from nearcast.filters.truth import Truth
from nearcast.model.event import Event
from nearcast.model.expression import ARITHMETIC, COMPARISONS, Call, Constant, Expression, Property, parts
from nearcast.model.filter import Atom, Count, Distance, Entities, Filter, Operator
from nearcast.model.values import kind_of

TEXTS = frozenset({"CASEI", "ACCENTI"})
"""Functions whose values are texts."""

_PLAIN = frozenset({*ARITHMETIC, *TEXTS})
_FORMS = frozenset({*COMPARISONS, "IN", "BETWEEN", "LIKE"})
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CONVERSE = {
    **{one: one for one in ("=", "<>", "T_EQUALS", "T_DISJOINT", "T_INTERSECTS", "A_EQUALS", "A_OVERLAPS")},
    **{f"S_{one}": f"S_{one}" for one in ("INTERSECTS", "DISJOINT", "EQUALS", "TOUCHES", "CROSSES", "OVERLAPS")},
    **{">": "<", ">=": "<=", "S_WITHIN": "S_CONTAINS", "T_AFTER": "T_BEFORE", "T_DURING": "T_CONTAINS"},
    **{"T_METBY": "T_MEETS", "T_STARTEDBY": "T_STARTS", "T_FINISHEDBY": "T_FINISHES"},
    **{"T_OVERLAPPEDBY": "T_OVERLAPS", "A_CONTAINEDBY": "A_CONTAINS"},
}
"""The relation that says the same with its sides changed; of two that are each other's, the one that is not kept."""

_BARE = EventFacts(Event("", "", ""), NO_CONTEXT)


def reads_nothing(expression: Expression) -> bool:
    """Whether an expression is the same for all events."""
    return not any(
        isinstance(part, Property) or (isinstance(part, Call) and part.function == "USER") for part in parts(expression)
    )


def constant_truth(atom: Atom) -> Truth:
    """The truth of an atom that reads nothing."""
    return atom_truth(atom, _BARE.event, NO_CONTEXT)


def about_one(atom: Atom) -> Atom | None:
    """The atom of an attribute's, or an expression's, values and literals that a comparison is; None if it is none."""
    call = atom.name
    if not isinstance(call, Call) or call.function not in _FORMS:
        return None
    function, (subject, *others) = call.function, call.arguments
    if function in COMPARISONS and reads_nothing(subject):
        subject, others, function = others[0], [subject], _FLIPPED.get(function, function)
    values = [
        value for other in others if reads_nothing(other) for value in values_of(other, _BARE) if _is_literal(value)
    ]
    if not _is_plain(subject) or len(values) < len(others):
        return None
    # Between literals of two kinds a text that names a moment is where an attribute's is not.
    if function == "BETWEEN" and kind_of(values[0]) != kind_of(values[1]):
        return None
    name = subject.name if isinstance(subject, Property) else subject
    several = function in ("IN", "BETWEEN")
    return Atom(name, Operator(function), tuple(values) if several else values[0])  # type: ignore[arg-type]


def _is_literal(value: object) -> bool:
    return isinstance(value, (bool, int, float, str, datetime))


def _is_plain(expression: Expression) -> bool:
    """Whether an expression is of attributes, literals, arithmetic and texts, and of the event itself."""
    return not reads_nothing(expression) and all(
        isinstance(part, (Property, Constant)) or (isinstance(part, Call) and part.function in _PLAIN)
        for part in parts(expression)
    )


def turned(atom: Atom) -> Atom:
    """The atom that stands for this one and for what says the same with its sides changed."""
    call = atom.name
    other = _CONVERSE.get(call.function) if isinstance(call, Call) else None
    if not isinstance(call, Call) or other is None:
        return atom
    changed = Call(other, call.arguments[::-1])
    same = other == call.function and repr(call) <= repr(changed)
    return atom if same else Atom(changed, atom.operator, atom.value)


def read_alone(expression: Expression) -> str | None:
    """The attribute that an expression of texts is about, if it is about one alone."""
    while isinstance(expression, Call) and expression.function in TEXTS:
        expression = expression.arguments[0]
    return expression.name if isinstance(expression, Property) else None


OWN = ("id", "type", "source")
"""Attributes that every event has once, as text."""


@dataclass(frozen=True, slots=True)
class Premises:
    """What else is known of every event: no attribute has several values (`single`); every number is an integer."""

    single: bool = False
    integers: bool = False


NOTHING_ASSUMED = Premises()


@dataclass(frozen=True, slots=True)
class Variable:
    """Something that has values in an event: an attribute, a distance, a count, an expression. `domain`: which it can
    have.

    `single`: at most one; `required`: at least one; `whole`: its numbers are integers. All that follows from the name
    and what is assumed, so the name alone counts for equality.
    """

    name: str | Distance | Count | Call
    domain: ValueSet = field(default=ALL_VALUES, compare=False)
    single: bool = field(default=False, compare=False)
    required: bool = field(default=False, compare=False)
    whole: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class ValueConstraint:
    """Some value of the variable is in the set (`some`), or none is."""

    variable: Variable
    values: ValueSet
    some: bool


@dataclass(frozen=True, slots=True)
class OpaqueConstraint:
    """The truth of an atom of which nothing is known is one of these."""

    atom: Atom
    truths: frozenset[Truth]


@dataclass(frozen=True, slots=True)
class AllOf:
    """All parts are met."""

    parts: tuple[Constraint, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Some part is met."""

    parts: tuple[Constraint, ...]


Constraint = ValueConstraint | OpaqueConstraint | AllOf | AnyOf


def demanded(filter: Filter, assumed: Premises = NOTHING_ASSUMED) -> Constraint:
    """What an event must meet for the filter to be TRUE."""
    return _condition(plain_form(filter), assumed)


def _condition(form: Form, assumed: Premises) -> Constraint:
    if isinstance(form, Literal):
        return _literal(form.atom, form.wanted, assumed)
    return join(isinstance(form, Every), [_condition(part, assumed) for part in form.parts])


def join(joint: bool, parts: Iterable[Constraint]) -> Constraint:
    """Parts of which all, or one, must be met; demands that together are one demand are united."""
    kind = AllOf if joint else AnyOf
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, kind) else (part,))]
    once = tuple(dict.fromkeys(_united(flat, joint)))
    return once[0] if len(once) == 1 else kind(once)


def _united(parts: list[Constraint], joint: bool) -> list[Constraint]:
    """No value in A and none in B: none in their union. One in A or one in B: one in their union."""
    together: dict[Variable, list[ValueSet]] = {}
    rest: list[Constraint] = []
    for part in parts:
        if isinstance(part, ValueConstraint) and part.some != joint:
            together.setdefault(part.variable, []).append(part.values)
        else:
            rest.append(part)
    # Some of A and some of B is no demand on their intersection: two values may do it.
    for variable, sets in together.items():
        try:
            rest.append(ValueConstraint(variable, united(sets), not joint))
        except Undecided:
            # Too many patterns for one set: they stay apart, which is as right and only slower.
            rest += [ValueConstraint(variable, values, not joint) for values in sets]
    return rest


@lru_cache(maxsize=16_384)
def _literal(atom: Atom, wanted: RequiredTruth, assumed: Premises) -> Constraint:
    if isinstance(atom.name, Call):
        # Of repeated names only so many choices count, so what is said otherwise may not be the same.
        atom = ((about_one(atom) or turned(atom)) if assumed.single else None) or atom
    if isinstance(atom.name, Call) and reads_nothing(atom.name):
        return AllOf(()) if wanted.holds(constant_truth(atom)) else AnyOf(())
    variable = _variable(atom, assumed)
    if variable is None:
        return OpaqueConstraint(atom, frozenset(truth for truth in (True, False, None) if wanted.holds(truth)))
    if atom.operator is Operator.IS_NULL:
        return ValueConstraint(variable, variable.domain, not wanted.holds(True))
    try:
        holding, comparable = (values & variable.domain for values in satisfying(atom, variable.whole))
        # With one value at most, FALSE is simply: a value that compares and does not satisfy.
        if variable.single and wanted in (RequiredTruth.FALSE, RequiredTruth.NOT_FALSE):
            return ValueConstraint(variable, comparable - holding, wanted is RequiredTruth.FALSE)
    except Undecided:
        return OpaqueConstraint(atom, frozenset(truth for truth in (True, False, None) if wanted.holds(truth)))
    some, none = ValueConstraint(variable, holding, True), ValueConstraint(variable, holding, False)
    match wanted:
        case RequiredTruth.TRUE:
            return some
        case RequiredTruth.NOT_TRUE:
            return none
        # No value satisfies, and one at least compares: else it would be UNKNOWN.
        case RequiredTruth.FALSE:
            return join(True, [ValueConstraint(variable, comparable, True), none])
    return join(False, [some, ValueConstraint(variable, comparable, False)])


@lru_cache(maxsize=4096)
def _named(name: str, assumed: Premises) -> Variable:
    if name in OWN:
        return Variable(name, TEXT_VALUES, single=True, required=True)
    return Variable(name, _attribute_values(assumed), single=assumed.single, whole=assumed.integers)


def _attribute_values(assumed: Premises) -> ValueSet:
    return ALL_VALUES if not assumed.integers else ALL_VALUES - ValueSet(nan=True)


def _variable(atom: Atom, assumed: Premises) -> Variable | None:
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
        return Variable(name, ValueSet(numbers=_from_zero(), nan=True), single=not several)
    if type(name) is Count:
        # Without a centre there is always a count; around a place that nobody knows there is none.
        alone = name.around is None or name.within is None
        return Variable(name, ValueSet(numbers=_from_zero(whole=True)), single=True, required=alone, whole=True)
    return None


_KNOWN = frozenset(Operator)


def _from_zero(whole: bool = False) -> Intervals:
    return (INTEGERS if whole else NUMBERS).compared(Operator.GE, 0)
