"""`me` and `me.NAME`: one subscription for a fleet is the subscriptions written out for each of its clients."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import nearcast
from nearcast.errors import Mark
from nearcast.explain.explanation import ExplanationScene, explain
from nearcast.filters.receiver_terms import asked_of_receiver, for_receiver
from nearcast.language.cloudevents import read_event
from nearcast.language.control_events import changes
from nearcast.language.cql2 import parse, parse_node, write, write_json
from nearcast.language.definitions import files
from nearcast.language.nodes import from_data
from nearcast.model.columns import to_table
from nearcast.model.filter import ME, Atom, Distance
from nearcast.stages.decide import decide
from nearcast.stages.fold import StateFold
from nearcast.state.registry import Registry
from nearcast.suppression.interest_index import may_select

HERE = Mark("f")

FILTERS = (
    "distance(me, this) <= me.radius AND type = 'bus'",
    "type = 'bus' AND (n >= me.least OR NOT distance(me, this) < me.radius)",
    "me.least * 2 > n AND count(uform(type = 'bus'), me, 60) >= me.least",
    "distance(this, me) BETWEEN me.least AND 100 OR me.radius = n",
    "NOT (n > me.least)",
)

CLIENTS = ("a", "b", "c")

step = st.one_of(
    st.tuples(st.just("bus"), st.sampled_from([0, 40, 90]), st.integers(0, 3)),
    st.tuples(st.just("reads"), st.sampled_from(CLIENTS), st.sampled_from(["radius", "least"]), st.integers(0, 100)),
    st.tuples(st.just("moves"), st.sampled_from(CLIENTS), st.sampled_from([0, 50, 100])),
    st.tuples(st.just("goes"), st.sampled_from(CLIENTS)),
    st.tuples(st.just("lapses"), st.sampled_from(CLIENTS), st.sampled_from(["radius", "least"])),
)


def control(number: int, type_: str, data: dict[str, Any]) -> dict[str, Any]:
    """A control event."""
    return {"specversion": "1.0", "id": f"c{number}", "type": f"nearcast.{type_}", "source": "t", "data": data}


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(FILTERS), st.lists(step, max_size=14))
def test_it_is_the_subscriptions_of_each_client_written_out(filter: str, steps: list[Any]) -> None:
    """Also while readings change, clients move, go and come; a reading that is not known selects nothing."""
    clients = [{"id": id, "position": {"x": 0, "y": 0}} for id in CLIENTS]
    known: dict[str, dict[str, float]] = {id: {} for id in CLIENTS}
    together: list[dict[str, Any]] = []
    apart: list[dict[str, Any]] = []

    def written_out(client: str) -> dict[str, Any]:
        text = write(for_receiver(parse(filter, HERE), client, known[client]))
        return {"id": client, "client": client, "filter": text}

    at_first = [written_out(id) for id in CLIENTS]
    for number, (kind, *told) in enumerate(steps):
        if kind == "bus":
            x, n = told
            event = {"specversion": "1.0", "id": str(number), "type": "bus", "source": "s", "subject": str(n)}
            event["data"] = {"x": x, "y": 0, "n": n}
            together.append(event)
            apart.append(event)
            continue
        client = told[0]
        change: dict[str, Any] = {"client": client}
        if kind == "reads":
            known[client] = {**known[client], told[1]: float(told[2])}
            change["readings"] = {told[1]: told[2]}
        elif kind == "lapses":
            known[client].pop(told[1], None)
            # Their times are not known, for nothing says that they are valid for a time.
            change["lapsed"] = {told[1]: "1970-01-01T00:00:00Z"}
        elif kind == "moves":
            change["position"] = {"x": told[1], "y": 0}
        else:
            known[client] = {}
        told_change = control(2 * number, "client.removed" if kind == "goes" else "client", change)
        # Of both as many events, so that positions are the same.
        nothing = control(2 * number + 1, "client", {"client": "other"})
        together += [told_change, nothing]
        apart += [told_change, control(2 * number + 1, "subscription", written_out(client))]
    one = {"id": "s", "clients": list(CLIENTS), "filter": filter}
    expected = nearcast.replay(apart, {"clients": clients, "subscriptions": at_first})
    found = nearcast.replay(together, {"clients": clients, "subscriptions": [one]})
    assert [{**each, "subscription": "s"} for each in expected] == found


@pytest.mark.parametrize("filter", FILTERS)
def test_it_is_written_and_read_again(filter: str) -> None:
    """As text and as JSON; what it is about is known."""
    read = parse(filter, HERE)
    assert read == parse(write(read), HERE)
    assert read == parse_node(from_data(write_json(read), HERE))
    about, readings = asked_of_receiver(read)
    assert about
    assert readings <= {"radius", "least"}
    assert not asked_of_receiver(for_receiver(read, "a", {"radius": 5.0, "least": 1.0}))[0]


def test_what_is_about_the_event_alone_is_one_condition_for_all() -> None:
    """It is evaluated once; a number in place of a reading makes a plain atom."""
    read = parse("type = 'bus' AND distance(me, this) <= me.radius AND n >= me.least", HERE)
    a, b = (for_receiver(read, id, {"radius": 5.0, "least": 1.0}) for id in ("a", "b"))
    assert parse("type = 'bus' AND distance(user('a'), this) <= 5 AND n >= 1", HERE) == a
    assert [True, False, True] == [one == other for one, other in zip(a.children, b.children, strict=True)]  # type: ignore[union-attr]


def test_whether_somebody_may_want_an_event_is_open() -> None:
    """What is about the receiver may be so for somebody; what is about the event alone is as it is."""
    event = read_event({"specversion": "1.0", "id": "1", "type": "bus", "source": "s", "data": {"n": 1}}, HERE)
    for filter, wanted in (("distance(me, this) < me.radius", True), ("n > me.least", True)):
        assert wanted == may_select(parse(filter, HERE), event)
        assert not may_select(parse(f"type = 'car' AND {filter}", HERE), event)


def test_it_is_explained_for_each_client() -> None:
    """With its own place and numbers."""
    clients = [{"id": id, "position": {"x": x, "y": 0}, "readings": {"radius": 50}} for id, x in (("a", 0), ("b", 90))]
    definitions = {"clients": clients, "subscriptions": [{"id": "s", "clients": ["a", "b"], "filter": NEAR}]}
    registry = Registry()
    for change in files.load([definitions]).changes():
        registry.apply(change)
    event = read_event({"specversion": "1.0", "id": "1", "type": "t", "source": "s", "data": {"x": 10, "y": 0}}, HERE)
    scene = ExplanationScene(registry, [], event)
    found = {name: explain(scene, name).subscriptions[0] for name in ("a", "b")}
    assert (2, None) == (found["a"].level, found["b"].level)
    assert ((10.0,), (80.0,)) == (found["a"].atoms[0].values, found["b"].atoms[0].values)
    assert "distance(user('b'), this) <= 50" == write(found["b"].atoms[0].atom)


NEAR = "distance(me, this) <= me.radius"


def test_it_is_no_warning() -> None:
    """Its receivers say what its numbers are."""
    clients = [{"id": "a", "position": {"x": 0, "y": 0}, "readings": {"radius": 50}}]
    subscription = {"id": "s", "client": "a", "filter": f"{NEAR} AND NOT distance(me, this) > 5"}
    found = files.load([{"clients": clients, "subscriptions": [subscription]}])
    assert () == found.warnings
    [atom, _] = found.subscriptions[0].filter.children  # type: ignore[union-attr]
    assert isinstance(atom, Atom)
    assert isinstance(atom.name, Distance)
    assert ME == atom.name.a


def test_workers_decide_the_same() -> None:
    """What they get of a batch has the filters written out, with the windows in which they hold."""
    clients = [{"id": id, "position": {"x": 0, "y": 0}, "readings": {"radius": 50}} for id in CLIENTS]
    registry = Registry()
    subscription = {"id": "s", "clients": list(CLIENTS), "filter": NEAR}
    for change in files.load([{"clients": clients, "subscriptions": [subscription]}]).changes():
        registry.apply(change)
    reads = control(1, "client", {"client": "b", "readings": {"radius": 5}})
    buses = [
        {"specversion": "1.0", "id": f"e{n}", "type": "t", "source": "s", "data": {"x": 10, "y": 0}} for n in (1, 2)
    ]
    read = [read_event(one, HERE) for one in (buses[0], reads, buses[1])]
    table = to_table([replace(one, position=number) for number, one in enumerate(read, 1)])
    [batch] = StateFold(registry).fold(table, changes)
    there = pickle.loads(pickle.dumps(batch.without_events()))
    found = decide(there, batch.events).to_pylist()
    assert decide(batch, batch.events).to_pylist() == found
    assert [(1, "a"), (1, "b"), (1, "c"), (3, "a"), (3, "c")] == [(one["position"], one["client"]) for one in found]
