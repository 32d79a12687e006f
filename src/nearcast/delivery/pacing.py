"""How fast to send to one client: a token bucket and a window, fed by acknowledgements and round trips (semantics §5).

Little is kept in flight on purpose: what is in flight can no longer be overtaken by something more urgent.

Rate and round trip are measured as BBR does (Cardwell et al., 2016): the rate at which acknowledged bytes arrive, the
greatest over a few seconds; a sample counts in full only where nothing but the link held the sending back, otherwise
only if it raises the estimate. A stated bandwidth is a cap: of it and the measured one the lesser counts.

A link carries things in order, so the answer to a ping shows that all that was sent before it has arrived. A receiver
that acknowledges much later than that works, and its link is not slow: what was measured by then counts no more.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

BYTES_PER_KILOBIT = 125.0
GAINS = (1.25, 0.75, 0.97, 0.97, 0.97, 0.97, 0.97, 0.97)
"""In turns faster than measured, so that a link that became faster is noticed; slower, so that this is drained; and a
little below, so that no queue stands on the link, unseen because every round trip contains it."""
SHORTEST_TURN = 0.5
SEARCH_GAIN, SEARCH_ROUNDS, SEARCH_RISE, SHORTEST_ROUND = 2.0, 3, 1.2, 0.05
"""At first, and whenever the estimate rises by a fifth within a round trip, the rate is doubled until it has not risen
for three: what was slow for a moment is soon fast again."""
RATE_SECONDS, TRIP_SECONDS = 10.0, 60.0
"""How long the greatest rate and the least round trip are kept."""
FIRST_WINDOW, LEAST_WINDOW, GREATEST_WINDOW = 16_384, 2_048, 1_048_576
GREATEST_COUNT = 1_000
BURST = 0.1
"""Seconds of the rate that may be sent at once."""
MOMENT = 1e-6
"""Seconds not worth waiting for."""
FULL_SAMPLES, FULL_SECONDS = 8, 1.0
"""A measured bandwidth is reported to others after so many full samples over so long a time."""
LAPSE_SECONDS = 5.0
"""Without a full sample for so long it is unknown again: what holds nothing but the sending back shows nothing."""
WORK_SECONDS, WORK_SHARE = 0.1, 0.5
"""What is acknowledged later than it arrived by more than this, and this share of a round trip, was worked on."""


@dataclass(slots=True)
class InFlight:
    """What was known when a delivery was sent: its bytes, when, and how much had been acknowledged by when."""

    size: int
    sent: float
    acknowledged: int
    acknowledged_at: float
    full: bool
    arrived: float | None = None


@dataclass(slots=True)
class Pacing:
    """The pace of one connection. `stated` is a cap in kbit/s, None for none. Times are seconds, of any one clock."""

    stated: float | None = None
    round_trip: float | None = None
    _flights: dict[int, InFlight] = field(default_factory=dict)
    _in_flight: int = 0
    _acknowledged: int = 0
    _acknowledged_at: float = 0.0
    _rates: deque[tuple[float, float]] = field(default_factory=deque)
    _trips: deque[tuple[float, float]] = field(default_factory=deque)
    _capped: bool = True
    """Whether the stated bandwidth held the sending back last, rather than a full window or the measured one."""
    _searching: bool = True
    _stalls: int = 0
    _round_rate: float = 0.0
    _round_ends: float = 0.0
    _full: int = 0
    _full_since: float = 0.0
    _full_last: float = 0.0
    worked_on: bool = False
    """Whether what was acknowledged last had arrived long before: not the link holds the receiver back."""
    _arrived: int = 0
    """Bytes in flight that have arrived, as an answered ping showed: not the link holds them up."""
    _tokens: float = 0.0
    _filled: float | None = None

    def begin_with(self, measured: float, now: float) -> None:
        """What the link carried in kbit/s, as far as somebody measured it before; what is measured replaces it."""
        if measured > 0:
            self._rates.append((now, measured * BYTES_PER_KILOBIT))

    def delay(self, size: int, now: float) -> float | None:
        """Seconds until a delivery of this size may be sent, 0 for now; None: only after an acknowledgement."""
        if self._flights and (self._in_flight + size > self.window() or len(self._flights) >= GREATEST_COUNT):
            self._capped = False
            return None
        rate = self.rate(self._gain(now))
        if rate is None:
            return 0.0
        self._fill(rate, now)
        owed = -self._tokens / rate
        if owed <= MOMENT:
            return 0.0
        self._capped = self.stated is not None and rate == self.stated * BYTES_PER_KILOBIT
        return owed

    def _fill(self, rate: float, now: float) -> None:
        if self._filled is None:
            self._tokens = 0.0
        earned = rate * (BURST if self._filled is None else now - self._filled)
        self._tokens = min(self._tokens + earned, rate * BURST)
        self._filled = now

    def sent(self, position: int, size: int, now: float, more: bool) -> None:
        """A delivery was sent; `more`: others wait, so it is not for want of them if the link is not full."""
        if not self._flights:
            self._acknowledged_at = now
        held_by_cap = self.stated is not None and self._capped
        full = more and not held_by_cap and not self._arrived
        flight = InFlight(size, now, self._acknowledged, self._acknowledged_at, full)
        self._flights[position] = flight
        self._in_flight += size
        self._tokens -= size

    def acknowledged(self, position: int, now: float) -> None:
        """A delivery was acknowledged; one that is not in flight changes nothing."""
        flight = self._flights.pop(position, None)
        if flight is None:
            return
        self._in_flight -= flight.size
        self._acknowledged += flight.size
        self._acknowledged_at = now
        if flight.arrived is not None:
            self._arrived -= flight.size
            if now - flight.arrived > WORK_SECONDS + WORK_SHARE * (self.round_trip or 0.0):
                self._forget_rates()
                return
        self.round_trip_taken(now - flight.sent, now)
        elapsed = now - flight.acknowledged_at
        if elapsed > 0:
            self._sample((self._acknowledged - flight.acknowledged) / elapsed, flight.full, now)

    def arrived(self, before: float, now: float) -> None:
        """A ping was answered: all that was sent before it has arrived."""
        for flight in self._flights.values():
            if flight.sent > before:
                # They are in the order of sending.
                return
            if flight.arrived is None:
                flight.arrived, flight.full = now, False
                self._arrived += flight.size

    def _forget_rates(self) -> None:
        """What was measured was the receiver's work: the link is as good as unknown."""
        self._rates.clear()
        self._searching, self._stalls, self._round_rate, self._full = True, 0, 0.0, 0
        self.worked_on = True

    def _sample(self, rate: float, full: bool, now: float) -> None:
        _forget(self._rates, now - RATE_SECONDS)
        if not full and rate <= max((value for _, value in self._rates), default=float("inf")):
            return
        # Rates only fall from the front on, so the greatest of those kept is the first.
        while self._rates and self._rates[-1][1] <= rate:
            self._rates.pop()
        self._rates.append((now, rate))
        if full:
            if not self._full or now - self._full_last > LAPSE_SECONDS:
                self._full, self._full_since = 0, now
            self._full, self._full_last = self._full + 1, now
            self.worked_on = False
        if now >= self._round_ends:
            self._end_round(now)

    def _end_round(self, now: float) -> None:
        """Looks once per round trip whether the estimate still rises."""
        best = self._rates[0][1]
        rises = best >= SEARCH_RISE * self._round_rate
        self._stalls = 0 if rises else self._stalls + 1
        self._searching = self._stalls < SEARCH_ROUNDS if self._searching else rises
        self._round_rate = best
        self._round_ends = now + max(self._trips[0][1], SHORTEST_ROUND)

    def round_trip_taken(self, seconds: float, now: float) -> None:
        """A round trip was measured, by an acknowledgement or a ping."""
        smoothed = seconds if self.round_trip is None else self.round_trip + (seconds - self.round_trip) / 8
        self.round_trip = smoothed
        _forget(self._trips, now - TRIP_SECONDS)
        # Trips only rise from the front on, so the least of those kept is the first.
        while self._trips and self._trips[-1][1] >= seconds:
            self._trips.pop()
        self._trips.append((now, seconds))

    def _gain(self, now: float) -> float:
        if self._searching:
            return SEARCH_GAIN
        turn = max(SHORTEST_TURN, self._trips[0][1] if self._trips else 0.0)
        return GAINS[int(now / turn) % len(GAINS)]

    def rate(self, gain: float = 1.0) -> float | None:
        """Bytes per second to send at; None: as fast as the window allows."""
        rates = [self._rates[0][1] * gain] if self._rates else []
        if self.stated is not None:
            rates.append(self.stated * BYTES_PER_KILOBIT)
        return max(min(rates), 1.0) if rates else None

    def window(self) -> int:
        """Bytes that may be in flight: twice what the link holds, within bounds; more while its rate is searched."""
        rate = self.rate()
        if not self._rates or not self._trips or rate is None:
            return FIRST_WINDOW
        twice = 2 * rate * self._trips[0][1] * (SEARCH_GAIN if self._searching else 1.0)
        return int(min(max(twice, LEAST_WINDOW), GREATEST_WINDOW))

    def measured(self, now: float) -> float | None:
        """The measured bandwidth in kbit/s, once the link was full long enough to know it, until that lapses."""
        lasted = now - self._full_since >= FULL_SECONDS and now - self._full_last <= LAPSE_SECONDS
        if self._full < FULL_SAMPLES or not lasted or not self._rates:
            return None
        return self._rates[0][1] / BYTES_PER_KILOBIT

    def in_flight(self) -> int:
        """Bytes sent and not acknowledged."""
        return self._in_flight


def _forget(samples: deque[tuple[float, float]], before: float) -> None:
    """Drops what is older, but for the newest: an idle link keeps its last estimate."""
    while len(samples) > 1 and samples[0][0] < before:
        samples.popleft()
