"""Every definition that its reader accepts is taken by the stage it is for: with what it names, it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, example, given
from hypothesis import settings as limits
from hypothesis import strategies as st

from nearcast.errors import DefinitionError, Mark
from nearcast.language.control_events import changes, to_event
from nearcast.language.definitions.relation_documents import relation_document
from nearcast.language.definitions.settings_documents import FIELDS, read_settings, settings_data
from nearcast.language.definitions.situation_documents import action_document, situation_document
from nearcast.language.definitions.subscription_documents import filter_data, subscription_document
from nearcast.language.nodes import DocumentReader, from_data
from nearcast.model.changes import (
    ActionChange,
    Change,
    RelationChange,
    SettingsChange,
    SituationChange,
    SubscriptionChange,
)
from nearcast.model.filter import Not
from nearcast.model.subscription import Settings
from nearcast.stages.isolation import rejected
from tests import random_filters
from tests.language import strategies
from tests.situations.scenes import ONTOLOGY
from tests.stages.trial import tried

HERE = Mark("here")
SETTINGS = Settings(ontology=ONTOLOGY)

# Of every size that a document can say, and some that a reader must refuse.
extremes = st.sampled_from(
    [0, -0.0, 5e-324, 1e-300, 1e12, 1e300, 1.7e308, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64]
)
numbers = st.integers(-9, 9) | st.integers() | st.floats() | extremes
positive = st.floats(0, 1e13) | st.integers(0, 10**6) | extremes
times = positive | st.builds(
    "{} {}".format, st.sampled_from([1, 0.001, 36_525, 10**9]), st.sampled_from(["ms", "s", "d"])
)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | strategies.texts | st.sampled_from(["{place}", "{readings.Smoke} ü"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(strategies.texts, inner, max_size=3),
    max_leaves=8,
)

any_filters = st.one_of(
    strategies.filters, random_filters.trees(random_filters.computed_atoms() | random_filters.location_atoms())
)
subscriptions = any_filters.map(lambda filter: {"id": "s", "client": "ann", "filter": filter_data(filter)})

OPERATORS = ("<", "<=", ">", ">=", "=", "<>")
# Conditions on one event alone, which is what a side may be.
members = random_filters.trees(random_filters.attribute_atoms()) | strategies.trees(strategies.attribute_atoms, (Not,))
named = st.sampled_from(["x", "y", "größe"]).map(lambda entity: {"entity": entity})
sides = st.sampled_from(["type = 'car'", "type LIKE 'nearcast.%'"]) | named | members.map(filter_data)
predicates = st.one_of(
    st.builds("distance(a, b) {} {}".format, st.sampled_from(OPERATORS), positive),
    st.builds("a.size {} b.size {} {}".format, st.sampled_from("+-*/"), st.sampled_from(OPERATORS), numbers),
    st.builds("a.size BETWEEN b.size AND {}".format, numbers),
    st.just("a.tag = b.tag AND NOT a.größe LIKE 'ü%'"),
)
both = st.fixed_dictionaries({"a": sides, "b": sides, "when": predicates}, optional={"margin": positive})
listed = st.just({"client": "ann", "list": "l"})
crowds = st.fixed_dictionaries(
    {"among": sides | listed, "within": positive, "count": st.integers(2, 9)}, optional={"margin": positive}
)
lasting = st.fixed_dictionaries({}, optional={"for": times, "time_to_live": times})
relations = st.builds(lambda about, more: {"id": "r", **about, **more}, both | crowds, lasting)

conditions = st.one_of(
    st.builds("Temperature {} {}".format, st.sampled_from(OPERATORS), numbers),
    st.builds("Temperature + Temperature {} {}".format, st.sampled_from(OPERATORS), numbers),
    st.builds("(Humidity BETWEEN {} AND {})".format, numbers, numbers),
    st.sampled_from(["Fire", "NOT Drill", "Humidity IN (1, 2.5)", "Button = TRUE", "avg(Smoke) > 3"]),
)
whens = st.lists(conditions, min_size=1, max_size=4).map(" AND ".join) | st.builds(
    "({}) OR NOT ({})".format, *[conditions] * 2
)
around = st.just({"in": "campus"}) | st.builds(lambda metres: {"within": metres}, positive)
rules = st.fixed_dictionaries(
    {"class": st.sampled_from(["Fire", "Alarm"]), "when": whens},
    optional={"valid": times, "lateness": times, "sufficient": st.booleans()},
)
situations = st.builds(lambda rule, where: {"id": "rule", **rule, **where}, rules, around)
effects = st.fixed_dictionaries(
    {},
    optional={
        "publish": st.fixed_dictionaries({"type": st.just("alert") | strategies.texts}, optional={"data": json_values}),
        "run": st.fixed_dictionaries({"name": st.just("ring")}, optional={"arguments": json_values}),
        "within": numbers,
    },
)
asked = st.sampled_from(["Fire", "Fire AND Drill", "Alarm AND NOT Fire", "Fire OR Hazard"])
actions = st.builds(lambda when, more: {"id": "act", "when": when, **more}, asked, effects)

classes = st.dictionaries(
    st.sampled_from(["Heat", "Rain", "größe"]),
    st.fixed_dictionaries(
        {},
        optional={
            "unit": st.sampled_from(["degC", "degF", "percent", "m/s"]),
            "range": st.lists(numbers | st.none(), min_size=2, max_size=2),
            "within": numbers,
            "attributes": st.just({"heat in °F": "degF"}) | st.just(["warm"]),
        },
    ),
    max_size=2,
)
outlines = st.sampled_from(["POLYGON((0 0, 1 0, 1 1, 0 0))", "POINT(1e300 1)", "POLYGON((0 0, 1 1, 1 0, 0 1, 0 0))"])
ontologies = st.fixed_dictionaries(
    {},
    optional={
        "classes": classes,
        "situations": st.just({"Flood": {}}),
        "places": st.dictionaries(strategies.names, st.fixed_dictionaries({}, optional={"area": outlines}), max_size=2),
    },
)
settings = st.builds(
    lambda held, ontology: {**settings_data(held), "ontology": ontology}, strategies.settings(), ontologies
)

documents = st.one_of(
    st.tuples(st.just("subscription"), subscriptions),
    st.tuples(st.just("relation"), relations),
    st.tuples(st.just("situation"), situations),
    st.tuples(st.just("action"), actions),
    st.tuples(st.just("settings"), settings),
)


def settings_of(data: dict[str, Any]) -> Settings:
    """The settings that a document asks for. Raises `DefinitionError`."""
    reader = DocumentReader()
    found = read_settings(reader.fields(from_data(data, HERE), (), FIELDS, "settings"), reader)
    reader.refuse()
    return found


READERS: dict[str, Callable[[dict[str, Any]], Change]] = {
    "subscription": lambda data: SubscriptionChange(subscription_document(data, HERE, SETTINGS)),
    "relation": lambda data: RelationChange(relation_document(data, HERE)),
    "situation": lambda data: SituationChange(situation_document(data, HERE, SETTINGS)),
    "action": lambda data: ActionChange(action_document(data, HERE, SETTINGS)),
    "settings": lambda data: SettingsChange(settings_of(data)),
}


def action(**effect: Any) -> tuple[str, dict[str, Any]]:
    """An action that a fire calls for."""
    return "action", {"id": "act", "when": "Fire", **effect}


def relation(**fields: Any) -> tuple[str, dict[str, Any]]:
    """A relation of cars."""
    return "relation", {"id": "r", "a": "type = 'car'", "b": "type = 'car'", **fields}


def subscription(filter: str) -> tuple[str, dict[str, Any]]:
    """A subscription of ann's."""
    return "subscription", {"id": "s", "client": "ann", "filter": filter}


