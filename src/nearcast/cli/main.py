"""The command `nearcast`: its subcommands, and how errors reach a person.

Exit codes: 0 done; 1 asked and answered no (`match` found nothing, `check` found faults, `compare`
found no relation, `replay` got no event that it could take); 2 it could not be done.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import click

from nearcast.errors import DefinitionError, EventError, NearcastError, SetupError
from nearcast.runtime.gc_settings import imports_for_good

COMMANDS = {
    "demo": "See it decide: a simulated bushfire afternoon, or a file of events, with simulated receivers.",
    "up": "Run access server and pipeline, supervised.",
    "apply": "Change the definitions of a running system, and print the difference.",
    "publish": "Publish events from files or standard input.",
    "tail": "Receive as a client, live, with a filter.",
    "status": "Show what a running system does and how it is.",
    "check": "Check definitions, thesis XML and event files; every fault with its place.",
    "explain": "Explain why an event reached a client, or did not.",
    "match": "Print the ids of the events that a filter selects, like grep.",
    "compare": "Say how the events that two filters accept relate.",
    "replay": "Decide a history: who would have got what, at which priority.",
    "import": "Turn a public data set into events, and make up receivers for them.",
    "salvage": "Copy what is whole of a damaged journal into a new data folder.",
    "archive": "Copy what was decided into Parquet files by day and channel.",
    "journal": "Copy a journal into another: a file, or NATS.",
    "connect": "Pass events on from Kafka topics, and deliveries to them.",
    "node": "Be a foraging node: ask nodes nearby for context, and answer them.",
    "server": "Run the access server alone.",
    "pipeline": "Run the pipeline alone.",
}

MODULES = {"import": "import_data"}
"""Where a subcommand is whose name no module can have."""


_ESCAPED = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}


class _Commands(click.Group):
    """Subcommands that are imported when they are called: Spark and the web stack take seconds."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The subcommands' names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand of this name, imported now."""
        if cmd_name not in COMMANDS:
            return None
        with imports_for_good():
            module = importlib.import_module(f"nearcast.cli.{MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="nearcast")
@click.option("-v", "--verbose", is_flag=True, help="Log what happens, to standard error.")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="NEARCAST_CONFIG",
    help="TOML file with options of subcommands: a table for each, as [up] port = 8640.",
)
@click.pass_context
def nearcast(context: click.Context, verbose: bool, config: Path | None) -> None:
    """Deliver every event to whom it concerns, at the priority the receiver's situation calls for."""
    if config:
        context.default_map = _configuration(config)
        _check_options(context, config)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])


class OneLine(logging.Formatter):
    """A line for each message: a name that others choose may have line breaks in it, or what a terminal obeys."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The message with its control characters escaped; a traceback comes behind it."""
        return super().formatMessage(record).translate(_ESCAPED)


def _configuration(path: Path) -> dict[str, dict[str, Any]]:
    """The options in a configuration file, by subcommand. Raises SetupError."""
    try:
        found = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SetupError(f"{path}: expected TOML, got something else: {error}") from None
    unknown = sorted(found.keys() - COMMANDS.keys())
    if unknown or not all(isinstance(table, dict) for table in found.values()):
        raise SetupError(f"{path}: expected tables named as subcommands, got {', '.join(unknown) or 'plain values'}")
    return {name: {key.replace("-", "_"): value for key, value in table.items()} for name, table in found.items()}


def _check_options(context: click.Context, path: Path) -> None:
    """Raises SetupError for an option in the file that the subcommand has not."""
    group, name = context.command, context.invoked_subcommand or ""
    command = group.get_command(context, name) if isinstance(group, click.Group) else None
    given = (context.default_map or {}).get(name, {})
    options = {parameter.name for parameter in command.params} if command else set()
    unknown = sorted(given.keys() - options)
    if unknown:
        raise SetupError(f"{path}: expected options of `nearcast {name}` in [{name}], got {', '.join(unknown)}")


def tell(error: NearcastError) -> None:
    """An error in a line; of definitions each fault, at most 20 of a kind."""
    # After all, only where something failed: it is no use to who asks for help.
    from nearcast.cli.output import warn_of

    if isinstance(error, DefinitionError):
        warn_of("error", error.faults)
    else:
        click.echo(f"error: {error}", err=True)


def main(command: click.Command = nearcast, name: str = "nearcast") -> None:
    """Runs a command; what nearcast itself raises is told in a line per fault, without a traceback."""
    try:
        command(prog_name=name)
    except (DefinitionError, EventError, NearcastError) as error:
        tell(error)
        sys.exit(2)
    except BrokenPipeError:
        # Whoever reads our output has enough; Python would complain about it once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if error.filename is None:
            raise
        click.echo(f"error: expected to use {error.filename}, got {error.strerror}; look at its rights", err=True)
        sys.exit(2)
