"""What is near by the grid, and filters that are found by it, against the plain evaluator."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.filters.evaluate import atom_truth, level_of
from nearcast.geo import columnar_index
from nearcast.geo.distance import distance
from nearcast.matching import engine, plan, proximity
from nearcast.matching.batch_columns import event_points
from nearcast.matching.bitset import FilterGroup
from nearcast.matching.engine import CompiledEngine
from nearcast.matching.matcher import FilterMatcher
from nearcast.matching.proximity import ProximityAtoms, inner
from nearcast.model.columns import to_table
from nearcast.model.event import Event, Place
from nearcast.model.filter import And, Atom, Distance, Filter, Not, Operator, Or, This, User, atoms
from nearcast.runtime import jit_warmup
from nearcast.state.timeline import Environment, Timeline
from tests.matching.test_engine import found, numbered
from tests.matching.test_matcher import AsOf, make_track
from tests.random_filters import USERS, attribute_atoms, events, limits, points, trees


@pytest.fixture(scope="module", autouse=True)
def kernels() -> None:
    """Compiled before anything is tested, for until then rows of bits would be."""
    jit_warmup.wait_for_warmup()


degrees = st.one_of(st.floats(-180, 180), st.sampled_from([-180.0, 180.0, 179.9999, -179.9999, 0.0]))
latitudes = st.one_of(st.floats(-90, 90), st.sampled_from([-90.0, 90.0, 89.9999, -89.9999, 0.0]))
metres = st.one_of(st.floats(-500, 500), st.sampled_from([0.0, 3.0, 4.0, -1e9, 1e300]))
heights = st.one_of(st.none(), st.sampled_from([0.0, 12.0]))
somewhere = st.one_of(
    st.builds(Place, st.just("geographic"), degrees, latitudes, heights),
    st.builds(Place, st.just("planar"), metres, metres, heights),
    points,
)
numbers = st.one_of(limits, st.sampled_from([float("inf"), 5, 13.0]), st.floats(-500, 1000))


@st.composite
def anchored(draw: st.DrawFn) -> Atom:
    """An atom about the distance between an anchor and the event."""
    anchor = draw(st.one_of(st.sampled_from(USERS).map(User), points))
    term = Distance(anchor, This()) if draw(st.booleans()) else Distance(This(), anchor)
    operator = draw(st.sampled_from([*list(Operator)[:6], Operator.IN, Operator.BETWEEN]))
    if operator is Operator.IN:
        return Atom(term, operator, tuple(draw(st.lists(numbers, min_size=1, max_size=3))))
    if operator is Operator.BETWEEN:
        return Atom(term, operator, (draw(numbers), draw(numbers)))
    return Atom(term, operator, draw(numbers))


@st.composite
def moving(draw: st.DrawFn) -> Timeline[str, Place | None]:
    """Users that are somewhere, go elsewhere, and get lost, some of them within the batch."""
    base = draw(st.dictionaries(st.sampled_from(USERS[:2]), somewhere))
    step = st.tuples(st.sampled_from(USERS[:2]), st.integers(1, 8), st.one_of(st.none(), somewhere))
    return make_track(base, draw(st.lists(step, max_size=6)))  # type: ignore[arg-type,return-value]


def at_the_limit(atom: Atom, users: Timeline[str, Place | None], place: Place | None) -> Atom:
    """The atom with the very distance between its anchor and a place as its limit, if it has one."""
    term = atom.name
    assert isinstance(term, Distance)
    anchor = term.b if isinstance(term.a, This) else term.a
    there = users.base.get(anchor.name) if isinstance(anchor, User) else anchor
    apart = distance(there, place) if isinstance(there, Place) and place else None
    return atom if apart is None or isinstance(atom.value, tuple) else replace(atom, value=apart)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(anchored(), min_size=1, max_size=4),
    st.lists(st.one_of(st.none(), somewhere), min_size=1, max_size=8),
    moving(),
    st.booleans(),
    st.sampled_from([0, 1000]),
)
def test_what_is_near_is_what_the_plain_evaluator_finds(
    some: list[Atom], places: list[Place | None], users: Timeline[str, Place | None], sharp: bool, few: int
) -> None:
    """To the last bit: whoever moves where, events without a place and receivers without one among them."""
    if sharp:
        some = [at_the_limit(atom, users, places[0]) for atom in some]
    kept = [atom for atom in dict.fromkeys(some) if inner(atom) is not None]
    history = [Event(str(at), "t", "s", place=place, position=at) for at, place in enumerate(places, 1)]
    table = to_table(history)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columnar_index, "FEW", few)
        near = ProximityAtoms(kept).near(users, table.column("position").to_numpy(), event_points(table))
    assert near is not None
    for number, atom in enumerate(kept):
        expected = [
            lane
            for lane, event in enumerate(history)
            if atom_truth(atom, event, AsOf(users, [], event.position)) is inner(atom)
        ]
        assert expected == near.lanes[near.starts[number] : near.starts[number + 1]].tolist()


groups = trees(st.one_of(anchored(), attribute_atoms())).flatmap(
    lambda filter: st.tuples(st.just(filter), st.tuples(*[st.integers(-1, 2)] * sum(1 for _ in atoms(filter))))
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(groups, min_size=1, max_size=8),
    st.lists(st.tuples(events(), st.one_of(st.none(), somewhere)), min_size=1, max_size=8),
    moving(),
    st.data(),
)
def test_filters_found_by_what_is_near_have_the_levels_of_the_plain_evaluator(
    some: list[FilterGroup],
    drawn: list[tuple[Event, Place | None]],
    users: Timeline[str, Place | None],
    data: st.DataObject,
) -> None:
    """Beside other atoms, one or the other, and under NOT; by a plan for a sample and by one without."""
    history = numbered([replace(event, place=place) for event, place in drawn])
    expected = {
        (lane, number, level)
        for number, (filter, classes) in enumerate(some)
        for lane, event in enumerate(history)
        if (level := level_of(filter, classes, event, AsOf(users, [], event.position))) is not None
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "BLOCK", data.draw(st.sampled_from([1, 3, 16_384])))
        patch.setattr(engine, "SAMPLE", data.draw(st.sampled_from([1, 1000])))
        patch.setattr(columnar_index, "FEW", data.draw(st.sampled_from([0, 1000])))
        patch.setattr(proximity, "MOST", data.draw(st.sampled_from([2, 1000])))
        patch.setattr(columnar_index, "ROOM", 1)
        index = FilterMatcher(some, many=0)
        around = Environment(users)
        assert expected == found(index.match(to_table(history), around))
        # Planned, sent to a worker, and given a part of the events.
        rest = [event for event in history if event.position > 2]
        again = found(pickle.loads(pickle.dumps(index)).match(to_table(rest), around)) if rest else set()
        assert {pair for pair in expected if pair[0] >= 2} == {(lane + 2, group, level) for lane, group, level in again}


def test_a_receivers_distance_is_what_its_filter_is_found_by() -> None:
    """No entry looks at all events, and no row of bits is asked for."""
    engine = CompiledEngine([(near_to(f"u{number}"), (0, 0, 0)) for number in range(300)])
    assert [] == engine.literals
    assert {plan.AROUND} == {segment.column for segment in engine.layout.segments}
    assert 600 == len(engine.around)


def near_to(name: str) -> Filter:
    """Unlike what others want, within 150 m of a user, or exactly there."""
    here = Distance(User(name), This())
    wide = Or((Atom(here, Operator.LE, 150), Not(Atom(here, Operator.GT, 100))))
    return And((wide, Atom("size", Operator.GT, len(name))))
