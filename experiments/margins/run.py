"""How often measured links change their class, and how long they are in another than their bandwidth alone has.

The links are those of commuters around Oslo (Riiser et al., MMSys 2013). Each sample is a reading, of the moment at
which it ends: then it is known. It holds until the next, but no longer than it is believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from nearcast.delivery.priority import awareness_class
from nearcast.importers.mobile_links import STALE, LinkTrace
from nearcast.model.changes import ClientChange
from nearcast.model.context import Awareness, ContextSpace, equal_intervals
from nearcast.model.subscription import ClientProfile, Settings
from nearcast.state.registry import changed

LEVELS = 3
MAXIMUM = 3750.0
"""kbit/s above two thirds of which a link is of the best class."""

ALONE = Awareness("bandwidth", equal_intervals(MAXIMUM, LEVELS))


@dataclass(frozen=True, slots=True)
class Outcome:
    """One way of holding classes, over all links: how often they changed, alone and held, and the share of time in
    another class than without.
    """

    margin: float
    lasting: float
    alone: int
    held: int
    elsewhere: float

    @property
    def share(self) -> float:
        """The changes that are left, of those without a margin."""
        return self.held / self.alone if self.alone else 1.0


@dataclass(slots=True)
class _Tally:
    alone: int = 0
    held: int = 0
    seconds: float = 0.0
    elsewhere: float = 0.0


def run(
    links: Sequence[LinkTrace],
    margins: Iterable[float],
    lastings: Sequence[float],
    advance: Callable[[int], None] = lambda _: None,
) -> Iterator[Outcome]:
    """Every margin, in percent, with every time, in seconds; `advance` is told of each."""
    for margin in margins:
        for lasting in lastings:
            tally = _Tally()
            for link in links:
                _follow(link, replace(ALONE, margin=margin, relative=True, lasting=lasting), tally)
            yield Outcome(margin, lasting, tally.alone, tally.held, tally.elsewhere / tally.seconds)
            advance(1)


def _follow(link: LinkTrace, module: Awareness, tally: _Tally) -> None:
    """Tells a client's readings one after another, as the journal would."""
    settings, client = Settings(LEVELS, ContextSpace((module,))), ClientProfile(link.name)
    before: tuple[int, int] | None = None
    for end, until, kbits in zip(link.ends, [*link.ends[1:], link.ends[-1]], link.kbits, strict=True):
        moment = round(end * 1_000_000)
        client = changed(client, ClientChange(link.name, readings={"bandwidth": kbits}, moment=moment), settings)
        own, held = ALONE.class_of(kbits), awareness_class(module, kbits, client.classes.get("bandwidth"))
        if before is not None:
            tally.alone += own != before[0]
            tally.held += held != before[1]
        before = own, held
        lasted = min(until - end, STALE)
        tally.seconds += lasted
        tally.elsewhere += lasted if own != held else 0.0
