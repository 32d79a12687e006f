"""Why a client was not to get an event, in plain sentences."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nearcast.explain.explanation import AtomFinding, AtomReading, Explanation, SubscriptionFinding
from nearcast.filters.relevance import ABSENT
from nearcast.model.context import WITHHELD
from nearcast.model.expression import Call
from nearcast.model.filter import Atom, Count, Distance
from nearcast.model.values import Value

if TYPE_CHECKING:
    from nearcast.explain.past_state import PastState

SHOWN = 120
"""Of a value's text so many characters are shown."""

Write = Callable[[Atom], str]


def why_not(found: Explanation, past: PastState, write: Write) -> list[str]:
    """Why a client was not to get the event, in plain sentences; empty if it was. `write` gives an atom's text."""
    if found.event.control:
        return ["the event changes the system itself: nobody can subscribe to such events"]
    if found.client is None:
        return [_unknown_client(found.name, past)]
    if found.priority == WITHHELD:
        row = f"context class {found.context_class} has -1 for level {found.level}"
        return [f"withheld: {row}; it waits, and is sent if the context changes"]
    if found.chosen is not None:
        return []
    reasons = [_not_selected(one, write) for one in found.subscriptions]
    reasons += _other_times(found.name, past)
    return reasons or ["no subscription names this client"]


def _unknown_client(name: str, past: PastState) -> str:
    if name in past.before.clients_went:
        return f"the client was not known then: it was removed at position {past.before.clients_went[name]:,}"
    if name in past.after.clients_came:
        came = past.after.clients_came[name]
        return f"the client was not known then: it came at position {came:,}, after the event"
    return "the client was not known then, nor has it come since"


def _not_selected(found: SubscriptionFinding, write: Write) -> str:
    id = found.subscription.id
    if all(atom.relevance == ABSENT for atom in found.atoms):
        whose = "the role and task give" if found.by_role else "its relevance gives"
        return f"subscription {id}: {whose} every atom relevance 0"
    blocked = [_blocked(atom, write) for atom in found.atoms if atom.blocked]
    ignored = [write(atom.atom) for atom in found.atoms if atom.relevance == ABSENT and atom.truth]
    zero = f"; relevance 0 leaves out {', '.join(ignored)}, which held" if ignored else ""
    return f"subscription {id}: {'; '.join(blocked)}{zero}"


def _blocked(found: AtomFinding, write: Write) -> str:
    truth = {True: "true", False: "false", None: "unknown"}[found.truth]
    return f"{write(found.atom)} was {truth}: {observed(found)}"


def observed(found: AtomFinding) -> str:
    """What made an atom's truth, as text: "the value was 101"."""
    made = _observed(found)
    return f"{made}; {found.undecided}" if found.undecided else made


def _observed(found: AtomFinding) -> str:
    if found.read and not (found.unknown and all(one.values == () for one in found.read)):
        read = ", ".join(_read(one) for one in found.read)
        return f"{found.unknown}: {read}" if found.unknown else read
    if found.unknown:
        return found.unknown
    if isinstance(found.atom.name, Distance):
        return "the nearest were " + ", ".join(f"{metres:,.1f} m" for metres in found.values)
    if isinstance(found.atom.name, Count):
        return f"the count was {found.values[0]}"
    if isinstance(found.atom.name, Call):
        return "it is the same for every event"
    written = _written(found.values)
    return f"the value{'s were' if len(found.values) > 1 else ' was'} {written}" if written else "there was no value"


def _read(found: AtomReading) -> str:
    if not found.values:
        return f"{found.name} was not there"
    return f"{found.name} {'were' if len(found.values) > 1 else 'was'} {_written(found.values)}"


def _written(values: tuple[Value, ...]) -> str:
    """Values as text; of a long one, such as a geometry, the beginning."""
    texts = [repr(value) if isinstance(value, str) else str(value) for value in values]
    return ", ".join(text if len(text) <= SHOWN else text[: SHOWN - 1] + "…" for text in texts)


def _other_times(name: str, past: PastState) -> list[str]:
    """Subscriptions that name the client, but came after the event or ended before it."""
    there, reasons = past.scene.registry.subscriptions, []
    for id, position in past.before.went.items():
        if id not in there and name in past.before.receivers.get(id, ()):
            reasons.append(f"subscription {id}: it ended at position {position:,}, before the event")
    for id, position in past.after.came.items():
        if id not in there and name in past.after.receivers[id]:
            reasons.append(f"subscription {id}: it came at position {position:,}, after the event")
    return reasons
