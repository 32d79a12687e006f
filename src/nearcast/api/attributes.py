"""Columns as attributes: any Arrow array as the (name, value) entries of EVENTS, without a step per row (semantics §1).

A struct's fields become dotted names, a list its name several times, a map a name for each key, null is absent. A
GeoJSON geometry is one attribute, its JSON as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from nearcast.errors import Fault, Mark
from nearcast.language.cloudevents import MAX_NESTING
from nearcast.language.definitions.client_documents import is_geometry
from nearcast.language.event_degrees import EXPECTED, beyond
from nearcast.model.columns import ATTRIBUTE, EVENTS, TIME, VALUE_FIELDS
from nearcast.model.values import INTEGER_MAXIMUM, INTEGER_MINIMUM, time_of

Rows = npt.NDArray[np.int64]

EARLIEST, LATEST = -62_135_596_800, 253_402_300_800
"""Seconds from 1970 to the year 1, and to the year 10000: the moments between them are times."""

_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_MOMENT = r"^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d"
_WHAT_TO_DO = "cast the column to a number, text, boolean or timestamp, or leave it out"


@dataclass(frozen=True, slots=True)
class AttributeColumn:
    """Entries of one kind of value: of each its name, its row, ascending, and its value, which is never null.

    `moments` are the times that texts name, null where they name none.
    """

    kind: str
    names: pa.Array
    rows: Rows
    values: pa.Array
    moments: pa.Array | None = None


@dataclass(frozen=True, slots=True)
class Unfit:
    """A value that no attribute can have: its row, what was expected, what came, and what to do."""

    row: int
    expected: str
    came: str
    advice: str
    geographic: bool = False
    """Only where geometries are in degrees."""


@dataclass(frozen=True, slots=True)
class _Values:
    """Some values on the way to attributes, with their names and rows."""

    names: pa.Array
    values: pa.Array
    rows: Rows
    depth: int

    def where(self, mask: pa.Array) -> _Values:
        """Those for which the mask is true."""
        if mask.true_count == len(mask):
            return self
        rows = self.rows[mask.to_numpy(zero_copy_only=False)]
        return replace(self, names=self.names.filter(mask), values=self.values.filter(mask), rows=rows)

    def inner(self, values: pa.Array, parents: Rows, suffix: pa.Array | str | None = None) -> _Values:
        """Values within these, each with the number of its parent."""
        names = self.names.take(pa.array(parents))
        if suffix is not None:
            names = pc.binary_join_element_wise(names, suffix, ".")
        return _Values(names, values, self.rows[parents], self.depth + 1)


def attribute_columns(names: pa.Array, column: pa.Array, rows: Rows, where: Mark) -> Iterator[AttributeColumn | Unfit]:
    """The entries of a column whose values have these names and rows, and the values that no attribute can have.

    Raises `Fault` for a type that no attribute can have.
    """
    yield from _attribute_columns(_Values(names, column, rows, 1), where)


def _attribute_columns(part: _Values, where: Mark) -> Iterator[AttributeColumn | Unfit]:
    kind = part.values.type
    if pt.is_null(kind):
        return
    if part.depth > MAX_NESTING:
        raise Fault(f"data at most {MAX_NESTING} deep", "deeper data", where)
    if isinstance(kind, pa.BaseExtensionType):
        yield from _attribute_columns(replace(part, values=part.values.storage), where)
        return
    if part.values.null_count:
        part = part.where(part.values.is_valid())
    if pt.is_dictionary(kind):
        yield from _attribute_columns(replace(part, values=decoded(part.values)), where)
    elif pt.is_struct(kind):
        yield from _of_struct(part, where)
    elif pt.is_map(kind):
        yield from _of_map(part, where)
    elif _is_list(kind):
        parents = pc.list_parent_indices(part.values).to_numpy()
        yield from _attribute_columns(part.inner(pc.list_flatten(part.values), parents.astype(np.int64)), where)
    else:
        yield from _plain(part, where)


def _of_struct(part: _Values, where: Mark) -> Iterator[AttributeColumn | Unfit]:
    fields = list(part.values.type)
    if may_be_geometry(part.values.type):
        shapes = [geometry_of(value) for value in part.values.to_pylist()]
        shaped = pa.array([shape is not None for shape in shapes], pa.bool_())
        texts = pa.array([None if shape is None else orjson.dumps(shape).decode() for shape in shapes], pa.string())
        yield from _attribute_columns(replace(part, values=texts), where)
        for row, name, shape in zip(part.rows.tolist(), part.names.to_pylist(), shapes, strict=True):
            found = None if shape is None else beyond(name, shape)
            if found is not None:
                yield Unfit(row, EXPECTED, *found, geographic=True)
        part = part.where(pc.invert(shaped))
    every = np.arange(len(part.values))
    for field, values in zip(fields, part.values.flatten(), strict=True):
        yield from _attribute_columns(part.inner(values, every, field.name), where)


def _of_map(part: _Values, where: Mark) -> Iterator[AttributeColumn | Unfit]:
    if not is_text(part.values.type.key_type):
        raise Fault("a map whose keys are texts", f"the type {part.values.type}", where, _WHAT_TO_DO)
    offsets = part.values.offsets.to_numpy()
    start, length = int(offsets[0]), int(offsets[-1] - offsets[0])
    keys = pc.cast(part.values.keys.slice(start, length), pa.string())
    parents = np.repeat(np.arange(len(part.values)), np.diff(offsets))
    yield from _attribute_columns(part.inner(part.values.items.slice(start, length), parents, keys), where)


def _plain(part: _Values, where: Mark) -> Iterator[AttributeColumn | Unfit]:
    """The attributes of values that are neither null nor nested."""
    kind = part.values.type
    if pt.is_boolean(kind):
        yield AttributeColumn("boolean", part.names, part.rows, part.values)
    elif pt.is_floating(kind):
        yield AttributeColumn("double", part.names, part.rows, pc.cast(part.values, pa.float64()))
    elif pt.is_uint64(kind):
        yield from _within_64_bits(part, pc.less_equal(part.values, pa.scalar(INTEGER_MAXIMUM, kind)))
    elif pt.is_integer(kind):
        yield AttributeColumn("integer", part.names, part.rows, pc.cast(part.values, pa.int64()))
    elif pt.is_decimal(kind):
        yield from _decimals(part)
    elif is_text(kind) or pt.is_date(kind):
        texts = pc.cast(part.values, pa.date32()) if pt.is_date64(kind) else part.values
        texts = pc.cast(texts, pa.string())
        yield AttributeColumn("text", part.names, part.rows, texts, _moments(texts))
    elif pt.is_timestamp(kind):
        yield from _times(part)
    else:
        raise Fault("a type that an attribute can have", f"the type {kind}", where, _WHAT_TO_DO)


def _within_64_bits(part: _Values, fits: pa.Array) -> Iterator[AttributeColumn | Unfit]:
    """Integers, as far as they fit into 64 bits."""
    taken = part.where(fits)
    yield AttributeColumn("integer", taken.names, taken.rows, pc.cast(taken.values, pa.int64()))
    beyond = part.where(pc.invert(fits)) if len(taken.values) < len(part.values) else None
    if beyond is not None:
        for name, row, value in zip(beyond.names.to_pylist(), beyond.rows, beyond.values.to_pylist(), strict=True):
            yield Unfit(int(row), f"{name} within 64 bits", str(value), "send it as a text or a double")


def _decimals(part: _Values) -> Iterator[AttributeColumn | Unfit]:
    """Integral ones are integers, the others doubles."""
    # A decimal of few digits, as in most tables, is never beyond 64 bits.
    whole = pc.equal(pc.floor(part.values), part.values)
    broken = part.where(pc.invert(whole))
    yield AttributeColumn("double", broken.names, broken.rows, nearest_doubles(broken.values))
    part = part.where(whole)
    fits = [INTEGER_MINIMUM <= value <= INTEGER_MAXIMUM for value in part.values.to_pylist()] if _long(part) else None
    yield from _within_64_bits(part, pa.array(fits or [True] * len(part.values), pa.bool_()))


def nearest_doubles(decimals: pa.Array) -> pa.Array:
    """Of each decimal the double nearest to it: Arrow's own cast multiplies, and misses some by a last digit."""
    return pc.cast(pc.cast(decimals, pa.string()), pa.float64())


