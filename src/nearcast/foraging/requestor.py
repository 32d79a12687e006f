"""The requestor's part: when to ask for what a rule misses, how often to ask again, which situations hold (listing 1).

Asking again serves one purpose: to reach providers that have come since. So the time between two requests is that in
which a given share of the neighbours has changed, within bounds around the rule's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from nearcast.filters.truth import Truth, joined
from nearcast.foraging.foraging_rules import Above, ForagingRule, only, remote, trigger_level
from nearcast.foraging.knowledge import KnowledgeBase, KnownValue, holds
from nearcast.model.event import Event, Place
from nearcast.model.filter import Atom, atoms


@dataclass(frozen=True, slots=True)
class AdaptiveInterval:
    """Ask again when `share` of the neighbours has changed, at soonest `least` and at latest `most` times the rule's
    own interval after the last time; neighbours not heard for `window` are gone.
    """

    share: float = 0.5
    least: float = 0.25
    most: float = 4.0
    window: float = 5.0


MOST = 10_000
"""Neighbours that are told apart: more there are not, but for who invents them."""

SMOOTHING = 0.5
"""How much of the estimate the newest window is."""


class NeighbourhoodChange:
    """Who was heard in this window and in the one before, and the share that changes per unit of time."""

    def __init__(self, adapting: AdaptiveInterval) -> None:
        self._adapting = adapting
        self._began: float | None = None
        self._before: set[str] = set()
        self._heard: set[str] = set()
        self.turnover: float | None = None

    def heard(self, sender: str, now: float) -> None:
        """Notes that a neighbour sent something."""
        self._turn(now)
        if len(self._heard) < MOST:
            self._heard.add(sender)

    def interval(self, own: float, now: float) -> float:
        """The time until a rule's next request, where its own interval is `own`."""
        self._turn(now)
        adapting = self._adapting
        if self.turnover is None:
            return own
        wanted = adapting.share / self.turnover if self.turnover > 0 else adapting.most * own
        return min(max(wanted, adapting.least * own), adapting.most * own)

    def _turn(self, now: float) -> None:
        """Compares a window that is over with the one before it."""
        if self._began is None:
            self._began = now
        while now - self._began >= self._adapting.window:
            both = self._heard | self._before
            # Of an empty window before, everybody would be new: that is a beginning, not a change.
            if both and self._before:
                change = len(self._heard ^ self._before) / len(both) / self._adapting.window
                before = change if self.turnover is None else self.turnover
                self.turnover = SMOOTHING * change + (1 - SMOOTHING) * before
            self._before, self._heard = self._heard, set()
            # After a long silence there is nothing to compare, window by window, that would say more.
            silent = not self._before
            self._began = now if silent else self._began + self._adapting.window


Phase = Literal["begin", "update", "end"]


@dataclass(frozen=True, slots=True)
class NodeSituation:
    """A situation that begins, changes or ends at a node: by which rule, where and when, and from which values."""

    rule: str
    situation: str
    phase: Phase
    place: Place
    time: float
    readings: tuple[tuple[str, KnownValue], ...]


@dataclass(frozen=True, slots=True)
class DueRequest:
    """A request that is due: for what, how far and for how long."""

    rule: ForagingRule
    conditions: tuple[Atom, ...]
    valid: float


