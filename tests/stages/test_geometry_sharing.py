"""What geometries may take for one event is shared by the atoms of all filters, and all who decide agree on it."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import nearcast
from nearcast.explain.explanation import ExplanationScene, explain
from nearcast.filters.evaluate import EventFacts, level_of
from nearcast.filters.expressions import truth_of
from nearcast.filters.receiver_terms import for_receiver
from nearcast.filters.spatial_atoms import order_key, spatial_atoms
from nearcast.language.control_events import changes
from nearcast.matching import matcher
from nearcast.matching.matcher import FilterMatcher
from nearcast.matching.spatial import geometry_sharing
from nearcast.model.changes import Change, ClientChange, ClientRemoval, SettingsChange, SubscriptionRemoval
from nearcast.model.columns import to_table
from nearcast.model.event import Event, Place
from nearcast.model.expression import needed
from nearcast.model.filter import Atom, Filter, atoms
from nearcast.model.geometry_budget import GeometryWork
from nearcast.model.limits import Limits
from nearcast.model.subscription import Settings
from nearcast.stages.decide import decide
from nearcast.stages.fold import StateFold
from nearcast.state.registry import Registry
from nearcast.state.timeline import Environment
from tests.geo.test_geometry_work import SNAPSHOT
from tests.stages.test_adapt import subscribed
from tests.stages.test_stages import as_table

Told = set[tuple[int, str]]
LIMIT = "event_geometry_work"


def budget(units: int) -> SettingsChange:
    return SettingsChange(Settings(limits=Limits(event_geometry_work=units)))


def plain_undecided(filters: Sequence[Filter], scene: ExplanationScene) -> set[Atom]:
    """The atoms that are left, by counting: fewest corners first, each geometry read once, until the work is done."""
    spent, texts, left = 0, set[str](), set[Atom]()
    event, limits = scene.event, scene.registry.settings.limits
    for atom in sorted({atom for one in filters for atom in spatial_atoms(one)}, key=order_key):
        if spent > limits.event_geometry_work:
            left.add(atom)
            continue
        assert not isinstance(atom.name, str)
        if any(not tuple(event.values(name)) for name in needed(atom.name)):  # type: ignore[arg-type]
            continue
        work = GeometryWork(limits)
        truth_of(atom.name, EventFacts(event, scene, work))  # type: ignore[arg-type]
        read = sum(work.read_texts.values())
        spent += max(0, min(work.spent, limits.geometry_work) - read)
        spent += sum(units for text, units in work.read_texts.items() if text not in texts)
        texts |= work.read_texts.keys()
    return left


def scenes(story: Sequence[Event | Change]) -> Iterator[ExplanationScene]:
    """What each event met. All are of one entity."""
    registry, before = Registry(), list[Event]()
    for position, one in enumerate(story, 1):
        if not isinstance(one, Event):
            registry.apply(one)
            continue
        event = replace(one, position=position)
        yield ExplanationScene(registry, before, event)
        before = [event]


def plainly(story: Sequence[Event | Change]) -> tuple[Told, Counter[str]]:
    """Who is told of which event, and how many atoms were left, event by event."""
    told, left = set[tuple[int, str]](), Counter[str]()
    for scene in scenes(story):
        registry, event = scene.registry, scene.event
        own = {
            (name, subscription.id): for_receiver(subscription.filter, name, client.readings)
            for subscription in registry.subscriptions.values()
            for name, client in registry.clients.items()
            if name in subscription.clients
        }
        unheard = [s.filter for s in registry.subscriptions.values() if not asks_for_receiver(s.filter)]
        undecided = plain_undecided([*own.values(), *unheard], scene)
        left[LIMIT] += len(undecided)
        for (name, _), filter in own.items():
            classes = [0] * sum(1 for _ in atoms(filter))
            if level_of(filter, classes, event, scene, registry.settings.limits, undecided) is not None:
                told.add((event.position, name))
    return told, +left


def asks_for_receiver(filter: Filter) -> bool:
    return filter != for_receiver(filter, "nobody", {})


def decided(story: Sequence[Event | Change], cuts: Sequence[int] = ()) -> tuple[Told, Counter[str]]:
    """The same by the stages, in batches that are cut there."""
    known, table, told, left = StateFold(), as_table(story), set[tuple[int, str]](), Counter[str]()
    for begin, end in zip([0, *cuts], [*cuts, len(table)], strict=True):
        for batch in known.fold(table.slice(begin, end - begin), changes):
            told |= {(row["position"], row["client"]) for row in decide(batch, batch.events).to_pylist()}
            for (_, _, limit), count in batch.around.excess.items():
                left[limit] += count
    assert [] == known.refusals
    return told, Counter({LIMIT: left[LIMIT]}) if left[LIMIT] else Counter()


def ring(west: float, corners: int = 4, size: float = 1.0) -> list[list[float]]:
    """Corners around a middle."""
    turns = np.linspace(0, 2 * np.pi, corners, endpoint=False)
    around = [[round(west + size * np.cos(turn), 4), round(size * np.sin(turn), 4)] for turn in turns]
    return [*around, around[0]]


def outline(west: float, corners: int = 4, size: float = 1.0) -> str:
    return json.dumps({"type": "Polygon", "coordinates": [ring(west, corners, size)]})


def area(west: float, corners: int = 4, size: float = 1.0) -> str:
    return f"POLYGON(({', '.join(f'{x} {y}' for x, y in ring(west, corners, size))}))"


CROSSED = json.dumps({"type": "Polygon", "coordinates": [[[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]]})
NO_OUTLINE = json.dumps({"type": "Polygon", "coordinates": []})

geometries = st.one_of(
    st.builds(outline, st.integers(-2, 6), st.sampled_from([4, 9, 30])),
    st.sampled_from([CROSSED, NO_OUTLINE, "{no geometry", '{"type": "Point", "coordinates": [1, 0]}']),
)
names = st.sampled_from(["geom", "geom", "geom", "geometry", "area", "this"])
facts = st.one_of(
    st.tuples(st.tuples(names, geometries)), st.lists(st.tuples(names, geometries), max_size=3).map(tuple)
)
spots = st.one_of(
    st.none(),
    st.builds(Place, st.just("geographic"), st.integers(-2, 6), st.just(0)),
    st.builds(Place, st.just("planar"), st.integers(-2, 6), st.just(0)),
)
outlined = st.builds(lambda place, told: Event("e", "zone", "city", None, None, place, told), spots, facts)

written = st.one_of(
    st.builds(area, st.integers(-2, 6), st.sampled_from([4, 8, 20])),
    st.sampled_from(["BBOX(0, 0, 1, 1)", "BBOX(4, -1, 5, 1)", "POINT(1 0)", "LINESTRING(0 0, 3 0)"]),
)
sides = st.sampled_from(["geom", "this", "geometry", "area"])
functions = st.sampled_from(["S_INTERSECTS", "S_DISJOINT", "S_WITHIN", "S_OVERLAPS", "S_CONTAINS"])
conditions = st.one_of(
    st.builds(lambda f, own, other: f"{f}({own}, {other})", functions, sides, written),
    st.builds(lambda f, own, other: f"{f}({other}, {own})", functions, sides, written),
    st.builds(
        lambda own, other, m: f"S_DWITHIN({own}, {other}, {m})", sides, written, st.sampled_from([-1, 0, 9e4, 4e5])
    ),
    st.sampled_from(["S_DWITHIN(geom, me, 200000)", "geom IS NULL", "type = 'zone'", "S_INTERSECTS(area, geom)"]),
    st.sampled_from(["S_INTERSECTS(PREVIOUS(geom), BBOX(0, 0, 1, 1))", "S_TOUCHES(PREVIOUS(geom), geom)"]),
)
texts = st.one_of(
    conditions,
    conditions.map(lambda one: f"NOT {one}"),
    st.lists(conditions, min_size=2, max_size=4).map(" OR ".join),
    st.lists(conditions, min_size=2, max_size=3).map(" AND ".join),
)
several = st.builds(lambda id, text: subscribed(id, "ann", "bob", text=text), st.sampled_from("abcd"), texts)
steps = st.one_of(
    outlined,
    outlined,
    several,
    several,
    st.sampled_from("ab").map(SubscriptionRemoval),
    st.builds(
        lambda id, x: ClientChange(id, place=Place("geographic", x, 0)),
        st.sampled_from(["ann", "bob"]),
        st.integers(-1, 2),
    ),
    st.sampled_from(["ann", "bob"]).map(ClientRemoval),
)
stories = st.builds(
    lambda first, units, more: [budget(units), ClientChange("ann"), *first, *more],
    st.lists(several, min_size=2, max_size=5),
    st.sampled_from([1, 200, 600, 1_200, 3_000, 40_000_000]),
    st.lists(steps, min_size=1, max_size=12),
)


@settings(max_examples=200, deadline=None)
@given(stories, st.data())
def test_all_who_decide_agree_on_what_is_left(story: list[Event | Change], data: st.DataObject) -> None:
    """The stages in any batches, with rows of bits and with the engine, kept whole or part by part, as told plainly."""
    expected = plainly(story)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(story) - 1), max_size=4)))
    many, kept = data.draw(st.sampled_from([1, 200])), data.draw(st.sampled_from([1, 1 << 26]))
    with patch.object(matcher, "MANY", many), patch.object(geometry_sharing, "MANY", kept):
        assert expected == decided(story, cuts)
    for scene in scenes(story):
        own = {name for name in scene.registry.clients if explain(scene, name).level is not None}
        assert own == {name for at, name in expected[0] if at == scene.event.position}


def many(count: int, corners: int) -> dict[str, str]:
    """Filters of different areas of so many corners around one place."""
    return {f"f{number}": f"S_INTERSECTS(geom, {area(number / 1e4, corners)})" for number in range(count)}


def test_no_more_is_compared_than_the_limit_allows() -> None:
    """Of many areas around an outline of thousands of corners; those who look at one filter alone know no others."""
    filters, small, large = many(150, 20), outline(0, 4, 0.5), outline(0, 3_000, 0.5)
    events = [{"id": "small", "geom": small}, {"id": "large", "geom": large}]
    with patch.object(geometry_sharing, "truth_of", wraps=truth_of) as compared:
        assert {"small": 150, "large": 150} == Counter(one["event"] for one in nearcast.match(events, filters))
    assert 300 == compared.call_count
    shared = geometry_sharing.fixed_spatial(nearcast.Filter(one)._tree for one in filters.values())
    table = to_table([Event("large", "zone", "city", attributes=(("geom", large),), position=1)])
    for units, most in ((200_000, 60), (600_000, 150)):
        around = Environment(limits=Limits(event_geometry_work=units), spatial=shared)
        with patch.object(geometry_sharing, "truth_of", wraps=truth_of) as compared:
            geometry_sharing.match_within_budget(FilterMatcher(()).match, table, around)
        assert 1 < compared.call_count <= most
        assert Counter({("city", "zone", LIMIT): 150 - compared.call_count}) == around.excess


def test_what_is_surely_apart_is_not_compared() -> None:
    """But for the first, by which the event's geometry is read; and takes nothing of what is allowed."""
    filters = {f"f{n}": f"S_INTERSECTS(geom, BBOX({n}, 60, {n + 1}, 61))" for n in range(100)}
    filters |= {f"g{n}": f"S_DWITHIN(geom, POINT({n} 60), 1000)" for n in range(100)}
    filters |= {f"h{n}": f"S_DISJOINT(geom, BBOX({n}, 60, {n + 1}, 61))" for n in range(100)}
    with patch.object(geometry_sharing, "truth_of", wraps=truth_of) as compared:
        found = nearcast.match([{"id": "1", "geom": outline(0, 1_000)}], filters)
    assert {f"h{n}" for n in range(100)} == {one["filter"] for one in found}
    assert 1 == compared.call_count


