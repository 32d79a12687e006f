"""Foraging nodes: who asks when, who answers whom, what is passed on, what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.errors import Fault, Mark
from nearcast.foraging.forager import ForagingNode, ForagingSettings
from nearcast.foraging.foraging_rules import ForagingRule, remote
from nearcast.foraging.message_filter import (
    AdmissionControl,
    MessageBounds,
    MessageFilter,
    MessageRates,
    MessageVerdict,
)
from nearcast.foraging.requestor import AdaptiveInterval, NeighbourhoodChange
from nearcast.language.cql2 import parse
from nearcast.model.event import Place
from nearcast.model.filter import Atom, Operator
from nearcast.model.foraging import Message, MessageId, Request, Response

HERE = Place("planar", 0.0, 0.0)
USUAL_SETTINGS = ForagingSettings()
DRY = Atom("Humidity", Operator.LT, 10)


def at(x: float) -> Place:
    return Place("planar", x, 0.0)


def fire(threshold: float = 0.0, when: str = "Temperature > 80 AND Humidity < 10") -> ForagingRule:
    return ForagingRule("fire", "Fire", parse(when, Mark("rule")), within=100.0, valid=10.0, threshold=threshold)


def warm(temperature: float = 90, threshold: float = 0.0, manner: ForagingSettings = USUAL_SETTINGS) -> ForagingNode:
    """The paper's node N1: it measures temperature, here above 80."""
    node = ForagingNode("N1", [fire(threshold)], ["Temperature"], manner)
    node.measure([("Temperature", temperature)], HERE, 0.0)
    return node


def humid(value: float = 5, manner: ForagingSettings = USUAL_SETTINGS) -> ForagingNode:
    node = ForagingNode("N2", measured=["Humidity"], manner=manner)
    node.measure([("Humidity", value)], at(30), 0.0)
    return node


def request(number: int = 1, origin: str = "N1", **changes: object) -> Request:
    return replace(Request(MessageId(origin, number), HERE, 100.0, 0.0, 10.0, (DRY,)), **changes)  # type: ignore[arg-type]


def response(number: int = 1, value: float = 5, **changes: object) -> Response:
    whole = Response(MessageId("N2", number), "N2", at(30), 100.0, 0.0, 1.0, (("Humidity", value),))
    return replace(whole, **changes)  # type: ignore[arg-type]


def test_a_node_asks_for_what_it_cannot_measure() -> None:
    """The paper's example: of temperature and humidity, N1 measures one and asks for the other."""
    assert [request()] == warm().ask(HERE, 0.0)


def test_it_asks_again_every_temporal_validity() -> None:
    """And not before."""
    node = warm()
    assert [1, 0, 0, 1, 0] == [len(node.ask(HERE, now)) for now in (0.0, 3.0, 9.9, 10.0, 19.0)]


def test_a_request_that_a_reading_satisfies_is_answered_and_the_situation_begins() -> None:
    """Humidity 5 is told as far as it was asked for, and with temperature 90 there is fire."""
    asking, answering = warm(), humid()
    [asked] = asking.ask(HERE, 0.0)
    assert [asked] == answering.hear(asked, "N1", at(30), 0.0)
    [answered] = answering.respond(at(30), 0.0)
    assert response() == answered
    assert [answered] == asking.hear(answered, "N2", HERE, 0.0)
    assert [("fire", "begin")] == [(one.rule, one.phase) for one in asking.changes(HERE, 0.0)]
    assert [("fire", "end")] == [(one.rule, one.phase) for one in asking.changes(HERE, 1.0)]


def test_a_situation_tells_from_which_values_it_follows() -> None:
    """Whose they are, and when they were measured."""
    node = warm()
    node.hear(response(), "N2", HERE, 0.0)
    [begun] = node.changes(HERE, 0.0)
    found = {(name, known.value, known.provider, known.time) for name, known in begun.readings}
    assert {("Temperature", 90, "N1", 0.0), ("Humidity", 5, "N2", 0.0)} == found


@pytest.mark.parametrize("humidity, truth", [(5, True), (50, False)])
def test_a_rule_without_a_value_is_unknown_not_false(humidity: float, truth: bool) -> None:
    """It is false only when a value says so."""
    node = warm()
    assert {"fire": None} == node.requestor.truths(HERE, 0.0)
    node.hear(response(value=humidity), "N2", HERE, 0.0)
    assert {"fire": truth} == node.requestor.truths(HERE, 0.0)
    assert {"fire": None} == node.requestor.truths(HERE, 1.0)


