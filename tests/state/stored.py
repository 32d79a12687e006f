"""Documents of stages through the forms that they have on disk."""

from __future__ import annotations

import orjson
import pyarrow as pa

from nearcast.state.stage_documents import StageDocument


def read_again(document: StageDocument) -> StageDocument:
    """The document once it was JSON and Arrow's bytes."""
    tables = {name: _read_again(table) for name, table in document.tables.items()}
    return StageDocument(orjson.loads(orjson.dumps(document.values)), tables, document.definitions)


def _read_again(table: pa.Table) -> pa.Table:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_file(sink.getvalue()).read_all()
