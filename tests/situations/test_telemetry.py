"""Real readings of three nodes in three rooms, where nothing burned: rules stay quiet, and tell what there was."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from nearcast.model.event import Event
from nearcast.model.ontology import Area, ContextClass, Ontology, SituationClass
from tests.shared import shared
from tests.situations.scenes import data_of, inferred, phases, rule

COUNT = 9_000
ROOMS = Ontology(
    (
        ContextClass("Temperature", (), "degC", -40, 80, None, (("temp", None),)),
        ContextClass("Humidity", (), "percent", 0, 100, None, (("humidity", None),)),
        ContextClass("Smoke", (), None, 0, 1, None, (("smoke", None),)),
        ContextClass("Light", (), None, None, None, None, (("light", None),)),
    ),
    (SituationClass("Fire"), SituationClass("Damp"), SituationClass("Lit")),
    (
        Area("house"),
        *(Area(f"room-{number}", "house", None, (f"iot-device-0{number}",)) for number in (1, 2, 3)),
    ),
)


def readings() -> Iterator[Event]:
    """The first messages of the file, at their times."""
    path = shared("data/iot_telemetry_gas/raw_data_xlarge.json.zip")
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as file:
        found = json.load(file)
    for number, one in enumerate(sorted(found[:COUNT], key=lambda one: one["ts"])):
        time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=one["ts"])
        yield Event(str(number), "telemetry", "iot", one["device"], time, None, tuple(one["data"].items()))


@pytest.mark.data
def test_no_fire_and_what_there_was() -> None:
    """No room burns; the damp room is damp all along, and is told of by its name."""
    rules = [
        rule("fire", "Fire", "Temperature > 60 AND Smoke > 0.04", within=None, area="house", valid=30),
        rule("damp", "Damp", "Humidity > 70", within=None, area="room-1", valid=120),
        rule("lit", "Lit", "Light = TRUE AND NOT Temperature > 40", within=None, area="room-2", valid=30),
    ]
    found = inferred(rules, list(readings()), ontology=ROOMS)
    assert {"damp", "lit"} == {one for _, one, _ in phases(found)}
    assert {"damp": "room-1", "lit": "room-2"} == {data_of(one)["situation"]: data_of(one)["place"] for one in found}
    # Whatever begins ends before it begins again.
    for id in ("damp", "lit"):
        told = [phase for _, one, phase in phases(found) if one == id and phase != "update"]
        assert told == ["begin", "end"] * (len(told) // 2) + ["begin"] * (len(told) % 2)
