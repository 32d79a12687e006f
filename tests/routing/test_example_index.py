"""Of many filters the few that may cover another, or be covered: none is missed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.filters.evaluate import NO_CONTEXT, truth
from nearcast.model.event import Event
from nearcast.model.filter import And, Atom, Filter, Operator
from nearcast.routing.filter_index import ExampleIndex, required
from tests.random_filters import events, filters

Kept = tuple[Filter, Event | None]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(filters, st.none() | events()), max_size=6), filters, events(), st.data())
def test_none_is_missed(some: list[Kept], filter: Filter, event: Event, data: st.DataObject) -> None:
    """Whatever was added and removed: neither who selects an event, nor whose example a filter selects."""
    index: ExampleIndex[int] = ExampleIndex()
    for number, (own, example) in enumerate(some):
        index.add_item(number, own, example)
    gone = data.draw(st.sets(st.integers(0, len(some) - 1))) if some else set()
    for number in gone:
        index.remove_item(number, *some[number])
    kept = {number: one for number, one in enumerate(some) if number not in gone}
    selecting = {number for number, (own, _) in kept.items() if truth(own, event, NO_CONTEXT) is True}
    selected = {number for number, (_, one) in kept.items() if one is None or truth(filter, one, NO_CONTEXT) is True}
    assert selecting <= set(index.selecting(event)) <= set(kept)
    assert selected <= set(index.selected_by(filter)) <= set(kept)
    assert set(kept) == set(index.selecting(None))


def test_what_a_large_conjunction_requires_is_read_in_one_pass() -> None:
    """Of each name the fewest texts, the first where it is even; twenty thousand names are no more than their sum."""
    names = [f"n{number}" for number in range(20_000)]
    one = [Atom(name, Operator.IN, ("a", "b")) for name in names]
    two = [Atom(name, Operator.EQ, "b") for name in names[::2]]
    found = required(And((*one, *two)))
    assert list(found) == names
    assert [{"b"}, {"a", "b"}] == [found["n0"], found["n1"]]
