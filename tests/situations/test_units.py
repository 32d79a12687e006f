"""Units of measure: which there are, and what converts into what."""

from __future__ import annotations

import math

import pytest

from nearcast.situations.units import conversion, converted, is_unit


@pytest.mark.parametrize(
    "name", ["degC", "°C", "%", "percent", "ppm", "m/s", "µg/m^3", "kg * m**2", "nautical_mile", "lux"]
)
def test_units_there_are(name: str) -> None:
    """As people write them."""
    assert is_unit(name)


@pytest.mark.parametrize(
    "name", ["", "celcius", "7", "m**9**9**9", "m^99", "2 * m", "__import__('os')", "m" * 61, "m.n"]
)
def test_what_is_no_unit(name: str) -> None:
    """Nor is it computed to find that out."""
    assert not is_unit(name)


@pytest.mark.parametrize(
    ("given", "wanted", "value", "expected"),
    [
        ("degF", "degC", 212, 100),
        ("kelvin", "degC", 0, -273.15),
        ("km/h", "m/s", 36, 10),
        ("percent", "ppm", 1, 10_000),
    ],
)
def test_conversions(given: str, wanted: str, value: float, expected: float) -> None:
    """A scale and a shift."""
    found = conversion(given, wanted)
    assert found is not None
    assert pytest.approx(expected) == value * found[0] + found[1]


@pytest.mark.parametrize(
    ("given", "wanted", "value", "expected"),
    [("degF", "degC", 212, 100.0), ("degF", "degC", 32, 0.0), ("degC", "degF", 37.0, 98.6), ("inch", "m", 1, 0.0254)],
)
def test_readings_are_rounded_once(given: str, wanted: str, value: float, expected: float) -> None:
    """So a rule holds at its boundary, in whichever unit a sensor tells."""
    found = conversion(given, wanted)
    assert found is not None
    assert expected == converted(value, found)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1.7e308])
def test_what_is_no_finite_reading_stays_none(value: float) -> None:
    """It is refused as out of range, and stops nothing."""
    found = conversion("km", "mm")
    assert found is not None
    assert not math.isfinite(converted(value, found))


@pytest.mark.parametrize(("given", "wanted"), [("m", "degC"), ("decibelmilliwatt", "watt"), ("nonsense", "m")])
def test_what_does_not_convert(given: str, wanted: str) -> None:
    """Other dimensions, curves, and what is no unit."""
    assert conversion(given, wanted) is None


@pytest.mark.parametrize(("value", "expected"), [(20.0, math.inf), (-1, -math.inf), (0, 0.0)])
def test_a_unit_beyond_all_numbers_stops_nothing(value: float, expected: float) -> None:
    """Senders write units: what is read in one that no double can hold is infinite, and so out of range."""
    found = conversion("Qm^9*Qm^9/m^9/m^8", "m")
    assert found is not None
    assert expected == converted(value, found)