def _long(part: _Values) -> bool:
    return part.values.type.precision - part.values.type.scale > 18


def _times(part: _Values) -> Iterator[AttributeColumn | Unfit]:
    """Moments to the microsecond; without a zone they are taken as UTC, as in texts."""
    ticks = _UNITS[part.values.type.unit]
    counted = pc.cast(part.values, pa.int64()).to_numpy()
    fits = (counted >= EARLIEST * ticks) & (counted < LATEST * ticks)
    for row, name in zip(part.rows[~fits], part.names.filter(pa.array(~fits)).to_pylist(), strict=True):
        yield Unfit(
            int(row), f"{name} within the years 1 to 9999", "another moment", "leave it out where it is unknown"
        )
    taken, counted = part.where(pa.array(fits)), counted[fits]
    micros = counted // (ticks // 1_000_000) if ticks > 1_000_000 else counted * (1_000_000 // ticks)
    yield AttributeColumn("time", taken.names, taken.rows, pa.array(micros).cast(TIME))


def _moments(texts: pa.Array) -> pa.Array | None:
    """The times that texts name, null where they name none; None if no text does."""
    like = pc.match_substring_regex(texts, _MOMENT)
    if not like.true_count:
        return None
    found = iter([time_of(text) for text in texts.filter(like).to_pylist()])
    return pa.array([next(found) if one else None for one in like.to_pylist()], TIME)


