"""Relations as definitions and control events write them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from nearcast.errors import DefinitionError, Mark
from nearcast.language.checks.file_check import check
from nearcast.language.control_events import changes, to_event
from nearcast.language.definitions.files import load
from nearcast.language.definitions.relation_documents import relation_data, relation_document
from nearcast.language.definitions.relation_predicates import read_predicate
from nearcast.model.changes import ClientChange, RelationChange, RelationRemoval
from nearcast.model.expression import Call, Constant, Property
from nearcast.model.filter import Atom, Operator
from nearcast.model.relation import Gathering, ListMembers, Matching, Named, Pair, Relation, StrategyChoice
from nearcast.model.subscription import Settings

HERE = Mark("here")
METRES = Call("DISTANCE", (Property("a"), Property("b")))
CARS = Matching(Atom("type", Operator.EQ, "car"))

# The forms that nearcast promises to keep.
PROMISED = """\
clients: [{id: ranger-1, lists: {buddies: [x, y]}}]
relations:
  - {id: close, a: "type = 'car'", b: "type = 'car'", when: "S_DWITHIN(a.position, b.position, 1000)", detect: [enter, exit], strategy: {name: range-ring}}
  - {id: pair, a: {entity: deer-1}, b: {entity: deer-2}, when: "distance(a, b) < 10", margin: 3, for: 5 s}
  - {id: ratio, a: {entity: price-x}, b: {entity: earnings-x}, when: "a.price / b.earnings < 15"}
  - {id: gathering, among: {client: ranger-1, list: buddies}, within: 50, count: 3}
"""  # noqa: E501


def loaded(text: str, folder: Path) -> Any:
    """The definitions of a file with this text."""
    path = folder / "d.yaml"
    path.write_text(text, encoding="utf-8")
    return load([path])


def atom(function: str, *arguments: Any) -> Atom:
    return Atom(Call(function, arguments), Operator.EQ, True)


def test_the_promised_forms(tmp_path: Path) -> None:
    """Pairs of filters and of names, predicates of distance and of numbers, a crowd from a client's list."""
    deer = Pair(Named("deer-1"), Named("deer-2"), atom("<", METRES, Constant(10)))
    share = atom("<", Call("/", (Property("a.price"), Property("b.earnings"))), Constant(15))
    definitions = loaded(PROMISED, tmp_path)
    assert (
        Relation("close", Pair(CARS, CARS, atom("<=", METRES, Constant(1000))), strategy=StrategyChoice("range-ring")),
        Relation("pair", deer, ("dwell", "exit"), 3, 5.0),
        Relation("ratio", Pair(Named("price-x"), Named("earnings-x"), share)),
        Relation("gathering", Gathering(ListMembers("ranger-1", "buddies"), 50, 3)),
    ) == definitions.relations
    assert ClientChange("ranger-1", lists={"buddies": ("x", "y")}) in definitions.changes()
    assert RelationChange(definitions.relations[0]) in definitions.changes()


PREDICATES = (
    "distance(a, b) < 10",
    "S_DWITHIN(a.position, b, 1000)",
    "S_DWITHIN(a.geom, b.geom, 1000)",
    "a.price / b.earnings < 15 AND NOT (a.kind = b.kind OR a.moored)",
    "distance(a, b) BETWEEN 5 AND 10",
    "distance(b, a) <= a.range + b.range",
    "S_INTERSECTS(a.geometry, b)",
    "a.moored AND distance(a, b) < 5",
    'a.size > 3 AND b.size IN (1, 2) AND "b.alert-level" IS NULL',
    "a.time < b.time",
    "distance(a, b) < 500 AND AVG(a.speed, 2 min) > MAX(b.speed, 5 min) * 2",
    'COUNT(a.x, 1.5 h, 3) * 2 > RATE("b.level of water", 10 min) OR SUM(a.x, 500 ms) = MIN(b.x, 1 d)',
)