def test_a_value_does_not_count_out_of_its_reach() -> None:
    """A requestor that has gone away cannot use what was measured far behind it."""
    node = warm()
    node.hear(response(), "N2", HERE, 0.0)
    assert [True, None] == [node.requestor.truths(at(x), 0.5)["fire"] for x in (-60.0, -80.0)]


def test_a_reading_that_nobody_asked_for_stays_untold() -> None:
    """Neither one that satisfies no filter, nor one whose filter has lapsed."""
    node = humid(value=50)
    node.hear(request(), "N1", at(30), 0.0)
    assert [] == node.respond(at(30), 0.0)
    node.measure([("Humidity", 5)], at(30), 10.0)
    assert [] == node.respond(at(30), 10.0)


def test_a_response_reaches_as_far_as_the_farthest_of_those_who_asked() -> None:
    """Definition 2: the maximum of the spatial validities."""
    node = humid()
    node.hear(request(1, within=50.0), "N1", at(30), 0.0)
    node.hear(request(2, within=80.0, conditions=(Atom("Humidity", Operator.LE, 5),)), "N1", at(30), 0.0)
    assert [80.0] == [one.within for one in node.respond(at(30), 0.0)]


def test_a_polled_provider_answers_each_request_at_once_and_keeps_nothing() -> None:
    """The comparison scheme: stateless."""
    node = humid(manner=ForagingSettings(polled=True))
    heard = [node.hear(request(number), "N1", at(30), 0.0) for number in (1, 2)]
    assert [[Request, Response]] * 2 == [[type(one) for one in messages] for messages in heard]
    assert [] == node.respond(at(30), 0.0)


def test_a_sensor_that_seldom_reports_answers_a_new_request_at_once() -> None:
    """But the same request again, later, only with its next reading."""
    node = humid(manner=ForagingSettings(fresh=60.0, at_once=True))
    heard = [node.hear(request(number), "N1", at(30), now) for number, now in ((1, 0.0), (2, 5.0))]
    assert [[Request, Response], [Request]] == [[type(one) for one in messages] for messages in heard]


def test_readings_of_many_classes_are_told_in_several_responses() -> None:
    """None of them is more than a message carries."""
    names = [f"c{number}" for number in range(150)]
    node = ForagingNode("N2", measured=names)
    node.measure([(name, 5) for name in names], HERE, 0.0)
    for number in range(0, 150, 50):
        asked = tuple(Atom(name, Operator.LT, 10) for name in names[number : number + 50])
        node.hear(request(number, conditions=asked), "N1", HERE, 0.0)
    told = node.respond(HERE, 0.0)
    assert [64, 64, 22] == [len(one.values) for one in told]
    assert names == [name for one in told for name, _ in one.values]


def test_lazy_requests_wait_until_what_the_node_sees_is_near_enough_to_firing() -> None:
    """With one local condition there is all or nothing."""
    assert [0, 1] == [len(warm(temperature, threshold=0.66).ask(HERE, 0.0)) for temperature in (70, 90)]


@pytest.mark.parametrize("threshold, asked", [(0.0, 1), (0.5, 1), (0.66, 0), (1.0, 0)])
def test_a_threshold_is_compared_with_the_share_of_satisfied_local_conditions(threshold: float, asked: int) -> None:
    """One of two local ones holds: a level of a half."""
    rule = fire(threshold, "Temperature > 80 AND Smoke = true AND Humidity < 10")
    node = ForagingNode("N1", [rule], ["Temperature", "Smoke"])
    node.measure([("Temperature", 90), ("Smoke", False)], HERE, 0.0)
    assert asked == len(node.ask(HERE, 0.0))


@pytest.mark.parametrize(
    "when, asked",
    [
        ("a > 1 AND b = 'x'", ["a > 1", "b = x"]),
        ("NOT a > 1", ["a <= 1"]),
        ("NOT (a > 1 OR b = 2)", ["a <= 1", "b < 2", "b > 2"]),
        ("a <> true", ["a = False"]),
        ("a BETWEEN 1 AND 2 OR a IN (7, 9)", ["a >= 1", "a <= 2", "a = 7", "a = 9"]),
        ("a > 1 OR a > 1", ["a > 1"]),
    ],
)
def test_conditions_of_any_form_become_atomic_requests(when: str, asked: list[str]) -> None:
    """Whatever value could make them true is asked for."""
    found = remote(fire(when=when), frozenset())
    assert asked == [f"{atom.name} {atom.operator} {atom.value}" for atom in found]


