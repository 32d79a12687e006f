"""What situations keep from batch to batch as a document: readings, what runs and what waits, rules by their names.

Plans and indexes are made again from rules and ontology. This module is the one that may look into the stage: a test
holds that whatever the stage keeps is either written here or made again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify
from typing import Any

import pyarrow as pa

from nearcast.model.columns import EVENTS, places_of, to_events, to_table
from nearcast.model.event import Event, Place
from nearcast.model.ontology import Ontology
from nearcast.model.situation import Action, Situation
from nearcast.model.subscription import Settings
from nearcast.situations.counts.counted_reports import IndexedEntityCounts
from nearcast.situations.counts.entity_counts import CountFinding
from nearcast.situations.evaluation import Evidence
from nearcast.situations.extract import Observation
from nearcast.situations.instances import SituationInstance
from nearcast.situations.lifecycle import SituationEngine
from nearcast.situations.readings import ContextReading, SituationCentre
from nearcast.situations.reorder_buffer import ReorderBuffer
from nearcast.situations.rule_plan import DefinedRule, plan
from nearcast.situations.stage import SituationStage
from nearcast.state.registry import Registry
from nearcast.state.stage_documents import PLACE_FIELDS, VALUE, StageDocument, place_columns, value_column, values_in
from nearcast.state.stored_windows import restore_windows, store_windows
from nearcast.state.stream_clocks import StreamClocks
from nearcast.state.windows import AggregateFinding, IndexedReadingWindows

AREAS = pa.list_(pa.string())

READINGS = pa.schema(
    [
        ("name", pa.string()),
        ("value", VALUE),
        ("entity", pa.string()),
        *PLACE_FIELDS,
        ("moment", pa.int64()),
        ("position", pa.int64()),
        ("areas", AREAS),
    ]
)
"""A reading; its moment in microseconds since 1970."""

# The reports of entities that are counted have the form of readings.
PLACES = pa.schema([("entity", pa.string()), *PLACE_FIELDS, ("moment", pa.int64())])
"""Where an entity last was, and when."""

WAITING = pa.schema([*EVENTS, ("moment", pa.int64()), ("row", pa.int64()), ("areas", AREAS), ("named", pa.string())])
"""An observation that waits for its moment: its entity as the source of an event, its readings as the attributes."""


def situations_document(stage: SituationStage, registry: Registry) -> StageDocument:
    """What situations keep; `registry` is of the same position."""
    document = StageDocument()
    rules = [(document.refer(one.rule, registry.situations), one.after, one.hidden) for one in stage._rules.values()]
    document.values = {
        "refused": [(*reason, count) for reason, count in stage.refused.items()],
        "provided": sorted(stage.provided),
        "version": stage.version,
        "ontology": _ontology(document, stage._ontology, registry),
        "rules": rules,
        "actions": [document.refer(one, registry.actions) for one in stage._actions.values()],
        "hidden_after": stage._hidden_after,
        "clocks": stage._lanes.clocks.by_name,
        "read_by": {name: sorted(clocks) for name, clocks in stage._lanes.read_by.items()},
        "made": stage._lanes.made,
        "number": stage._number,
        "stale": stage._stale,
        "rezoned": stage._rezoned,
        "lanes": [
            _lane(document, f"lane-{number}", one) for number, one in enumerate(stage._lanes.lanes)
        ],
    }  # fmt: skip
    return document


def situations_of(document: StageDocument, registry: Registry) -> SituationStage:
    """The situations of a document.

    Raises what reading data raises that is of another form: KeyError, IndexError, TypeError, ValueError, ArrowInvalid.
    """
    stage, values = SituationStage(), document.values
    stage.refused.update({(name, why): count for name, why, count in values["refused"]})
    stage.provided = set(values["provided"])
    stage.version = values["version"]
    settings = values["ontology"]
    stage._ontology = registry.settings.ontology if settings is None else _settings(document, settings).ontology
    defined = (
        DefinedRule(document.referred(rule, registry.situations, Situation), after, hidden)
        for rule, after, hidden in values["rules"]
    )
    stage._rules = {one.rule.id: one for one in defined}
    actions = (document.referred(one, registry.actions, Action) for one in values["actions"])
    stage._actions = {one.id: one for one in actions}
    stage._hidden_after = dict(values["hidden_after"])
    stage._stale = values["stale"]
    stage._lanes.clocks = StreamClocks(registry.settings.channels, values["clocks"])
    stage._lanes.read_by = {name: frozenset(clocks) for name, clocks in values["read_by"].items()}
    stage._lanes.made = values["made"]
    position, part = values["number"]
    stage._number = (position, part)
    stage._layers.zones, stage._layers.settings = dict(registry.zones), registry.settings
    stage._rezoned = values["rezoned"]
    stage._prepare()
    if stage._stale is None:
        stage._lanes.define(stage._ontology, [*stage._rules.values(), *stage._hidden(0)])
    for number, lane in enumerate(values["lanes"]):
        buffer = stage._lanes.stored(lane["lateness"], lane["clocks"], lane["told"], lane["number"], lane["time"])
        stage._limit(buffer)
        # Where rules are made ready anew with the next event none runs.
        rules = plan(stage._ontology, ()) if stage._stale is not None else stage._lanes.plan_of(buffer)
        buffer.engine.scene.plan = rules
        _fill_lane(document, f"lane-{number}", lane, buffer)
    return stage


def _ontology(document: StageDocument, ontology: Ontology, registry: Registry) -> int | None:
    """None for the registry's ontology; else the number of settings that have it."""
    if registry.settings.ontology == ontology:
        return None
    document.definitions.append(Settings(ontology=ontology))
    return len(document.definitions) - 1


