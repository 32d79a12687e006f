"""Stories of moving things and zones: reports and definitions in order, told by the stage in batches, or plainly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import orjson
import pyarrow as pa

from nearcast.errors import Fault
from nearcast.language.definitions.zone_documents import read_zone_rule, zones_of_features
from nearcast.language.nodes import DocumentReader, from_data
from nearcast.model.changes import Change, ClockTick, ZoneRemoval, ZoneRuleChange, ZoneShapesChange
from nearcast.model.columns import to_events, to_table
from nearcast.model.event import Coordinates, Event
from nearcast.model.limits import Limits
from nearcast.model.subscription import Settings
from nearcast.model.zone import Zone, ZoneRule
from nearcast.relations.plain import cause_at
from nearcast.relations.reports import micros_of
from nearcast.state.derived import Cause, StageInput
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository
from nearcast.state.timeline import Excess
from nearcast.zones.reference import PlainZones
from nearcast.zones.stage import ZoneStage
from nearcast.zones.stored_zones import zones_document, zones_of
from tests.relations.stories import HERE, NO_OTHER, NOON, Step, placed
from tests.state.stored import read_again
from tests.zones.plain_events import zone_events


def rule(id: str = "depots", **fields: Any) -> ZoneRule:
    """The rule of a layer; without others, of planar cars."""
    data = {"id": id, "of": "type = 'car'", "coordinates": "planar", **fields}
    if "lasting" in data:
        data["for"] = data.pop("lasting")
    reader = DocumentReader()
    found = read_zone_rule(from_data(data, HERE), None, reader)
    reader.refuse()
    assert found is not None
    return found


def box(west: float, south: float, east: float, north: float) -> dict[str, Any]:
    """A rectangle as GeoJSON."""
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    return {"type": "Polygon", "coordinates": [ring]}


def zone(
    name: str, geometry: dict[str, Any], layer: str = "depots", coordinates: Coordinates = "planar", **properties: Any
) -> Zone:
    """A zone of a layer."""
    feature = {"type": "Feature", "id": name, "geometry": geometry, "properties": properties}
    [found], faults = zones_of_features([feature], layer, coordinates, None, Limits(), "here")
    assert not faults
    return found


def zones(*given: Zone, removed: Sequence[str] = (), layer: str = "depots") -> ZoneShapesChange:
    """The change that adds zones to a layer, and takes others away."""
    return ZoneShapesChange(layer, given, tuple(removed))


def events_told(
    stage: ZoneStage,
    steps: Sequence[Step],
    cuts: Sequence[int] = (),
    limits: Limits = NO_OTHER,
    excess: Counter[Excess] | None = None,
    refusals: list[tuple[int, Fault]] | None = None,
) -> list[Event]:
    """What the stage tells of a story, which it gets in batches that begin at these steps, within limits."""
    repository, told, registry = Repository(), [], Registry(Settings(limits=limits))
    bounds = [0, *sorted(cuts), len(steps)]
    for start, stop in pairwise(bounds):
        events, changes = [], []
        for position, step in enumerate(steps[start:stop], start + 1):
            if isinstance(step, Event):
                events.append(placed(step, position))
            else:
                changes.append((position, step))
                registry.apply(step)
        table = to_table(events)
        times = {position: NOON for position, _ in changes}
        counted = Counter[Excess]() if excess is None else excess
        refused = [] if refusals is None else refusals
        stage_input = StageInput(changes, times, table, registry, repository, refused, counted)
        tables = () if stage.passes_over(stage_input) else stage.derive(stage_input)
        told += [event for one in tables for event in to_events(one)]
        repository.fold_events(table)
    return told


class Restarted(ZoneStage):
    """Zones that are stored and read between any two batches."""

    def derive(self, stage_input: StageInput) -> list[pa.Table]:  # type: ignore[override]
        """Goes on as what was read."""
        registry = Registry(zones={layer.rule.id: layer.layer for layer in self.layers})
        other = zones_of(read_again(zones_document(self, registry)), registry)
        found = list(ZoneStage.derive(other, stage_input))
        self.__dict__ = other.__dict__
        return found


def plainly_told(steps: Sequence[Step], limits: Limits = NO_OTHER) -> list[Event]:
    """What the plain reference tells of a story."""
    plain, registry, repository = PlainZones(limits), Registry(Settings(limits=limits)), Repository()
    told: list[Event] = []
    events = to_events(to_table([placed(one, at) for at, one in enumerate(steps, 1) if isinstance(one, Event)]))
    waiting = iter(events)
    for position, step in enumerate(steps, 1):
        if isinstance(step, Event):
            event = next(waiting)
            cause = Cause(position, event.time, event.accepted)
            if plain.layers:
                told += zone_events(plain.report(event), cause)
            repository.fold_events(to_table([event]))
        else:
            found = _changed(plain, registry, repository, step)
            cause = Cause(position, NOON, NOON)
            told += zone_events(found, cause if isinstance(step, ClockTick) else cause_at(cause, plain.now))
    return told


def _changed(plain: PlainZones, registry: Registry, repository: Repository, change: Change) -> list[Any]:
    registry.apply(change)
    match change:
        case ZoneRuleChange(rule):
            if not plain.layers:
                plain.begin(to_events(repository.newest()))
            return plain.define(registry.zones[rule.id], micros_of(cause_at(Cause(0, NOON, NOON), plain.now).moment))
        case ZoneShapesChange(id) if id in plain.layers:
            return plain.define(registry.zones[id], micros_of(cause_at(Cause(0, NOON, NOON), plain.now).moment))
        case ClockTick(clock) if plain.layers:
            return plain.pass_time(micros_of(clock))
        case ZoneRemoval(id):
            return plain.end(id)
    return []


def summary(event: Event) -> tuple[Any, ...]:
    """(position, what, entity, zone), with a reason behind."""
    data = orjson.loads(event.payload)["data"]
    reason = data.get("reason") or ("present" if data.get("present") else None)
    return (event.position, data["detect"], data["entity"], data.get("zone"), *([reason] if reason else ()))


def summaries(stage: ZoneStage, steps: Sequence[Step], cuts: Sequence[int] = ()) -> list[tuple[Any, ...]]:
    """What the stage tells of a story, in short."""
    return [summary(event) for event in events_told(stage, steps, cuts)]
