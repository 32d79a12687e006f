"""`nearcast server`: the access server alone, as `up` runs it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from nearcast.cli.drain import drain
from nearcast.cli.options import TOKEN, data_option, journal_option, journal_path, url_of
from nearcast.cli.output import warn
from nearcast.cli.serving_options import ServingOptions, serving_options
from nearcast.cli.supervisor import end_with_supervisor
from nearcast.journal.locations import Location
from nearcast.server.access import AccessToken, tokens_from, tokens_in
from nearcast.server.app import serve
from nearcast.server.config import ServerConfig, check_address
from nearcast.server.origins import check_origin


@click.command("server")
@data_option
@journal_option
@serving_options("0 takes any free one.")
@click.option(
    "--drain",
    "drained",
    metavar="NAME|URL",
    help=f"Run none, but let that one end: its clients go to the others. It is asked with {TOKEN}, which may manage.",
)
def command(data: Path, location: Location | None, drained: str | None, **given: Any) -> None:
    """Run the access server: publishing and managing over HTTP, receiving over WebSocket and SSE.

    NEARCAST_TOKENS holds tokens, each name:token:rights, separated by spaces; rights are publish, receive and manage.
    sources=A|B and types=T|U beside publish bind what is published.

    Any number of servers may be on one journal, each with a --node of its own: clients are sent where there is room,
    and go to another when theirs ends or dies.
    """
    if drained is not None:
        drain(drained, data, location, os.environ.get(TOKEN))
        return
    end_with_supervisor()
    data.mkdir(parents=True, exist_ok=True)
    options = ServingOptions(**given)
    named = _tokens_of(options.tokens) if options.tokens else ()
    config = ServerConfig(
        location or journal_path(data),
        options.host,
        options.port,
        (*tokens_from(os.environ.get("NEARCAST_TOKENS", "")), *named),
        node=options.node,
        suppress=options.suppress,
        precision=options.precision,
        private_webhooks=options.private_webhooks,
        url=options.advertise and check_address(options.advertise),
        notes=journal_path(data),
        origins=tuple(check_origin(one) for one in options.origins),
    )
    serve(config, lambda port: click.echo(f"listening on {url_of(options.host, port)}", err=True))


def _tokens_of(file: Path) -> tuple[AccessToken, ...]:
    """The tokens of a file; a warning where others may read it."""
    found = tokens_in(file)
    mode = file.stat().st_mode & 0o777
    if mode & 0o077:
        warn("warning", f"expected {file} to be readable by its owner only, got mode {mode:o}; chmod 600 {file}")
    return found
