"""`nearcast tail` while its server goes and comes back."""

from __future__ import annotations

import asyncio

import pytest

from nearcast.cli import tail
from nearcast.client import Delivery


class Receiving:
    """A client that has a connection now and then."""

    def __init__(self, *online: bool) -> None:
        self._left = list(online)

    @property
    def online(self) -> bool:
        return self._left.pop(0) if self.changes else self._left[0]

    @property
    def changes(self) -> bool:
        """Whether there is more than what holds from now on."""
        return len(self._left) > 1


def test_tail_says_when_the_server_is_away_and_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once each, however long it takes."""
    monkeypatch.setattr(tail, "AWAY_SECONDS", 0.001)
    receiving = Receiving(True, True, False, False, False, True, True)

    async def watched() -> None:
        watching = asyncio.create_task(tail._watch(receiving))  # type: ignore[arg-type]
        while receiving.changes:
            await asyncio.sleep(0.001)
        watching.cancel()

    asyncio.run(watched())
    said = capsys.readouterr().err.splitlines()
    assert ["no connection", "connected again"] == [line.split(": ", 1)[1].split(" to")[0] for line in said]


def test_what_publishers_say_does_nothing_to_the_terminal() -> None:
    """Control characters are written out, so an event is one line; other scripts are shown as they are."""
    event = {"type": "a\x1b[2J", "source": "zürich/車", "data": {"note": "two\nlines\x9b", "tags": "[bold]🚒"}}
    delivery = Delivery(position=1, priority=0, subscription="s", level=0, attempt=1, event=event)
    assert r"0  a\x1b[2J zürich/車  note=two\nlines\x9b tags=[bold]🚒" == tail.line(delivery)
