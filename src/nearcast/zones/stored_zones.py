"""What zones keep from batch to batch as a document: who was heard of, who is in which zone.

Rules and zones are the registry's, to which the document refers; shapes, trees and compiled filters are made again from
these. This module is the one that may look into the stage.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from nearcast.relations.entity_table import EntityTable
from nearcast.state.registry import Registry
from nearcast.state.stage_documents import StageDocument
from nearcast.state.stream_clocks import StreamClocks
from nearcast.zones.presence import LayerPresence
from nearcast.zones.stage import ZoneStage

PRESENT = pa.schema(
    [
        ("layer", pa.string()),
        ("zone", pa.string()),
        ("entity", pa.int64()),
        ("started_at", pa.int64()),
        ("due", pa.int64()),
        ("dwell_sent", pa.bool_()),
        ("clocks", pa.int16()),
    ]
)
"""Who is in which zone, entities by their numbers; times in microseconds since 1970."""

STATE = ("started_at", "due", "dwell_sent", "clocks")


def zones_document(stage: ZoneStage, registry: Registry) -> StageDocument:
    """What zones keep; `registry` is of the same position."""
    document = StageDocument()
    known = stage._known
    columns = {name: known.columns[name] for name in known.columns.names}
    document.add_table("entities", pa.table({"name": pa.array(known.names, pa.string()), **columns}))
    document.add_table("present", pa.concat_tables([PRESENT.empty_table(), *map(_present, stage.layers)]))
    document.values = {
        "clocks": stage._clocks.by_name,
        "sequence": stage._sequence,
        "gone": sorted(stage._gone),
        "layers": [[layer.rule.id, layer.sequence, layer.crowded] for layer in stage.layers],
    }
    return document


def _present(layer: LayerPresence) -> pa.Table:
    pairs, names = layer.pairs, [zone.name for zone in layer.index.zones]
    columns: dict[str, Any] = {
        "layer": pa.array([layer.rule.id] * pairs.length, pa.string()),
        "zone": pa.array([names[number] for number in pairs["zone"].tolist()], pa.string()),
        "entity": pa.array(pairs["a"]),
        **{name: pa.array(pairs[name]) for name in STATE},
    }
    return pa.table(columns, PRESENT)


def zones_of(document: StageDocument, registry: Registry) -> ZoneStage:
    """The zones of a document. Raises what reading data raises that is of another form: KeyError, IndexError,
    TypeError, ValueError, ArrowInvalid.
    """
    stage, values = ZoneStage(), document.values
    stage._clocks = StreamClocks(registry.settings.channels, values["clocks"])
    stage._sequence, stage._gone = values["sequence"], set(values["gone"])
    _read_entities(document, stage._known)
    present = document.table("present", PRESENT)
    layer_of = np.array(present.column("layer").to_pylist(), object)
    for id, sequence, crowded in values["layers"]:
        layer = LayerPresence(registry.zones[id], sequence, stage._known)
        layer.crowded = crowded
        _read_present(present.filter(pa.array(layer_of == id, pa.bool_())), layer)
        stage._layers[id] = layer
    return stage


def _read_present(present: pa.Table, layer: LayerPresence) -> None:
    zones = [layer.index.numbers[name] for name in present.column("zone").to_pylist()]
    state = {name: present.column(name).to_numpy() for name in STATE}
    layer.pairs.append(len(present), a=present.column("entity").to_numpy(), zone=zones, held=True, **state)


def _read_entities(document: StageDocument, known: EntityTable) -> None:
    columns = known.columns
    kinds = [(one, pa.from_numpy_dtype(columns[one].dtype)) for one in columns.names]
    table = document.table("entities", pa.schema([("name", pa.string()), *kinds]))
    known.names = table.column("name").to_pylist()
    known.numbers = {entity: number for number, entity in enumerate(known.names)}
    columns.append(len(table), **{one: table.column(one).to_numpy() for one in columns.names})
