"""What definitions would change in a running system: its documents beside those that files ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from nearcast.language.definitions.client_documents import client_data
from nearcast.language.definitions.files import DefinitionSet
from nearcast.language.definitions.relation_documents import relation_data
from nearcast.language.definitions.settings_documents import settings_data
from nearcast.language.definitions.situation_documents import action_data, situation_data
from nearcast.language.definitions.subscription_documents import subscription_data
from nearcast.language.definitions.zone_documents import zone_rule_data

Document = dict[str, Any]
Documents = dict[str, dict[str, Document]]
"""Documents by kind and id, as HTTP answers them."""

KINDS = {
    "clients": "client",
    "subscriptions": "subscription",
    "relations": "relation",
    "situations": "situation",
    "actions": "action",
    "zones": "layer of zones",
}
"""Each kind of what has an id, and one of it, in the order in which files bring them about."""

OWN_WORD = ("readings", "position", "lapsed")
"""What a client that is there says of itself: files say it of new ones only."""


@dataclass(frozen=True, slots=True)
class DocumentDifference:
    """One document that would be added, changed or removed; without an id it is the settings."""

    kind: str
    id: str
    before: Document | None
    after: Document | None

    def fields(self) -> Iterator[tuple[str, Any, Any]]:
        """The fields that differ, with what they are before and after; None where there is none."""
        before, after = self.before or {}, self.after or {}
        for name in {**before, **after}:
            if before.get(name) != after.get(name):
                yield name, before.get(name), after.get(name)


def documents_of(definitions: DefinitionSet) -> Documents:
    """The documents that files ask for; of zones the rules of their layers."""
    listed: dict[str, list[Document]] = {
        "clients": [client_data(one) for one in definitions.clients],
        "subscriptions": [subscription_data(one) for one in definitions.subscriptions],
        "relations": [relation_data(one) for one in definitions.relations],
        "situations": [situation_data(one) for one in definitions.situations],
        "actions": [action_data(one) for one in definitions.actions],
        "zones": [zone_rule_data(one.rule) for one in definitions.zones],
    }
    return {kind: {one["id"]: _as_answered(one) for one in those} for kind, those in listed.items()}


def settings_difference(there: Document, asked: DefinitionSet) -> list[DocumentDifference]:
    """What becomes of the settings, at most one difference."""
    after = _as_answered(settings_data(asked.settings))
    return [] if after == there else [DocumentDifference("settings", "", there, after)]


def differences(there: Documents, asked: Documents, prune: bool) -> list[DocumentDifference]:
    """What would be added and changed, in an order in which it can be; then, with `prune`, what is in no file."""
    found = [
        DocumentDifference(kind, id, before, after)
        for kind in KINDS
        for id, document in asked[kind].items()
        for before, after in [_pair(kind, there[kind].get(id), document)]
        if before != after
    ]
    if prune:
        gone = [(kind, id) for kind in reversed(KINDS) for id in there[kind] if id not in asked[kind]]
        found += [DocumentDifference(kind, id, there[kind][id], None) for kind, id in gone]
    return found


def _pair(kind: str, before: Document | None, after: Document) -> tuple[Document | None, Document]:
    """A document before and after; of a client that is there, only what files have a word in."""
    if kind != "clients" or before is None:
        return before, after
    asked = {name: value for name, value in after.items() if name not in OWN_WORD}
    return {name: value for name, value in before.items() if name in asked}, asked


def _as_answered(document: Mapping[str, Any]) -> Document:
    """A document as it is after its way through JSON: lists instead of tuples."""
    found: Document = orjson.loads(orjson.dumps(document))
    return found
