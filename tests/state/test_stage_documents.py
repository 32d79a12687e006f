"""What stages keep as data."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.columns import places_of
from nearcast.model.event import Place
from nearcast.model.relation import Relation
from nearcast.model.values import INTEGER_MAXIMUM, INTEGER_MINIMUM, Value
from nearcast.state.stage_documents import (
    PLACE_FIELDS,
    VALUE,
    StageDocument,
    place_columns,
    value_column,
    values_in,
)
from tests.relations.stories import defined

floats = st.floats(allow_nan=False)
values = st.one_of(
    st.integers(INTEGER_MINIMUM, INTEGER_MAXIMUM),
    floats,
    st.text(st.characters(exclude_categories=["Cs"])),
    st.booleans(),
    st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)),
)
places = st.one_of(
    st.none(),
    st.builds(Place, st.sampled_from(["planar", "geographic"]), floats, floats, st.one_of(st.none(), floats)),
)


@given(st.lists(values))
def test_values_come_back_as_they_were(found: list[Value]) -> None:
    """Each of its type: 1, 1.0 and true are three."""
    again = values_in(pa.chunked_array([value_column(found)], VALUE))
    assert [(type(one), one) for one in found] == [(type(one), one) for one in again]


@given(st.lists(places))
def test_places_come_back_as_they_were(found: list[Place | None]) -> None:
    """Also what is nowhere, and without a height."""
    assert found == places_of(pa.table(place_columns(found), pa.schema(PLACE_FIELDS)))


def test_what_the_registry_has_is_named_and_what_it_has_otherwise_is_kept() -> None:
    """A name that is nobody's, or another thing's, is an error, not something else."""
    one, other = (defined("r", margin=margin).relation for margin in (0, 3))
    document = StageDocument()
    references = [document.refer(each, {"r": one}) for each in (one, other)]
    assert ["r", 0] == references
    assert [one, other] == [document.referred(each, {"r": one}, Relation) for each in references]
    with pytest.raises(LookupError):
        document.referred("s", {"r": one}, Relation)
    with pytest.raises(TypeError, match="expected a Relation, got a str"):
        document.referred("r", {"r": "text"}, Relation)  # type: ignore[dict-item]


def test_a_table_of_other_columns_is_refused() -> None:
    """As another version may have written it."""
    document = StageDocument(tables={"places": pa.table({"x": [1]})})
    with pytest.raises(pa.ArrowInvalid, match="expected the columns"):
        document.table("places", pa.schema(PLACE_FIELDS))
    assert 0 == len(document.table("none", pa.schema(PLACE_FIELDS)))
