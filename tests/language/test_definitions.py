"""Definition files in YAML, and the documents they are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import settings as limits

from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.language.cql2 import parse
from nearcast.language.definitions.client_documents import client_data, client_document
from nearcast.language.definitions.files import DefinitionSet, load
from nearcast.language.definitions.settings_documents import FIELDS, read_settings, settings_data
from nearcast.language.definitions.subscription_documents import subscription_data, subscription_document
from nearcast.language.nodes import DocumentReader, from_data, from_yaml
from nearcast.model.changes import ClientChange, SettingsChange, SubscriptionChange
from nearcast.model.context import Awareness, ContextSpace
from nearcast.model.event import Place
from nearcast.model.filter import Atom, Filter, Not, Operator, Or, PlainNot
from nearcast.model.subscription import Channel, ClientProfile, Roles, Settings, Subscription
from nearcast.state.registry import changed
from tests.language.printed import listing, marked
from tests.language.strategies import client_changes, clients, settings, subscriptions

HERE = Mark("here")

# The forms that nearcast promises to keep.
PROMISED = """\
awareness: {bandwidth: {maximum: 3750}}                                     # kbit/s
roles: roles.xml
channels: {ops: {coordinates: planar, types: [unit, chat, document]}}     # or coordinates: geographic
clients:
  - {id: a, role: team leader, task: defense, readings: {bandwidth: 3750}, position: {x: 0, y: 0}}
subscriptions:
  - {id: flatscape, clients: [a], filter: subscription.xml}                # relevance from role and task
  - {id: near, client: a, filter: "type = 'unit' AND distance(user('a'), this) <= 150", relevance: [1, 0.5]}
  - id: tree
    client: a
    filter: {any: [{when: "type = 'chat'", relevance: 0.3}, {all: ["type = 'unit'", {any: [{when: "affiliation = 'H'", relevance: 1}, {not: "size > 100"}]}]}]}
"""  # noqa: E501


def defined(text: str, folder: Path) -> DefinitionSet:
    """The definitions of a file with this text."""
    path = folder / "d.yaml"
    path.write_text(text, encoding="utf-8")
    return load([path])


def faults(text: str, folder: Path) -> list[Fault]:
    """The faults of a file with this text."""
    with pytest.raises(DefinitionError) as caught:
        defined(text, folder)
    return caught.value.faults


def subscribed(written: str, folder: Path) -> Subscription:
    """The subscription `s` of client `a` whose remaining fields are written so."""
    return defined(f"clients: [{{id: a}}]\nsubscriptions: [{{id: s, client: a, {written}}}]", folder).subscriptions[0]


def meant(text: str) -> Filter:
    """The filter that a CQL2 text means."""
    return parse(text, HERE)


@pytest.mark.data
def test_the_promised_forms(tmp_path: Path) -> None:
    """The promised forms load: modules, roles, channels, clients, filters in XML, text and trees."""
    (tmp_path / "roles.xml").write_text(listing("Listing 7-3"), encoding="utf-8")
    (tmp_path / "subscription.xml").write_text(listing("Listing 6-1"), encoding="utf-8")
    found = defined(PROMISED, tmp_path)
    assert ContextSpace((Awareness("bandwidth", (1250, 2500)),)) == found.settings.space
    assert (found.settings.levels, found.settings.matrix) == (3, ((2, 1, 0), (1, 0, 0), (0, 0, 0)))
    assert found.settings.roles.default == ("platoon leader", "offense")
    assert (Channel("ops", "planar", ("unit", "chat", "document")),) == found.settings.channels
    assert (ClientProfile("a", "team leader", "defense", {"bandwidth": 3750}, Place("planar", 0, 0)),) == found.clients
    flatscape, near, tree = found.subscriptions
    assert (flatscape.relevance, flatscape.clients) == (None, ("a",))
    near_filter = meant("type = 'unit' AND distance(user('a'), this) <= 150")
    assert Subscription("near", ("a",), near_filter, (1, 0.5)) == near
    tree_filter = meant("type = 'chat' OR (type = 'unit' AND (affiliation = 'H' OR NOT size > 100))")
    assert Subscription("tree", ("a",), tree_filter, (0.3, 1, 1, 1)) == tree
    assert [warning.came for warning in found.warnings] == ["type = 'time'", "type = 'overlay'"]


@pytest.mark.data
def test_changes_come_in_order(tmp_path: Path) -> None:
    """Settings come before clients, clients before subscriptions."""
    (tmp_path / "roles.xml").write_text(listing("Listing 7-3"), encoding="utf-8")
    (tmp_path / "subscription.xml").write_text(listing("Listing 6-1"), encoding="utf-8")
    kinds = [type(change) for change in defined(PROMISED, tmp_path).changes()]
    assert [SettingsChange, ClientChange, *[SubscriptionChange] * 3] == kinds


@pytest.mark.data
def test_a_vector_of_roles_must_fit_the_xml_filter(tmp_path: Path) -> None:
    """The vectors of a RELEVANCE file are for filters in the thesis' XML: another length is a fault at the filter."""
    (tmp_path / "roles.xml").write_text(listing("Listing 7-3"), encoding="utf-8")
    (tmp_path / "subscription.xml").write_text(listing("Listing 7-6"), encoding="utf-8")
    found = faults(PROMISED.replace("types: [unit", "types: [chat.message, unit"), tmp_path)
    assert len(found) == 6
    assert found[0].expected == "a relevance of 9 values, one per atom, as role team leader, task offense has them"
    assert (int(found[0].came), found[0].advice) == (8, "none for the atom affiliation = 'N'")


