"""Whether anybody but guarded relations may want an event, asked where it enters; the same as filters for publishers.

The filters of subscriptions are held against the one event. What else they need — where users are, which event came
before — is not known there; an atom about it may be TRUE or FALSE.

The filters select whatever `InterestIndex` wants, and more: what else a filter rests on (where a client is) may be so
or not, and negation that also holds of the unknown, which CQL2 cannot say, may hold of anything. Each filter comes in
its alternatives, for a routing table covers and merges conjunctions best.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product
from math import prod

from nearcast.filters.evaluate import NO_CONTEXT, UNDER_NOT, UNDER_PLAIN_NOT, EventFacts, RequiredTruth, atom_truth
from nearcast.filters.expressions import truth_of
from nearcast.filters.receiver_terms import asked_of_receiver
from nearcast.model.event import Event, Place
from nearcast.model.expression import PREVIOUS, Call, parts
from nearcast.model.filter import And, Atom, Count, Distance, Entities, Filter, Not, Operator, Or, PlainNot, This, atoms
from nearcast.model.geometry_budget import EventGeometryWork
from nearcast.model.limits import Limits
from nearcast.model.relation import ListMembers, Matching, Named, Pair, Relation
from nearcast.model.subscription import ClientProfile, Roles, Subscription
from nearcast.relations.predicate import side_aggregates
from nearcast.relations.sides import sees_derived, sides_of
from nearcast.routing.filter_index import FilterIndex
from nearcast.state.registry import Registry
from nearcast.suppression.guarded import ProximityRelation, is_guarded

STEP = 5_000
"""Work of a step, of which some milliseconds go by: definitions that are looked at; one that is read counts for `READ`,
a filter that is asked for `ASKED`.
"""
READ, ASKED = 100, 10

REMEMBERED = 10_000
"""Of so many types it is remembered whether they are wanted, until definitions change."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What one definition may want: all that a filter may select, all of an entity, or whatever there is."""

    filters: tuple[Filter, ...] = ()
    entities: tuple[str, ...] = ()
    all: bool = False
    by_role: bool = False
    """Whether it wants whatever there is where a role has a relevance of 0."""


Known = dict[str, tuple[object, Demand]]
"""By the id of a definition what it was read from, and what it wants."""


