"""Conditions of rules and actions: filters over classes; kinds and units that clash; what no reading can fulfil.

Readings count in the unit of their class. So what is compared, added or subtracted has one unit, or is a literal, which
is in the unit of what it stands beside; products and quotients have the product or quotient of units.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Literal

from nearcast.errors import Fault, Mark
from nearcast.filters.surroundings import asked_of_surroundings
from nearcast.language import cql2
from nearcast.language.cql2.syntax import Syntax
from nearcast.language.cql2.types import EXAMPLES, Type, type_of
from nearcast.language.definitions.subscription_documents import BRANCHES, read_filter
from nearcast.language.nodes import DocumentNode, DocumentReader, closest
from nearcast.model.expression import COMPARISONS, PREVIOUS, Array, Call, Expression, Property, parts
from nearcast.model.filter import (
    And,
    Atom,
    Count,
    Entities,
    Filter,
    Not,
    Operator,
    Or,
    PlainNot,
    ReceiverReading,
    atoms,
)
from nearcast.model.limits import Limits
from nearcast.model.ontology import Ontology, below
from nearcast.model.situation import Situation
from nearcast.model.subscription import Settings
from nearcast.situations import units
from nearcast.situations.counts.entity_counts import count_of
from nearcast.situations.rule_plan import names_in, names_of, range_of, unit_of
from nearcast.state.windows import SECOND, aggregates_in

Stated = Literal["open"] | str | None
"""A unit, None where the ontology states none; "open": a literal, or what is not followed up."""

_TEXTS = ("CASEI", "ACCENTI", "LIKE")


@dataclass(frozen=True, slots=True)
class _Kind:
    """What the values of an expression are: their type, their unit, and the classes that they come of, as told."""

    type: Type
    unit: Stated
    told: str


def clashes(atom: Atom, ontology: Ontology) -> Iterator[Fault]:
    """What a computed condition holds against each other though it has another kind or unit."""
    if not isinstance(atom.name, Call):
        return
    for part in parts(atom.name):
        if isinstance(part, Call):
            texts = [_kind(one, ontology) for one in part.arguments] if part.function in _TEXTS else []
            wrong = next((one for one in texts if one.type == "number"), None)
            if wrong is not None:
                yield Fault("a class of texts", _described(wrong), atom.where, f"{part.function} is of texts")
            pairs = ((_kind(a, ontology), _kind(b, ontology)) for a, b in _pairs(part))
            yield from (fault for a, b in pairs if (fault := _clash(a, b, atom)) is not None)


def _pairs(call: Call) -> Iterator[tuple[Expression, Expression]]:
    """The arguments that must be alike."""
    if call.function in (*COMPARISONS, "+", "-"):
        yield call.arguments[0], call.arguments[1]
    elif call.function in ("BETWEEN", "IN"):
        first, *others = call.arguments
        for other in others:
            yield from ((first, one) for one in (other.items if isinstance(other, Array) else (other,)))


def _clash(a: _Kind, b: _Kind, atom: Atom) -> Fault | None:
    if "any" not in (a.type, b.type) and a.type != b.type:
        return Fault(f"{EXAMPLES[a.type]} to compare with {a.told}", _described(b), atom.where)
    if a.unit == "open" or b.unit == "open" or _alike(a.unit, b.unit):
        return None
    if a.unit is None:
        a, b = b, a
    advice = f"give {b.told} that unit in the ontology"
    if a.unit is not None and b.unit is not None:
        convertible = units.conversion(b.unit, a.unit) is not None
        advice += ": readings in others are converted" if convertible else ", or leave this out"
    return Fault(f"a value in {a.unit} beside {a.told}", _described(b), atom.where, advice)


def _alike(a: str | None, b: str | None) -> bool:
    return a == b or units.conversion(a or "dimensionless", b or "dimensionless") == units.SAME


def _described(kind: _Kind) -> str:
    if kind.unit == "open":
        return f"{EXAMPLES[kind.type]}, {kind.told}" if kind.type in EXAMPLES else kind.told
    return f"{kind.told}, in {kind.unit}" if kind.unit is not None else f"{kind.told}, which has no unit"


def _kind(expression: Expression, ontology: Ontology) -> _Kind:
    if isinstance(expression, Property):
        unit = unit_of(ontology, expression.name)
        numeric = unit is not None or range_of(ontology, expression.name) != (None, None)
        return _Kind("number" if numeric else "any", unit, expression.name)
    told = " and ".join(part.name for part in parts(expression) if isinstance(part, Property)) or "a literal"
    if isinstance(expression, Call) and expression.function in ("+", "-", "*", "/", "DIV", "%"):
        left, right = (_kind(one, ontology) for one in expression.arguments)
        return _Kind("number", _combined(expression.function, left.unit, right.unit), told)
    if isinstance(expression, Call) and expression.function in ("AVG", "MAX", "MIN", "SUM"):
        return _Kind("number", _kind(expression.arguments[0], ontology).unit, told)
    return _Kind(type_of(expression), "open", told)


def _combined(function: str, left: Stated, right: Stated) -> Stated:
    """The unit of what is computed of values in two units."""
    if function in ("+", "-"):
        return right if left == "open" else left
    if function == "%" or right == "open":
        return left
    if left == "open":
        return right if function == "*" else "open"
    found = units.product(left or "dimensionless", right or "dimensionless", over=function != "*")
    return "open" if found is None else found


def read_conditions(
    node: DocumentNode, settings: Settings, reader: DocumentReader, alone: bool = False
) -> Filter | None:
    """Conditions over classes and situations, or over situations `alone`; None after a fault, each at the condition
    that is wrong.
    """
    weighted = read_filter(node, settings.levels, reader, over_time=True)
    if weighted is None:
        return None
    before = len(reader.faults)
    if any(value is not None for value in weighted.relevance):
        reader.fault("conditions", node, "relevance is for subscriptions", came="a relevance")
    if _has_plain_not(weighted.filter):
        reader.fault("not", node, "what is unknown counts neither as true nor as false", came="unless")
    bare = {(str(one.value), one.where) for one in _alone(node)}
    for atom in atoms(weighted.filter):
        for fault in _faults(atom, settings.ontology, bare, alone):
            reader.note_raised(fault)
    return weighted.filter if len(reader.faults) == before else None


def _has_plain_not(node: Filter) -> bool:
    if isinstance(node, (And, Or)):
        return any(_has_plain_not(child) for child in node.children)
    return isinstance(node, PlainNot) or (isinstance(node, Not) and _has_plain_not(node.child))


def _alone(node: DocumentNode) -> Iterator[Syntax]:
    """The names that stand as conditions without being compared; the filter made of a node no longer tells."""
    if isinstance(node.value, list):
        for item in node.value:
            yield from _alone(item)
    elif isinstance(node.value, dict) and "op" not in node.value:
        for name in (*BRANCHES, "when"):
            if name in node.value:
                yield from _alone(node.value[name])
    else:
        yield from cql2.names_alone(node)


def _faults(atom: Atom, ontology: Ontology, bare: set[tuple[str, Mark]], alone: bool) -> Iterator[Fault]:
    """What is wrong with one condition of a rule."""
    if isinstance(atom.name, Count):
        yield from _count_faults(atom, atom.name, alone)
        return
    calls = [part for part in parts(atom.name) if isinstance(part, Call)] if isinstance(atom.name, Call) else []
    outside = [call.function for call in calls if call.function in (*PREVIOUS, "USER")]
    if not isinstance(atom.name, (str, Call)) or outside:
        came = outside[0] if outside else "a distance or count"
        yield Fault("a condition over classes and situations", came, atom.where, "within says how near readings are")
        return
    if atom.operator is Operator.IS_NULL or any(call.function == "IS NULL" for call in calls):
        yield Fault("a condition over values", "IS NULL", atom.where, "a missing reading makes a condition unknown")
    yield from _unknown(atom, ontology, alone)
    # Where situations alone are asked for, a class is wrong however it is compared.
    if not alone:
        yield from clashes(atom, ontology)
    if not alone and isinstance(atom.name, str) and atom.name in (one.name for one in ontology.classes):
        yield from _unlike(atom, atom.name, ontology, bare)


def _count_faults(atom: Atom, count: Count, alone: bool) -> Iterator[Fault]:
    """What is wrong with a count of entities."""
    form = "a count of entities, count(uform(conditions)) >= 20"
    if alone:
        yield Fault("a situation", "a count of entities", atom.where, "write a rule that concludes a situation from it")
    elif count.around is not None:
        advice = "within, or in, says where they are counted"
        yield Fault(form, "one around something, within metres", atom.where, advice)
    elif not isinstance(count.of, Entities):
        yield Fault(form, "a count of something else", atom.where)
    elif any(isinstance(value, ReceiverReading) for value in atom.literals):
        yield Fault("a number to compare the count with", "me", atom.where, "rules have no receiver")
    elif count.of.conditions is not None:
        for one in atoms(count.of.conditions):
            came = asked_of_surroundings(one)
            if came:
                advice = "who counts is decided by each entity's newest report alone"
                yield Fault("a condition on one event alone", came, one.where, advice)


def _unknown(atom: Atom, ontology: Ontology, alone: bool) -> Iterator[Fault]:
    """Names that the ontology has not, and situations that are compared."""
    situations = [one.name for one in ontology.situations]
    known = situations if alone else [*(one.name for one in ontology.classes), *situations]
    classes = [one.name for one in ontology.classes]
    expected = "a situation of the ontology" if alone else "a class or situation of the ontology"
    for name in dict.fromkeys(names_in(atom)):
        if alone and name in classes:
            advice = "write a rule that concludes a situation from it"
            yield Fault("a situation", f"{name}, a class of readings", atom.where, advice)
        elif name not in known:
            advice = closest(name, known) or ("add it to the ontology" if known else "define an ontology")
            yield Fault(expected, name, atom.where, advice)
        elif name in situations and not _asks_whether(atom):
            yield Fault(f"{name} or NOT {name}", f"{name} {atom.operator} …", atom.where, "a situation is or is not")


def _asks_whether(atom: Atom) -> bool:
    return isinstance(atom.name, str) and atom.operator is Operator.EQ and isinstance(atom.value, bool)


def _unlike(atom: Atom, name: str, ontology: Ontology, bare: set[tuple[str, Mark]]) -> Iterator[Fault]:
    """A class without a comparison, or one whose values are numbers compared with something else."""
    own = unit_of(ontology, name)
    numeric = own is not None or range_of(ontology, name) != (None, None)
    if atom.where is not None and (name, atom.where) in bare:
        example = f"{name} > 10" if numeric else f"{name} = TRUE"
        yield Fault("a comparison, or a situation", f"{name} alone", atom.where, f"for example: {example}")
    elif numeric and atom.operator is not Operator.IS_NULL:
        other = next((value for value in atom.literals if isinstance(value, (str, bool))), None)
        if other is not None:
            unit = f", in {own}" if own is not None else ""
            came = str(other).upper() if isinstance(other, bool) else f"'{other[:80]}'"
            yield Fault(f"a number to compare with {name}{unit}", came, atom.where, f"for example: {name} > 10")


Range = tuple[float, float]


def hardly_meant(filter: Filter, ontology: Ontology, negated: bool = False) -> Iterator[Fault]:
    """A warning for each such condition; `negated`: what is asked is whether it is false."""
    if isinstance(filter, Not):
        yield from hardly_meant(filter.child, ontology, not negated)
    elif isinstance(filter, (And, Or)):
        for child in filter.children:
            yield from hardly_meant(child, ontology, negated)
    elif isinstance(filter, Atom) and isinstance(filter.name, str):
        yield from _of_atom(filter, filter.name, ontology, negated)


def never_kept(when: Filter, limits: Limits) -> Iterator[Fault]:
    """A warning for each aggregate over more than is kept: readings of so long ago, or so many, or so many entities."""
    for atom in atoms(when):
        count = count_of(atom)
        if count is not None and count.enough > limits.counted_entities:
            what = f"at most {limits.counted_entities:,} entities, which are counted"
            yield Fault(what, cql2.write(atom), atom.where, "raise counted_entities in limits")
        for one in aggregates_in(atom.name) if isinstance(atom.name, Call) else ():
            if one.span > limits.entity_age * SECOND:
                what = f"a time of at most {limits.entity_age:g} s, for which a silent entity is kept"
                yield Fault(what, one.text, atom.where, "make entity_age in limits longer")
            if one.least > limits.window_readings:
                what = f"at most {limits.window_readings:,} readings, which are kept of an entity"
                yield Fault(what, one.text, atom.where, "raise window_readings in limits")


def unprovided(rules: Iterable[Situation], ontology: Ontology, attributes: Collection[str]) -> Iterator[Fault]:
    """A warning for each rule and class of which events with these attributes alone have no reading."""
    classes = {one.name: one for one in ontology.classes}
    told = set(attributes) | {name.removesuffix(".value") for name in attributes}
    read = {one.name for one in ontology.classes if told & {one.name, *(name for name, _ in one.attributes)}}
    under = below(ontology.serving())
    for rule in rules:
        for name in names_of(rule.when):
            if name in classes and not read & under[name]:
                where = next(atom.where for atom in atoms(rule.when) if name in names_in(atom))
                yield Fault(f"a reading of {name}", "none in these events", where, f"{rule.id} waits for it")


def _of_atom(atom: Atom, name: str, ontology: Ontology, negated: bool) -> Iterator[Fault]:
    classes = [one.name for one in ontology.classes]
    serving = [one for one in sorted(below(ontology.serving()).get(name, ())) if one in classes]
    numbers = [value for value in atom.literals if isinstance(value, (int, float)) and not isinstance(value, bool)]
    if not serving or not numbers or len(numbers) < len(atom.literals):
        return
    ranges = [_bounds(ontology, one) for one in serving]
    wanted = "an atom that can be false" if negated else "an atom that can hold"
    if not any(_has(atom.operator, numbers, found, not negated) for found in ranges):
        low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
        yield Fault(wanted, cql2.write(atom), atom.where, f"readings of {name} are {_shown(low, high)}")
    units = dict.fromkeys(unit for one in serving if (unit := unit_of(ontology, one)) is not None)
    if len(units) > 1:
        what, served = f"a condition on values of one unit, not {name}", f"values in {', '.join(units)}"
        yield Fault(what, served, atom.where, f"name one of {', '.join(one for one in serving if one != name)}")


def _bounds(ontology: Ontology, name: str) -> Range:
    low, high = range_of(ontology, name)
    return -inf if low is None else low, inf if high is None else high


def _shown(low: float, high: float) -> str:
    if low == -inf:
        return f"at most {high:g}"
    return f"at least {low:g}" if high == inf else f"from {low:g} to {high:g}"


def _has(operator: Operator, limits: list[float], among: Range, wanted: bool) -> bool:
    """Whether a range has a number for which a comparison is true, or not; False only where that is certain."""
    (low, high), limit = among, limits[0]
    match operator:
        case Operator.GT:
            return high > limit if wanted else low <= limit
        case Operator.GE:
            return high >= limit if wanted else low < limit
        case Operator.LT:
            return low < limit if wanted else high >= limit
        case Operator.LE:
            return low <= limit if wanted else high > limit
        case Operator.BETWEEN:
            first, last = limits
            return low <= last and first <= high if wanted else not (first <= low and high <= last)
        case Operator.EQ | Operator.IN:
            return any(low <= one <= high for one in limits) if wanted else low < high or low not in limits
        case _:
            return True
