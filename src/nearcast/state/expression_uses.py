"""How many atoms that no index finds all subscriptions have together: each batch pays for each, equal ones once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from nearcast.model.expression import Call, Property, parts
from nearcast.model.filter import RECEIVER, Atom, atoms, is_costly
from nearcast.model.subscription import Subscription

Use = Atom | tuple[Atom, str]
"""An atom; of what is about its receiver, one for each client."""


@dataclass(slots=True)
class ExpressionUses:
    """In how many subscriptions each is."""

    uses: Counter[Use] = field(default_factory=Counter)

    def after(self, subscription: Subscription, before: Subscription | None) -> int:
        """How many there would be with a subscription, in the place of what it was before."""
        found, gone = frozenset(_uses(subscription)), frozenset(() if before is None else _uses(before))
        new = sum(use not in self.uses for use in found)
        return len(self.uses) + new - sum(self.uses[use] == 1 for use in gone - found)

    def replace(self, subscription: Subscription | None, before: Subscription | None) -> None:
        """Takes note of a subscription, or that it is no more, and of what it was before."""
        self.uses.update(frozenset(() if subscription is None else _uses(subscription)))
        for use in frozenset(() if before is None else _uses(before)):
            self.uses[use] -= 1
            if not self.uses[use]:
                del self.uses[use]

    def copy(self) -> ExpressionUses:
        """The same, to go its own way from here."""
        return ExpressionUses(self.uses.copy())


def _uses(subscription: Subscription) -> Iterator[Use]:
    for atom in atoms(subscription.filter):
        if not is_costly(atom):
            continue
        if isinstance(atom.name, Call) and any(map(_about_receiver, parts(atom.name))):
            yield from ((atom, client) for client in subscription.clients)
        else:
            yield atom


def _about_receiver(part: object) -> bool:
    return isinstance(part, Property) and (part.name == RECEIVER or part.name.startswith(f"{RECEIVER}."))
