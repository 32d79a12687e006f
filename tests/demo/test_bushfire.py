"""The bushfire afternoon: deterministic, plausible, valid, and a story."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.demo.bushfire import Scenario, StoryStep
from nearcast.errors import Fault, Mark
from nearcast.geo.distance import distance
from nearcast.importers.event_documents import time_of
from nearcast.language.cloudevents import read_event
from nearcast.model.event import Place
from nearcast.model.filter import Filter, atoms
from nearcast.model.subscription import Channel

SEEDS = st.integers(0, 1000)
SCENARIOS = st.builds(Scenario, SEEDS, st.sampled_from([7.0, 30.0, 120.0]), st.sampled_from([2.0, 15.0]))


def place(data: dict[str, float]) -> Place:
    """The place that data or a position tell."""
    return Place("geographic", data["lon"], data["lat"])


def of_type(steps: list[StoryStep], type: str) -> dict[str, list[Any]]:
    """The documents of a type, by entity."""
    found = defaultdict(list)
    for step in steps:
        if step.document.get("type") == type:
            found[step.document["subject"]].append(step.document)
    return found


@settings(max_examples=5, deadline=None)
@given(SEEDS)
def test_deterministic(seed: int) -> None:
    """Equal seeds give equal steps and definitions."""
    one, other = Scenario(seed), Scenario(seed)
    assert list(one.steps()) == list(other.steps())
    assert one.definitions() == other.definitions()


def test_seeds_differ() -> None:
    """Another seed is another afternoon."""
    assert list(Scenario(1).steps()) != list(Scenario(2).steps())


@settings(max_examples=8, deadline=None)
@given(SCENARIOS)
def test_times_ascend_within_the_seconds(scenario: Scenario) -> None:
    """Steps ascend in time, of both clocks, and keep within the seconds asked for."""
    steps = list(scenario.steps())
    assert sorted(step.at for step in steps) == [step.at for step in steps]
    assert 0 <= steps[0].at <= steps[-1].at <= scenario.seconds
    clock = [time_of(step.document) for step in steps if step.document]
    assert sorted(clock) == clock
    assert clock[-1] - scenario.start <= timedelta(hours=4)


@settings(max_examples=8, deadline=None)
@given(SCENARIOS)
def test_alert_levels_step_by_one(scenario: Scenario) -> None:
    """From report to report an alert level changes by one at most, and `rise` says exactly when it rose."""
    for reports in of_type(list(scenario.steps()), "incident").values():
        ranks = [report["data"]["alert_rank"] for report in reports]
        changes = [after - before for before, after in itertools.pairwise(ranks)]
        assert set(changes) <= {-1, 0, 1}
        assert [change > 0 for change in changes] == [report["data"]["rise"] for report in reports[1:]]


@settings(max_examples=6, deadline=None)
@given(SCENARIOS)
def test_plausible_speeds(scenario: Scenario) -> None:
    """By the afternoon's clock no crew or receiver drives faster than 60 km/h and no fire runs faster than 30.

    Fires are known by whole minutes, hence the minute's grace.
    """
    steps = list(scenario.steps())
    limits = {"crew": 60, "nearcast.client": 60, "incident": 30}
    for type, limit in limits.items():
        for documents in of_type(steps, type).values():
            told = [document for document in documents if type != "nearcast.client" or "position" in document["data"]]
            for before, after in itertools.pairwise(told):
                here, there = (document["data"].get("position", document["data"]) for document in (before, after))
                hours = (time_of(after) - time_of(before)).total_seconds() / 3600
                assert (distance(place(here), place(there)) or 0) / 1000 <= limit * (hours + 1 / 60)


@settings(max_examples=6, deadline=None)
@given(SCENARIOS)
def test_valid_events_with_unique_ids(scenario: Scenario) -> None:
    """Every document is an event that nearcast reads, and no source uses an id twice."""
    types = tuple(scenario.definitions()["channels"]["valley"]["types"])
    documents = [step.document for step in scenario.steps() if step.document]
    events = [read_event(document, Mark("test"), [Channel("valley", "geographic", types)]) for document in documents]
    assert {event.type for event in events} <= {*types, "nearcast.client"}
    assert len(events) == len({(event.source, event.id) for event in events})


@pytest.mark.parametrize("rate", [5, 15, 50])
def test_rate(rate: float) -> None:
    """The events of a second are about as many as asked for."""
    events = sum(step.kind == "event" for step in Scenario(1, 120, rate).steps())
    assert rate == pytest.approx(events / 120, rel=0.2)


@pytest.mark.parametrize("wrong", [{"seconds": 0}, {"rate": -1}, {"seconds": float("nan")}, {"crews": -1}])
def test_no_story(wrong: dict[str, Any]) -> None:
    """Arguments that tell no story are refused."""
    with pytest.raises(Fault):
        Scenario(**wrong)


def test_receivers() -> None:
    """By default there are 25 receivers in five roles; the numbers of crews and residents can be chosen."""
    roles = Counter(person.role for person in Scenario().people)
    assert {
        "incident controller": 1,
        "duty officer": 1,
        "sector commander": 3,
        "crew leader": 6,
        "resident": 14,
    } == roles
    assert 5 + 2 + 30 == len(Scenario(crews=2, residents=30).people)


def test_nobody_but_desks() -> None:
    """Without crews and residents the afternoon still happens."""
    steps = list(Scenario(crews=0, residents=0).steps())
    assert {"incident", "weather", "road", "document", "nearcast.client"} >= {
        step.document["type"] for step in steps if step.document
    }


@settings(max_examples=6, deadline=None)
@given(SEEDS)
def test_story(seed: int) -> None:
    """Each afternoon has its turns: Emergency Warnings that end, crews that withdraw, residents who leave."""
    steps = list(Scenario(seed).steps())
    reports = of_type(steps, "incident")
    ranks = {name: [report["data"]["alert_rank"] for report in told] for name, told in reports.items()}
    assert 5 == len(ranks)
    assert {3} == {max(ranks["Cullens Ridge"]), max(ranks["Paddock Road"])}
    assert {1} == {told[0] for told in ranks.values()} == {told[-1] for told in ranks.values()}
    tasks = {step.document["data"].get("task") for step in steps if step.kind == "client"}
    assert {"attack", "withdraw", "patrol", "leaving", "safe", "control", "relieved"} <= tasks


def test_handover() -> None:
    """The controller's link dies; then a sector commander takes its role over."""
    steps = list(Scenario().steps())
    dead = next(step.at for step in steps if step.client == "controller" and step.kind == "link" and not step.bandwidth)
    role = next(step for step in steps if step.document.get("data", {}).get("role"))
    assert ("sector north", "incident controller") == (role.client, role.document["data"]["role"])
    assert dead < role.at


