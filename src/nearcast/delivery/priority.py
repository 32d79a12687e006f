"""From readings to a priority: awareness modules, context space, priority matrix (Agent §4.2–4.3; semantics §3)."""

from __future__ import annotations

from collections.abc import Mapping

from nearcast.model.context import WITHHELD, Awareness, ContextSpace, HeldClass, matrix_fault
from nearcast.model.subscription import ClientProfile, Settings


def priority(settings: Settings, client: ClientProfile, level: int) -> int:
    """The priority of an event of this level for the client in its present context; −1: do not send.

    A table look-up, made at the moment of sending: the level does not depend on context (semantics §3).
    """
    return WITHHELD if level < 0 else priority_row(settings, client)[level]


def priority_row(settings: Settings, client: ClientProfile) -> tuple[int, ...]:
    """The client's priorities by level in its present context: a row of its own matrix, else of the common one.

    A matrix of its own that does not fit the number of levels, for that has changed since, counts as none.
    """
    own = client.matrix
    matrix = settings.matrix if own is None or matrix_fault(own, settings.levels) else own
    return matrix[context_class(settings.space, client.readings, settings.levels, client.classes)]


NONE: Mapping[str, HeldClass] = {}


def context_class(
    space: ContextSpace, readings: Mapping[str, float], levels: int, held: Mapping[str, HeldClass] = NONE
) -> int:
    """The context class c of these readings, 0 the worst (Agent eq. 4-11); `held`: by reading what earlier ones led to.

    A module whose reading is not known counts as its best class: nothing known speaks against sending.
    """
    classes = [awareness_class(one, readings.get(one.reading), held.get(one.reading)) for one in space.modules]
    if space.table is None:
        return min(classes, default=levels - 1)
    index = 0
    for module, value in zip(space.modules, classes, strict=True):
        index = index * (len(module.bounds) + 1) + value
    return space.table[index]


def awareness_class(module: Awareness, reading: float | None, held: HeldClass | None = None) -> int:
    """The class of one reading; where the module holds classes, that which earlier readings led to."""
    if reading is None:
        return len(module.bounds)
    return module.class_of(reading) if held is None else held.context_class
