"""`nearcast.Filter`: one filter in CQL2, what it selects, why, and how it relates to another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from nearcast.api.comparing import ComparedFilters, compared
from nearcast.api.event_rows import EventLike, event_of
from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.explain.explanation import AtomFinding, ExplanationScene, explain
from nearcast.explain.why_not import observed
from nearcast.filters.spatial_atoms import truth_alone
from nearcast.filters.surroundings import asked_of_surroundings
from nearcast.language.cql2 import parse
from nearcast.language.cql2.printer import write
from nearcast.model.changes import ClientChange, SubscriptionChange
from nearcast.model.filter import Filter as Tree
from nearcast.model.filter import atoms
from nearcast.model.subscription import Subscription
from nearcast.state.registry import Registry

TRUTHS = {True: "TRUE", False: "FALSE", None: "UNKNOWN"}


@dataclass(frozen=True, slots=True)
class AtomTruth:
    """One condition of a filter for one event: its text, its truth (None: UNKNOWN), and what made it so.

    `blocked`: with another truth of it, and of those blocked with it, the filter would have selected.
    """

    text: str
    truth: bool | None
    why: str
    blocked: bool

    def __str__(self) -> str:
        return f"{TRUTHS[self.truth]:<7}  {self.text}  ({self.why})"


@dataclass(frozen=True, slots=True)
class FilterExplanation:
    """Why a filter selects an event, or does not: the truth of the whole, and of each condition in the text's order.

    An event is selected only where the whole is True (None: UNKNOWN). `str()` gives lines for a person.
    """

    filter: str
    truth: bool | None
    atoms: tuple[AtomTruth, ...]

    @property
    def matches(self) -> bool:
        """Whether the event is selected."""
        return self.truth is True

    def __str__(self) -> str:
        return "\n".join([f"{TRUTHS[self.truth]}  {self.filter}", *(f"  {atom}" for atom in self.atoms)])


class Filter:
    """A filter, from CQL2 text or CQL2 JSON. Raises `DefinitionError` with every fault, each with line and column.

    `name` is what faults call it. Filters of the same meaning in the same form are equal; `compare` tells more.
    """

    def __init__(self, text: str, *, name: str = "filter") -> None:
        if not isinstance(text, str):
            raise DefinitionError(Fault("a filter as CQL2 text", type(text).__name__, Mark(name)))
        self.text = text
        self._tree: Tree = parse(text, Mark(name, 1, 1))

    def matches(self, event: EventLike) -> bool:
        """Whether the filter selects an event: a dict of attributes, a CloudEvent as a dict or as a line of JSON.

        Raises `EventError` for what is no event, `DefinitionError` where the filter asks for more than the event.
        """
        refuse_surroundings(self._tree)
        return truth_alone(self._tree, event_of(event, 0)) is True

    def explain(self, event: EventLike) -> FilterExplanation:
        """Why the filter selects an event, or does not: each condition's truth, and what made it so.

        Nothing but the event is known: a condition about users or other entities is UNKNOWN, and says so. Raises
        `EventError` for what is no event.
        """
        scene = ExplanationScene(self._registry, (), event_of(event, 0))
        selecting = explain(scene, _ONE).subscriptions
        # Nobody can subscribe to control events; a filter has a truth for them all the same.
        found = selecting[0].atoms if selecting else scene.atoms(self._registry.subscriptions[_ONE])
        whole = truth_alone(self._tree, scene.event, scene)
        return FilterExplanation(self.text, whole, tuple(_atom(one) for one in found))

    def compare(self, other: Filter | str, *, repeated: bool = False, integers: bool = False) -> ComparedFilters:
        """How the events that this filter accepts relate to those that another one accepts, with an event for each
        difference.

        The events are those in which an attribute has one value at most, with `repeated` also those with lists; with
        `integers` those in which every number is an integer.
        """
        second = other if isinstance(other, Filter) else Filter(other, name="other")
        return compared(self._tree, second._tree, repeated, integers, ("first", "second"))

    @cached_property
    def _registry(self) -> Registry:
        """One client that wants this."""
        registry = Registry()
        registry.apply(ClientChange(_ONE))
        registry.apply(SubscriptionChange(Subscription(_ONE, (_ONE,), self._tree)))
        return registry

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and self._tree == other._tree

    def __hash__(self) -> int:
        return hash(self._tree)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Filter({self.text!r})"


Filters = Mapping[str, Filter | str] | Iterable[tuple[str, Filter | str]]
"""Filters by name, as a dict or as pairs; each a `Filter` or CQL2 text."""

_ONE = "filter"


def read_filters(filters: Filters) -> dict[str, Tree]:
    """The trees of filters by name. Raises `DefinitionError` with the faults of all of them."""
    if isinstance(filters, (str, Filter)) or not isinstance(filters, Iterable):
        advice = 'as in {"hot": "temperature > 30"}'
        raise DefinitionError(Fault("filters by name", f"{type(filters).__name__}", None, advice))
    found: dict[str, Tree] = {}
    faults: list[Fault] = []
    pairs = list(filters.items() if isinstance(filters, Mapping) else filters)
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        came = next(type(pair).__name__ for pair in pairs if not (isinstance(pair, tuple) and len(pair) == 2))
        raise DefinitionError(Fault("filters by name", f"{came} in a list", None, 'as in {"hot": "temperature > 30"}'))
    for name, filter in pairs:
        where = f"filter {name}"
        if not isinstance(name, str):
            faults.append(Fault("a text as a filter's name", repr(name)[:80], Mark(where)))
        elif name in found:
            faults.append(Fault("each filter's name once", f"{name} again", Mark(where)))
        else:
            try:
                one = filter if isinstance(filter, Filter) else Filter(filter, name=where)
                found[name] = refuse_surroundings(one._tree, where)
            except DefinitionError as error:
                faults += error.faults
    if faults:
        raise DefinitionError(faults)
    return found


def refuse_surroundings(filter: Tree, name: str | None = None) -> Tree:
    """The filter. Raises `DefinitionError` if it asks for users, other entities or earlier events: where there are none
    such terms could only ever be unknown. `name` is what the fault calls the filter, if not what its text was called.
    """
    for atom in atoms(filter):
        asks = asked_of_surroundings(atom)
        if asks:
            where = atom.where if name is None or atom.where is None else Mark(name, atom.where.line, atom.where.column)
            advice = "`nearcast replay`, or `nearcast.replay`, decides with definitions"
            raise DefinitionError(Fault("a filter about the event alone", asks, where, advice))
    return filter


def _atom(found: AtomFinding) -> AtomTruth:
    return AtomTruth(write(found.atom), found.truth, observed(found), found.blocked)
