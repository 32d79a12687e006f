"""Why a client got an event, or did not: what held, at which level, in which context, at which priority.

The plain evaluator decides once more, as of the event's position, and keeps what it saw on the way. Pure: the state of
then comes in as an `ExplanationScene` (`past` folds one from the journal), times and logs stay outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from nearcast.delivery.priority import awareness_class, context_class, priority_row
from nearcast.filters.evaluate import (
    NO_CONTEXT,
    UNDER_NOT,
    UNDER_PLAIN_NOT,
    EventFacts,
    RequiredTruth,
    atom_truths,
    count,
    distances,
    is_member,
    level_of,
    located,
    truth,
    without_absent,
)
from nearcast.filters.expressions import truth_of
from nearcast.filters.receiver_terms import asked_of_receiver, for_receiver
from nearcast.filters.relevance import ABSENT, Classes, by_role, classes_of, role_relevance
from nearcast.filters.spatial_atoms import SpentBudget, spatial_atoms, spent_budget, term_atoms
from nearcast.filters.truth import Truth
from nearcast.model.context import Awareness, HeldClass
from nearcast.model.event import CLOCK_FALL, Event, Place
from nearcast.model.expression import GEOMETRY, TOLD_GEOMETRY, Call, attributes, remembered, users
from nearcast.model.filter import (
    And,
    Atom,
    Count,
    Distance,
    Entities,
    Filter,
    Located,
    Not,
    PlainNot,
    This,
    User,
    located_sides,
)
from nearcast.model.geometry_budget import GeometryWork
from nearcast.model.subscription import ClientProfile, Subscription
from nearcast.model.values import Value
from nearcast.state.registry import Registry

if TYPE_CHECKING:
    from nearcast.filters.term_work import TermConditionWork

SHOWN_PAIRS = 3
"""Of many distances the nearest are kept."""


@dataclass(frozen=True, slots=True)
class AtomReading:
    """What a computed atom read: an attribute, the previous event's, a position; None: there was none to read of."""

    name: str
    values: tuple[Value, ...] | None


@dataclass(frozen=True, slots=True)
class AtomFinding:
    """One atom: its relevance class (−1: not in the tree), its truth (None: UNKNOWN), and what made it so.

    `values` are the attribute's values, the nearest distances in metres, or the count; `read`, of a computed atom, what
    it read, each by its name; `unknown` says why the truth is UNKNOWN. `blocked`: with another truth of it, and of
    those blocked with it, the subscription would have selected. `undecided`: of which entities it is unknown whether a
    location term asks for them, as the work on their geometries was done.
    """

    atom: Atom
    relevance: int
    truth: Truth
    values: tuple[Value, ...]
    unknown: str = ""
    blocked: bool = False
    read: tuple[AtomReading, ...] = ()
    undecided: str = ""


@dataclass(frozen=True, slots=True)
class SubscriptionFinding:
    """One subscription of the client: every atom in document order, and the level; None: it did not select."""

    subscription: Subscription
    by_role: bool
    atoms: tuple[AtomFinding, ...]
    level: int | None


@dataclass(frozen=True, slots=True)
class ModuleFinding:
    """One awareness module: its reading (None: not known, which counts as the best class) and class.

    `held`: where the module holds classes, what earlier readings led to; `alone`: the class of the reading by itself.
    `lapsed`: the moment of the reading that held for `valid` seconds and is unknown since, microseconds since 1970.
    """

    name: str
    reading: float | None
    context_class: int
    alone: int
    held: HeldClass | None = None
    lapsed: int | None = None
    valid: float | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why one client got one event, or did not, as of the event's position.

    `client` is None if it was not known then. `chosen` is the id of the subscription that selected, the most urgent;
    `level` is its level, and `priority` what the matrix `row` of the context class has for it (None: not selected).
    `newer` is the event of its entity that was known and is of a later moment: then this one was late.
    """

    event: Event
    name: str
    client: ClientProfile | None
    role: str | None
    task: str | None
    modules: tuple[ModuleFinding, ...]
    context_class: int
    row: tuple[int, ...]
    subscriptions: tuple[SubscriptionFinding, ...]
    chosen: str | None
    level: int | None
    priority: int | None
    newer: Event | None = None

    @property
    def late_by(self) -> timedelta:
        """By how much that one is newer; nothing where there is none."""
        own, newer = self.event.moment, self.newer.moment if self.newer else None
        return newer - own if own is not None and newer is not None else timedelta()

    @property
    def fell_back(self) -> bool:
        """Whether that is as much as where a sender's clock fell back."""
        return self.late_by >= CLOCK_FALL


