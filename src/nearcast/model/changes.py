"""What a control event does: the registry of clients and subscriptions is the fold of these over the journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from nearcast.model.context import HeldClass, Matrix
from nearcast.model.event import Place
from nearcast.model.relation import Relation
from nearcast.model.situation import Action, Situation
from nearcast.model.subscription import Settings, Subscription
from nearcast.model.zone import Zone, ZoneRule


@dataclass(frozen=True, slots=True)
class ClientChange:
    """Type `nearcast.client`: adds a client or changes what is given (not None); readings and lists merge by name.

    A reading of None is one that is unknown again. `classes` are those that earlier readings led to, which
    need not all have been told; `moment` is the time of the readings, microseconds since 1970 (None: as that of the
    newest known); `moments` are those of single readings, where they are others. `lapsed`: readings that are unknown
    from now on, by name with the moment of the reading that is withdrawn: one of another moment stays.
    """

    client: str
    role: str | None = None
    task: str | None = None
    readings: Mapping[str, float | None] | None = None
    place: Place | None = None
    matrix: Matrix | None = None
    lists: Mapping[str, tuple[str, ...]] | None = None
    classes: Mapping[str, HeldClass] | None = None
    moment: int | None = field(default=None, compare=False)
    moments: Mapping[str, int] | None = None
    lapsed: Mapping[str, int] | None = None

    @property
    def withdraws_only(self) -> bool:
        """Whether it does nothing but withdraw readings; then it declares no client."""
        given = (self.role, self.task, self.readings, self.place, self.matrix, self.lists, self.classes, self.moments)
        return self.lapsed is not None and all(one is None for one in given)


@dataclass(frozen=True, slots=True)
class ClientRemoval:
    """Type `nearcast.client.removed`: forgets a client; its subscriptions reach it no more."""

    client: str


@dataclass(frozen=True, slots=True)
class SubscriptionChange:
    """Type `nearcast.subscription`: adds a subscription, or replaces the one with the same id."""

    subscription: Subscription


@dataclass(frozen=True, slots=True)
class SubscriptionRemoval:
    """Type `nearcast.subscription.removed`: ends a subscription."""

    subscription: str


@dataclass(frozen=True, slots=True)
class RelationChange:
    """Type `nearcast.relation.defined`: adds a relation, or replaces the one with the same id."""

    relation: Relation


@dataclass(frozen=True, slots=True)
class RelationRemoval:
    """Type `nearcast.relation.removed`: ends a relation; what held in it is told to have ended."""

    relation: str


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """Type `nearcast.settings`: replaces the settings."""

    settings: Settings


@dataclass(frozen=True, slots=True)
class SituationChange:
    """Type `nearcast.situation.defined`: adds a situation rule, or replaces the one with the same id."""

    situation: Situation


@dataclass(frozen=True, slots=True)
class SituationRemoval:
    """Type `nearcast.situation.removed`: ends a situation rule, and the situations that it concluded."""

    situation: str


@dataclass(frozen=True, slots=True)
class ActionChange:
    """Type `nearcast.action.defined`: adds an action, or replaces the one with the same id."""

    action: Action


@dataclass(frozen=True, slots=True)
class ActionRemoval:
    """Type `nearcast.action.removed`: ends an action."""

    action: str


@dataclass(frozen=True, slots=True)
class ZoneRuleChange:
    """Type `nearcast.zones.defined`: adds a layer without zones, or replaces the rule of one, whose zones stay."""

    rule: ZoneRule


@dataclass(frozen=True, slots=True)
class ZoneShapesChange:
    """Type `nearcast.zones.changed`: adds zones to a layer, replaces those of the same names, takes others away.

    It changes nothing where there is no such layer, or where its zones would be beyond the limits.
    """

    layer: str
    zones: tuple[Zone, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ZoneRemoval:
    """Type `nearcast.zones.removed`: ends a layer; who was in its zones is told to have left."""

    layer: str


@dataclass(frozen=True, slots=True)
class ClockTick:
    """Type `nearcast.tick`: clocks have come so far though no event said so; what is due by then is told (§11).

    `clock` is the shared one, None while nothing has set it; `channels` are those of channels with their own, by name.
    """

    clock: datetime | None
    channels: Mapping[str, datetime] = field(default_factory=dict)


DefinitionChange = (
    SettingsChange
    | SubscriptionChange
    | SubscriptionRemoval
    | RelationChange
    | RelationRemoval
    | SituationChange
    | SituationRemoval
    | ActionChange
    | ActionRemoval
    | ZoneRuleChange
    | ZoneShapesChange
    | ZoneRemoval
)
"""What definition files say, all but what is known of clients."""

Change = DefinitionChange | ClientChange | ClientRemoval | ClockTick
