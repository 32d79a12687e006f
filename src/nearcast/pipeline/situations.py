"""What is worth telling of situations while they are inferred: rules that wait in vain, readings that are none."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable

from nearcast.decision.derived import Deriving
from nearcast.decision.infer.stage import Inferring
from nearcast.pipeline.metrics import Metrics

log = logging.getLogger("nearcast.pipeline")


class Watch:
    """Counts what the stage infer could not use, and says once which rules wait for what nobody provides."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._refused: Counter[tuple[str, str]] = Counter()
        self._known: tuple[int, int] = (0, 0)
        self._waiting: dict[str, tuple[str, ...]] = {}

    def look(self, stages: Iterable[Deriving]) -> None:
        """After a batch."""
        for stage in stages:
            if isinstance(stage, Inferring):
                for (name, reason), count in (stage.refused - self._refused).items():
                    self._metrics.unusable.labels(name, reason).inc(count)
                self._refused = stage.refused.copy()
                self._rules(stage)

    def _rules(self, stage: Inferring) -> None:
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
