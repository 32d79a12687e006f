"""What goes wrong for a while is told when it begins and ends, and now and then in between."""

from __future__ import annotations

import asyncio
import logging
from unittest.mock import patch

import pytest

from nearcast.errors import JournalError
from nearcast.journal.memory import Abort, MemoryJournal
from nearcast.runtime.error_log import RateLimitedErrorLog
from nearcast.server.ingest import group_commit
from tests.server.conftest import run, running, unit, until


def test_a_trouble_is_told_when_it_begins_once_a_minute_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    """However often and in however many parts; with how often it was, and how long."""
    moment = 1_000.0
    error_log = RateLimitedErrorLog("journal", lambda: moment)
    with caplog.at_level(logging.INFO):
        for _ in range(150):
            error_log.failed("writing", JournalError("full"))
            error_log.failed("reading", JournalError("full too"))
            moment += 1
        error_log.works("writing")
        assert 3 == len(caplog.records)
        error_log.works("reading")
        error_log.works("reading")
        error_log.failed("reading", JournalError("full again"))
    assert [
        "journal fails part='writing' failures=1 error='full'",
        "journal still fails part='writing' failures=121 error='full'",
        "journal still fails part='writing' failures=241 error='full'",
        "journal recovered seconds=150 failures=300",
        "journal fails part='reading' failures=1 error='full again'",
    ] == caplog.messages


class Full(MemoryJournal):
    """Has no room, until it has."""

    full = True

    def probe(self) -> None:
        """Fails while there is no room."""
        if self.full:
            raise JournalError("there is no room")


def test_a_server_finds_out_by_itself_that_its_journal_works_again() -> None:
    """Though nothing is published; and not before."""

    async def test() -> None:
        journal = Full([Abort("events", 1, "append")])
        with patch.object(group_commit, "PROBE_SECONDS", 0.01):
            async with running(journal) as server:
                headers = {"Content-Type": "application/cloudevents+json"}
                answer = await server.http.post("/events", json=unit("1"), headers=headers)
                assert (503, "5") == (answer.status_code, answer.headers["retry-after"])
                await asyncio.sleep(0.1)
                assert 503 == (await server.http.get("/health")).status_code
                journal.full = False
                await until(lambda: not server.service.failing())
                assert 200 == (await server.http.get("/health")).status_code

    run(test)
