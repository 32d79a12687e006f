"""Why a relation holds between two entities, or does not: as replay tells it, from the reports of the two alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

import nearcast
from nearcast.cli.explain_pair import pair_data, pair_finding, pair_finding_among_all, pair_lines
from nearcast.errors import Fault, Mark
from nearcast.explain.pair_explanation import explain_pair
from nearcast.explain.pair_finding import PairFinding
from nearcast.explain.pair_past import PairStep
from nearcast.language.cloudevents import read_event
from nearcast.language.definitions import files
from nearcast.model.changes import RelationChange, SettingsChange
from nearcast.model.columns import entered_events, to_events
from nearcast.model.limits import Limits
from nearcast.relations.plain import EventwiseRelations
from nearcast.state.derived import Cause
from nearcast.state.registry import Registry

CLOSE: dict[str, Any] = {"id": "close", "a": "type = 'bus'", "b": "type = 'bus'", "when": "distance(a, b) < 100"}


def bus(number: int, subject: str, x: float | None, second: int, type_: str = "bus") -> dict[str, Any]:
    """A report."""
    data = {} if x is None else {"x": x, "y": 0}
    document = {"specversion": "1.0", "id": str(number), "type": type_, "source": "s", "subject": subject}
    return document | {"time": f"2026-01-01T00:00:{second:02}Z", "data": data}


def found(relation: dict[str, Any], events: list[dict[str, Any]], until: int | None = None, **more: Any) -> PairFinding:
    """What is found for u and v."""
    registry, table = prepared(relation, events, more.get("node", "main"))
    return pair_finding(lambda: [table], registry, "close", ("u", "v"), until)


def prepared(
    relation: dict[str, Any], events: list[dict[str, Any]], node: str = "main", **more: Any
) -> tuple[Registry, pa.Table]:
    """The definitions, and the events that enter at a node."""
    registry = Registry()
    for change in files.load([{"clients": [{"id": "ops"}], "relations": [relation], **more}]).changes():
        registry.apply(change)
    read = [read_event(one, Mark("e"), registry.settings.channels) for one in events]
    numbered = [replace(one, position=number) for number, one in enumerate(read, 1)]
    return registry, entered_events(numbered, node)


def test_a_side_that_the_work_for_an_event_did_not_suffice_for_says_so() -> None:
    """With its place among the atoms of the sides of all relations; with room for all it is of its side."""
    area = {"type": "Polygon", "coordinates": [[[0, 0], [7, 0], [7, 7], [0, 7], [0, 0]]]}
    many = "S_INTERSECTS(geom, POLYGON((0 0, 8 0, 8 8, 4 9, 0 8, 0 0)))"
    relations = [{**CLOSE, "a": many}, {**CLOSE, "id": "others", "a": "S_INTERSECTS(geom, BBOX(0, 0, 9, 9))"}]
    events = [bus(n, name, None, n) | {"data": {"geom": area}} for n, name in enumerate("uv", 1)]
    for limits, holds in (({}, True), ({"event_geometry_work": 1_000}, False)):
        registry, table = prepared(CLOSE, events, relations=relations, limits=limits)
        one = pair_finding(lambda table=table: [table], registry, "close", ("u", "v"), None)
        assert (holds, holds) == (one.holds, one.a.member)
    assert [
        "u is not of side a: comparing the event's geometries takes more than 1,000 units of work for all filters"
        " together (limit event_geometry_work): it is number 2 of 2 atoms, fewest corners first, and 1 are decided"
    ] == list(one.reasons)


@pytest.mark.parametrize("first", [False, True])
def test_a_side_is_decided_by_the_sum_as_of_the_first_equal_filter(first: bool) -> None:
    """As where all is decided: one that another relation had, before the work for an event had to do for more."""
    area = {"type": "Polygon", "coordinates": [[[0, 0], [7, 0], [7, 7], [0, 7], [0, 0]]]}
    many = "S_INTERSECTS(geom, POLYGON((0 0, 8 0, 8 8, 4 9, 0 8, 0 0)))"
    close = {**CLOSE, "a": many, "b": many, "when": "distance(a, b) < 100 OR a.type = 'bus'"}
    few = {**close, "id": "few", "a": "S_INTERSECTS(geom, BBOX(0, 0, 9, 9))", "b": "type = 'none'"}
    registry, table = prepared(
        close, [bus(n, one, None, n) | {"data": {"geom": area}} for n, one in enumerate("uv", 1)]
    )
    loaded = files.load([{"clients": [{"id": "ops"}], "relations": [{**close, "id": "early"}, few, close]}])
    early, other, own = [one for one in loaded.changes() if isinstance(one, RelationChange)]
    limits = SettingsChange(replace(registry.settings, limits=Limits(event_geometry_work=1_000)))
    moment = 1_767_225_600_000_000
    reports = [(moment + 1_000_000 * n, "main", one) for n, one in enumerate(to_events(table), 1)]
    story = [limits, *([early] if first else []), *reports, other, own]
    steps = [
        PairStep(n, *one) if isinstance(one, tuple) else PairStep(n, moment, "", one) for n, one in enumerate(story, 1)
    ]
    relations = EventwiseRelations()
    relations.limits = limits.settings.limits
    for number, one in enumerate(story, 1):
        if isinstance(one, RelationChange):
            relations.define(one.relation, number, Cause(number, None, None))
        elif isinstance(one, tuple):
            relations.report(replace(one[2], position=number))
    held = relations.held("close", ("u", "v")) is not None
    assert (first, first) == (held, explain_pair("close", "u", "v", steps).holds)


report = st.tuples(
    st.sampled_from(["u", "v", "w"]),
    st.sampled_from([0, 60, 105, 150, None]),
    st.integers(0, 6),
    st.sampled_from(["bus", "bus", "bus", "stop"]),
    st.sampled_from([0, 0, 0, 2, 5]),
)
OVER = "distance(a, b) < 100 AND COUNT(a.x, 5 s) > 1 AND AVG(b.x, 4 s) > 50"
MORE = [
    {"when": OVER},
    {"when": OVER, "lateness": 2},
    {"when": "AVG(a.x, 3 s) < AVG(b.x, 5 s)", "for": 2},
    {},
    {"margin": 10},
    {"time_to_live": 5},
    {"for": 4},
    {"lateness": 3},
    {"lateness": 2, "time_to_live": 5},
]


@settings(max_examples=40, deadline=None)
@given(st.lists(report, max_size=10), st.sampled_from(MORE), st.data())
def test_it_holds_where_replay_has_told_so(told: list[Any], more: dict[str, Any], data: st.DataObject) -> None:
    """Whatever others report: they only bring the time. Some reports are late."""
    second, events = 0, []
    for number, (subject, x, later, type_, late) in enumerate(told):
        second += later
        events.append(bus(number, subject, x, max(min(second, 59) - late, 0), type_))
    until = data.draw(st.integers(0, len(events)))
    relation = CLOSE | more | {"detect": ["enter", "dwell", "exit"] if "for" in more else ["enter", "exit"]}
    derived: list[dict[str, Any]] = []
    nearcast.replay(events[:until], {"clients": [{"id": "ops"}], "relations": [relation]}, on_derived=derived.append)
    of_both = [one["data"] for one in derived if {one["data"]["a"], one["data"]["b"]} == {"u", "v"}]
    finding = found(relation, events, until)
    assert (bool(of_both) and of_both[-1]["detect"] != "exit") == finding.holds
    assert [one["detect"] for one in of_both][-5:] == [one.detect for _, one in finding.told]
    if finding.holds:
        assert () == finding.reasons
        begun = [one for one in of_both if one["detect"] == "enter"][-1]
        assert begun["since"] == pair_data(finding)["since"]
    assert list(pair_lines(finding))


@pytest.mark.parametrize(
    ("second", "lateness", "told"), [(10, 0, ["enter"]), (29, 0, ["enter"]), (45, 0, ["enter", "exit"]), (45, 3, [])]
)
def test_who_is_heard_in_another_channel_falls_silent_by_its_own_clock(
    second: int, lateness: int, told: list[str]
) -> None:
    """A cart of now beside a ship of a feed that is an hour behind: as replay tells it, and with the reason."""
    town = {"coordinates": "planar", "types": ["cart"]}
    channels = {"relay": {"coordinates": "planar", "types": ["ship"], "clock": "own"}, "town": town}
    cart, ship = {**bus(1, "u", 0, 0), "type": "cart"}, {**bus(2, "v", 10, 0), "type": "ship"}
    other = {**bus(3, "w", 900, second), "type": "cart"}
    events = [{**one, "time": one["time"].replace("T00", "T01")} for one in (cart, other)]
    events.insert(1, ship)
    relation = {**CLOSE, "a": "type = 'cart'", "b": "type = 'ship'", "time_to_live": 30, "lateness": lateness}
    more = [{**ship, "id": f"4 {later}", "time": f"2026-01-01T00:00:{later:02}Z"} for later in (2, 5, 8)]
    derived: list[dict[str, Any]] = []
    defined = {"clients": [{"id": "ops"}], "relations": [relation], "channels": channels}
    nearcast.replay([*events, *more], defined, on_derived=derived.append)
    registry, table = prepared(relation, [*events, *more], channels=channels)
    finding = pair_finding_among_all(lambda: [table], registry, "close", ("u", "v"), None)
    assert told == [one["data"]["detect"] for one in derived]
    assert (told == ["enter"]) == finding.holds
    assert ("exit" in told) == ("u was silent for longer than time_to_live, 30 s" in finding.reasons)
    assert finding.holds or finding.reasons


RELATION = {"specversion": "1.0", "id": "defined", "type": "nearcast.relation.defined", "source": "s"}


@pytest.mark.parametrize(
    ("defined", "expected"), [(1, ["enter", "exit"]), (2, ["enter", "exit"]), (3, ["enter", "exit"]), (4, [])]
)
def test_a_relation_goes_on_from_what_others_of_its_lateness_await(defined: int, expected: list[str]) -> None:
    """It is defined later than another one, while reports wait for that: it tells what replay tells."""
    events = [bus(1, "u", 0, 0), bus(2, "v", 200, 5), bus(3, "v", 50, 4), bus(4, "w", 900, 9)]
    relation = CLOSE | {"lateness": 3}
    events.insert(defined, RELATION | {"data": relation})
    other = relation | {"id": "other", "when": "distance(a, b) < 1"}
    derived: list[dict[str, Any]] = []
    nearcast.replay(events, {"clients": [{"id": "ops"}], "relations": [other]}, on_derived=derived.append)
    assert expected == [one["data"]["detect"] for one in derived]
    registry, table = prepared(other, events)
    finding = pair_finding_among_all(lambda: [table], registry, "close", ("u", "v"), None)
    assert expected == [one.detect for _, one in finding.told]


@pytest.mark.parametrize("lateness", [0, 3])
def test_a_relation_that_holds_is_found_among_all(lateness: int) -> None:
    """Also one that awaits late reports."""
    events = [bus(1, "u", 0, 0), bus(2, "v", 0, 1), bus(3, "w", 500, 9)]
    registry, table = prepared(CLOSE | ({"lateness": lateness} if lateness else {}), events)
    assert pair_finding_among_all(lambda: [table], registry, "close", ("u", "v"), None).holds


@pytest.mark.parametrize(
    ("reason", "events"),
    [
        ("v was not heard of", [bus(1, "u", 0, 0)]),
        ("the predicate is FALSE", [bus(1, "u", 0, 0), bus(2, "v", 200, 1)]),
        ("the predicate is UNKNOWN: there is no place of b", [bus(1, "u", 0, 0), bus(2, "v", None, 1)]),
        ("v is not of side b", [bus(1, "u", 0, 0), bus(2, "v", 0, 1, "stop")]),
        (
            "u was silent for longer than time_to_live, 5 s",
            [bus(1, "u", 0, 0), bus(2, "w", 0, 6), bus(3, "v", 0, 7)],
        ),
    ],
)
def test_what_keeps_it_from_holding_is_told(reason: str, events: list[dict[str, Any]]) -> None:
    """The report that lacks, the side, the predicate, the silence."""
    finding = found(CLOSE | {"time_to_live": 5}, events)
    assert reason in finding.reasons
    assert any(reason in line for line in pair_lines(finding))


def test_the_margin_and_the_time_that_it_has_to_last_are_told() -> None:
    """For staying another bound holds than for beginning."""
    events = [bus(1, "u", 0, 0), bus(2, "v", 60, 1), bus(3, "v", 105, 2)]
    finding = found(CLOSE | {"margin": 10, "for": "4 s"}, events)
    [condition] = finding.conditions
    assert (True, False, True) == (finding.holds, condition.truth, condition.staying)
    assert "2026-01-01T00:00:05Z" == pair_data(finding)["due"]
    assert not found(CLOSE | {"margin": 10, "for": "4 s"}, [*events, bus(4, "w", 0, 6)]).due


def test_a_local_relation_sees_what_enters_at_its_node() -> None:
    """What enters elsewhere is told as the reason."""
    local = CLOSE | {"scope": {"local": "north"}}
    events = [bus(1, "u", 0, 0), bus(2, "v", 0, 1)]
    assert found(local, events, node="north").holds
    advice = "u was not heard of, only at south, and the relation is local to north"
    assert advice in found(local, events, node="south").reasons


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (
            {"relation_partners": 1},
            "both were in as many pairs of it; now u is in 1 and v is in 1 (limit relation_partners, 1)",
        ),
        ({"relation_pairs": 2}, "2 pairs of the relation hold (limit relation_pairs, 2)"),
        ({"relation_looks": 1}, "did not look at 1 near v (limit relation_looks, 1)"),
        (
            {"relation_begins": 1, "relation_burst": 1},
            "began at once than 1 (relation_burst) and what reports make room for (limit relation_begins, 1)",
        ),
    ],
)
def test_a_pair_that_did_not_begin_for_a_limit_says_so(limits: dict[str, int], reason: str) -> None:
    """With the limit's name, and what to do."""
    events = [bus(number, name, 0, number) for number, name in enumerate("tuv", 1)]
    registry, table = prepared(CLOSE, events, limits=limits)
    finding = pair_finding_among_all(lambda: [table], registry, "close", ("v", "u"), None)
    [told] = finding.reasons
    assert reason in told
    assert "raise relation_" in told
    assert not finding.holds and not pair_data(finding)["told"]
    assert any(reason in line for line in pair_lines(finding))


