"""Options that several subcommands share."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from nearcast.errors import SetupError
from nearcast.journal.jetstream.nats_address import is_nats, parse_address
from nearcast.journal.locations import Location
from nearcast.model.event import MAIN

DATA = Path("nearcast-data")
"""Where a running system keeps its journal and state, unless `--data` says otherwise."""

URL = "http://127.0.0.1:8640"
TOKEN = "NEARCAST_TOKEN"
SERVER = "NEARCAST_URL"

INPUT_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
"""A file of events, or - for standard input; what is in it is found out by `language.event_files`."""


class Positive(click.ParamType[float]):
    """A number above 0, for a speed or a rate."""

    name = "number"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number; a usage error for anything else, infinity and NaN among it."""
        try:
            number = float(str(value))
        except ValueError:
            number = math.nan
        if not 1e-6 <= number <= 1e9:
            self.fail(f"expected a number above 0, got {value!r}", param, ctx)
        return number


F = TypeVar("F", bound=Callable[..., object])


def journal_path(data: Path) -> Path:
    """The journal of a data folder."""
    return data / "journal"


def state_path(data: Path) -> Path:
    """The pipeline's folder in a data folder."""
    return data / "state"


def url_of(host: str, port: int) -> str:
    """The URL of a server that listens there; an IPv6 address, which has colons, stands in brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def data_option(function: F) -> F:
    """`--data DIR`."""
    return click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        default=DATA,
        show_default=True,
        help="Folder of the journal and the state.",
    )(function)


class JournalPlace(click.ParamType[Location]):
    """A journal's file, or its address on NATS."""

    name = "file or URL"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Location:
        """Either of them; a usage error for a wrong address."""
        if not is_nats(value):
            return Path(str(value))
        try:
            parse_address(str(value))
        except SetupError as error:
            self.fail(str(error), param, ctx)
        return str(value)


JOURNAL = "NEARCAST_JOURNAL"
"""The environment variable of `--journal`: there a password in it is seen by fewer than on a command line."""


def journal_option(function: F) -> F:
    """`--journal URL`: where the journal is that a system works on."""
    return click.option(
        "--journal",
        "location",
        type=JournalPlace(),
        metavar="URL",
        envvar=JOURNAL,
        help="A journal on NATS, nats://host:4222,host2:4222/NAME, instead of a file in the data folder; also from"
        f" {JOURNAL}.",
    )(function)


THIS_SERVER = "This server's name: what comes in through it enters there, and is seen by relations local to it."


def node_option(help: str = THIS_SERVER) -> Callable[[F], F]:
    """`--node NAME`: which entry node is meant."""
    return click.option("--node", default=MAIN, show_default=True, callback=_named, help=help)


def _named(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not value.strip():
        raise click.BadParameter("expected a name, got none")
    return value


def server_options(function: F) -> F:
    """`--url` and `--token` of the access server to talk to."""
    function = click.option("--token", envvar=TOKEN, help=f"Bearer token; better in the environment as {TOKEN}.")(
        function
    )
    return click.option(
        "--url",
        envvar=SERVER,
        default=URL,
        show_default=True,
        help=f"The access server; also in the environment as {SERVER}.",
    )(function)