@pytest.mark.parametrize("when", ["a LIKE 'x%'", "a IS NULL", "NOT a IN (1, 2)", "distance(user('u'), this) < 5"])
def test_a_condition_that_no_request_can_carry_is_a_fault(when: str) -> None:
    """It says which, and what can be asked for."""
    with pytest.raises(Fault, match="conditions that a request can carry"):
        remote(fire(when=when), frozenset())


def test_what_is_above_a_class_is_served_by_it() -> None:
    """A request for Gas is answered by a sensor of GasA, and the rule understands."""

    def above(name: str) -> tuple[str, ...]:
        return (name, "Gas") if name.startswith("Gas") else (name,)

    asking = ForagingNode("N1", [fire(when="Gas > 40")], above=above)
    answering = ForagingNode("N2", measured=["GasA"], above=above)
    answering.measure([("GasA", 50)], HERE, 0.0)
    for message in asking.ask(HERE, 0.0):
        answering.hear(message, "N1", HERE, 0.0)
    for message in answering.respond(HERE, 0.0):
        asking.hear(message, "N2", HERE, 0.0)
    assert {"fire": True} == asking.requestor.truths(HERE, 0.0)


@pytest.mark.parametrize(
    "verdict, message, now",
    [
        (MessageVerdict.TAKEN, request(), 0.0),
        (MessageVerdict.OWN, request(origin="N9"), 0.0),
        (MessageVerdict.STALE, request(), 70.0),
        (MessageVerdict.EARLY, request(time=61.0), 0.0),
        (MessageVerdict.AWAY, request(place=at(101)), 0.0),
        (MessageVerdict.AWAY, request(place=Place("geographic", 0.0, 0.0)), 0.0),
        (MessageVerdict.AWAY, request(place=at(float("nan"))), 0.0),
        (MessageVerdict.EXCESSIVE, request(within=1e9), 0.0),
        (MessageVerdict.EXCESSIVE, request(within=float("nan")), 0.0),
        (MessageVerdict.EXCESSIVE, request(valid=1e9), 0.0),
        (MessageVerdict.EXCESSIVE, request(valid=-1.0), 0.0),
    ],
)
def test_what_is_wrong_with_a_message_is_told_and_counted(
    verdict: MessageVerdict, message: Message, now: float
) -> None:
    """Clocks, places, reaches: nothing of it is passed on."""
    message_filter = MessageFilter("N9")
    assert (verdict is MessageVerdict.TAKEN) == message_filter.accepts(message, "N1", HERE, now)
    assert {verdict: 1} == message_filter.counts


@pytest.mark.parametrize("later", [0.0, 5.0, 69.0, 71.0, 1e6])
def test_a_replay_is_refused_whenever_it_comes(later: float) -> None:
    """While its id is remembered as a duplicate, then because it is too old: there is no moment between."""
    message_filter = MessageFilter("N9")
    assert message_filter.accepts(request(time=50.0), "N1", HERE, 0.0)
    message_filter.forget(later)
    assert not message_filter.accepts(request(time=50.0), "N1", HERE, later)


@settings(deadline=None)
@given(st.floats(-60, 60), st.floats(0.1, 100), st.floats(0, 500))
def test_no_skew_of_clocks_opens_a_gap_for_replays(skew: float, valid: float, later: float) -> None:
    """What was taken once is never taken again, wrong as its clock may be."""
    message_filter = MessageFilter("N9")
    message = request(time=skew, valid=valid)
    taken = message_filter.accepts(message, "N1", HERE, 0.0)
    message_filter.forget(later)
    assert not (taken and message_filter.accepts(message, "N1", HERE, later))


def test_a_node_that_floods_does_not_starve_another_behind_the_same_relay() -> None:
    """An honest relay passes on both; each origin has its own share."""
    admission = AdmissionControl(MessageRates(neighbour=100, neighbour_burst=100, origin=1, origin_burst=5))
    flood = [admission.admits("relay", "flooder", 0.0) for _ in range(500)]
    assert 5 == sum(flood)
    assert admission.admits("relay", "honest", 0.0)
    assert [True, False] == [admission.admits("relay", "flooder", 1.0) for _ in range(2)]


def test_invented_names_do_not_help_a_flooder() -> None:
    """Its neighbours bound what comes from it under any name, and others are served."""
    admission = AdmissionControl(MessageRates(neighbour=10, neighbour_burst=20, origin=5, origin_burst=5))
    assert 20 == sum(admission.admits("flooder", f"name {number}", 0.0) for number in range(20_000))
    assert admission.admits("honest", "honest", 0.0)