def test_several_files_are_one(tmp_path: Path) -> None:
    """Clients, subscriptions and channels of several files add up; another field may stand in one file only."""
    first, second = tmp_path / "1.yaml", tmp_path / "2.yaml"
    first.write_text("levels: 2\nchannels: {a: {coordinates: planar}}\nclients: [{id: a}]")
    second.write_text("channels: {b: {coordinates: geographic}}\nsubscriptions: [{id: s, client: a, filter: size > 1}]")
    found = load([first, second])
    assert (found.settings.levels, len(found.settings.channels), len(found.clients), len(found.subscriptions)) == (
        2,
        2,
        1,
        1,
    )
    second.write_text("levels: 2")
    with pytest.raises(DefinitionError, match=r"2\.yaml:1:1: expected levels in one file"):
        load([first, second])


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (Settings(2, matrix=((1, 0), (0, 0))), "levels: 2"),
        (Settings(2, matrix=((-1, 0), (1, 0))), "{levels: 2, matrix: [[-1, 0], [1, 0]]}"),
        (Settings(matrix=((-1, -1, 0), (-1, 1, 0), (0, 0, 0))), "matrix: restriction"),
        (
            Settings(2, ContextSpace((Awareness("a", (0.5,)), Awareness("b", (3,))), (0, 0, 1, 0)), ((1, 0), (0, 0))),
            "{levels: 2, awareness: {a: {maximum: 1}, b: {intervals: [3]}}, space: [[0, 0], [1, 0]]}",
        ),
        (
            Settings(roles=Roles({("r", "t"): {"s": (1, 1 / 3)}}, ("r", "t"))),
            "{roles: {r: {t: {s: [1, LOW]}}}, default: {role: r, task: t}}",
        ),
    ],
)
def test_settings(settings: Settings, text: str, tmp_path: Path) -> None:
    """Levels, matrices, spaces, inline roles and their default."""
    assert settings == defined(text, tmp_path).settings


