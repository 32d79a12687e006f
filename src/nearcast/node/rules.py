"""Situation rules in a node's file: as in definitions, with `threshold` besides."""

from __future__ import annotations

import re

from nearcast.decision.foraging.rules import Rule, remote
from nearcast.errors import DefinitionError, Fault
from nearcast.language.filter_document import read_filter
from nearcast.language.nodes import Node
from nearcast.language.reading import Reader

UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_WRITTEN = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s*")


def read_rule(node: Node, measured: frozenset[str], reader: Reader) -> Rule | None:
    """The rule of a node which measures some classes; None after a fault.

    A condition on another class must be one that a request can carry.
    """
    given = reader.fields(node, ("id", "class", "when", "within", "valid"), ("threshold",), "a situation rule")
    id, situation = (reader.text(given[name], name) if name in given else None for name in ("id", "class"))
    weighted = read_filter(given["when"], 3, reader) if "when" in given else None
    within = reader.number(given["within"], "within, in metres", low=0) if "within" in given else None
    valid = read_duration(given["valid"], "valid", reader) if "valid" in given else None
    threshold = reader.number(given["threshold"], "threshold, a trigger level", low=0) if "threshold" in given else 0.0
    if threshold is not None and threshold > 1:
        reader.fault("threshold, a trigger level: from 0 to 1", given["threshold"])
    if valid == 0:
        reader.fault("valid: more than 0 seconds", given["valid"])
    if None in (id, situation, weighted, within, valid, threshold) or not valid:
        return None
    assert id and situation and weighted and within is not None and threshold is not None
    rule = Rule(id, situation, weighted.filter, within, valid, threshold)
    try:
        remote(rule, measured)
    except (Fault, DefinitionError) as error:
        reader.take(error)
        return None
    return rule


def read_duration(node: Node, what: str, reader: Reader) -> float | None:
    """The seconds that a node means: a number of them, or a number and a unit as in `10 s`; None after a fault."""
    if not isinstance(node.value, str):
        return reader.number(node, f"{what}, in seconds or as in 10 s", low=0)
    found = _WRITTEN.fullmatch(node.value)
    if found and found[2] in UNITS:
        return float(found[1]) * UNITS[found[2]]
    reader.fault(f"{what}: a number and one of {', '.join(UNITS)}, as in 10 s", node)
    return None
