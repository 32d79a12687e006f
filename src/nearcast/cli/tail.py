"""`nearcast tail`: be a client, live."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import click
import httpx
from rich.console import Console

from nearcast.cli.options import several_server_options
from nearcast.cli.output import plain, print_json, warn
from nearcast.cli.system import document_of, require_server, unreachable
from nearcast.client import Client, Delivery
from nearcast.errors import Fault, Mark, SetupError

COLOURS = {0: "bold red", 1: "yellow", 2: "cyan"}


AWAY_SECONDS = 2.0
"""So often is looked whether there is a connection."""


@click.command("tail")
@click.argument("client", required=False)
@click.option("--filter", "filter_text", help="CQL2 text: subscribe this client while it listens.")
@click.option("--reading", "readings", multiple=True, metavar="NAME=NUMBER", help="State a reading, as bandwidth=200.")
@click.option("--count", type=int, help="End after so many deliveries.")
@several_server_options
@click.option("--json", "as_json", is_flag=True, help="Print each delivery as a JSON object.")
def command(
    client: str | None,
    filter_text: str | None,
    readings: tuple[str, ...],
    count: int | None,
    urls: tuple[str, ...],
    token: str | None,
    as_json: bool,
) -> None:
    """Receive as CLIENT: what its subscriptions select, most urgent first. Without CLIENT, as a new one for this time.

    With --filter the client is subscribed to it until the command ends.
    """
    if client is None and filter_text is None:
        raise click.UsageError("give a CLIENT, or a --filter, or both")
    stated = dict(_reading(text) for text in readings)
    try:
        asyncio.run(_tail(client, filter_text, stated, count, urls, token, as_json))
    except KeyboardInterrupt:
        sys.exit(0)


def _reading(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise click.UsageError(f"expected --reading NAME=NUMBER, got {text!r}") from None


async def _tail(
    client: str | None,
    filter_text: str | None,
    readings: dict[str, float],
    count: int | None,
    urls: tuple[str, ...],
    token: str | None,
    as_json: bool,
) -> None:
    # The client would try on and on; that there is no server is to be said at once.
    require_server(urls)
    name = client or f"tail-{uuid.uuid4().hex[:8]}"
    subscribed = _subscribed(name, client is None, filter_text, urls, token)
    async with subscribed, Client(urls, name, token) as receiving:
        if readings:
            await receiving.say(readings=readings)
        # A client that is not known is told before anybody waits.
        await receiving.connected()
        warn("note", f"listening as {name} at {receiving.server}; end with Ctrl-C")
        watching = asyncio.create_task(_watch(receiving))
        try:
            await _show_all(receiving, count, as_json)
        finally:
            watching.cancel()


async def _show_all(receiving: Client, count: int | None, as_json: bool) -> None:
    """Shows deliveries as they come, as many as are asked for."""
    left = count
    async for delivery in receiving.deliveries():
        _show(delivery, as_json)
        # Before the count is looked at: the last one is taken, too.
        await receiving.acknowledge(delivery.position)
        left = None if left is None else left - 1
        if left == 0:
            return


async def _watch(receiving: Client) -> None:
    """Says when the server is away, and when it is back: meanwhile there is nothing else to see."""
    lost = False
    while True:
        # A connection that is back at once is no news.
        await asyncio.sleep(AWAY_SECONDS)
        if receiving.online == lost:
            lost = not receiving.online
            warn("note", "no connection to the server; trying again" if lost else "connected again")


@asynccontextmanager
async def _subscribed(
    name: str, new: bool, filter_text: str | None, urls: Sequence[str], token: str | None
) -> AsyncIterator[None]:
    """The client and its subscription for as long as it listens."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    wanted: dict[str, dict[str, str]] = {f"/clients/{name}": {}} if new else {}
    if filter_text:
        wanted[f"/subscriptions/tail-{uuid.uuid4().hex[:8]}"] = {"client": name, "filter": filter_text}
    async with httpx.AsyncClient(headers=headers, timeout=10.0) as http, AsyncExitStack() as stack:
        for path, document in wanted.items():
            await _ask(http, urls, "PUT", path, document)
            stack.push_async_callback(_ask, http, urls, "DELETE", path)
        yield


async def _ask(http: httpx.AsyncClient, urls: Sequence[str], method: str, path: str, document: Any = None) -> None:
    """Asks the first server that answers, and has room."""
    for at, url in enumerate(urls, 1):
        try:
            answer = await http.request(method, f"{url.rstrip('/')}{path}", json=document)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            if at < len(urls):
                continue
            raise unreachable(url, error) from error
        if answer.status_code < 500 or at == len(urls):
            return _accept(answer, url, path)


def _accept(answer: httpx.Response, url: str, path: str) -> None:
    """Raises what a server said, where it refused."""
    if answer.status_code < 400:
        return
    came = document_of(answer) or {}
    if not came.keys() >= {"expected", "came"}:
        raise SetupError(
            f"expected an access server at {url}, got status {answer.status_code}: {answer.text[:100]!r};"
            " is the address right?"
        )
    raise Fault(came["expected"], came["came"], Mark(came.get("where") or path), came.get("advice") or "")


def _show(delivery: Delivery, as_json: bool) -> None:
    if as_json:
        names = ("position", "priority", "subscription", "level", "attempt")
        print_json({name: getattr(delivery, name) for name in names} | {"event": dict(delivery.event)})
        # Into a pipe too each delivery is to go now, not with the next 8 KiB.
        sys.stdout.flush()
        return
    Console(soft_wrap=True, highlight=False).print(
        line(delivery), style=COLOURS.get(delivery.priority, "white"), markup=False
    )


def line(delivery: Delivery) -> str:
    """A delivery for a person: its priority, what it is about, and its data."""
    event = delivery.event
    data = event.get("data")
    told = " ".join(f"{name}={value}" for name, value in data.items()) if isinstance(data, dict) else str(data or "")
    return plain(f"{delivery.priority}  {event['type']} {event.get('subject') or event['source']}  {told}")
