"""Many filters and an example of each, an event that it selects: which may select an event, whose example may one.

A filter can only cover another if it selects its example. So of many only these need to be asked.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from itertools import chain
from typing import Generic, TypeVar

from nearcast.decision.filter_index import FilterIndex, required, texts_of
from nearcast.model.event import Event
from nearcast.model.filter import Filter

Item = TypeVar("Item", bound=Hashable)


class ExampleIndex(Generic[Item]):
    """Items, each with a filter and an example of it; None: none is known."""

    def __init__(self) -> None:
        self._filters = FilterIndex()
        self._items: dict[Filter, dict[Item, None]] = {}
        self._saying: dict[tuple[str, str], dict[Item, None]] = {}
        self._unknown: dict[Item, None] = {}
        self._all: dict[Item, None] = {}

    def add(self, item: Item, filter: Filter, example: Event | None) -> None:
        """Takes an item that is not in."""
        self._all[item] = None
        self._filters.add(filter)
        self._items.setdefault(filter, {})[item] = None
        for said in self._places(example):
            said[item] = None

    def remove(self, item: Item, filter: Filter, example: Event | None) -> None:
        """Lets go of an item, as it was added."""
        del self._all[item]
        self._filters.remove(filter)
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
