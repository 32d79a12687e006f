"""The JavaScript of the how-to, run by node against a real server."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks
from tests.server.conftest import run, running, unit, until
from tests.server.test_deliver import outcomes

NODE = shutil.which("node")
PROGRAMS = {one.name: one.text for one in blocks(ROOT / "docs" / "how-to.md") if one.kind == "js"}


@pytest.mark.skipif(not NODE, reason="no node on the PATH")
@pytest.mark.parametrize("name, options", [("socket.mjs", ["--experimental-websocket"]), ("events.mjs", [])])
def test_the_javascript_of_the_page_receives_and_acknowledges(tmp_path: Path, name: str, options: list[str]) -> None:
    """What waits, and what is published later; all of it is settled, and what it says of itself is known."""

    async def test() -> None:
        assert NODE
        (tmp_path / name).write_text(PROGRAMS[name], encoding="utf-8")
        async with running() as server:
            await server.declare("kim")
            [first] = await server.publish(unit("e1", floor=2))
            environment = {**os.environ, "NEARCAST_URL": server.url, "NODE_NO_WARNINGS": "1"}
            node = await asyncio.create_subprocess_exec(
                NODE, *options, str(tmp_path / name), env=environment, stdout=asyncio.subprocess.PIPE
            )
            try:
                assert node.stdout
                async with asyncio.timeout(60):
                    assert b"0 e1 { floor: 2 }\n" == await node.stdout.readline()
                    [second] = await server.publish(unit("e2", floor=3))
                    assert b"0 e2 { floor: 3 }\n" == await node.stdout.readline()
                await until(lambda: {first: "acknowledged", second: "acknowledged"} == outcomes(server))
                known = server.service.session_manager.registry.clients["kim"]
                assert {"bandwidth": 900} == known.readings
            finally:
                node.kill()
                await node.wait()

    run(test)


def test_there_is_a_program_for_each_way() -> None:
    """About thirty lines each."""
    assert {"socket.mjs", "events.mjs"} == PROGRAMS.keys()
    assert all(len(text.splitlines()) <= 40 for text in PROGRAMS.values())