@pytest.mark.parametrize("until", [None, 2, 3])
def test_among_all_a_pair_within_the_limits_is_found_as_by_itself(until: int | None) -> None:
    """Whether it holds, and what was told."""
    events = [
        bus(number, name, x, number) for number, (name, x) in enumerate([("u", 0), ("w", 5), ("v", 50), ("v", 500)], 1)
    ]
    registry, table = prepared(CLOSE, events)
    expected = found(CLOSE, events, until)
    assert expected == pair_finding_among_all(lambda: [table], registry, "close", ("u", "v"), until)


MEAN = CLOSE | {"a": {"entity": "u"}, "b": {"entity": "v"}, "when": "distance(a, b) < 100 AND AVG(a.x, 10 s, 2) > 20"}


def test_of_an_aggregate_it_is_told_on_what_it_rests() -> None:
    """How many reports, from when to when, and the value; or what it lacks."""
    events = [bus(1, "u", 0, 0), bus(2, "v", 30, 1)]
    finding = found(MEAN, events)
    why = "AVG(a.x, 10 s, 2) of u: 1 came in that time, of 2 that it needs"
    assert (f"the predicate is UNKNOWN: {why}",) == finding.reasons
    assert any(why in line for line in pair_lines(finding))
    finding = found(MEAN, [*events, bus(3, "u", 50, 5)])
    told = "AVG(a.x, 10 s, 2) is 25, of 2 readings of u from 2026-01-01T00:00:00Z to 2026-01-01T00:00:05Z"
    assert finding.holds and any(told in line for line in pair_lines(finding))
    [_, condition] = pair_data(finding)["conditions"]
    expected = {"of": "AVG(a.x, 10 s, 2)", "value": 25, "readings": 2, "entity": "u", "why": None}
    assert expected.items() <= condition["aggregates"][0].items()


