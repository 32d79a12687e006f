"""A pipeline for tests: every event that the plain evaluator selects, with its level, nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from nearcast.filters.evaluate import NO_CONTEXT, level_of
from nearcast.filters.relevance import classes_of, role_relevance
from nearcast.journal.seam import Journal
from nearcast.language import control_events
from nearcast.model.columns import DELIVERIES, to_events
from nearcast.model.event import Event
from nearcast.model.filter import atoms
from nearcast.model.subscription import ClientProfile, Subscription
from nearcast.state.registry import Registry


class FakePipeline:
    """Decides what the journal has and was not decided yet, and covers the log of deliveries."""

    def __init__(self, journal: Journal) -> None:
        self.journal, self.registry, self.through = journal, Registry(), 0

    def decide(self) -> None:
        end = self.journal.end("events")
        rows: list[dict[str, Any]] = []
        for event in to_events(self.journal.read("events", self.through, end - self.through)):
            for change in control_events.changes(event, self.registry.settings):
                self.registry.apply(change)
            if not event.control:
                rows += self._rows(event)
        self.journal.commit_range("deliveries", pa.Table.from_pylist(rows, schema=DELIVERIES), end)
        self.through = end

    def _rows(self, event: Event) -> Iterator[dict[str, Any]]:
        found: dict[str, list[dict[str, Any]]] = {}
        for subscription in self.registry.subscriptions.values():
            for id in subscription.clients:
                row = self._row(event, subscription, self.registry.clients.get(id, ClientProfile(id)))
                if row:
                    found.setdefault(id, []).append(row)
        for rows in found.values():
            best, *others = sorted(rows, key=lambda row: -row["level"])
            yield best | {"others": [{name: row[name] for name in ("subscription", "level")} for row in others]}

    def _row(self, event: Event, subscription: Subscription, client: ClientProfile) -> dict[str, Any] | None:
        roles = self.registry.settings.roles
        by_role = None
        level = self._level(event, subscription, client.role, client.task)
        if subscription.relevance is None and roles.vectors:
            levels = {key: self._level(event, subscription, *key) for key in roles.vectors}
            by_role = [
                {"role": role, "task": task, "level": found}
                for (role, task), found in levels.items()
                if found is not None
            ]
        if level is None and not by_role:
            return None
        return {
            "position": event.position,
            "part": event.part,
            "client": client.id,
            "subscription": subscription.id,
            "level": -1 if level is None else level,
            "by_role": by_role,
        }

    def _level(self, event: Event, subscription: Subscription, role: str | None, task: str | None) -> int | None:
        settings = self.registry.settings
        relevance = subscription.relevance or role_relevance(subscription, settings.roles, role, task)
        count = sum(1 for _ in atoms(subscription.filter))
        return level_of(subscription.filter, classes_of(relevance, count, settings.levels), event, NO_CONTEXT)
