"""Checking files before they are used: definitions, the thesis' XML, and event files, each fault with its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from nearcast.errors import DefinitionError, EventError, Fault, Mark
from nearcast.language import thesis
from nearcast.language.checks.event_vocabulary import EventVocabulary
from nearcast.language.checks.event_warnings import unselected, warnings_of_events
from nearcast.language.checks.fault_tally import FaultTally
from nearcast.language.checks.sure_use import sure_use
from nearcast.language.checks.swapped_coordinates import GeometryPlaces
from nearcast.language.cloudevents import DeadLetter
from nearcast.language.control_events import changes
from nearcast.language.definitions import files
from nearcast.language.definitions.filter_warnings import never_holding
from nearcast.language.definitions.relation_documents import warnings_of_nodes
from nearcast.language.definitions.situation_conditions import unprovided
from nearcast.language.event_files import LINES, read_file
from nearcast.language.input_files import STANDARD_INPUT
from nearcast.language.nodes import at
from nearcast.language.thesis import read_elements
from nearcast.model.changes import SettingsChange
from nearcast.model.event import MAIN, Event
from nearcast.model.subscription import Settings

if TYPE_CHECKING:
    from nearcast.language.checks.definition_use import DefinitionUse

PORTION = 10_000
"""Events that are decided together."""

FEW = 1_000
"""Events that are looked at one by one, where that is enough to say what selects none of them."""

YAML, XML, EVENTS = (".yaml", ".yml"), (".xml",), (*LINES, ".json", ".geojson", ".gz")


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check found; nothing can be taken while there are faults.

    Of each kind the first few are kept. `further_faults` and `further_warnings` say what was expected where there were
    more, and how many more.
    """

    faults: tuple[Fault, ...] = ()
    warnings: tuple[Fault, ...] = ()
    further_faults: tuple[tuple[str, int], ...] = ()
    further_warnings: tuple[tuple[str, int], ...] = ()

    @property
    def good(self) -> bool:
        """Whether everything can be taken."""
        return not self.faults


def check(
    paths: Sequence[Path], node: str = MAIN, now: datetime | None = None, events: Sequence[Path] = ()
) -> CheckReport:
    """Checks files by their endings: YAML definitions (together), XML of the thesis, events (.jsonl, .geojson and
    others, also gzipped; - for standard input). `events` are further files of events, whatever their endings.

    Events are checked against the channels that the definitions among the files define. With events beside them
    definitions are held against these: names, types and values that no event has, what selects nothing, entities that
    would be mixed, rules over readings that none brings. `node` is the access server for which all of it is meant;
    `now` is when events would be published: none may be of a time far ahead of it.
    """
    faults, warnings = FaultTally(), FaultTally()
    found = files.DefinitionSet()
    described = [path for path in paths if path.suffix.lower() in YAML]
    if described:
        try:
            found = files.load(described)
            warnings.extend((*found.warnings, *warnings_of_nodes(found.relations, node)))
        except DefinitionError as error:
            faults.extend(error.faults)
            warnings.extend(error.warnings)
    seen = _SeenEvents(found, node, decided=not faults.total)
    for path in paths:
        if path.suffix.lower() in XML:
            _check_xml(path, faults, warnings)
        elif _has_events(path):
            faults.extend(_event_faults(path, found.settings, now, seen.include))
        elif path not in described:
            known = " ".join((*YAML, *XML, *EVENTS))
            faults.extend([Fault(f"a file that ends in one of {known}", path.name, Mark(str(path)))])
    for path in events:
        faults.extend(_event_faults(path, found.settings, now, seen.include))
    if not faults.total:
        warnings.extend(seen.warnings())
    return CheckReport(tuple(faults.shown), tuple(warnings.shown), tuple(faults.further()), tuple(warnings.further()))


class _SeenEvents:
    """The events beside definitions, and what these make of them; `decided`: whether they are decided, too."""

    def __init__(self, found: files.DefinitionSet, node: str, decided: bool) -> None:
        self._found, self._node = found, node
        self._vocabulary = EventVocabulary()
        self._places = GeometryPlaces()
        self._waiting: list[Event] = []
        self._use: DefinitionUse | None = None
        self._decided = decided and bool(found.subscriptions or found.relations or found.zones)

    def include(self, event: Event, where: Mark) -> None:
        """Takes an event in that can be taken."""
        if not event.control:
            self._vocabulary.include(event, where)
            self._places.include(event, where)
        if self._decided:
            # Acceptance is that of now for all of them; as in replay, no time passes by it.
            self._waiting.append(replace(event, accepted=None))
            if len(self._waiting) >= PORTION:
                self._decide()

    def warnings(self) -> Iterator[Fault]:
        """What is hardly meant, with these events."""
        seen, found = self._vocabulary, self._found
        if not seen.events:
            return
        yield from unprovided(found.situations, found.settings.ontology, set(seen.attributes))
        yield from warnings_of_events(found, seen)
        yield from self._places.swapped(found)
        few = self._use is None and 0 < len(self._waiting) <= FEW
        sure = sure_use(found, self._waiting) if few else None
        if sure is not None:
            yield from unselected(found, *sure, seen.events)
            return
        self._decide()
        if self._use is not None:
            yield from unselected(found, self._use.subscriptions, self._use.relations, seen.events, self._use.layers)

    def _decide(self) -> None:
        if not self._waiting:
            return
        # What decides takes longer to load than most definitions to read.
        from nearcast.language.checks.definition_use import DefinitionUse

        self._use = self._use or DefinitionUse(self._found, self._node)
        self._use.include(self._waiting)
        self._waiting = []


def _has_events(path: Path) -> bool:
    """Whether a file holds events, by its name."""
    return path == STANDARD_INPUT or path.suffix.lower() in EVENTS


def _check_xml(path: Path, faults: FaultTally, warnings: FaultTally) -> None:
    where = at(str(path))
    try:
        text = files.read_text(path, Mark(str(path)))
        if read_elements(text, where, group="LOGICAL_OPERATOR").tag == "RELEVANCE":
            thesis.read_roles(text, where)
        else:
            warnings.extend(never_holding(thesis.read_subscription(text, where)))
    except DefinitionError as error:
        faults.extend(error.faults)
    except Fault as fault:
        faults.extend([fault])


def _event_faults(
    path: Path, settings: Settings, now: datetime | None, include: Callable[[Event, Mark], None]
) -> Iterator[Fault]:
    """The faults of an event file; control events act, so that those which follow are checked under new roles. Events
    that can be taken go to `include`.
    """
    try:
        for where, event in read_file(path, settings.channels, now, settings.limits.name_length):
            if isinstance(event, DeadLetter):
                yield event.fault
                continue
            try:
                for change in changes(event, settings):
                    if isinstance(change, SettingsChange):
                        settings = change.settings
            except EventError as error:
                yield replace(error.fault, where=where)
            else:
                include(event, where)
    except Fault as fault:
        yield fault
    except OSError as error:
        yield Fault("a file that can be read", str(error), Mark(str(path)))
