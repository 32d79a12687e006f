"""The registry of all that is defined, and of clients: the fold of control events over the journal (semantics §3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from nearcast.errors import Fault
from nearcast.model.changes import (
    ActionChange,
    ActionRemoval,
    Change,
    ClientChange,
    ClientRemoval,
    ClockTick,
    RelationChange,
    RelationRemoval,
    SettingsChange,
    SituationChange,
    SituationRemoval,
    SubscriptionChange,
    SubscriptionRemoval,
    ZoneRemoval,
    ZoneRuleChange,
    ZoneShapesChange,
)
from nearcast.model.context import ContextSpace, HeldClass, held_after
from nearcast.model.limits import Limits
from nearcast.model.relation import Relation
from nearcast.model.situation import Action, Situation
from nearcast.model.subscription import ClientProfile, Settings, Subscription
from nearcast.model.zone import Zone, ZoneLayer, ZoneRule
from nearcast.state.expression_uses import ExpressionUses

UNKNOWN_MOMENT = 0
"""By this a reading is withdrawn of which nobody knows when it was."""

Held = Settings | ClientProfile | Subscription | Relation | Situation | Action | ZoneRule | Zone


@dataclass(slots=True)
class Registry:
    """Who there is and who wants what, as of a position of the journal; the rest in the order of adding."""

    settings: Settings = field(default_factory=Settings)
    clients: dict[str, ClientProfile] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    relations: dict[str, Relation] = field(default_factory=dict)
    situations: dict[str, Situation] = field(default_factory=dict)
    actions: dict[str, Action] = field(default_factory=dict)
    zones: dict[str, ZoneLayer] = field(default_factory=dict)
    expressions: ExpressionUses = field(default_factory=ExpressionUses, compare=False)
    version: int = field(default=0, compare=False)
    """How many changes were folded into it: who rests on it knows whether it is as it was."""

    @property
    def derives(self) -> bool:
        """Whether anything is defined by which events are derived."""
        return bool(self.relations or self.situations or self.zones)

    def refusal(self, change: Change) -> Fault | None:
        """Why a change counts for nothing, as all that is defined would be more than the limits allow; else None."""
        if not isinstance(change, SubscriptionChange):
            return None
        subscription, uses = change.subscription, self.expressions.uses
        count = self.expressions.after(subscription, self.subscriptions.get(subscription.id))
        most = self.settings.limits.expressions
        if count <= max(most, len(uses)):
            return None
        what = "different expressions, LIKEs and terms about entities in the filters of all subscriptions"
        advice = "remove subscriptions that nobody needs, let several clients share one, or raise the limit"
        return Fault(f"at most {most:,} {what} (limit expressions)", f"{count:,} with this one", None, advice)

    def apply(self, change: Change, limited: bool = True) -> None:
        """Folds one change into the registry; removing what is not there changes nothing, nor does a tick, or what is
        refused as there would be too much. What was there already is not `limited`.
        """
        if isinstance(change, ClockTick) or self._withdraws_of_nobody(change) or (limited and self.refusal(change)):
            return
        self.version += 1
        match change:
            case ClientChange():
                self.clients[change.client] = changed(self.clients.get(change.client), change, self.settings)
            case ClientRemoval(id):
                self.clients.pop(id, None)
            case SubscriptionChange(subscription):
                self.expressions.replace(subscription, self.subscriptions.pop(subscription.id, None))
                self.subscriptions[subscription.id] = subscription
            case SubscriptionRemoval(id):
                self.expressions.replace(None, self.subscriptions.pop(id, None))
            case RelationChange(relation):
                self.relations.pop(relation.id, None)
                self.relations[relation.id] = relation
            case RelationRemoval(id):
                self.relations.pop(id, None)
            case SettingsChange(settings):
                self._drop_classes(settings.space)
                self._drop_moments(settings.space)
                self.settings = settings
            case SituationChange(situation):
                self.situations.pop(situation.id, None)
                self.situations[situation.id] = situation
            case SituationRemoval(id):
                self.situations.pop(id, None)
            case ActionChange(action):
                self.actions.pop(action.id, None)
                self.actions[action.id] = action
            case ActionRemoval(id):
                self.actions.pop(id, None)
            case ZoneRuleChange() | ZoneShapesChange() | ZoneRemoval():
                self._apply_zones(change)

    def _apply_zones(self, change: ZoneRuleChange | ZoneShapesChange | ZoneRemoval) -> None:
        match change:
            case ZoneRuleChange(rule):
                before = self.zones.pop(rule.id, None)
                self.zones[rule.id] = ZoneLayer(rule, before.zones if before else {})
            case ZoneShapesChange(id, zones, removed):
                layer = self.zones.get(id)
                after = layer and layer.with_zones(zones, removed, self.settings.limits)
                if after:
                    self.zones[id] = after
            case ZoneRemoval(id):
                self.zones.pop(id, None)

    def _drop_classes(self, space: ContextSpace) -> None:
        """Under another space classes begin anew from the readings, but those of modules that are the same there."""
        if space != self.settings.space:
            for id, client in self.clients.items():
                if client.classes:
                    same = {one.reading for one in space.modules if one in self.settings.space.modules}
                    kept = {name: one for name, one in client.classes.items() if name in same}
                    self.clients[id] = replace(client, classes=kept)

    def _withdraws_of_nobody(self, change: Change) -> bool:
        """Whether readings lapse of a client that was removed: it is not declared anew by that."""
        return isinstance(change, ClientChange) and change.withdraws_only and change.client not in self.clients

    def _drop_moments(self, space: ContextSpace) -> None:
        """Moments stay where readings have a validity still; of those that lapsed, where it is the same."""
        before, after = self.settings.space.validities(), space.validities()
        if before == after:
            return
        for id, client in self.clients.items():
            kept = {
                name: moment
                for name, moment in client.moments.items()
                if name in after and (name in client.readings or before.get(name) == after[name])
            }
            if kept != client.moments:
                self.clients[id] = replace(client, moments=kept)

    def copy(self) -> Registry:
        """A registry that goes its own way from here."""
        return Registry(
            self.settings,
            dict(self.clients),
            dict(self.subscriptions),
            dict(self.relations),
            dict(self.situations),
            dict(self.actions),
            dict(self.zones),
            self.expressions.copy(),
        )

    def at(self, node: str, alone: bool = True) -> Registry:
        """What matters to events that enter at a node: without the relations that are local to others.

        Where it is not `alone`, global relations have no strategy: from one node nobody can hold back for them.
        """
        found = self.copy()
        here = (one for one in self.relations.values() if one.node in (None, node))
        found.relations = {one.id: one if alone or one.node else replace(one, strategy=None) for one in here}
        return found

    def held(self) -> Iterator[Held]:
        """The settings, and all that is there, in the order of `changes`."""
        yield self.settings
        for each in (self.clients, self.subscriptions, self.relations, self.situations, self.actions):
            yield from each.values()
        for layer in self.zones.values():
            yield layer.rule
            yield from layer.zones.values()

    def changes(self) -> list[Change]:
        """The shortest list of changes that folds to this registry."""
        rest = (one for one in self.held() if not isinstance(one, (ZoneRule, Zone)))
        layers = self.zones.values()
        own = (one for layer in layers for one in (layer.rule, ZoneShapesChange(layer.id, tuple(layer.zones.values()))))
        return [*map(change_of, rest), *(ZoneRuleChange(one) if isinstance(one, ZoneRule) else one for one in own)]

    def restore_zones(self, zones: Iterable[Zone]) -> None:
        """Adds zones that were there before to their layers, whatever the limits are by now."""
        found: dict[str, dict[str, Zone]] = {}
        for zone in zones:
            found.setdefault(zone.layer, {})[zone.name] = zone
        for id, own in found.items():
            layer = self.zones[id]
            self.zones[id] = ZoneLayer(layer.rule, {**layer.zones, **own})


def change_of(held: Held) -> Change:
    """The change that adds what a registry holds."""
    match held:
        case ClientProfile(id, role, task, readings, place, matrix, lists, classes, moments):
            return ClientChange(
                id, role, task, readings, place, matrix, lists or None, classes or None, moments=moments or None
            )
        case Subscription():
            return SubscriptionChange(held)
        case Relation():
            return RelationChange(held)
        case Situation():
            return SituationChange(held)
        case Action():
            return ActionChange(held)
        case Settings():
            return SettingsChange(held)
        case ZoneRule():
            return ZoneRuleChange(held)
        case Zone():
            return ZoneShapesChange(held.layer, (held,))


def changed(client: ClientProfile | None, change: ClientChange, settings: Settings | None = None) -> ClientProfile:
    """The client after a change: what it gives replaces, readings and lists merge by name; a new one begins empty.

    Readings and lists for which there is no room are left out (`readings_beyond`, `lists_beyond`).
    """
    client, settings = client or ClientProfile(change.client), settings or Settings()
    beyond = frozenset(readings_beyond(client, change, settings.limits))
    merged = {**client.readings, **(change.readings or {})}
    readings = {name: value for name, value in merged.items() if value is not None and name not in beyond}
    for name, moment in (change.lapsed or {}).items():
        # One that came meanwhile is of another moment.
        if client.moments.get(name, UNKNOWN_MOMENT) == moment and name not in (change.readings or {}):
            readings.pop(name, None)
    return ClientProfile(
        id=client.id,
        role=client.role if change.role is None else change.role,
        task=client.task if change.task is None else change.task,
        readings=readings,
        place=change.place or client.place,
        matrix=change.matrix or client.matrix,
        lists=_lists_after(client, change, settings.limits),
        classes=classes_after(client, change, readings, settings.space),
        moments=_moments_after(client, change, readings, settings.space),
    )


def _moments_after(
    client: ClientProfile, change: ClientChange, readings: Mapping[str, float], space: ContextSpace
) -> Mapping[str, int]:
    """The moments of a client's readings that have a validity, after a change that leaves these readings."""
    if not (change.readings or change.moments):
        return client.moments
    given, moments, found = change.readings or {}, change.moments or {}, dict(client.moments)
    for name in space.validities():
        moment = moments.get(name, change.moment if name in given else found.get(name))
        if moment is None or (name in given and name not in readings):
            found.pop(name, None)
        else:
            found[name] = moment
    return found


