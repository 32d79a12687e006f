"""Definitions tried on the stages: on invented events that have what a definition names, in every stage it is for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from nearcast.delivery.subscription_index import groups_of
from nearcast.filters.spatial_atoms import in_order, term_atoms
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
from nearcast.model.filter import Filter, atoms
from nearcast.model.ontology import Ontology
from nearcast.model.relation import Gathering, Matching, Named, Pair, Relation
from nearcast.model.situation import Action
from nearcast.model.subscription import Settings, Subscription
from nearcast.model.values import Value
from nearcast.relations.lanes.scopes import Scopes
from nearcast.situations.events import action_events, situation_data
from nearcast.situations.instances import SituationChanged
from nearcast.situations.readings import NamedAreas, SituationCentre
from nearcast.situations.rule_plan import with_inherited
from nearcast.situations.stage import SituationStage
from nearcast.stages.term_members import MembershipTracker, TermConditions
from nearcast.state.derived import Cause, DerivingStage, StageInput
from nearcast.state.previous_values import PreviousValues, asked_of_previous
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository
from nearcast.state.spatial_windows import SpatialWindows
from nearcast.state.timeline import Environment, Timeline

MOMENT = datetime(2020, 1, 1, tzinfo=UTC)
PLACES = (Place("planar", 0.0, 0.0), Place("geographic", 0.0, 0.0))

Attribute = tuple[str, Value]


def tried(change: Change, settings: Settings, many: int) -> None:
    """Raises what the stage that a definition is for raises on it; from so many groups on, they are compiled."""
    match change:
        case SubscriptionChange(subscription):
            _matched(subscription, settings, many)
        case RelationChange(relation):
            _related(relation)
        case SituationChange() | ActionChange() | SettingsChange():
            _inferred(change, settings)


def _matched(subscription: Subscription, settings: Settings, many: int) -> None:
    """Tries a subscription: as groups of an index, on events with the attributes that its filter names."""
    groups = [group for group, _ in groups_of(subscription, settings)]
    terms = list(dict.fromkeys(location_conditions(subscription.filter)))
    filters = [subscription.filter, *(term.conditions for term in terms if term.conditions is not None)]
    events = to_table(_reports({"": [named for one in filters for named in _named(one)]}))
    asked = TermConditions.of(terms, SpatialWindows.of(in_order(term_atoms(subscription.filter))))
    members = MembershipTracker().members_over(asked, events, Repository())
    previous = PreviousValues().values_over(list(asked_of_previous(subscription.filter)), events, Repository())
    users: Timeline[str, Place | None] = Timeline(dict.fromkeys(subscription.clients, PLACES[0]))
    FilterMatcher(groups, many=many).match(events, Environment(users, members, previous))


def _related(relation: Relation) -> None:
    """Tries a relation: on events of the entities that it names, with the attributes of its predicate."""
    attributes = list(_sides(relation))
    entities = {"": attributes}
    if isinstance(relation.about, Pair):
        sides = (relation.about.a, relation.about.b)
        entities |= {side.entity: attributes for side in sides if isinstance(side, Named)}
    _advance(Scopes(1), [RelationChange(relation)], entities)


def _inferred(change: Change, settings: Settings) -> None:
    """Tries a rule, an action or an ontology: on readings of all classes."""
    held = change.settings if isinstance(change, SettingsChange) else settings
    _advance(SituationStage(), [SettingsChange(held), change], {"": list(_readings(held.ontology))})
    if isinstance(change, ActionChange):
        _acted(change.action)


def _acted(action: Action) -> None:
    """Tries what an action publishes, which no rule calls for where it is tried alone."""
    centre = SituationCentre("entity", PLACES[0])
    found = SituationChanged(action.phases[0], "rule", "rule@1", "class", centre, 0, 0, ())
    data = situation_data(found, NamedAreas(Ontology()), {})
    to_table(action_events(action, found, data, 1, Cause(1, MOMENT, MOMENT)))


def _advance(stage: DerivingStage, changes: Sequence[Change], entities: dict[str, list[Attribute]]) -> None:
    """Hands a new stage the changes, and then what entities report."""
    registry, repository = Registry(), Repository()
    # Before anything is known: what a definition finds then is looked at one by one, and takes a hundred times as long.
    defined = [(1, one) for one in changes]
    list(stage.derive(StageInput(defined, {1: MOMENT}, EVENTS.empty_table(), registry, repository)))
    list(stage.derive(StageInput([], {}, to_table(_reports(entities, 1)), registry, repository)))


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
            yield from ((name, value) for value in (*values, 1))


def _readings(ontology: Ontology) -> Iterator[Attribute]:
    """A reading of every class and situation."""
    for one in ontology.classes:
        whole = with_inherited(ontology, one)
        value = next((bound for bound in (whole.low, whole.high) if bound is not None), 1.0)
        yield one.name, value
        yield from ((attribute, value) for attribute, _ in one.attributes)
    yield from ((one.name, True) for one in ontology.situations)
