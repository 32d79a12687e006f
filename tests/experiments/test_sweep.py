"""A sweep gives what a loop gives, tells how far it is, and says what went wrong."""

from __future__ import annotations

import math
from itertools import accumulate

import pytest
from pyspark.sql import SparkSession

from experiments.sweep import sweep

pytestmark = pytest.mark.spark


def test_outcomes_come_in_the_order_of_the_parameters(spark: SparkSession) -> None:
    """As a loop has them, and each is told of once."""
    told: list[int] = []
    assert [math.sqrt(number) for number in range(5)] == sweep(math.sqrt, range(5), told.append)
    assert 5 == sum(told)
    assert all(count > 0 for count in accumulate(told))


def test_an_exception_arrives_as_it_was_raised(spark: SparkSession) -> None:
    """Not wrapped into one of Spark's; the session goes on."""
    with pytest.raises(ValueError, match=r"domain|nonnegative"):
        sweep(math.sqrt, [4, -1, 9])
    assert [] == sweep(math.sqrt, [])
