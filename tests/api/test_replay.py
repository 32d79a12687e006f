"""`nearcast.replay`: what the command says of files, of every form of events; and nothing is lost silently."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from click.testing import CliRunner

import nearcast
from nearcast.cli.replay import command
from nearcast.errors import DefinitionError, EventError
from tests.docs.pages import ROOT, blocks

PAGE = {block.name: block.text for block in blocks(ROOT / "README.md") if block.name}
DEFINITIONS = PAGE["definitions.yaml"]
LINES = PAGE["events.jsonl"].splitlines()

MEETING = {
    "channels": {"plane": {"coordinates": "planar"}},
    "clients": [{"id": "a"}],
    "subscriptions": [{"id": "s", "client": "a", "filter": "type = 'nearcast.relation' OR n > 1"}],
    "relations": [{"id": "met", "a": "subject = 'u'", "b": "subject = 'v'", "when": "distance(a, b) < 5"}],
}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "definitions.yaml").write_text(DEFINITIONS)
    (tmp_path / "events.jsonl").write_text("\n".join(LINES))
    return tmp_path / "definitions.yaml", tmp_path / "events.jsonl"


def test_every_form_of_events_gives_the_deliveries_that_the_command_gives(files: tuple[Path, Path]) -> None:
    """Lines, dicts, iterators and frames of CloudEvents, a change of a client among them."""
    printed = CliRunner().invoke(
        command, ["--definitions", str(files[0]), "--events", str(files[1]), "--engine", "local"]
    )
    expected = [json.loads(line) for line in printed.stdout.splitlines()]
    definitions = nearcast.Definitions.read(files[0])
    documents = [json.loads(line) for line in LINES]
    assert 9 == len(expected)
    assert expected == nearcast.replay(LINES, definitions)
    assert expected == nearcast.replay(documents, definitions)
    with files[1].open() as file:
        assert expected == list(nearcast.replay(file, definitions))
    assert expected == nearcast.replay(pa.Table.from_pylist(documents), definitions).to_pylist()
    assert expected == nearcast.replay(pl.read_ndjson(files[1]), definitions).to_dicts()
    assert expected == nearcast.replay(pd.DataFrame(documents), definitions).to_dict("records")
    reader = nearcast.replay(pa.Table.from_pylist(documents).to_reader(max_chunksize=3), definitions)
    assert isinstance(reader, pa.RecordBatchReader)
    assert expected == reader.read_all().to_pylist()


def test_plain_rows_are_events_too() -> None:
    """With fields of their own, and their data beside them; what follows from them is told and delivered."""
    rows: list[dict[str, Any]] = [
        {"subject": "u", "x": 0, "y": 0, "n": 1},
        {"subject": "v", "x": 3, "y": 0, "n": 2},
    ]
    definitions = nearcast.Definitions.read(MEETING)
    derived: list[dict[str, Any]] = []
    found = nearcast.replay(rows, definitions, on_derived=derived.append)
    assert [("met", "enter")] == [(one["data"]["relation"], one["data"]["detect"]) for one in derived]
    assert [("1", 2), (derived[0]["id"], 2)] == [(one["event"], one["position"]) for one in found]
    assert found == nearcast.replay(pl.DataFrame(rows), definitions).to_dicts()


def test_what_cannot_be_taken_is_raised_or_told() -> None:
    """An event of no channel, one that comes twice, and a change that cannot be."""
    events: list[Any] = [
        {"id": "1", "n": 2},
        {"id": "1", "n": 2},
        {"id": "2", "n": 2, "lon": 1, "lat": 2},
        {"id": "3", "type": "nearcast.client", "source": "s", "client": "a", "role": 7},
        {"id": "4", "n": 3},
    ]
    definitions = nearcast.Definitions.read(MEETING)
    letters: list[nearcast.DeadLetter] = []
    found = nearcast.replay(events, definitions, on_dead_letter=letters.append)
    assert [("1", 1), ("4", 3)] == [(one["event"], one["position"]) for one in found]
    faults = sorted(str(letter.fault) for letter in letters)
    assert 3 == len(faults)
    for text, fault in zip(("event 3: .*role", "row 1: .*'1' of 'rows' again", "row 2: .*planar"), faults, strict=True):
        assert re.match(text, fault)
    for wrong in (events[:2], events[2:3], events[3:4]):
        with pytest.raises(EventError):
            nearcast.replay(wrong, definitions)


def test_definitions_are_files_or_dicts(files: tuple[Path, Path], tmp_path: Path) -> None:
    """Several are one; faults say where they are, in a dict by the way to it."""
    more = {"clients": [{"id": "kim"}], "subscriptions": [{"id": "all", "client": "kim", "filter": "TRUE"}]}
    together = nearcast.Definitions.read(str(files[0]), more)
    assert (("van-7", "control-room", "kim"), ("around-van-7", "all-closures", "all")) == (
        together.clients,
        together.subscriptions,
    )
    assert "<Definitions: 3 clients, 3 subscriptions>" == repr(together)
    with pytest.raises(DefinitionError, match=r"definitions, subscriptions\[0\].filter:1:4: expected"):
        nearcast.Definitions.read({"clients": [{"id": "a"}], "subscriptions": [{"client": "a", "filter": "n ="}]})
    with pytest.raises(DefinitionError, match=r"no\.yaml"):
        nearcast.Definitions.read(tmp_path / "no.yaml")
    with pytest.raises(DefinitionError, match="a path or a dict of definitions, got int"):
        nearcast.Definitions.read(7)  # type: ignore[arg-type]


def test_replay_reads_definitions_itself(files: tuple[Path, Path]) -> None:
    """A path, a dict and several of them are what `Definitions.read` makes of them."""
    more = {"clients": [{"id": "kim"}], "subscriptions": [{"id": "all", "client": "kim", "filter": "TRUE"}]}
    events = files[1].read_text(encoding="utf-8").splitlines()
    one, both = (nearcast.Definitions.read(*sources) for sources in ([files[0]], [files[0], more]))
    assert nearcast.replay(events, one) == nearcast.replay(events, str(files[0])) == nearcast.replay(events, files[0])
    assert nearcast.replay(events, both) == nearcast.replay(events, [files[0], more])
    assert "kim" in {delivery["client"] for delivery in nearcast.replay(events, [files[0], more])}
    with pytest.raises(DefinitionError, match="a path or a dict of definitions, got int"):
        nearcast.replay(events, 7)  # type: ignore[call-overload]
