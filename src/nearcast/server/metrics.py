"""What the server counts: Prometheus metrics in a registry of their own, and recent latencies for people."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

RECENT = 2_000
"""Latencies kept per priority for the percentiles of the status."""
BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.7, 1, 2, 5, 10, 30, 60, 300, 1800)


class PriorityMetrics(NamedTuple):
    """The metrics of one priority."""

    deliveries: Counter
    sent: Counter
    to_send: Histogram
    to_acknowledge: Histogram


class ServerMetrics:
    """The metrics of one server. Priorities are labels; withheld deliveries have −1."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.published = Counter("nearcast_published", "Events taken", registry=registry)
        self.suppressed = Counter("nearcast_suppressed", "Events held back where they entered", registry=registry)
        self.kept = Gauge("nearcast_kept", "Events held back that are the newest of their subjects", registry=registry)
        self.leases = Gauge("nearcast_leases", "Subjects whose publishers hold back by themselves", registry=registry)
        self.leases_lost = Counter("nearcast_leases_lost", "Leases that did not come back in time", registry=registry)
        self.recalls = Histogram(
            "nearcast_recall_seconds", "From calling for a lease to its return", buckets=BUCKETS, registry=registry
        )
        self.routing_filters = Gauge("nearcast_routing_filters", "Filters in the routing table", registry=registry)
        self.routing_forwarded = Gauge(
            "nearcast_routing_forwarded", "Filters that publishers are told instead", registry=registry
        )
        self.routing_precision = Gauge(
            "nearcast_routing_precision", "Share of what these select that is wanted", registry=registry
        )
        self.unknown_acknowledgements = Counter(
            "nearcast_unknown_acknowledgements",
            "Positions acknowledged that were never delivered to that client",
            registry=registry,
        )
        self.clock_set_back = Gauge(
            "nearcast_clock_set_back", "How often the machine's clock fell back", registry=registry
        )
        self.rejected = Counter("nearcast_rejected", "Events or requests refused", ["reason"], registry=registry)
        self.trimmed = Counter(
            "nearcast_dead_letters_trimmed", "Dead letters that newer ones replaced", registry=registry
        )
        self.held = Counter(
            "nearcast_changes_held",
            "Changes that clients said faster than they may: the newest wait",
            registry=registry,
        )
        self.paced = Counter(
            "nearcast_definitions_paced",
            "Requests with definitions that waited, as their sender defines faster than it may",
            registry=registry,
        )
        self.long_work = Counter(
            "nearcast_long_work_paced",
            "Requests that waited, as their sender causes more long work than it may",
            registry=registry,
        )
        self.derivations_paced = Counter(
            "nearcast_derivations_paced",
            "Requests whose events entered a few at a time, as much follows from each of them",
            registry=registry,
        )
        self.lapsed = Counter(
            "nearcast_readings_lapsed",
            "Readings of clients that were withdrawn, as they were valid no longer",
            ["reading"],
            registry=registry,
        )
        self.early = Counter(
            "nearcast_early_deliveries", "Deliveries queued before the pipeline had decided them", registry=registry
        )
        self.early_unconfirmed = Gauge(
            "nearcast_early_unconfirmed",
            "Events decided early and deliveries of these that the pipeline has not decided yet",
            registry=registry,
        )
        self.early_left = Counter(
            "nearcast_early_left",
            "Events that were not decided early, as too much was unconfirmed",
            registry=registry,
        )
        self.early_differences = Counter(
            "nearcast_early_differences",
            "Deliveries that this server and the pipeline decided otherwise",
            ["kind"],
            registry=registry,
        )
        self.deliveries = Counter("nearcast_deliveries", "Deliveries queued", ["priority"], registry=registry)
        self.sent = Counter("nearcast_sent", "Deliveries sent, each attempt", ["priority"], registry=registry)
        self.outcomes = Counter("nearcast_outcomes", "Deliveries settled", ["outcome"], registry=registry)
        self.connections = Counter("nearcast_connections", "Connections of clients", ["kind"], registry=registry)
        self.reconnections = Counter("nearcast_reconnections", "Connections after a client's first", registry=registry)
        self.servers = Gauge(
            "nearcast_servers", "Access servers that are there, this one among them", registry=registry
        )
        self.server_sessions = Gauge(
            "nearcast_server_sessions", "Connected sessions, as each server says", ["server"], registry=registry
        )
        self.redirects = Counter("nearcast_redirects", "Clients sent to another server", ["reason"], registry=registry)
        self.handovers = Counter(
            "nearcast_handovers",
            "Sessions that came from another server; covered: all that they subscribed to was known here",
            ["covered"],
            registry=registry,
        )
        self.takeovers = Counter(
            "nearcast_takeovers", "Sessions that came from a server that is gone", ["covered"], registry=registry
        )
        self.errors = Counter("nearcast_errors", "Failures that were survived", ["part"], registry=registry)
        self.loop_holds = Counter(
            "nearcast_loop_holds", "Times that the event loop was held for longer than it may be", registry=registry
        )
        self.loop_longest = Gauge(
            "nearcast_loop_longest_hold_seconds", "The longest time that the event loop was held", registry=registry
        )
        self.longest_hold = 0.0
        self.actions = Counter(
            "nearcast_actions", "Attempts to run what situations call for", ["effect", "outcome"], registry=registry
        )
        self.actions_waiting = Gauge(
            "nearcast_actions_waiting", "Webhooks and Python actions that wait for their targets", registry=registry
        )
        self.targets_open = Gauge(
            "nearcast_action_targets_open", "Targets of actions that are left alone, as they fail", registry=registry
        )
        self.waiting = Gauge("nearcast_waiting", "Deliveries that wait", ["priority"], registry=registry)
        self.in_flight = Gauge("nearcast_in_flight", "Deliveries sent and not acknowledged", registry=registry)
        self.sessions = Gauge("nearcast_sessions", "Sessions", ["state"], registry=registry)
        self.to_send = self._histogram("nearcast_send_seconds", "From acceptance of an event to its sending")
        self.to_acknowledge = self._histogram("nearcast_acknowledge_seconds", "From acceptance to acknowledgement")
        self.recent: dict[tuple[str, int], deque[float]] = defaultdict(lambda: deque(maxlen=RECENT))
        self._of: dict[int, PriorityMetrics] = {}

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(name, text, ["priority"], buckets=BUCKETS, registry=self.registry)

    def of(self, priority: int) -> PriorityMetrics:
        """The metrics of one priority, looked up once: they are touched with every delivery."""
        found = self._of.get(priority)
        if found is None:
            found = self._of[priority] = PriorityMetrics(
                self.deliveries.labels(priority),
                self.sent.labels(priority),
                self.to_send.labels(priority),
                self.to_acknowledge.labels(priority),
            )
        return found

    def sending(self, priority: int, seconds: float, attempt: int) -> None:
        """A delivery was sent so long after its event was accepted; only first attempts count as latency."""
        of = self.of(priority)
        of.sent.inc()
        if attempt == 1:
            of.to_send.observe(seconds)
            self.recent["send", priority].append(seconds)

    def acknowledging(self, priority: int, seconds: float) -> None:
        """A delivery was acknowledged so long after its event was accepted."""
        self.of(priority).to_acknowledge.observe(seconds)
        self.recent["acknowledge", priority].append(seconds)

    def loop_held(self, seconds: float, long: bool) -> None:
        """The event loop was held, longer than before or for `long`."""
        self.longest_hold = max(self.longest_hold, seconds)
        self.loop_longest.set(self.longest_hold)
        self.loop_holds.inc(long)

    def latencies(self) -> dict[str, dict[str, dict[str, float]]]:
        """Median and p99 in seconds of the recent deliveries, by "send" or "acknowledge", then by priority."""
        found: dict[str, dict[str, dict[str, float]]] = {"send": {}, "acknowledge": {}}
        for (kind, priority), values in sorted(self.recent.items()):
            ordered = sorted(values)
            found[kind][str(priority)] = {
                "count": len(ordered),
                "p50": percentile(ordered, 0.5),
                "p99": percentile(ordered, 0.99),
            }
        return found

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self.registry)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which about this share lies, of ascending values; 0 of none."""
    return round(ordered[min(int(len(ordered) * share), len(ordered) - 1)], 6) if ordered else 0.0