@pytest.mark.parametrize("text", PREDICATES)
def test_predicates_come_back(text: str) -> None:
    """What a relation's document says is the relation again."""
    relation = relation_document({"id": "r", "a": "x = 1", "b": {"entity": "e"}, "when": text}, HERE)
    assert relation == relation_document(relation_data(relation), HERE)


def test_the_names_of_a_place_are_one() -> None:
    """A side alone, its position, and whichever side stands first."""
    texts = ("distance(a, b) <= 5", "distance(b.position, a.this) <= 5", "S_DWITHIN(b, a.position, 5)")
    assert 1 == len({read_predicate(text, lambda offset: HERE) for text in texts})


relations = st.builds(
    Relation,
    st.sampled_from(["r", "s"]),
    st.one_of(
        st.builds(
            Pair,
            st.sampled_from([CARS, Named("x")]),
            st.sampled_from([CARS, Named("y")]),
            st.sampled_from([read_predicate(text, lambda offset: HERE) for text in PREDICATES[:1]]),
        ),
        st.builds(Gathering, st.sampled_from([CARS, ListMembers("c", "l")]), st.floats(0, 1e6), st.integers(2, 10)),
    ),
    st.sampled_from([("enter", "dwell", "exit"), ("dwell",)]),
    st.floats(0, 100),
    st.floats(0.001, 1e6),
    st.one_of(st.none(), st.floats(0.001, 1e6)),
    st.sampled_from([None, "", "north"]),
    st.sampled_from(
        [
            None,
            StrategyChoice("common-node"),
            StrategyChoice("range-ring"),
            StrategyChoice("speed-bound", {"speed": 20}),
        ]
    ),
).filter(
    # Whom a crowd is near is no comparison of two.
    lambda one: isinstance(one.about, Pair) or one.strategy in (None, StrategyChoice("common-node"))
)


@limits(max_examples=100, deadline=None)
@given(relations)
def test_relations_come_back(relation: Relation) -> None:
    """Through a document, and through a control event."""
    assert relation == relation_document(relation_data(relation), HERE)
    event = to_event(RelationChange(relation), "1", "s")
    assert [RelationChange(relation.at("main"))] == changes(event, Settings())
    assert [RelationRemoval("r")] == changes(to_event(RelationRemoval("r"), "1", "s"), Settings())


BASE: dict[str, Any] = {"id": "r", "a": "type = 'car'", "b": "type = 'car'", "when": "distance(a, b) < 10"}
CROWD: dict[str, Any] = {"id": "r", "among": "type = 'car'", "within": 5, "count": 3}


