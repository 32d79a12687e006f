"""Clocks that differ: how old a reading is says the provider, by its own."""

from __future__ import annotations

from collections import Counter

import pytest

from nearcast.errors import Mark
from nearcast.foraging.forager import ForagingNode, ForagingSettings
from nearcast.foraging.foraging_rules import ForagingRule
from nearcast.language.cql2 import parse
from nearcast.model.event import Place
from nearcast.model.foraging import MessageId, Response

HERE = Place("planar", 0.0, 0.0)
FIRE = ForagingRule("fire", "Fire", parse("Temperature > 80 AND Humidity < 10", Mark("rule")), 100.0, 10.0)
MANNER = ForagingSettings(fresh=5.0, at_once=True)


@pytest.mark.parametrize("behind", [0.0, 4.0, 4.9, 5.0, 10.0, 59.0, -30.0, -59.0])
def test_a_clock_that_differs_by_less_than_is_allowed_changes_nothing(behind: float) -> None:
    """A steady fire, told every second for ten, begins once and ends once: when nothing is heard any more."""
    kitchen = ForagingNode("kitchen", [FIRE], ["Temperature"], MANNER)
    hall = ForagingNode("hall", measured=["Humidity"], manner=MANNER)
    phases = []
    for step in range(100):
        now = 1_000.0 + step / 5
        kitchen.measure([("Temperature", 90)], HERE, now)
        for message in kitchen.ask(HERE, now):
            hall.hear(message, "k", HERE, now - behind)
        if step % 5 == 0 and step < 50:
            hall.measure([("Humidity", 5)], HERE, now - behind)
            for message in hall.respond(HERE, now - behind):
                kitchen.hear(message, "h", HERE, now)
        phases += [(change.phase, now) for change in kitchen.changes(HERE, now)]
    assert [("begin", 1_000.0), ("end", 1_014.0)] == phases
    assert ["taken"] == list(map(str, kitchen.message_filter.counts))


@pytest.mark.parametrize("skew", [0.0, 40.0, -40.0])
def test_what_was_read_a_while_ago_counts_that_much_less(skew: float) -> None:
    """A new request is answered at once, by readings each of which is as old as it is."""
    asking = ForagingNode("N1", [FIRE], (), MANNER)
    answering = ForagingNode("N2", measured=["Temperature", "Humidity"], manner=MANNER)
    answering.measure([("Humidity", 5)], HERE, 100.0 + skew)
    answering.measure([("Temperature", 90)], HERE, 103.0 + skew)
    (asked,) = asking.ask(HERE, 104.0)
    _, *answers = answering.hear(asked, "N1", HERE, 104.0 + skew)
    found = [(one.values, one.age, one.time - skew) for one in answers if isinstance(one, Response)]
    assert [((("Humidity", 5),), 4.0, 100.0), ((("Temperature", 90),), 1.0, 103.0)] == sorted(found)
    for one in answers:
        asking.hear(one, "N2", HERE, 104.0)
    assert [True, None] == [asking.requestor.truths(HERE, now)["fire"] for now in (104.9, 105.0)]
    ages = {name: 104.5 - known.time for name, known in asking.requestor.knowledge.known(HERE, 104.5)}
    assert {"Humidity": 4.5, "Temperature": 1.5} == ages


def test_what_a_relay_kept_is_as_old_as_it_was_and_as_long_as_it_was_kept() -> None:
    """Though three clocks differ; and what the provider itself said since is newer."""
    relay = ForagingNode("R", manner=ForagingSettings(keeps=5.0))
    first = Response(MessageId("N2", 1), "N2", HERE, 100.0, 1_030.0, 5.0, (("Humidity", 5),), age=1.0)
    relay.hear(first, "N2", HERE, 1_000.0)
    asking = ForagingNode("N1", [FIRE], (), MANNER)
    (asked,) = asking.ask(HERE, 980.0)
    _, again = relay.hear(asked, "N1", HERE, 1_002.0)
    assert isinstance(again, Response) and (3.0, 8.0, 1_030.0) == (again.age, again.valid, again.time)
    asking.hear(Response(MessageId("N2", 2), "N2", HERE, 100.0, 1_032.0, 5.0, (("Humidity", 50),)), "N2", HERE, 981.0)
    asking.hear(again, "R", HERE, 982.0)
    assert [50] == [known.value for _, known in asking.requestor.knowledge.known(HERE, 982.0)]


def test_of_a_node_that_does_not_say_an_age_the_time_is_what_there_is() -> None:
    """As before: readings that never count are counted."""
    kitchen = ForagingNode("kitchen", [FIRE], ["Temperature"], MANNER)
    for number, behind in enumerate((0.0, 4.0, 10.0, -30.0)):
        values = (("Humidity", 5),)
        old = Response(MessageId("o", number), f"o{number}", HERE, 100.0, 1_000.0 - behind, 5.0, values, age=None)
        kitchen.hear(old, "o", HERE, 1_000.0)
    ages = Counter(1_000.0 - known.time for _, known in kitchen.requestor.knowledge.known(HERE, 1_000.0))
    assert ({0.0: 2, 4.0: 1}, 1) == (ages, kitchen.requestor.knowledge.outdated)
