"""A node's file: what it means, and every fault of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearcast.cli.node import runtime_of
from nearcast.decision.foraging.neighbours import Adapting
from nearcast.errors import DefinitionError
from nearcast.model.filter import atoms
from nearcast.model.place import Place
from nearcast.node.definition import NodeDefinition, load_node
from nearcast.node.mqtt import MqttSensor
from nearcast.node.sensors import FileSensor, SimulatedSensor
from nearcast.node.weather import Weather

WHOLE = """
node: gateway 1
place: {lon: 11.5, lat: 48.1}
sensors:
  - {class: Temperature, simulated: {low: 10, high: 90, step: 2, seed: 1}, every: 500 ms}
  - {classes: [Smoke, GasA], file: readings.jsonl}
  - {class: Humidity, mqtt: {host: broker, topic: hall/+}}
situations:
  - {id: fire, class: Fire, when: "Temperature > 80 AND GasB < 10", within: 100, valid: 10 s, threshold: 0.66}
multicast: {port: 9000}
manner: {fresh: 3 s, keeps: 2 s, adapting: true, rates: {origin: 5}}
weather: {loss: 0.1, late: 20 ms}
bridge: {url: "http://127.0.0.1:8640", client: gateway-1, classes: [Wind]}
"""


def load(tmp_path: Path, text: str) -> NodeDefinition:
    path = tmp_path / "node.yaml"
    path.write_text(text, encoding="utf-8")
    return load_node(path)


def test_a_definition_says_what_a_node_is(tmp_path: Path) -> None:
    """All of it; what is not said is as usual."""
    found = load(tmp_path, WHOLE)
    assert ("gateway 1", Place("geographic", 11.5, 48.1)) == (found.id, found.place)
    assert (
        SimulatedSensor("Temperature", 10, 90, 2, 0.5, 1),
        FileSensor(tmp_path / "readings.jsonl"),
        MqttSensor("broker", "hall/+", name="Humidity"),
    ) == found.sensors
    assert ("Temperature", "Smoke", "GasA", "Humidity") == found.measured
    [rule] = found.rules
    assert ("fire", "Fire", 100, 10.0, 0.66) == (rule.id, rule.situation, rule.within, rule.valid, rule.threshold)
    assert ["Temperature", "GasB"] == [atom.name for atom in atoms(rule.when)]
    assert (9000, "239.255.86.40") == (found.group.port, found.group.address)
    manner = found.manner
    assert (3.0, 2.0, Adapting(), True) == (manner.fresh, manner.keeps, manner.adapting, manner.at_once)
    assert manner.bounds.rates and (5, 200.0) == (manner.bounds.rates.origin, manner.bounds.rates.neighbour)
    assert Weather(0.1, 0.0, 0.02) == found.weather
    assert found.bridge and ("gateway-1", ("Wind",)) == (found.bridge.client, found.bridge.classes)


def test_a_node_starts_numbering_where_it_has_not_been_before(tmp_path: Path) -> None:
    """Others remember the numbers of its last run."""
    definition = load(tmp_path, "node: a\nplace: {x: 0, y: 0}")
    first, second = (runtime_of(definition).node.next_id().number for _ in range(2))
    assert 1_600_000_000_000 < first <= second


@pytest.mark.parametrize(
    "text, expected, line",
    [
        ("node: a", "place in a node", 1),
        ("node: a\nplace: {x: 0}", "y in a position", 2),
        ("node: a\nplace: {x: 0, y: 0}\nsensor: []", "a field of a node", 3),
        ("node: a\nplace: {x: 0, y: 0}\nsensors:\n  - {class: T}", "one of simulated, file, mqtt in a sensor", 4),
        ("node: a\nplace: {x: 0, y: 0}\nsensors:\n  - {simulated: {}}", "class or classes of a sensor", 4),
        ("node: a\nplace: {x: 0, y: 0}\nsensors:\n  - {class: time, simulated: {}}", "a context class", 4),
        ("node: a\nplace: {x: 0, y: 0}\nmulticast: {address: 10.0.0.1}", "a multicast group", 3),
        (
            "node: a\nplace: {x: 0, y: 0}\nmanner: {fresh: 3 parsec}",
            "fresh: a number and one of ms, s, min, h, d, as in 10 s",
            3,
        ),
    ],
)
def test_a_fault_has_its_place(tmp_path: Path, text: str, expected: str, line: int) -> None:
    """And says what was expected."""
    with pytest.raises(DefinitionError) as raised:
        load(tmp_path, text)
    assert (expected, line) == (raised.value.faults[0].expected, raised.value.faults[0].where.line)  # type: ignore


RULE = "node: a\nplace: {{x: 0, y: 0}}\nsituations:\n  - {{id: f, class: F, within: 9, {}}}"


@pytest.mark.parametrize(
    "fields, expected",
    [
        ("valid: 1", "when in a situation rule"),
        ('valid: 1, when: "T >"', "a literal"),
        ('valid: 0, when: "T > 1"', "valid: more than 0 seconds"),
        ('valid: 1, when: "T > 1", threshold: 2', "threshold, a trigger level: from 0 to 1"),
        ("valid: 1, when: \"T LIKE 'x'\"", "conditions that a request can carry"),
    ],
)
def test_a_rule_that_a_node_cannot_follow_is_a_fault(tmp_path: Path, fields: str, expected: str) -> None:
    """At its line."""
    with pytest.raises(DefinitionError) as raised:
        load(tmp_path, RULE.format(fields))
    assert expected in str(raised.value.faults[0])
    assert 4 == raised.value.faults[0].where.line  # type: ignore[union-attr]


def test_every_fault_is_told(tmp_path: Path) -> None:
    """Not only the first."""
    with pytest.raises(DefinitionError) as raised:
        load(tmp_path, "place: {x: 0}\nsensors: 5\nmanner: {fresh: soon}")
    assert 4 == len(raised.value.faults)
