"""What a bridge has published of nodes, and for how long that counts: so that whoever asked is told of its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nearcast.foraging.knowledge import age_of
from nearcast.foraging.neighbour_shares import NeighbourShares
from nearcast.model.event import Place
from nearcast.model.foraging import Response
from nearcast.model.values import Value

MOST = 20_000
"""Values whose ends are waited for, of which each neighbour has a share; more are not published."""


@dataclass(frozen=True, slots=True)
class PublishedValue:
    """Until when a value counts, what is known of where it was measured, and who brought it."""

    until: float
    place: Place
    within: float
    neighbour: str


@dataclass(frozen=True, slots=True)
class ValueReport:
    """What is to be published about a provider: values, and of which classes what was published is over.

    A class that is over has the value that took its place, or None where nothing is known any more. `until`: as long as
    the values count.
    """

    provider: str
    place: Place
    within: float
    until: float
    age: float
    values: Mapping[str, Any] = field(default_factory=dict)
    ended: Sequence[str] = ()


class PublishedValues:
    """By provider and class, what was published and has not ended."""

    def __init__(self, most: int = MOST) -> None:
        self._known: dict[tuple[str, str], PublishedValue] = {}
        self.shares = NeighbourShares(most)

    def report(
        self, response: Response, wanted: Callable[[str, Value], bool], neighbour: str, heard: float, now: float
    ) -> ValueReport | None:
        """What a response tells whoever asked: values that are wanted, and ends of what was; None if neither."""
        age = age_of(response, heard) + now - heard
        until = now + response.valid - age
        values, ended = dict[str, Any](), list[str]()
        # What has waited too long is no news; what is taken back is, however late.
        for name, value in response.values if response.retracted or until > now else ():
            there = (response.provider, name) in self._known
            asked = not response.retracted and wanted(name, value)
            if there and not asked:
                ended.append(name)
            if there or (asked and self.shares.admits(neighbour)):
                values[name] = None if response.retracted else value
        where = (response.provider, response.place, response.within)
        return ValueReport(*where, until, age, values, ended) if values else None

    def lapsed(self, now: float) -> list[ValueReport]:
        """The ends of what has not been heard of for as long as it counts, a report for each provider."""
        over: dict[str, list[str]] = {}
        for (provider, name), known in self._known.items():
            if known.until <= now:
                over.setdefault(provider, []).append(name)
        return [self._end(provider, names) for provider, names in over.items()]

    def everything(self, _: float) -> list[ValueReport]:
        """The ends of all that was published, whenever it would lapse: the bridge takes its leave."""
        return self.lapsed(float("inf"))

    def _end(self, provider: str, names: Sequence[str]) -> ValueReport:
        last = self._known[provider, names[-1]]
        return ValueReport(provider, last.place, last.within, last.until, 0.0, dict.fromkeys(names), names)

    def note(self, report: ValueReport, neighbour: str) -> None:
        """Notes that a report was published: only then what it ends need not be told again."""
        for name in report.values:
            key = (report.provider, name)
            known = self._known.pop(key, None)
            if known:
                self.shares.release(known.neighbour)
            owner = known.neighbour if known else neighbour
            if name not in report.ended and self.shares.hold(owner):
                self._known[key] = PublishedValue(report.until, report.place, report.within, owner)
