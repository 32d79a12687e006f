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
    url_of,
)
from nearcast.cli.supervisor import end_with_supervisor
from nearcast.server.access import tokens_from
from nearcast.server.app import serve
from nearcast.server.config import ServerConfig
from nearcast.server.origins import check_origin


@click.command("server")
@data_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Beyond loopback only with NEARCAST_TOKENS.")
@click.option("--port", default=8640, show_default=True, help="0 takes any free one.")
@node_option()
@click.option("--suppress", is_flag=True, help="Hold back events that change nothing where they enter.")
@precision_option
@private_webhooks_option
@origin_option
def command(
    data: Path,
    host: str,
    port: int,
    node: str,
    suppress: bool,
    precision: float,
    private_webhooks: bool,
    origins: tuple[str, ...],
) -> None:
    """Run the access server: publishing and managing over HTTP, receiving over WebSocket and SSE.

    NEARCAST_TOKENS holds tokens, each name:token:rights, separated by spaces; rights are publish, receive and manage.
    """
    end_with_supervisor()
    data.mkdir(parents=True, exist_ok=True)
    tokens = tokens_from(os.environ.get("NEARCAST_TOKENS", ""))
    config = ServerConfig(
        journal_path(data),
        host,
        port,
        tokens,
        node=node,
        suppress=suppress,
        precision=precision,
        private_webhooks=private_webhooks,
        origins=tuple(check_origin(one) for one in origins),
    )
    serve(config, lambda port: click.echo(f"listening on {url_of(host, port)}", err=True))
