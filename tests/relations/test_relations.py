"""What relations tell, by the plain reference."""

from __future__ import annotations

import orjson
import pytest

from nearcast.errors import Mark
from nearcast.language.cloudevents import read_event
from nearcast.model.changes import ClientChange, ClientRemoval, RelationRemoval
from nearcast.model.event import Event
from nearcast.model.values import time_text
from nearcast.testing.relations import Reference
from tests.relations.stories import at, defined, events_told, report, told

TRACK = [report("a", 0, 0, 0), report("b", 50, 0, 1), report("b", 5, 0, 2), report("b", 12, 0, 3)]


def test_two_come_near_and_part() -> None:
    """Reported by the event that made it so, once for the pair, the lesser name first."""
    assert [(4, "enter", "a", "b"), (5, "exit", "a", "b")] == told(defined(), *TRACK)


def test_what_an_event_tells() -> None:
    """Both subjects, both positions, their distance, and since when it holds."""
    enter = events_told(Reference(), [defined(), *TRACK])[1]
    data = {
        "relation": "r",
        "detect": "exit",
        "a": "a",
        "b": "b",
        "a_position": {"x": 0.0, "y": 0.0},
        "b_position": {"x": 12.0, "y": 0.0},
        "distance": 12.0,
        "since": time_text(at(2)),
        "x": 0.0,
        "y": 0.0,
    }
    assert data == orjson.loads(enter.payload)["data"]
    assert ("nearcast.relation", "nearcast:relations", "nearcast/relations/r/a/b") == (
        enter.type,
        enter.source,
        enter.subject,
    )
    assert (5, 1, at(3)) == (enter.position, enter.part, enter.time)


@pytest.mark.parametrize(("one", "other"), [(("p", "p/x"), ("p/p", "x")), (("p%2Fp", "x"), ("p/p", "x"))])
def test_each_pair_has_a_subject_of_its_own(one: tuple[str, str], other: tuple[str, str]) -> None:
    """Whatever stands in its names: what has one subject is one entity, of which the newest event counts."""
    found = {
        event.subject
        for a, b in (one, other)
        for event in events_told(Reference(), [defined(), report(a, 0, 0, 0), report(b, 5, 0, 1)])
    }
    assert 2 == len(found)


def test_the_payload_is_the_event() -> None:
    """Reading the payload anew gives the same attributes and the same place."""
    for event in events_told(Reference(), [defined(), *TRACK]):
        document = orjson.loads(event.payload) | {"type": "other"}
        again = read_event(document, Mark("f"))
        assert (event.attributes, event.place, event.time) == (again.attributes, again.place, again.time)


def test_a_margin_keeps_jitter_quiet() -> None:
    """What is near stays so until it is farther than the bound and the margin."""
    jitter = [report("b", x) for x in (11, 9, 11, 12.9, 13, 13.1, 11)]
    assert [(3, "enter", "a", "b"), (9, "exit", "a", "b")] == told(
        defined(margin=3), report("a", 0), report("b", 5), *jitter
    )


def test_dwell_comes_after_the_time() -> None:
    """Instead of enter; caused by the first event that brings the time, whoever it is of."""
    steps = [report("a", 0, 0, 0), report("b", 5, 0, 1), report("z", 99, 0, 5), report("z", 99, 0, 6), TRACK[3]]
    assert [(5, "dwell", "a", "b"), (6, "exit", "a", "b")] == told(defined(lasting=5), *steps)


def test_what_falls_due_is_of_the_moment_at_which_it_does() -> None:
    """A dwell and an end by silence have times of their own, at the position of the event that moved the clock."""
    story = [
        defined(lasting=5, time_to_live=20, detect=["enter", "dwell", "exit"]),
        report("a", 0, second=1, accepted=90),
        report("b", 5, second=2, accepted=90),
        report("c", 900, second=60, accepted=90),
    ]
    found = events_told(Reference(), story)
    assert [(3, at(2)), (4, at(7)), (4, at(21))] == [(one.position, one.time) for one in found]
    assert [at(90)] * 3 == [one.accepted for one in found]


