"""Arrays: sets of values, as CQL2 compares them (OGC 21-065r2, 7.9)."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator
from datetime import date, datetime

import shapely

from nearcast.filters.instants import Interval, instant_of
from nearcast.geo.shapes import Geometry
from nearcast.model.expression import day

Key = frozenset[Hashable]
"""What an element equals: two elements are equal if they share one."""


def contains(a: list[Key], b: list[Key]) -> bool:
    """Whether every element of `b` is one of `a`."""
    there: set[Hashable] = set().union(*a)
    return all(not there.isdisjoint(key) for key in b)


ARRAYS: dict[str, Callable[[list[Key], list[Key]], bool]] = {
    "A_EQUALS": lambda a, b: contains(a, b) and contains(b, a),
    "A_CONTAINS": contains,
    "A_CONTAINEDBY": lambda a, b: contains(b, a),
    "A_OVERLAPS": lambda a, b: not set().union(*a).isdisjoint(set().union(*b)),
}


def related(function: str, a: Iterable[object], b: Iterable[object]) -> bool:
    """Whether two arrays are so related as sets; their elements are equal as in a comparison."""
    left, right = list(a), list(b)
    # A text is a time only where it meets one.
    mine = [frozenset(_key(one, _timed(right), ("left", "right"))) for one in left]
    return ARRAYS[function](mine, [frozenset(_key(one, _timed(left), ("right", "left"))) for one in right])


def _timed(elements: Iterable[object]) -> bool:
    return any(isinstance(one, date) or (isinstance(one, tuple) and _timed(one)) for one in elements)


def _key(element: object, timed: bool, sides: tuple[str, str]) -> Iterator[Hashable]:
    """The keys of one element; `sides` are its own and the other: a moment equals a day, but no moment of that day."""
    match element:
        case bool():
            yield "boolean", element
        case int() | float():
            # A NaN equals nothing, itself not either.
            yield ("number", object()) if isinstance(element, float) and math.isnan(element) else ("number", element)
        case str():
            yield "text", element
            instant = instant_of(element) if timed else None
            if isinstance(instant, datetime):
                yield from _key(instant, timed, sides)
            elif instant is not None:
                # It equals a day, but no moment of that day.
                yield "day", instant
        case datetime():
            yield "moment", element
            yield sides[0], day(element)
        case date():
            yield "day", element
            yield sides[1], element
        case Geometry():
            # One that takes too much has no shape, and equals nothing.
            yield "geometry", object() if element.shape is None else shapely.to_wkb(shapely.normalize(element.shape))
        case Interval():
            yield "interval", element
        case tuple():
            yield "array", frozenset(frozenset(_key(one, timed, ("", ""))) for one in element)