@pytest.mark.parametrize("name", ["window_readings", "windows_readings"])
def test_an_aggregate_beyond_a_limit_says_so(name: str) -> None:
    """With the limit's name, also where the readings of others are too many."""
    events = [bus(1, "v", 30, 0), bus(2, "u", 50, 1), bus(3, "u", 50, 2), bus(4, "u", 50, 3)]
    registry, table = prepared(MEAN | {"when": "AVG(a.x, 10 s, 3) > AVG(b.x, 10 s)"}, events, limits={name: 2})
    [reason] = pair_finding_among_all(lambda: [table], registry, "close", ("u", "v"), None).reasons
    assert "are kept, and there were more" in reason


def test_the_readings_of_others_may_be_too_many() -> None:
    """Of the two alone it would hold."""
    relation = CLOSE | {"when": "distance(a, b) < 100 AND COUNT(b.x, 10 s, 2) = 2"}
    events = [bus(number, name, 0, number) for number, name in enumerate("uuwwvv", 1)]
    registry, table = prepared(relation, events, limits={"windows_readings": 5})
    [reason] = pair_finding_among_all(lambda: [table], registry, "close", ("u", "v"), None).reasons
    assert "COUNT(b.x, 10 s, 2) of v is not known among all" in reason and "windows_readings" in reason


