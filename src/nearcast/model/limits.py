"""Bounds on what one sender may cost the others: settings, so that every process that decides knows the same ones."""

from __future__ import annotations

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
    geometry_corners: int = 50_000
    """Corners of the geometries that an atom reads of one event."""
    geometry_work: int = 4_000_000
    """Work on geometries for one atom and event, in units of which ten million take about a second (semantics §12)."""
