"""Definitions that a stage cannot compile are kept from it: what is wrong with one of them concerns nobody else.

What a definition says is validated where it is read. This is for what no reader knows of: each stage compiles each
definition alone, before it counts. What comes of that rests on the definition and the settings at its position, not on
what else is known or where batches are cut; so every fold over a journal leaves the same definitions out.
"""

from __future__ import annotations

from collections.abc import Sequence

from nearcast.delivery.subscription_index import groups_of
from nearcast.errors import Fault
from nearcast.matching.atom_table import AtomTable
from nearcast.matching.matcher import FilterMatcher, location_conditions
from nearcast.matching.postfix import try_reading
from nearcast.model.changes import (
    ActionChange,
    Change,
    RelationChange,
    SettingsChange,
    SituationChange,
    SubscriptionChange,
    ZoneRuleChange,
)
from nearcast.model.relation import Gathering, Matching, Relation
from nearcast.model.subscription import Settings, Subscription
from nearcast.relations.gatherings import GatheringState
from nearcast.relations.pair_rules import PairRules
from nearcast.relations.sides import sides_of
from nearcast.situations.stage import compile_rules
from nearcast.state.derived import At
from nearcast.zones.stage import compile_zone_rule


def rejected(changes: Sequence[At], settings: Settings) -> dict[int, Fault]:
    """The positions of definitions that their stage cannot compile, each with why.

    `settings` are those that hold where the changes begin.
    """
    found: dict[int, Fault] = {}
    # One for all: a atom_table only grows, and each atom has a number of its own.
    atom_table = AtomTable()
    for position, change in changes:
        if isinstance(change, SettingsChange):
            settings = change.settings
        try:
            _compile(change, settings, atom_table)
        except MemoryError:
            # That is the machine's affair, and may be over the next time.
            raise
        except Exception as error:
            found[position] = _fault(change, error)
    return found


def _compile(change: Change, settings: Settings, atom_table: AtomTable) -> None:
    match change:
        case SubscriptionChange(subscription):
            _compile_subscription(subscription, settings, atom_table)
        case RelationChange(relation):
            _compile_relation(relation)
        case ZoneRuleChange(rule):
            compile_zone_rule(rule)
        case SituationChange() | ActionChange() | SettingsChange():
            compile_rules(change, settings.ontology)


def _compile_relation(relation: Relation) -> None:
    if isinstance(relation.about, Gathering):
        GatheringState(relation, 0)
    else:
        PairRules().add_relation(relation, 0)
    filters = [side.filter for side in sides_of(relation) if isinstance(side, Matching)]
    if filters:
        FilterMatcher((), filters)


def _compile_subscription(subscription: Subscription, settings: Settings, atom_table: AtomTable) -> None:
    for group, _ in groups_of(subscription, settings):
        try_reading(group, atom_table)
    conditions = [term.conditions for term in location_conditions(subscription.filter) if term.conditions is not None]
    if conditions:
        FilterMatcher((), conditions)


def _fault(change: Change, error: Exception) -> Fault:
    if isinstance(error, Fault):
        return error
    own = {SubscriptionChange: "match", RelationChange: "relate", ZoneRuleChange: "zones"}
    came = f"one on which it fails: {type(error).__name__}: {str(error)[:200]}"
    expected = f"a definition that the stage {own.get(type(change), 'infer')} can take"
    return Fault(expected, came, None, "it changes nothing; define it otherwise")
