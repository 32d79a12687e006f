"""What filters need of a frame: a filter that no row can satisfy, for a column is not there, is a slip.

A condition about a column that is not there is UNKNOWN in every row. Where the rest of a filter may hold all the same,
as beside an OR, nothing is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

import pyarrow as pa
import pyarrow.types as pt

from nearcast.api.attributes import may_be_geometry
from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.filters.truth import Truth, joined, negated
from nearcast.language.definitions.client_documents import GEOMETRY_NAMES
from nearcast.language.nodes import closest, listed
from nearcast.model.expression import ARITHMETIC, COMPARISONS, GEOMETRY, Call, attributes, parts
from nearcast.model.filter import Atom, Filter, Not, Operator, Or, PlainNot, This

Truths = frozenset[Truth]

ANY: Truths = frozenset({True, False, None})
UNKNOWN: Truths = frozenset({None})

STRICT = frozenset({*COMPARISONS, *ARITHMETIC, "BETWEEN", "LIKE", "CASEI", "ACCENTI"})
"""Functions that are UNKNOWN where one of their arguments is not there; so are the spatial ones."""

PLACE = "lon beside lat, or x beside y"
"""What is missing where a condition asks where a row is."""


def check_columns(filters: dict[str, Filter], schema: pa.Schema) -> None:
    """Raises `DefinitionError` for filters that can hold in no row of a frame, for a column is missing."""
    columns = _FrameAttributes.of(schema)
    faults: list[Fault] = []
    for name, filter in filters.items():
        missing: list[tuple[str, Atom]] = []
        try:
            possible = True in _truths(filter, columns, missing)
        except RecursionError:
            # The matcher says what is wrong with it.
            continue
        if not possible:
            first = dict(reversed(missing))
            asked = dict.fromkeys(column for column, _ in missing)
            faults += [_fault(name, column, first[column], columns) for column in asked]
    if faults:
        raise DefinitionError(faults)


@dataclass
class _FrameAttributes:
    """The attributes that a frame can have: by name, by how they begin, and whether its rows can be anywhere."""

    names: set[str] = field(default_factory=lambda: {"id", "type", "source"})
    beginnings: list[str] = field(default_factory=list)
    placed: bool = False
    told: set[str] = field(default_factory=set)
    """What the frame itself calls its columns, without what every event has anyway."""

    hidden: list[str] = field(default_factory=list)
    """Names in the data of CloudEvents, which are `data.NAME` where the event has NAME of its own."""

    @classmethod
    def of(cls, schema: pa.Schema) -> _FrameAttributes:
        found = cls()
        columns = {one.name: one.type for one in schema}
        data = columns.get("data")
        if "specversion" in columns and data is not None and pt.is_struct(data):
            del columns["data"]
            found.hidden = [one.name for one in data]
            columns |= {one.name: one.type for one in data}
        given = set(found.names)
        for name, kind in columns.items():
            found._add(name, kind)
        found.told = found.names - (given - columns.keys())
        there = columns.keys()
        shaped = any(name in columns and pt.is_struct(columns[name]) for name in GEOMETRY_NAMES)
        found.placed = {"lon", "lat"} <= there or {"x", "y"} <= there or shaped
        return found

    def _add(self, name: str, kind: pa.DataType) -> None:
        if pt.is_dictionary(kind) or pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
            self._add(name, kind.value_type)
        elif pt.is_struct(kind):
            if may_be_geometry(kind):
                self.names.add(name)
            for one in kind:
                self._add(f"{name}.{one.name}", one.type)
        elif pt.is_map(kind):
            self.beginnings.append(f"{name}.")
        else:
            self.names.add(name)
            if pt.is_null(kind):
                # Nobody knows what a column without a value would hold.
                self.beginnings.append(f"{name}.")

    def have(self, name: str) -> bool:
        """Whether a row can have this attribute."""
        if name.startswith(tuple(f"data.{one}" for one in self.hidden)):
            name = name.removeprefix("data.")
        return name in self.names or name.startswith(tuple(self.beginnings))


def _truths(node: Filter, columns: _FrameAttributes, missing: list[tuple[str, Atom]]) -> Truths:
    """The truths that a filter can have; adds the columns that are not there, and who asks for them."""
    if isinstance(node, Atom):
        lacking = list(dict.fromkeys(_lacking(node, columns)))
        missing += [(name, node) for name in lacking]
        if node.operator is Operator.IS_NULL and lacking:
            return frozenset({True})
        return UNKNOWN if lacking else ANY
    if isinstance(node, (Not, PlainNot)):
        inner = _truths(node.child, columns, missing)
        return frozenset(one is not True if isinstance(node, PlainNot) else negated(one) for one in inner)
    found = [_truths(child, columns, missing) for child in node.children]
    # Three truths at most: folding pairs keeps wide nodes cheap.
    together: Truths = found[0]
    for other in found[1:]:
        together = frozenset(joined(isinstance(node, Or), pair) for pair in product(together, other))
    return together


def _lacking(atom: Atom, columns: _FrameAttributes) -> Iterator[str]:
    """The columns without which an atom is UNKNOWN, or for IS NULL true, in every row."""
    if isinstance(atom.name, str):
        if not columns.have(atom.name):
            yield atom.name
    elif not isinstance(atom.name, Call):
        sides = [getattr(atom.name, side, None) for side in ("a", "b", "around")]
        if not columns.placed and any(isinstance(side, This) for side in sides):
            yield PLACE
    elif all(_is_strict(part) for part in parts(atom.name)):
        for name in attributes(atom.name):
            if not (columns.have(name) or (name.lower() in GEOMETRY and _has_geometry(columns))):
                yield name


def _has_geometry(columns: _FrameAttributes) -> bool:
    return columns.placed or not columns.names.isdisjoint(GEOMETRY)


def _is_strict(part: object) -> bool:
    return not isinstance(part, Call) or part.function in STRICT or part.function.startswith("S_")


def _fault(filter: str, column: str, atom: Atom, columns: _FrameAttributes) -> Fault:
    where = None if atom.where is None else Mark(f"filter {filter}", atom.where.line, atom.where.column)
    names = sorted({*columns.told, *(f"{one}…" for one in columns.beginnings)})
    advice = closest(column, names) or "without it the filter can never hold"
    return Fault(f"a column {column}", f"the columns {listed(names, 20)}", where, advice)
