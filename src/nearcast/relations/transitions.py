"""What becomes of something that may hold, a pair or a gathering: it begins, lasts, and ends (semantics §7).

One rule, written once for one thing (`Lifecycle`) and once for many pairs over a stretch, in columns
(`pair_transitions`); a test holds them equal. It begins where its predicate comes to be TRUE for members of its sides.
It ends where the predicate with its margin is FALSE, where one of it leaves its side, and where one of it has been
silent for too long. It dwells once it has held for so long; an end is told only of what was told to have begun.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.filters.truth import Truth
from nearcast.model.arrays import Flags, Integers
from nearcast.model.relation import Detection, Relation
from nearcast.relations.entity_table import GrowableTable
from nearcast.relations.reports import ReportTable, clock_pair
from nearcast.relations.transition_events import CAUSED, EXPIRED, OVERDUE, Reason
from nearcast.state.lateness import FOREVER, NEVER

BEGINS, UNCHANGED, FAILS, LEAVES, FALLS_SILENT, REMOVED = 1, 0, -1, -2, -3, -4
"""What an evaluation does: it holds from now on; nothing; or it holds no longer, for one of four reasons."""

REASONS: dict[int, Reason | None] = {FAILS: None, LEAVES: "left", FALLS_SILENT: "silent", REMOVED: "removed"}

DETECTS: dict[Detection, int] = {"enter": 1, "dwell": 2, "exit": 4}
"""What a relation tells, as bits."""


class HoldState(NamedTuple):
    """Something that holds: since when, by the moment of its event; the clock at which it has lasted (`FOREVER`: it was
    told to dwell, or never is); and whether that was told. In microseconds since 1970.
    """

    started_at: int
    due: int
    dwell_sent: bool = False


class PairStanding(NamedTuple):
    """What holds of a relation between two (None: it does not), in how many of its pairs each of them is, and how many
    there are; which aggregates of its predicate have no value for the two; and whether its last evaluation was left
    `undecided` for the work on geometries that an event may take.
    """

    state: HoldState | None
    partners: tuple[int, int]
    pairs: int
    unknown: tuple[str, ...] = ()
    undecided: bool = False


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """How long what a relation is about must last, how long it may be silent, and what is told: bits of `DETECTS`."""

    detects: int
    lasting: int
    time_to_live: int

    @staticmethod
    def of(relation: Relation) -> Lifecycle:
        """The lifecycle that a relation asks for."""
        spans = (FOREVER if one is None else micros(one) for one in (relation.lasting, relation.time_to_live))
        return Lifecycle(sum(DETECTS[one] for one in relation.detect), *spans)

    def evaluated(
        self, held: HoldState | None, effect: int, began: int, since: int
    ) -> tuple[HoldState | None, Detection | None]:
        """The state after an evaluation, and what is told. What begins lasts from `began` on, and is told `since`."""
        if held is None:
            if effect != BEGINS:
                return None, None
            return HoldState(since, deadline(began, self.lasting)), "enter" if self.detects & DETECTS["enter"] else None
        if effect >= UNCHANGED:
            return held, None
        return None, "exit" if tells_exit(self.detects, held.dwell_sent) else None

    def lasted(self, held: HoldState, now: int) -> tuple[HoldState, list[Detection]]:
        """The state where it is known by the clock whether it has lasted, and what is told."""
        if held.due > now:
            return held, []
        return HoldState(held.started_at, FOREVER, True), ["dwell"] if self.detects & DETECTS["dwell"] else []

    def passed(self, held: HoldState, silent_after: int, now: int) -> tuple[HoldState | None, list[Detection]]:
        """The state once the clock has come to `now`, and what is told, in order.

        Silence lets it hold through `silent_after`: what fell silent first has not lasted, though its time has come.
        """
        return self.lapsed(held, silent_after if silent_after < now else None, now)

    def lapsed(self, held: HoldState, silent_after: int | None, now: int) -> tuple[HoldState | None, list[Detection]]:
        """The same where who falls silent has another clock than what lasts, which has come to `now`: `silent_after` is
        None where nobody is silent.
        """
        if silent_after is None:
            return self.lasted(held, now)
        held, found = self.lasted(held, min(silent_after, now))
        after, ended = self.evaluated(held, FALLS_SILENT, NEVER, NEVER)
        return after, [*found, ended] if ended else found


def effect_of(held: bool, member: bool, truth: Callable[[bool], Truth]) -> int:
    """What an evaluation does; `truth` gives the predicate's: with its margin (True) for what holds, else without."""
    if not member:
        return LEAVES
    found = truth(held)
    if held:
        # What is unknown ends nothing.
        return FAILS if found is False else UNCHANGED
    return BEGINS if found is True else UNCHANGED


def tells_exit(detects: int, dwell_sent: bool) -> bool:
    """Whether an end is told. Where it is told that something lasted, but not that it began: only if it did last."""
    begun = dwell_sent or detects & DETECTS["enter"] or not detects & DETECTS["dwell"]
    return bool(detects & DETECTS["exit"] and begun)


