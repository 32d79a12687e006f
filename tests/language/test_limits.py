"""Limits are read by name, and written as they were read."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import DefinitionError
from nearcast.language.definitions.files import load
from nearcast.language.definitions.limit_documents import limits_data
from nearcast.model.limits import Limits

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
