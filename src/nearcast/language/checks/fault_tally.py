"""Faults as they are found: the first of each kind are kept, all are counted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nearcast.errors import Fault

SHOWN = 20
"""Faults of one kind that are kept to be shown; of further ones only their number is."""

SHOWN_IN_ALL = 1_000
"""Faults that are kept, of whatever kinds: what is expected may hold a name that the input chose."""


@dataclass(slots=True)
class _Kind:
    expected: str
    shown: int = 0
    further: int = 0


class FaultTally:
    """Takes faults in the order of their input. Of a kind are those of one file that expect the same."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self.shown: list[Fault] = []
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self._others = _Kind("")
        self.extend(faults)

    @property
    def total(self) -> int:
        """How many there were."""
        return len(self.shown) + sum(count for _, count in self.further())

    def extend(self, faults: Iterable[Fault]) -> None:
        """Counts faults, and keeps the first of each kind."""
        for fault in faults:
            kind = self._kind(fault)
            if kind.shown < SHOWN and len(self.shown) < SHOWN_IN_ALL:
                kind.shown += 1
                self.shown.append(fault)
            else:
                kind.further += 1

    def further(self) -> list[tuple[str, int]]:
        """What was expected where more came than are kept, and how many more; "" stands for kinds beyond all those."""
        kinds = (*self._kinds.values(), self._others)
        return [(kind.expected, kind.further) for kind in kinds if kind.further]

    def _kind(self, fault: Fault) -> _Kind:
        # What follows the first words may be a name.
        key = (fault.where.file if fault.where else "", " ".join(fault.expected.split()[:2]))
        if key not in self._kinds and len(self._kinds) >= SHOWN_IN_ALL:
            return self._others
        return self._kinds.setdefault(key, _Kind(fault.expected))


def further_text(expected: str, count: int) -> str:
    """Says how many faults of a kind are not shown."""
    return f"and {count:,} more" + (f": expected {expected}" if expected else "")
