"""Context classes, situations and places, and how they are ordered: is-a and part-of (semantics §8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ContextClass:
    """What sensors tell of: temperature, say.

    `parents`: the classes it is one of. `low`, `high`: readings outside are none. `within`: metres around a reading in
    which it holds, where a rule says nothing else. `attributes`: other names that events have for it, each with its
    unit (None: that of the class). `wholes`: the classes it is part of.
    """

    name: str
    parents: tuple[str, ...] = ()
    unit: str | None = None
    low: float | None = None
    high: float | None = None
    within: float | None = None
    attributes: tuple[tuple[str, str | None], ...] = ()
    wholes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SituationClass:
    """What rules conclude: fire, say, which is a hazard, and may be part of an emergency: `wholes`."""

    name: str
    parents: tuple[str, ...] = ()
    wholes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Area:
    """A place with a name: a room, which is part of a building.

    What is there: whatever names it, or one of its parts, as its `place`; the `entities` listed; and what lies within
    the `outline`, a geometry in WKT.
    """

    name: str
    part_of: str | None = None
    outline: str | None = None
    entities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ontology:
    """All there is to speak of; names of classes and situations are different, so that a rule may mix them."""

    classes: tuple[ContextClass, ...] = ()
    situations: tuple[SituationClass, ...] = ()
    areas: tuple[Area, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.classes or self.situations or self.areas)

    def parents(self) -> dict[str, tuple[str, ...]]:
        """Of every class and situation what it is one of."""
        classes = {one.name: one.parents for one in self.classes}
        return classes | {one.name: one.parents for one in self.situations}

    def serving(self) -> dict[str, tuple[str, ...]]:
        """Of every class and situation those whose requests it serves: what it is one of, and what it is part of.

        Where a part is, its whole is; but what is asked of the whole (units, ranges, necessary conditions) is asked of
        what is one, not of its parts.
        """
        classes = {one.name: (*one.parents, *one.wholes) for one in self.classes}
        return classes | {one.name: (*one.parents, *one.wholes) for one in self.situations}

    def wholes(self) -> dict[str, tuple[str, ...]]:
        """Of every place what it is part of."""
        return {one.name: (one.part_of,) if one.part_of else () for one in self.areas}


def below(above: Mapping[str, tuple[str, ...]]) -> dict[str, frozenset[str]]:
    """For every name itself and all that is below it: a request for a class is served by its subclasses, and a place
    contains its parts. `above` has what is right above each name, without cycles.
    """
    found: dict[str, set[str]] = {name: {name} for name in above}
    for name in above:
        for over in upwards(above, name):
            found.setdefault(over, {over}).add(name)
    return {name: frozenset(names) for name, names in found.items()}


def upwards(above: Mapping[str, tuple[str, ...]], name: str) -> Iterator[str]:
    """A name and all that is above it, each once."""
    seen, waiting = set(), [name]
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            yield one
            waiting.extend(reversed(above.get(one, ())))


def cycle(above: Mapping[str, tuple[str, ...]]) -> tuple[str, ...] | None:
    """A way from a name back to itself, both ends named; None if there is none."""
    return next(cycles(above), None)


def cycles(above: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Ways from names back to themselves, both ends named; of ways that share a name the first found."""
    told: set[str] = set()
    done: set[str] = set()
    for start in above:
        # Without recursion: a chain may be as long as a file.
        path, branches = [start], [iter(above.get(start, ()))]
        while path:
            step = next(branches[-1], None)
            if step is None:
                done.add(path.pop())
                branches.pop()
            elif step in path:
                way = (*path[path.index(step) :], step)
                # Whoever mends one of them mostly mends the others.
                if told.isdisjoint(way):
                    yield way
                    told.update(way)
            elif step not in done:
                path.append(step)
                branches.append(iter(above.get(step, ())))
