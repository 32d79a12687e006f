"""Limits within documents: each by its name, a whole number that counts, or a duration."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from nearcast.language.nodes import DocumentNode, DocumentReader
from nearcast.language.quantities import read_duration
from nearcast.model.limits import Limits

MOST = 2**53
"""What every reader of JSON still reads as a whole number."""


def read_limits(node: DocumentNode, reader: DocumentReader) -> Limits:
    """The limits of a document; what is not there has its default. Faults go to the reader."""
    defaults = {each.name: each.default for each in fields(Limits)}
    found: dict[str, Any] = {}
    for name, item in reader.fields(node, (), tuple(defaults), "limits").items():
        if isinstance(defaults[name], float):
            value: float | None = read_duration(item, name, reader)
        else:
            value = reader.integer(item, name, 1, MOST)
        if value is not None:
            found[name] = value
    return Limits(**found)


def limits_data(limits: Limits) -> dict[str, Any]:
    """The limits that are not the default ones, JSON-able; `read_limits` inverts it."""
    listed = ((each.name, getattr(limits, each.name), each.default) for each in fields(limits))
    return {name: value for name, value, default in listed if value != default}
