"""The command `nearcast`: its subcommands, and how errors reach a person.

Exit codes: 0 done; 1 asked and answered no (`match` found nothing, `check` found faults); 2 it could not be done.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys

import click

from nearcast.errors import DefinitionError, EventError, NearcastError

COMMANDS = {
    "demo": "See it decide: a simulated bushfire afternoon, or a file of events, with simulated receivers.",
    "up": "Run access server and pipeline, supervised.",
    "publish": "Publish events from files or standard input.",
    "tail": "Receive as a client, live, with a filter.",
    "status": "Show what a running system does and how it is.",
    "check": "Check definitions, thesis XML and event files; every fault with its place.",
    "explain": "Explain why an event reached a client, or did not.",
    "match": "Print the ids of the events that a filter selects, like grep.",
    "replay": "Decide a history: who would have got what, at which priority.",
    "server": "Run the access server alone.",
    "pipeline": "Run the pipeline alone.",
}


class _Commands(click.Group):
    """Subcommands that are imported when they are called: Spark and the web stack take seconds."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"nearcast.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="nearcast")
@click.option("-v", "--verbose", is_flag=True, help="Log what happens, to standard error.")
def nearcast(verbose: bool) -> None:
    """Deliver every event to whom it concerns, at the priority the receiver's situation calls for."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )


def main() -> None:
    """Runs the command; what nearcast itself raises is told in a line per fault, without a traceback."""
    try:
        nearcast()
    except (DefinitionError, EventError, NearcastError) as error:
        faults = getattr(error, "faults", [error])
        for fault in faults:
            click.echo(f"error: {fault}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        # Whoever reads our output has enough; Python would complain about it once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


if __name__ == "__main__":
    main()
