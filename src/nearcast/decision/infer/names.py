"""What conditions are about: the names in a filter over classes and situations, and which rules stand on which."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from nearcast.model.expression import Call, Property, parts
from nearcast.model.filter import Atom, Filter, atoms
from nearcast.model.ontology import ContextClass, Ontology, below, cycle, upwards
from nearcast.model.situation import Situation


def names_of(filter: Filter) -> tuple[str, ...]:
    """The names that a filter's conditions are about, each once, in the order of the text."""
    return tuple(dict.fromkeys(name for atom in atoms(filter) for name in names_in(atom)))


def names_in(atom: Atom) -> Iterator[str]:
    """The names that one condition is about, perhaps repeatedly."""
    if isinstance(atom.name, str):
        yield atom.name
    elif isinstance(atom.name, Call):
        yield from (part.name for part in parts(atom.name) if isinstance(part, Property))


def reach(ontology: Ontology, name: str) -> float | None:
    """The metres within which readings of a class hold by default: its own, else the nearest above it that has one."""
    return next((one.within for one in _with_those_above(ontology, name) if one.within is not None), None)


def unit_of(ontology: Ontology, name: str) -> str | None:
    """The unit of a class: its own, else that of the nearest above it that has one."""
    return next((one.unit for one in _with_those_above(ontology, name) if one.unit is not None), None)


def range_of(ontology: Ontology, name: str) -> tuple[float | None, float | None]:
    """Between what the readings of a class are, None for no bound: within its own range and those above it."""
    found = list(_with_those_above(ontology, name))
    low = max((one.low for one in found if one.low is not None), default=None)
    return low, min((one.high for one in found if one.high is not None), default=None)


def with_inherited(ontology: Ontology, one: ContextClass) -> ContextClass:
    """A class with the unit and the range that it has from those above it too."""
    low, high = range_of(ontology, one.name)
    return replace(one, unit=unit_of(ontology, one.name), low=low, high=high)


def _with_those_above(ontology: Ontology, name: str) -> Iterator[ContextClass]:
    classes = {one.name: one for one in ontology.classes}
    yield from (classes[one] for one in upwards(ontology.parents(), name) if one in classes)


def standing_on(rules: Iterable[Situation], ontology: Ontology) -> dict[str, tuple[str, ...]]:
    """For each rule, by its id, the rules that must be decided before it.

    Those that conclude what it names, or something that is one; and what the necessary conditions of its class name.
    """
    listed = list(rules)
    concluding: dict[str, list[str]] = {}
    for one in listed:
        concluding.setdefault(one.concludes, []).append(one.id)
    return {
        one.id: tuple(dict.fromkeys(id for sub in lower for id in concluding.get(sub, ())))
        for one, lower in _below(listed, ontology)
    }


def _below(rules: Sequence[Situation], ontology: Ontology) -> Iterator[tuple[Situation, Iterator[str]]]:
    """Each rule with the classes of what must be decided before it."""
    under, above = below(ontology.serving()), ontology.parents()
    necessary = [one for one in rules if not one.sufficient]
    for one in rules:
        over = set(upwards(above, one.concludes)) if one.sufficient and necessary else set()
        named = [*names_of(one.when)]
        named += [name for other in necessary if other.concludes in over for name in names_of(other.when)]
        yield one, (sub for name in named for sub in sorted(under.get(name, {name})))


def rule_cycle(rules: Iterable[Situation], ontology: Ontology) -> tuple[str, ...] | None:
    """A way from a rule over what it stands on back to itself, by ids; None if there is none."""
    listed = list(rules)
    # Of a class a rule stands on all that conclude it, so there is a way through rules just where one leads through
    # what they conclude; and of that there is little, where of rules on rules there may be millions.
    standing: dict[str, dict[str, None]] = {}
    for one, lower in _below(listed, ontology):
        standing.setdefault(one.concludes, {}).update(dict.fromkeys(lower))
    if cycle({name: tuple(lower) for name, lower in standing.items()}) is None:
        return None
    return cycle(standing_on(listed, ontology))


def in_order(standing: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Rules so that each comes after all it stands on; else in the order that they have. There is no cycle."""
    done: dict[str, None] = {}
    for start in standing:
        waiting = [start]
        while waiting:
            lacking = [lower for lower in standing.get(waiting[-1], ()) if lower not in done]
            if lacking:
                waiting.append(lacking[0])
            else:
                done[waiting.pop()] = None
    return list(done)
