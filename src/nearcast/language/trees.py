"""Joining conditions: an AND within an AND is one AND, so every form of a filter has the same tree."""

from __future__ import annotations

from collections.abc import Iterable

from nearcast.model.filter import And, Filter, Or


def all_of(children: Iterable[Filter]) -> Filter:
    """The conjunction of one or more filters, flat; one filter alone is itself."""
    flat = _flatten(children, And)
    return flat[0] if len(flat) == 1 else And(flat)


def any_of(children: Iterable[Filter]) -> Filter:
    """The disjunction of one or more filters, flat; one filter alone is itself."""
    flat = _flatten(children, Or)
    return flat[0] if len(flat) == 1 else Or(flat)


def _flatten(children: Iterable[Filter], kind: type[And] | type[Or]) -> tuple[Filter, ...]:
    flat: list[Filter] = []
    for child in children:
        flat.extend(child.children if isinstance(child, kind) else (child,))
    return tuple(flat)
