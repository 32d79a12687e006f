"""Atoms that can never hold, subscriptions that reach nobody, idle words of clients: taken, but hardly meant."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from nearcast.algebra.comparison import find
from nearcast.algebra.constraints import Premises
from nearcast.errors import Fault
from nearcast.filters.receiver_terms import asked_of_receiver
from nearcast.language import cql2
from nearcast.language.definitions.degree_limits import long_ways_round
from nearcast.language.nodes import closest
from nearcast.model.event import DERIVED
from nearcast.model.expression import Call, Constant, parts
from nearcast.model.expression import users as users_of
from nearcast.model.filter import (
    ME,
    And,
    Atom,
    Count,
    Distance,
    Entities,
    Filter,
    Located,
    Operator,
    Or,
    User,
    atoms,
)
from nearcast.model.subscription import ClientProfile, Settings, Subscription
from nearcast.model.values import Value, kind_of, time_of

TEXTS = frozenset({"type", "source", "subject", "id", "specversion", "datacontenttype", "dataschema"})

QUICK = 2_000
"""How much is looked at to find out whether a filter can hold: a file may hold thousands of filters."""

LARGE = 500
"""Up to so many atoms of a filter are held against each other."""

REPEATED = "only an event in which an attribute has several values could satisfy all of it"

LONGEST = 200
"""How many characters of a condition a warning shows."""


def warnings_of(
    subscriptions: Iterable[Subscription], clients: Sequence[ClientProfile], settings: Settings
) -> tuple[Fault, ...]:
    """What is worth a warning in subscriptions, given the clients and channels that there are."""
    users = frozenset(client.id for client in clients)
    types = types_of(settings)
    subscriptions = list(subscriptions)
    asked = {name for one in subscriptions for name in asked_of_receiver(one.filter)[1]}
    found = [warning for client in clients for warning in _idle(client, settings, asked)]
    for subscription in subscriptions:
        found.extend(never_holding(subscription.filter, users, types))
        found.extend(long_ways_round(subscription.filter, settings.channels))
        if not subscription.clients:
            first = next(atoms(subscription.filter))
            found.append(Fault("a client", f"none in subscription {subscription.id}", first.where, "it reaches nobody"))
    return tuple(found)


def types_of(settings: Settings) -> frozenset[str] | None:
    """The types of events that there can be, None if channels take any."""
    if not settings.channels or any(not channel.types for channel in settings.channels):
        return None
    return frozenset((*(type_ for one in settings.channels for type_ in one.types), *DERIVED))


def _idle(client: ClientProfile, settings: Settings, asked: Collection[str]) -> Iterator[Fault]:
    """What a client states to no effect: half of a role and task, and readings that no awareness module reads, nor a
    filter asks for.
    """
    if settings.roles.vectors and (client.role is None) != (client.task is None):
        came = "a role alone" if client.task is None else "a task alone"
        advice = "vectors belong to a role and a task: with one of them every atom has relevance 1"
        yield Fault(f"role and task of client {client.id}, or none", came, None, advice)
    modules = [module.reading for module in settings.space.modules]
    for reading in client.readings:
        if modules and reading not in modules and reading not in asked:
            advice = closest(reading, modules) or f"there are {', '.join(modules)}"
            yield Fault(f"readings of client {client.id} that an awareness module reads", reading, None, advice)


def never_holding(
    filter: Filter, users: frozenset[str] | None = None, types: frozenset[str] | None = None
) -> Iterator[Fault]:
    """A warning for each atom that can never hold, else for each part that cannot, though each of its atoms can.

    `users` and `types` are what there is, None if that is open.
    """
    known: list[Fault] = []
    for atom in atoms(filter):
        reason = _reason(atom, types)
        if reason:
            known.append(Fault("an atom that can hold", cql2.write(atom), atom.where, reason))
        for name in _named(atom):
            if users is not None and name not in users:
                known.append(Fault("a user that is a client", f"user('{name}')", atom.where, "no client has this id"))
        for located in _located(atom):
            if isinstance(located, Entities) and located.conditions is not None:
                known += never_holding(located.conditions, users, types)
    yield from known
    if asked_of_receiver(filter)[0]:
        # What its numbers are, its receivers say.
        return
    if not known and sum(1 for _ in atoms(filter)) <= LARGE:
        yield from _contradictions(filter)


def _contradictions(node: Filter, possible: bool = False) -> Iterator[Fault]:
    """The parts that no event can satisfy, the largest ones; and those for which an attribute would have to repeat.

    `possible`: the part as a whole is known to hold for some event, which says nothing of its alternatives.
    """
    if isinstance(node, Atom) or _independent(node):
        return
    advice = "" if possible else _exclusion(node)
    if advice:
        yield Fault("conditions that can hold together", _shown(node), next(atoms(node)).where, advice)
        return
    for child in node.children if isinstance(node, (And, Or)) else ():
        yield from _contradictions(child, possible=isinstance(node, And))


def _exclusion(node: Filter) -> str:
    """Why a part can never hold, or only where attributes repeat; empty if it can."""
    if not excluded(node):
        return ""
    return "its atoms exclude one another" if find(node, steps=QUICK).possible is False else REPEATED


def excluded(node: Filter) -> bool:
    """Whether, as far as a quick look tells, a filter can never hold where every attribute has one value."""
    return find(node, Premises(single=True), QUICK).possible is False


def _independent(node: Filter) -> bool:
    """Whether no two atoms are about the same: then what each allows, all allow together."""
    names = [atom.name for atom in atoms(node)]
    return len(set(names)) == len(names)


def _shown(node: Filter) -> str:
    text = cql2.write(node)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _reason(atom: Atom, types: frozenset[str] | None) -> str:
    """Why an atom can never hold, or is hardly meant; empty if it can."""
    if asked_of_receiver(atom)[0]:
        return ""
    if isinstance(atom.name, Call):
        return _never(atom.name)
    values = atom.literals
    if atom.operator is Operator.BETWEEN and kind_of(values[0]) != kind_of(values[1]):
        return "its bounds are of two kinds"
    if atom.name == "type" and types is not None and atom.operator in (Operator.EQ, Operator.IN):
        texts = [value for value in values if isinstance(value, str)]
        if texts and not types.intersection(texts):
            return "no channel takes this type"
    return _clash(atom, values) or (_why(atom, values) if _is_impossible(atom, values) else "")


def _is_impossible(atom: Atom, values: tuple[Value, ...]) -> bool:
    """Whether no event satisfies an atom. Most are not asked: their own literal satisfies them, or one beyond it."""
    held = atom.operator in (Operator.EQ, Operator.NE, Operator.LE, Operator.GE, Operator.IN, Operator.LIKE)
    beyond = atom.operator in (Operator.LT, Operator.GT) and kind_of(values[0]) == "number"
    plain = isinstance(atom.name, str) and (held or beyond)
    return not plain and find(atom, steps=QUICK).possible is False


def _why(atom: Atom, values: tuple[Value, ...]) -> str:
    """Why no event satisfies an atom."""
    if atom.operator is Operator.IS_NULL:
        return f"every event has {atom.name}"
    if atom.operator is Operator.BETWEEN and values[0] > values[1]:  # type: ignore[operator]
        return "its lower bound is above its upper one"
    if not isinstance(atom.name, str):
        return f"a {type(atom.name).__name__.lower()} is never below 0"
    return "no value satisfies it"


def _never(call: Call) -> str:
    """Why a computed condition can never hold; empty if it can, or if that takes more than a look."""
    if call.function == "FALSE":
        return "FALSE selects nothing"
    divisions = [part for part in parts(call) if isinstance(part, Call) and part.function in ("/", "DIV", "%")]
    if call.function != "IS NULL" and any(part.arguments[1] == Constant(0) for part in divisions):
        return "a division by zero is never known"
    return ""


def _clash(atom: Atom, values: tuple[Value, ...]) -> str:
    if atom.operator is Operator.IS_NULL:
        return "every event has specversion" if atom.name == "specversion" else ""
    if atom.name in TEXTS and not any(isinstance(value, str) for value in values):
        return f"{atom.name} is a text"
    if atom.name == "time" and not any(kind_of(value) == "time" or _names_moment(value) for value in values):
        return "time is a timestamp, as TIMESTAMP('2020-01-31T12:00:00Z')"
    return ""


def _names_moment(value: Value) -> bool:
    return isinstance(value, str) and time_of(value) is not None


def _named(atom: Atom) -> tuple[str, ...]:
    """The users that an atom names."""
    if isinstance(atom.name, Call):
        return users_of(atom.name)
    return tuple(located.name for located in _located(atom) if isinstance(located, User) and located != ME)


def _located(atom: Atom) -> Iterator[Located]:
    if isinstance(atom.name, Distance):
        yield from (atom.name.a, atom.name.b)
    elif isinstance(atom.name, Count):
        yield atom.name.of
        if atom.name.around is not None:
            yield atom.name.around
