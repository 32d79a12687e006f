"""Actions at what subscriptions select and relations tell: at least once each; what fails is a dead letter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from nearcast.errors import DefinitionError, Mark
from nearcast.journal.memory import MemoryJournal
from nearcast.language.definitions import files
from nearcast.language.definitions.situation_documents import action_data, action_document
from nearcast.model.columns import DELIVERIES, to_table
from nearcast.model.relation import RELATION_EVENT
from nearcast.model.situation import NEVER, Action, Trigger, Webhook
from nearcast.model.subscription import Settings
from nearcast.server.metrics import ServerMetrics
from nearcast.server.triggered_actions import TriggeredActions
from nearcast.situations.stage import SituationStage
from nearcast.state.derived import Cause, derived_event
from nearcast.state.registry import Registry
from tests.server.conftest import run, running, unit, until
from tests.server.test_actions import Receiver


def test_what_a_subscription_selects_calls_for_it_once() -> None:
    """However many clients get it; what it selected before the action was there does not, nor does another event."""

    async def test() -> None:
        receiver = Receiver(204, 404)
        async with receiver.serving(), running(private_webhooks=True) as server:
            await server.declare("a", "b")
            both = {"clients": ["a", "b"], "filter": "type = 'unit' AND n > 0"}
            (await server.http.put("/subscriptions/both", json=both)).raise_for_status()
            await server.publish(unit("e0", n=1))
            await until(lambda: server.service.triggered.through == server.journal.end("deliveries"))
            action = {"subscription": "both", "webhook": receiver.url}
            (await server.http.put("/actions/log", json=action)).raise_for_status()
            await server.publish(unit("e1", n=1), unit("e2", n=0))
            await server.publish(unit("e3", n=2))
            await until(lambda: len(receiver.got) == 2)
            told = [json.loads(body)["data"] for _, body in receiver.got]
            # Of one target several are run at the same time: which comes first is nobody's promise.
            assert [("log", "both", "e1"), ("log", "both", "e3")] == sorted(
                (one["action"], one["subscription"], one["event"]["id"]) for one in told
            )
            await until(lambda: server.journal.end("dead letters") == 1)
            again = await server.http.post("/dead-letters/1/retry")
            assert {"run": True} == again.json()
            assert 3 == len(receiver.got)

    run(test)


def relation(journal: MemoryJournal, position: int, detect: str) -> None:
    """Writes what a relation tells, as the pipeline does."""
    data = {"relation": "close", "detect": detect, "a": "x", "b": "y"}
    event = derived_event(
        RELATION_EVENT, "nearcast:relations", f"r{position}", "s", data, Cause(position, None, None), None, 1
    )
    journal.commit_range("derived", to_table([event]), position)
    journal.commit_range("deliveries", DELIVERIES.empty_table(), position)


def test_what_a_relation_tells_calls_for_it(tmp_path: Path) -> None:
    """As it is to be detected. After a restart it goes on from its mark."""
    journal, registry = MemoryJournal(), Registry()
    registry.actions["act"] = Action(
        "act", NEVER, (Webhook("http://x"),), trigger=Trigger("relation", "close", ("exit",))
    )

    def runner() -> TriggeredActions:
        return TriggeredActions(journal, registry, AsyncMock(), ServerMetrics(), tmp_path / "mark")

    first = runner()
    assert 0 == first._read_mark()
    for position, detect in enumerate(("enter", "dwell", "exit"), 1):
        relation(journal, position, detect)
    assert ["act:webhook:3.1"] == [event.id for event in first._calls(0, 10)]
    first._write_mark(2)
    assert 2 == runner()._read_mark()


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ({"subscription": "s", "publish": {"type": "x"}}, "publish"),
        ({"subscription": "s"}, "webhook or run in an action"),
        ({"subscription": "s", "relation": "r", "run": "x"}, "relation"),
        ({"subscription": "s", "detect": ["exit"], "run": "x"}, "detect"),
        ({"relation": "r", "detect": ["exti"], "run": "x"}, "did you mean exit"),
    ],
)
def test_an_action_that_cannot_be_is_refused(document: dict[str, Any], fault: str) -> None:
    """With what is wrong."""
    with pytest.raises(DefinitionError, match=fault):
        action_document({"id": "a", **document}, Mark("request"), Settings())


def test_it_is_written_and_read_again() -> None:
    """And no situation calls for it."""
    for told in ({"relation": "r", "detect": ["enter", "exit"]}, {"subscription": "s"}):
        document = {"id": "a", **told, "webhook": {"url": "http://x"}}
        action = action_document(document, Mark("request"), Settings())
        assert document == action_data(action)
        assert () == tuple(SituationStage()._apply(1, _change(action)))


def _change(action: Action) -> Any:
    from nearcast.model.changes import ActionChange

    return ActionChange(action)


def test_what_calls_for_it_must_be_defined() -> None:
    """In files, with a guess."""
    definitions = {
        "clients": [{"id": "c"}],
        "subscriptions": [{"id": "closures", "client": "c", "filter": "n = 1"}],
        "actions": [{"id": "a", "subscription": "closure", "webhook": "http://x"}],
    }
    with pytest.raises(DefinitionError, match="did you mean closures"):
        files.load([definitions])
