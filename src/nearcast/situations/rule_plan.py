"""Rules made ready: negation at the conditions, in the order of their dependencies; what their conditions are about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from nearcast.filters.evaluate import satisfies
from nearcast.filters.spatial_atoms import spatial_atoms
from nearcast.filters.truth import COMPARE, negated
from nearcast.model.expression import Call, Property, parts
from nearcast.model.filter import And, Atom, Filter, Not, Operator, Or, atoms
from nearcast.model.ontology import ContextClass, Ontology, below, cycle, upwards
from nearcast.model.situation import Situation
from nearcast.model.values import Value
from nearcast.situations.condition_margins import widened
from nearcast.situations.counts.entity_counts import EntityCount, count_of
from nearcast.situations.readings import SituationCentre
from nearcast.situations.zone_areas import layer_prefix, zone_at
from nearcast.state.windows import SECOND as SECOND
from nearcast.state.windows import Aggregate, aggregates_in, by_name


def names_of(filter: Filter) -> tuple[str, ...]:
    """The names that a filter's conditions are about, each once, in the order of the text."""
    return tuple(dict.fromkeys(name for atom in atoms(filter) for name in names_in(atom)))


def names_in(atom: Atom) -> Iterator[str]:
    """The names that one condition is about, perhaps repeatedly."""
    if isinstance(atom.name, str):
        yield atom.name
    elif isinstance(atom.name, Call):
        yield from (part.name for part in parts(atom.name) if isinstance(part, Property))


def counts_of(filter: Filter) -> dict[str, EntityCount]:
    """What a filter's conditions count, by how it is written."""
    found = (count_of(atom) for atom in atoms(filter))
    return {one.name: one for one in found if one is not None}


def reach(ontology: Ontology, name: str) -> float | None:
    """The metres within which readings of a class hold by default: its own, else the nearest above it that has one."""
    return next((one.within for one in _with_those_above(ontology, name) if one.within is not None), None)


def unit_of(ontology: Ontology, name: str) -> str | None:
    """The unit of a class: its own, else that of the nearest above it that has one."""
    return next((one.unit for one in _with_those_above(ontology, name) if one.unit is not None), None)


def range_of(ontology: Ontology, name: str) -> tuple[float | None, float | None]:
    """Between what the readings of a class are, None for no bound: within its own range and those above it."""
    found = list(_with_those_above(ontology, name))
    low = max((one.low for one in found if one.low is not None), default=None)
    return low, min((one.high for one in found if one.high is not None), default=None)


def with_inherited(ontology: Ontology, one: ContextClass) -> ContextClass:
    """A class with the unit and the range that it has from those above it too."""
    low, high = range_of(ontology, one.name)
    return replace(one, unit=unit_of(ontology, one.name), low=low, high=high)


def _with_those_above(ontology: Ontology, name: str) -> Iterator[ContextClass]:
    classes = {one.name: one for one in ontology.classes}
    yield from (classes[one] for one in upwards(ontology.parents(), name) if one in classes)


def standing_on(rules: Iterable[Situation], ontology: Ontology) -> dict[str, tuple[str, ...]]:
    """For each rule, by its id, the rules that must be decided before it.

    Those that conclude what it names, or something that is one; and what the necessary conditions of its class name.
    """
    listed = list(rules)
    concluding: dict[str, list[str]] = {}
    for one in listed:
        concluding.setdefault(one.concludes, []).append(one.id)
    return {
        one.id: tuple(dict.fromkeys(id for sub in lower for id in concluding.get(sub, ())))
        for one, lower in _below(listed, ontology)
    }


def _below(rules: Sequence[Situation], ontology: Ontology) -> Iterator[tuple[Situation, Iterator[str]]]:
    """Each rule with the classes of what must be decided before it."""
    under, above = below(ontology.serving()), ontology.parents()
    necessary = [one for one in rules if not one.sufficient]
    for one in rules:
        over = set(upwards(above, one.concludes)) if one.sufficient and necessary else set()
        named = [*names_of(one.when)]
        named += [name for other in necessary if other.concludes in over for name in names_of(other.when)]
        yield one, (sub for name in named for sub in sorted(under.get(name, {name})))