@pytest.mark.parametrize(
    ("relevance", "written"),
    [
        (None, "filter: a = 1 AND b = 2"),
        ((0.5, 0.5), "filter: a = 1 AND b = 2, relevance: 0.5"),
        ((1, 1 / 3), "filter: a = 1 AND b = 2, relevance: [HIGH, LOW]"),
        ((0.2, 0.3), "filter: {when: a = 1 AND b = 2, relevance: [0.2, 0.3]}"),
        ((0.2, 0.2, 1), "filter: {any: [{when: a = 1 AND b = 2, relevance: 0.2}, c = 3]}"),
        ((0.5, 0, 1), "filter: {any: [a = 1, b = 2, c = 3]}, relevance: [0.5, 0, 1]"),
    ],
)
def test_relevance(relevance: tuple[float, ...] | None, written: str, tmp_path: Path) -> None:
    """One value for all atoms, one each, or by leaves; without any the role and task decide."""
    assert relevance == subscribed(written, tmp_path).relevance


def test_both_negations(tmp_path: Path) -> None:
    """`not` is CQL2's negation, `unless` the thesis'."""
    a, b = Atom("a", Operator.EQ, 1), Atom("b", Operator.EQ, 2)
    assert Or((Not(a), PlainNot(b))) == subscribed("filter: {any: [{not: a = 1}, {unless: b = 2}]}", tmp_path).filter


def test_options_of_a_subscription(tmp_path: Path) -> None:
    """Time to live and conflation."""
    found = subscribed("filter: a = 1, ttl: 2.5, conflate: true", tmp_path)
    assert (found.time_to_live, found.conflate) == (2.5, True)


def test_idle_words_of_a_client(tmp_path: Path) -> None:
    """A role without its task, and a reading that no module reads, have a warning."""
    known = "awareness: {bandwidth: {maximum: 1}}\nroles: {r: {t: {}}}"
    first, second = defined(f"{known}\nclients: [{{id: a, role: r, readings: {{bandwith: 1}}}}]", tmp_path).warnings
    assert "a role alone" == first.came
    assert "did you mean bandwidth?" == second.advice


def test_words_stay_words(tmp_path: Path) -> None:
    """N, no, on and yes are texts, not booleans."""
    client = defined("clients: [{id: no, role: N, task: on}]", tmp_path).clients[0]
    assert (client.id, client.role, client.task) == ("no", "N", "on")


@pytest.mark.parametrize(
    ("expected", "advice", "text"),
    [
        ("a field of definitions", "did you mean levels?", "¦levls: 3"),
        ("a field of awareness of b", "did you mean maximum?", "awareness: {b: {¦maxmum: 3}}"),
        ("maximum: a finite number above 0", "", "awareness: {b: {maximum: ¦0}}"),
        ("margin: a number, or one below 100 and %", "", "awareness: {b: {maximum: 3, margin: ¦100 %}}"),
        ("a margin of at most 1, the lowest bound", "readings are never", "awareness: {b: {maximum: 3, margin: ¦2}}"),
        ("for: a number and one of ms", "", "awareness: {b: {maximum: 3, for: ¦soon}}"),
        ("valid: a number and one of ms", "", "awareness: {b: {maximum: 3, valid: ¦long}}"),
        (
            "a validity of at least 3 s, as `for` has",
            "a reading that holds for less",
            "awareness: {b: {maximum: 3, for: 3 s, valid: ¦2 s}}",
        ),
        ("the time of a reading", "", "clients: [{id: a, lapsed: {b: ¦12}}]"),
        ("upper bounds that rise", "", "awareness: {b: {intervals: ¦[3, 2]}}"),
        ("2 upper bounds for 3 classes", "", "awareness: {b: {intervals: ¦[3]}}"),
        ("a matrix of 3 rows of 3 priorities", "", "matrix: ¦[[0]]"),
        ("rows that never get less urgent", "", "matrix: ¦[[0, 1, 2], [0, 0, 0], [0, 0, 0]]"),
        ("a space of awareness modules", "define awareness beside it", "space: ¦[0, 1, 2]"),
        ("levels: an integer from 1 to 100", "", "levels: ¦0"),
        (
            "types of events that tell of the world",
            "",
            "channels: {c: {coordinates: planar, types: ¦[nearcast.client]}}",
        ),
        ("planar or geographic", "", "channels: {c: {coordinates: ¦round}}"),
        ("a relevance in [0, 1] for atom 2 of s", "", "roles:\n  {r: {t: {s: [1, ¦1.5]}}}"),
        ("a defined role", "did you mean leader?", "roles: {leader: {t: {}}}\nclients: [{id: a, role: ¦ledaer}]"),
        ("the reading b: a finite number, 0 or more", "", "clients: [{id: a, readings: {b: ¦-1}}]"),
        ("the reading b: a finite number, 0 or more", "", "clients: [{id: a, readings: {b: ¦.nan}}]"),
        ("a longitude from -180 to 180", "are lon", "clients: [{id: a, position: ¦{lon: 200, lat: 0}}]"),
        ("y in a position", "", "clients: [{id: a, position: ¦{x: 1}}]"),
        ("each client once", "it is already at", "clients: [{id: a}, {id: b}, {id: ¦a}]"),
        ("client or clients in a subscription", "", "subscriptions: [¦{id: s, filter: a = 1}]"),
        (
            "a defined client",
            "did you mean an?",
            "clients: [{id: an}]\nsubscriptions: [{id: s, client: ¦ann, filter: a}]",
        ),
        ("each key once", "it is already in line 1", "levels: 3\n¦levels: 3"),
        ("YAML", "", "clients: ¦]"),
    ],
)
def test_faults_have_places(expected: str, advice: str, text: str, tmp_path: Path) -> None:
    """What is wrong in a definition file is told with line, column and advice."""
    text, line, column = marked(text)
    (fault,) = (one for one in faults(text, tmp_path) if one.expected.startswith(expected))
    assert Mark(str(tmp_path / "d.yaml"), line, column) == fault.where
    assert fault.advice.startswith(advice)


