"""A snapshot is data: what it is made of, what is not read, and that nothing a stage keeps is left out."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import orjson
import pyarrow as pa
import pytest
import yaml

from nearcast.journal.sqlite import SqliteJournal
from nearcast.language.control_events import changes, to_event
from nearcast.model.changes import ActionChange, Change, SettingsChange, SituationChange, ZoneRuleChange
from nearcast.model.columns import to_table
from nearcast.model.filter import Atom, Operator
from nearcast.model.situation import Action, Publish
from nearcast.model.subscription import Settings
from nearcast.model.zone import ZoneLayer, ZoneRule
from nearcast.pipeline.snapshots import MANIFEST, load, save
from nearcast.relations.admission import PairAdmission
from nearcast.relations.aggregates.entity_windows import EntityWindows
from nearcast.relations.entity_table import EntityTable
from nearcast.relations.filter_members import FilterMembers
from nearcast.relations.gatherings import GatheringStates
from nearcast.relations.geometries.remembered_events import RememberedEvents
from nearcast.relations.lanes.delayed import DelayedRelations
from nearcast.relations.lanes.heard_events import HeardEvents
from nearcast.relations.lanes.scopes import Scopes
from nearcast.relations.pair_rules import PairRules
from nearcast.relations.pairs import PairRelations
from nearcast.relations.plain import EventwiseRelations
from nearcast.relations.stage import RelationStage
from nearcast.situations.lifecycle import SituationEngine
from nearcast.situations.readings import NamedAreas
from nearcast.situations.reorder_buffer import ReorderBuffer
from nearcast.situations.rule_lanes import RuleLanes
from nearcast.situations.rule_plan import plan
from nearcast.situations.stage import SituationStage
from nearcast.situations.store import SituationStore
from nearcast.stages.fold import StateFold
from nearcast.state.repository import Repository
from nearcast.state.windows import IndexedReadingWindows
from nearcast.zones.presence import LayerPresence
from nearcast.zones.stage import ZoneStage
from nearcast.zones.zone_index import ZoneIndex
from tests.pipeline import test_deriving as related
from tests.pipeline.histories import written
from tests.pipeline.test_known import derived_after
from tests.situations.scenes import FIRE, ONTOLOGY, rule, told
from tests.zones.stories import box, zone, zones
from tests.zones.stories import rule as zone_rule

KEPT: dict[str, tuple[object, str, str]] = {
    "Scopes": (Scopes(), "_scopes _delayed _where _heard", ""),
    "DelayedRelations": (
        DelayedRelations(1, RelationStage()),
        "lateness names stage early _clocks _clock _passed _held _moments _counted",
        "",
    ),
    "HeardEvents": (HeardEvents(Repository()), "_nodes _only", ""),
    "RelationStage": (
        RelationStage(),
        "_clocks _by_channel _sequence _lists _relations _known _gone _pairing _crowds _plain _windows",
        # The limits come with each batch; how far a step goes changes no outcome, and no position is in two batches.
        "_limits _step _numbered",
    ),
    # Pairs have files of their own; numbers follow from the order of definitions.
    "PairRelations": (
        PairRelations(EntityTable()),
        "rules known members remembered shards admission",
        # Values follow from the windows; who explains an undecided pair goes through all from the beginning.
        "limits excess looks _asked _values undecided",
    ),
    "FilterMembers": (FilterMembers(), "columns", "_index _spatial"),
    # What was read of the events, and the boxes around them, follow from these.
    "RememberedEvents": (RememberedEvents(), "events", "geometries _boxes _limits"),
    "EntityWindows": (
        EntityWindows(EntityTable()),
        "known readings",
        # From the relations' predicates and the readings.
        "values asked excess _numbers _given _touched _of _spans _shortest _named _due _heaps",
    ),
    "IndexedReadingWindows": (IndexedReadingWindows(), "_windows", "spans limits beyond total _swept"),
    "PairAdmission": (PairAdmission(), "crowded rooms", ""),
    "PairRules": (PairRules(), "by_id filters", "all open general over_time columns _numbers"),
    "GatheringStates": (GatheringStates(EntityTable()), "by_id _listed _known", "_indices _flags limits excess"),
    # With the relations that it has in a stage no filters share work, so of sides nothing is kept.
    "EventwiseRelations": (EventwiseRelations(), "now known _states", "own lists limits excess windows sides _spans"),
    "EntityTable": (EntityTable(), "names columns", "numbers"),
    "ZoneStage": (ZoneStage(), "_clocks _sequence _gone _known _layers", "_limits _excess _step _filters _spatial"),
    # Zones and rules are the registry's, shapes and trees are made of them.
    "LayerPresence": (
        LayerPresence(ZoneLayer(ZoneRule("z", Atom("type", Operator.EQ, "t"))), 1, EntityTable()),
        "layer sequence crowded pairs _known",
        "index _lifecycle _kind _rules",
    ),
    "ZoneIndex": (ZoneIndex("planar"), "", "coordinates zones numbers _shapes _array _tree _work"),
    "SituationStage": (
        SituationStage(),
        "refused provided version _ontology _rules _actions _hidden_after _lanes _number _stale _rezoned",
        # Of one batch, or made of ontology and rules.
        "_layers _zones _limits _excess _change_times _extraction _counted _areas _units _called_by",
    ),
    "RuleLanes": (
        RuleLanes(SituationStore),
        "lanes clocks read_by made",
        "areas _scene _ontology _defined _below _reads",
    ),
    "ReorderBuffer": (
        ReorderBuffer(0, SituationEngine(SituationStore(plan(ONTOLOGY, ()))), NamedAreas(ONTOLOGY)),
        "lateness engine held places clocks told time number early",
        # `left` has a meaning only while rules are made ready.
        "areas left names",
    ),
    "SituationEngine": (
        SituationEngine(SituationStore(plan(ONTOLOGY, ()))),
        "scene now _order _lapses _awaited _begun _cause",
        "",
    ),
    "SituationStore": (
        SituationStore(plan(ONTOLOGY, ())),
        "readings windows counts _by_rule",
        # The limits come with each batch, and what came to them is counted with it.
        "conditions _seats _watched _holders _keys _plan _levels _horizons _counting _followed _hearing _held",
    ),
}
"""Of what stages are made of: the attributes that documents have, and those that are made again."""


@pytest.mark.parametrize("name", KEPT)
def test_all_that_a_stage_keeps_is_written_or_made_again(name: str) -> None:
    """Who adds state says here which of the two it is."""
    thing, stored, made_again = KEPT[name]
    names = vars(thing) if hasattr(thing, "__dict__") else thing.__slots__
    assert sorted(names) == sorted([*stored.split(), *made_again.split()])


def in_order(journal: SqliteJournal, more: list[Change]) -> None:
    """Appends changes, and readings behind them that let situations begin and go on."""
    events = [to_event(change, f"more-{number}", "s") for number, change in enumerate(more)]
    readings = [told(second, "a", 0, Temperature=85 + second, Humidity=5) for second in range(4)]
    journal.append("events", to_table([*events, *readings]))


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteJournal]:
    """A journal of cars that meet."""
    folder, defined = tmp_path_factory.mktemp("forms"), yaml.safe_load(related.DEFINITIONS)
    with closing(written(folder, defined, related.documents(150), ("main", "north"))) as journal:
        yield journal


def known_at(journal: SqliteJournal, position: int) -> StateFold:
    """What is known at a position."""
    known = StateFold()
    for _ in known.fold(journal.read("events", 0, position), changes):
        pass
    return known


def test_a_snapshot_has_no_code(journal: SqliteJournal, tmp_path: Path) -> None:
    """Its files are Arrow and JSON."""
    snapshot = save(known_at(journal, 100), tmp_path / "known").folder
    assert 0o700 == snapshot.parent.stat().st_mode & 0o777
    assert {".arrow", ".json"} == {path.suffix for path in snapshot.iterdir()}
    for path in snapshot.glob("*.json"):
        orjson.loads(path.read_bytes())
    for path in snapshot.glob("*.arrow"):
        pa.ipc.open_file(path)


class Trap:
    """What would leave a mark if it were unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("form", ["an older form", "another format", "no manifest", "beside the others"])