@dataclass(slots=True)
class ExplanationScene:
    """What an event met: the registry, and the newest event of every entity before it."""

    registry: Registry
    newest: Iterable[Event]
    event: Event
    _seen: dict[Filter, tuple[AtomFinding, ...]] = field(default_factory=dict)
    _budget: SpentBudget | None = None
    _conditions: TermConditionWork | None = None

    def user(self, name: str) -> Place | None:
        """Where a client was then."""
        client = self.registry.clients.get(name)
        return client.place if client else None

    def entities(self) -> Iterable[Event]:
        """The newest event of every entity before this one."""
        return self.newest

    def newer(self) -> Event | None:
        """The event of its entity that was known already and is of a later moment; None: it was not late."""
        other = next((one for one in self.newest if one.entity == self.event.entity), None)
        own, known = self.event.moment, other.moment if other else None
        return other if own is not None and known is not None and own < known else None

    def atoms(self, subscription: Subscription) -> tuple[AtomFinding, ...]:
        """Every atom of a subscription as if all were in the tree; looked at once for all clients."""
        if subscription.filter not in self._seen:
            undecided = self.undecided(subscription.filter)
            truths = atom_truths(subscription.filter, self.event, self, self.registry.settings.limits, undecided)
            self._seen[subscription.filter] = tuple(_finding(atom, truth, self) for atom, truth in truths)
        return self._seen[subscription.filter]

    @property
    def budget(self) -> SpentBudget:
        """How far the work that is allowed for the event goes for the spatial atoms of all subscriptions."""
        if self._budget is None:
            listed = (atom for filter in _filters(self.registry) for atom in spatial_atoms(filter))
            self._budget = spent_budget(listed, self.event, self, self.registry.settings.limits)
        return self._budget

    def undecided(self, filter: Filter) -> frozenset[Atom]:
        """The atoms, those of a filter among them, that are UNKNOWN since that work was done."""
        return self.budget.undecided if any(spatial_atoms(filter)) else frozenset()

    def undecided_conditions(self, newest: Event) -> frozenset[Atom]:
        """The atoms of the conditions of location terms that the work for an entity's newest event leaves UNKNOWN."""
        return self.conditions_budget(newest).undecided

    def conditions_budget(self, newest: Event) -> SpentBudget:
        """How far the work that is allowed for an entity's newest event goes for these."""
        if self._conditions is None:
            # It has geometries, which take longer to load than a command to start.
            from nearcast.filters.term_work import TermConditionWork

            filters = (one.filter for one in self.registry.subscriptions.values())
            self._conditions = TermConditionWork(filters, self.registry.settings.limits)
        return self._conditions.budget(newest)


def _filters(registry: Registry) -> Iterator[Filter]:
    """The filters of all subscriptions, one that is about its receiver as it is for each client that is known."""
    for subscription in registry.subscriptions.values():
        if not asked_of_receiver(subscription.filter)[0]:
            yield subscription.filter
            continue
        for client in subscription.clients:
            if known := registry.clients.get(client):
                yield for_receiver(subscription.filter, client, known.readings)


def explain(scene: ExplanationScene, name: str) -> Explanation:
    """Why the client of this name got the scene's event, or did not."""
    settings, client = scene.registry.settings, scene.registry.clients.get(name)
    known = client or ClientProfile(name)
    role, task = known.role, known.task
    if role is None and task is None and settings.roles.default:
        role, task = settings.roles.default
    modules = tuple(_module(module, known) for module in settings.space.modules)
    c = context_class(settings.space, known.readings, settings.levels, known.classes)
    row = priority_row(settings, known)
    findings = [] if client is None or scene.event.control else list(_subscriptions(scene, client))
    best = _best(findings)
    level = best.level if best else None
    return Explanation(
        event=scene.event,
        name=name,
        client=client,
        role=role,
        task=task,
        modules=modules,
        context_class=c,
        row=row,
        subscriptions=tuple(findings),
        chosen=best.subscription.id if best else None,
        level=level,
        priority=None if level is None else row[level],
        newer=scene.newer(),
    )


