"""Conditions of rules that are hardly meant: no reading can fulfil them, by the ranges of classes; they mix units; or
nobody provides readings for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from math import inf

from nearcast.decision.infer.names import names_in, names_of, range_of, unit_of
from nearcast.errors import Fault
from nearcast.language import cql2
from nearcast.model.filter import And, Atom, Filter, Not, Operator, Or, atoms
from nearcast.model.ontology import Ontology, below
from nearcast.model.situation import Situation

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
