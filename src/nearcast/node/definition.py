"""What a node is, from a YAML file: place, sensors, transport, settings, and its situation rules; every fault told.

Without an ontology whatever the conditions name is a class of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from nearcast.errors import DefinitionError, Fault, SetupError
from nearcast.foraging.forager import ForagingSettings
from nearcast.foraging.foraging_rules import ForagingRule, remote
from nearcast.foraging.message_filter import MessageBounds, MessageRates
from nearcast.foraging.requestor import AdaptiveInterval
from nearcast.language.definitions.client_documents import read_place
from nearcast.language.definitions.files import read_text
from nearcast.language.definitions.ontology_documents import read_ontology_file
from nearcast.language.definitions.situation_documents import read_rules
from nearcast.language.definitions.subscription_documents import read_filter
from nearcast.language.nodes import DocumentNode, DocumentReader, at, closest, from_yaml
from nearcast.language.quantities import read_duration
from nearcast.model.event import OWN, Place
from nearcast.model.expression import Call
from nearcast.model.filter import atoms
from nearcast.model.ontology import ContextClass, Ontology, SituationClass, upwards
from nearcast.model.situation import Situation
from nearcast.model.subscription import Settings
from nearcast.node.mqtt import MqttSensor
from nearcast.node.multicast import Group
from nearcast.node.sensors import FileSensor, Sensor, SimulatedSensor
from nearcast.node.transport import ChannelFaults
from nearcast.node.wire import MOST_CONDITIONS
from nearcast.situations.rule_plan import in_order, names_of, range_of, reach, standing_on
from nearcast.state.windows import aggregates_in

LEVELS = 3
"""Of priorities: a filter is read with some, and a node has none."""


@dataclass(frozen=True, slots=True)
class NodeRules:
    """What a node knows of the world: rules, each after those it stands on, and the classes they are about."""

    rules: tuple[ForagingRule, ...] = ()
    ontology: Ontology = field(default_factory=Ontology)

    def above(self, name: str) -> tuple[str, ...]:
        """A class and those above it, whose requests it serves."""
        return tuple(upwards(self.ontology.serving(), name))

    def situations(self) -> tuple[str, ...]:
        """What is a situation, not a class."""
        return tuple(one.name for one in self.ontology.situations)

    def ranges(self) -> dict[str, tuple[float, float]]:
        """Of classes that have one, the values between which readings lie."""
        found = {one.name: range_of(self.ontology, one.name) for one in self.ontology.classes}
        return {
            name: (-float("inf") if low is None else low, float("inf") if high is None else high)
            for name, (low, high) in found.items()
            if low is not None or high is not None
        }


def read_known(
    ontology: DocumentNode | None,
    situations: Sequence[DocumentNode],
    measured: Mapping[str, DocumentNode],
    folder: Path,
    reader: DocumentReader,
) -> NodeRules:
    """What a node's file says that it knows; `measured`: where each class that it measures is named."""
    found = _ontology(ontology, folder, reader) if ontology else _implied(situations, measured)
    known = [one.name for one in found.classes]
    for name, where in measured.items():
        if name not in known:
            reader.fault("a class of the ontology", where, closest(name, known) or "add it to the ontology", name)
    plain, _ = read_rules([_without(node, "threshold") for node in situations], [], Settings(ontology=found), reader)
    nodes = {_id(node): node for node in situations}
    whole = {rule.id: rule for rule in plain}
    concluded = {above for rule in plain for above in upwards(found.serving(), rule.concludes)}
    seen = {above for name in measured for above in upwards(found.serving(), name)} | concluded
    # With a fault among the rules they may stand in a circle: then there is no order, and nothing runs.
    order = in_order(standing_on(plain, found)) if not reader.faults else list(whole)
    rules = [_rule(whole[id], nodes[id], found, seen, reader) for id in order]
    return NodeRules(tuple(rule for rule in rules if rule), found)


def _ontology(node: DocumentNode, folder: Path, reader: DocumentReader) -> Ontology:
    path = folder / str(node.value).strip()
    try:
        return read_ontology_file(read_text(path, node.where), path, reader)
    except (Fault, DefinitionError) as error:
        reader.note_raised(error)
        return Ontology()


