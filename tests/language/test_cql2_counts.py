"""Predicates with exact counts, of every class of CQL2: other people's, and ours, each as text and as JSON.

The counts of ours, `predicates.jsonl`, were made by a separate evaluator of plain Python and Shapely.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from nearcast.errors import Mark
from nearcast.filters.evaluate import NO_CONTEXT, truth
from nearcast.language.cql2 import parse, parse_node, write, write_json
from nearcast.language.event_files import read_tables
from nearcast.language.nodes import from_data
from nearcast.matching.matcher import FilterMatcher
from nearcast.model.columns import to_events
from nearcast.state.timeline import Environment
from tests.shared import found, shared

HERE = Mark("predicate", 1, 1)

ERRATA = {"ACCENTI(name) LIKE accenti('Ch%')": 3, "ACCENTI(CASEI(name)) LIKE accenti(casei('cHis%'))": 1}
"""Two counts that the standard's data contradict: Chicago, Chengdu, Chișinău begin with Ch, one of them with Chis."""


OWN = [json.loads(line) for line in Path(__file__).with_name("predicates.jsonl").read_text("utf-8").splitlines()]


def cases() -> Iterator[Any]:
    path = found("cases", "cql2", "predicates.json")
    for each in json.loads(path.read_text(encoding="utf-8")) if path else ():
        count = ERRATA.get(each["predicate"], each["expected_count"])
        yield pytest.param(each["source"], each["predicate"], count, id=each["predicate"][:60])
    for each in OWN if path else ():
        yield pytest.param(each["source"], each["text"], each["count"], id=each["text"][:60])


@cache
def tables(source: str) -> list[pa.Table]:
    return list(read_tables([shared(f"cases/cql2/data/{source}.geojson")], (), pytest.fail))


CASES = list(cases()) or [pytest.param("", "", 0, marks=pytest.mark.skip("the shared data are not there"))]


@pytest.mark.parametrize(("source", "predicate", "count"), CASES)
def test_a_predicate_selects_as_many_features_as_it_should(source: str, predicate: str, count: int) -> None:
    """In columns, and event by event."""
    filter = parse(predicate, HERE)
    index = FilterMatcher((), [filter])
    assert count == sum(int(index.held(table, Environment())[0].sum()) for table in tables(source))
    events = [event for table in tables(source) for event in to_events(table)]
    assert count == sum(truth(filter, event, NO_CONTEXT) is True for event in events)


@pytest.mark.parametrize(("source", "predicate", "count"), CASES)
def test_a_predicate_is_written_as_it_was_read(source: str, predicate: str, count: int) -> None:
    """As text and as JSON."""
    filter = parse(predicate, HERE)
    assert filter == parse(write(filter), HERE)
    assert filter == parse_node(from_data(write_json(filter), HERE))
    assert filter == parse(json.dumps(write_json(filter)), HERE)


@pytest.mark.parametrize("case", OWN, ids=[each["text"][:60] for each in OWN])
def test_a_predicate_selects_as_many_features_as_json(case: dict[str, Any]) -> None:
    """Whichever of the two encodings a filter is written in."""
    filter = parse(json.dumps(case["json"]), HERE)
    index = FilterMatcher((), [filter])
    assert case["count"] == sum(int(index.held(table, Environment())[0].sum()) for table in tables(case["source"]))
