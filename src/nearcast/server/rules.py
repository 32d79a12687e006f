"""Managing what derives events: relations, situation rules, actions. Each change is an event in the journal.

The three are alike, so their routes are made of one description each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends

from nearcast.decision.infer.names import rule_cycle
from nearcast.decision.registry import Registry
from nearcast.errors import DefinitionError, Fault, Mark
from nearcast.language.relation_document import relation_data, relation_document
from nearcast.language.situation_document import action_data, action_document, situation_data, situation_document
from nearcast.model.changes import (
    ActionChange,
    ActionRemoval,
    Change,
    RelationChange,
    RelationRemoval,
    SituationChange,
    SituationRemoval,
)
from nearcast.model.situation import Situation
from nearcast.model.subscription import Settings
from nearcast.server.documents import RuleDocument, Written
from nearcast.server.guards import Manager, service_of
from nearcast.server.manage import REQUEST, BoundedRoute, Dry, Size, given, put, unknown, write
from nearcast.server.names import ID
from nearcast.server.service import Service

Here = Annotated[Service, Depends(service_of)]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of rule: its names, where the registry has it, how documents say it, and the changes that it takes."""

    one: str
    many: str
    means: str
    there: Callable[[Registry], Mapping[str, Any]]
    read: Callable[[dict[str, Any], Mark, Settings], Any]
    data: Callable[[Any], dict[str, Any]]
    change: Callable[[Any], Change]
    removal: Callable[[str], Change]


KINDS = (
    Kind(
        "relation",
        "relations",
        "Ending it ends what holds by it, and says so.",
        lambda registry: registry.relations,
        lambda data, where, settings: relation_document(data, where),
        relation_data,
        RelationChange,
        RelationRemoval,
    ),
    Kind(
        "situation",
        "situations",
        "Ending the rule ends the situations that it concluded.",
        lambda registry: registry.situations,
        situation_document,
        situation_data,
        SituationChange,
        SituationRemoval,
    ),
    Kind(
        "action",
        "actions",
        "What is under way is finished.",
        lambda registry: registry.actions,
        action_document,
        action_data,
        ActionChange,
        ActionRemoval,
    ),
)


def routes(kind: Kind) -> APIRouter:
    """The routes of one kind of rule."""
    router = APIRouter(tags=["manage"], route_class=BoundedRoute, prefix=f"/{kind.many}")

    def found(id: str, service: Service) -> dict[str, Any]:
        there = kind.there(service.desk.registry)
        if id not in there:
            raise unknown(kind.one, id)
        return kind.data(there[id])

    @router.get("", name=f"all {kind.many}")
    async def several(token: Manager, service: Here) -> list[dict[str, Any]]:
        """All of them, in the order in which they were added."""
        return [kind.data(one) for one in kind.there(service.desk.registry).values()]

    @router.get(f"/{ID}", name=f"one {kind.one}")
    async def one(id: str, token: Manager, service: Here) -> dict[str, Any]:
        """One of them."""
        return found(id, service)

    @router.put(f"/{ID}", name=f"put {kind.one}")
    async def put_one(
        id: str, document: RuleDocument, token: Manager, service: Here, size: Size, dry: Dry = False
    ) -> Written:
        """Adds one, or replaces the one with this id; it holds from the position answered on."""
        registry = service.desk.registry
        rules = dict(registry.situations)

        def read(settings: Settings) -> tuple[Change, dict[str, Any]]:
            """The change, and what is answered."""
            asked = kind.read(given(document, id), REQUEST, settings)
            if isinstance(asked, Situation):
                _check_cycle(asked, rules, settings)
            return kind.change(asked), kind.data(asked)

        return await put(service, size, read, dry)

    @router.delete(f"/{ID}", name=f"delete {kind.one}", description=f"Ends it. {kind.means}")
    async def delete(id: str, token: Manager, service: Here) -> Written:
        before = found(id, service)
        return Written(position=await write(service, kind.removal(id)), document=before)

    return router


def _check_cycle(asked: Situation, there: Mapping[str, Situation], settings: Settings) -> None:
    """A rule that would stand on itself, by way of others, is refused with the way."""
    way = rule_cycle({**there, asked.id: asked}.values(), settings.ontology)
    if way:
        expected = "rules of which none stands on itself"
        raise DefinitionError(Fault(expected, f"a cycle, {' → '.join(way)}", Mark("when"), "take one condition out"))


router = APIRouter()
for _kind in KINDS:
    router.include_router(routes(_kind))
