"""A system whose journal was damaged goes on with what is whole of it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from click.testing import CliRunner

from nearcast.cli.salvage import command
from nearcast.journal.sqlite import SqliteJournal
from tests.server.conftest import received, run, running, unit


def test_a_system_goes_on_with_what_is_whole_of_its_journal(tmp_path: Path) -> None:
    """What waits is delivered, but for lost events; these are taken again, behind all others; no position is given
    twice.
    """
    (tmp_path / "old").mkdir()
    damaged, mended = tmp_path / "old" / "journal", tmp_path / "new" / "journal"

    async def before() -> None:
        with closing(SqliteJournal(damaged)) as journal:
            async with running(journal) as server:
                await server.declare("a")
                for first in range(0, 60, 20):
                    await server.publish(*(unit(str(n), f"u{n}") for n in range(first, first + 20)))

    async def after() -> None:
        with closing(SqliteJournal(mended)) as journal:
            async with running(journal) as server, server.client() as client:
                waiting = await received(client, 40)
                assert [str(n) for n in range(60) if not 20 <= n < 40] == [one.event["id"] for one in waiting]
                assert [63, 64] == await server.publish(unit("20"), unit("new"))
                assert ["20", "new"] == [one.event["id"] for one in await received(client, 2)]
                status = (await server.http.get("/status")).json()
                assert 0 == status["balance"], status

    run(before)
    content = bytearray(damaged.read_bytes())
    with closing(SqliteJournal(damaged)) as journal, journal._reading() as connection:
        query = "SELECT rows FROM blocks WHERE log = 'events' AND first = 23"
        [(rows,)] = connection.execute(query).fetchall()
    content[content.index(rows[100:150])] ^= 0x10
    damaged.write_bytes(content)
    said = CliRunner().invoke(command, [str(tmp_path / "old"), str(tmp_path / "new")])
    assert [
        "events: 42 rows; lost: 23 to 42",
        "deliveries: 40 rows; lost: nothing; left out, of lost events: 20",
    ] == said.stdout.splitlines(), said.output
    run(after)