def attributes(found: Sequence[AttributeColumn], count: int) -> pa.Array:
    """The attributes of `count` rows as the column of EVENTS: of each row all entries, in the order of `found`."""
    rows = np.concatenate([np.empty(0, np.int64), *(one.rows for one in found)])
    order = np.argsort(rows, kind="stable")
    names = pa.concat_arrays([pa.array([], pa.string()), *(one.names for one in found)])
    columns = [names.take(pa.array(order)), *(_gathered(found, kind, order) for kind in VALUE_FIELDS)]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))])
    entries = pa.StructArray.from_arrays(columns, fields=list(ATTRIBUTE))
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), entries)
    return lists.cast(EVENTS.field("attributes").type)


def _gathered(found: Sequence[AttributeColumn], kind: str, order: Rows) -> pa.Array:
    """One field of all entries in their order: null where an entry is of another kind."""
    which = np.full(len(order), -1, np.int64)
    arrays = [pa.array([], ATTRIBUTE.field(kind).type)]
    start = taken = 0
    for one in found:
        values = one.values if one.kind == kind else one.moments if kind == "time" else None
        if values is not None:
            which[start : start + len(values)] = np.arange(taken, taken + len(values))
            arrays.append(values)
            taken += len(values)
        start += len(one.rows)
    which = which[order]
    return pa.concat_arrays(arrays).take(pa.array(which, mask=which < 0))


def decoded(values: pa.Array) -> pa.Array:
    """The values that a dictionary array stands for."""
    # Views of texts cannot be taken from.
    dictionary = pc.cast(values.dictionary, pa.string()) if is_text(values.dictionary.type) else values.dictionary
    return dictionary.take(values.indices)


def plain_column(column: pa.Array) -> pa.Array:
    """A column without a dictionary, and without views, wherever in it, for Arrow can do little with these."""
    if pt.is_dictionary(column.type):
        column = decoded(column)
    plain = plain_type(column.type)
    return column if plain == column.type else column.cast(plain)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type that a plain column has instead of one."""
    if pt.is_dictionary(kind):
        return pa.string() if is_text(kind.value_type) else kind.value_type
    if pt.is_string_view(kind):
        return pa.large_string()
    if pt.is_struct(kind):
        return pa.struct([field.with_type(plain_type(field.type)) for field in kind])
    if pt.is_large_list(kind) or pt.is_list_view(kind) or pt.is_large_list_view(kind):
        return pa.large_list(plain_type(kind.value_type))
    if pt.is_fixed_size_list(kind):
        return pa.list_(plain_type(kind.value_type), kind.list_size)
    return pa.list_(plain_type(kind.value_type)) if pt.is_list(kind) else kind


def is_text(kind: pa.DataType) -> bool:
    """Whether values of a type are texts."""
    return pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind)


def _is_list(kind: pa.DataType) -> bool:
    return pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind)


def may_be_geometry(kind: pa.DataType) -> bool:
    """Whether values of a struct may be GeoJSON geometries."""
    names = {field.name for field in kind}
    return "type" in names and bool(names & {"coordinates", "geometries"})


def geometry_of(value: Any) -> dict[str, Any] | None:
    """The GeoJSON geometry that a struct's value is; None if it is none."""
    filled = without_nulls(value)
    return filled if is_geometry(filled) else None


def without_nulls(value: Any) -> Any:
    """A value without the fields of its objects that are null: a struct has every field in every row."""
    if isinstance(value, dict):
        return {name: without_nulls(one) for name, one in value.items() if one is not None}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value