class InterestIndex:
    """All that may want events beside guarded relations; without `guards` these too, as if there were none.

    Without guards nothing is kept, either, of what is not wanted: then a relation may want any event if an entity is on
    its side by what its newest event says, for any other ends that, and if it tells what time alone brings.

    It follows one registry: `follow_definitions` reads anew what is not as before, and says it to `heard`. With `node`
    only what matters to events that enter there counts.
    """

    def __init__(self, registry: Registry, guards: bool = True, node: str | None = None) -> None:
        self._guards, self._node = guards, node
        self._filters = FilterIndex()
        self._entities: Counter[str] = Counter()
        self._greedy: Counter[str] = Counter()
        self.all = False
        """Whether any event may be wanted."""
        self.heard: Callable[[str, Demand | None], None] | None = None
        """Hears of each definition, by its kind and id, what it wants from now on; None: it is gone."""
        self._subscriptions: Known = {}
        self._relations: Known = {}
        self._types: dict[str, bool] = {}
        self._seen: tuple[Registry, int] | None = None
        self.follow_definitions(registry)

    def follows(self, registry: Registry) -> bool:
        """Whether it knows the definitions as they are now."""
        return self._seen is not None and self._seen[0] is registry and self._seen[1] == registry.version

    def follow_definitions(self, registry: Registry) -> None:
        """Takes the definitions as they are now; at no cost where nothing was folded into them."""
        for _ in self.follow_in_steps(registry):
            pass

    def follow_in_steps(self, registry: Registry) -> Iterator[None]:
        """The same in steps, between which the registry may change, and this may be asked or follow it on another way:
        what changed meanwhile is taken the next time, see `follows`.
        """
        if self.follows(registry):
            return
        version, work = registry.version, 0
        # Again at the end: what is remembered in between may rest on a part of the definitions.
        self._types = {}
        for id in [*registry.subscriptions]:
            one, known = registry.subscriptions.get(id), self._subscriptions.get(id)
            work += 1
            if one is not None and (known is None or known[0] is not one):
                self._replace(self._subscriptions, id, (one, _demand_of_subscription(one)))
                work += READ
            if work >= STEP:
                work = 0
                yield
        self._follow_others(registry)
        self._seen, self._types = (registry, version), {}

    def _follow_others(self, registry: Registry) -> None:
        relations = {id: one for id, one in registry.relations.items() if self._is_here(one)}
        for relation in relations.values():
            basis = (relation, _lists(relation, registry.clients))
            before = self._relations.get(relation.id)
            if before is None or before[0] != basis:
                self._replace(self._relations, relation.id, (basis, self._demand_of_relation(*basis)))
        self._forget(self._subscriptions, registry.subscriptions)
        self._forget(self._relations, relations)
        self.all = bool(
            # Situations read whatever there is; to zones also what is not watched any more is news.
            registry.situations
            or registry.zones
            or registry.actions
            or self._greedy["always"]
            or (self._greedy["by role"] and _roles_lack_atoms(registry.settings.roles))
        )

    def _is_here(self, relation: Relation) -> bool:
        return self._node is None or relation.node in (None, self._node)

    def _forget(self, known: Known, now: Mapping[str, object]) -> None:
        if len(known) > len(now):
            for id in known.keys() - now.keys():
                self._replace(known, id, None)

    def _replace(self, known: Known, id: str, now: tuple[object, Demand] | None) -> None:
        if self.heard is not None:
            self.heard(self._key(known, id), None if now is None else now[1])
        before = known.pop(id, None)
        if before is not None:
            for filter in before[1].filters:
                self._filters.remove_filter(filter)
            self._count(before[1], -1)
        if now is not None:
            known[id] = now
            for filter in now[1].filters:
                self._filters.add_filter(filter)
            self._count(now[1], 1)

    def demands(self) -> dict[str, Demand]:
        """What each definition wants, by its kind and id."""
        both = (self._subscriptions, self._relations)
        return {self._key(known, id): demand for known in both for id, (_, demand) in known.items()}

    def _key(self, known: Known, id: str) -> str:
        return f"{'relation' if known is self._relations else 'subscription'} {id}"

    def _count(self, demand: Demand, step: int) -> None:
        for entity in demand.entities:
            self._entities[entity] += step
            if not self._entities[entity]:
                del self._entities[entity]
        self._greedy["always"] += step * demand.all
        self._greedy["by role"] += step * demand.by_role

    def _demand_of_relation(self, relation: Relation, lists: tuple[str, ...]) -> Demand:
        """The filters of its sides, and the names of those that are named."""
        if self._guards and is_guarded(relation):
            return Demand()
        sides = list(sides_of(relation))
        filters = tuple(side.filter for side in sides if isinstance(side, Matching))
        entities = tuple(side.entity for side in sides if isinstance(side, Named))
        over_time = isinstance(relation.about, Pair) and bool(side_aggregates(relation.about.when))
        # A window has all reports of its entity, also those by which it is of no side.
        greedy = sees_derived(relation) or _need_others(filters) or (over_time and bool(filters))
        if not self._guards:
            timed = relation.lasting is not None or relation.time_to_live is not None or over_time
            greedy = greedy or timed or bool(filters)
        return Demand(filters, entities + lists, greedy)

    def wants(self, event: Event) -> bool:
        """Whether anybody may want the event."""
        if self.all or event.entity in self._entities:
            return True
        # What takes so much work that the pipeline leaves it undecided is not looked at here, either.
        work = EventGeometryWork(Limits())
        return any(may_select(filter, event, work=work) or work.beyond for filter in self._filters.for_event(event))

    def wants_type(self, type: str) -> bool:
        """Whether anybody may want some event of a type, whatever else it says."""
        steps = self.type_in_steps(type)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return bool(end.value)

    def type_in_steps(self, type: str) -> Generator[None, None, bool]:
        """The same in steps; it gives what was so at the first of them."""
        if self.all or self._entities:
            return True
        remembered = self._types
        found = remembered.get(type)
        if found is None:
            event, found = Event("", type, ""), False
            for number, filter in enumerate(tuple(self._filters.for_type(type)), 1):
                if may_select(filter, event, is_open=_is_not_type):
                    found = True
                    break
                if not number * ASKED % STEP:
                    yield
            # Where definitions changed meanwhile, this is not what is remembered of them.
            if len(remembered) < REMEMBERED:
                remembered[type] = found
        return found

    def wants_of(self, entity: str, type: str) -> bool:
        """Whether anybody may want some event of an entity and a type, whatever else it says."""
        if self.all or entity in self._entities:
            return True
        return any(_may_be(filter, entity, type) for filter in self._filters.for_type(type))


