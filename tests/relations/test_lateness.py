"""Relations with a lateness: late reports count, in the order of their moments, and nothing is told before its time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.model.changes import ClockTick, RelationChange, RelationRemoval
from nearcast.model.columns import to_events, to_table
from nearcast.model.event import Event
from nearcast.model.limits import Limits
from nearcast.relations.lanes.scopes import Scopes
from nearcast.relations.reports import micros_of
from nearcast.state.derived import Cause
from nearcast.state.stream_clocks import StreamClocks
from nearcast.testing.relations import Reference
from tests.relations.late_reference import LateReference
from tests.relations.stories import NOON, Restarted, Step, at, defined, events_told, placed, report, summary
from tests.relations.test_stage import FORMS, changes, planar

LATENESS = 4
LATE = LATENESS * 1_000_000


def expected(story: Sequence[Step]) -> list[Event]:
    """What is told of a story, plainly."""
    reference = LateReference(LATENESS)
    for position, step in enumerate(story, 1):
        match step:
            case Event():
                [event] = to_events(to_table([placed(step, position)]))
                reference.report(event)
            case ClockTick():
                reference.tick(step, Cause(position, step.clock, NOON))
            case _:
                reference.change(step, Cause(position, NOON, NOON))
    return reference.told


def late(step: Step) -> Step:
    """The same with a lateness."""
    return RelationChange(replace(step.relation, lateness=LATENESS)) if isinstance(step, RelationChange) else step


timed = planar.filter(lambda event: event.moment is not None)
steps = st.lists(st.one_of(*[timed] * 6, changes), max_size=30)
stories = st.tuples(st.lists(changes, max_size=3), steps).map(
    lambda parts: [late(one) for part in parts for one in part]
)


@settings(max_examples=60, deadline=None)
@given(stories, st.data())
def test_the_stage_tells_what_the_reference_tells(story: Sequence[Step], data: st.DataObject) -> None:
    """Every event, whatever the batches, and whether or not it is stored between them."""
    cuts = data.draw(st.lists(st.integers(0, len(story)), max_size=6))
    engine = data.draw(st.sampled_from([Scopes, Restarted]))(data.draw(st.sampled_from([1, 3])))
    assert expected(story) == events_told(engine, story, cuts)


@settings(max_examples=30, deadline=None)
@given(st.lists(timed, max_size=12), st.randoms(use_true_random=False))
def test_reports_that_are_less_late_change_nothing(reports: list[Event], chance: object) -> None:
    """In whatever order they come, what is told is what is told of them in the order of their moments."""
    own = [replace(one, time=at(0.5 * number), accepted=at(100)) for number, one in enumerate(reports)]
    shuffled = sorted(own, key=lambda one: micros_of(one.time) + chance.randrange(LATE))
    forms = [late(defined(f"r{number}", **form)) for number, form in enumerate(FORMS[:-2])]
    end = [report("z", 1e6, second=90, type="ship")]
    ordered = events_told(Reference(), [*forms, *own, *end])
    found = events_told(Scopes(), [*forms, *shuffled, *end])
    assert [summary(one)[1:] for one in ordered] == [summary(one)[1:] for one in found]


def test_a_late_report_is_awaited() -> None:
    """Until the clock is so much further; what is told then has the time at which it happened."""
    story = [
        late(defined()),
        report("a", 0, second=0),
        report("b", 500, second=10),
        report("b", 5, second=7, accepted=11),
        report("c", 900, second=12),
        report("c", 900, second=14),
    ]
    found = events_told(Scopes(), story)
    assert [((5, "enter", "a", "b"), at(7)), ((6, "exit", "a", "b"), at(10))] == [
        (summary(one), one.time) for one in found
    ]
    assert [(4, "enter", "a", "b")] != [summary(one) for one in events_told(Scopes(), [defined(), *story[1:]])]


WHOLE = defined(lasting=5, detect=["enter", "dwell"])


@pytest.mark.parametrize(("relation", "since"), [(WHOLE, 3), (late(WHOLE), 7)])
def test_a_pair_is_of_the_moment_of_the_report_that_made_it_hold(relation: RelationChange, since: int) -> None:
    """Also where the other's is of a later moment; with lateness reports count in order, so it is the later of both."""
    story = [relation, report("a", 0, second=7), report("b", 5, second=3), report("c", 900, second=20)]
    for engine in (Scopes(), Reference()) if not relation.relation.lateness else (Scopes(),):
        found = events_told(engine, story)
        assert [("enter", at(since)), ("dwell", at(since + 5))] == [(summary(one)[1], one.time) for one in found]


def test_a_tick_ends_the_waiting() -> None:
    """Where nothing else comes; a clock before then does not."""
    story = [late(defined()), report("a", 0, second=0), report("b", 5, second=1)]
    scopes = Scopes()
    assert [] == events_told(scopes, story)
    at_thirty = StreamClocks.alone(micros_of(at(30)))
    assert micros_of(at(LATENESS)) - micros_of(at(30)) == scopes.next_due(at_thirty)
    assert [] == events_told(scopes, [ClockTick(at(4.9))])
    assert [(1, "enter", "a", "b")] == [summary(one) for one in events_told(scopes, [ClockTick(at(5))])]
    assert scopes.next_due(at_thirty) > 0


@pytest.mark.parametrize(("most", "early"), [(3, 2), (5, 0)])
def test_what_waits_is_bounded(most: int, early: int) -> None:
    """Beyond the limit what is of the earliest moment counts early, wherever batches are cut."""
    story = [late(defined()), *(report(f"e{n}", 20 * n, second=n / 10) for n in range(5)), report("e0", 21, second=0.5)]
    limits = Limits(waiting_reports=most)
    for cuts in ([], [3], range(8)):
        scopes = Scopes()
        events_told(scopes, story[:6], [cut for cut in cuts if cut < 6], limits)
        assert early == scopes.early


@pytest.mark.parametrize("cuts", [[], [3], [5], [7], [3, 5, 7]])
def test_what_is_defined_anew_does_not_rest_on_what_was_before(cuts: list[int]) -> None:
    """Nor on ticks that nobody of its lateness heard, nor on where the journal is cut."""
    twice = [late(defined("r1")), late(defined("r1", detect=["enter"]))]
    first = [defined("r2"), report("a", 0, second=-30), report("b", 5, second=-29), twice[0]]
    story = [*first, ClockTick(at(-20)), RelationRemoval("r1"), ClockTick(at(-10)), twice[1]]
    told = [one for one in events_told(Scopes(), story, cuts) if "r1" in one.values("relation")]
    assert [at(-29), at(-29)] == [one.time for one in told if "enter" in one.values("detect")]
