"""The values that the thesis and semantics §3 print, counting classes, contexts and priorities from 0."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import pytest

from nearcast.delivery.priority import awareness_class, context_class, priority
from nearcast.errors import Mark
from nearcast.filters.evaluate import NO_CONTEXT, level_of
from nearcast.filters.relevance import classes_of, role_relevance
from nearcast.language.cql2 import parse
from nearcast.language.quantities import relevance_of
from nearcast.language.thesis import read_roles, read_subscription
from nearcast.model.context import Awareness, ContextSpace, delay_matrix, equal_intervals
from nearcast.model.event import Event
from nearcast.model.filter import Filter, atoms
from nearcast.model.subscription import ClientProfile, Settings, Subscription

HERE = Mark("here")
FILES = Path(__file__).parent / "thesis"
MATRIX = delay_matrix(3)
BANDWIDTH = Awareness("bandwidth", equal_intervals(3750, 3))
SETTINGS = Settings(space=ContextSpace((BANDWIDTH,)))

TABLE_4_5 = parse("(unittype = 'infantry' OR unittype = 'armor' OR unittype = 'artillery') AND size <= 100", HERE)
CLASSES_4_5 = (2, 1, 0, 2)
LISTING_6_1 = read_subscription((FILES / "subscription.xml").read_text(), HERE)
LISTING_7_3 = read_roles((FILES / "roles.xml").read_text(), HERE)


def prioritised(classes: Sequence[int], c: int) -> list[set[int]]:
    """The atom sets Φ_p of the N prioritised subscriptions, p = 0 first (eqs. 4-4 and 4-5): each holds those before."""
    own = [{number for number, k in enumerate(classes) if k >= 0 and MATRIX[c][k] == p} for p in range(3)]
    return list(accumulate(own, set.union))


def unit(kind: str, size: int) -> Event:
    return Event("e", "unit", "s", attributes=(("unittype", kind), ("size", size)))


def urgency(node: Filter, classes: Sequence[int], event: Event, c: int) -> int | None:
    """The priority of an event in context class c; None where it is not selected."""
    level = level_of(node, classes, event, NO_CONTEXT)
    return None if level is None else MATRIX[c][level]


@pytest.mark.parametrize(
    ("expected", "c"),
    [
        ([{0, 3}, {0, 1, 3}, {0, 1, 2, 3}], 0),
        ([{0, 1, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}], 1),
        ([{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}], 2),
    ],
)
def test_table_4_6(expected: list[set[int]], c: int) -> None:
    """The atoms of each prioritised subscription, most urgent first, in each context."""
    assert expected == prioritised(CLASSES_4_5, c)


@pytest.mark.parametrize(
    ("expected", "kind", "size", "c"),
    [
        (1, "artillery", 85, 1),
        (0, "artillery", 85, 2),
        (1, "armor", 10, 0),
        (2, "artillery", 32, 0),
        (2, "artillery", 26, 0),
        (0, "infantry", 78, 0),
        # The print has the equivalent of 1 here, against table 4-6, where armor is in the most urgent set of this
        # context, and against equation 4-9: a misprint.
        (0, "armor", 16, 1),
    ],
)
def test_table_4_7(expected: int, kind: str, size: int, c: int) -> None:
    """Every event of the table with its priority."""
    assert expected == urgency(TABLE_4_5, CLASSES_4_5, unit(kind, size), c)


@pytest.mark.parametrize("c", range(3))
@pytest.mark.parametrize("kind", ["infantry", "armor", "artillery"])
def test_what_is_too_large_is_nothing(kind: str, c: int) -> None:
    """Size 101 is selected in no context."""
    assert urgency(TABLE_4_5, CLASSES_4_5, unit(kind, 101), c) is None


@pytest.mark.parametrize("c", range(3))
@pytest.mark.parametrize("size", [85, 101])
@pytest.mark.parametrize("kind", ["infantry", "armor", "artillery", "medics"])
def test_the_level_gives_what_the_most_urgent_prioritised_subscription_gives(kind: str, size: int, c: int) -> None:
    """Equations 4-5 and 4-9: the first Γ(Φ_p) that selects, where atoms that differ are joined by OR."""
    event, urgent = unit(kind, size), None
    for p, kept in reversed(list(enumerate(prioritised(CLASSES_4_5, c)))):
        classes = [0 if number in kept else -1 for number in range(4)]
        if level_of(TABLE_4_5, classes, event, NO_CONTEXT) is not None:
            urgent = p
    assert urgent == urgency(TABLE_4_5, CLASSES_4_5, event, c)


def test_an_urgent_part_never_selects_more_than_the_whole_filter() -> None:
    """Where atoms joined by AND differ in class, the thesis' rule would let it; the least of them is the level."""
    node = parse("kind = 'a' AND size <= 100", HERE)
    event = Event("e", "t", "s", attributes=(("kind", "a"), ("size", 101)))
    assert level_of(node, (2, 0), event, NO_CONTEXT) is None
    small = Event("e", "t", "s", attributes=(("kind", "a"), ("size", 1)))
    assert level_of(node, (2, 0), small, NO_CONTEXT) == 0


