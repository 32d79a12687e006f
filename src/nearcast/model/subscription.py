"""Who wants what: clients, subscriptions, roles and tasks, channels, and settings that hold for all (semantics §3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from nearcast.model.context import ContextSpace, HeldClass, Matrix
from nearcast.model.event import Coordinates, Place
from nearcast.model.filter import Filter
from nearcast.model.limits import Limits, Retention
from nearcast.model.ontology import Ontology

Naming = Literal["subject", "source and subject"]
"""What names an entity: the subject, else the source, of an event; or both, for publishers that name alike."""

NAMINGS: tuple[Naming, ...] = ("subject", "source and subject")

EventOrder = Literal["time", "arrival"]
"""Whether the time of an event is what its publisher says, or when it was accepted."""

EVENT_ORDERS: tuple[EventOrder, ...] = ("time", "arrival")

ChannelClock = Literal["shared", "own"]
"""Whether a channel goes by the clock of all others that share one, or by one of its own."""

CHANNEL_CLOCKS: tuple[ChannelClock, ...] = ("shared", "own")

ChannelDelivery = Literal["ordered", "decentralised"]
"""Whether the pipeline alone decides events of a channel, or access servers too, for their own clients and at once."""

CHANNEL_DELIVERIES: tuple[ChannelDelivery, ...] = ("ordered", "decentralised")

MOST_CLOCKS = 100
"""Channels that have a clock of their own at most."""

ANY_SUBSCRIPTION = "*"
"""The key under which a RELEVANCE file, which names no subscription, keeps its vectors."""


@dataclass(frozen=True, slots=True)
class ClientProfile:
    """A receiver as far as it is known: who, in which role and task, in which context, where; lists of entities.

    `classes`: by reading, where the settings hold classes (`Awareness.holds`). `moments`: by reading, of the newest
    one, microseconds since 1970, where readings have a validity; of a reading that is not there, of that which lapsed.
    """

    id: str
    role: str | None = None
    task: str | None = None
    readings: Mapping[str, float] = field(default_factory=dict)
    place: Place | None = None
    matrix: Matrix | None = None
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    classes: Mapping[str, HeldClass] = field(default_factory=dict)
    moments: Mapping[str, int] = field(default_factory=dict)

    def lapsed(self) -> dict[str, int]:
        """The moments of the readings that are unknown since they lapsed, by reading."""
        return {name: moment for name, moment in self.moments.items() if name not in self.readings}


@dataclass(frozen=True, slots=True)
class Subscription:
    """A filter and how much each of its atoms matters to the clients that share it.

    `relevance`: one value in [0, 1] per atom in document order; None: from the client's role and task, else 1 each.
    `time_to_live`: seconds an event may wait for a client. `conflate`: of an entity only the newest event waits.
    """

    id: str
    clients: tuple[str, ...]
    filter: Filter
    relevance: tuple[float, ...] | None = None
    time_to_live: float | None = None
    conflate: bool = False


@dataclass(frozen=True, slots=True)
class Roles:
    """Relevance vectors by (role, task), then by subscription id or `ANY_SUBSCRIPTION` (thesis listing 7-3).

    `default` is the (role, task) of a client that states none.
    """

    vectors: Mapping[tuple[str, str], Mapping[str, tuple[float, ...]]] = field(default_factory=dict)
    default: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Channel:
    """A meeting point of publishers and subscribers: its event types, none = every other, and its one kind of place.

    `entity`: what names that which its events are about. `order`: what their time is. `clock`: by which its durations
    are counted. `delivery`: who decides its events (semantics §10).
    """

    name: str
    coordinates: Coordinates
    types: tuple[str, ...] = ()
    entity: Naming = "subject"
    order: EventOrder = "time"
    clock: ChannelClock = "shared"
    delivery: ChannelDelivery = "ordered"


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for everybody: N priority levels, context space, matrix, roles, channels, ontology, bounds."""

    levels: int = 3
    space: ContextSpace = field(default_factory=ContextSpace)
    # What `delay_matrix(3)` gives.
    matrix: Matrix = ((2, 1, 0), (1, 0, 0), (0, 0, 0))
    roles: Roles = field(default_factory=Roles)
    channels: tuple[Channel, ...] = ()
    ontology: Ontology = field(default_factory=Ontology)
    limits: Limits = field(default_factory=Limits)
    retention: Retention = field(default_factory=Retention)