def _settings(document: StageDocument, number: int) -> Settings:
    found: Settings = document.referred(number, {}, Settings)
    return found


def _lane(document: StageDocument, name: str, lane: ReorderBuffer) -> dict[str, Any]:
    engine = lane.engine
    readings = list(engine.scene.readings.everything())
    kept = len(readings)
    rows = {id(reading): row for row, reading in enumerate(readings)}
    situations = [_situation(one, readings, rows) for one in _running(engine)]
    document.add_table(f"{name}-readings", _readings_table(readings))
    counts = engine.scene.counts
    counted = counts if isinstance(counts, IndexedEntityCounts) else IndexedEntityCounts()
    document.add_table(f"{name}-counted", _readings_table(list(counted.everything())))
    document.add_table(f"{name}-places", _places_table(lane))
    document.add_table(f"{name}-waiting", _waiting_table([one for *_, one in lane.held]))
    windows = engine.scene.windows
    missed = store_windows(document, f"{name}-windows", windows) if isinstance(windows, IndexedReadingWindows) else []
    # Of what ended nothing is awaited any more; its entries would only be passed over.
    running = [(moment, order) for moment, order, instance in engine._lapses if instance.running]
    orders = {order for _, order in running}
    return {
        "lateness": lane.lateness,
        "clocks": sorted(lane.clocks),
        "told": list(lane.told.items()),
        "number": lane.number,
        "time": lane.time,
        "early": lane.early,
        "now": engine.now,
        "order": engine._order,
        "cause": engine._cause,
        "begun": engine._begun,
        "lapses": running,
        "awaited": [(order, moment) for order, moment in engine._awaited.items() if order in orders],
        "readings": kept,
        "situations": situations,
        "uncounted": list(counted.missed().items()),
        "missed": missed,
    }


def _running(engine: SituationEngine) -> Iterator[SituationInstance]:
    return (one for rule in engine.plan.rules for one in engine.scene.running(rule))


def _situation(one: SituationInstance, readings: list[ContextReading], rows: dict[int, int]) -> dict[str, Any]:
    """A situation; a reading that it rests on and that is not the newest any more gets a row of its own."""
    grounds = []
    for ground in one.grounds:
        row = None
        if ground.reading is not None:
            row = rows.setdefault(id(ground.reading), len(readings))
            if row == len(readings):
                readings.append(ground.reading)
        grounds.append(
            (
                ground.name,
                ground.condition,
                row,
                ground.situation,
                ground.over and list(ground.over),
                ground.counts and list(ground.counts),
            )
        )
    place = one.centre.place
    return {
        "id": one.id,
        "rule": one.rule,
        "concludes": one.concludes,
        "entity": one.centre.entity,
        "place": None if place is None else [getattr(place, name) for name, _ in PLACE_FIELDS],
        "areas": sorted(one.centre.areas),
        "since": one.since,
        "order": one.order,
        "lapses": one.lapses,
        "begins": one.begins,
        "ends": one.ends,
        "reason": one.reason,
        "seen": sorted(one.seen),
        "grounds": grounds,
    }


def _readings_table(readings: Sequence[ContextReading]) -> pa.Table:
    names, values, entities, places, moments, positions, areas = zip(*readings, strict=True) if readings else ((),) * 7
    columns = {
        "name": pa.array(names, pa.string()),
        "value": value_column(values),
        "entity": pa.array(entities, pa.string()),
        **place_columns(places),
        "moment": pa.array(moments, pa.int64()),
        "position": pa.array(positions, pa.int64()),
        "areas": pa.array([sorted(one) for one in areas], AREAS),
    }
    return pa.table(columns, READINGS)