def test_what_has_lasted_when_it_is_heard_of_dwells_at_once() -> None:
    """A report older than the clock by more than that begins and dwells; one older than the time to live does not."""
    fields = {"lasting": 5, "time_to_live": 20, "detect": ["enter", "dwell"]}
    other, first = report("c", 900, second=60), report("a", 0, second=50)
    assert [(4, "enter", "a", "b"), (4, "dwell", "a", "b")] == told(
        defined(**fields), other, first, report("b", 5, second=51)
    )
    assert [] == told(defined(**fields), other, first, report("b", 5, second=39))


def test_what_did_not_dwell_does_not_exit() -> None:
    """Where the beginning is not told, the end is told only of what lasted."""
    steps = [report("a", 0, 0, 0), report("b", 5, 0, 1), report("b", 50, 0, 2), report("z", 99, 0, 20)]
    assert [] == told(defined(lasting=5), *steps)
    assert [(4, "exit", "a", "b")] == told(defined(detect="exit"), *steps)
    every = defined(lasting=5, detect=["enter", "dwell", "exit"])
    assert [(3, "enter", "a", "b"), (4, "exit", "a", "b")] == told(every, *steps)


def test_a_late_report_moves_nothing() -> None:
    """One that is older than the newest known of its entity; one of the same time does move it."""
    late = [report("a", 0, 0, 0), report("b", 50, 0, 5), report("b", 5, 0, 4)]
    assert [] == told(defined(), *late)
    assert [(5, "enter", "a", "b")] == told(defined(), *late, report("b", 5, 0, 5))


def test_silence_ends_what_held() -> None:
    """When the clock has passed the time to live; the next report begins anew."""
    steps = [report("a", 0, 0, 0), report("b", 5, 0, 1), report("a", 1, 0, 30), report("z", 99, 0, 61.5)]
    assert [(3, "enter", "a", "b"), (5, "exit", "a", "b", "silent"), (6, "enter", "a", "b")] == told(
        defined(time_to_live=60), *steps, report("b", 5, 0, 62)
    )


def test_silence_before_the_dwell() -> None:
    """What ended by silence before it had lasted long enough did not last."""
    steps = [report("a", 0, 0, 0), report("b", 5, 0, 1), report("z", 99, 0, 100)]
    relation = defined(time_to_live=10, lasting=20, detect=["enter", "dwell", "exit"])
    assert [(3, "enter", "a", "b"), (4, "exit", "a", "b", "silent")] == told(relation, *steps)
    longer = defined(time_to_live=30, lasting=20, detect=["dwell", "exit"])
    assert [(4, "dwell", "a", "b"), (4, "exit", "a", "b", "silent")] == told(longer, *steps)


def test_whoever_leaves_its_side_leaves_the_relation() -> None:
    """An entity whose newest event no longer satisfies the filter."""
    assert [(4, "exit", "a", "b", "left")] == told(defined(), *TRACK[:1], TRACK[2], report("b", 5, type="bus"))[1:]


def test_a_removed_relation_ends_what_held() -> None:
    """And its successor begins with what holds at present."""
    steps = [defined(), report("a", 0), report("b", 5)]
    assert [(4, "exit", "a", "b", "removed")] == told(*steps, RelationRemoval("r"))[1:]
    assert [(4, "exit", "a", "b", "removed"), (4, "enter", "a", "b", "present")] == told(*steps, defined(margin=1))[1:]
    assert [] == told(*steps, defined())[1:]


def test_a_new_relation_begins_with_the_present() -> None:
    """Who is near now, of all that was reported before; then every change."""
    steps = [report("a", 0), report("b", 5), report("c", 50), defined(), report("c", 8), report("b", 30)]
    assert [
        (4, "enter", "a", "b", "present"),
        (5, "enter", "a", "c"),
        (5, "enter", "b", "c"),
        (6, "exit", "a", "b"),
        (6, "exit", "b", "c"),
    ] == told(*steps)


def test_what_is_unknown_changes_nothing() -> None:
    """A report without a place, or without what the predicate asks for, leaves a pair as it was."""
    ratio = defined(a={"entity": "p"}, b={"entity": "q"}, when="a.price / b.earnings < 15")
    steps = [report("p", price=10), report("q", earnings=1), report("q", size=3), report("q", earnings=0.1)]
    assert [(3, "enter", "p", "q"), (5, "exit", "p", "q")] == told(ratio, *steps)
    assert [] == told(defined(), report("a", 0), report("b", 5), report("b"))[1:]