def test_a_full_memory_of_ids_refuses_rather_than_forgets() -> None:
    """Forgetting would let messages go round; another neighbour has a share of its own."""
    message_filter = MessageFilter("N9", MessageBounds(remembered=6))
    assert 3 == sum(message_filter.accepts(request(number), "N1", HERE, 0.0) for number in range(5))
    assert 2 == message_filter.counts[MessageVerdict.FLOODING] == message_filter.shares.refused
    assert message_filter.accepts(request(6), "N2", HERE, 0.0)
    assert message_filter.accepts(request(7, time=500.0), "N1", HERE, 500.0)


def test_requests_follow_the_neighbourhood() -> None:
    """The faster it changes the sooner they come, and the later where it stands still."""
    adapting = AdaptiveInterval(share=0.5, least=0.25, most=4.0, window=5.0)
    still, moving = NeighbourhoodChange(adapting), NeighbourhoodChange(adapting)
    for now in range(30):
        for number in range(4):
            still.heard(f"n{number}", now)
            moving.heard(f"n{number + now // 5 * 2}", now)
    assert 40.0 == still.interval(10.0, 30.0)
    assert 2.5 <= moving.interval(10.0, 30.0) < 10.0


def test_without_knowledge_of_neighbours_the_rules_own_interval_counts() -> None:
    """As at the start, and where nobody speaks."""
    assert 10.0 == NeighbourhoodChange(AdaptiveInterval()).interval(10.0, 100.0)


def test_a_relay_that_keeps_responses_answers_for_a_provider_out_of_reach() -> None:
    """As long as it keeps them, with the time and place at which they were measured."""
    relay = ForagingNode("R", manner=ForagingSettings(keeps=3.0))
    relay.hear(response(), "N2", HERE, 0.0)
    _, again = relay.hear(request(1, time=2.0), "N1", HERE, 2.0)
    assert response(id=MessageId("R", 1), valid=3.0, age=2.0) == again
    assert 1 == len(relay.hear(request(2, time=4.0), "N1", HERE, 4.0))


def test_what_is_kept_counts_for_a_moment_at_its_hearer() -> None:
    """It was true a while ago: it is not true for long."""
    node = warm(manner=ForagingSettings(fresh=10.0))
    node.hear(response(id=MessageId("R", 1), valid=3.0, age=2.0), "R", HERE, 2.0)
    assert [True, None] == [node.requestor.truths(HERE, now)["fire"] for now in (2.5, 3.0)]


def test_invented_providers_do_not_fill_the_knowledge_base() -> None:
    """New ones wait until there is room; what the node measures itself always has some."""
    node = warm(manner=ForagingSettings(fresh=100.0))
    for number in range(11_000):
        node.learn(response(number, provider=f"n{number}", valid=10.0), 0.0, "noisy")
    # Half of what there is room for, beside what it measures itself; another neighbour is heard.
    assert 10_000 + 1 == len(node.requestor.knowledge)
    node.learn(response(provider="quiet", valid=10.0), 0.0, "another")
    assert 10_000 + 2 == len(node.requestor.knowledge)
    node.measure([("Temperature", 95)], HERE, 1.0)
    node.learn(response(provider="late", time=20.0), 20.0)
    assert {"fire": True} == node.requestor.truths(HERE, 20.0)


WIDER = {"Fire": ("Fire", "Hazard"), "Humidity": ("Humidity", "Weather")}


def wider(name: str) -> tuple[str, ...]:
    """A fire is a hazard, and humidity is weather."""
    return WIDER.get(name, (name,))


def watcher(when: str) -> ForagingNode:
    """A node whose rule stands on what another infers."""
    rule = ForagingRule("alarm", "Alarm", parse(when, Mark("rule")), within=100.0, valid=10.0)
    return ForagingNode(
        "W", [rule], ["Button"], ForagingSettings(fresh=4.0), wider, situations=["Fire", "Hazard", "Alarm"]
    )


def inferring(temperature: float, now: float, node: ForagingNode | None = None) -> ForagingNode:
    """A node that infers fires, and what it measures at a moment."""
    if node is None:
        node = ForagingNode(
            "F", [fire(when="Temperature > 80")], ["Temperature"], ForagingSettings(fresh=4.0, at_once=True), wider
        )
    node.measure([("Temperature", temperature)], at(30), now)
    return node


