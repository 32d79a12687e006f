"""What is kept of entities has limits: of bytes, of number, of age; the same however the journal is cut."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.errors import Mark
from nearcast.language.control_events import changes
from nearcast.language.cql2 import parse
from nearcast.language.definitions.relation_documents import relation_document
from nearcast.model.changes import Change, ClientChange, RelationChange, SettingsChange, SubscriptionChange
from nearcast.model.columns import to_events
from nearcast.model.event import Event, Place
from nearcast.model.limits import Limits
from nearcast.model.subscription import Settings, Subscription
from nearcast.stages.decide import decide
from nearcast.stages.fold import StateFold
from nearcast.state import entity_ledger
from nearcast.state.derived import derived_of
from nearcast.state.repository import entities
from tests.stages.test_stages import as_table

HERE = Mark("here")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
FILTERS = ("CHANGED(level)", "distance(uform(level > 1), this) < 5", "type = 'nearcast.relation'")


def told(name: str, second: float, x: float = 0.0, level: int = 1, more: str = "") -> Event:
    moment = NOON + timedelta(seconds=second)
    attributes = (("level", level), *((("text", more),) if more else ()))
    return Event("e", "t", "s", name, moment, Place("planar", x, 0.0), attributes, accepted=moment)


def start(limits: Limits) -> list[Event | Change]:
    near = {"id": "near", "a": "type = 't'", "b": "type = 't'", "when": "distance(a, b) <= 10"}
    subscriptions = [SubscriptionChange(Subscription(f"s{n}", ("ann",), parse(f, HERE))) for n, f in enumerate(FILTERS)]
    relation = RelationChange(relation_document(near, HERE))
    return [SettingsChange(Settings(limits=limits)), ClientChange("ann"), relation, *subscriptions]


def run(story: Sequence[Event | Change], cuts: Sequence[int] = ()) -> tuple[list[object], StateFold]:
    """What is derived and delivered, and what is known at the end."""
    known, found, table = StateFold(), list[object](), as_table(story)
    for first, last in pairwise([0, *sorted(cuts), len(story)]):
        for batch in known.fold(table.slice(first, last - first), changes):
            found += [(one.position, one.part, one.attributes) for one in to_events(derived_of(batch.events))]
            rows = decide(batch, batch.events).select(["position", "part", "subscription"]).to_pylist()
            found += [tuple(row.values()) for row in rows]
    return sorted(map(repr, found)), known


def kept(known: StateFold) -> list[str]:
    return sorted(name for name in entities(known.repository.newest()).to_pylist() if not name.startswith("nearcast"))


events = st.builds(
    told,
    st.sampled_from("abcdefgh"),
    st.integers(0, 30),
    st.sampled_from([0.0, 3.0, 40.0]),
    st.sampled_from([1, 2]),
    st.sampled_from(["", "", "x" * 300]),
)
limited = st.builds(
    lambda number, size, total, age: Limits(entities=number, entity_bytes=size, entities_bytes=total, entity_age=age),
    st.sampled_from([2, 3, 5]),
    st.sampled_from([400, 65_536]),
    st.sampled_from([900, 1 << 31]),
    st.sampled_from([4.0, float("inf")]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(events, max_size=25), limited, st.data())
def test_what_is_forgotten_depends_on_the_journal_alone(
    history: list[Event], limits: Limits, data: st.DataObject
) -> None:
    """Relations, previous values and location terms tell the same in one batch and in many."""
    story = [*start(limits), *history]
    cuts = data.draw(st.lists(st.integers(0, len(story)), max_size=8))
    whole, known = run(story)
    parts, again = run(story, cuts)
    assert whole == parts
    assert (kept(known), known.forgotten) == (kept(again), again.forgotten)
    assert len(kept(known)) <= limits.entities


@settings(max_examples=60, deadline=None)
@given(st.lists(events, max_size=20), st.lists(events, max_size=20), limited, st.data())
def test_what_is_swept_depends_on_the_journal_alone(
    before: list[Event], after: list[Event], limits: Limits, data: st.DataObject
) -> None:
    """Also where nothing is defined that derives, so that no table is cut for it, and then something is."""
    first, second, relation, *subscriptions = start(limits)
    story = [first, second, *subscriptions, *before, relation, *after]
    cuts = data.draw(st.lists(st.integers(0, len(story)), max_size=8))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entity_ledger, "SWEEP", 8)
        (whole, known), (parts, again) = run(story), run(story, cuts)
    assert whole == parts
    assert (kept(known), known.forgotten) == (kept(again), again.forgotten)


@pytest.mark.parametrize(("related", "batches"), [(False, 1), (True, 8)])
def test_a_table_is_cut_to_be_swept_only_where_something_may_be_derived(
    monkeypatch: pytest.MonkeyPatch, related: bool, batches: int
) -> None:
    """Else every batch of history is two, and each costs what a job of Spark's costs."""
    monkeypatch.setattr(entity_ledger, "SWEEP", 8)
    opening = [one for one in start(Limits()) if related or not isinstance(one, RelationChange)]
    known, table = StateFold(), as_table([*opening, *(told("a", second) for second in range(64 - len(opening)))])
    for batch in known.fold(table.slice(0, len(opening)), changes):
        assert not len(batch.events)
    assert batches == len([*known.fold(table.slice(len(opening)), changes)])


