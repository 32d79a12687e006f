"""From the steps of a stretch to what is told of it: what begins, lasts and ends, pair by pair."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nearcast.model.event import Event, Place, place_data
from nearcast.model.relation import RELATION_EVENT, RELATIONS, Detection
from nearcast.model.values import time_text
from nearcast.relations.evaluations import BEGINS, FAILS, FALLS_SILENT, LEAVES, Steps
from nearcast.relations.pair_rules import TELLS, PairRules
from nearcast.relations.reports import FOREVER, NEVER, Growing, Integers, ReportTable
from nearcast.state.derived import Cause, derived_event

Reason = Literal["left", "silent", "removed"]
"""Why something ended though nothing says that its predicate failed: an entity is no longer of its side, was not heard
for too long, or the relation itself was removed."""

LAPSED, CAUSED = 0, 1

_ORDER: dict[str, int] = {"dwell": 0, "exit": 1, "enter": 2}


@dataclass(frozen=True, slots=True)
class Subject:
    """One of those that something is told of: its name and where it is."""

    entity: str
    place: Place | None


@dataclass(frozen=True, slots=True)
class Told:
    """One thing to tell. `b` is one entity of a pair, or those around `a` in a gathering, whose number is `count`.

    `phase` is `LAPSED` or `CAUSED`, `sequence` the number of the relation. `present`: it held when it was asked for.
    """

    phase: int
    sequence: int
    relation: str
    detect: Detection
    a: Subject
    b: tuple[Subject, ...]
    distance: float | None
    since: datetime | None
    reason: Reason | None = None
    present: bool = False
    count: int | None = None

    @property
    def order(self) -> tuple[int, int, str, str, int]:
        """Ascends in the order of telling, among what one event causes."""
        other = self.b[0].entity if self.count is None else ""
        return self.phase, self.sequence, self.a.entity, other, _ORDER[self.detect]


def events_of(told: Iterable[Told], cause: Cause, first: int) -> list[Event]:
    """The events that tell it, in order; their parts count from `first`."""
    ordered = sorted(told, key=lambda one: one.order)
    return [_event(one, cause, part) for part, one in enumerate(ordered, first)]


def _event(told: Told, cause: Cause, part: int) -> Event:
    names = [told.relation, told.a.entity] + [one.entity for one in told.b if told.count is None]
    # Names may have slashes of their own: two pairs with one subject would be one entity, and conflated into one.
    path = "/".join(name.replace("%", "%25").replace("/", "%2F") for name in names)
    subject, id = f"nearcast/relations/{path}", f"{path}/{cause.position}.{part}"
    return derived_event(RELATION_EVENT, RELATIONS, id, subject, _data(told), cause, told.a.place, part)


def _data(told: Told) -> dict[str, Any]:
    """What the event tells; what is not known is left out."""
    pair = told.count is None
    names = [one.entity for one in told.b]
    places = [_position(one.place) for one in told.b]
    data: dict[str, Any] = {
        "relation": told.relation,
        "detect": told.detect,
        "a": told.a.entity,
        "b": names[0] if pair else names,
        "a_position": _position(told.a.place),
        "b_position": places[0] if pair else [place for place in places if place],
        "distance": told.distance,
        "since": None if told.since is None else time_text(told.since),
        "reason": told.reason,
        "present": told.present or None,
        "count": told.count,
    }
    # The event is where `a` is; who reads it anew finds its place as in any other event.
    data |= _position(told.a.place) or {}
    return {name: value for name, value in data.items() if value is not None}


def _position(place: Place | None) -> dict[str, float] | None:
    return None if place is None else place_data(place)


REASONS: dict[int, Reason | None] = {FAILS: None, LEAVES: "left", FALLS_SILENT: "silent"}


@dataclass(frozen=True, slots=True)
class TransitionColumns:
    """Something to tell of pairs, as columns: at which row, in which phase, of which pair, since when, and why."""

    detect: Detection
    pair: Integers
    row: Integers
    phase: Integers
    since: Integers
    effect: Integers


@dataclass(frozen=True, slots=True)
class _Spans:
    """Times through which pairs held: from their state, or a row, to a row; `end` of an open one is their number."""

    pair: Integers
    since: Integers
    due: Integers
    dwelt: npt.NDArray[np.bool_]
    end: Integers
    effect: Integers
    deadline: Integers


def settled(
    pairs: Growing, which: Integers, steps: Steps, rules: PairRules, reports: ReportTable
) -> list[TransitionColumns]:
    """What some pairs tell over a stretch; their state is as of its end then."""
    rule = pairs["rule"][which]
    begins = steps.effect == BEGINS
    # Before a step a pair holds if the step before began it, or it held when the stretch began.
    first = np.append(True, steps.pair[1:] != steps.pair[:-1])[: len(steps.pair)]
    before = np.where(first, pairs["held"][which][steps.pair], np.append(False, begins)[: len(begins)])
    # Reports that find a pair as it was are most; only changes are looked at further.
    changes = np.flatnonzero(begins != before)
    steps, begins = steps.take(changes), begins[changes]
    spans = _spans(pairs, which, steps, begins, rules, reports)
    told = rules.columns["tells"][rule]
    entered = np.flatnonzero(begins & _tells(told, steps.pair, "enter"))
    rows = steps.row[entered]
    found = [
        TransitionColumns(
            "enter", steps.pair[entered], rows, _phases(rows, CAUSED), reports.moment[rows], steps.effect[entered]
        )
    ]
    spans, dwelling = _lasted(spans, reports)
    own = TransitionColumns("dwell", spans.pair, dwelling, _phases(dwelling, LAPSED), spans.since, spans.effect)
    found.append(_chosen(own, (dwelling < reports.length) & _tells(told, spans.pair, "dwell")))
    ended = spans.end < reports.length
    phases = np.where(spans.effect == FALLS_SILENT, LAPSED, CAUSED)
    exits = TransitionColumns("exit", spans.pair, spans.end, phases, spans.since, spans.effect)
    # An end is told of what was told to have begun: by `enter`, or where only `dwell` is told, by that.
    begun = spans.dwelt | _tells(told, spans.pair, "enter") | ~_tells(told, spans.pair, "dwell")
    found.append(_chosen(exits, ended & _tells(told, spans.pair, "exit") & begun))
    _keep(pairs, which, spans, ~ended)
    return found


def _spans(
    pairs: Growing, which: Integers, steps: Steps, begins: npt.NDArray[np.bool_], rules: PairRules, reports: ReportTable
) -> _Spans:
    held = np.flatnonzero(pairs["held"][which])
    starts = np.flatnonzero(begins)
    ends = np.flatnonzero(~begins)
    row = steps.row[starts]
    lasting = rules.columns["lasting"][pairs["rule"][which[steps.pair[starts]]]]
    now = reports.now[row]
    due = np.where((lasting > 0) & (now != NEVER), np.where(now == NEVER, 0, now) + lasting, FOREVER)
    pair = np.concatenate([held, steps.pair[starts]])
    since = np.concatenate([pairs["since"][which[held]], reports.moment[row]])
    due = np.concatenate([pairs["due"][which[held]], due])
    dwelt = np.concatenate([pairs["dwelt"][which[held]], np.zeros(len(starts), np.bool_)])
    # Beginnings and ends alternate: the n-th span of a pair ends with its n-th end, if there are so many.
    order = np.argsort(pair, kind="stable")
    pair, since, due, dwelt = pair[order], since[order], due[order], dwelt[order]
    end, effect = np.full(len(pair), reports.length), np.full(len(pair), FAILS)
    deadline = np.full(len(pair), FOREVER)
    # A pair's spans lie side by side, in order; its ends are counted into them.
    at = np.searchsorted(pair, steps.pair[ends]) + _rank(steps.pair[ends])
    end[at], effect[at], deadline[at] = steps.row[ends], steps.effect[ends], steps.deadline[ends]
    return _Spans(pair, since, due, dwelt, end, effect, deadline)


def _rank(sorted_: Integers) -> Integers:
    """The how-manieth of its equals each number is, in an ascending column."""
    return np.arange(len(sorted_)) - np.searchsorted(sorted_, sorted_)


def _lasted(spans: _Spans, reports: ReportTable) -> tuple[_Spans, Integers]:
    """The row at which each span has lasted long enough, if it has; the spans know that it has."""
    row = np.searchsorted(reports.now, spans.due, "left")
    # Silence ends at a time of its own, which no row need have; all else with a row, before which what lapses is told.
    in_time = np.where(spans.effect == FALLS_SILENT, spans.due <= spans.deadline, row <= spans.end)
    lasted = (spans.due != FOREVER) & (row < reports.length) & in_time
    dwelt, due = spans.dwelt | lasted, np.where(lasted, FOREVER, spans.due)
    known = _Spans(spans.pair, spans.since, due, dwelt, spans.end, spans.effect, spans.deadline)
    return known, np.where(lasted, row, reports.length)


def _keep(pairs: Growing, which: Integers, spans: _Spans, open_: npt.NDArray[np.bool_]) -> None:
    """Writes what holds at the end of the stretch."""
    # At most one span of a pair is open, its last.
    pairs["held"][which] = False
    rows = which[spans.pair[open_]]
    pairs["held"][rows] = True
    for name, column in (("since", spans.since), ("due", spans.due), ("dwelt", spans.dwelt)):
        pairs[name][rows] = column[open_]


def _tells(told: npt.NDArray[np.int8], pair: Integers, detect: Detection) -> npt.NDArray[np.bool_]:
    return (told[pair] & TELLS[detect]) != 0


def _phases(like: Integers, phase: int) -> Integers:
    return np.full(len(like), phase)


def _chosen(outcome: TransitionColumns, which: npt.NDArray[np.bool_]) -> TransitionColumns:
    columns = (outcome.pair, outcome.row, outcome.phase, outcome.since, outcome.effect)
    return TransitionColumns(outcome.detect, *(column[which] for column in columns))
