"""Rules that conclude situations from readings, and actions that situations call for (semantics §8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nearcast.model.expression import Call
from nearcast.model.filter import Atom, Filter, Operator
from nearcast.model.relation import Detection

Phase = Literal["begin", "update", "end"]
PHASES: tuple[Phase, ...] = ("begin", "update", "end")

SITUATION_TYPE = "nearcast.situation"
"""The type of the events that tell of situations."""

ACTION_TYPE = "nearcast.action"
"""The type of the events that tell that an action is to be run."""

PLUG_INS = "nearcast.actions"
"""The group of entry points by which installed packages register Python actions: `function(event, arguments)`."""


@dataclass(frozen=True, slots=True)
class Situation:
    """A rule: where and while `when` is true of the readings around, there is a situation of class `concludes`.

    Its conditions are about context classes and other situations. `within`: metres around the reading in the middle;
    or `area`: everything in that place is around; or `layer`: everything in the zone of that layer in which the reading
    in the middle is; neither: each class' own `within` in the ontology. `valid`: seconds
    for which a reading counts (None: until the next). `lateness`: seconds for which readings are awaited, so that they
    count in the order of their own times; 0: in the order of the journal. Not `sufficient`: the conditions are only
    necessary; where they are false there is no such situation, whatever other rules say. A situation begins once its
    conditions have held for `begin` seconds, and ends once they have not for `end` seconds. What holds already holds on
    with limits wider by `margins`, each of a class or an aggregate as it is written.
    """

    id: str
    concludes: str
    when: Filter
    within: float | None = None
    area: str | None = None
    valid: float | None = None
    lateness: float = 0.0
    sufficient: bool = True
    begin: float = 0.0
    end: float = 0.0
    margins: tuple[tuple[str, float], ...] = ()
    layer: str | None = None


@dataclass(frozen=True, slots=True)
class Publish:
    """An event to publish: its type, and its data as JSON text, whose texts may hold {place}, {since}, {readings.X}."""

    type: str
    data: str = "{}"


SECRET_PREFIX = "NEARCAST_SECRET_"
"""Of the environment variables that a definition may name: others are none of its author's business."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """A URL to tell by POST; signed with the secret that the environment variable `secret` holds, if one is named.

    Servers read only variables whose names begin with `SECRET_PREFIX`.
    """

    url: str
    secret: str | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A registered Python action by its name, and what it is given besides, as JSON text."""

    name: str
    arguments: str = "{}"


Effect = Publish | Webhook | Run


@dataclass(frozen=True, slots=True)
class Trigger:
    """What else than situations calls for an action: each event that a subscription selects, or that tells that a
    relation was detected so.
    """

    kind: Literal["subscription", "relation"]
    id: str
    detect: tuple[Detection, ...] = ()


NEVER = Atom(Call("FALSE", ()), Operator.EQ, True)
"""The conditions of an action that has a trigger: no situation calls for it."""


@dataclass(frozen=True, slots=True)
class Action:
    """What to do where situations are as `when` says, at each of these `phases` of that; or at a `trigger`.

    One situation alone: at every one of its class. Several: where they are within `within` metres of each other (None:
    the greatest `within` of the rules that conclude them).
    """

    id: str
    when: Filter
    effects: tuple[Effect, ...]
    phases: tuple[Phase, ...] = ("begin",)
    within: float | None = None
    trigger: Trigger | None = None