def asked(watching: ForagingNode, provider: ForagingNode) -> None:
    """Lets a node hear what the other wants."""
    (wanted,) = watching.ask(HERE, 0.0)
    provider.hear(wanted, "W", at(30), 0.0)


def brought(provider: ForagingNode, watching: ForagingNode, now: float) -> list[object]:
    """What a node tells of situations, heard by another."""
    told = provider.conclude(at(30), now)
    for one in told:
        watching.hear(one, "F", HERE, now)
    return [value for one in told for value in one.values]


@pytest.mark.parametrize("when", ["Fire", "Hazard"])
def test_a_situation_that_another_node_infers_is_asked_for_and_told(when: str) -> None:
    """As it begins, to whoever asked for it or for what it is; once, and that it is over when it is."""
    watching, provider = watcher(when), inferring(20, 0.0)
    asked(watching, provider)
    assert [] == brought(provider, watching, 0.0)
    inferring(90, 1.0, provider)
    assert [("Fire", True)] == brought(provider, watching, 1.0)
    assert {"alarm": True} == watching.requestor.truths(HERE, 1.0)
    assert [] == brought(provider, watching, 1.5)
    inferring(20, 2.0, provider)
    assert [("Fire", False)] == brought(provider, watching, 2.0)
    # That there is no fire does not say that there is no hazard.
    assert {"alarm": False if when == "Fire" else None} == watching.requestor.truths(HERE, 2.0)


def test_a_situation_that_goes_on_is_told_again_before_it_is_stale() -> None:
    """And is unknown to those who no longer hear of it."""
    watching, provider = watcher("Fire"), inferring(90, 0.0)
    asked(watching, provider)
    assert [("Fire", True)] == brought(provider, watching, 0.0)
    inferring(90, 2.0, provider)
    assert [("Fire", True)] == brought(provider, watching, 2.0)
    assert {"alarm": True} == watching.requestor.truths(HERE, 5.9)
    assert {"alarm": None} == watching.requestor.truths(HERE, 6.1)


def test_a_situation_of_which_nothing_is_known_any_more_is_taken_back() -> None:
    """What it rested on is stale: it is unknown at once, and not false."""
    watching, provider = watcher("NOT Fire OR Fire"), inferring(90, 0.0)
    asked(watching, provider)
    brought(provider, watching, 3.9)
    assert {"alarm": True} == watching.requestor.truths(HERE, 3.9)
    brought(provider, watching, 4.1)
    assert {"alarm": None} == watching.requestor.truths(HERE, 4.2)
    assert [] == brought(provider, watching, 4.3)


def test_nobody_hears_of_a_situation_that_nobody_asked_for() -> None:
    """Nor outside of the validity of who asked."""
    watching, provider = watcher("Fire"), inferring(90, 0.0)
    assert [] == brought(provider, watching, 0.0)
    asked(watching, provider)
    (told,) = provider.conclude(at(30), 0.0)
    assert 100.0 == told.within
    assert [] == watching.hear(told, "F", at(140), 0.0)
    assert {"alarm": None} == watching.requestor.truths(HERE, 0.0)


def test_a_new_request_for_a_situation_that_is_there_is_answered_at_once() -> None:
    """Also one for the class above what is measured."""
    provider = inferring(90, 0.0)
    provider.conclude(at(30), 0.0)
    (wanted,) = watcher("Hazard").ask(HERE, 0.0)
    _, answer = provider.hear(wanted, "W", at(30), 0.0)
    assert isinstance(answer, Response) and (("Fire", True),) == answer.values
    dry = ForagingNode("N2", measured=["Humidity"], manner=ForagingSettings(at_once=True), above=wider)
    dry.measure([("Humidity", 5)], at(30), 0.0)
    asking = request(conditions=(Atom("Weather", Operator.LT, 10),))
    assert (("Humidity", 5),) == dry.hear(asking, "N1", at(30), 0.0)[1].values  # type: ignore[union-attr]


def test_a_full_knowledge_base_still_hears_of_those_it_knows() -> None:
    """Only new ones wait until there is room: what is known of others is renewed."""
    node = warm(manner=ForagingSettings(fresh=100.0))
    for number in range(10_000):
        node.learn(response(number, provider=f"n{number}", valid=10.0), 0.0)
    node.learn(response(value=50, provider="n7", time=1.0, valid=10.0), 1.0)
    assert [50] == [one.value for _, one in node.requestor.knowledge.known(HERE, 1.0) if one.provider == "n7"]