@pytest.mark.parametrize(
    ("expected", "data"),
    [
        ("or among, within, count in one of a crowd", {"id": "r"}),
        ("compare it: distance(a, b) < 10", BASE | {"when": "distance(a, b)"}),
        ("a distance from a side to itself is always 0", BASE | {"when": "distance(a, a) < 3"}),
        ("when in a relation", {"id": "r", "a": "x = 1", "b": "x = 1"}),
        ("within in a relation", {"id": "r", "among": "x = 1", "count": 3}),
        ("a field of a relation", CROWD | {"when": "distance(a, b) < 3"}),
        ("a distance in metres, 0 or more", BASE | {"when": "distance(a, b) < -1"}),
        ("a distance in metres, 0 or more", BASE | {"when": "S_DWITHIN(a, b, -1)"}),
        ("a distance in metres above 0", BASE | {"when": "distance(a, b) < 0"}),
        ("a number to compare with", BASE | {"when": "distance(a, b) < 'far'"}),
        ("an attribute of a side", BASE | {"when": "speed > 3"}),
        ("an attribute of a side", BASE | {"when": "c.speed > b.speed"}),
        ("the two sides", BASE | {"when": "distance(a, POINT(1 2)) < 3"}),
        ("the two sides", BASE | {"when": "distance(a, a) < 3"}),
        ("a predicate over both sides", BASE | {"when": "a.speed > 3"}),
        ("something to compare", BASE | {"when": "a = b"}),
        ("an attribute, a.NAME", BASE | {"when": "a.position + b.x < 3"}),
        ("a condition on a.NAME", BASE | {"when": "PREVIOUS(a.x) < b.x"}),
        ("a condition on a.NAME", BASE | {"when": "S_DWITHIN(user('x'), b.geom, 5) AND a.x = 1"}),
        ("two values that compare", BASE | {"a": "kind = 'x'", "b": "level > 3", "when": "a.kind = b.level"}),
        ("two values that compare", BASE | {"when": "a.type < 5 AND distance(a, b) < 3"}),
        ("numbers to calculate with", BASE | {"a": "kind = 'x'", "when": "a.kind + b.level < 3"}),
        ("an attribute that a can have", BASE | {"a": "kind IS NULL", "when": "a.kind = b.kind"}),
        ("an attribute of a side", BASE | {"when": "AVG(a, 5 s) > b.x"}),
        ("an attribute of a side", BASE | {"when": "AVG(a.geom, 5 s) > b.x"}),
        ("an attribute of a side", BASE | {"when": "AVG(x, 5 s) > b.x"}),
        ("a time above 0", BASE | {"when": "AVG(a.x, b.y) > b.x"}),
        ("AVG(a.NAME, 5 min)", BASE | {"when": "AVG(a.x) > b.x"}),
        ("a number to compare with", BASE | {"when": "AVG(a.x, 5 s) = 'far' AND distance(a, b) < 3"}),
        ("numbers to calculate with", BASE | {"a": "kind = 'x'", "when": "AVG(a.kind, 5 s) < b.x"}),
        ("an attribute that a can have", BASE | {"a": "x IS NULL", "when": "AVG(a.x, 5 s) < b.x"}),
        ("the rules of situations and the predicates of relations", BASE | {"a": "AVG(x, 5 s) > 3"}),
        ("the rules of situations and the predicates of relations", CROWD | {"among": "AVG(x, 5 s) > 3"}),
        (
            "a predicate on newest events alone, where a side is of what relations tell, got AVG(a.x, 5 s)",
            BASE | {"a": "type = 'nearcast.relation'", "when": "AVG(a.x, 5 s) > b.x"},
        ),
        ("got another predicate", BASE | {"when": "AVG(a.x, 5 s) - b.x < 3", "strategy": "range-ring"}),
        ("two different entities", BASE | {"a": {"entity": "x"}, "b": {"entity": "x"}}),
        ("side a: {entity: ID}, or a filter", BASE | {"a": 5}),
        ("a field of side b, got entitty; did you mean entity?", BASE | {"b": {"entitty": "q"}}),
        ("a field of side b, got al; did you mean all?", BASE | {"b": {"al": []}}),
        ("a field of side b, got foo; that is {entity: ID}, or a filter in CQL2", BASE | {"b": {"foo": "q"}}),
        ("a condition on one event alone", BASE | {"a": "distance(user('u'), this) < 5"}),
        ("a condition on one event alone", BASE | {"a": "CHANGED(x)"}),
        ("side b without relevances", BASE | {"b": {"when": "x = 1", "relevance": 0.5}}),
        ("margin: a finite number, 0 or more", BASE | {"margin": -1}),
        ("a margin for a predicate that compares numbers", BASE | {"margin": 1, "when": "a.kind = b.kind"}),
        ("within, in metres: a finite number, 0 or more", CROWD | {"within": -1}),
        ("count: an integer from 2", CROWD | {"count": 1}),
        ("within: a billion kilometres at most", CROWD | {"within": 1e308}),
        ("list in among", CROWD | {"among": {"client": "ann"}}),
        ("for: a time above 0", BASE | {"for": "5 parsecs"}),
        ("for: a hundred years at most", BASE | {"for": "1000000000 d"}),
        ("time_to_live: a hundred years at most", BASE | {"time_to_live": 9e300}),
        ("for, in seconds", BASE | {"for": 0}),
        ("time_to_live", BASE | {"time_to_live": -5}),
        ("one of enter, dwell, exit", BASE | {"detect": ["leave"]}),
        ("at least one of enter", BASE | {"detect": []}),
        ("for, the time after which dwell is told", BASE | {"detect": ["dwell"]}),
        ("dwell in detect", BASE | {"detect": ["enter"], "for": 5}),
        ("scope: local or global", BASE | {"scope": "galactic"}),
        ("local in scope", BASE | {"scope": {}}),
        ("the name of an access server: a text", BASE | {"scope": {"local": 5}}),
        ("name in a strategy", BASE | {"strategy": {"nme": "x"}}),
        ("did you mean range-ring?", BASE | {"strategy": "range-rnig"}),
        ("parameters of the strategy range-ring: share", BASE | {"strategy": {"name": "range-ring", "shares": 0.5}}),
        ("a number from 0 to 1 for `share`", BASE | {"strategy": {"name": "range-ring", "share": 2}}),
        ("a top speed above 0", BASE | {"strategy": "speed-bound"}),
        ("a speed of at least 0 for `a`", BASE | {"strategy": {"name": "speed-bound", "a": "fast"}}),
        ("got another predicate", BASE | {"when": "a.kind = b.kind", "strategy": "range-ring"}),
        (
            "common-node serves every predicate",
            BASE | {"when": "distance(a, b) BETWEEN 1 AND 2", "strategy": "range-ring"},
        ),
        ("a distance of places", BASE | {"when": "a.x / b.y < 2", "strategy": "parallel-line"}),
        ("got another predicate", CROWD | {"strategy": "range-ring"}),
    ],
)
def test_bad_relations(expected: str, data: dict[str, Any]) -> None:
    """What cannot be told is a fault that says what was expected."""
    with pytest.raises(DefinitionError) as error:
        relation_document(data, HERE)
    assert expected in str(error.value)


