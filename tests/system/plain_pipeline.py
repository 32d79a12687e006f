"""The pipeline without Spark, as a process that can be killed: it leads, follows and decides by the same code.

`python -m tests.system.plain_pipeline FOLDER`, with the journal's address in NEARCAST_JOURNAL. A test in which the
pipeline starts again and again takes seconds with it; what Spark does when it is killed other tests see.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow as pa

from nearcast.cli.options import JOURNAL, state_path
from nearcast.cli.supervisor import end_with_supervisor
from nearcast.journal.locations import journal_at
from nearcast.model.columns import DELIVERIES
from nearcast.pipeline.follower import Follower
from nearcast.pipeline.retrying_journal import RetryingJournal
from nearcast.pipeline.snapshots import ready_file
from nearcast.stages.decide import decide

WAIT = 0.25
BATCH = 1_000


def run(data: Path) -> None:
    """Decides on and on, until it is killed."""
    state = state_path(data)
    state.mkdir(parents=True, exist_ok=True)
    ready_file(state).unlink(missing_ok=True)
    journal = RetryingJournal(journal_at(os.environ[JOURNAL], ids=data / "journal-ids"), lambda: False)
    with journal.leading("pipeline"):
        through = journal.end("deliveries")
        follower = Follower(journal, state / "known", through)
        ready_file(state).touch()
        while True:
            journal.wait({"events": through}, WAIT)
            after, through = through, min(journal.end("events"), through + BATCH)
            if through > after:
                events = journal.read("events", after, through - after)
                tables = [decide(batch, batch.events) for batch in follower.fold_events(events, through)]
                journal.commit_range("deliveries", pa.concat_tables([DELIVERIES.empty_table(), *tables]), through)


if __name__ == "__main__":
    end_with_supervisor()
    run(Path(sys.argv[1]))
