"""`nearcast archive`, and what reads it: replay and explain, as if all were in the journal still."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from nearcast.cli.options import journal_path, state_path
from nearcast.cli.system import define
from nearcast.errors import Mark
from nearcast.importers import ais
from nearcast.importers.event_documents import merged
from nearcast.journal.archive.archived_journal import ArchivedJournal
from nearcast.journal.reader_marks import put_mark
from nearcast.journal.seam import Journal
from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.cloudevents import read_event
from nearcast.language.control_events import changes
from nearcast.language.definitions import files
from nearcast.model.columns import entered_events
from nearcast.model.limits import Retention, RetentionBound
from nearcast.pipeline.follower import Follower
from nearcast.runtime.passed_time import PassedTime
from nearcast.stages.decide import decide, replay
from nearcast.stages.fold import StateFold
from nearcast.state.derived import derived_of
from tests.cli.test_offline import nearcast
from tests.shared import shared

pytestmark = pytest.mark.data

START = datetime(2126, 1, 1, 22, tzinfo=UTC)
REPORTS = 3_000
NEAR = {"id": "near", "a": "TRUE", "b": "TRUE", "when": "distance(a, b) < 500", "detect": ["enter", "exit"]}


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder: the first ships of a real day, four seconds apart, decided as by a pipeline; receivers move."""
    source = shared("data/ais_us_20220103/AISdata.csv.gz")
    folder = tmp_path_factory.mktemp("system")
    defined, movements = ais.receivers(source, 100)
    told = {"id": "told", "client": defined["clients"][0]["id"], "filter": "type = 'nearcast.relation'"}
    document = {**defined, "relations": [NEAR], "subscriptions": [*defined["subscriptions"], told]}
    (folder / "own.yaml").write_text(yaml.safe_dump(document))
    with closing(SqliteJournal(journal_path(folder))) as journal:
        define(journal, files.load([folder / "own.yaml"]))
        documents = islice(merged(movements, ais.events(source)), REPORTS)
        batch = [
            replace(read_event(one, Mark("test")), accepted=START + timedelta(seconds=4 * number))
            for number, one in enumerate(documents)
        ]
        follower = Follower(journal, state_path(folder) / "known", 0)
        for start in range(0, REPORTS, 200):
            journal.append("events", entered_events(batch[start : start + 200], "main"))
            _decide(journal, follower)
            if start == REPORTS - 600:
                follower.save()
    return folder


def _decide(journal: Journal, follower: Follower) -> None:
    after, end = follower.known.position, journal.end("events")
    found = follower.fold_events(journal.read("events", after, end - after), end)
    batches = [(derived_of(batch.events), decide(batch, batch.events)) for batch in found]
    for log, tables in zip(("derived", "deliveries"), zip(*batches, strict=True), strict=True):
        journal.commit_range(log, pa.concat_tables(tables), end)


def decided(journal: Journal) -> Iterator[dict[str, Any]]:
    for _, rows in replay(StateFold(), journal.row_ranges("events", 0, journal.end("events"), 500), changes):
        yield from rows.to_pylist()


def test_a_history_is_decided_alike_out_of_both(system: Path, tmp_path: Path) -> None:
    """What replay and explain say of it is the same after most of it went; without the archive they say what to do."""
    data, archive = str(system), tmp_path / "archive"
    before = nearcast(system, "replay", "--data", data).stdout
    with closing(SqliteJournal(journal_path(system))) as journal:
        whole = list(decided(journal))
        event = journal.read("events", 1_500, 1)["id"][0].as_py()
        last = journal.read("events", journal.end("events") - 1, 1)["id"][0].as_py()
    assert len(before.splitlines()) == len(whole) > 100
    explained = nearcast(system, "explain", event, "--data", data).stdout
    at_last = nearcast(system, "explain", last, "--data", data).stdout
    done = nearcast(system, "archive", "--data", data, "--to", str(archive))
    assert (0, True) == (done.returncode, "events archived" in done.stderr)
    with closing(SqliteJournal(journal_path(system))) as journal:
        _let_go(journal, state_path(system) / "known")
        assert 2_000 < journal.trimmed("events") < journal.end("events")
        both = ArchivedJournal(archive, journal)
        assert whole == list(decided(both))
        assert whole == list(decided(ArchivedJournal(archive)))
    assert before == nearcast(system, "replay", "--data", data, "--archive", str(archive)).stdout
    assert before == nearcast(system, "replay", "--archive", str(archive)).stdout
    assert explained == nearcast(system, "explain", event, "--data", data, "--archive", str(archive)).stdout
    assert at_last == nearcast(system, "explain", last, "--data", data).stdout
    for command in (("replay", "--to", "1000"), ("explain", event)):
        said = nearcast(system, *command, "--data", data).stderr
        assert "no longer in" in said and "give --archive DIR" in said
    lines = before.splitlines()
    low, high = (json.loads(lines[len(lines) * third // 3])["position"] for third in (1, 2))
    part = nearcast(system, "replay", "--archive", str(archive), "--from", str(low), "--to", str(high)).stdout
    assert [line for line in lines if low <= json.loads(line)["position"] <= high] == part.splitlines()


def _let_go(journal: SqliteJournal, known: Path) -> None:
    """All that is older than half an hour, of what a server has settled."""
    end = journal.end("events")
    put_mark(journal, "server main", {"deliveries": end, "outcomes": 0})
    follower = Follower(journal, known, end)
    follower.retention.passed = PassedTime((START + timedelta(seconds=4 * REPORTS)).timestamp)
    for _ in range(2):
        follower.retention.look(Retention(RetentionBound(age=1_800), archive=True))