@pytest.mark.parametrize(
    "written",
    [
        '"a = 1 ¦= 2"',
        "a = 1 ¦= 2",
        "|\n    size >¦> 3",
        "|-\n    a = 1 AND\n    size > ¦> 3",
        ">\n    a = 1 AND\n    size > ¦> 3",
        "'a = ''x'' AND b = ''y'' ¦> 3'",
        "a = 1 AND\n    b = 2 ¦= 3",
        '"\\"a\\" = 1\n    AND b = 2 ¦= 3"',
        '{any: [{not: "x = 1 ¦= 3"}]}',
    ],
)
def test_faults_within_filters(written: str, tmp_path: Path) -> None:
    """A fault within a filter has its place in the file, however YAML lets the text be written."""
    text, line, column = marked(f"clients: [{{id: a}}]\nsubscriptions:\n- id: s\n  client: a\n  filter: {written}\n")
    (fault,) = faults(text, tmp_path)
    assert Mark(str(tmp_path / "d.yaml"), line, column) == fault.where


@pytest.mark.parametrize(
    ("expected", "written"),
    [
        ("a relevance of 2 values, one per atom", "filter: a = 1 AND b = 2, relevance: [1]"),
        ("a relevance of 1 value, one per atom", "filter: a = 1, relevance: [1, 1]"),
        ("a relevance in [0, 1] for the atom b = 2", "filter: a = 1 AND b = 2, relevance: [1, 1.1]"),
        ("a relevance in [0, 1] for the atom a = 1", "filter: a = 1, relevance: .nan"),
        ("a relevance in [0, 1] for the atom a = 1", "filter: a = 1, relevance: [true]"),
        ("relevance of the subscription or of its leaves", "filter: {when: a = 1, relevance: 1}, relevance: 1"),
        ("all: at least one filter", "filter: {all: []}"),
        ("one of any, all, not, unless, or when and relevance", "filter: {any: [a = 1], all: [b = 1]}"),
        ("a filter: CQL2 text", "filter: [a = 1]"),
        ("a file that can be read", "filter: missing.xml"),
        ("ttl, in seconds or as in 10 min: a finite number above 0", "filter: a = 1, ttl: -1"),
        ("ttl: more than 0 seconds", "filter: a = 1, ttl: 0 s"),
        ("ttl: a number and one of ms, s, min, h, d, as in 10 s", "filter: a = 1, ttl: 10 minutes"),
        ("ttl: a hundred years at most", "filter: a = 1, ttl: 1.0e+300"),
        ("conflate: true or false", "filter: a = 1, conflate: yes"),
    ],
)
def test_faults_of_subscriptions(expected: str, written: str, tmp_path: Path) -> None:
    """Each way to be wrong is one fault, on the subscription's line."""
    text = f"clients: [{{id: a}}]\nsubscriptions: [{{id: s, client: a, {written}}}]"
    (fault,) = faults(text, tmp_path)
    assert fault.expected.startswith(expected)
    assert fault.where
    assert fault.where.line == 2


