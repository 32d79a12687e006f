"""Limits are read by name, and written as they were read."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import DefinitionError
from nearcast.language.definitions.files import load
from nearcast.language.definitions.limit_documents import limits_data
from nearcast.language.definitions.retention_documents import retention_data
from nearcast.language.event_files import read_file
from nearcast.model.event import Event
from nearcast.model.limits import Limits, Retention, RetentionBound

NAMED = st.fixed_dictionaries(
    {},
    optional={
        each.name: st.integers(1, 10**6).map(float if isinstance(each.default, float) else int)
        for each in fields(Limits)
    },
)


@given(NAMED)
def test_limits_are_read_as_they_were_written(given: dict[str, float]) -> None:
    """Those of the default are left out, since they are what is read without them."""
    limits = Limits(**given)
    assert limits == load([{"limits": limits_data(limits)}]).settings.limits


@pytest.mark.parametrize(
    "given, told",
    [
        ({"name_lenght": 5}, "did you mean name_length"),
        ({"name_length": 0}, "an integer from 1"),
        ({"name_length": "many"}, "an integer from 1"),
    ],
)
def test_a_limit_that_is_none_is_told(given: dict[str, object], told: str) -> None:
    """A name that is not there comes with a guess, a value with what is allowed."""
    with pytest.raises(DefinitionError) as caught:
        load([{"limits": given}])
    assert told in str(caught.value)


def test_the_limits_of_a_file_count_for_what_is_in_it() -> None:
    """Also where it stands before them."""
    document = {"subscriptions": [{"id": "s", "client": "c", "filter": "a = 1 OR b = 2"}], "clients": [{"id": "c"}]}
    assert load([{**document, "limits": {"filter_atoms": 2}}]).subscriptions
    with pytest.raises(DefinitionError, match=r"at most 1 atoms in one filter \(limit filter_atoms\), got 2"):
        load([{**document, "limits": {"filter_atoms": 1}}])


bounds = st.builds(RetentionBound, st.none() | st.integers(0, 10**6).map(float), st.none() | st.integers(1, 10**12))


@given(bounds, bounds, bounds, bounds, st.booleans())
def test_retention_is_read_as_it_was_written(
    events: RetentionBound, own: RetentionBound, outcomes: RetentionBound, letters: RetentionBound, archive: bool
) -> None:
    """By what is kept; deliveries go with their events at the latest."""
    retention = Retention(events, own, outcomes, letters, archive)
    if None not in (events.age, own.age) and (own.age or 0) > (events.age or 0):
        with pytest.raises(DefinitionError, match="a delivery goes with its event"):
            load([{"retention": retention_data(retention)}])
    else:
        assert retention == load([{"retention": retention_data(retention)}]).settings.retention


@pytest.mark.parametrize(
    "given, told",
    [
        ({"event": {"age": 5}}, "did you mean events"),
        ({"events": 5}, "a bound of retention: a mapping"),
        ({"events": {"size": 0}}, "an integer from 1"),
        ({"events": {"age": "long"}}, "age: a number and one of"),
        ({"archive": 1}, "true or false"),
    ],
)
def test_a_bound_that_is_none_is_told(given: dict[str, object], told: str) -> None:
    """With what is expected."""
    with pytest.raises(DefinitionError) as caught:
        load([{"retention": given}])
    assert told in str(caught.value)


def test_what_all_filters_of_files_have_together_has_a_limit() -> None:
    """The first that is beyond it is told, where it stands; at the default a thousand filters of sums fit."""
    sums = [{"id": f"s{n}", "client": "c", "filter": f"a + {n} > b OR a * {n} > b"} for n in range(1_000)]
    document = {"clients": [{"id": "c"}], "subscriptions": sums}
    assert 1_000 == len(load([document]).subscriptions)
    with pytest.raises(DefinitionError, match=r"subscriptions\[999\]: at most 1,998 different .* got 2,000 with"):
        load([{**document, "limits": {"expressions": 1_998}}])


LONG = "n" * 1_500


def named(longest: int) -> dict[str, Any]:
    """Definitions that are full of a long name."""
    return {
        "limits": {"name_length": longest},
        "channels": {LONG: {"coordinates": "planar"}},
        "awareness": {LONG: {"maximum": 10}},
        "roles": {LONG: {LONG: {LONG: [1]}}},
        "ontology": {"classes": {LONG: {}}},
        "clients": [{"id": LONG, "readings": {LONG: 1}, "lists": {LONG: ["a"]}}],
        "subscriptions": [{"id": LONG, "client": LONG, "filter": f"{LONG} = 1"}],
    }


def test_names_are_bounded_by_the_limits_of_their_own_file() -> None:
    """Of channels, readings, roles and classes too, whatever stands first."""
    assert LONG == load([named(1_500)]).clients[0].id
    assert LONG == load([{"clients": [{"id": LONG}]}, {"limits": {"name_length": 1_500}}]).clients[0].id
    with pytest.raises(DefinitionError) as caught:
        load([named(1_499)])
    faults = [fault for fault in caught.value.faults if "at most 1,499 characters" in fault.expected]
    assert len(faults) >= 6


@pytest.mark.parametrize("longest", [5, 1_500])
def test_events_of_files_have_names_under_the_limits_of_the_definitions(tmp_path: Path, longest: int) -> None:
    """CloudEvents and features alike, as they have where they are published."""
    for length in (longest, longest + 1):
        name = "n" * length
        event = {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": {name: 1}}
        feature = {"type": "Feature", "id": name, "properties": {"type": "t", "source": "s"}, "geometry": None}
        other = {"type": "Feature", "id": "1", "properties": {"type": "t", "source": "s", name: 1}, "geometry": None}
        lines = [json.dumps(one) for one in (event, feature, other)]
        if longest < len("specversion"):
            lines = lines[1:]
        (tmp_path / "e.jsonl").write_text("\n".join(lines))
        found = [one for _, one in read_file(tmp_path / "e.jsonl", (), None, longest)]
        assert {length == longest} == {isinstance(one, Event) for one in found}
