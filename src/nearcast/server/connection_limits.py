"""How many connections a server has at once: in total, of each address, and of those that have not asked anything yet.

A connection that waits for a request's header, or for the next request, is *idle*. Where there are too many, the one
that has been idle longest is closed for a new one: so whoever opens connections and says nothing holds up nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

from nearcast.runtime.error_log import RateLimitedErrorLog


@dataclass(slots=True)
class OpenConnections:
    """The connections of a server. `total`, `each` (of an address) and `idle` are how many there may be.

    A connection is known by any key; `close` ends one. Used from one event loop.
    """

    total: int
    each: int
    idle: int
    refused: Callable[[str], object] = lambda reason: None
    """Hears of every connection that was refused or closed for a new one, and why."""
    error_log: RateLimitedErrorLog = field(default_factory=lambda: RateLimitedErrorLog("connections"))
    _addresses: dict[Hashable, str] = field(default_factory=dict)
    _counts: Counter[str] = field(default_factory=Counter)
    _idle: dict[Hashable, Callable[[], object]] = field(default_factory=dict)
    _by_address: dict[str, dict[Hashable, None]] = field(default_factory=dict)

    def open(self, key: Hashable, address: str, close: Callable[[], object]) -> bool:
        """Takes a new connection, which is idle; whether there is room for it."""
        if self._counts[address] >= self.each and not self._close_idle(self._by_address.get(address, {}), "address"):
            self._log_refusal(f"of {address}", self.each)
            return False
        if len(self._addresses) >= self.total and not self._close_idle(self._idle, "connections"):
            self._log_refusal("in total", self.total)
            return False
        self._addresses[key] = address
        self._counts[address] += 1
        self.rest(key, close)
        self.error_log.works("accepting")
        return True

    def _log_refusal(self, whose: str, most: int) -> None:
        self.refused("connections")
        self.error_log.failed("accepting", ConnectionError(f"expected at most {most:,} connections {whose}, got more"))

    def _close_idle(self, idle: Iterable[Hashable], reason: str) -> bool:
        """Closes the connection that has been idle longest; False if none is."""
        key = next(iter(idle), None)
        if key is None:
            return False
        close = self._idle[key]
        self.end(key)
        self.refused(reason)
        close()
        return True

    def rest(self, key: Hashable, close: Callable[[], object]) -> None:
        """A connection waits for a request."""
        address = self._addresses.get(key)
        if address is None or key in self._idle:
            return
        self._idle[key] = close
        self._by_address.setdefault(address, {})[key] = None
        if len(self._idle) > self.idle:
            self._close_idle(self._idle, "idle")

    def work(self, key: Hashable) -> None:
        """A connection has asked something."""
        if self._idle.pop(key, None):
            idle = self._by_address[self._addresses[key]]
            del idle[key]
            if not idle:
                del self._by_address[self._addresses[key]]

    def end(self, key: Hashable) -> None:
        """A connection is closed."""
        self.work(key)
        address = self._addresses.pop(key, None)
        if address is not None:
            self._counts[address] -= 1
            if not self._counts[address]:
                del self._counts[address]

    def __len__(self) -> int:
        return len(self._addresses)