def test_events_at_points_are_matched_in_bulk() -> None:
    """Nothing is decided one after the other, however many areas there are, as long as few of them are at one place."""
    filters = {f"f{n}": f"S_INTERSECTS(geom, BBOX({n / 10}, 0, {n / 10 + 1}, 1))" for n in range(150)}
    events = [{"id": str(n), "lon": n / 100, "lat": 0.5} for n in range(100)]
    with patch.object(geometry_sharing, "truth_of", wraps=truth_of) as compared:
        expected = Counter(one["event"] for one in nearcast.match(events, filters))
    assert 0 == compared.call_count and 100 == len(expected)
    shared = geometry_sharing.fixed_spatial(nearcast.Filter(one)._tree for one in filters.values())
    table = to_table([Event("e", "t", "s", None, None, Place("geographic", 0.5, 0.5), position=1)])
    # The first is looked at in any case, and takes nothing; three others as much as is allowed.
    for units, calls in ((15_000, 0), (500, 4)):
        around = Environment(limits=Limits(event_geometry_work=units), spatial=shared)
        with patch.object(geometry_sharing, "truth_of", wraps=truth_of) as compared:
            geometry_sharing.match_within_budget(FilterMatcher(()).match, table, around)
        assert calls == compared.call_count


def test_fires_under_ordinary_areas_are_decided(data: Callable[[str], Path]) -> None:
    """Outlines of a day of bushfires, under five hundred areas and as many circles, all around the same towns."""
    features = json.loads(gzip.decompress(data(SNAPSHOT).read_bytes()))["features"]
    outlines = sorted((json.dumps(one["geometry"]) for one in features), key=len)
    texts = [f"S_INTERSECTS(geom, {area(150 + n / 1e3, 20, 2 + n / 1e3)})" for n in range(500)]
    texts += [f"S_DWITHIN(geom, POINT({150 + n / 1e3} -33), {50_000 + n})" for n in range(500)]
    shared = geometry_sharing.fixed_spatial(nearcast.Filter(one)._tree for one in texts)
    fires = enumerate([*outlines[:5], *outlines[-5:]], 1)
    table = to_table([Event(str(n), "fire", "rfs", attributes=(("geom", one),), position=n) for n, one in fires])
    around = Environment(spatial=shared)
    geometry_sharing.match_within_budget(FilterMatcher(()).match, table, around)
    assert Counter() == around.excess


def test_an_explanation_says_that_the_work_for_the_event_was_done() -> None:
    """And where the atom stands among those of all filters."""
    story = [
        budget(1_000),
        ClientChange("ann"),
        subscribed("few", text="S_INTERSECTS(geom, BBOX(0, 0, 1, 1))"),
        subscribed("more", text=f"S_INTERSECTS(geom, {area(0, 20)})"),
        subscribed("most", text=f"S_INTERSECTS(geom, {area(0, 30)})"),
        Event("e", "zone", "city", attributes=(("geom", outline(0)),)),
    ]
    [scene] = scenes(story)
    found = {one.subscription.id: one.atoms[0] for one in explain(scene, "ann").subscriptions}
    assert [True, None, None] == [found[id].truth for id in ("few", "more", "most")]
    assert (
        "comparing the event's geometries takes more than 1,000 units of work for all filters together (limit"
        " event_geometry_work): it is number 3 of 3 atoms, fewest corners first, and 1 are decided"
    ) == found["most"].unknown
    assert ({(6, "ann")}, Counter({LIMIT: 2})) == decided(story)