def _module(module: Awareness, client: ClientProfile) -> ModuleFinding:
    name = module.reading
    reading, held, lapsed = client.readings.get(name), client.classes.get(name), client.lapsed().get(name)
    alone, found = awareness_class(module, reading), awareness_class(module, reading, held)
    return ModuleFinding(name, reading, found, alone, held, lapsed, module.valid)


def _subscriptions(scene: ExplanationScene, client: ClientProfile) -> Iterator[SubscriptionFinding]:
    settings = scene.registry.settings
    for subscription in scene.registry.subscriptions.values():
        if client.id not in subscription.clients:
            continue
        if asked_of_receiver(subscription.filter)[0]:
            own = for_receiver(subscription.filter, client.id, client.readings)
            subscription = replace(subscription, filter=own)
        from_role = by_role(subscription, settings.roles)
        relevance = subscription.relevance
        if from_role:
            relevance = role_relevance(subscription, settings.roles, client.role, client.task)
        found = scene.atoms(subscription)
        classes = classes_of(relevance, len(found), settings.levels)
        undecided = scene.undecided(subscription.filter)
        limits = scene.registry.settings.limits
        level = level_of(subscription.filter, classes, scene.event, scene, limits, undecided)
        yield SubscriptionFinding(subscription, from_role, _in_tree(subscription.filter, found, classes, level), level)


def _in_tree(
    node: Filter, found: tuple[AtomFinding, ...], classes: Classes, level: int | None
) -> tuple[AtomFinding, ...]:
    """The atoms with their classes, and which of them kept the filter from holding."""
    present = without_absent(node, iter(classes))
    blocked: set[int] = set()
    if present is not None and level is None:
        kept = iter([index for index, own in enumerate(classes) if own != ABSENT])
        blocked = set(_blocked(present[0], RequiredTruth.TRUE, kept, [atom.truth for atom in found]) or ())
    return tuple(
        replace(one, relevance=own, blocked=index in blocked)
        for index, (one, own) in enumerate(zip(found, classes, strict=True))
    )


def _blocked(node: Filter, wanted: RequiredTruth, kept: Iterator[int], truths: list[Truth]) -> list[int] | None:
    """The atoms, by number, that keep a tree from being as wanted; None where it is as wanted."""
    if isinstance(node, Atom):
        index = next(kept)
        return None if wanted.holds(truths[index]) else [index]
    if isinstance(node, Not):
        return _blocked(node.child, UNDER_NOT[wanted], kept, truths)
    if isinstance(node, PlainNot):
        return _blocked(node.child, UNDER_PLAIN_NOT[wanted], kept, truths)
    parts = [_blocked(child, wanted, kept, truths) for child in node.children]
    failing = [part for part in parts if part is not None]
    joint = isinstance(node, And) == wanted.joint
    if not failing or (not joint and len(failing) < len(parts)):
        return None
    return [index for part in failing for index in part]


def _best(findings: list[SubscriptionFinding]) -> SubscriptionFinding | None:
    """Of those that select, the one of the greatest level; among equals the one that was added first."""
    selecting = [found for found in findings if found.level is not None]
    return max(selecting, key=lambda found: found.level or 0, default=None)


def _finding(atom: Atom, truth: Truth, scene: ExplanationScene) -> AtomFinding:
    values = tuple(_values(atom, scene))
    read = tuple(_readings(atom.name, scene)) if isinstance(atom.name, Call) else ()
    unknown = _unknown(atom, values, read, scene) if truth is None else ""
    return AtomFinding(atom, ABSENT, truth, values, unknown, read=read, undecided=_undecided(atom, scene))


