"""The pipeline with Spark's tracking of progress as it is by default, to compare with: `benchmarks.live` runs it."""

from __future__ import annotations

import sys
from pathlib import Path

from nearcast.cli.options import journal_path
from nearcast.cli.supervisor import end_with_supervisor
from nearcast.pipeline.live import PipelineConfig, run


def main(data: Path, metrics_port: int) -> None:
    """Runs until it is ended."""
    end_with_supervisor()
    run(PipelineConfig(journal_path(data), data / "state", None, metrics_port, asynchronous=False, stay=0.0))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