def _implied(situations: Sequence[DocumentNode], measured: Iterable[str]) -> Ontology:
    """An ontology in which every name is by itself: what rules conclude are situations, the rest are classes."""
    concluded, named = dict[str, None](), dict.fromkeys(measured)
    for node in situations:
        given = node.value if isinstance(node.value, dict) else {}
        if "class" in given and isinstance(given["class"].value, str) and given["class"].value:
            concluded[given["class"].value] = None
        # Its faults are told when the rule itself is read.
        weighted = read_filter(given["when"], LEVELS, DocumentReader()) if "when" in given else None
        named.update(dict.fromkeys(names_of(weighted.filter) if weighted else ()))
    classes = tuple(ContextClass(name) for name in named if name not in concluded)
    return Ontology(classes, tuple(map(SituationClass, concluded)))


def _without(node: DocumentNode, name: str) -> DocumentNode:
    if not isinstance(node.value, dict):
        return node
    return replace(node, value={key: child for key, child in node.value.items() if key != name})


def _id(node: DocumentNode) -> str:
    given = node.value if isinstance(node.value, dict) else {}
    return str(given["id"].value) if "id" in given else ""


def _rule(
    rule: Situation, node: DocumentNode, ontology: Ontology, seen: Iterable[str], reader: DocumentReader
) -> ForagingRule | None:
    """The rule as a node follows it; None after a fault."""
    before = len(reader.faults)
    given = node.value if isinstance(node.value, dict) else {}
    threshold = reader.number(given["threshold"], "threshold, a trigger level", low=0) if "threshold" in given else 0.0
    if threshold is not None and threshold > 1:
        reader.fault("threshold, a trigger level: from 0 to 1", given["threshold"])
    if "valid" not in given:
        reader.fault("valid of a node's rule: more than 0 seconds", node, "a request holds so long: 10 s", "nothing")
    others = [name for name in ("in", "lateness", "sufficient", "for", "margin") if name in given]
    if (
        rule.area is not None
        or rule.layer is not None
        or not rule.sufficient
        or rule.lateness
        or rule.begin
        or rule.end
        or rule.margins
    ):
        expected, advice = "id, class, when, within, valid, threshold in a node's rule", "nodes know no other fields"
        reader.fault(expected, node, advice, " and ".join(others))
    if any(aggregates_in(one.name) for one in atoms(rule.when) if isinstance(one.name, Call)):
        reader.fault("conditions on the newest readings in a node's rule", node, "nodes keep no others", "an aggregate")
    within = rule.within
    if within is None:
        within = max((metres for name in names_of(rule.when) if (metres := reach(ontology, name))), default=0.0)
    found = ForagingRule(rule.id, rule.concludes, rule.when, within, rule.valid or 0.0, threshold or 0.0)
    try:
        asked = len(remote(found, frozenset(seen)))
        if asked > MOST_CONDITIONS:
            advice = "make it several rules of one class"
            reader.fault(f"a rule that asks for at most {MOST_CONDITIONS} conditions", node, advice, f"{asked}")
    except Fault as fault:
        reader.note_raised(fault)
    return found if len(reader.faults) == before else None


REPEAT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class BridgeDefinition:
    """The access server that a node bridges to, as which client, and for which classes it asks there.

    `repeat`: after how many seconds the server's requests are said again.
    """

    url: str
    client: str
    classes: tuple[str, ...]
    token: str | None = None
    repeat: float = REPEAT_SECONDS


@dataclass(frozen=True, slots=True)
class NodeDefinition:
    """A node as its file defines it; `measured` are the classes that its sensors read."""

    id: str
    place: Place
    known: NodeRules = field(default_factory=NodeRules)
    measured: tuple[str, ...] = ()
    sensors: tuple[Sensor, ...] = ()
    group: Group = field(default_factory=Group)
    manner: ForagingSettings = field(default_factory=ForagingSettings)
    bridge: BridgeDefinition | None = None
    weather: ChannelFaults | None = None


FRESH_SECONDS = 5.0
OPTIONAL = ("ontology", "sensors", "situations", "multicast", "manner", "bridge", "weather")


def load_node(path: Path) -> NodeDefinition:
    """The node that a file defines. Raises `DefinitionError` with every fault."""
    reader = DocumentReader()
    try:
        root = from_yaml(read_text(path, at(str(path))), str(path))
    except Fault as fault:
        raise DefinitionError(fault) from None
    found = _node(root, path.parent, reader)
    reader.refuse()
    assert found is not None, "without a fault there is a node"
    return found


def _node(root: DocumentNode, folder: Path, reader: DocumentReader) -> NodeDefinition | None:
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


def _sensors(
    node: DocumentNode | None, folder: Path, reader: DocumentReader
) -> tuple[tuple[Sensor, ...], dict[str, DocumentNode]]:
    """The sensors, and the classes that they read with the places where they are named."""
    sensors, measured = [], dict[str, DocumentNode]()
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


