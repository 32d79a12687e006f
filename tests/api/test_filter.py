"""`nearcast.Filter`: one filter asked about one event, and about another filter."""

from __future__ import annotations

from typing import Any

import pytest

from nearcast import Filter
from nearcast.errors import DefinitionError, EventError

CLOUDEVENT = '{"specversion": "1.0", "id": "e", "type": "t", "source": "s", "data": {"n": 3}}'


@pytest.mark.parametrize("event", [{"n": 3}, CLOUDEVENT, CLOUDEVENT.encode()])
def test_an_event_is_a_dict_or_a_line(event: Any) -> None:
    """CQL2 may be text or JSON."""
    assert Filter("n > 2").matches(event)
    assert not Filter('{"op": ">", "args": [{"property": "n"}, 3]}').matches(event)


def test_an_explanation_tells_each_condition_and_why() -> None:
    """UNKNOWN is None, and what kept the filter from holding is marked."""
    found = Filter("n > 2 AND (kind = 'a' OR size < 5)").explain({"n": 3, "kind": "b"})
    assert (None, False) == (found.truth, found.matches)
    assert [("n > 2", True, False), ("kind = 'a'", False, True), ("size < 5", None, True)] == [
        (atom.text, atom.truth, atom.blocked) for atom in found.atoms
    ]
    assert "UNKNOWN  size < 5  (the event has no size)" in str(found)


def test_an_explanation_knows_nothing_but_the_event() -> None:
    """A condition about a user says so; so does one about the event's place."""
    [near, inside] = Filter("distance(user('ann'), this) < 5 OR S_WITHIN(geom, BBOX(0, 0, 1, 1))").explain({}).atoms
    assert (None, "nobody knows where user 'ann' was and the event has no position") == (near.truth, near.why)
    assert (None, "there was no geom") == (inside.truth, inside.why)


def test_a_comparison_has_an_event_for_each_difference() -> None:
    """With another filter or its text; lists make a difference where it is asked for."""
    found = Filter("n > 5").compare(Filter("n > 3"))
    assert ("SUBSET", None, 4) == (found.relation, found.only_first, (found.only_second or {})["n"])
    apart = Filter("n > 5").compare("n < 3")
    assert ("EMPTY", "INTERSECT") == (apart.relation, apart.repeated)
    assert "note: INTERSECT where an attribute may have several values" in str(apart)
    assert "INTERSECT" == Filter("n > 5").compare("n < 3", repeated=True).relation


def test_filters_of_one_form_are_equal() -> None:
    """However they are written."""
    assert Filter("n>1 and kind='a'") == Filter("n > 1 AND kind = 'a'") != Filter("n > 1")
    assert 1 == len({Filter("n>1"), Filter("n > 1")})
    assert ("n>1", "Filter('n>1')") == (str(Filter("n>1")), repr(Filter("n>1")))


def test_a_filter_with_faults_tells_all_of_what_it_found_and_where() -> None:
    """Under the name that was given."""
    with pytest.raises(DefinitionError, match="hot:1:4: expected"):
        Filter("n >", name="hot")
    with pytest.raises(DefinitionError, match="a filter as CQL2 text, got int"):
        Filter(7)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="other:1:4"):
        Filter("n > 1").compare("n >")


def test_what_a_filter_cannot_be_asked_about_is_refused() -> None:
    """Conditions about more than the event, and what is no event."""
    with pytest.raises(DefinitionError, match="a filter about the event alone, got a location term about users"):
        Filter("distance(user('ann'), this) < 5").matches({"n": 1})
    with pytest.raises(EventError, match="row 0: expected both lon and lat"):
        Filter("n > 1").matches({"lon": 5})
