"""What a server begins with where a journal has let go of the events that defined it."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pytest

from nearcast.errors import Mark, SetupError
from nearcast.journal.memory import MemoryJournal
from nearcast.journal.snapshot_log import REGISTRY, put_base
from nearcast.language.control_events import to_event
from nearcast.language.cql2 import parse
from nearcast.language.definitions.registry_rows import registry_rows
from nearcast.model.changes import ClientChange, SubscriptionChange, ZoneRuleChange, ZoneShapesChange
from nearcast.model.columns import to_table
from nearcast.model.subscription import Subscription
from nearcast.model.zone import Zone, ZoneLayer, ZoneRule
from nearcast.server.config import ServerConfig
from nearcast.server.service import AccessServer
from nearcast.state.registry import Registry
from tests.server.conftest import run, running

SQUARE = '{"type":"Polygon","coordinates":[[[0.0,0.0],[1.0,0.0],[1.0,1.0],[0.0,0.0]]]}'
SHIPS = parse("kind = 'ship'", Mark("test"))
CHANGES = (
    ClientChange("ann", readings={"bandwidth": 1_000.0}),
    SubscriptionChange(Subscription("ships", ("ann",), SHIPS)),
    ZoneRuleChange(ZoneRule("docks", SHIPS)),
    *(ZoneShapesChange("docks", (Zone("docks", f"z{number}", SQUARE),)) for number in range(40)),
)


def registry() -> Registry:
    """Of a client, a subscription and a layer of zones."""
    found = Registry()
    for change in CHANGES:
        found.apply(change)
    return found


def trimmed(rows: pa.Table) -> MemoryJournal:
    """A journal whose events went but the newest; its snapshot has these rows of definitions."""
    journal, written = MemoryJournal(), io.BytesIO()
    journal.append("events", to_table(to_event(one, f"e{number}", "test") for number, one in enumerate(CHANGES)))
    feather.write_feather(rows, written, "lz4")
    put_base(journal, len(CHANGES), {REGISTRY: written.getvalue()})
    journal.trim_through("events", len(CHANGES))
    return journal


def test_definitions_of_the_journals_snapshot_are_those_of_the_events_that_went(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Members of a subscription hold what was decided for them since; a layer is made once, not once for each zone."""
    expected, made = registry(), list[str]()
    journal = trimmed(registry_rows(expected))
    monkeypatch.setattr(ZoneLayer, "with_zones", lambda layer, *_: made.append(layer.id))

    async def test() -> None:
        async with running(journal) as server:
            manager = server.service.session_manager
            assert expected == manager.registry
            assert manager.membership.holds("ships", "ann", 1)

    run(test)
    assert [] == made


def test_definitions_that_this_version_cannot_read_refuse_to_begin() -> None:
    """A server without them would deliver to nobody."""
    rows = registry_rows(registry())
    types = pa.array(["nearcast.of-tomorrow", *rows.column("type").to_pylist()[1:]])
    journal = trimmed(rows.set_column(rows.column_names.index("type"), "type", types))
    expected = r"expected definitions of this version in the journal, got .*of-tomorrow.*use the version that wrote it"

    async def test() -> None:
        with pytest.raises(SetupError, match=expected):
            await AccessServer(ServerConfig(Path("unused"), port=0), journal).start()

    run(test)
