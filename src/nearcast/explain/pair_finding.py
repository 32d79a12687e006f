"""What is found of a relation between two entities: of its sides, its predicate, and its limits among all others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from nearcast.filters.spatial_atoms import spatial_atoms
from nearcast.filters.truth import Truth
from nearcast.model.event import Event
from nearcast.model.filter import Atom
from nearcast.model.geometry_budget import SPENT
from nearcast.model.limits import Limits
from nearcast.model.relation import Pair, Relation
from nearcast.model.values import Value
from nearcast.relations.admission import Crowding
from nearcast.relations.reports import moment_of
from nearcast.relations.transition_events import Transition
from nearcast.relations.transitions import PairStanding
from nearcast.state.lateness import FOREVER, NEVER
from nearcast.state.windows import AggregateFinding, too_many

NOT_BEGUN: Mapping[str, Any] = {"since": None, "due": None, "dwelt": False, "told": ()}
"""What is said of a pair that did not begin."""


@dataclass(frozen=True, slots=True)
class PredicateFinding:
    """An atom of a side's filter or of the predicate: its truth (None: UNKNOWN), with the margin too where there is one
    (`staying`), and the values that it read, by name; and its aggregates, each with its entity.
    """

    atom: Atom
    truth: Truth
    staying: Truth
    read: tuple[tuple[str, tuple[Value, ...]], ...]
    aggregates: tuple[tuple[str, AggregateFinding], ...] = ()


@dataclass(frozen=True, slots=True)
class SideFinding:
    """One of the two: its newest report (None: it was not heard of), whether it is of its side, and by which atoms;
    `silent_since`: when its time to live was over, None where it is not.
    """

    entity: str
    report: Event | None
    member: bool
    conditions: tuple[PredicateFinding, ...]
    silent_since: datetime | None


@dataclass(frozen=True, slots=True)
class PairFinding:
    """Why a relation holds between two entities as of a position, or does not.

    `time` is the clock then; `since` the time of the event by which it began, `due` the clock at which it
    has lasted (None: no `for`, or told). `told` are the last things that were told of the two, each with its position.
    `reasons` say why it does not hold; empty where it does. `undecided`: why the last report that could change it did
    not, where the work on geometries that is allowed for an event was done before it was the pair's turn; else empty.
    """

    relation: Relation
    position: int
    time: datetime | None
    a: SideFinding
    b: SideFinding
    metres: float | None
    predicate: Truth
    conditions: tuple[PredicateFinding, ...]
    holds: bool
    since: datetime | None
    due: datetime | None
    dwelt: bool
    told: tuple[tuple[int, Transition], ...]
    reasons: tuple[str, ...]
    undecided: str = ""


def within_limits(found: PairFinding, standing: PairStanding, crowding: Crowding | None, limits: Limits) -> PairFinding:
    """What is found of two, given how the relation stands among all: a pair that reports of the two alone begin did not
    begin where a limit was reached, nor end where that was the one of work. `crowding`: what of the relation did not
    begin.
    """
    if compares(found.relation):
        found = _within_geometry_work(found, standing, limits)
    if not found.holds or standing.state:
        return found
    entities = (found.a.entity, found.b.entity)
    for entity, one in (each for condition in found.conditions for each in condition.aggregates):
        if one.value is not None and one.text in standing.unknown:
            why = f"{one.text} of {entity} is not known among all: {too_many(one.text, limits).why}"
            reason = f"{why} (limit windows_readings, {limits.windows_readings:,}); raise it in limits"
            return replace(found, holds=False, reasons=(reason,), **NOT_BEGUN)
    if standing.pairs >= limits.relation_pairs:
        name, most = "relation_pairs", limits.relation_pairs
        why = f"{standing.pairs:,} pairs of the relation hold"
    elif crowding and crowding.hurried.intersection(entities) and min(standing.partners) < limits.relation_partners:
        name, most = "relation_begins", limits.relation_begins
        why = f"more pairs began at once than {limits.relation_burst:,} (relation_burst) and what reports make room for"
    elif (
        crowding
        and not crowding.unseen.keys().isdisjoint(entities)
        and min(standing.partners) < limits.relation_partners
    ):
        name, most = "relation_looks", limits.relation_looks
        near = [f"{crowding.unseen[one]:,} near {one}" for one in entities if one in crowding.unseen]
        why = f"the last report did not look at {' and '.join(near)}"
    else:
        name, most = "relation_partners", limits.relation_partners
        in_pairs = (f"{one} is in {count:,}" for one, count in zip(entities, standing.partners, strict=True))
        why = f"both were in as many pairs of it; now {' and '.join(in_pairs)}"
    refused = [f"{crowding.entities[one]:,} of {one}" for one in entities if crowding and one in crowding.entities]
    more = f"; with the last report {' and '.join(refused)} did not begin" if refused else ""
    reason = (
        f"it did not begin: {why} (limit {name}, {most:,}){more}; raise {name} in limits, or ask for fewer pairs by the"
        " relation's filters, its distance or its time_to_live"
    )
    return replace(found, holds=False, reasons=(reason,), **NOT_BEGUN)


def compares(relation: Relation) -> bool:
    """Whether a relation compares geometries of both sides, so that its pairs share what this may take."""
    return isinstance(relation.about, Pair) and any(spatial_atoms(relation.about.when))


def _within_geometry_work(found: PairFinding, standing: PairStanding, limits: Limits) -> PairFinding:
    """The same, where other pairs take the work on geometries that is allowed for an event."""
    if standing.undecided:
        most = f"{limits.event_geometry_work:,} units of work (limit {SPENT})"
        why = (
            "with the last report the pair was not decided: comparing the geometries of its pairs takes more than"
            f" {most}, and those come first that tell the shortest"
        )
        found = replace(found, undecided=why)
    state = standing.state
    if state is None:
        # Where it began for the two alone, and not among all, it is told what kept it from that.
        begins = found.holds and found.undecided
        return replace(found, holds=False, reasons=(found.undecided,), **NOT_BEGUN) if begins else found
    since = None if state.started_at == NEVER else moment_of(state.started_at)
    if found.holds and found.since == since:
        return found
    due = None if state.due == FOREVER else moment_of(state.due)
    return replace(found, holds=True, since=since, due=due, dwelt=state.dwell_sent, told=(), reasons=())
