"""How guarded relations stand: of each the two reports that count and whether it holds, told where that changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nearcast.decision.relate.guarded import guarded
from nearcast.decision.relate.pairing import Pairing
from nearcast.decision.relate.reports import Flags, Integers


@dataclass(frozen=True, slots=True)
class Standing:
    """A relation between two named entities as of `position`: from this both entry nodes make the same guards."""

    position: int
    relation: str
    a: str
    b: str
    a_position: int
    b_position: int
    holds: bool


class Standings:
    """What was told of guarded relations; it can begin anywhere, and then tells all of them once."""

    def __init__(self) -> None:
        self._pairing: Pairing | None = None
        self._guarded: Flags = np.zeros(0, np.bool_)
        self._told: Integers = np.zeros((3, 0), np.int64)

    def advance(self, pairing: Pairing, position: int) -> list[Standing]:
        """What has changed since the last time; `position` is that of the last event that counts."""
        if pairing is not self._pairing:
            self.__init__()  # type: ignore[misc]
            self._pairing = pairing
        self._note_rules(pairing)
        # A relation between named entities has one pair, so its number tells it.
        rule, now = pairing.standing()
        own = self._guarded[rule] & (now[:2] >= 0).all(axis=0)
        rule, now = rule[own], now[:, own]
        changed = (now != self._told[:, rule]).any(axis=0)
        rule, now = rule[changed], now[:, changed]
        self._told[:, rule] = now
        return [
            self._standing(pairing, position, *each)
            for each in zip(rule.tolist(), now[0].tolist(), now[1].tolist(), now[2].tolist(), strict=True)
        ]

    def _note_rules(self, pairing: Pairing) -> None:
        """Rules are only added; what has ended has no pair any more."""
        new = pairing.rules.all[len(self._guarded) :]
        if new:
            flags = [rule is not None and guarded(rule.relation) is not None for rule in new]
            self._guarded = np.concatenate([self._guarded, np.array(flags, np.bool_)])
            self._told = np.concatenate([self._told, np.full((3, len(new)), -1)], axis=1)

    @staticmethod
    def _standing(pairing: Pairing, position: int, number: int, a: int, b: int, holds: int) -> Standing:
        rule = pairing.rules.all[number]
        assert rule, "there is a pair of it"
        found = guarded(rule.relation)
        assert found, "only guarded ones are told"
        return Standing(position, rule.relation.id, found.a, found.b, a, b, bool(holds))
