"""What relations measure: places, numbers, times, money, ratios; and how far a value moves in each (semantics §7)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from nearcast.geo.distance import distance, wgs84
from nearcast.model.event import Place
from nearcast.model.values import is_exact

ROUNDING = 1e-12
"""Relative room for the rounding of doubles: some thousand times what a few operations lose."""

UNDERFLOW = 1e-150
"""The square root of the smallest doubles: what a distance of almost nothing may be wrong by."""

SMALLEST = 1e-290
"""Below, doubles are not exact to so many digits any more."""

GEODESIC_ROUNDING = 1e-6
"""Metres: far above what a geodesic, or the point of the ellipsoid in space, is computed wrong by."""

Vector = tuple[float, ...]


class Dimension(ABC):
    """What is read from two values, and how far one value may move before the reading can pass a threshold.

    The one law that strategies rest on: where the two values of a pair move by less than `room(reading, threshold)`
    together, as `moved` measures it, the reading stays on the side of the threshold on which it is.
    """

    name: str

    @abstractmethod
    def reading(self, a: Any, b: Any) -> Any:
        """The number that a predicate compares with its limit; None where the values do not compare."""

    @abstractmethod
    def moved(self, before: Any, now: Any) -> float | None:
        """How far a value has moved, at least 0; None where that says nothing about readings."""

    def room(self, reading: Any, threshold: float) -> float:
        """How far both values together may surely move: for a distance, what is between it and the threshold."""
        value = float(reading)
        # What has overflowed could come back by a step that is nothing beside it.
        if not math.isfinite(value):
            return 0.0
        return max(0.0, abs(value - threshold) - ROUNDING * (abs(value) + abs(threshold)) - UNDERFLOW)

    def vector(self, value: Any) -> Vector | None:
        """A point such that two points are never farther apart than their values' reading; None: there is none."""
        return None


class Planar(Dimension):
    """Metres between planar places; heights count where both have one."""

    name = "planar"

    def reading(self, a: Place, b: Place) -> float | None:
        """Metres; None for a place that is geographic."""
        return distance(a, b) if a.coordinates == b.coordinates == "planar" else None

    def moved(self, before: Place, now: Place) -> float | None:
        """Metres; None where a height came or went: the distance to others then changes without a movement."""
        return self.reading(before, now) if (before.z is None) == (now.z is None) else None

    def vector(self, value: Place) -> Vector | None:
        """The coordinates."""
        if value.coordinates != "planar":
            return None
        return (value.x, value.y) if value.z is None else (value.x, value.y, value.z)


class Geodesic(Dimension):
    """Metres along WGS84 between geographic places; heights do not count."""

    name = "geodesic"

    def reading(self, a: Place, b: Place) -> float | None:
        """Metres; None for a place that is planar."""
        return distance(a, b) if a.coordinates == b.coordinates == "geographic" else None

    def moved(self, before: Place, now: Place) -> float | None:
        """Metres."""
        return self.reading(before, now)

    def room(self, reading: float, threshold: float) -> float:
        """What is between distance and threshold, less what a geodesic may be wrong by."""
        return max(0.0, super().room(reading, threshold) - GEODESIC_ROUNDING)

    def vector(self, value: Place) -> Vector | None:
        """The point of the ellipsoid in space, metres: the straight way through the earth is never the longer one."""
        if value.coordinates != "geographic":
            return None
        lon, lat = math.radians(value.x), math.radians(value.y)
        ellipsoid = wgs84()
        across = ellipsoid.a / math.sqrt(1 - ellipsoid.es * math.sin(lat) ** 2)
        return (
            across * math.cos(lat) * math.cos(lon),
            across * math.cos(lat) * math.sin(lon),
            across * (1 - ellipsoid.es) * math.sin(lat),
        )


class Places(Dimension):
    """Metres between places of either kind, for relations that are defined before anything is known of channels."""

    name = "places"

    def reading(self, a: Place, b: Place) -> float | None:
        """Metres; None between a planar and a geographic place."""
        return _of(a).reading(a, b)

    def moved(self, before: Place, now: Place) -> float | None:
        """Metres, as the kind of place has them."""
        return _of(before).moved(before, now)

    def room(self, reading: float, threshold: float) -> float:
        """What surely is between distance and threshold for either kind."""
        return max(0.0, super().room(reading, threshold) - GEODESIC_ROUNDING)

    def vector(self, value: Place) -> Vector | None:
        """As the kind of place has it; that two are of one kind, the reading says."""
        return _of(value).vector(value)


def _of(place: Place) -> Dimension:
    return _PLANAR if place.coordinates == "planar" else _GEODESIC


_PLANAR, _GEODESIC = Planar(), Geodesic()


class Numeric(Dimension):
    """The difference of two numbers without its sign."""

    name = "numeric"

    def reading(self, a: float, b: float) -> float | None:
        """|a - b|, exact where both are integers."""
        return abs(a - b)

    def moved(self, before: float, now: float) -> float | None:
        """|now - before|."""
        return float(abs(now - before))

    def vector(self, value: float) -> Vector | None:
        """The number alone, if a double holds it."""
        return (float(value),) if is_exact(value) else None


class Difference(Dimension):
    """One number less the other, with its sign."""

    name = "signed difference"

    def reading(self, a: float, b: float) -> float | None:
        """a - b, exact where both are integers."""
        return a - b

    def moved(self, before: float, now: float) -> float | None:
        """|now - before|."""
        return float(abs(now - before))


class Temporal(Dimension):
    """Seconds between two moments."""

    name = "temporal"

    def reading(self, a: datetime, b: datetime) -> float | None:
        """Seconds."""
        return abs((a - b).total_seconds())

    def moved(self, before: datetime, now: datetime) -> float | None:
        """Seconds."""
        return self.reading(before, now)


class Money(NamedTuple):
    """An amount of a currency."""

    amount: Decimal | int
    currency: str


class Monetary(Dimension):
    """The difference of two amounts of one currency, exact; amounts of two currencies do not compare."""

    name = "monetary"

    def reading(self, a: Money, b: Money) -> Decimal | None:
        """|a - b| in the currency of both."""
        return abs(Decimal(a.amount) - Decimal(b.amount)) if a.currency == b.currency else None

    def moved(self, before: Money, now: Money) -> float | None:
        """The same of one value."""
        reading = self.reading(before, now)
        return None if reading is None else float(reading)


class Ratio(Dimension):
    """One number divided by the other, where both are above 0: price over earnings. Moves are factors."""

    name = "ratio"

    def reading(self, a: float, b: float) -> float | None:
        """a / b; None where either is not above 0."""
        return a / b if a > 0 and b > 0 else None

    def moved(self, before: float, now: float) -> float | None:
        """The logarithm of the factor."""
        if not (before > 0 and now > 0):
            return None
        factor = now / before
        # A factor beyond all doubles, or below them, is one that no radius measures.
        return abs(math.log(factor)) if 0 < factor < math.inf else math.inf

    def room(self, reading: float, threshold: float) -> float:
        """The logarithm of the factor between reading and threshold; without end where none leads there."""
        if threshold < 0:
            return math.inf
        if not SMALLEST < min(reading, threshold) <= reading < math.inf:
            return 0.0
        # Not the logarithm of the quotient: that may lie beyond all doubles, or below them, where both do not.
        return max(0.0, abs(math.log(reading) - math.log(threshold)) - ROUNDING)


DIMENSIONS: dict[str, Dimension] = {
    one.name: one for one in (_PLANAR, _GEODESIC, Places(), Numeric(), Difference(), Temporal(), Monetary(), Ratio())
}
"""Every dimension by its name."""
