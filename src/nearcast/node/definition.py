"""What a node is, from a YAML file: its name and place, sensors, situations, transport and manner; every fault told."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from nearcast.decision.foraging.door import Bounds
from nearcast.decision.foraging.limits import Rates
from nearcast.decision.foraging.neighbours import Adapting
from nearcast.decision.foraging.node import Manner
from nearcast.errors import DefinitionError, Fault, SetupError
from nearcast.language.client_document import read_place
from nearcast.language.definitions import read_text
from nearcast.language.durations import read_duration
from nearcast.language.nodes import Node, from_yaml
from nearcast.language.reading import Reader, at
from nearcast.model.event import OWN
from nearcast.model.place import Place
from nearcast.node.mqtt import MqttSensor
from nearcast.node.multicast import Group
from nearcast.node.rules import Known, read_known
from nearcast.node.sensors import FileSensor, Sensor, SimulatedSensor
from nearcast.node.weather import Weather


@dataclass(frozen=True, slots=True)
class BridgeDefinition:
    """The access server that a node bridges to, as which client, and for which classes it asks there."""

    url: str
    client: str
    classes: tuple[str, ...]
    token: str | None = None


@dataclass(frozen=True, slots=True)
class NodeDefinition:
    """A node as its file defines it; `measured` are the classes that its sensors read."""

    id: str
    place: Place
    known: Known = field(default_factory=Known)
    measured: tuple[str, ...] = ()
    sensors: tuple[Sensor, ...] = ()
    group: Group = field(default_factory=Group)
    manner: Manner = field(default_factory=Manner)
    bridge: BridgeDefinition | None = None
    weather: Weather | None = None


FRESH_SECONDS = 5.0
OPTIONAL = ("ontology", "sensors", "situations", "multicast", "manner", "bridge", "weather")


def load_node(path: Path) -> NodeDefinition:
    """The node that a file defines. Raises `DefinitionError` with every fault."""
    reader = Reader()
    try:
        root = from_yaml(read_text(path, at(str(path))), str(path))
    except Fault as fault:
        raise DefinitionError(fault) from None
    found = _node(root, path.parent, reader)
    reader.stop()
    assert found is not None, "without a fault there is a node"
    return found


def _node(root: Node, folder: Path, reader: Reader) -> NodeDefinition | None:
    given = reader.fields(root, ("node", "place"), OPTIONAL, "a node")
    id = reader.text(given["node"], "the node's id") if "node" in given else None
    place = read_place(given["place"], reader) if "place" in given else None
    sensors, measured = _sensors(given.get("sensors"), folder, reader)
    listed = reader.items(given["situations"], "situations") if "situations" in given else []
    known = read_known(given.get("ontology"), listed, measured, folder, reader)
    group = _group(given["multicast"], reader) if "multicast" in given else Group()
    manner = _manner(given["manner"], reader) if "manner" in given else _usual()
    bridge = _bridge(given["bridge"], reader) if "bridge" in given else None
    weather = _weather(given["weather"], reader) if "weather" in given else None
    if id is None or place is None or group is None:
        return None
    return NodeDefinition(id, place, known, tuple(measured), sensors, group, manner, bridge, weather)


def _sensors(node: Node | None, folder: Path, reader: Reader) -> tuple[tuple[Sensor, ...], dict[str, Node]]:
    """The sensors, and the classes that they read with the places where they are named."""
    sensors, measured = [], dict[str, Node]()
    for item in reader.items(node, "sensors") if node else ():
        given = reader.fields(item, (), ("class", "classes", "simulated", "file", "mqtt", "every"), "a sensor")
        names = _classes(item, given, reader)
        measured.update(dict.fromkeys(names, item))
        every = read_duration(given["every"], "every", reader) if "every" in given else 1.0
        if every == 0:
            reader.fault("every: more than 0 seconds", given["every"])
        sensor = _sensor(item, given, names, every or 1.0, folder, reader)
        if sensor:
            sensors.append(sensor)
    return tuple(sensors), measured


def _classes(item: Node, given: dict[str, Node], reader: Reader) -> list[str]:
    """The classes that a sensor reads."""
    nodes = reader.items(given["classes"], "classes") if "classes" in given else []
    nodes += [given["class"]] if "class" in given else []
    if not nodes:
        reader.fault("class or classes of a sensor", item, came="none")
    names = [name for one in nodes if (name := reader.text(one, "a class"))]
    for name in names:
        if name in OWN:
            reader.fault("a context class", item, f"{name} is a field of every event", came=name)
    return names


def _sensor(
    item: Node, given: dict[str, Node], names: list[str], every: float, folder: Path, reader: Reader
) -> Sensor | None:
    kinds = [name for name in ("simulated", "file", "mqtt") if name in given]
    if len(kinds) != 1:
        reader.fault("one of simulated, file, mqtt in a sensor", item, came=" and ".join(kinds) or "none")
        return None
    node = given[kinds[0]]
    if kinds[0] == "file":
        path = reader.text(node, "file")
        return FileSensor(folder / path, every) if path else None
    if kinds[0] == "mqtt":
        return _mqtt(node, names, reader)
    if len(names) != 1:
        reader.fault("one class of a simulated sensor", item, came=f"{len(names)}")
        return None
    numbers = reader.fields(node, (), ("low", "high", "step", "seed"), "simulated")
    bounds = {name: reader.number(value, name) for name, value in numbers.items() if name != "seed"}
    seed = reader.integer(numbers["seed"], "seed", 0, 2**32) if "seed" in numbers else None
    known = {name: value for name, value in bounds.items() if value is not None}
    return SimulatedSensor(names[0], **known, every=every, seed=seed)


def _mqtt(node: Node, names: list[str], reader: Reader) -> Sensor | None:
    given = reader.fields(node, ("host", "topic"), ("port", "user", "password"), "mqtt")
    host, topic, user = (
        reader.text(given[name], name) if name in given else None for name in ("host", "topic", "user")
    )
    password = _secret(given["password"], "password", reader) if "password" in given else None
    port = reader.integer(given["port"], "port", 1, 65_535) if "port" in given else 1883
    if host is None or topic is None or port is None:
        return None
    return MqttSensor(host, topic, port, names[0] if len(names) == 1 else None, user, password)


def _secret(node: Node, what: str, reader: Reader) -> str | None:
    """What an environment variable holds: files are no place for secrets."""
    name = reader.text(node, f"{what}, the name of an environment variable")
    if name is not None and name not in os.environ:
        # What stands there may be the secret: it is not repeated.
        reader.fault(f"{what}, the name of an environment variable that is set", node, came="another text")
    return os.environ.get(name) if name is not None else None


def _group(node: Node, reader: Reader) -> Group | None:
    given = reader.fields(node, (), ("address", "port", "interface"), "multicast")
    texts = {name: reader.text(given[name], name) for name in ("address", "interface") if name in given}
    port = reader.integer(given["port"], "port", 1, 65_535) if "port" in given else Group().port
    if None in (port, *texts.values()):
        return None
    try:
        return Group(port=port or 0, **{name: text for name, text in texts.items() if text})
    except SetupError as error:
        reader.fault("a multicast group", node, str(error))
        return None


def _weather(node: Node, reader: Reader) -> Weather:
    given = reader.fields(node, (), ("loss", "twice", "late"), "weather")
    late = read_duration(given["late"], "late", reader) if "late" in given else None
    shares = [reader.number(given[name], name, low=0) if name in given else None for name in ("loss", "twice")]
    return Weather(shares[0] or 0.0, shares[1] or 0.0, late or 0.0)


def _usual() -> Manner:
    """How a node works that does not say: nobody may flood it, and new requests are answered at once."""
    return Manner(FRESH_SECONDS, at_once=True, bounds=Bounds(rates=Rates()))


def _manner(node: Node, reader: Reader) -> Manner:
    given = reader.fields(node, (), ("fresh", "keeps", "adapting", "clocks", "farthest", "longest", "rates"), "manner")
    usual = _usual()
    fresh, keeps, clocks, longest = (
        read_duration(given[name], name, reader) if name in given else None
        for name in ("fresh", "keeps", "clocks", "longest")
    )
    farthest = reader.number(given["farthest"], "farthest, in metres", low=0) if "farthest" in given else None
    bounds = Bounds(
        farthest=usual.bounds.farthest if farthest is None else farthest,
        longest=longest or usual.bounds.longest,
        clocks=usual.bounds.clocks if clocks is None else clocks,
        rates=_values(given["rates"], Rates, "rates", reader) if "rates" in given else Rates(),
    )
    adapting = given.get("adapting")
    followed = None
    if adapting is not None and adapting.value is not False:
        followed = Adapting() if adapting.value is True else _values(adapting, Adapting, "adapting", reader)
    return Manner(fresh or FRESH_SECONDS, at_once=True, keeps=keeps or 0.0, adapting=followed, bounds=bounds)


def _values(node: Node, kind: Any, what: str, reader: Reader) -> Any:
    """A value all of whose fields are numbers above 0, those that are not given as usual."""
    given = reader.fields(node, (), tuple(one.name for one in fields(kind)), what)
    numbers = {name: reader.number(value, name, above=0) for name, value in given.items()}
    return kind(**{name: value for name, value in numbers.items() if value is not None})


def _bridge(node: Node, reader: Reader) -> BridgeDefinition | None:
    given = reader.fields(node, ("url", "client"), ("classes", "token"), "bridge")
    url, client = (reader.text(given[name], name) if name in given else None for name in ("url", "client"))
    token = _secret(given["token"], "token", reader) if "token" in given else os.environ.get("NEARCAST_TOKEN")
    listed = reader.items(given["classes"], "classes") if "classes" in given else []
    names = tuple(name for one in listed if (name := reader.text(one, "a class")))
    return BridgeDefinition(url, client, names, token) if url and client else None