def test_every_fault_is_told(tmp_path: Path) -> None:
    """Faults do not hide each other."""
    found = faults(
        "levels: 0\nclients: [{id: a, role: 5}, {}]\nsubscriptions: [{id: s, client: b, filter: a =}]", tmp_path
    )
    assert [fault.where.line for fault in found if fault.where] == [1, 2, 2, 3, 3]


@pytest.mark.parametrize("text", ["[" * 5000, "a: &a [*a]", "? [1]\n: 2", "\x00", "a: b: c", "- x", "x"])
def test_odd_files_are_faults(text: str, tmp_path: Path) -> None:
    """Whatever a file holds, it is told as faults."""
    assert faults(text, tmp_path)


def test_aliases_do_not_explode() -> None:
    """A small text whose aliases stand for an endless document is refused."""
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(DefinitionError, match="aliases that add at most"):
        from_yaml("\n".join(lines), "f")


def test_deep_trees_are_refused(tmp_path: Path) -> None:
    """A tree deeper than the limit is a fault."""
    tree: Any = "a = 1"
    for _ in range(100):
        tree = {"not": tree}
    with pytest.raises(DefinitionError, match="at most 100 deep"):
        subscription_document({"id": "s", "client": "a", "filter": tree}, HERE)


def test_faults_of_a_request_name_their_field() -> None:
    """Where there are no lines, a fault names the field."""
    with pytest.raises(
        DefinitionError, match=r"here: expected readings\.bandwidth: the reading bandwidth: a finite number"
    ):
        client_document({"id": "a", "readings": {"bandwidth": "fast"}}, HERE)


def test_a_request_names_no_files() -> None:
    """A file can be named in a definition file only."""
    with pytest.raises(DefinitionError, match="in a definition file only"):
        subscription_document({"id": "s", "client": "a", "filter": "/etc/passwd.xml"}, HERE)


def through_json(data: Any) -> Any:
    """Data as it comes out of JSON."""
    return orjson.loads(orjson.dumps(data))


@limits(max_examples=50)
@given(subscriptions())
def test_subscriptions_round_trip(subscription: Subscription) -> None:
    """A subscription's document means the same subscription, exactly."""
    assert subscription == subscription_document(through_json(subscription_data(subscription)), HERE)


@limits(max_examples=50)
@given(settings())
def test_settings_round_trip(whole: Settings) -> None:
    """Settings' document means the same settings, exactly."""
    reader = DocumentReader()
    node = from_data(through_json(settings_data(whole)), HERE)
    assert whole == read_settings(reader.fields(node, (), FIELDS, "settings"), reader)
    assert reader.faults == []


@limits(max_examples=50)
@given(client_changes)
def test_client_changes_round_trip(change: ClientChange) -> None:
    """A client's change means the same change, exactly."""
    assert change == client_document(through_json(client_data(change)), HERE)


@limits(max_examples=50)
@given(clients)
def test_clients_round_trip(client: ClientProfile) -> None:
    """A client's document brings the client about."""
    change = client_document(through_json(client_data(client)), HERE)
    assert client == changed(None, change)