def test_faults_have_their_places(tmp_path: Path) -> None:
    """File, line and column, within the predicate too; a crowd's client and list must be defined."""
    text = """\
clients: [{id: ann, lists: {team: [x]}}]
relations:
  - {id: r, a: "kind = 'x'", b: "level > 3", when: "a.kind = b.level"}
  - {id: s, a: "kind = 'x'", b: "level > 3",
     when: "distance(a, b) < 10 AND speed > 3"}
  - {id: t, among: {client: bob, list: team}, within: 5, count: 3}
  - {id: u, among: {client: ann, list: taem}, within: 5, count: 3}
  - {id: u, among: {client: ann, list: team}, within: 5, count: 3}
"""
    with pytest.raises(DefinitionError) as error:
        loaded(text, tmp_path)
    assert [(3, 53), (5, 37), (6, 29), (7, 40), (8, 10)] == [
        (fault.where.line, fault.where.column) for fault in error.value.faults if fault.where
    ]
    assert "did you mean team?" in str(error.value)


def test_a_strategy_is_blamed_where_it_is_wrong(tmp_path: Path) -> None:
    """Its name, the parameter that there is not, the value that makes no sense; else the strategy."""
    text = """\
relations:
  - {id: r, a: "k = 1", b: "k = 2", when: "distance(a, b) < 9", strategy: {name: range-rnig}}
  - {id: s, a: "k = 1", b: "k = 2", when: "distance(a, b) < 9", strategy: {name: range-ring, shrae: 1}}
  - {id: t, a: "k = 1", b: "k = 2", when: "distance(a, b) < 9", strategy: {name: range-ring, share: 5}}
  - {id: u, a: "k = 1", b: "k = 2", when: "a.kind = b.kind", strategy: range-ring}
"""
    with pytest.raises(DefinitionError) as error:
        loaded(text, tmp_path)
    columns = [
        text.splitlines()[line].index(word) + 1
        for line, word in enumerate(("", "range-rnig", "shrae", "share", "range-ring"))
    ][1:]
    assert list(zip((2, 3, 4, 5), columns, strict=True)) == [
        (fault.where.line, fault.where.column) for fault in error.value.faults if fault.where
    ]