def _readings_in(table: pa.Table) -> list[ContextReading]:
    moments, positions, areas = (table.column(name).to_pylist() for name in ("moment", "position", "areas"))
    names, entities = (table.column(name).to_pylist() for name in ("name", "entity"))
    rows = zip(
        names, values_in(table.column("value")), entities, places_of(table), moments, positions,
        map(frozenset, areas), strict=True,
    )  # fmt: skip
    return list(map(ContextReading._make, rows))


def _places_table(lane: ReorderBuffer) -> pa.Table:
    columns = {
        "entity": pa.array(lane.places, pa.string()),
        **place_columns([place for _, place in lane.places.values()]),
        "moment": pa.array([moment for moment, _ in lane.places.values()], pa.int64()),
    }
    return pa.table(columns, PLACES)


def _waiting_table(held: Sequence[Observation]) -> pa.Table:
    events = to_table(
        Event("", "", one.entity, place=one.place, attributes=tuple(one.read.items()), position=one.position)
        for one in held
    )
    columns: dict[str, pa.Array] = {
        "moment": pa.array([one.moment for one in held], pa.int64()),
        "row": pa.array([one.row for one in held], pa.int64()),
        "areas": pa.array([sorted(one.areas) for one in held], AREAS),
        "named": pa.array([one.named for one in held], pa.string()),
    }
    return pa.table({**{name: events.column(name) for name in EVENTS.names}, **columns}, WAITING)


def _observations(table: pa.Table) -> Iterator[Observation]:
    columns = (table.column(name).to_pylist() for name in ("row", "moment", "areas", "named"))
    for event, row, moment, areas, named in zip(to_events(table.select(EVENTS.names)), *columns, strict=True):
        yield Observation(
            row, event.source, moment, event.position, event.place, frozenset(areas), named, dict(event.attributes)
        )


def _fill_lane(document: StageDocument, name: str, values: Mapping[str, Any], lane: ReorderBuffer) -> None:
    engine = lane.engine
    readings = _readings_in(document.table(f"{name}-readings", READINGS))
    for reading in readings[: values["readings"]]:
        engine.scene.put_reading(reading)
    places = document.table(f"{name}-places", PLACES)
    columns = (places.column(one).to_pylist() for one in ("entity", "moment"))
    for entity, moment, place in zip(*columns, places_of(places), strict=True):
        if place is not None:
            lane.places[entity] = (moment, place)
    if isinstance(engine.scene.windows, IndexedReadingWindows):
        restore_windows(document, f"{name}-windows", values["missed"], engine.scene.windows)
    if isinstance(engine.scene.counts, IndexedEntityCounts):
        counted = _readings_in(document.table(f"{name}-counted", READINGS))
        engine.scene.counts.restore(counted, dict(values["uncounted"]))
    waiting = _observations(document.table(f"{name}-waiting", WAITING))
    lane.held = [(one.moment, one.entity, one.position, one) for one in waiting]
    heapify(lane.held)
    instances: dict[int, SituationInstance] = {}
    for one in values["situations"]:
        instance = instances[one["order"]] = _instance(one, readings)
        engine.scene.add_situation(instance, engine.plan.by_id[instance.rule])
    lane.early = values["early"]
    engine.now, engine._order, engine._cause = values["now"], values["order"], values["cause"]
    engine._begun = dict(values["begun"])
    engine._lapses = [(moment, order, instances[order]) for moment, order in values["lapses"]]
    heapify(engine._lapses)
    engine._awaited = dict(values["awaited"])


def _count_finding(
    text: str, counted: int, unknown: int, newest: Sequence[str], doubtful: Sequence[str], why: str
) -> CountFinding:
    return CountFinding(text, counted, unknown, tuple(newest), tuple(doubtful), why)


def _instance(values: Mapping[str, Any], readings: Sequence[ContextReading]) -> SituationInstance:
    place = None if values["place"] is None else Place(*values["place"])
    grounds = (
        Evidence(
            name,
            (condition[0], condition[1], condition[2]),
            None if row is None else readings[row],
            situation,
            None if over is None else AggregateFinding(*over),
            None if counts is None else _count_finding(*counts),
        )
        for name, condition, row, situation, over, counts in values["grounds"]
    )
    return SituationInstance(
        id=values["id"],
        rule=values["rule"],
        concludes=values["concludes"],
        centre=SituationCentre(values["entity"], place, frozenset(values["areas"])),
        since=values["since"],
        order=values["order"],
        grounds=tuple(grounds),
        lapses=values["lapses"],
        seen=frozenset((entity, name) for entity, name in values["seen"]),
        begins=values["begins"],
        ends=values["ends"],
        reason=values["reason"],
    )
