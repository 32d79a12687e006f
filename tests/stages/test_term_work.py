"""The conditions of location terms share the work on an entity's geometries, and all who decide agree on members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.explain.explanation import ExplanationScene, explain
from nearcast.explain.why_not import observed
from nearcast.filters.evaluate import NO_CONTEXT, level_of
from nearcast.filters.expressions import truth_of
from nearcast.filters.spatial_atoms import in_order, spatial_atoms, spent_budget, term_atoms
from nearcast.language.control_events import changes
from nearcast.language.cql2 import parse
from nearcast.matching.spatial import geometry_sharing
from nearcast.model.changes import Change, ClientChange, ClientRemoval, SettingsChange, SubscriptionRemoval
from nearcast.model.columns import to_table
from nearcast.model.event import Event, Place
from nearcast.model.filter import Atom, Entities, PlainNot, atoms
from nearcast.model.limits import Limits
from nearcast.model.subscription import Settings
from nearcast.stages.decide import decide
from nearcast.stages.fold import StateFold
from nearcast.stages.term_members import MembershipTracker, TermConditions
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository
from nearcast.state.spatial_windows import SpatialWindows
from nearcast.state.timeline import Excess
from tests.language.test_cql2 import HERE
from tests.stages.test_adapt import subscribed
from tests.stages.test_geometry_sharing import LIMIT, area, budget, outline
from tests.stages.test_stages import as_table

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

Story = Sequence[Event | Change]
Told = set[tuple[int, str, str]]


class AsOf:
    """What is known as of an event, where the conditions of location terms are as those of these subscriptions."""

    def __init__(self, registry: Registry, newest: dict[str, Event]) -> None:
        self._newest, self._limits = newest, registry.settings.limits
        self.asked = [atom for one in registry.subscriptions.values() for atom in term_atoms(one.filter)]

    def user(self, name: str) -> Place | None:
        """Nobody is anywhere."""

    def entities(self) -> Iterable[Event]:
        """The newest event of each entity."""
        return self._newest.values()

    def undecided_conditions(self, newest: Event) -> Collection[Atom]:
        """The atoms that are left of it now, whenever it came."""
        return spent_budget(self.asked, newest, NO_CONTEXT, self._limits).undecided


def plainly(story: Story) -> tuple[Told, Counter[Excess]]:
    """Who is told of which event by what, and how many atoms were left: of a report when it comes, and of those that
    are known where an event is the first to find other atoms.
    """
    registry, newest, told, left = Registry(), dict[str, Event](), Told(), Counter[Excess]()
    before: list[Atom] = []

    def count(event: Event, around: AsOf) -> None:
        left.update([(event.source, event.type, LIMIT)] * len(around.undecided_conditions(event)))

    for position, one in enumerate(story, 1):
        if not isinstance(one, Event):
            registry.apply(one)
            continue
        event, around = replace(one, position=position), AsOf(registry, newest)
        for subscription in registry.subscriptions.values():
            classes = [0] * sum(1 for _ in atoms(subscription.filter))
            if level_of(subscription.filter, classes, event, around, registry.settings.limits) is not None:
                told |= {(position, name, subscription.id) for name in subscription.clients if name in registry.clients}
        if in_order(around.asked) != before:
            before = in_order(around.asked)
            for known in newest.values():
                count(known, around)
        late = event.entity in newest and (newest[event.entity].moment or NOON) > (event.moment or NOON)
        if not late:
            newest[event.entity] = event
            count(event, around)
    return told, +left


def decided(story: Story, cuts: Sequence[int] = (), restarting: bool = False) -> tuple[Told, Counter[Excess]]:
    """The same by the stages, in batches that are cut there; each begun anew from what is kept, where they restart."""
    known, table, told, left = StateFold(), as_table(story), Told(), Counter[Excess]()
    for begin, end in zip([0, *cuts], [*cuts, len(table)], strict=True):
        if restarting:
            known = StateFold(known.registry.copy(), known.repository.newest(), known.position)
        for batch in known.fold(table.slice(begin, end - begin), changes):
            for row in decide(batch, batch.events).to_pylist():
                by = [row["subscription"], *(other["subscription"] for other in row["others"] or ())]
                told |= {(row["position"], row["client"], id) for id in by}
            left += Counter({one: count for one, count in batch.around.excess.items() if one[2] == LIMIT})
        assert [] == known.refusals
    return told, +left


def report(entity: str, second: int, x: int, *told: str) -> Event:
    moment, place = NOON + timedelta(seconds=second), Place("geographic", x, 0.0)
    return Event("e", "zone", "city", entity, moment, place, tuple(("geom", one) for one in told))


areas = st.sampled_from(
    [f"S_INTERSECTS(geom, {area(west, corners)})" for west, corners in ((0, 4), (1, 6), (0, 8), (1, 12), (0, 20))]
)
conditions = st.one_of(
    areas,
    areas,
    st.sampled_from(
        [
            f"S_DISJOINT(geom, {area(4, 5)})",
            f"S_OVERLAPS(geom, {area(0, 10)})",
            "S_INTERSECTS(geom, BBOX(0, 0, 1, 1))",
            "S_DWITHIN(geom, POINT(1 0), 90000)",
            "geom IS NULL",
        ]
    ),
)
joined = st.one_of(
    areas,
    conditions,
    conditions.map(lambda one: f"NOT {one}"),
    st.builds(lambda one, other: f"{one} OR {other}", conditions, conditions),
    st.builds(lambda one, other: f"type = 'zone' AND NOT ({one} AND {other})", conditions, conditions),
)
terms = st.one_of(
    areas.map(lambda one: f"count(uform({one})) >= 1"),
    joined.map(lambda one: f"count(uform({one})) >= 1"),
    joined.map(lambda one: f"count(uform({one})) = 2"),
    joined.map(lambda one: f"distance(uform({one}), this) < 150000"),
    st.builds(
        lambda one, other: f"distance(uform({one}), uform({other})) < 150000 OR count(uform()) = 1", joined, joined
    ),
)
clients = st.sampled_from(["ann", "ann", "bob"])
asking = st.builds(lambda id, text, who: subscribed(id, who, text=text), st.sampled_from("pqr"), terms, clients)
removals = st.sampled_from("pqr").map(SubscriptionRemoval)
reports = st.builds(
    lambda entity, second, x, corners, told: report(entity, second, x, *[outline(x, corners)] * told),
    st.sampled_from("ab"),
    st.integers(0, 3),
    st.sampled_from([0, 0, 1, 4]),
    st.sampled_from([4, 9, 30]),
    st.sampled_from([1, 1, 1, 0]),
)
cars = st.just(Event("c", "car", "fleet", "car"))
steps = st.one_of(
    reports, reports, cars, cars, asking, asking, removals, clients.map(ClientChange), clients.map(ClientRemoval)
)
units = st.sampled_from([1, 600, 900, 1_200, 2_000, 3_000, 40_000_000])
stories = st.builds(
    lambda of, first, more: [budget(of), ClientChange("ann"), *first, *more],
    units,
    st.lists(asking, min_size=2, max_size=3),
    st.lists(steps, min_size=4, max_size=20),
)


@settings(max_examples=200, deadline=None)
@given(stories, st.data())
def test_all_who_decide_agree_on_members(story: Story, data: st.DataObject) -> None:
    """The stages in any batches, kept whole or part by part, also where each begins anew; what is told plainly; and
    explanations. As much is counted.
    """
    expected = plainly(story)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(story) - 1), max_size=8)))
    kept, looks = data.draw(st.sampled_from([1, 1 << 26])), data.draw(st.sampled_from([1, 256]))
    with patch.object(geometry_sharing, "MANY", kept), patch.object(geometry_sharing, "LOOKS", looks):
        assert expected == decided(story, cuts)
        assert expected[0] == decided(story, cuts, restarting=True)[0]
    assert expected[0] == set(explained(story))


def explained(story: Story) -> Iterable[tuple[int, str, str]]:
    """Who is told of which event by what, as explanations have it."""
    registry, newest = Registry(), dict[str, Event]()
    for position, one in enumerate(story, 1):
        if not isinstance(one, Event):
            registry.apply(one)
            continue
        event = replace(one, position=position)
        scene = ExplanationScene(registry, newest.values(), event)
        for name in registry.clients:
            found = explain(scene, name).subscriptions
            yield from ((position, name, one.subscription.id) for one in found if one.level is not None)
        if not scene.newer():
            newest[event.entity] = event


@settings(max_examples=100, deadline=None)
@given(stories, st.lists(st.tuples(units, st.sampled_from([2, 100, 100])), max_size=3), st.data())
def test_members_are_the_same_in_any_batches_where_limits_change(
    story: list[Event | Change], limits: list[tuple[int, int]], data: st.DataObject
) -> None:
    """The limit on the work, and that on entities, by which some are forgotten."""
    for work, entities in limits:
        change = SettingsChange(Settings(limits=Limits(event_geometry_work=work, entities=entities)))
        story.insert(data.draw(st.integers(0, len(story))), change)
    told, _ = decided(story)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(story) - 1), max_size=8)))
    assert told == decided(story, cuts)[0]
    assert told == decided(story, cuts, restarting=True)[0]
    if all(entities == 100 for _, entities in limits):
        assert told == plainly(story)[0]


FEW = f"count(uform(S_INTERSECTS(geom, {area(0, 6)}))) = 1"
MORE = f"count(uform(S_INTERSECTS(geom, {area(0, 20)}))) = 1"
CAR = Event("c", "car", "fleet", "car")


def test_a_term_that_comes_leaves_less_for_those_behind_it_until_it_goes() -> None:
    """An entity is a member as of now, whatever was decided when it reported; which is counted and explained."""
    asked = [subscribed("more", text=MORE), CAR, subscribed("few", text=FEW), CAR, SubscriptionRemoval("few"), CAR]
    story = [budget(900), ClientChange("ann"), report("a", 0, 0, outline(0, 6)), *asked]
    told, left = decided(story)
    assert {(5, "ann", "more"), (7, "ann", "few"), (9, "ann", "more")} == told
    assert {("city", "zone", LIMIT): 1} == left
    assert (told, left) == plainly(story)


def test_a_term_that_comes_again_has_the_members_of_then() -> None:
    """Not those from when its conditions were not looked at, though it ended in the batch just before."""
    asked = [
        ClientChange("ann"),
        ClientChange("bob"),
        subscribed("more", "bob", text=MORE),
        subscribed("few", text=FEW),
    ]
    story = [*asked, SubscriptionRemoval("few"), report("a", 0, 0, outline(0, 6)), subscribed("few", text=FEW), CAR]
    assert {(8, "bob", "more"), (8, "ann", "few")} == decided(story, [4, 6])[0]


def test_members_are_others_where_the_limit_is_another() -> None:
    """As of then, also of those who reported before."""
    asked = [ClientChange("ann"), subscribed("few", text=FEW), subscribed("more", text=MORE)]
    story = [budget(900), *asked, report("a", 0, 0, outline(0, 6)), CAR, budget(40_000), CAR, budget(900), CAR]
    told, _ = decided(story)
    assert [(6, "few"), (8, "few"), (8, "more"), (10, "few")] == sorted((at, id) for at, _, id in told)
    assert told == plainly(story)[0]


def test_an_explanation_says_of_which_entities_it_is_unknown() -> None:
    """And where the first atom that was left stood among those of all terms."""
    registry = Registry()
    for one in (budget(900), ClientChange("ann"), subscribed("few", text=FEW), subscribed("more", text=MORE)):
        registry.apply(one)
    newest = [report(name, 0, 0, outline(0, 6)) for name in "abcd"] + [report("e", 0, 0), report("f", 0, 9)]
    scene = ExplanationScene(registry, newest, CAR)
    found = {one.subscription.id: one.atoms[0] for one in explain(scene, "ann").subscriptions}
    assert "the count was 5" == observed(found["few"])
    assert (
        "the count was 1; of 4 more it is unknown whether they are asked for: a, b, c, …; a: comparing the event's"
        " geometries takes more than 900 units of work for all filters together (limit event_geometry_work): it is"
        " number 2 of 2 atoms, fewest corners first, and 1 are decided"
    ) == observed(found["more"])


def test_a_report_takes_no_more_work_than_is_allowed_however_many_terms_there_are() -> None:
    """Nor do looks at it, as one after the other goes: what was compared is kept."""
    texts = [f"count(uform(S_INTERSECTS(geom, {area(number / 1e4, 20)}))) > 0" for number in range(60)]
    asked = [subscribed(f"s{number}", text=text) for number, text in enumerate(texts)]
    story = [budget(40_000), ClientChange("ann"), *asked, report("a", 0, 0, outline(0, 100)), CAR]
    with patch.object(geometry_sharing, "truth_of", wraps=truth_of) as compared:
        _, left = decided(story)
    once = compared.call_count
    assert 1 < once < 30
    assert {("city", "zone", LIMIT): 60 - once} == left
    going = [step for number in range(40, 60) for step in (SubscriptionRemoval(f"s{number}"), CAR)]
    with patch.object(geometry_sharing, "truth_of", wraps=truth_of) as compared:
        decided([*story, *going])
    assert compared.call_count < 3 * once + 20


def test_nobody_is_looked_at_again_of_whom_nothing_was_left() -> None:
    """Where a term goes; where one comes each entity is looked at once."""
    asked = [ClientChange("ann"), subscribed("more", text=MORE), subscribed("few", text=FEW)]
    with patch.object(geometry_sharing, "truth_of", wraps=truth_of) as compared:
        decided([*asked, report("a", 0, 0, outline(0, 6)), SubscriptionRemoval("few"), CAR], [4])
    assert 2 == compared.call_count


def test_an_entity_whose_report_is_left_undecided_is_a_member_under_a_plain_negation() -> None:
    """As it is where an attribute is not there."""
    conditions = PlainNot(parse(f"S_INTERSECTS(geom, {area(0, 20)})", HERE))
    others = parse(f"S_INTERSECTS(geom, {area(0, 6)})", HERE)
    spatial = in_order([*spatial_atoms(conditions), *spatial_atoms(others)])
    asked = TermConditions.of([Entities(conditions)], SpatialWindows.of(spatial))
    events = to_table([replace(report("a", 0, 0, outline(0, 6)), position=1)])
    for limits, members in ((Limits(event_geometry_work=900), {"a"}), (Limits(), set())):
        found = MembershipTracker().members_over(asked, events, Repository(), limits)
        assert members == set(found[Entities(conditions)].after().base)
