"""What is known at a moment, to be written while more is taken in: what is changed in place is copied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import orjson
import pyarrow as pa

from nearcast.relations.lanes.scopes import Scopes
from nearcast.relations.lanes.stored_pairs import stored
from nearcast.relations.lanes.stored_scopes import scopes_document
from nearcast.situations.stage import SituationStage
from nearcast.situations.stored_situations import situations_document
from nearcast.stages.fold import StateFold
from nearcast.state.derived import DerivingStage
from nearcast.state.registry import Held, Registry
from nearcast.state.repository import KeptEvents
from nearcast.state.stage_documents import StageDocument
from nearcast.zones.stage import ZoneStage
from nearcast.zones.stored_zones import zones_document


class CapturedStage(NamedTuple):
    """What a stage keeps, under its name: values as JSON, tables, and definitions that are not the registry's."""

    name: str
    values: bytes
    tables: Mapping[str, pa.Table]
    definitions: Sequence[Held]


@dataclass(frozen=True, slots=True)
class CapturedState:
    """What is known as of a position; the newest events are still to be found out of those that there are."""

    position: int
    registry: Registry
    repository: KeptEvents
    pairs: Sequence[pa.Table]
    stages: Sequence[CapturedStage]


def captured(known: StateFold) -> CapturedState:
    """What is known now, whatever is taken in later."""
    return CapturedState(
        known.position,
        known.registry.copy(),
        known.repository.as_of_now(),
        [_copied(pairs) for pairs in stored(known.pairings)],
        [_captured_stage(stage, known.registry) for stage in known.stages],
    )


def _captured_stage(stage: DerivingStage, registry: Registry) -> CapturedStage:
    name, document = _document(stage, registry)
    tables = {table: _copied(rows) for table, rows in document.tables.items()}
    return CapturedStage(name, orjson.dumps(document.values), tables, document.definitions)


def _document(stage: DerivingStage, registry: Registry) -> tuple[str, StageDocument]:
    """What a stage keeps, and under which name."""
    match stage:
        case Scopes():
            return "scopes", scopes_document(stage, registry)
        case SituationStage():
            return "situations", situations_document(stage, registry)
        case ZoneStage():
            return "zones", zones_document(stage, registry)
    raise TypeError(f"expected a stage whose state has a form on disk, got {type(stage).__name__}")


def _copied(table: pa.Table) -> pa.Table:
    """The same rows in memory of their own: a column may be the very array that the next event changes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()
