"""What nodes say to each other: requests for context, and responses (semantics §8).

Times are seconds, or time units of a simulation, of the sender's clock; distances are metres.
"""

from __future__ import annotations

from dataclasses import dataclass

from nearcast.model.event import Place
from nearcast.model.filter import Atom, Operator
from nearcast.model.values import Value

REQUESTED = (Operator.LT, Operator.LE, Operator.EQ, Operator.GE, Operator.GT)
"""How an atomic request may compare (definition 1)."""


@dataclass(frozen=True, slots=True)
class MessageId:
    """Who began a message, and which of its messages it is: equal ids are one message, however often it is heard."""

    origin: str
    number: int


@dataclass(frozen=True, slots=True)
class Request:
    """A composite context request: values that satisfy any of `conditions` are wanted.

    It concerns nodes that are at most `within` of `place`, where the requestor was when it asked, and holds for
    `valid` from `time` on.
    """

    id: MessageId
    place: Place
    within: float
    time: float
    valid: float
    conditions: tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class Response:
    """Values that `provider` measured at `place` and `time`; they count within `within` of there, for `valid`.

    The provider is the message's origin, unless another node that had kept the values says them again. `age`: how many
    seconds ago that was when it was said, by the clock of who said it, so that clocks need not agree; None from a node
    that does not say. `retracted`: the values, told before, are not known to hold any more.
    """

    id: MessageId
    provider: str
    place: Place
    within: float
    time: float
    valid: float
    values: tuple[tuple[str, Value], ...]
    age: float | None = 0.0
    retracted: bool = False


Message = Request | Response
