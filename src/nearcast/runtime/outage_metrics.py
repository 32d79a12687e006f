"""Metrics of something that this process cannot do without, and that may not answer for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


class OutageMetrics:
    """How long the journal has not answered: now, in all, and how many times. `outage` gives these three."""

    def __init__(
        self, registry: CollectorRegistry, prefix: str, outage: Callable[[], tuple[float, float, int]]
    ) -> None:
        self._prefix, self._outage = prefix, outage
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """The metrics as of now."""
        seconds, total, times = self._outage()
        yield GaugeMetricFamily(
            f"{self._prefix}_journal_outage_seconds", "For how long the journal has not answered; 0: it does", seconds
        )
        yield CounterMetricFamily(
            f"{self._prefix}_journal_unavailable_seconds", "Seconds in which the journal did not answer, in all", total
        )
        yield CounterMetricFamily(f"{self._prefix}_journal_outages", "Times that the journal did not answer", times)