def rule_cycle(rules: Iterable[Situation], ontology: Ontology) -> tuple[str, ...] | None:
    """A way from a rule over what it stands on back to itself, by ids; None if there is none."""
    listed = list(rules)
    # Of a class a rule stands on all that conclude it, so there is a way through rules just where one leads through
    # what they conclude; and of that there is little, where of rules on rules there may be millions.
    dependencies: dict[str, dict[str, None]] = {}
    for one, lower in _below(listed, ontology):
        dependencies.setdefault(one.concludes, {}).update(dict.fromkeys(lower))
    if cycle({name: tuple(lower) for name, lower in dependencies.items()}) is None:
        return None
    return cycle(standing_on(listed, ontology))


def in_order(dependencies: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Rules so that each comes after all it stands on; else in the order that they have. There is no cycle."""
    done: dict[str, None] = {}
    for start in dependencies:
        waiting = [start]
        while waiting:
            lacking = [lower for lower in dependencies.get(waiting[-1], ()) if lower not in done]
            if lacking:
                waiting.append(lacking[0])
            else:
                done[waiting.pop()] = None
    return list(done)


@dataclass(frozen=True, slots=True, eq=False)
class ConditionLeaf:
    """One condition, or its negation. `situation`: the class of situations that it asks for, if it does. `compares`:
    what compares a number with `limit`, where the condition is nothing else. `number`: which of its rule's it is.
    `aggregates` are those over a time that it computes with; in `computed`, which is what it computes, they are
    attributes. `counted`: what it counts, if it compares a count of entities. `spatial`: whether it compares
    geometries.
    """

    atom: Atom
    names: tuple[str, ...]
    negated: bool
    situation: str | None
    compares: Callable[[float, float], bool] | None = None
    limit: float = 0.0
    number: int = 0
    aggregates: tuple[Aggregate, ...] = ()
    computed: Call | None = None
    counted: EntityCount | None = None
    spatial: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ConditionBranch:
    """`every`: holds if all parts hold; else if some part does. `by_work` are the parts in the order in which they are
    looked at: last those that compare geometries, by themselves or in a rule below, where the others do not decide.
    """

    every: bool
    parts: tuple[ConditionNode, ...]
    by_work: tuple[ConditionNode, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_work", self.by_work or self.parts)


ConditionNode = ConditionLeaf | ConditionBranch


@dataclass(slots=True, eq=False)
class PlannedRule:
    """A rule made ready. `against` holds where the rule is false; `after`: it sees events behind this position.

    `reach` has the metres around a centre for each name, `widest` the greatest of them; `horizon` is how far away a
    reading may be that matters at all, by rules below too, `touched` the classes of such, `zones` how the places begin
    that are the zones into which it looks, `touched_zones` those of rules below, and `contributing` the
    conditions by which one may complete the rule. `necessary` are the rules that must not be false where this one
    holds. `steady`: while what it rests on stays, it holds, whatever else is read. `hidden`: it is an action's, and
    concludes nothing. `counts` is what it counts where it holds already; `ends_by_counts`: reports of entities end what
    holds only where these are too few; `only_counts`: it has no other conditions. `spatial`: it compares geometries, or
    a rule below does. `held` is `tree` with the margins of what holds already. In microseconds are `valid`, and for how
    long it must hold, or not, before a situation begins or ends: `begin` and `end`.
    """

    id: str
    concludes: str
    order: int
    after: int
    tree: ConditionNode
    against: ConditionNode
    reach: Mapping[str, float]
    widest: float
    area: str | None
    valid: int | None
    zones: str | None = None
    hidden: bool = False
    begin: int = 0
    end: int = 0
    held: ConditionNode = field(default_factory=lambda: ConditionBranch(True, ()))
    necessary: tuple[PlannedRule, ...] = ()
    horizon: float = 0.0
    touched: frozenset[str] = frozenset()
    touched_areas: frozenset[str] = frozenset()
    touched_zones: frozenset[str] = frozenset()
    contributing: tuple[ConditionLeaf, ...] = ()
    steady: bool = False
    counts: tuple[EntityCount, ...] = ()
    ends_by_counts: bool = False
    only_counts: bool = False
    spatial: bool = False

    @property
    def counting(self) -> bool:
        """Whether it counts entities."""
        return bool(self.counts)

    def area_at(self, centre: SituationCentre) -> str | None:
        """The place in which it looks around a centre; None: within metres."""
        return self.area if self.zones is None else zone_at(centre.areas, self.zones)

    def seats(self, centre: SituationCentre) -> Iterable[SituationCentre]:
        """The centres at which it looks where a reading comes: one in each of the zones that it looks into."""
        if self.zones is None:
            return (centre,)
        others = frozenset(one for one in centre.areas if not one.startswith(self.zones))
        own = sorted(one for one in centre.areas if one.startswith(self.zones))
        return [centre._replace(areas=others | {one}) for one in own]


@dataclass(slots=True, eq=False)
class RulePlan:
    """All rules of one ontology, lower ones first.

    `served`: for every name the classes that serve a request for it. `concluding`: for a class of situations the
    sufficient rules that conclude it; `demanding`: the necessary ones that it, or what it is, must not contradict;
    `zones`: those into which rules look.
    """

    ontology: Ontology
    rules: tuple[PlannedRule, ...] = ()
    served: Mapping[str, frozenset[str]] = field(default_factory=dict)
    concluding: Mapping[str, tuple[PlannedRule, ...]] = field(default_factory=dict)
    demanding: Mapping[str, tuple[PlannedRule, ...]] = field(default_factory=dict)
    above: Mapping[str, tuple[PlannedRule, ...]] = field(default_factory=dict)
    by_id: Mapping[str, PlannedRule] = field(default_factory=dict)
    zones: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DefinedRule:
    """A rule as it was defined: at which position, and whether it is only an action's."""

    rule: Situation
    after: int = 0
    hidden: bool = False


def plan(ontology: Ontology, defined: Iterable[DefinedRule]) -> RulePlan:
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
    found = RulePlan(ontology, tuple(rule for rule in rules if rule not in necessary), served, concluding, demanding)
    if any(leaf.spatial for rule in rules for leaf in leaves(rule.tree)):
        _set_spatial(rules, found)
    found.by_id = {rule.id: rule for rule in found.rules}
    for number, rule in enumerate(found.rules):
        rule.order = number
        rule.necessary = () if rule.hidden else demanding[rule.concludes]
        _spread(rule, found)
    found.above = {name: tuple(rule for rule in found.rules if name in rule.touched) for name in situations}
    return found


def _set_spatial(rules: Iterable[PlannedRule], found: RulePlan) -> None:
    """Lets rules know where geometries are compared, and compare them last. Lower rules come first."""
    known: dict[str, bool] = {}

    def below(name: str) -> bool:
        """Whether a rule for a class, or one that it must not contradict, compares geometries."""
        if name not in known:
            lower = (*found.concluding.get(name, ()), *found.demanding.get(name, ()))
            known[name] = any(one.spatial or is_spatial(one.tree) for one in lower)
        return known[name]

    def is_spatial(node: ConditionNode) -> bool:
        """Whether conditions compare geometries."""
        if isinstance(node, ConditionBranch):
            return any(map(is_spatial, node.parts))
        return node.spatial or (node.situation is not None and below(node.situation))

    def ordered(node: ConditionNode) -> ConditionNode:
        """The same conditions, those that compare geometries last."""
        if isinstance(node, ConditionLeaf):
            return node
        parts = tuple(map(ordered, node.parts))
        return ConditionBranch(node.every, parts, tuple(sorted(parts, key=is_spatial)))

    for rule in rules:
        demanding = () if rule.hidden else found.demanding.get(rule.concludes, ())
        rule.spatial = is_spatial(rule.tree) or any(is_spatial(one.tree) for one in demanding)
        if rule.spatial:
            held = rule.held is not rule.tree
            rule.tree, rule.against = ordered(rule.tree), ordered(rule.against)
            rule.held = ordered(rule.held) if held else rule.tree


def _demanding(
    name: str, necessary: Sequence[PlannedRule], above: Mapping[str, tuple[str, ...]]
) -> tuple[PlannedRule, ...]:
    over = set(upwards(above, name))
    return tuple(rule for rule in necessary if rule.concludes in over)


def _rule(one: DefinedRule, ontology: Ontology, situations: set[str]) -> PlannedRule:
    rule = one.rule
    tree = _tree(rule.when, False, situations, count())
    # Numbered like the other tree: a condition is the same one in both.
    against = _tree(rule.when, True, situations, count())
    counts = counts_of(rule.when)
    names = (*names_of(rule.when), *counts)
    own = {name: reach(ontology, name) for name in names}
    reaches = [metres for metres in own.values() if metres is not None]
    widest = rule.within if rule.within is not None else max(reaches, default=0.0)
    metres = {name: widest if rule.within is not None or far is None else far for name, far in own.items()}
    valid = None if rule.valid is None else round(rule.valid * SECOND)
    begin, end = round(rule.begin * SECOND), round(rule.end * SECOND)
    held = _held(tree, dict(rule.margins)) if rule.margins else tree
    return PlannedRule(
        rule.id, rule.concludes, 0, one.after, tree, against, metres, widest, rule.area, valid,
        None if rule.layer is None else layer_prefix(rule.layer), one.hidden, begin, end,
        held, counts=tuple(leaf.counted for leaf in leaves(held) if leaf.counted is not None),
    )  # fmt: skip


def _tree(filter: Filter, negated: bool, situations: set[str], numbers: Iterator[int]) -> ConditionNode:
    """The conditions with NOT at the leaves, numbered in order: De Morgan's rules hold for three truths too."""
    if isinstance(filter, Atom):
        counted = count_of(filter)
        if counted is not None:
            return ConditionLeaf(filter, (counted.name,), negated, None, number=next(numbers), counted=counted)
        names = tuple(dict.fromkeys(names_in(filter)))
        asked = names[0] if names and names[0] in situations else None
        # `Drill = FALSE` is NOT Drill.
        flipped = asked is not None and filter.value is False
        compares, limit = None, 0.0
        if isinstance(filter.name, str) and filter.operator in COMPARE and type(filter.value) in (int, float):
            compares, limit = COMPARE[filter.operator], filter.value  # type: ignore[assignment]
        leaf = ConditionLeaf(filter, names, negated != flipped, asked, compares, limit, next(numbers))
        return _computed(leaf, filter.name) if isinstance(filter.name, Call) else leaf
    if isinstance(filter, Not):
        return _tree(filter.child, not negated, situations, numbers)
    assert isinstance(filter, (And, Or)), "rules hold no plain negation"
    return ConditionBranch(
        isinstance(filter, And) != negated,
        tuple(_tree(child, negated, situations, numbers) for child in filter.children),
    )


def _held(node: ConditionNode, margins: Mapping[str, float]) -> ConditionNode:
    """Conditions as what holds already has them; each has the number that it has in the other tree."""
    if isinstance(node, ConditionBranch):
        return ConditionBranch(node.every, tuple(_held(part, margins) for part in node.parts))
    atom = widened(node.atom, node.negated, margins)
    if node.counted is not None:
        return replace(node, atom=atom, counted=count_of(atom))
    if isinstance(atom.name, Call):
        return _computed(replace(node, atom=atom), atom.name)
    limit = atom.value if node.compares is not None and isinstance(atom.value, (int, float)) else node.limit
    return replace(node, atom=atom, limit=limit)


def _computed(leaf: ConditionLeaf, call: Call) -> ConditionLeaf:
    aggregates, computed = aggregates_in(call), by_name(call)
    assert isinstance(computed, Call), "a condition is a comparison"
    spatial = any(spatial_atoms(leaf.atom))
    return replace(leaf, aggregates=aggregates, computed=computed, spatial=spatial)


def spans_of(rules: Iterable[PlannedRule], served: Mapping[str, frozenset[str]]) -> dict[str, int]:
    """For how many microseconds readings of each class are asked for by aggregates of some rules."""
    spans: dict[str, int] = {}
    for rule in rules:
        for aggregate in (one for leaf in leaves(rule.tree) for one in leaf.aggregates):
            for name in served.get(aggregate.name, (aggregate.name,)):
                spans[name] = max(spans.get(name, 0), aggregate.span)
    return spans


def leaves(node: ConditionNode) -> Iterator[ConditionLeaf]:
    """The conditions of a tree in document order."""
    if isinstance(node, ConditionLeaf):
        yield node
    else:
        for part in node.parts:
            yield from leaves(part)


def _spread(rule: PlannedRule, found: RulePlan) -> None:
    """Fills in what matters to a rule, through the rules below it too."""
    own = list(_deep(rule, rule.tree, found))
    lower = [pair for one in rule.necessary for pair in _deep(one, one.against, found)]
    names = [(one, name) for one, leaf in (*own, *lower) for name in leaf.names]
    # With a margin a situation rests on what makes no condition hold by itself.
    rule.steady = not rule.necessary and rule.held is rule.tree and _is_steady(rule.tree)
    rule.ends_by_counts = rule.counting and not rule.necessary and _ends_by_counts(rule.held)
    rule.only_counts = len(rule.counts) == len(list(leaves(rule.held)))
    rule.contributing = tuple(dict.fromkeys(leaf for _, leaf in own))
    rule.touched = frozenset(sub for _, name in names for sub in found.served.get(name, (name,)))
    rule.touched_areas = frozenset(one.area for one, _ in names if one.area is not None)
    rule.touched_zones = frozenset(one.zones for one, _ in names if one.zones is not None and one is not rule)
    rule.horizon = max([rule.widest, *(one.reach[name] for one, name in names)])


def _is_steady(node: ConditionNode) -> bool:
    """Whether nothing but plain conditions on readings must hold: then no other reading can make it false."""
    if isinstance(node, ConditionBranch):
        return node.every and all(_is_steady(part) for part in node.parts)
    return isinstance(node.atom.name, str) and not node.negated and node.situation is None


def _ends_by_counts(node: ConditionNode) -> bool:
    """Whether all counts of a tree are of so many at least and must be, and nothing else of it is about entities."""
    top = node.parts if isinstance(node, ConditionBranch) and node.every else (node,)
    counted = [one for one in top if isinstance(one, ConditionLeaf) and one.counted is not None]
    others = [leaf for one in top if one not in counted for leaf in leaves(one)]
    return all(asks_for_more(one) for one in counted) and not any(one.counted or one.situation for one in others)


def asks_for_more(leaf: ConditionLeaf) -> bool:
    """Whether a condition holds where at least so many count, and only there."""
    return not leaf.negated and leaf.atom.operator in (Operator.GT, Operator.GE)


def _deep(rule: PlannedRule, tree: ConditionNode, found: RulePlan) -> Iterator[tuple[PlannedRule, ConditionLeaf]]:
    """The conditions of a tree, and those that make false what it denies, each with the rule that it is of."""
    for leaf in leaves(tree):
        yield rule, leaf
        # A situation that is asked for tells when it begins; that there is none may follow from any reading.
        if leaf.situation is not None and leaf.negated:
            for one in (*found.concluding[leaf.situation], *found.demanding[leaf.situation]):
                yield from _deep(one, one.against, found)


def satisfied(leaf: ConditionLeaf, value: Value) -> bool:
    """Whether one value alone makes a condition hold; the values of several classes are judged together only, and of a
    count it is known of one more.
    """
    if leaf.counted is not None:
        return value is True
    if isinstance(leaf.atom.name, Call):
        return True
    found = (value if isinstance(value, bool) else None) if leaf.situation is not None else satisfies(leaf.atom, value)
    return (negated(found) if leaf.negated else found) is True