def deadline(start: int, span: int) -> int:
    """The time after a span from a start; `FOREVER` where there is no span, or the start is not known."""
    return FOREVER if start == NEVER or span == FOREVER else start + span


def deadlines(start: Integers, span: Integers) -> Integers:
    """`deadline` in columns."""
    known = (start != NEVER) & (span != FOREVER)
    return np.where(known, np.where(known, start, 0) + np.where(known, span, 0), FOREVER)


def first_told(detects: int, held: HoldState, silent_after: int) -> int:
    """The clock at which something is told of what holds, if nothing is reported, and silence lets it hold through
    `silent_after`; `FOREVER` where nothing is.
    """
    lasts = bool(detects & DETECTS["dwell"]) and held.due != FOREVER and held.due <= silent_after
    ends = silent_after != FOREVER and tells_exit(detects, held.dwell_sent or lasts)
    # Through its deadline nobody is silent.
    return min(held.due if lasts else FOREVER, silent_after + 1 if ends else FOREVER)


def time_tells(
    detects: npt.NDArray[np.int8], due: Integers, dwell_sent: Flags, silent_after: Integers
) -> tuple[Flags, Flags]:
    """`first_told` in columns: of which pairs that hold it is told that they lasted, and that they ended in silence."""
    dwelling, mortal = (detects & DETECTS["dwell"]) != 0, silent_after != FOREVER
    lasts = dwelling & (due != FOREVER) & (due <= silent_after)
    begun = dwell_sent | lasts | ((detects & DETECTS["enter"]) != 0) | ~dwelling
    return lasts, mortal & begun & ((detects & DETECTS["exit"]) != 0)


def gathered_until(own: int, others: Iterable[int], count: int) -> int:
    """The time through which silence lets one gather that counts through `own`, with others that count through theirs.

    As members fall silent the gathering shrinks, and ends with the first that is one too many.
    """
    return min([own, *sorted(others, reverse=True)[: count - 1][-1:]])


