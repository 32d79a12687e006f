"""Rules made ready: conditions with NOT at the leaves, in the order in which rules stand on each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from nearcast.decision.infer.names import in_order, names_in, names_of, reach, standing_on
from nearcast.decision.truths import COMPARE
from nearcast.model.filter import And, Atom, Filter, Not, Or
from nearcast.model.ontology import Ontology, below, upwards
from nearcast.model.situation import Situation

SECOND = 1_000_000
"""Moments and durations are whole microseconds: sums of them are exact."""


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """One condition, or its negation. `situation`: the class of situations that it asks for, if it does. `compares`:
    what compares a number with `limit`, where the condition is nothing else. `number`: which of its rule's it is.
    """

    atom: Atom
    names: tuple[str, ...]
    negated: bool
    situation: str | None
    compares: Callable[[float, float], bool] | None = None
    limit: float = 0.0
    number: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Joint:
    """`every`: holds if all parts hold; else if some part does."""

    every: bool
    parts: tuple[Node, ...]


Node = Leaf | Joint


@dataclass(slots=True, eq=False)
class Rule:
    """A rule made ready. `against` holds where the rule is false; `after`: it sees events behind this position.

    `reach` has the metres around a centre for each name, `widest` the greatest of them; `horizon` is how far away a
    reading may be that matters at all, by rules below too, `touched` the classes of such, and `contributing` the
    conditions by which one may complete the rule. `necessary` are the rules that must not be false where this one
    holds. `steady`: while what it rests on stays, it holds, whatever else is read. `valid` is in microseconds.
    `hidden`: it is an action's, and concludes nothing.
    """

    id: str
    concludes: str
    order: int
    after: int
    tree: Node
    against: Node
    reach: Mapping[str, float]
    widest: float
    area: str | None
    valid: int | None
    hidden: bool = False
    necessary: tuple[Rule, ...] = ()
    horizon: float = 0.0
    touched: frozenset[str] = frozenset()
    touched_areas: frozenset[str] = frozenset()
    contributing: tuple[Leaf, ...] = ()
    steady: bool = False


@dataclass(slots=True, eq=False)
class Plan:
    """All rules of one ontology, lower ones first.

    `served`: for every name the classes that serve a request for it. `concluding`: for a class of situations the
    sufficient rules that conclude it; `demanding`: the necessary ones that it, or what it is, must not contradict.
    """

    ontology: Ontology
    rules: tuple[Rule, ...] = ()
    served: Mapping[str, frozenset[str]] = field(default_factory=dict)
    concluding: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)
    demanding: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)
    above: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)
    by_id: Mapping[str, Rule] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Defined:
    """A rule as it was defined: at which position, and whether it is only an action's."""

    rule: Situation
    after: int = 0
    hidden: bool = False


def plan(ontology: Ontology, defined: Iterable[Defined]) -> Plan:
    """What is made of some rules together; none of them stands on itself."""
    listed = {one.rule.id: one for one in defined}
    order = in_order(standing_on((one.rule for one in listed.values()), ontology))
    under, above = below(ontology.serving()), ontology.parents()
    served = {name: under.get(name, frozenset({name})) for name in above}
    # Actions last: they stand on everything, and nothing on them.
    order.sort(key=lambda id: listed[id].hidden)
    situations = {one.name for one in ontology.situations}
    rules = [_rule(listed[id], ontology, situations) for id in order]
    sufficient = [rule for rule in rules if listed[rule.id].rule.sufficient and not rule.hidden]
    necessary = [rule for rule in rules if not listed[rule.id].rule.sufficient]
    concluding = {name: tuple(rule for rule in sufficient if rule.concludes in served[name]) for name in situations}
    demanding = {name: _demanding(name, necessary, above) for name in situations}
    found = Plan(ontology, tuple(rule for rule in rules if rule not in necessary), served, concluding, demanding)
    found.by_id = {rule.id: rule for rule in found.rules}
    for number, rule in enumerate(found.rules):
        rule.order = number
        rule.necessary = () if rule.hidden else demanding[rule.concludes]
        _spread(rule, found)
    found.above = {name: tuple(rule for rule in found.rules if name in rule.touched) for name in situations}
    return found


