"""The rows of one table of events as what is observed in them: who is where, and tells what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nearcast.decision.derived_event import Cause
from nearcast.decision.infer.areas import Areas
from nearcast.decision.infer.extract import Told
from nearcast.decision.infer.tell import moment_of
from nearcast.decision.repository import entities
from nearcast.model.columns import places_of
from nearcast.model.place import Place
from nearcast.model.values import Value


class Observed(NamedTuple):
    """What an event, in a row of its table, tells of its entity at a moment: where it is, in which outlines that is,
    the place it names, the values of classes.
    """

    row: int
    entity: str
    moment: int
    position: int
    place: Place | None
    areas: frozenset[str]
    named: str | None
    read: Mapping[str, Value]


class Rows:
    """One table. `times` are the stream's time at every row, `observed` what rows tell, those that tell nothing left
    out, in order.
    """

    def __init__(self, table: pa.Table, told: Sequence[Told], times: npt.NDArray[np.int64], outlines: Areas) -> None:
        self.times: list[int] = times.tolist()
        self.positions: list[int] = table.column("position").to_pylist()
        self._time, self._accepted = (table.column(name).cast(pa.int64()) for name in ("time", "accepted"))
        self._causes: dict[int, Cause] = {}
        self.observed = list(self._observed(table, told, times, outlines))

    def _observed(
        self, table: pa.Table, told: Sequence[Told], times: npt.NDArray[np.int64], outlines: Areas
    ) -> Iterator[Observed]:
        own = pc.coalesce(self._time, self._accepted, pa.array(times)).to_numpy()
        # A sender's clock may be ahead: nothing was read later than it came.
        moments = np.minimum(own, times).tolist()
        about, where = entities(table).to_pylist(), places_of(table)
        by_row = dict(zip([one.row for one in told], told, strict=True))
        columns = zip(range(len(about)), about, moments, self.positions, where, outlines.around(where), strict=True)
        for row, entity, moment, position, place, areas in columns:
            found = by_row.get(row)
            if found is not None:
                yield Observed(row, entity, moment, position, place, areas, found.place, found.read)
            elif place is not None:
                yield Observed(row, entity, moment, position, place, areas, None, {})

    def cause(self, row: int) -> Cause:
        """An event as a cause."""
        if row not in self._causes:
            time, accepted = (column[row].as_py() for column in (self._time, self._accepted))
            moments = (None if told is None else moment_of(told) for told in (time, accepted))
            self._causes[row] = Cause(self.positions[row], *moments)
        return self._causes[row]