def test_a_snapshot_of_another_form_is_not_read(
    journal: SqliteJournal, tmp_path: Path, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told once, runs nothing, goes out of the way, and the journal is read instead."""
    snapshot, mark = save(known_at(journal, 100), tmp_path / "known").folder, tmp_path / "mark"
    manifest = orjson.loads((snapshot / MANIFEST).read_bytes())
    trap = pickle.dumps([Trap(mark)])
    if form == "an older form":
        for path in snapshot.iterdir():
            path.unlink()
        (snapshot / "checksums").write_bytes(b"")
    elif form == "another format":
        (snapshot / MANIFEST).write_bytes(orjson.dumps(manifest | {"format": 1}))
    elif form == "no manifest":
        (snapshot / MANIFEST).unlink()
    (snapshot / "stages.pickle").write_bytes(trap)
    (snapshot / "stages.json").write_bytes(trap)
    for _ in range(2):
        assert 0 == load(tmp_path / "known", 100).position
    assert not mark.exists() and not snapshot.exists()
    assert 1 == caplog.text.count("snapshot left out")


def test_a_snapshot_with_a_flipped_bit_is_not_read(journal: SqliteJournal, tmp_path: Path) -> None:
    """Wherever it is, in whichever file."""
    known = known_at(journal, 100)
    names = sorted(path.name for path in save(known, tmp_path).folder.iterdir())
    assert len(names) > 6
    for number, name in enumerate(names):
        path = save(known, tmp_path).folder / name
        content = bytearray(path.read_bytes())
        content[number * 37 % len(content)] ^= 1 << number % 8
        path.write_bytes(content)
        assert 0 == load(tmp_path, 100).position, name


def test_situations_go_on_from_a_snapshot(tmp_path: Path) -> None:
    """Those that run, what waits for its moment, and rules that the registry has otherwise than the stage."""
    both = rule("alarm", "Alarm", "Fire = TRUE AND Drill = TRUE")
    looped = rule("fire", "Fire", "Alarm = TRUE")
    patient = rule("late", "Drill", "Button = TRUE", lateness=2)
    crowd = rule("crowd", "Drill", "count(uform(Temperature > 86)) BETWEEN 1 AND 1", valid=1.5)
    lasting = rule("lasting", "Alarm", "count(uform(Humidity > 1)) >= 1", within=None, area="building-7", lateness=1)
    zoned = rule("zoned", "Drill", "count(uform(Humidity > 1)) >= 1", within=None, layer="depots")
    layer = [ZoneRuleChange(zone_rule()), zones(zone("west", box(0, -5, 50, 5)))]
    sounding = Action("sound", both.when, effects=(Publish("siren", "{}"),))
    defined: list[Change] = [
        *(SituationChange(one) for one in (FIRE, both, patient, crowd, lasting, zoned)),
        ActionChange(sounding),
        *layer,
    ]
    with closing(SqliteJournal(tmp_path / "journal")) as journal:
        in_order(journal, [SettingsChange(Settings(ontology=ONTOLOGY)), *defined, SituationChange(looped)])
        in_order(journal, [])
        whole = derived_after(StateFold(), journal)
        assert {"nearcast.situation"} <= {row["type"] for row in whole}
        for position in range(1, journal.end("events")):
            save(known_at(journal, position), tmp_path / "known")
            loaded = load(tmp_path / "known", position)
            assert position == loaded.position
            assert position < 11 or list(tmp_path.glob("known/*/situations-definitions.arrow"))
            assert [row for row in whole if row["position"] > position] == derived_after(loaded, journal)