@pytest.mark.parametrize(
    "when", ["distance(a, b) < 9", "9 >= distance(b, a)", "a.x - b.y > 3", "b.x / a.y < 3", "a.x <= b.x"]
)
def test_comparisons_of_one_reading_have_strategies(when: str) -> None:
    """Distances, differences, ratios against a number, whichever side comes first; one attribute below another."""
    data = BASE | {"when": when, "strategy": {"name": "range-ring", "share": 0.25}}
    assert StrategyChoice("range-ring", {"share": 0.25}) == relation_document(data, HERE).strategy


@pytest.mark.parametrize(
    ("advice", "sides", "when"),
    [
        ("its atoms exclude one another", "b: {entity: q}", "distance(a, b) > 10 AND distance(a, b) < 5"),
        ("its atoms exclude one another", "b: {entity: q}", "a.x - b.x = 1 AND NOT a.x - b.x < 5"),
        ("a division by zero is never known", "b: {entity: q}", "a.x / 0 < b.x"),
        ("its atoms exclude one another", "b: 'id = 1'", "a.x < b.x"),
    ],
)
def test_what_never_holds_is_a_warning(advice: str, sides: str, when: str, tmp_path: Path) -> None:
    """A predicate, or a side's filter, that nothing can satisfy is taken with a warning."""
    sides = sides.replace("id = 1", "id = ''one'' AND id = ''two''")
    text = f'relations:\n  - {{id: r, a: {{entity: p}}, {sides}, when: "{when}"}}\n'
    (found,) = loaded(text, tmp_path).warnings
    assert advice == found.advice
    assert found.where is not None and 2 == found.where.line


@pytest.mark.parametrize(
    ("expected", "when"),
    [
        ("a time of at most 3600 s, for which a silent entity is kept", "AVG(a.x, 2 h) > b.x"),
        ("at most 10,000 readings, which are kept of an entity", "COUNT(a.x, 1 h, 20000) > b.x"),
    ],
)
def test_an_aggregate_over_more_than_is_kept_is_a_warning(expected: str, when: str, tmp_path: Path) -> None:
    """As in rules."""
    text = f'limits: {{entity_age: 1h}}\nrelations:\n  - {{id: r, a: "x > 1", b: {{entity: q}}, when: "{when}"}}\n'
    assert [expected] == [one.expected for one in loaded(text, tmp_path).warnings]


def test_what_may_hold_is_no_warning(tmp_path: Path) -> None:
    """Two values of both sides are not held against each other."""
    when = "distance(a, b) > 10 AND distance(a, b) < 15 AND a.x > 10 AND b.x < 5"
    assert () == loaded(f'relations:\n  - {{id: r, a: "x > 1", b: {{entity: q}}, when: "{when}"}}\n', tmp_path).warnings


def test_what_is_local_is_local_to_the_node_at_which_it_enters(tmp_path: Path) -> None:
    """Of a file that node; of a control event its own; a node that is named stays."""
    text = "relations:\n  - {id: r, a: {entity: x}, b: {entity: y}, when: 'distance(a, b) < 1', scope: %s}"
    here, there = loaded(text % "local", tmp_path), loaded(text % "{local: south}", tmp_path)
    assert ["north"] == [one.relation.node for one in here.changes("north") if isinstance(one, RelationChange)]
    assert ["south"] == [one.relation.node for one in there.changes("north") if isinstance(one, RelationChange)]
    event = to_event(RelationChange(here.relations[0]), "1", "s")
    for node, expected in (("north", "north"), (None, "main")):
        [found] = changes(replace(event, node=node), Settings())
        assert isinstance(found, RelationChange) and expected == found.relation.node
        assert [found] == changes(to_event(found, "2", "s"), Settings())


def test_a_relation_that_is_local_elsewhere_is_warned_of(tmp_path: Path) -> None:
    """What is checked for one node has nothing for a relation that is local to another."""
    loaded(PROMISED.replace("id: pair,", "id: pair, scope: {local: south},"), tmp_path)
    path = tmp_path / "d.yaml"
    (warning,) = check([path], "north").warnings
    assert "the relation pair local to north, where these events count as entered" == warning.expected
    assert () == check([path], "south").warnings