def classes_after(
    client: ClientProfile, change: ClientChange, readings: Mapping[str, float], space: ContextSpace
) -> Mapping[str, HeldClass]:
    """The classes of a client's modules that hold them, by reading, after a change that leaves these readings."""
    holding = [one for one in space.modules if one.holds]
    if not holding or (change.readings is None and change.classes is None and change.lapsed is None):
        return client.classes if holding else {}
    found = dict(client.classes)
    for module in holding:
        name = module.reading
        given, before, held = (change.classes or {}).get(name), client.readings.get(name), found.get(name)
        if name not in readings:
            found.pop(name, None)
        elif given is not None and given.fits(module):
            # Whoever heard all the readings, of which one comes for many, says what they led to.
            found[name] = given if held is None or given.moment >= held.moment else held
        elif name in (change.readings or {}):
            held = held or (None if before is None else HeldClass(module.class_of(before)))
            moment = change.moment if change.moment is not None else held.moment if held else 0
            found[name] = held_after(module, held, readings[name], moment)
    return found


def _lists_after(client: ClientProfile, change: ClientChange, limits: Limits) -> Mapping[str, tuple[str, ...]]:
    if not change.lists:
        return client.lists
    beyond = frozenset(lists_beyond(client, change, limits))
    return {name: listed for name, listed in {**client.lists, **change.lists}.items() if name not in beyond}


def lists_beyond(client: ClientProfile | None, change: ClientChange, limits: Limits) -> list[str]:
    """The lists of a change, by name, for which a client that keeps others has no room: the later ones."""
    kept = client.lists if client else {}
    fresh = [name for name in change.lists or () if name not in kept]
    return fresh[max(limits.client_lists - len(kept), 0) :]


def readings_beyond(client: ClientProfile | None, change: ClientChange, limits: Limits) -> list[str]:
    """The readings of a change, by name, for which a client that keeps others has no room: the later ones."""
    given, kept = change.readings or {}, client.readings if client else {}
    # Nearly always: who says again what it said before needs no more room.
    if len(kept) + len(given) <= limits.client_readings:
        return []
    fresh = [name for name, value in given.items() if name not in kept and value is not None]
    lapsed = sum(value is None and name in kept for name, value in given.items())
    return fresh[max(limits.client_readings - len(kept) + lapsed, 0) :]
