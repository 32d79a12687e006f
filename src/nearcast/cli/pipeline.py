"""`nearcast pipeline`: the deciding half alone, as `up` runs it."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from nearcast.cli.options import data_option, journal_option, journal_path, spark_options, state_path
from nearcast.cli.supervisor import end_with_supervisor
from nearcast.journal.locations import Location
from nearcast.pipeline.live import PipelineConfig, run


@click.command("pipeline")
@data_option
@journal_option
@spark_options()
@click.option("--metrics-port", type=int, help="Answer /metrics on this port.")
@click.option(
    "--metrics-host",
    default="127.0.0.1",
    show_default=True,
    help="Where /metrics is answered, without a token: to whoever gets there.",
)
def command(
    data: Path,
    location: Location | None,
    master: str | None,
    spark_properties: Path | None,
    metrics_port: int | None,
    metrics_host: str,
) -> None:
    """Run the pipeline: read the journal on and on, decide every event, write the deliveries."""
    end_with_supervisor()
    # What a batch raises is raised again by `run`; Spark's bridge would print it a second time, and a stop as an error.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    data.mkdir(parents=True, exist_ok=True)
    place = location or journal_path(data)
    config = PipelineConfig(
        place,
        state_path(data),
        master,
        metrics_port,
        metrics_host=metrics_host,
        spark_properties=spark_properties,
    )
    run(config)
