"""`python -m experiments NAME`, in a checkout: published settings, run again, and what our rules cost."""

from __future__ import annotations

import click

from experiments.foraging.command import foraging
from experiments.fulcrum.command import fulcrum
from experiments.margins.command import margins
from experiments.merging.command import merging
from nearcast.cli.main import main


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Run a published setting again and show its figures beside ours, or what our rules cost on real data."""


for one in (foraging, fulcrum, margins, merging):
    command.add_command(one)

if __name__ == "__main__":
    main(command, "python -m experiments")
