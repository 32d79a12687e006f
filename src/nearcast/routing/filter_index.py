"""Many filters, and the few to look at: for one event by the texts they require, for another filter by examples.

`type = 'car' AND unit = 'u7' AND speed > 3` can only select events that say both. So it is found by the type, and then
by one more attribute; what requires no text of an event is looked at for every one.

A filter can only cover another if it selects its example. So of many only these need to be asked.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Generic, TypeVar

from nearcast.model.event import OWN, Event
from nearcast.model.filter import And, Atom, Filter, Operator, Or

Required = Mapping[str, frozenset[str]]
"""Of each name texts of which one must be among the event's values."""


@dataclass(eq=False, slots=True)
class _CountedFilter:
    """A filter, and how often it was added. It is found by itself: a filter of many literals takes long to hash, and
    may be kept under each of them.
    """

    filter: Filter
    count: int = 0


Several = dict[_CountedFilter, None]


@dataclass(slots=True)
class _OfType:
    """The filters of one type, or those that require none: by one more required text, and the rest."""

    by_text: dict[tuple[str, str], Several] = field(default_factory=dict)
    rest: Several = field(default_factory=dict)


class FilterIndex:
    """Filters, each as often as it was added."""

    def __init__(self) -> None:
        self._of: dict[str | None, _OfType] = {}
        self._counted: dict[Filter, _CountedFilter] = {}

    def add_filter(self, filter: Filter) -> None:
        """Takes a filter, also one that is there already."""
        counted = self._counted.setdefault(filter, _CountedFilter(filter))
        counted.count += 1
        if counted.count > 1:
            return
        for type, text in _places(filter):
            of = self._of.setdefault(type, _OfType())
            several = of.rest if text is None else of.by_text.setdefault(text, {})
            several[counted] = None

    def remove_filter(self, filter: Filter) -> None:
        """Lets go of a filter that was added."""
        counted = self._counted[filter]
        counted.count -= 1
        if counted.count:
            return
        del self._counted[filter]
        for type, text in _places(filter):
            of = self._of[type]
            several = of.rest if text is None else of.by_text[text]
            del several[counted]
            if text is not None and not several:
                del of.by_text[text]
            if not of.rest and not of.by_text:
                del self._of[type]

    def for_event(self, event: Event) -> Iterator[Filter]:
        """Every filter that may select the event, and some that do not."""
        texts: list[tuple[str, str]] | None = None
        for of in self._for(event.type):
            yield from (counted.filter for counted in of.rest)
            if of.by_text:
                texts = texts_of(event) if texts is None else texts
                for text in texts:
                    yield from (counted.filter for counted in of.by_text.get(text, ()))

    def for_type(self, type: str) -> Iterator[Filter]:
        """Every filter that may select an event of a type, and some that do not."""
        for of in self._for(type):
            yield from (counted.filter for counted in of.rest)
            for several in of.by_text.values():
                yield from (counted.filter for counted in several)

    def _for(self, type: str) -> Iterator[_OfType]:
        for key in (type, None):
            found = self._of.get(key)
            if found is not None:
                yield found


def _places(filter: Filter) -> list[tuple[str | None, tuple[str, str] | None]]:
    """Where a filter is kept: by each type that it may require, and by each text of one other name."""
    needed = dict(required(filter))
    types: list[str | None] = [*needed.pop("type", [None])]
    if not needed:
        return [(type, None) for type in types]
    # The fewer texts, the fewer places; by name where that is even, for removing must find what adding took.
    name = min(needed, key=lambda one: (len(needed[one]), one))
    return [(type, (name, text)) for type in types for text in needed[name]]


def required(node: Filter) -> Required:
    """What a filter requires of every event that it selects, as far as it is told without any NOT."""
    if isinstance(node, Atom):
        texts = _required_texts(node)
        return {} if texts is None else {str(node.name): texts}
    if not isinstance(node, (And, Or)) or not node.children:
        return {}
    found = [required(child) for child in node.children]
    if isinstance(node, Or):
        shared = set.intersection(*(set(one) for one in found))
        return {name: frozenset().union(*(one[name] for one in found)) for name in shared}
    # Not both where two require texts of one name: an attribute may have several values.
    fewest: dict[str, frozenset[str]] = {}
    for one in found:
        for name, texts in one.items():
            if name not in fewest or len(texts) < len(fewest[name]):
                fewest[name] = texts
    return fewest


def _required_texts(atom: Atom) -> frozenset[str] | None:
    if not isinstance(atom.name, str) or atom.operator not in (Operator.EQ, Operator.IN):
        return None
    # A text may be equal to a moment, too.
    texts = [literal for literal in atom.literals if isinstance(literal, str)]
    return frozenset(texts) if len(texts) == len(atom.literals) else None


def texts_of(event: Event) -> list[tuple[str, str]]:
    """What an event says in texts, by name; data that is named as a field is among it, which may be too much."""
    said = [(name, getattr(event, name)) for name in OWN]
    return [(name, value) for name, value in (*said, *event.attributes) if isinstance(value, str)]


Item = TypeVar("Item", bound=Hashable)


class ExampleIndex(Generic[Item]):
    """Items, each with a filter and an example of it; None: none is known."""

    def __init__(self) -> None:
        self._filters = FilterIndex()
        self._items: dict[Filter, dict[Item, None]] = {}
        self._saying: dict[tuple[str, str], dict[Item, None]] = {}
        self._unknown: dict[Item, None] = {}
        self._all: dict[Item, None] = {}

    def add_item(self, item: Item, filter: Filter, example: Event | None) -> None:
        """Takes an item that is not in."""
        self._all[item] = None
        self._filters.add_filter(filter)
        self._items.setdefault(filter, {})[item] = None
        for said in self._places(example):
            said[item] = None

    def remove_item(self, item: Item, filter: Filter, example: Event | None) -> None:
        """Lets go of an item, as it was added."""
        del self._all[item]
        self._filters.remove_filter(filter)
        del self._items[filter][item]
        if not self._items[filter]:
            del self._items[filter]
        for said in self._places(example):
            del said[item]

    def _places(self, example: Event | None) -> Iterator[dict[Item, None]]:
        if example is None:
            yield self._unknown
            return
        # Each text once, though a name may have it several times.
        for text in set(texts_of(example)):
            yield self._saying.setdefault(text, {})

    def equal(self, filter: Filter) -> Iterator[Item]:
        """The items that have this filter."""
        return iter(self._items.get(filter, ()))

    def selecting(self, example: Event | None) -> Iterator[Item]:
        """The items whose filters may select an event; all for one that is not known."""
        if example is None:
            return iter(self._all)
        return chain.from_iterable(self._items[filter] for filter in _once(self._filters.for_event(example)))

    def selected_by(self, filter: Filter) -> Iterator[Item]:
        """The items whose examples a filter may select, those of which none is known among them."""
        places = [
            [self._saying[name, text] for text in texts if (name, text) in self._saying]
            for name, texts in required(filter).items()
        ]
        if not places:
            return iter(self._all)
        fewest = min(places, key=lambda found: sum(map(len, found)))
        return _once(chain(*fewest, self._unknown))


def _once(found: Iterable[Item]) -> Iterator[Item]:
    """Each once, as it is asked for: who looks for one need not have all."""
    seen: set[Item] = set()
    for one in found:
        if one not in seen:
            seen.add(one)
            yield one