def test_the_oldest_go_first() -> None:
    """A tenth of them, once there are more than may be."""
    story = [*start(Limits(entities=10)), *(told(f"e{number:02}", number, 100.0 * number) for number in range(11))]
    _, known = run(story)
    assert [f"e{number:02}" for number in range(2, 11)] == kept(known)
    assert 2 == known.forgotten


def test_who_is_not_heard_for_the_age_is_forgotten_and_its_pairs_end_as_silent() -> None:
    """With the next event, whoever it is of; and it begins anew when it reports again."""
    story = [*start(Limits(entity_age=10)), told("a", 0), told("b", 0), told("c", 50, 500.0), told("c", 51, 500.0)]
    _, known = run(story)
    assert ["c"] == kept(known)
    found, _ = run([*story, told("a", 52), told("b", 53)])
    ends = [one for one in found if "'silent'" in one]
    assert (1, 2) == (len(ends), len([one for one in found if "'enter'" in one]))


def test_of_an_event_that_is_too_large_the_place_is_kept() -> None:
    """It is decided as any other; what comes later finds no attributes of it."""
    story = [*start(Limits(entity_bytes=1_000)), told("a", 0, more="x" * 5_000), told("a", 1, level=2)]
    _, known = run(story)
    [newest] = [one for one in to_events(known.repository.newest()) if one.entity == "a"]
    assert (("level", 2),) == newest.attributes
    _, before = run(story[:-1])
    [large] = to_events(before.repository.newest())
    assert ((), Place("planar", 0.0, 0.0)) == (large.attributes, large.place)
    assert before.repository.bytes < 1_000


def test_sixty_thousand_large_entities_do_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each as much is kept as it may have, and of all together as much as they may."""
    limits = Limits(entity_bytes=2_000, entities_bytes=20_000)
    story = [*start(limits), *(told(f"e{n}", n, 100.0 * n, more="x" * (1_000 + n)) for n in range(60))]
    _, known = run(story)
    assert known.repository.bytes <= limits.entities_bytes
    assert kept(known)[-1:] == ["e59"]


def test_ordinary_data_meets_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is forgotten of a thousand entities, also where it is looked for."""
    monkeypatch.setattr(entity_ledger, "SWEEP", 64)
    _, known = run([*start(Limits()), *(told(f"e{number}", number, 100.0 * number) for number in range(300))])
    assert (300, 0) == (len(kept(known)), known.forgotten)