def may_meet(proximity_relation: ProximityRelation, entity: str, type: str) -> bool:
    """Whether some event of an entity and a type may be of a side of a relation between any entities."""
    return any(
        side.entity == entity if isinstance(side, Named) else _may_be(side.filter, entity, type)
        for side in (proximity_relation.a, proximity_relation.b)
    )


def _may_be(filter: Filter, entity: str, type: str) -> bool:
    """Whether a filter may select an event of an entity and a type, whatever else it says."""
    # A name with a space may be of a source and a subject.
    is_open = _is_not_type if " " in entity else _is_not_named
    return may_select(filter, Event("", type, "", entity), is_open=is_open)


def _demand_of_subscription(subscription: Subscription) -> Demand:
    relevance = subscription.relevance
    # An atom of the relevance 0 is absent: the filter without it may select what the whole does not.
    greedy = _need_others((subscription.filter,)) or (relevance is not None and 0 in relevance)
    return Demand((subscription.filter,), (), greedy, relevance is None)


def _lists(relation: Relation, clients: Mapping[str, ClientProfile]) -> tuple[str, ...]:
    """The entities in the lists that a relation is about."""
    buddies = [side for side in sides_of(relation) if isinstance(side, ListMembers) and side.client in clients]
    return tuple(entity for side in buddies for entity in clients[side.client].lists.get(side.list, ()))


def _need_others(filters: Iterable[Filter]) -> bool:
    return any(_needs_others(atom) for filter in filters for atom in atoms(filter))


def _roles_lack_atoms(roles: Roles) -> bool:
    """Whether an atom may have the relevance 0 by a role."""
    return any(0 in vector for vectors in roles.vectors.values() for vector in vectors.values())


def _may_hold(atom: Atom, event: Event, wanted: RequiredTruth, work: EventGeometryWork | None) -> bool:
    if not isinstance(atom.name, Call):
        return wanted.holds(atom_truth(atom, event, NO_CONTEXT))
    if work is not None and work.beyond:
        return True
    facts = EventFacts(event, NO_CONTEXT)
    found = truth_of(atom.name, facts)
    if work is not None:
        work.count(facts.work)
    # Settings may allow more work than is done here.
    return wanted.holds(found) or bool(facts.work.beyond)


Open = Callable[[Atom], bool]


def may_select(
    node: Filter,
    event: Event,
    wanted: RequiredTruth = RequiredTruth.TRUE,
    is_open: Open | None = None,
    work: EventGeometryWork | None = None,
) -> bool:
    """Whether a filter may select an event, whatever is known besides it: atoms that are open may have any truth, and
    those for which no `work` on geometries is left.
    """
    is_open = is_open or rests_on_more
    if isinstance(node, Atom):
        return is_open(node) or _may_hold(node, event, wanted, work)
    if isinstance(node, (Not, PlainNot)):
        under = (UNDER_NOT if isinstance(node, Not) else UNDER_PLAIN_NOT)[wanted]
        return may_select(node.child, event, under, is_open, work)
    found = (may_select(child, event, wanted, is_open, work) for child in node.children)
    return all(found) if isinstance(node, And) == wanted.joint else any(found)


def _is_not_named(atom: Atom) -> bool:
    """Whether an atom asks for more than the event's type and what it is about."""
    return atom.name not in ("type", "subject")


def _is_not_type(atom: Atom) -> bool:
    """Whether an atom asks for more than the event's type."""
    return atom.name != "type"


