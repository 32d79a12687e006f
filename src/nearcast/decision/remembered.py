"""What filters ask of an entity's previous event, followed through the batches: PREVIOUS and CHANGED."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.decision.event_values import values_of
from nearcast.decision.repository import Repository, entities
from nearcast.decision.timeline import Track
from nearcast.model.expression import Call, remembered
from nearcast.model.filter import Filter, atoms
from nearcast.model.values import Value


def asked_of_previous(filter: Filter) -> list[str]:
    """The names of the attributes of the previous event that a filter reads."""
    return [name for atom in atoms(filter) if isinstance(atom.name, Call) for name in remembered(atom.name)]


class Remembered:
    """The newest values of the attributes in use, of every entity, as the next batch begins with them."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, tuple[Value, ...]]] = {}

    def advance(
        self, names: Sequence[str], events: pa.Table, repository: Repository
    ) -> dict[str, Track[str, tuple[Value, ...]]]:
        """The values over a batch, of the entities in it; `repository` lacks the batch yet."""
        self._values = {name: self._values[name] for name in names if name in self._values}
        # A name that a new filter asks for was not followed so far: the repository has it all.
        new = [name for name in names if name not in self._values]
        if new:
            self._values |= _newest(new, repository.newest())
        if not names or not len(events):
            return {}
        about, positions = entities(events).to_pylist(), events.column("position").to_pylist()
        tracks = {}
        for name, rows in values_of(events, names).items():
            known = self._values[name]
            # Workers get what their batch can ask for, not what all entities ever told.
            tracks[name] = Track({entity: known[entity] for entity in set(about) if entity in known})
            for entity, position, values in zip(about, positions, rows, strict=True):
                tracks[name].set(entity, position, values)
            known.update(zip(about, rows, strict=True))
        return tracks


def _newest(names: Sequence[str], events: pa.Table) -> dict[str, dict[str, tuple[Value, ...]]]:
    about = pc.cast(entities(events), pa.string()).to_pylist()
    return {name: dict(zip(about, rows, strict=True)) for name, rows in values_of(events, names).items()}