def test_a_predicate_that_is_not_symmetric_is_asked_both_ways() -> None:
    """Each of the two may be side a."""
    faster = defined(when="distance(a, b) <= 10 AND a.speed > b.speed")
    steps = [report("a", 0, speed=1), report("b", 5, speed=2), report("a", 0, speed=3)]
    expected = [(3, "enter", "b", "a"), (4, "enter", "a", "b"), (4, "exit", "b", "a")]
    assert expected == told(faster, *steps)


def test_a_gathering() -> None:
    """A member that has enough others around it, itself counted; whoever it is that comes or goes."""
    ann = ClientChange("ann", lists={"team": ("x", "y", "z")})
    crowd = defined(among={"client": "ann", "list": "team"}, within=50, count=3)
    steps = [report("x", 0), report("y", 40), report("q", 20), report("z", 80), report("z", 45), report("x", -20)]
    assert [
        (6, "enter", "y", "x+z"),
        (7, "enter", "x", "y+z"),
        (7, "enter", "z", "x+y"),
        (8, "exit", "x", ""),
        (8, "exit", "y", "z"),
        (8, "exit", "z", "y"),
    ] == told(ann, crowd, *steps)


def test_a_list_decides_who_is_in_the_crowd() -> None:
    """Its changes are changes of the present; a client that is removed has no lists."""
    ann = ClientChange("ann", lists={"team": ("x",)})
    crowd = defined(among={"client": "ann", "list": "team"}, within=50, count=2)
    start = [ann, crowd, report("x", 0), report("y", 40), ClientChange("ann", lists={"team": ("x", "y")})]
    both = [(5, "enter", "x", "y", "present"), (5, "enter", "y", "x", "present")]
    assert both == told(*start)
    assert [(6, "exit", "x", "", "left"), (6, "exit", "y", "", "left")] == told(*start, ClientRemoval("ann"))[2:]


def test_relations_of_relations() -> None:
    """A relation that asks for relation events by type sees those of the same batch, as of the same position."""
    meeting = defined("meet", a="type = 'nearcast.relation' AND detect = 'enter'", b={"entity": "base"})
    steps = [defined(), meeting, report("base", 100, type="base"), report("a", 100), report("b", 105)]
    found = events_told(Reference(), steps)
    assert [(5, 1, "r"), (5, 2, "meet")] == [
        (one.position, one.part, dict(one.attributes)["relation"]) for one in found
    ]


def test_a_relation_does_not_see_what_it_did_not_ask_for() -> None:
    """A filter that would hold for relation events sees none of them, unless it names their type."""
    loose = defined("loose", a="distance < 9 OR n = 1", b="distance < 9 OR n = 1", when="distance(a, b) <= 1000")
    steps = [loose, report("a", 0, n=1), report("b", 5, n=1), report("a", 1, n=1)]
    assert [(3, "enter", "a", "b")] == told(*steps)


def test_the_antimeridian_is_no_border() -> None:
    """Two on its both sides are near."""
    steps = [report("a", 179.9999, 0, geographic=True), report("b", -179.9999, 0, geographic=True)]
    assert [(3, "enter", "a", "b")] == told(defined(when="distance(a, b) < 30"), *steps)
    assert [] == told(defined(when="distance(a, b) < 20"), *steps)


def test_at_distance_zero() -> None:
    """The same place, and only that."""
    same = defined(when="distance(a, b) <= 0")
    assert [(3, "enter", "a", "b"), (4, "exit", "a", "b")] == told(same, report("a", 1), report("b", 1), report("b", 2))


def test_planar_and_geographic_places_do_not_compare() -> None:
    """Between them there is no distance: UNKNOWN."""
    assert [] == told(defined(), report("a", 1), report("b", 1, geographic=True))


def test_ids_are_their_own() -> None:
    """No two events of relations have one id."""
    found: list[Event] = events_told(Reference(), [defined(), *TRACK, *TRACK, *TRACK])
    assert len(found) == len({event.id for event in found})