# What stages once failed on, and what lies beside it.
@example(action(publish={"type": "alert", "data": {"n": 2**63}}), 2)
@example(action(publish={"type": "alert", "data": {"n": 2**63 - 1, "m": [1, "a", True, {"x": 1.5}]}}), 2)
@example(action(run={"name": "ring", "arguments": {"n": 2**64}}), 2)
@example(relation(when="distance(a, b) < 1", time_to_live="1000000000 d"), 2)
@example(relation(when="distance(a, b) < 1e300", margin=1e308), 2)
@example(subscription("n IN (1, 'a', TRUE, 2.5)"), 2)
@example(subscription("a.b LIKE '%ü_%' AND casei(t) = 'x'"), 0)
@limits(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow], deadline=None)
@given(documents, st.sampled_from([0, 2, 2, 2, 2]))
def test_what_a_reader_accepts_a_stage_takes(document: tuple[str, dict[str, Any]], many: int) -> None:
    """It compiles alone, and runs on events that have what it names, in rows of bits and by compiled code."""
    kind, data = document
    try:
        change = READERS[kind](data)
    except DefinitionError:
        return
    assert {} == rejected([(1, change)], SETTINGS)
    tried(change, SETTINGS, many)
    assert [change] == changes(to_event(change, "e", "s"), SETTINGS)
