"""A node's file: what it means, and every fault of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearcast.cli.node import runtime_of
from nearcast.errors import DefinitionError, Fault
from nearcast.foraging.requestor import AdaptiveInterval
from nearcast.model.event import Place
from nearcast.model.filter import atoms
from nearcast.model.foraging import MessageId, Response
from nearcast.node.definition import NodeDefinition, load_node
from nearcast.node.mqtt import MqttSensor
from nearcast.node.sensors import FileSensor, SensorReading, SimulatedSensor
from nearcast.node.transport import ChannelFaults, Datagram
from nearcast.node.wire import encode
from tests.docs.pages import ROOT, blocks

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
    [rule] = found.known.rules
    assert ("fire", "Fire", 100, 10.0, 0.66) == (rule.id, rule.situation, rule.within, rule.valid, rule.threshold)
    assert ["Temperature", "GasB"] == [atom.name for atom in atoms(rule.when)]
    assert (9000, "239.255.86.40") == (found.group.port, found.group.address)
    manner = found.manner
    assert (3.0, 2.0, AdaptiveInterval(), True) == (manner.fresh, manner.keeps, manner.adapting, manner.at_once)
    assert manner.bounds.rates and (5, 200.0) == (manner.bounds.rates.origin, manner.bounds.rates.neighbour)
    assert ChannelFaults(0.1, 0.0, 0.02) == found.weather
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


def test_a_bridge_says_the_servers_requests_again_as_often_as_its_file_says(tmp_path: Path) -> None:
    """Every ten seconds if it does not; not all the time."""
    bridge = 'node: a\nplace: {x: 0, y: 0}\nbridge: {url: "http://s", client: a}'
    usual, own = (
        load(tmp_path, text).bridge for text in (bridge, bridge.replace("client: a", "client: a, repeat: 3 s"))
    )
    assert usual and own and (10.0, 3.0) == (usual.repeat, own.repeat)
    with pytest.raises(DefinitionError, match="repeat: more than 0 seconds"):
        load(tmp_path, bridge.replace("client: a", "client: a, repeat: 0"))


def test_a_rule_without_valid_is_told_what_it_lacks(tmp_path: Path) -> None:
    """Not what the whole rule is; and of fields that nodes do not know, which."""
    with pytest.raises(DefinitionError) as raised:
        load(tmp_path, RULE.format('when: "T > 1"'))
    (fault,) = raised.value.faults
    assert isinstance(fault, Fault)
    assert ("valid of a node's rule: more than 0 seconds", "nothing") == (fault.expected, fault.came)
    with pytest.raises(DefinitionError) as raised:
        load(tmp_path, RULE.format('when: "T > 1", valid: 1, lateness: 3 s'))
    assert ["lateness"] == [one.came for one in raised.value.faults if isinstance(one, Fault)]


@pytest.mark.parametrize(
    "fields, expected",
    [
        ("valid: 1", "when in a situation rule"),
        ('valid: 1, when: "T >"', "a number, a text in quotes"),
        ('valid: 0, when: "T > 1"', "a time above 0"),
        (f'valid: 1, when: "T IN ({", ".join(map(str, range(65)))})"', "a rule that asks for at most 64 conditions"),
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


ONTOLOGY = """
classes:
  Gas: {range: [0, 100], within: 80}
  GasA: {is: Gas}
situations:
  Hazard: {}
  Fire: {is: Hazard}
  Alarm: {}
"""

OVER_RULES = """
node: a
place: {x: 0, y: 0}
ontology: weather.yaml
sensors:
  - {class: GasA, simulated: {}}
situations:
  - {id: alarm, class: Alarm, when: "Hazard AND Gas > 90", valid: 10 s}
  - {id: fire, class: Fire, when: "Gas > 40", within: 50, valid: 5 s}
"""


def test_rules_stand_on_rules_and_on_an_ontology(tmp_path: Path) -> None:
    """A sensor of GasA serves Gas; fire is a hazard; what each class says of its reach counts where a rule does not."""
    (tmp_path / "weather.yaml").write_text(ONTOLOGY)
    found = load(tmp_path, OVER_RULES)
    assert [("fire", 50), ("alarm", 80)] == [(rule.id, rule.within) for rule in found.known.rules]
    runtime = runtime_of(found)
    for value, expected in ((30, []), (50, ["Fire"]), (95, ["Fire", "Alarm"])):
        runtime.measure(SensorReading((("GasA", value),)))
        truths = runtime.node.requestor.truths(runtime.place, runtime.clock())
        told = [rule.situation for rule in found.known.rules if truths[rule.id]]
        assert expected == told
    assert [] == runtime.node.ask(runtime.place, runtime.clock())


def test_readings_out_of_their_class_s_range_are_dropped(tmp_path: Path) -> None:
    """Counted, one's own and those of others."""
    (tmp_path / "weather.yaml").write_text(ONTOLOGY.replace("GasA: {is: Gas}", "GasA: {is: Gas, range: [0, 100]}"))
    runtime = runtime_of(load(tmp_path, OVER_RULES))
    runtime.measure(SensorReading((("GasA", 900),)))
    message = Response(MessageId("b", 1), "b", runtime.place, 50.0, runtime.clock(), 5.0, (("GasA", -3),))
    runtime.receive(Datagram(encode(message, "b"), "somewhere"))
    assert (2, 0, 0) == (runtime.counts["out of range"], runtime.counts["readings"], runtime.node.message_filter.taken)


@pytest.mark.parametrize(
    "old, new, expected",
    [
        ("class: GasA", "class: GasZ", "a class of the ontology"),
        ("Gas > 40", "Gaz > 40", "a class or situation of the ontology"),
        ("Gas > 40", "Alarm", "rules of which none stands on itself"),
        ("class: Fire", "class: Fires", "a situation of the ontology"),
        ("within: 50", "sufficient: false", "id, class, when, within, valid, threshold in a node's rule"),
        ("Gas > 40", "MAX(Gas, 5 s) > 40", "conditions on the newest readings in a node's rule"),
        ("within: 50", "margin: 3", "id, class, when, within, valid, threshold in a node's rule"),
        ("within: 50", "for: 3 s", "id, class, when, within, valid, threshold in a node's rule"),
        ("weather.yaml", "none.yaml", "a file that can be read"),
    ],
)
def test_names_that_an_ontology_has_not_are_faults(tmp_path: Path, old: str, new: str, expected: str) -> None:
    """And so are rules in a circle."""
    (tmp_path / "weather.yaml").write_text(ONTOLOGY)
    with pytest.raises(DefinitionError) as raised:
        load(tmp_path, OVER_RULES.replace(old, new))
    assert expected in [fault.expected for fault in raised.value.faults]


def test_every_example_of_the_reference_loads(tmp_path: Path) -> None:
    """Each YAML block is a whole file."""
    texts = [block.text for block in blocks(ROOT / "docs" / "reference-node.md") if block.kind == "yaml"]
    assert 5 == len([load(tmp_path, text) for text in texts])


def test_secrets_are_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file names the variable; what it holds by mistake is not repeated in a fault."""
    bridge = 'node: a\nplace: {x: 0, y: 0}\nbridge: {url: "http://s", client: a, token: GATE_TOKEN}'
    monkeypatch.setenv("GATE_TOKEN", "hush")
    found = load(tmp_path, bridge).bridge
    assert found and "hush" == found.token
    with pytest.raises(DefinitionError) as raised:
        load(tmp_path, bridge.replace("GATE_TOKEN", "hush"))
    assert "hush" not in str(raised.value)
