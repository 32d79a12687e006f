"""How an access server is started: the options that `up` and `server` share, and what `up` passes on of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import click

from nearcast.cli.options import node_option, url_of
from nearcast.model.event import MAIN

F = TypeVar("F", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class ServingOptions:
    """The options of an access server; see `serving_options` for what they mean."""

    host: str = "127.0.0.1"
    port: int = 8640
    node: str = MAIN
    suppress: bool = False
    precision: float = 1.0
    private_webhooks: bool = False
    origins: tuple[str, ...] = ()
    tokens: Path | None = None
    advertise: str = ""

    @property
    def url(self) -> str:
        """Where the server listens."""
        return url_of(self.host, self.port)

    def arguments(self) -> list[str]:
        """These options on a command line."""
        words = ["--host", self.host, "--port", str(self.port), "--node", self.node, "--precision", str(self.precision)]
        words += ["--suppress"] * self.suppress + ["--private-webhooks"] * self.private_webhooks
        words += ["--advertise", self.advertise] if self.advertise else []
        words += [word for origin in self.origins for word in ("--allow-origin", origin)]
        return words + (["--tokens", str(self.tokens)] if self.tokens else [])


def serving_options(port_help: str | None = None) -> Callable[[F], F]:
    """Options that make `ServingOptions`, by the names of its fields."""
    options: list[Callable[[Any], Any]] = [
        click.option("--host", default="127.0.0.1", show_default=True, help="Beyond loopback only with tokens."),
        click.option("--port", default=8640, show_default=True, help=port_help),
        node_option(),
        click.option(
            "--advertise",
            default="",
            metavar="URL",
            help="Where clients reach this server, if not by its host and port: other servers send them there.",
        ),
        click.option("--suppress", is_flag=True, help="Hold back events that change nothing where they enter."),
        click.option(
            "--precision",
            type=click.FloatRange(0, 1),
            default=1.0,
            show_default=True,
            help="Share of what publishers are told is wanted that has to be; below 1 they are told fewer filters.",
        ),
        click.option("--private-webhooks", is_flag=True, help="Let webhooks reach this machine and private networks."),
        click.option(
            "--allow-origin",
            "origins",
            multiple=True,
            metavar="ORIGIN",
            help="Let pages of this origin use the server from a browser, as https://map.example.org; several times.",
        ),
        click.option(
            "--tokens",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="File of tokens, one name:token:rights in a line, beside those of NEARCAST_TOKENS; only you should"
            " read it.",
        ),
    ]
    return lambda function: reduce(lambda inner, option: option(inner), reversed(options), function)
