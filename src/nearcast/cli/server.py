"""`nearcast server`: the access server alone, as `up` runs it."""

from __future__ import annotations

import os
from pathlib import Path

import click

from nearcast.cli.options import (
    data_option,
    journal_path,
    node_option,
    origin_option,
    precision_option,
    private_webhooks_option,
    tokens_option,
    url_of,
)
from nearcast.cli.output import warn
from nearcast.cli.supervisor import end_with_supervisor
from nearcast.server.access import AccessToken, tokens_from, tokens_in
from nearcast.server.app import serve
from nearcast.server.config import ServerConfig
from nearcast.server.origins import check_origin


@click.command("server")
@data_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Beyond loopback only with tokens.")
@click.option("--port", default=8640, show_default=True, help="0 takes any free one.")
@node_option()
@click.option("--suppress", is_flag=True, help="Hold back events that change nothing where they enter.")
@precision_option
@private_webhooks_option
@origin_option
@tokens_option
def command(
    data: Path,
    host: str,
    port: int,
    node: str,
    suppress: bool,
    precision: float,
    private_webhooks: bool,
    origins: tuple[str, ...],
    tokens: Path | None,
) -> None:
    """Run the access server: publishing and managing over HTTP, receiving over WebSocket and SSE.

    NEARCAST_TOKENS holds tokens, each name:token:rights, separated by spaces; rights are publish, receive and manage.
    sources=A|B and types=T|U beside publish bind what is published.
    """
    end_with_supervisor()
    data.mkdir(parents=True, exist_ok=True)
    known = (*tokens_from(os.environ.get("NEARCAST_TOKENS", "")), *(_tokens_of(tokens) if tokens else ()))
    config = ServerConfig(
        journal_path(data),
        host,
        port,
        known,
        node=node,
        suppress=suppress,
        precision=precision,
        private_webhooks=private_webhooks,
        origins=tuple(check_origin(one) for one in origins),
    )
    serve(config, lambda port: click.echo(f"listening on {url_of(host, port)}", err=True))


def _tokens_of(file: Path) -> tuple[AccessToken, ...]:
    """The tokens of a file; a warning where others may read it."""
    found = tokens_in(file)
    mode = file.stat().st_mode & 0o777
    if mode & 0o077:
        warn("warning", f"expected {file} to be readable by its owner only, got mode {mode:o}; chmod 600 {file}")
    return found