def test_table_6_1() -> None:
    """Listing 6-1 with the vector (H M M L H H M L) in the worst context."""
    classes = classes_of([relevance_of(name, HERE, 3) for name in "HMMLHHML"], 8, 3)
    values = [atom.value for atom in atoms(LISTING_6_1)]
    high, medium, low = ({values[number] for number in kept} for kept in prioritised(classes, 0))
    assert {"document", "unit", "H"} == high
    assert {"document", "time", "overlay", "unit", "H", "F"} == medium
    assert {"document", "time", "overlay", "chat", "unit", "H", "F", "N"} == low


@pytest.mark.parametrize(
    ("expected", "bandwidth"),
    [
        ([{0, 1, 2, 3, 4, 5, 6, 7}] * 3, 3750.0),
        ([{0, 3, 4, 5, 6}, {0, 3, 4, 5, 6, 7}, {0, 1, 2, 3, 4, 5, 6, 7}], 195.6),
    ],
)
def test_listings_7_4_and_7_5(expected: list[set[int]], bandwidth: float) -> None:
    """The atoms of a platoon leader's offense at two bandwidths, most urgent first."""
    assert expected == prioritised(leader_classes("offense"), awareness_class(BANDWIDTH, bandwidth))


def leader_classes(task: str) -> tuple[int, ...]:
    """The classes of listing 6-1's atoms for a platoon leader with a task."""
    subscription = Subscription("s", ("a",), LISTING_6_1)
    return classes_of(role_relevance(subscription, LISTING_7_3, "platoon leader", task), 8, 3)


@pytest.mark.parametrize(
    ("expected", "type", "affiliation"),
    [
        (0, "document", None),
        (2, "time", None),
        (2, "overlay", None),
        (0, "chat", None),
        (0, "unit", "H"),
        (0, "unit", "F"),
        (1, "unit", "N"),
        (None, "unit", "U"),
        (None, "weather", None),
    ],
)
def test_a_platoon_leaders_offense(expected: int | None, type: str, affiliation: str | None) -> None:
    """At 3750 kbit/s all that is selected has priority 0; at 195.6 kbit/s time and overlay wait, N less long."""
    event = Event("e", type, "s", attributes=() if affiliation is None else (("affiliation", affiliation),))
    level = level_of(LISTING_6_1, leader_classes("offense"), event, NO_CONTEXT)
    fast, slow = (ClientProfile("a", readings={"bandwidth": bandwidth}) for bandwidth in (3750.0, 195.6))
    if expected is None:
        assert level is None
        return
    assert level is not None
    assert expected == priority(SETTINGS, slow, level)
    assert priority(SETTINGS, fast, level) == 0


def test_the_two_bandwidths_are_the_best_and_the_worst_context() -> None:
    """3750 kbit/s is class 2, 195.6 kbit/s class 0."""
    assert context_class(SETTINGS.space, {"bandwidth": 3750.0}, 3) == 2
    assert context_class(SETTINGS.space, {"bandwidth": 195.6}, 3) == 0
