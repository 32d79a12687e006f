"""Requests for context that come as events: a filter as text, a reach, a validity, perhaps a place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nearcast.decision.foraging.node import Node
from nearcast.decision.foraging.rules import Rule, remote
from nearcast.errors import Fault, Mark
from nearcast.language.cql2 import parse
from nearcast.language.places import number, place_of
from nearcast.model.foraging import Request
from nearcast.model.place import Place


def requested(data: Mapping[str, Any], where: Mark, node: Node, place: Place, now: float) -> Request:
    """The request of an event with `when` (CQL2), `within` (metres) and `valid` (seconds); at the node's place unless
    it names one. Raises `Fault` or `DefinitionError`.
    """
    when = data.get("when")
    if not isinstance(when, str):
        raise Fault("when, a filter as text", repr(when)[:60], where)
    within, valid = (number(data.get(name), name, where) for name in ("within", "valid"))
    bounds = node.manner.bounds
    if not (0 <= within <= bounds.farthest and 0 < valid <= bounds.longest):
        expected = f"within up to {bounds.farthest:g} metres and valid up to {bounds.longest:g} seconds"
        raise Fault(expected, f"{within:g} and {valid:g}", where)
    conditions = remote(Rule("asked", "asked", parse(when, where), within, valid), frozenset())
    return Request(node.next_id(), place_of(data, where) or place, within, now, valid, conditions)
