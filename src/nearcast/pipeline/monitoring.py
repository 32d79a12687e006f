"""What the pipeline counts for Prometheus, and what is worth telling of situations while they are inferred."""

from __future__ import annotations

import collections
import logging
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from nearcast.model.values import moment_at, time_text
from nearcast.relations.lanes.scopes import Scopes
from nearcast.situations.stage import SituationStage
from nearcast.state.derived import DerivingStage
from nearcast.state.fallen_clocks import OTHERS, FallenClock
from nearcast.state.timeline import Excess
from nearcast.zones.stage import ZoneStage

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


class PipelineMetrics:
    """The pipeline's own registry and what is in it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.events = self._counter("events", "Positions of the journal that were decided")
        self.deliveries = self._counter("deliveries", "Deliveries that were decided, one per event and client")
        self.derived = self._counter("derived", "Events that were derived from others")
        self.batches = self._counter("batches", "Batches, by where they were decided", ["where"])
        self.refused = self._counter("refused", "Control events that changed nothing, see the dead letters")
        self.excess = self._counter("excess", "Atoms not decided for an event, as they came to a limit", ["limit"])
        self.late = self._counter("late", "Events that came after a newer one of their entity: they move nothing")
        self.fallen = self._counter(
            "fallen_clock", "Late events by which the clock of their source fell back by an hour or more", ["source"]
        )
        self.ticks = self._counter("ticks", "Ticks that were written, as something was due and no event came")
        self.behind = Gauge(
            "nearcast_pipeline_clock_behind_seconds",
            "How far the clock of a channel is behind the wall clock, that of all which share one without a name",
            ["channel"],
            registry=self.registry,
        )
        self.early = self._counter(
            "early",
            "Reports that did not wait for the lateness of relations and rules, or for a slower clock, as too many did",
        )
        self.failures = self._counter("failures", "Batches that failed; each is decided again after a restart")
        self.unusable = self._counter("unusable", "Readings that are none, and rules not taken", ["name", "reason"])
        self.forgotten = self._counter("forgotten", "Entities that were forgotten for the limits of entities")
        self.entities = Gauge(
            "nearcast_pipeline_entities", "Entities whose newest event is kept", registry=self.registry
        )
        self.entity_bytes = Gauge(
            "nearcast_pipeline_entity_bytes", "Bytes that these events take, about", registry=self.registry
        )
        self.crowded = self._counter(
            "crowded", "Pairs that did not begin with a report, as a limit of the relation was reached", ["relation"]
        )
        self.crowded_zones = self._counter(
            "crowded_zones", "Zones that did not count for a report, as its place is in too many", ["layer"]
        )
        self.unprovided = Gauge(
            "nearcast_pipeline_unprovided",
            "Situation rules that name a class of which no reading has come",
            registry=self.registry,
        )
        self.kept_positions = self._gauge("kept_positions", "Positions that are kept of a log", ["log"])
        self.kept_bytes = self._gauge("kept_bytes", "Bytes that a log takes, about", ["log"])
        self.kept_since = self._gauge("kept_since_seconds", "Of when the oldest kept row of a log is", ["log"])
        self.kept_held = self._gauge("kept_held", "Whether a reader keeps rows of a log from going", ["log"])
        self.position = Gauge(
            "nearcast_pipeline_position", "The last position that was decided", registry=self.registry
        )
        self.waiting = Gauge(
            "nearcast_pipeline_waiting", "Positions of the journal that wait to be decided", registry=self.registry
        )
        self.seconds = Histogram(
            "nearcast_pipeline_stage_seconds",
            "Time of a batch, by stage",
            ["stage"],
            buckets=SECONDS,
            registry=self.registry,
        )

    def _counter(self, name: str, text: str, labels: list[str] | None = None) -> Counter:
        return Counter(f"nearcast_pipeline_{name}", text, labels or [], registry=self.registry)

    def _gauge(self, name: str, text: str, labels: list[str]) -> Gauge:
        return Gauge(f"nearcast_pipeline_{name}", text, labels, registry=self.registry)


log = logging.getLogger("nearcast.pipeline")

TOLD = 1_000
"""Senders and types of which it is remembered that they were told of."""


class ExcessMonitor:
    """Counts what was not decided for it came to a limit, and says so once for each sender, type and limit."""

    def __init__(self, metrics: PipelineMetrics) -> None:
        self._metrics = metrics
        self._told: set[Excess] = set()

    def report(self, found: Mapping[Excess, int]) -> None:
        """After a batch."""
        for excess, count in found.items():
            source, type_, limit = excess
            self._metrics.excess.labels(limit).inc(count)
            if excess not in self._told and len(self._told) < TOLD:
                self._told.add(excess)
                log.warning("beyond limit=%s source=%s type=%s: UNKNOWN, see explain", limit, source, type_)


class ClockMonitor:
    """Shows how far each clock is behind the wall clock."""

    def __init__(self, metrics: PipelineMetrics) -> None:
        self._behind = metrics.behind
        self._shown: set[str] = set()

    def report(self, behind: Mapping[str, float]) -> None:
        """Takes how many seconds each is behind, by its channel."""
        for name, seconds in behind.items():
            self._behind.labels(name).set(seconds)
        for name in self._shown - behind.keys():
            self._behind.remove(name)
        self._shown = set(behind)


class FallenClockMonitor:
    """Counts the reports of sources whose clock fell back, and says so once of each source."""

    def __init__(self, metrics: PipelineMetrics) -> None:
        self._metrics = metrics
        self._known: dict[str, int] = {}

    def report(self, found: Mapping[str, FallenClock]) -> None:
        """After a batch."""
        for source, one in found.items():
            if source not in self._known:
                log.warning(
                    "a clock fell back source=%s entity=%s newest=%s came=%s position=%d: its reports are late and move"
                    " nothing until they are newer than that. Set its clock, or give its channel order: arrival;"
                    " GET /entities/ID says what counts",
                    source, one.entity, _written(one.newest), _written(one.came), one.position,
                )  # fmt: skip
            self._metrics.fallen.labels(source).inc(one.reports - self._known.get(source, 0))
            self._known[source] = one.reports


def _written(moment: int) -> str:
    return time_text(moment_at(moment))


class SituationMonitor:
    """Counts what the stage infer could not use, and says once which rules wait for what nobody provides."""

    def __init__(self, metrics: PipelineMetrics) -> None:
        self._metrics = metrics
        self._refused: collections.Counter[tuple[str, str]] = collections.Counter()
        self._known: tuple[int, int] = (0, 0)
        self._waiting: dict[str, tuple[str, ...]] = {}

    def report(self, stages: Iterable[DerivingStage]) -> None:
        """After a batch."""
        for stage in stages:
            if isinstance(stage, SituationStage):
                for (name, reason), count in (stage.refused - self._refused).items():
                    self._metrics.unusable.labels(name, reason).inc(count)
                self._refused = stage.refused.copy()
                self._rules(stage)

    def _rules(self, stage: SituationStage) -> None:
        # It takes a look at every rule: only where one, or a class of readings, is new.
        known = (stage.version, len(stage.provided))
        if known == self._known:
            return
        self._known = known
        waiting = stage.unprovided()
        for rule, names in waiting.items():
            if self._waiting.get(rule) != names:
                log.info("situation rule waits rule=%s for=%s: no reading so far", rule, ",".join(names))
        self._waiting = waiting
        self._metrics.unprovided.set(len(waiting))


MOST_NAMED = 100
"""Relations that are counted by their own names, and layers of zones; more are counted as `OTHERS`."""


class CrowdMonitor:
    """Counts the pairs that did not begin for a limit, and says once of each relation or layer that there are some."""

    def __init__(self, metrics: PipelineMetrics) -> None:
        self._metrics = metrics
        self._relations = _NamedCounts(metrics.crowded)
        self._layers = _NamedCounts(metrics.crowded_zones)
        self._early = 0

    def report(self, stages: Iterable[DerivingStage]) -> None:
        """After a batch."""
        stages = list(stages)
        self._report_early(sum(stage.early for stage in stages if isinstance(stage, (Scopes, SituationStage))))
        crowded = {id: one for stage in stages if isinstance(stage, Scopes) for id, one in stage.crowded().items()}
        for id in self._relations.raise_to({id: one.refused for id, one in crowded.items()}):
            entity, more = next(iter(crowded[id].entities.items()), ("", 0))
            log.warning(
                "relation has more pairs than it may relation=%s entity=%s more=%d:"
                " raise %s of limits, or ask for fewer",
                id, entity, more, crowded[id].advice,
            )  # fmt: skip
        zones = {id: count for stage in stages if isinstance(stage, ZoneStage) for id, count in stage.crowded().items()}
        for id in self._layers.raise_to(zones):
            log.warning(
                "place in more zones than count layer=%s more=%d: raise zones_at_once of limits, or make more layers",
                id, zones[id],
            )  # fmt: skip

    def _report_early(self, early: int) -> None:
        if early and not self._early:
            what = "for the lateness of relations and rules, or for a slower clock"
            log.warning("more reports wait %s, than may: raise waiting_reports of limits", what)
        self._metrics.early.inc(max(0, early - self._early))
        self._early = early


class _NamedCounts:
    """A counter by name that follows counts which others keep."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._known: dict[str, int] = {}

    def raise_to(self, counts: Mapping[str, int]) -> list[str]:
        """Follows the counts; the names that are new among those that count something."""
        self._known = {id: count for id, count in self._known.items() if id in counts}
        new = [id for id, count in counts.items() if count and id not in self._known]
        for id, count in counts.items():
            named = id if id in self._known or len(self._known) < MOST_NAMED else OTHERS
            self._counter.labels(named).inc(max(0, count - self._known.get(id, 0)))
            self._known[id] = count
        return new