def rests_on_more(atom: Atom) -> bool:
    """Whether an atom rests on more than the event."""
    if isinstance(atom.name, Distance):
        return any(not isinstance(one, (This, Place)) for one in (atom.name.a, atom.name.b))
    if isinstance(atom.name, Call):
        others = any(isinstance(part, Call) and part.function in ("USER", *PREVIOUS) for part in parts(atom.name))
        return others or asked_of_receiver(atom)[0]
    return isinstance(atom.name, Count)


def _needs_others(atom: Atom) -> bool:
    """Whether an atom rests on other events, so that one that it does not select may still count for it."""
    match atom.name:
        case Distance(a, b):
            return isinstance(a, Entities) or isinstance(b, Entities)
        case Count():
            return True
        case Call():
            return any(isinstance(part, Call) and part.function in PREVIOUS for part in parts(atom.name))
    return False


ALL = Atom(Call("TRUE", ()), Operator.EQ, True)
"""Selects every event."""

ALTERNATIVES = 16
"""A conjunction of disjunctions that would have more alternatives than this stays as it is."""


MOST_ATOMS = 200
"""Atoms of a filter that is held against others: what that takes grows faster than they do."""


def outward(demand: Demand, is_open: Open = rests_on_more) -> tuple[Filter, ...] | None:
    """The filters of a wish, each once; None: it may want any event. Atoms that are open may have any truth."""
    # Not `source` where there is no subject: data that is named `subject` would be taken for one.
    found: list[Filter] = [
        Atom(name, Operator.EQ, entity) for entity in demand.entities for name in ("subject", "source")
    ]
    # Of a source and a subject, the subject is behind the first space; of the source alone the spaces are written out.
    found += [Atom("subject", Operator.EQ, one.partition(" ")[2]) for one in demand.entities if " " in one]
    found += [Atom("source", Operator.EQ, one.replace("%20", " ")) for one in demand.entities if "%20" in one]
    for filter in demand.filters:
        seen = _seen(filter, RequiredTruth.TRUE, is_open)
        if seen is None:
            return None
        alternatives = [_shortened(one) for one in _alternatives(seen)]
        if None in alternatives:
            return None
        found += [one for one in alternatives if one is not None]
    return None if demand.all else tuple(dict.fromkeys(found))


def _seen(node: Filter, wanted: RequiredTruth, is_open: Open) -> Filter | None:
    """The filter that selects the events of which a filter's truth may be as wanted; None: any event."""
    if isinstance(node, Atom):
        if is_open(node) or wanted in (RequiredTruth.NOT_TRUE, RequiredTruth.NOT_FALSE):
            return None
        return node if wanted is RequiredTruth.TRUE else Not(node)
    if isinstance(node, (Not, PlainNot)):
        under = UNDER_NOT if isinstance(node, Not) else UNDER_PLAIN_NOT
        return _seen(node.child, under[wanted], is_open)
    parts = [_seen(child, wanted, is_open) for child in node.children]
    kept = tuple(part for part in parts if part is not None)
    if isinstance(node, And) == wanted.joint:
        return And(kept) if kept else None
    return Or(kept) if len(kept) == len(parts) else None


def _shortened(node: Filter) -> Filter | None:
    """A filter of at most so many atoms that selects what this one does, and perhaps more; None: any event."""
    if _is_short(node, MOST_ATOMS):
        return node
    kept: list[Filter] = []
    left = MOST_ATOMS
    # Without some of its conditions a conjunction selects more.
    for child in node.children if isinstance(node, And) else ():
        size = sum(1 for _ in islice(atoms(child), left + 1))
        if size <= left:
            kept.append(child)
            left -= size
        if not left:
            break
    return And(tuple(kept)) if kept else None


def _is_short(node: Filter, most: int) -> bool:
    return sum(1 for _ in islice(atoms(node), most + 1)) <= most


def _alternatives(node: Filter) -> list[Filter]:
    """Filters of which one selects an event where this one does. What is about one name alone is kept together."""
    if isinstance(node, Or):
        return [one for child in node.children for one in _alternatives(child)]
    if not isinstance(node, And):
        return [node]
    choices = [
        [child] if len({atom.name for atom in atoms(child)}) == 1 else _alternatives(child) for child in node.children
    ]
    if prod(map(len, choices)) > ALTERNATIVES:
        return [node]
    return [And(one) if len(one) > 1 else one[0] for one in product(*choices)]
