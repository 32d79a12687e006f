"""Whether stages can take definitions: each is tried alone, on events that have what it names, before it counts.

What comes of a trial rests on the definition and the settings at its position, and on nothing else: not on what else
is known, nor on where batches are cut. So every fold over a journal leaves the same definitions out. Subscriptions to a
few plain comparisons, which are most definitions and nothing fails on, are not tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice

from nearcast.delivery.subscription_index import groups_of
from nearcast.errors import Fault, Mark
from nearcast.matching.matcher import FilterMatcher, location_conditions
from nearcast.model.changes import (
    ActionChange,
    Change,
    RelationChange,
    SettingsChange,
    SituationChange,
    SubscriptionChange,
)
from nearcast.model.columns import EVENTS, to_table
from nearcast.model.event import Event, Place
from nearcast.model.expression import Call, Constant, Expression, Property, parts
from nearcast.model.filter import Atom, Filter, Operator, atoms
from nearcast.model.ontology import Ontology
from nearcast.model.relation import Gathering, Matching, Named, Pair, Relation
from nearcast.model.situation import Action
from nearcast.model.subscription import Settings
from nearcast.model.values import Value, is_exact
from nearcast.relations.stage import Scopes
from nearcast.situations.events import action_events, situation_data
from nearcast.situations.lifecycle import SituationChanged
from nearcast.situations.readings import NamedAreas, SituationCentre
from nearcast.situations.rule_plan import with_inherited
from nearcast.situations.stage import SituationStage
from nearcast.stages.term_members import MembershipTracker
from nearcast.state.derived import At, Cause, DerivingStage, StageInput
from nearcast.state.previous_values import PreviousValues, asked_of_previous
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository
from nearcast.state.timeline import Environment, Timeline

TOGETHER = 1_000
"""Definitions that are tried together at most: only where that fails is each tried alone."""

SAMPLES = 1_000
"""Literals of one list that are tried, about."""

FEW = 64
"""Comparisons in a filter, and literals in a comparison, up to which they are plain."""

MOMENT = datetime(2020, 1, 1, tzinfo=UTC)
PLACES = (Place("planar", 0.0, 0.0), Place("geographic", 0.0, 0.0))

Attribute = tuple[str, Value]


def rejected(changes: Sequence[At], settings: Settings) -> dict[int, Fault]:
    """The positions of definitions that some stage raises on, each with why.

    `settings` are those that hold where the changes begin.
    """
    found: dict[int, Fault] = {}
    for held, some in _by_settings(changes, settings):
        for kinds, stage, attempt in TRIALS:
            own = [one for one in some if isinstance(one[1], kinds) and not is_plain(one[1])]
            for first in range(0, len(own), TOGETHER):
                found |= _tried(own[first : first + TOGETHER], held, stage, attempt)
    return found


def faults_of(changes: Sequence[Change], settings: Settings) -> list[Fault]:
    """Why some of these changes, which come one after the other, cannot be taken: what `rejected` finds, by name."""
    found = rejected(list(enumerate(changes)), settings)
    return [replace(fault, where=Mark(_title(changes[place]))) for place, fault in sorted(found.items())]


def _title(change: Change) -> str:
    match change:
        case SubscriptionChange(subscription):
            return f"subscription {subscription.id}"
        case RelationChange(relation):
            return f"relation {relation.id}"
        case SituationChange(rule):
            return f"situation {rule.id}"
        case ActionChange(action):
            return f"action {action.id}"
    return "settings"


def is_plain(change: Change) -> bool:
    """Whether a change is a subscription to few comparisons of attributes with literals, all of them ordinary ones."""
    if not isinstance(change, SubscriptionChange):
        return False
    listed = list(islice(atoms(change.subscription.filter), FEW + 1))
    return len(listed) <= FEW and all(map(_is_plain, listed))


def _is_plain(atom: Atom) -> bool:
    if not isinstance(atom.name, str) or not atom.name.isascii() or atom.operator is Operator.LIKE:
        return False
    return len(atom.literals) <= FEW and all(map(_is_ordinary, atom.literals))


def _is_ordinary(literal: Value) -> bool:
    if isinstance(literal, str):
        return literal.isascii()
    return isinstance(literal, bool) or is_exact(literal)


def _by_settings(changes: Sequence[At], settings: Settings) -> Iterator[tuple[Settings, list[At]]]:
    some: list[At] = []
    for position, change in changes:
        if isinstance(change, SettingsChange):
            yield settings, some
            settings, some = change.settings, []
        some.append((position, change))
    yield settings, some


def _tried(some: Sequence[At], settings: Settings, stage: str, attempt: Attempt) -> dict[int, Fault]:
    if not some or _raised(some, settings, attempt) is None:
        return {}
    alone = ((position, _raised([(position, change)], settings, attempt)) for position, change in some)
    return {position: _fault(stage, error) for position, error in alone if error is not None}


def _raised(some: Sequence[At], settings: Settings, attempt: Attempt) -> Exception | None:
    try:
        attempt([change for _, change in some], settings)
    except MemoryError:
        # That is the machine's affair, and may be over the next time.
        raise
    except Exception as error:
        return error
    return None


def _fault(stage: str, error: Exception) -> Fault:
    if isinstance(error, Fault):
        return error
    came = f"one on which it fails: {type(error).__name__}: {str(error)[:200]}"
    return Fault(f"a definition that the stage {stage} can take", came, None, "it changes nothing; define it otherwise")


def _matched(changes: Sequence[Change], settings: Settings) -> None:
    """Tries subscriptions: as groups of an index, on events with the attributes that their filters name."""
    own = [one.subscription for one in changes if isinstance(one, SubscriptionChange)]
    groups = [group for one in own for group, _ in groups_of(one, settings)]
    terms = list(dict.fromkeys(term for one in own for term in location_conditions(one.filter)))
    filters = [*(one.filter for one in own), *(term.conditions for term in terms if term.conditions is not None)]
    events = to_table(_reports({"": [named for one in filters for named in _named(one)]}))
    conditions = FilterMatcher((), [term.conditions for term in terms if term.conditions is not None])
    members = MembershipTracker().members_over(terms, conditions, events, Repository())
    previous = PreviousValues().values_over(
        [name for one in own for name in asked_of_previous(one.filter)], events, Repository()
    )
    users: Timeline[str, Place | None] = Timeline({client: PLACES[0] for one in own for client in one.clients})
    # In rows of bits, however many: compiled code takes a second to import, and means the same.
    FilterMatcher(groups, many=len(groups) + 1).match(events, Environment(users, members, previous))


def _related(changes: Sequence[Change], settings: Settings) -> None:
    """Tries relations: on events of the entities that they name, with the attributes of their predicates."""
    own = [one.relation for one in changes if isinstance(one, RelationChange)]
    entities = {"": [named for one in own for named in _sides(one)]}
    for relation in own:
        if isinstance(relation.about, Pair):
            named = [side.entity for side in (relation.about.a, relation.about.b) if isinstance(side, Named)]
            entities |= {entity: entities.get(entity, []) + list(_sides(relation)) for entity in named}
    _advance(Scopes(), changes, entities)


def _inferred(changes: Sequence[Change], settings: Settings) -> None:
    """Tries rules, actions and ontologies: on readings of all classes."""
    for change in changes:
        held = change.settings if isinstance(change, SettingsChange) else settings
        if held.ontology:
            _advance(SituationStage(), [SettingsChange(held), change], {"": list(_readings(held.ontology))})
        if isinstance(change, ActionChange):
            _acted(change.action)


def _acted(action: Action) -> None:
    """Tries what an action publishes, which no rule calls for where it is tried alone."""
    centre = SituationCentre("entity", PLACES[0])
    found = SituationChanged(action.phases[0], "rule", "rule@1", "class", centre, 0, 0, ())
    data = situation_data(found, NamedAreas(Ontology()), {})
    to_table(action_events(action, found, data, 1, Cause(1, MOMENT, MOMENT)))


Attempt = Callable[[Sequence[Change], Settings], None]

TRIALS: tuple[tuple[type[Change] | tuple[type[Change], ...], str, Attempt], ...] = (
    (SubscriptionChange, "match", _matched),
    (RelationChange, "relate", _related),
    ((SituationChange, ActionChange, SettingsChange), "infer", _inferred),
)
"""Which changes are tried, by which stage's name, and how. Those of clients are of values that were checked: where they
are and what they read, as events' are.
"""


def _advance(stage: DerivingStage, changes: Sequence[Change], entities: dict[str, list[Attribute]]) -> None:
    """Hands a new stage the changes, and then what entities report."""
    registry, repository = Registry(), Repository()
    # Before anything is known: what a definition finds then is looked at one by one, and takes a hundred times as long.
    stage.derive(StageInput([(1, one) for one in changes], {1: MOMENT}, EVENTS.empty_table(), registry, repository))
    stage.derive(StageInput([], {}, to_table(_reports(entities, 1)), registry, repository))


def _reports(entities: dict[str, list[Attribute]], after: int = 0) -> Iterator[Event]:
    """A report of each entity, and of two more for each kind of place."""
    for entity, attributes in entities.items():
        own = tuple(dict.fromkeys(attributes))
        for place in (*PLACES, *PLACES) if not entity else PLACES[:1]:
            after += 1
            about = entity or f"entity {after}"
            yield Event(str(after), "type", "source", about, MOMENT, place, own, accepted=MOMENT, position=after)


def _sides(relation: Relation) -> Iterator[Attribute]:
    """The attributes that a relation names, whichever side they are of."""
    match relation.about:
        case Pair(a, b, when):
            for name, value in _named(when):
                yield name.partition(".")[2] or name, value
            for side in (a, b):
                if isinstance(side, Matching):
                    yield from _named(side.filter)
        case Gathering(Matching(filter)):
            yield from _named(filter)


def _named(filter: Filter) -> Iterator[Attribute]:
    """The attributes that a filter names, with its own literals and a number as values."""
    for atom in atoms(filter):
        names: Sequence[str] = (atom.name,) if isinstance(atom.name, str) else ()
        values: list[Value] = list(atom.literals)
        if isinstance(atom.name, Call):
            inner: list[Expression] = list(parts(atom.name))
            names = [one.name for one in inner if isinstance(one, Property)]
            values = [
                one.value for one in inner if isinstance(one, Constant) and isinstance(one.value, (str, int, float))
            ]
        for name in names:
            yield from ((name, value) for value in (*_some(values), 1))


def _some(values: list[Value]) -> list[Value]:
    """Values from all over a list: an event of a hundred thousand takes a second, and tells no more."""
    return values[:: len(values) // SAMPLES + 1]


def _readings(ontology: Ontology) -> Iterator[Attribute]:
    """A reading of every class and situation."""
    for one in ontology.classes:
        whole = with_inherited(ontology, one)
        value = next((bound for bound in (whole.low, whole.high) if bound is not None), 1.0)
        yield one.name, value
        yield from ((attribute, value) for attribute, _ in one.attributes)
    yield from ((one.name, True) for one in ontology.situations)
