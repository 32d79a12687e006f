"""Definitions held against events: names and values that no event has, entities that would be mixed, what selects none.

All of it can be taken; with the events at hand it is hardly what was meant.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches

from nearcast.errors import Fault, Mark
from nearcast.language.checks.event_vocabulary import EventVocabulary
from nearcast.language.definitions.files import DefinitionSet
from nearcast.language.nodes import listed
from nearcast.model.event import DERIVED
from nearcast.model.expression import GEOMETRY, Call, Property, attributes, parts, remembered
from nearcast.model.filter import RECEIVER, Atom, Count, Distance, Entities, Filter, Operator, This, atoms
from nearcast.model.relation import Gathering, Matching, Pair, Relation
from nearcast.model.situation import Publish
from nearcast.model.subscription import Subscription
from nearcast.model.values import Kind, kind_of

NAMES_IN_DERIVED = frozenset({"relation", "detect", "a", "b", "distance", "since", "reason", "present", "count"}) | {
    *("situation", "class", "phase", "position", "place", "moment", "readings", "evidence", "action", "effect"),
    *("a_position", "b_position", "layer", "zone", "entity", "properties"),
}
"""First parts of the names of what derived events tell, whether or not these events lead to any."""

_WORDS: Mapping[Kind, str] = {"number": "a number", "text": "a text", "boolean": "a boolean", "time": "a time"}

LIKE = 0.7
"""From this on a name is like another (`difflib`): of three letters one differs in a word that is another."""

KNOWN_TO_ALL = frozenset({"specversion", "datacontenttype", "dataschema", "time", "id", "subject"})
"""Attributes that any event may have: a sample without them says nothing."""


def warnings_of_events(found: DefinitionSet, seen: EventVocabulary) -> Iterator[Fault]:
    """What definitions ask for that no event has, and what of the events they would take for another thing."""
    if not seen.events:
        return
    yield from _misplaced(seen)
    events = _EventNames(found, seen)
    for filter in _filters(found):
        yield from events.absent(filter)
    yield from _unplaced(found, seen)
    if users := _users_of_entities(found):
        yield from _mixed(seen, listed(users))


def unselected(
    found: DefinitionSet,
    subscriptions: Collection[str],
    relations: Collection[str],
    events: int,
    layers: Collection[str] = (),
) -> Iterator[Fault]:
    """A warning for each subscription that selects, and each relation and layer of zones that tells, nothing of some
    events.
    """
    for subscription in found.subscriptions:
        if subscription.clients and subscription.id not in subscriptions:
            where = next(atoms(subscription.filter)).where
            yield Fault(f"an event that subscription {subscription.id} selects", f"none among {events:,}", where)
    for relation in found.relations:
        if relation.id not in relations:
            came = f"none in {events:,} events"
            yield Fault(f"entities between which relation {relation.id} begins", came, _where(relation))

    for layer in found.zones:
        if layer.id not in layers:
            where = next(atoms(layer.rule.of)).where
            yield Fault(f"an entity of which the zones {layer.id} tell", f"none in {events:,} events", where)


class _EventNames:
    """The types, names and values that events have, also those that actions publish."""

    def __init__(self, found: DefinitionSet, seen: EventVocabulary) -> None:
        self._seen = seen
        published = [one for action in found.actions for one in action.effects if isinstance(one, Publish)]
        self._published = {one.type for one in published}
        # What an action publishes may have any attribute: its data is a text with holes.
        self._names = None if published else seen.names()

    def absent(self, filter: Filter) -> Iterator[Fault]:
        """A warning for each atom of a filter that asks for what no event has."""
        for atom in atoms(filter):
            for term in _terms(atom):
                if term.conditions is not None:
                    yield from self.absent(term.conditions)
            yield from self._of_names(atom)
            if isinstance(atom.name, str):
                yield from self._of_values(atom, atom.name)

    def _of_names(self, atom: Atom) -> Iterator[Fault]:
        if self._names is None or atom.operator is Operator.IS_NULL:
            return
        for name in _asked(atom):
            if name in self._names or name in KNOWN_TO_ALL or name.partition(".")[0] in NAMES_IN_DERIVED:
                continue
            advice = likeliest(name, self._names) or f"they have {listed(sorted(self._names - KNOWN_TO_ALL))}"
            yield Fault("an attribute that some event has", name, atom.where, advice)

    def _of_values(self, atom: Atom, name: str) -> Iterator[Fault]:
        use = self._seen.attributes.get(name)
        if use is None or not use.kinds:
            return
        literals = [value for value in atom.literals if not use.compares(kind_of(value))]
        if literals and name not in ("type", "source", "subject", "id", "time"):
            advice = f"{name} is {' or '.join(sorted(_WORDS[kind] for kind in use.kinds))} in these events"
            yield Fault("values that compare", f"{name} {atom.operator} {literals[0]!r}", atom.where, advice)
        elif atom.operator in (Operator.EQ, Operator.IN) and use.texts is not None:
            known = use.texts | ({*DERIVED, *self._published} if name == "type" else set())
            for value in atom.literals:
                if isinstance(value, str) and value not in known:
                    advice = likeliest(value, known) or f"there are {listed(sorted(use.texts))}"
                    yield Fault(f"a value of {name} that some event has", repr(value), atom.where, advice)


def likeliest(name: str, known: Iterable[str]) -> str:
    """The advice "did you mean …": the same but for capitals, the end of a dotted name, else what is like it."""
    several = sorted(known)
    folded = {one.casefold(): one for one in several}
    same = [one for one in several if one.casefold() == name.casefold()]
    inner = [one for one in several if one.casefold().endswith(f".{name.casefold()}")]
    if same or inner:
        return f"did you mean {(same or inner)[0]}?"
    like = get_close_matches(name.casefold(), folded, 1, LIKE)
    return f"did you mean {folded[like[0]]}?" if like else ""


def _asked(atom: Atom) -> tuple[str, ...]:
    """The names of the event's attributes that an atom reads; of a relation's predicate those of both sides."""
    if isinstance(atom.name, str):
        return (atom.name,)
    if not isinstance(atom.name, Call):
        return ()
    names = (*attributes(atom.name), *remembered(atom.name))
    own = (name for name in names if name.lower() not in GEOMETRY and name.partition(".")[0] != RECEIVER)
    return tuple(dict.fromkeys(own))


def _terms(atom: Atom) -> Iterator[Entities]:
    """The entities that a location term is about."""
    measured = atom.name
    if isinstance(measured, Distance):
        located = (measured.a, measured.b)
    elif isinstance(measured, Count):
        located = (measured.of, measured.around)  # type: ignore[assignment]
    else:
        return
    yield from (one for one in located if isinstance(one, Entities))


def _filters(found: DefinitionSet) -> Iterator[Filter]:
    """The filters of subscriptions, of layers of zones, and of relations' sides."""
    yield from (one.filter for one in found.subscriptions)
    yield from (layer.rule.of for layer in found.zones)
    for relation in found.relations:
        about = relation.about
        sides = (about.a, about.b) if isinstance(about, Pair) else (about.among,)
        for side in dict.fromkeys(sides):
            if isinstance(side, Matching):
                yield side.filter
        if isinstance(about, Pair):
            yield from _of_sides(about.when)


