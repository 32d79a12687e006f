"""Predicates that compare geometries of both sides share, for the pairs of one event, the work that is allowed for it
(semantics §12).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.geo import shapes, told_geometry
from nearcast.model.changes import RelationRemoval
from nearcast.model.limits import Limits
from nearcast.relations.geometries import pair_comparisons
from nearcast.relations.lanes.scopes import Scopes
from nearcast.relations.stage import RelationStage
from nearcast.state.timeline import Excess
from nearcast.testing.relations import Reference
from tests.relations.stories import Restarted, Step, defined, events_told, report, summary

SPENT = "event_geometry_work"

FORMS = [
    "S_INTERSECTS(a.geom, b.geom)",
    "S_DWITHIN(a.geom, b.geom, 100000)",
    "S_WITHIN(a.geom, b.geom)",
    "S_INTERSECTS(a.geom, b) AND distance(a, b) < 5",
    "NOT S_INTERSECTS(a.geom, b.geom) AND distance(a, b) <= 5",
    "S_INTERSECTS(a.geom, b.geom) OR a.size > b.size",
    "S_INTERSECTS(a.geom, b.geom) AND S_DWITHIN(a.geom, b.geom, 500000) AND a.size < 9",
    "S_DISJOINT(a.geom, b.geom) AND COUNT(a.size, 4 s) > 1",
]


def outline(x: float, size: float, corners: int = 5) -> str:
    """A square of so many degrees around a place, with so many corners."""
    half, rest = size / 2, corners - 4
    side = [[x - half + size * number / rest, -half] for number in range(rest)]
    ring = [*side, [x + half, -half], [x + half, half], [x - half, half], [x - half, -half]]
    return orjson.dumps({"type": "Polygon", "coordinates": [ring]}).decode()


def outlined(entity: str, x: float | None, size: float, corners: int, second: int, node: str) -> Any:
    """A report with an outline; of size 0 without one."""
    told: dict[str, Any] = {"geom": outline(x or 0, size, corners)} if size else {}
    return report(entity, x, 0, second, geographic=False, size=size, node=node, **told)


reports = st.tuples(
    st.sampled_from("abcde"),
    st.sampled_from([0, 1, 2, 2, 6, None]),
    st.sampled_from([2, 3, 3, 12, 0]),
    st.sampled_from([5, 8, 20, 60]),
    st.sampled_from([0, 0, 0, 1, 4]),
    st.sampled_from(["main", "main", "south"]),
)
ids = st.sampled_from(["r", "s", "t"])
kinds = st.sampled_from(["type = 'car'", "type = 'car'", "size > 2"])
definitions = st.builds(
    lambda id, a, b, form, more: defined(id, a=a, b=b, when=form, detect=["enter", "exit"], **more),
    ids,
    kinds,
    kinds,
    st.sampled_from(FORMS),
    st.sampled_from([{}, {}, {"time_to_live": 5}, {"scope": {"local": "south"}}]),
) | st.builds(
    lambda id, form: defined(id, a="type = 'car'", b="type = 'car'", when=form, margin=1, detect=["enter", "exit"]),
    ids,
    st.sampled_from([form for form in FORMS if "distance" in form]),
)
named = ids.map(lambda id: defined(id, a={"entity": "a"}, b={"entity": "b"}, when=FORMS[0]))


@st.composite
def stories(draw: st.DrawFn) -> list[Step]:
    """Some definitions, reports of which few are late, and between these a few other definitions and removals."""
    told = draw(st.lists(reports, min_size=8, max_size=20))
    story: list[Step] = [
        outlined(entity, x, size, corners, number - late, node)
        for number, (entity, x, size, corners, late, node) in enumerate(told)
    ]
    for change in draw(st.lists(st.one_of(definitions, named, ids.map(RelationRemoval)), max_size=3)):
        story.insert(draw(st.integers(0, len(story))), change)
    return [*draw(st.lists(definitions, min_size=1, max_size=2)), *story]


@settings(max_examples=150, deadline=None)
@given(stories(), st.data())
def test_what_is_undecided_is_so_in_the_reference(story: Sequence[Step], data: st.DataObject) -> None:
    """And counted as often: whatever relations come and go, in any batches and shards, with restarts or without."""
    cuts = data.draw(st.lists(st.integers(0, len(story)), max_size=6))
    engine = data.draw(st.sampled_from([Scopes, Restarted]))(data.draw(st.integers(1, 3)))
    work, looks = (
        data.draw(st.sampled_from([1, 300, 2_000, 4_000, 9_000, 6_000_000])),
        data.draw(st.sampled_from([1_000, 1_000, 2])),
    )
    limits = Limits(event_geometry_work=work, relation_looks=looks)
    counts = Counter[Excess](), Counter[Excess]()
    expected = events_told(Reference(), story, limits=limits, excess=counts[0])
    assert expected == events_told(engine, story, cuts, limits, counts[1])
    found = [{one: count for one, count in own.items() if one[2] == SPENT} for own in counts]
    assert found[0] == found[1]


def of_limits(story: Sequence[Step], **limits: int) -> tuple[list[Any], Counter[Excess]]:
    """What stage and reference alike tell of a story, in short, and what came to a limit of work; step by step, too."""
    own, excess = Limits(**limits), Counter[Excess]()
    told = events_told(Scopes(), story, limits=own, excess=excess)
    assert events_told(Reference(), story, limits=own) == told
    assert events_told(Scopes(), story, range(len(story)), own) == told
    return [summary(event) for event in told], excess


MEETING = defined(a="type = 'car'", b="type = 'car'", when=FORMS[0])


def test_pairs_with_the_shortest_geometries_come_first() -> None:
    """Whatever their names: who tells a long outline, on purpose or not, is left for last, and that is counted."""
    story = [MEETING, *(outlined(name, 20 * n, 2, 60 - 20 * n, n, "main") for n, name in enumerate("abc"))]
    wide = report("x", 0, 0, 9, geom=outline(20, 50))
    assert (["c", "b", "a"], {}) == _partners([*story, wide])
    assert (["c"], {("s", "car", SPENT): 2}) == _partners([*story, wide], event_geometry_work=1)
    assert (["c", "b"], {("s", "car", SPENT): 1}) == _partners([*story, wide], event_geometry_work=5_000)


def _partners(story: Sequence[Step], **limits: int) -> tuple[list[str], Counter[Excess]]:
    found, excess = of_limits(story, **limits)
    return sorted((a for _, _, a, _ in found), reverse=True), excess


def test_what_is_apart_takes_nothing() -> None:
    """However many there are, and however many corners they have: their boxes show it, or the distance does."""
    forms = [FORMS[0], "S_DWITHIN(a.geom, b.geom, 1000)", "distance(a, b) < 5 AND S_INTERSECTS(a.geom, b)"]
    relations = [
        defined(id, a="type = 'car'", b="type = 'car'", when=form) for id, form in zip("rst", forms, strict=True)
    ]
    cars = [outlined(f"car{n}", 10 * n, 2, 20, n, "main") for n in range(8)]
    assert ([], {}) == of_limits([*relations, *cars], event_geometry_work=1)


SQUARE, CORNER = (
    outline(0, 6),
    orjson.dumps({"type": "Polygon", "coordinates": [[[9.0, 2.0], [9.0, 9.0], [2.0, 9.0], [9.0, 2.0]]]}).decode(),
)
"""The boxes of both meet, they do not."""

NEAR = {"when": "distance(a, b) < 5 AND S_INTERSECTS(a.geom, b.geom)", "margin": 3, "detect": ["enter", "exit"]}


def test_what_a_pair_takes_does_not_rest_on_what_holds() -> None:
    """Within the margin those are compared too that are no pair: `b` and `c` go on, as `a`, which is none, is first."""
    story = [defined(**{"a": "type = 'car'", "b": "type = 'car'"} | NEAR)]
    story += [report("b", 0, 0, 1, geom=SQUARE), report("c", 0, 0, 2, geom=SQUARE)]
    story += [report("a", 0, 90, 3, geom=SQUARE), report("a", 0, 0, 4, geom=CORNER)]
    story += [report("c", 6, 0, 5, geom=CORNER)]
    begun = [(3, "enter", "b", "c")]
    assert begun == of_limits(story, event_geometry_work=1)[0]
    assert [*begun, (6, "exit", "b", "c")] == of_limits(story)[0]


def test_whom_a_report_does_not_look_at_it_is_not_compared_with() -> None:
    """So what holds with that one goes on; with the distance beyond the margin it ends all the same."""
    story = [defined(**{"a": "type = 'car'", "b": "type = 'car'"} | NEAR)]
    # By the codes of their names `g` is before `a`.
    story += [report("a", 0, 0, 1, geom=SQUARE), report("c", 0, 0, 2, geom=SQUARE), report("g", 0, 0, 3)]
    story += [report("c", 0, 0, 4, geom=CORNER)]
    begun = [(3, "enter", "a", "c")]
    assert begun == of_limits(story, relation_looks=1)[0]
    assert [*begun, (5, "exit", "a", "c")] == of_limits(story)[0]
    away = [*story, report("c", 90, 0, 5, geom=CORNER)]
    assert [*begun, (6, "exit", "a", "c")] == of_limits(away, relation_looks=1)[0]


def test_each_entity_has_the_work_of_an_event_where_a_relation_is_defined() -> None:
    """As its side a; the rest begin with their next reports."""
    story: list[Step] = [outlined(name, 0, 2, 5, n, "main") for n, name in enumerate("abcd")]
    found, excess = of_limits([*story, MEETING], event_geometry_work=1)
    assert [(5, "enter", *pair, "present") for pair in ("ab", "bc", "cd")] == found
    assert {("s", "car", SPENT): 3} == excess


def test_undecided_pairs_that_are_known_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last ones are, and none of an entity that is forgotten, or of a relation that went."""
    monkeypatch.setattr(pair_comparisons, "LISTED", 2)
    stage = RelationStage()
    story = [MEETING, *(outlined(name, 0, 2, 5, n, "main") for n, name in enumerate("abcd"))]
    events_told(stage, story, limits=Limits(event_geometry_work=1))
    undecided = stage.pairing.undecided
    assert [False, True, True] == [("r", *pair) in undecided for pair in ("bc", "bd", "cd")]
    undecided.forget(["b"])
    assert [False, True] == [("r", *pair) in undecided for pair in ("bd", "cd")]
    stage.pairing.end("r")
    assert not undecided


def test_what_is_apart_is_read_once_for_each_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many report later, also where nothing but the geometries' distance is asked for."""
    read = Counter[str]()

    def counted(text: str, allowed: int) -> shapes.Geometry | None:
        read[text] += 1
        return told(text, allowed)

    told = shapes.told
    monkeypatch.setattr(shapes, "told", counted)
    monkeypatch.setattr(told_geometry, "told", counted)
    cars = [outlined(f"car{n}", 10 * n, 2, 20 + n, n, "main") for n in range(12)]
    near = defined(a="type = 'car'", b="type = 'car'", when=FORMS[1])
    assert [] == events_told(RelationStage(), [near, *cars], range(13))
    # As a report, and as what is known of its entity.
    assert 12 == len(read) and max(read.values()) <= 2