def _readings(call: Call, scene: ExplanationScene) -> Iterator[AtomReading]:
    """Everything that a computed atom reads, as it found it."""
    facts = EventFacts(scene.event, scene)
    for name in attributes(call):
        values = facts.values(name)
        if name.lower() in GEOMETRY and not values:
            values = (*(value for own in TOLD_GEOMETRY for value in facts.values(own)), *_point(facts.place))[:1]
        yield AtomReading(name, tuple(values))
    for name in remembered(call):
        before = facts.previous(name)
        yield AtomReading(f"PREVIOUS({name})", None if before is None else tuple(before))
    for user in users(call):
        yield AtomReading(f"user('{user}')", tuple(_point(facts.user(user))))


def _point(place: Place | None) -> Iterator[str]:
    if place is not None:
        yield f"POINT ({place.x} {place.y})"


def _values(atom: Atom, scene: ExplanationScene) -> Iterable[Value]:
    if isinstance(atom.name, Call):
        return ()
    if isinstance(atom.name, str):
        return scene.event.values(atom.name)
    limits = scene.registry.settings.limits
    if isinstance(atom.name, Distance):
        return sorted(distances(atom.name, scene.event, scene, limits))[:SHOWN_PAIRS]
    number = count(atom.name, scene.event, scene, limits)
    return () if number is None else (number,)


def _unknown(atom: Atom, values: tuple[Value, ...], read: tuple[AtomReading, ...], scene: ExplanationScene) -> str:
    """Why the truth of an atom is UNKNOWN."""
    if isinstance(atom.name, Call):
        beyond = scene.budget.reason(atom) if any(spatial_atoms(atom)) else ""
        return beyond or _too_much(atom.name, scene) or _undefined(read, scene)
    if values:
        return "the value and the literal are of types that do not compare"
    if isinstance(atom.name, str):
        return f"the event has no {atom.name}"
    limits = scene.registry.settings.limits
    sides = (atom.name.around,) if isinstance(atom.name, Count) else (atom.name.a, atom.name.b)
    lacking = [_nowhere(side) for side in sides if side and not any(located(side, scene.event, scene, limits))]
    return " and ".join(lacking) or "one place is planar, the other geographic"


def _undecided(atom: Atom, scene: ExplanationScene) -> str:
    """Of which entities it is unknown whether a location term asks for them, and why of the first."""
    if isinstance(atom.name, str | Call):
        return ""
    asked = [one.conditions for one in located_sides(atom.name) if isinstance(one, Entities) and one.conditions]
    limits, names, why = scene.registry.settings.limits, list[str](), ""
    for conditions in asked if any(term_atoms(atom)) else ():
        for newest in scene.entities():
            if truth(conditions, newest, NO_CONTEXT, limits) and not is_member(conditions, newest, scene, limits):
                names.append(newest.entity)
                reasons = map(scene.conditions_budget(newest).reason, spatial_atoms(conditions))
                why = why or f"{newest.entity}: {next(filter(None, reasons))}"
    if not names:
        return ""
    shown = ", ".join([*names[:SHOWN_PAIRS], *["…"] * (len(names) > SHOWN_PAIRS)])
    return f"of {len(names):,} more it is unknown whether they are asked for: {shown}; {why}"


def _too_much(call: Call, scene: ExplanationScene) -> str:
    """Which limit an event is beyond for a computed atom, if it is."""
    facts = EventFacts(scene.event, scene, GeometryWork(scene.registry.settings.limits))
    truth_of(call, facts)
    return facts.work.reason


def _undefined(read: tuple[AtomReading, ...], scene: ExplanationScene) -> str:
    """Why a computed atom is UNKNOWN: what it lacks, or that it had all and nothing came of it."""
    lacking = [f"there was no {one.name}" for one in read if one.values == ()]
    lacking += [f"there was no event before it of {scene.event.entity}"] * any(one.values is None for one in read)
    return " and ".join(lacking) or "the values are of types that do not compare, or the arithmetic has no result"


def _nowhere(side: Located) -> str:
    if isinstance(side, User):
        return f"nobody knows where user '{side.name}' was"
    return "the event has no position" if isinstance(side, This) else "no such entity with a known position"