class Requestor:
    """The rules of a node and what it knows; `measured` are the classes that it has sensors for.

    A rule may stand on situations that rules before it conclude; these are seen here, not asked for. Other situations
    are asked for like classes: a node that infers them answers.

    With `neighbours` the time between requests follows how fast these change, else it is the rule's own.
    """

    def __init__(
        self,
        rules: Sequence[ForagingRule],
        measured: Sequence[str] = (),
        above: Above = only,
        neighbours: NeighbourhoodChange | None = None,
        situations: frozenset[str] = frozenset(),
    ) -> None:
        self.rules = tuple(rules)
        seen = (*measured, *(rule.situation for rule in rules))
        self.supported = frozenset(wide for name in seen for wide in above(name))
        self.knowledge = KnowledgeBase(above, situations)
        self._neighbours = neighbours
        self._missing = {rule.id: remote(rule, self.supported) for rule in rules}
        self._next: dict[str, float] = {}
        self._holding: dict[str, tuple[tuple[str, KnownValue], ...]] = {}

    def begin_anew(self) -> None:
        """Forgets what is known and when to ask next; situations that hold are looked at again."""
        self.knowledge.begin_anew()
        self._next.clear()

    def due(self, place: Place, now: float) -> list[DueRequest]:
        """The requests to be sent now: those of rules that miss something, are near enough to firing, and whose last
        request has run out.
        """
        facts, _ = self._concluded(place, now)
        wanted = []
        for rule in self.rules:
            missing = self._missing[rule.id]
            if not missing or now < self._next.get(rule.id, now) or self.level(rule, facts) < rule.threshold:
                continue
            # Filters last as long as the time to the next request, whatever that is: none lapses in between.
            valid = self._neighbours.interval(rule.valid, now) if self._neighbours else rule.valid
            self._next[rule.id] = now + valid
            wanted.append(DueRequest(rule, missing, valid))
        return wanted

    def level(self, rule: ForagingRule, facts: Event) -> float:
        """How near a rule is to firing, by what the node itself sees."""
        return trigger_level(rule, self.supported, lambda atom: holds(atom, facts) is True)

    def truths(self, place: Place, now: float) -> dict[str, Truth]:
        """What is known of each rule's condition at a place and time."""
        return self._concluded(place, now)[1]

    def concluded(self, place: Place, now: float) -> dict[str, bool]:
        """The situations that the rules tell of: true where one holds, false where all for it are false."""
        truths = self.truths(place, now)
        by_situation: dict[str, list[Truth]] = {}
        for rule in self.rules:
            by_situation.setdefault(rule.situation, []).append(truths[rule.id])
        found = {name: joined(True, list(held)) for name, held in by_situation.items()}
        return {name: truth for name, truth in found.items() if truth is not None}

    def _concluded(self, place: Place, now: float) -> tuple[Event, dict[str, Truth]]:
        """What is known at a place and time, with the situations that follow; and the truth of each rule."""
        facts, truths = self.knowledge.facts(place, now), dict[str, Truth]()
        for rule in self.rules:
            truth = truths[rule.id] = holds(rule.when, facts)
            if truth is not None:
                # What is above a situation holds with it, but need not fail with it.
                names = self.knowledge.above(rule.situation) if truth else (rule.situation,)
                facts = replace(facts, attributes=(*facts.attributes, *((name, truth) for name in names)))
        return facts, truths

    def changes(self, place: Place, now: float) -> list[NodeSituation]:
        """The situations that have begun, that rest on other values now, and that have ended since the last time."""
        changes = []
        truths = self.truths(place, now)
        for rule in self.rules:
            before = self._holding.get(rule.id)
            if truths[rule.id] is not True:
                if self._holding.pop(rule.id, None) is not None:
                    changes.append(NodeSituation(rule.id, rule.situation, "end", place, now, ()))
                continue
            readings = self._readings(rule, place, now)
            # A situation that goes on with the same values is no news, though they be measured anew.
            if before is None or _values(readings) != _values(before):
                phase: Phase = "begin" if before is None else "update"
                changes.append(NodeSituation(rule.id, rule.situation, phase, place, now, readings))
            self._holding[rule.id] = readings
        return changes

    def _readings(self, rule: ForagingRule, place: Place, now: float) -> tuple[tuple[str, KnownValue], ...]:
        """What is known of the classes that a rule is about."""
        names = {atom.name for atom in atoms(rule.when)}
        above = self.knowledge.above
        return tuple(
            (name, known) for name, known in self.knowledge.known(place, now) if not names.isdisjoint(above(name))
        )


def _values(readings: Sequence[tuple[str, KnownValue]]) -> list[tuple[str, str, object]]:
    """Readings without their times: the same value again is no news."""
    return [(name, known.provider, known.value) for name, known in readings]
