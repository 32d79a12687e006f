"""Checking files before they are used: definitions, the thesis' XML, and event files, each fault with its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from pathlib import Path

from nearcast.errors import DefinitionError, EventError, Fault, Mark
from nearcast.language import thesis
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
from nearcast.model.event import MAIN
from nearcast.model.situation import Situation
from nearcast.model.subscription import Settings

MAX_FAULTS = 1_000
"""How many faults of one event file are kept: beyond it the file is of another kind."""

YAML, XML, EVENTS = (".yaml", ".yml"), (".xml",), (*LINES, ".json", ".geojson", ".gz")


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check found; nothing can be taken while there are faults."""

    faults: tuple[Fault, ...] = ()
    warnings: tuple[Fault, ...] = ()

    @property
    def good(self) -> bool:
        """Whether everything can be taken."""
        return not self.faults


def check(paths: Sequence[Path], node: str = MAIN, now: datetime | None = None) -> CheckReport:
    """Checks files by their endings: YAML definitions (together), XML of the thesis, events (.jsonl, .geojson and
    others, also gzipped; - for standard input).

    Events are checked against the channels that the definitions among the files define, and with events beside them,
    rules over readings that none of those brings are warned of. `node` is the access server for which all of it is
    meant; `now` is when events would be published: none may be of a time far ahead of it.
    """
    faults: list[Fault] = []
    warnings: list[Fault] = []
    settings, rules = Settings(), tuple[Situation, ...]()
    attributes: set[str] = set()
    described = [path for path in paths if path.suffix.lower() in YAML]
    if described:
        try:
            found = files.load(described)
            settings, rules = found.settings, found.situations
            warnings += [*found.warnings, *warnings_of_nodes(found.relations, node)]
        except DefinitionError as error:
            faults += error.faults
            warnings += error.warnings
    for path in paths:
        if path in described:
            continue
        if path.suffix.lower() in XML:
            _check_xml(path, faults, warnings)
        elif _has_events(path):
            faults += islice(_event_faults(path, settings, attributes, now), MAX_FAULTS)
        else:
            known = " ".join((*YAML, *XML, *EVENTS))
            faults.append(Fault(f"a file that ends in one of {known}", path.name, Mark(str(path))))
    if any(map(_has_events, paths)) and not faults:
        warnings += unprovided(rules, settings.ontology, attributes)
    return CheckReport(tuple(faults), tuple(warnings))


def _has_events(path: Path) -> bool:
    """Whether a file holds events, by its name."""
    return path == STANDARD_INPUT or path.suffix.lower() in EVENTS


def _check_xml(path: Path, faults: list[Fault], warnings: list[Fault]) -> None:
    where = at(str(path))
    try:
        text = files.read_text(path, Mark(str(path)))
        if read_elements(text, where, group="LOGICAL_OPERATOR").tag == "RELEVANCE":
            thesis.read_roles(text, where)
        else:
            warnings += never_holding(thesis.read_subscription(text, where))
    except DefinitionError as error:
        faults += error.faults
    except Fault as fault:
        faults.append(fault)


def _event_faults(path: Path, settings: Settings, attributes: set[str], now: datetime | None) -> Iterator[Fault]:
    """The faults of an event file; control events act, so that those which follow are checked under new roles. The
    names of what events tell are added to `attributes`.
    """
    try:
        for where, event in read_file(path, settings.channels, now):
            if isinstance(event, DeadLetter):
                yield event.fault
                continue
            attributes.update(name for name, _ in event.attributes)
            try:
                for change in changes(event, settings):
                    if isinstance(change, SettingsChange):
                        settings = change.settings
            except EventError as error:
                yield replace(error.fault, where=where)
    except Fault as fault:
        yield fault
    except OSError as error:
        yield Fault("a file that can be read", str(error), Mark(str(path)))
