"""Options that several subcommands share."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
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


class DataFolder(click.Path):
    """A folder of this machine; who names a journal on NATS is told which option that is for."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=Path)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The folder; a usage error for an address."""
        if is_nats(value):
            self.fail(f"expected a folder, got an address of NATS; give it as --journal, or in {JOURNAL}", param, ctx)
        return Path(str(super().convert(str(value), param, ctx)))


def data_option(function: F) -> F:
    """`--data DIR`."""
    return click.option(
        "--data", type=DataFolder(), default=DATA, show_default=True, help="Folder of the journal and the state."
    )(function)


def spark_options(master_help: str = "Where Spark runs; local[*] unless given.") -> Callable[[F], F]:
    """`--master URL` and `--spark-properties FILE`: where Spark runs, and its own settings."""

    def both(function: F) -> F:
        """Adds them to a command."""
        function = click.option(
            "--spark-properties",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            envvar=SPARK_PROPERTIES,
            help="Spark's own settings, as in its spark-defaults.conf: what is secret stands on no command line. Also"
            f" from {SPARK_PROPERTIES}.",
        )(function)
        return click.option("--master", help=master_help)(function)

    return both


SPARK_PROPERTIES = "NEARCAST_SPARK_PROPERTIES"
"""The environment variable of `--spark-properties`."""


class JournalPlace(click.ParamType[Location]):
    """Where a system's journal is: its data folder, a file, or an address on NATS."""

    name = "folder, file or URL"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Location:
        """One of them; a usage error for a wrong address."""
        if not is_nats(value):
            return Path(str(value))
        try:
            parse_address(str(value))
        except SetupError as error:
            self.fail(str(error), param, ctx)
        return str(value)


def journal_of(place: Location) -> Location:
    """The journal that is named: of a data folder that in it."""
    return journal_path(place) if isinstance(place, Path) and place.is_dir() else place


def _journal_of(context: click.Context, parameter: click.Parameter, value: Location | None) -> Location | None:
    return None if value is None else journal_of(value)


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
        callback=_journal_of,
        help="A journal on NATS, nats://host:4222,host2:4222/NAME, instead of a file in the data folder; also from"
        f" {JOURNAL}.",
    )(function)


def place_option(help: str) -> Callable[[F], F]:
    """`--data PLACE` or `--journal PLACE`: where the journal is that is read, of which kind ever."""
    kinds = "its data folder, a copy of its journal, or nats://host:4222/NAME; either option names any of them."
    return click.option(
        "--data",
        "--journal",
        "places",
        multiple=True,
        type=JournalPlace(),
        metavar="PLACE",
        help=f"{help}: {kinds} Else {JOURNAL} in the environment.",
    )


def named_place(places: Sequence[Location]) -> Location | None:
    """The one that was named, or is in the environment; None if none is. A usage error where there are several."""
    if len(places) > 1:
        raise click.UsageError(f"give one system, with --data or --journal; got {len(places)}")
    if places:
        return places[0]
    said = os.environ.get(JOURNAL)
    return JournalPlace().convert(said, None, None) if said else None


THIS_SERVER = "This server's name: what comes in through it enters there, and is seen by relations local to it."


def node_option(help: str = THIS_SERVER) -> Callable[[F], F]:
    """`--node NAME`: which entry node is meant."""
    return click.option("--node", default=MAIN, show_default=True, callback=_named, help=help)


def _named(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not value.strip():
        raise click.BadParameter("expected a name, got none")
    return value


def _server_url(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """The server, of several in the environment the first."""
    return _server_urls(context, parameter, value.split())[0]


def _server_urls(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    for value in values:
        if is_nats(value):
            raise click.BadParameter(
                f"expected an access server, like {URL}, got the address of a journal on NATS; start a server on it"
                " with `nearcast server --journal`, and name that"
            )
    return tuple(values) or (URL,)


def _token_option(function: F) -> F:
    return click.option("--token", envvar=TOKEN, help=f"Bearer token; better in the environment as {TOKEN}.")(function)


def server_options(function: F) -> F:
    """`--url` and `--token` of the access server to talk to."""
    return click.option(
        "--url",
        envvar=SERVER,
        default=URL,
        show_default=True,
        callback=_server_url,
        help=f"The access server; also in the environment as {SERVER}.",
    )(_token_option(function))


def several_server_options(function: F) -> F:
    """`--url`, which may be given several times, and `--token` of the access servers to talk to."""
    return click.option(
        "--url",
        "urls",
        multiple=True,
        envvar=SERVER,
        callback=_server_urls,
        help="The access server, or several of one domain, each with --url: the next one is gone to where one does not"
        f" answer. Also in the environment as {SERVER}, with blanks between several.  [default: {URL}]",
    )(_token_option(function))