def micros(seconds: float) -> int:
    """Seconds in microseconds, as `timedelta` rounds them; one at least."""
    return max(1, timedelta(seconds=seconds) // timedelta(microseconds=1))


@dataclass(frozen=True, slots=True)
class PairEffects:
    """What evaluations do to pairs, ascending by pair, then row, then what lapsed before what the row itself did.

    `deadline` is the time through which a pair was not silent, where it fell so.
    """

    pair: Integers
    row: Integers
    effect: Integers
    deadline: Integers

    def select(self, which: npt.NDArray[np.intp]) -> PairEffects:
        """Some of them."""
        return PairEffects(self.pair[which], self.row[which], self.effect[which], self.deadline[which])


@dataclass(frozen=True, slots=True)
class PairTransitions:
    """What is told of pairs, as columns: at which row, in which phase, of which pair, since when, by which effect, and
    of when that is: `NEVER` where it is of the moment of the row.
    """

    detect: Detection
    pair: Integers
    row: Integers
    phase: Integers
    started_at: Integers
    effect: Integers
    time: Integers

    def select(self, which: Flags) -> PairTransitions:
        """Some of them."""
        columns = (self.pair, self.row, self.phase, self.started_at, self.effect, self.time)
        return PairTransitions(self.detect, *(column[which] for column in columns))


@dataclass(frozen=True, slots=True)
class _Spans:
    """Times through which pairs held: from their state (`first` is −1), or a `first` row on, to a row; `end` of an open
    one is their number.
    """

    pair: Integers
    first: Integers
    started_at: Integers
    due: Integers
    dwell_sent: Flags
    end: Integers
    effect: Integers
    deadline: Integers
    clocks: npt.NDArray[np.int16]


def pair_transitions(
    pairs: GrowableTable, which: Integers, effects: PairEffects, rules: GrowableTable, reports: ReportTable
) -> list[PairTransitions]:
    """What some pairs tell over a stretch; their state is as of its end then. `rules` has `detects` and `lasting`.

    The sides of `pairs` are in `a` and, where there are two, in `b`.
    """
    rule = pairs["rule"][which]
    begins = effects.effect == BEGINS
    # Before an effect a pair holds if the one before began it, or it held when the stretch began.
    first = np.append(True, effects.pair[1:] != effects.pair[:-1])[: len(effects.pair)]
    before = np.where(first, pairs["held"][which][effects.pair], np.append(False, begins)[: len(begins)])
    # Reports that find a pair as it was are most; only changes are looked at further.
    changes = np.flatnonzero(begins != before)
    effects, begins = effects.select(changes), begins[changes]
    spans = _spans(pairs, which, effects, begins, rules["lasting"][rule], reports)
    due = spans.due
    spans, dwells = _lasted(spans, reports)
    detects = rules["detects"][rule]
    entered = effects.select(np.flatnonzero(begins & _detects(detects, effects.pair, "enter")))
    ended = spans.end < reports.length
    # An end is told of what was told to have begun: by `enter`, or where only `dwell` is told, by that.
    begun = spans.dwell_sent | _detects(detects, spans.pair, "enter") | ~_detects(detects, spans.pair, "dwell")
    silent = spans.effect == FALLS_SILENT
    phases = np.where(dwells > spans.first, EXPIRED, OVERDUE)
    found = [
        _told("enter", entered.pair, entered.row, reports.moment[entered.row], entered.effect, CAUSED, NEVER),
        _told("dwell", spans.pair, dwells, spans.started_at, spans.effect, phases, due).select(
            (dwells < reports.length) & _detects(detects, spans.pair, "dwell")
        ),
        _told(
            "exit",
            spans.pair,
            spans.end,
            spans.started_at,
            spans.effect,
            np.where(silent, EXPIRED, CAUSED),
            np.where(silent, spans.deadline, NEVER),
        ).select(ended & _detects(detects, spans.pair, "exit") & begun),
    ]
    _keep(pairs, which, spans, ~ended)
    return found


def _spans(
    pairs: GrowableTable, which: Integers, effects: PairEffects, begins: Flags, lasting: Integers, reports: ReportTable
) -> _Spans:
    held = np.flatnonzero(pairs["held"][which])
    starts, ends = effects.select(np.flatnonzero(begins)), effects.select(np.flatnonzero(~begins))
    due = deadlines(reports.began[starts.row], lasting[starts.pair])
    columns = (
        np.concatenate([held, starts.pair]),
        np.concatenate([np.full(len(held), -1), starts.row]),
        np.concatenate([pairs["started_at"][which[held]], reports.moment[starts.row]]),
        np.concatenate([pairs["due"][which[held]], due]),
        np.concatenate([pairs["dwell_sent"][which[held]], np.zeros(len(starts.pair), np.bool_)]),
        np.concatenate([pairs["clocks"][which[held]], _clocks(pairs, which[starts.pair], starts.row, reports)]),
    )
    # Beginnings and ends alternate: the n-th span of a pair ends with its n-th end, if there are so many.
    order = np.argsort(columns[0], kind="stable")
    pair, first, started_at, due, dwell_sent, clocks = (column[order] for column in columns)
    end, effect = np.full(len(pair), reports.length), np.full(len(pair), FAILS)
    last = np.full(len(pair), FOREVER)
    # A pair's spans lie side by side, in order; its ends are counted into them.
    rank = np.arange(len(ends.pair)) - np.searchsorted(ends.pair, ends.pair)
    at = np.searchsorted(pair, ends.pair) + rank
    end[at], effect[at], last[at] = ends.row, ends.effect, ends.deadline
    return _Spans(pair, first, started_at, due, dwell_sent, end, effect, last, clocks)


def _clocks(pairs: GrowableTable, rows: Integers, row: Integers, reports: ReportTable) -> npt.NDArray[np.int16]:
    """By which clocks pairs go that begin at a row: those of the newest reports of both sides then."""
    if reports.single:
        return np.zeros(len(rows), np.int16)
    sides = [reports.column("clock", reports.as_of(pairs[side][rows], row)) for side in _sides(pairs)]
    return clock_pair(sides[0], sides[-1]).astype(np.int16)


def _sides(pairs: GrowableTable) -> tuple[str, ...]:
    return ("a", "b") if "b" in pairs.names else ("a",)


def _lasted(spans: _Spans, reports: ReportTable) -> tuple[_Spans, Integers]:
    """The row at which each span has lasted long enough, if it has; the spans know that it has."""
    # What begins with a report of a moment so early that it has lasted by the clock does so at once.
    row = np.maximum(reports.first_row_of_both(spans.due, spans.clocks), spans.first)
    # Silence ends at a time of its own, which no row need have; all else with a row, before which what lapses is told.
    in_time = np.where(spans.effect == FALLS_SILENT, spans.due <= spans.deadline, True) & (row <= spans.end)
    lasted = (spans.due != FOREVER) & (row < reports.length) & in_time
    known = replace(spans, due=np.where(lasted, FOREVER, spans.due), dwell_sent=spans.dwell_sent | lasted)
    return known, np.where(lasted, row, reports.length)


def _keep(pairs: GrowableTable, which: Integers, spans: _Spans, open_: Flags) -> None:
    """Writes what holds at the end of the stretch."""
    # At most one span of a pair is open, its last.
    pairs["held"][which] = False
    rows = which[spans.pair[open_]]
    pairs["held"][rows] = True
    for name in ("started_at", "due", "dwell_sent", "clocks"):
        pairs[name][rows] = getattr(spans, name)[open_]


def _detects(detects: npt.NDArray[np.int8], pair: Integers, detect: Detection) -> Flags:
    return (detects[pair] & DETECTS[detect]) != 0


def _told(
    detect: Detection,
    pair: Integers,
    row: Integers,
    started_at: Integers,
    effect: Integers,
    phase: Integers | int,
    time: Integers | int,
) -> PairTransitions:
    phase, time = (np.broadcast_to(one, len(pair)) for one in (phase, time))
    return PairTransitions(detect, pair, row, phase, started_at, effect, time)
