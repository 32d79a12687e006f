"""The server's page in a real browser."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.server.conftest import run, running

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Nothing but this machine has a name: the page is to need no other.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--virtual-time-budget=20000",
    "--dump-dom",
)


async def shown(url: str, profile: Path) -> str:
    """What a page has become once its scripts have run."""
    assert BROWSER
    browser = await asyncio.create_subprocess_exec(
        BROWSER,
        *ARGUMENTS,
        f"--user-data-dir={profile}",
        url,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(180):
            return (await browser.communicate())[0].decode()
    finally:
        if browser.returncode is None:
            browser.kill()


@pytest.mark.skipif(not BROWSER, reason="no chromium on the PATH")
def test_the_address_of_the_server_shows_every_path_without_the_internet(tmp_path: Path) -> None:
    """The description, drawn by its scripts, as the browser has it in the end."""

    async def test() -> None:
        async with running() as server:
            found = (await server.http.get("/openapi.json")).json()
            page = await shown(server.url, tmp_path / "profile")
            assert found["paths"]
            assert [] == [path for path in found["paths"] if f'data-path="{path}"' not in page]

    run(test)
