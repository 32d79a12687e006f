"""Rules and readings for tests of situations."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from nearcast.errors import Mark
from nearcast.language.cql2 import parse
from nearcast.model.changes import Change, SettingsChange, SituationChange
from nearcast.model.columns import to_table
from nearcast.model.event import Event, Place
from nearcast.model.ontology import Area, ContextClass, Ontology, SituationClass
from nearcast.model.situation import Situation
from nearcast.model.subscription import Settings
from nearcast.model.values import Value
from nearcast.situations.stage import SituationStage
from nearcast.state.derived import StageInput
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository

ONTOLOGY = Ontology(
    classes=(
        ContextClass("Weather"),
        ContextClass("Temperature", ("Weather",), "degC", -90, 2000, 100, (("temp", None), ("fahrenheit", "degF"))),
        ContextClass("Humidity", ("Weather",), "percent", 0, 100, 100),
        ContextClass("Smoke", wholes=("Air",)),
        ContextClass("Air"),
        ContextClass("Button"),
    ),
    situations=(
        SituationClass("Hazard"),
        SituationClass("Fire", ("Hazard",), ("Emergency",)),
        SituationClass("Emergency"),
        SituationClass("Drill"),
        SituationClass("Alarm"),
    ),
    areas=(
        Area("campus"),
        Area("building-7", "campus", "POLYGON((0 0, 50 0, 50 50, 0 50, 0 0))"),
        Area("room-1", "building-7", entities=("inside",)),
    ),
)
START = datetime(2026, 1, 1, tzinfo=UTC)


def rule(id: str, concludes: str, when: str, **fields: Any) -> Situation:
    """A rule whose conditions are CQL2."""
    return Situation(id, concludes, parse(when, Mark("here"), over_time=True), **{"within": 100, "valid": 10, **fields})


FIRE = rule("fire", "Fire", "Temperature > 80 AND Humidity < 10")


def told(second: float, entity: str, x: float | None = 0, came: float | None = None, **values: Value) -> Event:
    """An event of an entity at x metres, that tells values read at a second, and came at that or another second."""
    place = None if x is None else Place("planar", x, 0)
    came = second if came is None else came
    accepted = START + timedelta(seconds=came)
    time = START + timedelta(seconds=second)
    return Event(f"{entity}-{second}-{came}", "r", "s", entity, time, place, tuple(values.items()), b"", None, accepted)


def defined(rules: Iterable[Situation], ontology: Ontology = ONTOLOGY) -> list[tuple[int, Change]]:
    """The changes that define rules before any event."""
    changes: list[tuple[int, Change]] = [(0, SettingsChange(Settings(ontology=ontology)))]
    return changes + [(0, SituationChange(one)) for one in rules]


def table_of(events: Sequence[Event], after: int = 0) -> Any:
    """Events as a table, positions ascending by one."""
    placed = (
        Event(
            one.id, one.type, one.source, one.subject, one.time, one.place, one.attributes, one.payload, None,
            one.accepted, after + number,
        )
        for number, one in enumerate(events, 1)
    )  # fmt: skip
    return to_table(placed)


def advanced(stage: SituationStage, changes: Sequence[tuple[int, Change]], events: Any) -> list[Event]:
    """What a stage derives from a table of events and changes."""
    stage_input = StageInput(changes, {}, events, Registry(), Repository())
    return [] if stage.passes_over(stage_input) else stage.derive(stage_input)


def inferred(
    rules: Iterable[Situation],
    events: Sequence[Event],
    stage: SituationStage | None = None,
    ontology: Ontology = ONTOLOGY,
) -> list[Event]:
    """What a stage derives from events under rules."""
    return advanced(stage or SituationStage(), defined(rules, ontology), table_of(events))


def data_of(event: Event) -> dict[str, Any]:
    """The data of a derived event."""
    found: dict[str, Any] = json.loads(event.payload)["data"]
    return found


def phases(events: Iterable[Event]) -> list[tuple[int, str, str]]:
    """Position, rule and phase of every situation's event."""
    return [(one.position, data_of(one)["situation"], data_of(one)["phase"]) for one in events]


def ends(events: Iterable[Event]) -> list[tuple[int, str]]:
    """Position and reason of every end."""
    return [(one.position, data_of(one)["reason"]) for one in events if data_of(one)["phase"] == "end"]
