"""Relations: what is to be told of what happens between entities (semantics §7).

A relation is between the two sides of a pair, or within a crowd of which some gather. Its predicate is a filter whose
atoms are all computed, `(call, =, True)`: `Property("a.price")` is an attribute of side a, `Property("a")` where it is,
`Call("DISTANCE", (Property("a"), Property("b")))` the metres between both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from nearcast.model.filter import Filter

Detection = Literal["enter", "dwell", "exit"]

DETECTIONS: tuple[Detection, ...] = ("enter", "dwell", "exit")

SIDES = ("a", "b")

RELATION_EVENT = "nearcast.relation"
"""The type of the events that relations cause."""

RELATIONS = "nearcast:relations"
"""Their source."""

DEPTH = 3
"""How often an event that a relation caused may, within the same batch, cause one of another relation."""


HERE = ""
"""In place of an entry node's name: the one at which the definition enters."""


@dataclass(frozen=True, slots=True)
class Named:
    """A side that is this one entity."""

    entity: str


@dataclass(frozen=True, slots=True)
class Matching:
    """A side that is any entity whose newest event satisfies the filter, which knows nothing but that event."""

    filter: Filter


@dataclass(frozen=True, slots=True)
class ListMembers:
    """The entities in one of a client's lists."""

    client: str
    list: str


Side = Named | Matching
Crowd = Matching | ListMembers


@dataclass(frozen=True, slots=True)
class Pair:
    """Two different entities, one of each side, for which `when` is TRUE."""

    a: Side
    b: Side
    when: Filter


@dataclass(frozen=True, slots=True)
class Gathering:
    """A member of the crowd that has, itself counted, at least `count` of them within so many metres of it."""

    among: Crowd
    within: float
    count: int


@dataclass(frozen=True, slots=True)
class StrategyChoice:
    """How a relation is evaluated, by name, and what parameters its strategy takes; the outcome is always the same."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Relation:
    """What holds between whom, and what of it is told.

    `margin`: what holds ends only where the predicate fails by more than this, in the predicate's unit. `lasting`:
    seconds it must hold before `dwell`. `time_to_live`: seconds after which a silent entity is no longer there.
    `lateness`: seconds for which late reports are awaited, so that they count in the order of their moments; 0: in the
    order of the journal.
    `node`: the entry node to which the relation is local: it sees only what enters there, as if there were no other.
    None: it is global, and sees everything; `HERE`: local to the server at which it is being defined.
    """

    id: str
    about: Pair | Gathering
    detect: tuple[Detection, ...] = ("enter", "exit")
    margin: float = 0.0
    lasting: float | None = None
    time_to_live: float | None = None
    node: str | None = None
    strategy: StrategyChoice | None = None
    lateness: float = 0.0

    def at(self, node: str) -> Relation:
        """The relation as it is defined at an entry node."""
        return replace(self, node=node) if self.node == HERE else self