def _demanding(name: str, necessary: Sequence[Rule], above: Mapping[str, tuple[str, ...]]) -> tuple[Rule, ...]:
    over = set(upwards(above, name))
    return tuple(rule for rule in necessary if rule.concludes in over)


def _rule(one: Defined, ontology: Ontology, situations: set[str]) -> Rule:
    rule = one.rule
    tree = _tree(rule.when, False, situations, count())
    # Numbered like the other tree: a condition is the same one in both.
    against = _tree(rule.when, True, situations, count())
    names = names_of(rule.when)
    own = {name: reach(ontology, name) for name in names}
    told = [metres for metres in own.values() if metres is not None]
    widest = rule.within if rule.within is not None else max(told, default=0.0)
    metres = {name: widest if rule.within is not None or far is None else far for name, far in own.items()}
    valid = None if rule.valid is None else round(rule.valid * SECOND)
    return Rule(rule.id, rule.concludes, 0, one.after, tree, against, metres, widest, rule.area, valid, one.hidden)


def _tree(filter: Filter, negated: bool, situations: set[str], numbers: Iterator[int]) -> Node:
    """The conditions with NOT at the leaves, numbered in order: De Morgan's rules hold for three truths too."""
    if isinstance(filter, Atom):
        names = tuple(dict.fromkeys(names_in(filter)))
        asked = names[0] if names and names[0] in situations else None
        # `Drill = FALSE` is NOT Drill.
        flipped = asked is not None and filter.value is False
        compares, limit = None, 0.0
        if isinstance(filter.name, str) and filter.operator in COMPARE and type(filter.value) in (int, float):
            compares, limit = COMPARE[filter.operator], filter.value  # type: ignore[assignment]
        return Leaf(filter, names, negated != flipped, asked, compares, limit, next(numbers))
    if isinstance(filter, Not):
        return _tree(filter.child, not negated, situations, numbers)
    assert isinstance(filter, (And, Or)), "rules hold no plain negation"
    return Joint(
        isinstance(filter, And) != negated,
        tuple(_tree(child, negated, situations, numbers) for child in filter.children),
    )


def leaves(node: Node) -> Iterator[Leaf]:
    """The conditions of a tree in document order."""
    if isinstance(node, Leaf):
        yield node
    else:
        for part in node.parts:
            yield from leaves(part)


def _spread(rule: Rule, found: Plan) -> None:
    """Fills in what matters to a rule, through the rules below it too."""
    own = list(_deep(rule, rule.tree, found))
    lower = [pair for one in rule.necessary for pair in _deep(one, one.against, found)]
    names = [(one, name) for one, leaf in (*own, *lower) for name in leaf.names]
    rule.steady = not rule.necessary and _is_steady(rule.tree)
    rule.contributing = tuple(dict.fromkeys(leaf for _, leaf in own))
    rule.touched = frozenset(sub for _, name in names for sub in found.served.get(name, (name,)))
    rule.touched_areas = frozenset(one.area for one, _ in names if one.area is not None)
    rule.horizon = max([rule.widest, *(one.reach[name] for one, name in names)])


def _is_steady(node: Node) -> bool:
    """Whether nothing but plain conditions on readings must hold: then no other reading can make it false."""
    if isinstance(node, Joint):
        return node.every and all(_is_steady(part) for part in node.parts)
    return isinstance(node.atom.name, str) and not node.negated and node.situation is None


def _deep(rule: Rule, tree: Node, found: Plan) -> Iterator[tuple[Rule, Leaf]]:
    """The conditions of a tree, and those that make false what it denies, each with the rule that it is of."""
    for leaf in leaves(tree):
        yield rule, leaf
        # A situation that is asked for tells when it begins; that there is none may follow from any reading.
        if leaf.situation is not None and leaf.negated:
            for one in (*found.concluding[leaf.situation], *found.demanding[leaf.situation]):
                yield from _deep(one, one.against, found)
