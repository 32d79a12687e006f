"""What conditions of rules may take that compare geometries of readings (semantics §12).

What boxes and circles around geometries show takes nothing. What is compared adds up for all conditions that one report
lets be looked at, in the order in which rules are decided; those behind are UNKNOWN. As many are for what falls due at
one moment, and for each situation that is looked at as rules are defined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nearcast.model.geometry_budget import SPENT
from nearcast.model.limits import Limits
from nearcast.situations.readings import ContextReading
from nearcast.state.timeline import Excess

if TYPE_CHECKING:
    from nearcast.geo.told_geometry import ToldGeometries, ToldGeometry

Look = tuple[str, int, str, str | None]
"""A condition, by its rule's id and its number there, around an entity, and in the place in which its rule looks."""

LISTED = 10_000
"""Looks that are known as undecided; of more, the last ones."""


@dataclass(slots=True)
class ConditionLimits:
    """What conditions may take. `excess` counts those that came to a limit, by the entity and the class of the longest
    reading that they compared, in the places of source and type; `undecided` are the looks that were left UNKNOWN the
    last time, for the work of one report was done.
    """

    limits: Limits = field(default_factory=Limits)
    excess: Counter[Excess] = field(default_factory=Counter)
    undecided: dict[Look, None] = field(default_factory=dict)
    _told: dict[str, dict[str, tuple[ContextReading, ToldGeometries]]] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        """Why an undecided look is UNKNOWN."""
        most = f"{self.limits.event_geometry_work:,} units of work"
        return (
            f"comparing the geometries of readings takes more than {most} for all rules together (limit {SPENT}), and"
            " lower rules come first, then those that were defined first"
        )

    def note(self, look: Look, decided: bool) -> None:
        """Takes note of how a look ended."""
        self.undecided.pop(look, None)
        if not decided:
            self.undecided[look] = None
            if len(self.undecided) > LISTED:
                del self.undecided[next(iter(self.undecided))]

    def told(self, readings: Iterable[ContextReading]) -> Callable[[str], ToldGeometry | None]:
        """Gives the geometries that the texts of some readings tell, each read once while its reading counts."""
        by_text = {one.value: one for one in readings if isinstance(one.value, str)}
        return lambda text: self._geometries(by_text[text])(text) if text in by_text else None

    def _geometries(self, reading: ContextReading) -> ToldGeometries:
        own = self._told.setdefault(reading.entity, {})
        known = own.get(reading.name)
        if known is None or known[0] is not reading:
            from nearcast.geo.told_geometry import ToldGeometries

            known = own[reading.name] = reading, ToldGeometries([reading.value], self.limits.geometry_work)
        return known[1]

    def limit(self, limits: Limits) -> None:
        """Goes on within other limits: what cannot be read within some may be read within these."""
        if limits != self.limits:
            self.limits = limits
            self._told.clear()

    def forget(self, entities: Collection[str]) -> None:
        """Forgets what entities tell; it is read again where it still counts."""
        for entity in entities:
            self._told.pop(entity, None)

    def replan(self) -> None:
        """Forgets what other rules asked for."""
        self.undecided.clear()
        self._told.clear()
