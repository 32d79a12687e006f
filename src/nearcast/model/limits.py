"""Bounds on what one sender may cost the others, and on what is kept: settings, so every process knows the same."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What may come from one sender, or be kept for one entity or client; data that people send meets none of them.

    Whole numbers count, floats are seconds. What happens beyond a limit is told where it is enforced.
    """

    name_length: int = 1_000
    """Characters of an id, a type, a source, a subject, and of the name of an attribute or of a reading."""
    client_readings: int = 100
    """Names of readings that a client keeps."""
    client_lists: int = 100
    """Names of lists of entities that a client keeps."""
    filter_atoms: int = 1_000
    """Atoms of one filter: everybody waits while it enters, some 20 milliseconds for so many."""
    filter_literals: int = 12_000
    """Values that are written into a filter, those of lists behind IN among them, coordinates of geometries not.

    In a day of ships off the United States there are 10,631, so a list of all of them fits.
    """
    filter_expressions: int = 200
    """Atoms of one filter that no index finds, so that each batch pays for each: expressions, LIKEs, terms about
    entities. So many sums take some 8 milliseconds of a batch, and 30 to enter.
    """
    expressions: int = 50_000
    """Such atoms of all filters together, equal ones once: they take some two seconds of each batch."""
    geometry_corners: int = 20_000
    """Corners of the geometries that an atom reads of one event; the largest fire in New South Wales has 3,300."""
    geometry_work: int = 4_000_000
    """Work on geometries for one atom and event, in units of which forty million take a second (semantics §12)."""
    event_geometry_work: int = 6_000_000
    """Such work for one event and the atoms of the filters of all subscriptions, as much for those of all layers of
    zones, of the sides of relations, for the pairs of relations, and for the conditions of situation rules: beyond it
    the rest are UNKNOWN, in the order of semantics §12. A tenth of a second, or two; the largest fire under 1,500 areas
    of 20 corners takes no more.
    """
    relation_partners: int = 600
    """Pairs of one relation that an entity brings about: beyond it one does not begin with another that has as many.

    In a day of ships off the United States one has at most 370 others within 5 km, 537 within 20 km; six days of fires
    in New South Wales 6 within 20 km.
    """
    relation_pairs: int = 1_000_000
    """Pairs of one relation that hold at once: of these ships 245,921 within 5 km, 702,092 within 20 km."""
    relation_looks: int = 1_000
    """Others within reach of a report at which one relation looks for pairs that begin, of each side, each of which
    takes about a microsecond. Of these ships 537 at most are within 20 km.
    """
    relation_begins: int = 50
    """Pairs of one relation that each report of its sides lets begin, beside those of `relation_burst`."""
    relation_burst: int = 20_000
    """Pairs of one relation that begin at once: they, and what reports bring, are for all that begins.

    As a feed of all ships off the United States begins, 13,011 are needed within 20 km, 472 within 5 km; with 25 of
    `relation_begins` it would be 132,012 and 1,433. Fires need none: a report begins 21 at most within 20 km.
    """
    zones: int = 100_000
    """Zones of one layer."""
    zone_bytes: int = 524_288
    """Characters of a zone as GeoJSON: its corners, some 15,000 of them, and its properties."""
    zones_bytes: int = 268_435_456
    """Characters of all zones of one layer together."""
    zones_at_once: int = 1_000
    """Zones of one layer that an entity is in at once: of more, those that were defined first."""
    zone_work: int = 1_000_000
    """Work on the zones of one layer for one report: for each whose box its place is in its corners, and 32."""
    window_readings: int = 10_000
    """Readings of one class by one entity that are kept for aggregates over a time: those of 2 h 46, a second apart."""
    windows_readings: int = 5_000_000
    """Readings of all entities that are kept for that, in the rules of one lateness."""
    counted_entities: int = 2_000_000
    """Newest reports of entities that are kept for counts, of all counts in the rules of one lateness together."""
    waiting_reports: int = 250_000
    """Reports that wait for the lateness of relations or rules, or for a slower clock, of each lateness; beyond it the
    earliest counts early.
    """
    entity_bytes: int = 65_536
    """Bytes that an event takes as the newest of its entity, about; of a larger one the attributes are not kept."""
    entities: int = 1_000_000
    """Entities whose newest event is kept; beyond it the oldest tenth is forgotten."""
    entities_bytes: int = 2_147_483_648
    """Bytes of these events together; beyond it the oldest tenth of them is forgotten."""
    entity_age: float = math.inf
    """Seconds after its newest report for which an entity is kept, and a tenth more; without end unless it is set."""


@dataclass(frozen=True, slots=True)
class RetentionBound:
    """What is older than so many seconds, or beyond so many bytes where it is stored, may go; None: it stays."""

    age: float | None = None
    size: int | None = None

    def __bool__(self) -> bool:
        return self.age is not None or self.size is not None


@dataclass(frozen=True, slots=True)
class Retention:
    """Bounds by what is kept; without any everything is. What somebody still needs stays, whatever they say.

    Derived events go with the events they were derived from, deliveries with theirs at the latest, outcomes with their
    deliveries at the earliest. `archive`: nothing goes that is not in the archive.
    """

    events: RetentionBound = RetentionBound()
    deliveries: RetentionBound = RetentionBound()
    outcomes: RetentionBound = RetentionBound()
    dead_letters: RetentionBound = RetentionBound()
    archive: bool = False

    def __bool__(self) -> bool:
        return bool(self.events or self.deliveries or self.outcomes or self.dead_letters)
