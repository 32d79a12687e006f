"""The filters of the sides of pairs share the work on an event's geometries (semantics §12)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.model.changes import RelationRemoval
from nearcast.model.limits import Limits
from nearcast.relations.lanes.scopes import Scopes
from nearcast.state.timeline import Excess
from nearcast.testing.relations import Reference
from tests.relations.stories import NO_OTHER, Restarted, Step, defined, events_told, report, summary

AREAS = [
    "S_INTERSECTS(geom, BBOX(0, 0, 9, 9))",
    "S_INTERSECTS(geom, POLYGON((0 0, 8 0, 8 8, 4 9, 0 8, 0 0)))",
    "S_DWITHIN(geom, POINT(4 4), 3)",
    "S_INTERSECTS(geom, BBOX(50, 50, 60, 60))",
]


def outline(size: int) -> str:
    """A square of so many metres, as an event tells it."""
    ring = [[0, 0], [size, 0], [size, size], [0, size], [0, 0]]
    return orjson.dumps({"type": "Polygon", "coordinates": [ring]}).decode()


reports = st.builds(
    lambda entity, x, size, second: report(entity, x, 5, second, **({"geom": outline(size)} if size else {})),
    st.sampled_from("abc"),
    st.sampled_from([0, 5, 30]),
    st.sampled_from([0, 3, 7]),
    st.integers(0, 12),
)
sides = st.lists(st.sampled_from(AREAS), min_size=1, max_size=2, unique=True).map(" OR ".join)
ids = st.sampled_from(["near", "beside"])
definitions = st.builds(lambda id, a, b: defined(id, a=a, b=b), ids, sides, sides)
crowds = sides.map(lambda among: defined("crowd", among=among, within=10, count=2))
steps = st.one_of(reports, reports, reports, reports, definitions, crowds, ids.map(RelationRemoval))
stories = st.tuples(definitions, st.lists(steps, max_size=16)).map(lambda parts: [parts[0], *parts[1]])


@settings(max_examples=60, deadline=None)
@given(stories, st.data())
def test_sides_that_share_the_work_on_geometries_are_as_in_the_reference(
    story: Sequence[Step], data: st.DataObject
) -> None:
    """As far as the work goes, whatever relations come and go, in any batches and shards, with restarts or without."""
    cuts = data.draw(st.lists(st.integers(0, len(story)), max_size=6))
    engine = data.draw(st.sampled_from([Scopes, Restarted]))(data.draw(st.integers(1, 3)))
    limits = Limits(event_geometry_work=data.draw(st.sampled_from([6_000_000, 6_000, 1_700, 100, 1])))
    assert events_told(Reference(), story, limits=limits) == events_told(engine, story, cuts, limits)


def test_the_sides_of_all_relations_share_the_work_on_an_events_geometries() -> None:
    """Fewest corners first; of the sides behind nobody is known to be, which is counted. Else all are."""
    relations = [defined(id, a=AREAS[area], b="type = 'bus'") for id, area in (("beside", 1), ("near", 0))]
    story = [*relations, report("bus", 5, 5, 0, type="bus"), report("van", 5, 5, 1, geom=outline(7))]
    for limits, told, counted in (
        (Limits(event_geometry_work=1_000), {"near"}, {("s", "car", "event_geometry_work"): 1}),
        (NO_OTHER, {"beside", "near"}, {}),
    ):
        excess = Counter[Excess]()
        events = events_told(Scopes(), story, limits=limits, excess=excess)
        assert [(4, "enter", "van", "bus")] * len(told) == [summary(event) for event in events]
        assert told == {one for event in events for one in event.values("relation")}
        assert counted == excess