def _of_sides(predicate: Filter) -> Iterator[Atom]:
    """An atom that asks for the presence of each attribute that a predicate reads of its sides."""
    for atom in atoms(predicate):
        assert isinstance(atom.name, Call), "every atom of a predicate is computed"
        for part in parts(atom.name):
            _, dot, name = part.name.partition(".") if isinstance(part, Property) else ("", "", "")
            if dot and name not in ("position", "this"):
                yield Atom(Call("IS NOT NULL", (Property(name),)), Operator.EQ, True, atom.where)


def _misplaced(seen: EventVocabulary) -> Iterator[Fault]:
    if seen.told_otherwise is not None:
        names = " and ".join(seen.told_otherwise)
        advice = (
            "a place is lon and lat in degrees, or x and y in metres, as numbers right in data, or a GeoJSON point"
            " there as geometry"
        )
        came = f"{names} in {seen.misplaced:,} without a place"
        yield Fault("events that tell where they are", came, None, advice)


def _unplaced(found: DefinitionSet, seen: EventVocabulary) -> Iterator[Fault]:
    """A warning of the first condition on places, where no event has one."""
    where = None if seen.placed else next(_measuring(found), None)
    if where is not None:
        advice = "a place is lon and lat in degrees, or x and y in metres, as numbers in data"
        yield Fault("events with a place, for a distance", f"none among {seen.events:,}", where, advice)


def _measuring(found: DefinitionSet) -> Iterator[Mark]:
    for subscription in found.subscriptions:
        for atom in atoms(subscription.filter):
            measured = atom.name
            located = (measured.a, measured.b) if isinstance(measured, Distance) else ()
            if atom.where and any(isinstance(one, (This, Entities)) for one in located):
                yield atom.where
    for layer in found.zones:
        if where := next(atoms(layer.rule.of)).where:
            yield where
    for relation in found.relations:
        near = isinstance(relation.about, Gathering) or any(
            isinstance(part, Call) and part.function == "DISTANCE"
            for atom in atoms(relation.about.when)
            if isinstance(atom.name, Call)
            for part in parts(atom.name)
        )
        if near and (where := _where(relation)):
            yield where


def _users_of_entities(found: DefinitionSet) -> list[str]:
    """What of the definitions asks for the newest event of an entity."""
    names = [f"relation {one.id}" for one in found.relations]
    names += [f"zones {layer.id}" for layer in found.zones]
    names += [f"conflate of {one.id}" for one in found.subscriptions if one.conflate]
    names += [f"subscription {one.id}" for one in found.subscriptions if not one.conflate and _remembers(one)]
    return names


def _remembers(subscription: Subscription) -> bool:
    return any(
        (isinstance(atom.name, Call) and bool(remembered(atom.name))) or any(True for _ in _terms(atom))
        for atom in atoms(subscription.filter)
    )


def _mixed(seen: EventVocabulary, users: str) -> Iterator[Fault]:
    """A warning for each subject that several publishers, or several types, are about."""
    for one in seen.mixed():
        if len(one.sources) > 1:
            advice = f"they are one entity for {users}; entity: source and subject in their channel tells them apart"
            yield Fault(f"one source of the subject {one.entity}", listed(sorted(one.sources)), one.where, advice)
        else:
            advice = f"they are one entity for {users}: each takes the place of the one before"
            yield Fault(f"one type of the subject {one.entity}", listed(sorted(one.types)), one.where, advice)


def _where(relation: Relation) -> Mark | None:
    about = relation.about
    filter = (
        about.when if isinstance(about, Pair) else about.among.filter if isinstance(about.among, Matching) else None
    )
    return None if filter is None else next(atoms(filter)).where
