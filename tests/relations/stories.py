"""Stories of moving things for relations: reports and definitions in order, told by an engine in batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import orjson
import pyarrow as pa
import pytest

from nearcast.errors import Mark
from nearcast.language.definitions.relation_documents import relation_document
from nearcast.model.changes import Change, RelationChange
from nearcast.model.columns import to_events, to_table
from nearcast.model.event import Event, Place
from nearcast.model.limits import Limits
from nearcast.model.relation import Relation
from nearcast.model.subscription import Settings
from nearcast.model.values import Value
from nearcast.relations.lanes.scopes import Scopes
from nearcast.relations.lanes.stored_pairs import restore, stored
from nearcast.relations.lanes.stored_scopes import scopes_document, scopes_of
from nearcast.relations.pair_rules import PairRule, PairRules
from nearcast.relations.stage import RelationStage
from nearcast.state.derived import StageInput
from nearcast.state.registry import Registry
from nearcast.state.repository import Repository
from nearcast.state.timeline import Excess
from nearcast.testing.relations import Reference
from tests.state.stored import read_again

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HERE = Mark("here")

NO_OTHER = Limits()
"""The limits that hold unless others are set."""

Step = Event | Change


def at(seconds: float) -> datetime:
    """So many seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def report(
    entity: str,
    x: float | None = None,
    y: float = 0.0,
    second: float | None = None,
    accepted: float | None = None,
    type: str = "car",
    geographic: bool = False,
    node: str | None = None,
    **attributes: Value,
) -> Event:
    """A report of an entity at a place, of a second after noon."""
    place = None if x is None else Place("geographic" if geographic else "planar", x, y)
    time = None if second is None else at(second)
    came = time if accepted is None else at(accepted)
    return Event("e", type, "s", entity, time, place, tuple(attributes.items()), accepted=came, node=node)


def defined(id: str = "r", **fields: Any) -> RelationChange:
    """The definition of a relation; without others, of cars within 10 m."""
    about = {} if "among" in fields else {"a": "type = 'car'", "b": "type = 'car'", "when": "distance(a, b) <= 10"}
    fields = {"lasting": None, **fields}
    lasting = fields.pop("lasting")
    data = {"id": id, **about, **fields} | ({} if lasting is None else {"for": lasting})
    return RelationChange(relation_document(data, HERE))


def events_told(
    engine: Reference | RelationStage | Scopes,
    steps: Sequence[Step],
    cuts: Sequence[int] = (),
    limits: Limits = NO_OTHER,
    excess: Counter[Excess] | None = None,
) -> list[Event]:
    """What an engine tells of a story, which it gets in batches that begin at these steps, within limits; what comes to
    one of these is counted in `excess`.
    """
    repository, told, registry = Repository(), [], Registry(Settings(limits=limits))
    bounds = [0, *sorted(cuts), len(steps)]
    for start, stop in pairwise(bounds):
        events, changes = [], []
        for position, step in enumerate(steps[start:stop], start + 1):
            if isinstance(step, Event):
                events.append(placed(step, position))
            else:
                changes.append((position, step))
        table = to_table(events)
        times = {position: NOON for position, _ in changes}
        stage_input = StageInput(changes, times, table, registry, repository)
        if isinstance(engine, Reference) or not engine.passes_over(stage_input):
            told += as_events(engine.derive(stage_input))
        if excess is not None:
            excess.update(stage_input.excess)
        repository.fold_events(table)
    return told


def as_events(derived: Iterable[Event | pa.Table]) -> Iterator[Event]:
    """What is derived, one by one."""
    for one in derived:
        yield from [one] if isinstance(one, Event) else to_events(one)


class Restarted(Scopes):
    """Relations that are stored and read between any two batches."""

    def derive(self, stage_input: StageInput) -> Iterator[pa.Table]:
        """Goes on as what was read."""
        registry = Registry(
            relations={id: one for each in self._scopes.values() for id, one in each._relations.items()}
        )
        shards = len(self.pairings[None].shards)
        other = scopes_of(read_again(scopes_document(self, registry)), registry, shards)
        restore(other.pairings, stored(self.pairings), shards)
        yield from Scopes.derive(other, stage_input)
        self.__dict__ = other.__dict__


def placed(event: Event, position: int) -> Event:
    """The event at a position of the journal."""
    fields = {name: getattr(event, name) for name in Event.__slots__}
    return Event(**fields | {"position": position, "id": str(position)})


def summary(event: Event) -> tuple[Any, ...]:
    """(position, what, a, b), with a reason or the like behind."""
    data = orjson.loads(event.payload)["data"]
    other = data["b"] if isinstance(data["b"], str) else "+".join(data["b"])
    rest = [data["reason"]] if "reason" in data else ["present"] if "present" in data else []
    return event.position, data["detect"], data["a"], other, *rest


def told(*steps: Step) -> list[tuple[Any, ...]]:
    """What the reference tells of a story, in short."""
    return [summary(event) for event in events_told(Reference(), steps)]


def fail_on_bad(patch: pytest.MonkeyPatch) -> None:
    """Lets the stage relate fail on relations with the id "bad"."""
    add = PairRules.add_relation

    def added(self: PairRules, relation: Relation, sequence: int, after: int = 0) -> PairRule:
        """Adds other relations."""
        if relation.id == "bad":
            raise OverflowError("too far")
        return add(self, relation, sequence, after)

    patch.setattr(PairRules, "add_relation", added)
