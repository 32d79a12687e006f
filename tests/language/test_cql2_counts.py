"""Other people's predicates with exact counts, of the classes of CQL2 that are spoken here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache

import pyarrow as pa
import pytest

from nearcast.decision.match import Index
from nearcast.errors import DefinitionError, Mark
from nearcast.language.cql2 import parse
from nearcast.language.history import read_tables
from tests.shared import shared

SPOKEN = ("basic-cql2", "advanced-comparison-operators")


def predicates() -> Iterator[tuple[str, str, int]]:
    for each in json.loads(shared("cases/cql2/predicates.json").read_text()):
        if each["conformance_class"] in SPOKEN:
            yield each["source"], each["predicate"], each["expected_count"]


@cache
def tables(source: str) -> list[pa.Table]:
    return list(read_tables([shared(f"cases/cql2/data/{source}.geojson")], (), pytest.fail))


def test_predicates_select_as_many_features_as_they_should() -> None:
    """All but those with a literal DATE, which are refused as not spoken yet."""
    refused = []
    for source, predicate, count in predicates():
        try:
            index = Index((), [parse(predicate, Mark("predicate"))])
        except DefinitionError:
            refused.append(predicate)
            continue
        assert count == sum(int(index.selected(table)[0].sum()) for table in tables(source)), predicate
    assert all("DATE(" in predicate or "date" in predicate for predicate in refused), refused