def test_dead_links_are_silent() -> None:
    """Over a dead link no client tells its place or bandwidth; every link that died comes back."""
    link: dict[str, float] = {}
    died = set()
    for step in Scenario(seconds=240).steps():
        if step.kind == "link":
            link[step.client] = step.bandwidth
            died |= {step.client} if not step.bandwidth else set()
        elif step.kind == "client" and {"position", "readings"} & set(step.document["data"]):
            assert link[step.client] > 0
    assert len(died) >= 4
    assert all(link[client] for client in died)


def test_role_vectors_fit(tree: Callable[[Any], Filter]) -> None:
    """Every vector of a role and task has a value for each atom of its subscription."""
    definitions = Scenario().definitions()
    counts = {wish["id"]: len(list(atoms(tree(wish["filter"])))) for wish in definitions["subscriptions"]}
    vectors = [
        (id, len(v)) for tasks in definitions["roles"].values() for task in tasks.values() for id, v in task.items()
    ]
    assert {(id, counts[id]) for id, _ in vectors} == set(vectors)
    assert counts.keys() == {id for id, _ in vectors}


def test_tasks_are_known() -> None:
    """Every role and task that a client has or comes to have has its vectors."""
    scenario = Scenario()
    roles = scenario.definitions()["roles"]
    role = {person.id: person.role for person in scenario.people}
    task = {person.id: person.task for person in scenario.people}
    for step in scenario.steps():
        if step.kind == "client":
            role[step.client] = step.document["data"].get("role", role[step.client])
            task[step.client] = step.document["data"].get("task", task[step.client])
        assert all(task[id] in roles[role[id]] for id in role)


def test_definitions_are_plain_yaml() -> None:
    """The definitions survive a file."""
    definitions = Scenario().definitions()
    assert definitions == yaml.safe_load(yaml.safe_dump(definitions, sort_keys=False))


def test_documents() -> None:
    """An events file of the scenario holds its events and the changes of clients."""
    scenario = Scenario()
    assert [step.document for step in scenario.steps() if step.kind != "link"] == list(scenario.documents())