def _classes(item: DocumentNode, given: dict[str, DocumentNode], reader: DocumentReader) -> list[str]:
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
    item: DocumentNode,
    given: dict[str, DocumentNode],
    names: list[str],
    every: float,
    folder: Path,
    reader: DocumentReader,
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


def _mqtt(node: DocumentNode, names: list[str], reader: DocumentReader) -> Sensor | None:
    given = reader.fields(node, ("host", "topic"), ("port", "user", "password"), "mqtt")
    host, topic, user = (
        reader.text(given[name], name) if name in given else None for name in ("host", "topic", "user")
    )
    password = _secret(given["password"], "password", reader) if "password" in given else None
    port = reader.integer(given["port"], "port", 1, 65_535) if "port" in given else 1883
    if host is None or topic is None or port is None:
        return None
    return MqttSensor(host, topic, port, names[0] if len(names) == 1 else None, user, password)


def _secret(node: DocumentNode, what: str, reader: DocumentReader) -> str | None:
    """What an environment variable holds: files are no place for secrets."""
    name = reader.text(node, f"{what}, the name of an environment variable")
    if name is not None and name not in os.environ:
        # What stands there may be the secret: it is not repeated.
        reader.fault(f"{what}, the name of an environment variable that is set", node, came="another text")
    return os.environ.get(name) if name is not None else None


def _group(node: DocumentNode, reader: DocumentReader) -> Group | None:
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


def _weather(node: DocumentNode, reader: DocumentReader) -> ChannelFaults:
    given = reader.fields(node, (), ("loss", "twice", "late"), "weather")
    late = read_duration(given["late"], "late", reader) if "late" in given else None
    shares = [reader.number(given[name], name, low=0) if name in given else None for name in ("loss", "twice")]
    return ChannelFaults(shares[0] or 0.0, shares[1] or 0.0, late or 0.0)


def _usual() -> ForagingSettings:
    """How a node works that does not say: nobody may flood it, and new requests are answered at once."""
    return ForagingSettings(FRESH_SECONDS, at_once=True, bounds=MessageBounds(rates=MessageRates()))


def _manner(node: DocumentNode, reader: DocumentReader) -> ForagingSettings:
    given = reader.fields(node, (), ("fresh", "keeps", "adapting", "clocks", "farthest", "longest", "rates"), "manner")
    usual = _usual()
    fresh, keeps, clocks, longest = (
        read_duration(given[name], name, reader) if name in given else None
        for name in ("fresh", "keeps", "clocks", "longest")
    )
    farthest = reader.number(given["farthest"], "farthest, in metres", low=0) if "farthest" in given else None
    bounds = MessageBounds(
        farthest=usual.bounds.farthest if farthest is None else farthest,
        longest=longest or usual.bounds.longest,
        clocks=usual.bounds.clocks if clocks is None else clocks,
        rates=_values(given["rates"], MessageRates, "rates", reader) if "rates" in given else MessageRates(),
    )
    adapting = given.get("adapting")
    followed = None
    if adapting is not None and adapting.value is not False:
        followed = (
            AdaptiveInterval() if adapting.value is True else _values(adapting, AdaptiveInterval, "adapting", reader)
        )
    return ForagingSettings(fresh or FRESH_SECONDS, at_once=True, keeps=keeps or 0.0, adapting=followed, bounds=bounds)


def _values(node: DocumentNode, kind: Any, what: str, reader: DocumentReader) -> Any:
    """A value all of whose fields are numbers above 0, those that are not given as usual."""
    given = reader.fields(node, (), tuple(one.name for one in fields(kind)), what)
    numbers = {name: reader.number(value, name, above=0) for name, value in given.items()}
    return kind(**{name: value for name, value in numbers.items() if value is not None})


def _bridge(node: DocumentNode, reader: DocumentReader) -> BridgeDefinition | None:
    given = reader.fields(node, ("url", "client"), ("classes", "token", "repeat"), "bridge")
    url, client = (reader.text(given[name], name) if name in given else None for name in ("url", "client"))
    token = _secret(given["token"], "token", reader) if "token" in given else os.environ.get("NEARCAST_TOKEN")
    listed = reader.items(given["classes"], "classes") if "classes" in given else []
    names = tuple(name for one in listed if (name := reader.text(one, "a class")))
    repeat = read_duration(given["repeat"], "repeat", reader) if "repeat" in given else REPEAT_SECONDS
    if repeat == 0:
        reader.fault("repeat: more than 0 seconds", given["repeat"])
    return BridgeDefinition(url, client, names, token, repeat or REPEAT_SECONDS) if url and client else None
