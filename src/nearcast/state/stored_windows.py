"""Windows of readings as a document has them: a table of the readings, and through which moments some are left out."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from nearcast.state.stage_documents import VALUE, StageDocument, value_column, values_in
from nearcast.state.windows import IndexedReadingWindows, KeptReading, ReadingKey

WINDOWS = pa.schema(
    [
        ("entity", pa.string()),
        ("name", pa.string()),
        ("moment", pa.int64()),
        ("position", pa.int64()),
        ("value", VALUE),
    ]
)
"""The readings of windows, those of each name and entity by moment."""

Missed = list[tuple[str, str, int]]
"""Entity, name, and the moment through which readings of them are left out."""


def store_windows(document: StageDocument, name: str, windows: IndexedReadingWindows) -> Missed:
    """Adds windows to a document as a table of this name; gives what goes beside it."""
    kept = list(windows.everything())
    rows = [(*key, *one) for key, readings, _ in kept for one in readings]
    entities, names, moments, positions, values = zip(*rows, strict=True) if rows else ((),) * 5
    columns = {
        "entity": pa.array(entities, pa.string()),
        "name": pa.array(names, pa.string()),
        "moment": pa.array(moments, pa.int64()),
        "position": pa.array(positions, pa.int64()),
        "value": value_column(values),
    }
    document.add_table(name, pa.table(columns, WINDOWS))
    return [(*key, missed) for key, _, missed in kept if missed is not None]


def restore_windows(
    document: StageDocument, name: str, missed: Iterable[tuple[str, str, int]], windows: IndexedReadingWindows
) -> None:
    """Puts back what `store_windows` wrote. Raises ArrowInvalid for a table of another form."""
    table = document.table(name, WINDOWS)
    left_out = {(entity, name): moment for entity, name, moment in missed}
    found: dict[ReadingKey, list[KeptReading]] = {key: [] for key in left_out}
    columns = (table.column(one).to_pylist() for one in ("entity", "name", "moment", "position"))
    for entity, one, moment, position, value in zip(*columns, values_in(table.column("value")), strict=True):
        found.setdefault((entity, one), []).append(KeptReading(moment, position, value))
    for key, kept in found.items():
        windows.restore(key, kept, left_out.get(key))