def test_a_relation_that_is_not_there_is_a_fault() -> None:
    """So is one of a crowd."""
    with pytest.raises(Fault, match="there were other"):
        found(CLOSE | {"id": "other"}, [])
    with pytest.raises(Fault, match="of a crowd"):
        found({"id": "close", "among": "type = 'bus'", "within": 5, "count": 2}, [])


def area(x: float, size: float) -> dict[str, Any]:
    """A square as it is told."""
    ring = [[x, 0], [x + size, 0], [x + size, size], [x, size], [x, 0]]
    return {"geom": {"type": "Polygon", "coordinates": [ring]}}


MEETING = CLOSE | {"when": "S_INTERSECTS(a.geom, b.geom)"}


@pytest.mark.parametrize("other", [[], [MEETING | {"id": "others"}]])
def test_a_pair_that_the_work_for_an_event_did_not_suffice_for_says_so(other: list[dict[str, Any]]) -> None:
    """It did not begin, or it goes on though the two are apart; pairs with others and other relations come first."""
    told = [("u", 0, 4), ("t", 0, 4), ("v", 0, 4)]
    events = [bus(n, name, None, n) | {"data": area(x, size)} for n, (name, x, size) in enumerate(told, 1)]
    limits = {"event_geometry_work": 1}
    registry, table = prepared(MEETING, events, relations=[MEETING, *other], limits=limits)
    finding = pair_finding_among_all(lambda: [table], registry, "close", ("v", "u"), None)
    [reason] = finding.reasons
    assert (False, (), True) == (
        finding.holds,
        finding.told,
        pair_finding(lambda: [table], registry, "close", ("v", "u"), None).holds,
    )
    assert reason == finding.undecided == pair_data(finding)["undecided"]
    assert (
        "with the last report the pair was not decided: comparing the geometries of its pairs takes more than 1 units"
        " of work (limit event_geometry_work), and those come first that tell the shortest"
    ) == reason
    assert 1 == "".join(pair_lines(finding)).count(reason)
    # What holds does not end by a report that it was not decided for.
    began = pair_finding_among_all(lambda: [table], registry, "close", ("t", "u"), None)
    assert (True, "", 2) == (began.holds, began.undecided, began.told[-1][0])


def test_a_pair_that_was_not_decided_goes_on() -> None:
    """Its geometries are apart by now, and others came before it: it holds, and says since when and why."""
    corner = {"geom": {"type": "Polygon", "coordinates": [[[9, 3], [9, 9], [3, 9], [9, 3]]]}}
    events = [bus(n, name, None, n) | {"data": area(0, 5.5)} for n, name in enumerate("vut", 1)]
    events.append(bus(4, "v", None, 9) | {"data": corner})
    registry, table = prepared(MEETING, events, limits={"event_geometry_work": 1})
    finding = pair_finding_among_all(lambda: [table], registry, "close", ("u", "v"), None)
    assert (True, ()) == (finding.holds, finding.reasons)
    assert "2026-01-01T00:00:02Z" == pair_data(finding)["since"]
    assert "the pair was not decided" in finding.undecided
    assert any(finding.undecided in line for line in pair_lines(finding))
    assert not pair_finding_among_all(lambda: [table], registry, "close", ("t", "v"), None).holds
