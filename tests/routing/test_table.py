"""Routing tables: whatever is added, merged and removed, what they forward is never less than what is wanted."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.algebra.comparison import covers
from nearcast.errors import Mark
from nearcast.filters.evaluate import NO_CONTEXT, truth
from nearcast.language.cql2 import parse, write
from nearcast.model.event import Event
from nearcast.model.filter import And, Filter, Or, atoms
from nearcast.routing.table import LOOK, QUICK, THOROUGH, MergingEffort, MergingPolicy, RoutingTable
from nearcast.routing.traffic import TrafficSample
from tests.random_filters import attribute_atoms, events, filters


def said(text: str) -> Filter:
    return parse(text, Mark("f", 1, 1))


def accepts(filter: Filter, event: Event) -> bool:
    return truth(filter, event, NO_CONTEXT) is True


def numbered(size: int) -> Event:
    return Event(f"e{size}", "unit", "s", attributes=(("size", size), ("speed", size % 7)))


NUMBERED = TrafficSample([numbered(size) for size in range(100)])

conjunctions = st.lists(attribute_atoms(), min_size=1, max_size=3).map(lambda parts: And(tuple(parts)))
wanted = st.one_of(conjunctions, conjunctions, filters)
operations = st.lists(st.tuples(st.sampled_from("abcdefg"), st.one_of(wanted, wanted, st.none())), max_size=12)


@settings(max_examples=60, deadline=None)
@given(
    operations,
    st.sampled_from(MergingPolicy),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.lists(events(), max_size=10),
    st.sampled_from([THOROUGH, MergingEffort(LOOK, 3, 5), MergingEffort(0, 0, 0)]),
)
def test_it_never_forwards_less_than_is_wanted(
    steps: list[tuple[str, Filter | None]],
    merging: MergingPolicy,
    precision: float,
    some: list[Event],
    effort: MergingEffort,
) -> None:
    """After any additions, replacements and removals; precision is kept; neighbours know what is forwarded."""
    table, held, told = (
        RoutingTable(merging, TrafficSample(some), precision, effort),
        dict[str, Filter](),
        set[Filter](),
    )
    for id, filter in steps:
        if filter is not None:
            change, held[id] = table.add_filter(id, filter), filter
        elif id in held:
            change = table.remove_filter(id)
            del held[id]
        else:
            continue
        told = told - set(change.withdrawn) | set(change.added)
        assert told == set(table.forwards())
        for event in some:
            wants = any(accepts(filter, event) for filter in held.values())
            forwarded = any(accepts(filter, event) for filter in told)
            assert forwarded >= wants
            assert merging is MergingPolicy.IMPERFECT or forwarded == wants
        measures = table.measures()
        assert len(held) == measures.filters >= measures.forwarded or merging is MergingPolicy.NONE
        assert measures.precision >= precision
    for id in held:
        table.remove_filter(id)
    assert () == table.forwards()


@settings(max_examples=60, deadline=None)
@given(filters, st.lists(events(), min_size=1, max_size=6))
def test_traffic_selects_as_the_plain_evaluator(filter: Filter, some: list[Event]) -> None:
    """Column by column, event by event: the same."""
    assert [accepts(filter, event) for event in some] == TrafficSample(some).selects(filter).tolist()


def table_of(*texts: str, merging: MergingPolicy = MergingPolicy.PERFECT, precision: float = 1.0) -> RoutingTable:
    table = RoutingTable(merging, NUMBERED, precision)
    for text in texts:
        table.add_filter(text, said(text))
    return table


def forwarded(table: RoutingTable) -> list[str]:
    return [write(filter) for filter in table.forwards()]


def test_a_covered_filter_hides() -> None:
    """In whatever order they come."""
    assert ["size > 3"] == forwarded(table_of("size > 3", "size > 5"))
    assert ["size > 3"] == forwarded(table_of("size > 5", "size > 3"))


def test_perfect_merging_forwards_exactly_what_is_wanted() -> None:
    """Filters that differ in one attribute become one."""
    texts = [f"type = 'unit' AND size = {size}" for size in (1, 2, 3)]
    assert ["type = 'unit' AND size IN (1, 2, 3)"] == forwarded(table_of(*texts))
    assert 1.0 == table_of(*texts).measures().precision


@pytest.mark.parametrize("gone", ["size > 3", "size = 1", "size = 2"])
def test_what_was_hidden_or_merged_is_forwarded_again(gone: str) -> None:
    """Removing a covering or a merged filter leaves the table as if it had never been there."""
    texts = ["size > 3", "size > 5", "size = 1", "size = 2"]
    table = table_of(*texts)
    table.remove_filter(gone)
    expected = table_of(*(text for text in texts if text != gone))
    assert expected.measures() == table.measures()
    wanted, forwarded = Or(expected.forwards()), Or(table.forwards())
    assert (True, True) == (covers(wanted, forwarded), covers(forwarded, wanted))


def test_removing_a_hidden_filter_tells_nobody() -> None:
    """Neighbours know the filter that covers it, and that stays."""
    change = table_of("size > 3", "size > 5").remove_filter("size > 5")
    assert ((), ()) == (change.added, change.withdrawn)


WASTEFUL = ("size < 50 AND speed < 3", "size >= 50 AND speed >= 3")
"""Together two of four quarters: merged imperfectly everything."""


def test_imperfect_merging_stops_at_the_stated_precision() -> None:
    """What it wastes is measured on the traffic; at precision 0 it does not look."""
    assert 1 == table_of(*WASTEFUL, merging=MergingPolicy.IMPERFECT, precision=0.4).measures().forwarded
    assert 2 == table_of(*WASTEFUL, merging=MergingPolicy.IMPERFECT, precision=0.9).measures().forwarded
    assert 2 == table_of(*WASTEFUL, merging=MergingPolicy.PERFECT).measures().forwarded
    assert 0.4 < table_of(*WASTEFUL, merging=MergingPolicy.IMPERFECT, precision=0.0).measures().precision < 0.6


def test_merges_come_apart_when_what_made_them_precise_is_gone() -> None:
    """A third filter wants what the two others waste; without it they are too imprecise."""
    third = "size >= 0 AND weight IS NULL"
    table = table_of(third, *WASTEFUL, merging=MergingPolicy.IMPERFECT, precision=0.9)
    assert 2 == table.measures().forwarded
    assert 1.0 == table.measures().precision
    table.remove_filter(third)
    assert 2 == table.measures().forwarded
    assert 1.0 == table.measures().precision


def test_a_table_in_haste_merges_to_a_bounded_size_and_still_covers() -> None:
    """Merged filters have at most so many literals; what covers many hides them all, though few are tried in vain."""
    table = RoutingTable(effort=QUICK)
    for number in range(250):
        table.add_filter(str(number), said(f"type = 'unit' AND name = 'n{number}'"))
        table.add_filter(f"box {number}", said(f"type = 'unit' AND x BETWEEN {number} AND {number} AND y = {number}"))
    sizes = [sum(len(atom.literals) for atom in atoms(filter)) for filter in table.forwards()]
    assert max(sizes) <= QUICK.literals
    assert len([one for one in sizes if one > 4]) == 3
    table.add_filter("all", said("type = 'unit'"))
    assert ["type = 'unit'"] == forwarded(table)
    table.remove_filter("all")
    assert 500 == table.measures().filters and sorted(sizes) == sorted(
        sum(len(atom.literals) for atom in atoms(filter)) for filter in table.forwards()
    )


def test_a_filter_that_never_holds_is_not_forwarded() -> None:
    """It is counted, and can be removed."""
    table = table_of("type = 5")
    assert (1, 0) == (table.measures().filters, table.measures().forwarded)
    table.remove_filter("type = 5")
    assert "type = 5" not in table


def test_a_neighbour_knows_equal_filters_as_one() -> None:
    """It is withdrawn when the last of them goes."""
    table = RoutingTable(MergingPolicy.NONE)
    assert 1 == len(table.add_filter("a", said("size > 3")).added)
    assert () == table.add_filter("b", said("size > 3")).added
    assert () == table.remove_filter("a").withdrawn
    assert 1 == len(table.remove_filter("b").withdrawn)
