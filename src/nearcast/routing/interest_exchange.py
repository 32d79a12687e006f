"""What domains want of each other, told from neighbour to neighbour until all know it (Channels §2.1).

Each domain states few filters for all of its clients, and counts how often they changed. A neighbour is told what has
changed since it was told last, never the whole because of one subscription. What is told of others goes with the way
that it came, and to nobody who is on it; so rings of domains settle, and what is withdrawn is gone everywhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nearcast.errors import Fault, Mark

MOST_DOMAINS = 1_000
"""Of which one neighbour may tell."""

MOST_FILTERS, MOST_CHARACTERS = 10_000, 4 << 20
"""That one domain may state, and all of them together. Who states more is taken to want everything."""

LONGEST_WAY = 32
"""Domains between one that wants something and one that hears of it."""

PART_CHARACTERS = 1 << 17
"""Of filters in one message, about."""

LONGEST_FILTER = 1 << 19
"""Characters of one filter that is told as it is; who states a longer one is taken to want everything."""

ALL_FILTERS = frozenset({"TRUE"})

WHERE = Mark("link")

Version = tuple[int, int]
"""How often a domain was started, and how often what it wants changed since."""


@dataclass(frozen=True, slots=True)
class DomainInterest:
    """The filters of one domain, CQL2, and the way they came: from the neighbour who told them to the domain itself."""

    domain: str
    version: Version
    filters: frozenset[str]
    way: tuple[str, ...]


@dataclass(slots=True)
class _Neighbour:
    """What a neighbour told, what it was told, and what it has told a part of, by domain."""

    heard: dict[str, DomainInterest] = field(default_factory=dict)
    told: dict[str, DomainInterest] = field(default_factory=dict)
    parts: dict[str, frozenset[str]] = field(default_factory=dict)


class InterestExchange:
    """What is known in one domain of what all want. It is not kept: whoever connects is told anew.

    `run` counts how often the domain was started. What is told is JSON-able data, for one neighbour in its order.
    """

    def __init__(self, domain: str, run: int) -> None:
        self.domain = domain
        self._own = DomainInterest(domain, (run, 0), frozenset(), (domain,))
        self._neighbours: dict[str, _Neighbour] = {}

    @property
    def version(self) -> Version:
        """That of what this domain wants."""
        return self._own.version

    def state(self, filters: Collection[str]) -> bool:
        """Says what this domain wants from now on; whether that is something else than before."""
        stated = _bounded(frozenset(filters))
        if stated == self._own.filters:
            return False
        run, count = self._own.version
        self._own = DomainInterest(self.domain, (run, count + 1), stated, self._own.way)
        return True

    def connect(self, neighbour: str) -> None:
        """A neighbour is connected: it is told everything. What it told before holds until it tells something else."""
        known = self._neighbours.setdefault(neighbour, _Neighbour())
        known.told.clear()
        known.parts.clear()

    def remove_link(self, neighbour: str) -> None:
        """There is no link to a neighbour any more."""
        self._neighbours.pop(neighbour, None)

    def wanted_by(self, neighbour: str) -> frozenset[str]:
        """The filters of a neighbour and of all behind it, in CQL2."""
        known = self._neighbours.get(neighbour)
        return frozenset().union(*(one.filters for one in known.heard.values())) if known else frozenset()

    def behind(self, neighbour: str) -> dict[str, DomainInterest]:
        """What is wanted by domain by a neighbour and by those behind it."""
        known = self._neighbours.get(neighbour)
        return dict(known.heard) if known else {}

    def news_for(self, neighbour: str) -> Iterator[dict[str, Any]]:
        """What a neighbour has to be told to know what is known here; each is taken as told when it is given."""
        told = self._neighbours[neighbour].told
        present = self._told_to(neighbour)
        for domain in [one for one in told if one not in present]:
            del told[domain]
            yield {"domain": domain, "gone": True}
        for domain, interest in present.items():
            before = told.get(domain)
            if before is None or (before.version, before.way) != (interest.version, interest.way):
                told[domain] = interest
                yield from _messages(interest, before)

    def _told_to(self, neighbour: str) -> dict[str, DomainInterest]:
        """What a neighbour is to know: what this domain wants, and of each other one the newest, by the shortest way
        that does not lead over the neighbour.
        """
        present = {self.domain: self._own}
        for name, other in self._neighbours.items():
            if name == neighbour:
                continue
            for domain, interest in other.heard.items():
                if neighbour in interest.way or len(interest.way) >= LONGEST_WAY:
                    continue
                own = DomainInterest(domain, interest.version, interest.filters, (self.domain, *interest.way))
                if domain not in present or _rank(own) > _rank(present[domain]):
                    present[domain] = own
        return present

    def hear(self, neighbour: str, message: Mapping[str, Any]) -> bool:
        """Takes what a neighbour tells; whether it changes what it is sent. Raises `Fault`, and nothing was taken."""
        known = self._neighbours[neighbour]
        heard, domain = known.heard, _name(message.get("domain"))
        added = known.parts.pop(domain, frozenset()) | _texts(message, "add")
        if message.get("more") is True:
            if domain not in heard and len(heard) + len(known.parts) >= MOST_DOMAINS:
                raise _too_many(neighbour)
            known.parts[domain] = _bounded(added)
            return False
        if message.get("gone") is True:
            return heard.pop(domain, None) is not None
        way = _way(message.get("way"), neighbour, domain)
        if self.domain in way:
            # It has gone round: this domain is on the way, and what is behind it comes from elsewhere.
            return heard.pop(domain, None) is not None
        version, before = _version(message.get("version")), heard.get(domain)
        filters = self._filters(message, before, added)
        if before is None and len(heard) >= MOST_DOMAINS:
            raise _too_many(neighbour)
        heard[domain] = DomainInterest(domain, version, filters, way)
        return before is None or before.filters != filters

    @staticmethod
    def _filters(message: Mapping[str, Any], before: DomainInterest | None, added: frozenset[str]) -> frozenset[str]:
        """The filters after a message, and what others before it added."""
        removed = _texts(message, "remove")
        if added >= ALL_FILTERS:
            return ALL_FILTERS
        if message.get("base") is None:
            return _bounded(added)
        if before is None or list(before.version) != message["base"]:
            came = "nothing" if before is None else f"version {list(before.version)}"
            raise Fault(f"filters from version {message['base']} on, which is known here", came, WHERE)
        # Of who stated too much it is not kept what that was.
        return before.filters if before.filters == ALL_FILTERS else _bounded((before.filters - removed) | added)


def _rank(interest: DomainInterest) -> tuple[Version, int, tuple[str, ...]]:
    """By what one is rather told than another: the newer, the nearer; of two alike always the same."""
    return interest.version, -len(interest.way), interest.way


def _bounded(filters: frozenset[str]) -> frozenset[str]:
    lengths = [*map(len, filters)]
    if len(lengths) > MOST_FILTERS or sum(lengths) > MOST_CHARACTERS or max(lengths, default=0) > LONGEST_FILTER:
        return ALL_FILTERS
    return filters


def _messages(interest: DomainInterest, before: DomainInterest | None) -> Iterator[dict[str, Any]]:
    """What tells an interest to whom knows the one before; many filters in parts, of which the last says the rest."""
    known = frozenset[str]() if before is None else before.filters
    removed = known - interest.filters
    # Whoever was told to want everything may want less by now, which only the whole says.
    whole = before is None or known == ALL_FILTERS or sum(map(len, removed)) > PART_CHARACTERS
    adding = [*_parts(sorted(interest.filters if whole else interest.filters - known))]
    for part in adding[:-1]:
        yield {"domain": interest.domain, "add": part, "more": True}
    yield {
        "domain": interest.domain,
        "way": list(interest.way),
        "version": list(interest.version),
        "base": None if before is None or whole else list(before.version),
        "add": adding[-1],
        "remove": [] if whole else sorted(removed),
    }


def _parts(texts: list[str]) -> Iterator[list[str]]:
    """Texts in lists of so many characters, at least one list."""
    part, size = list[str](), 0
    for text in texts:
        if part and size + len(text) > PART_CHARACTERS:
            yield part
            part, size = [], 0
        part.append(text)
        size += len(text)
    yield part


def _too_many(neighbour: str) -> Fault:
    return Fault(f"at most {MOST_DOMAINS:,} domains behind {neighbour}", "one more", WHERE)


def _name(given: object) -> str:
    if not isinstance(given, str) or not 0 < len(given) <= 40:
        raise Fault("the name of a domain", repr(given)[:60], WHERE)
    return given


def _way(given: object, neighbour: str, domain: str) -> tuple[str, ...]:
    """The way over which something came. Raises `Fault`."""
    if not isinstance(given, list) or not 0 < len(given) <= LONGEST_WAY:
        raise Fault(f"a way of at most {LONGEST_WAY} domains", repr(given)[:60], WHERE)
    way = tuple(map(_name, given))
    if way[0] != neighbour or way[-1] != domain or len(set(way)) < len(way):
        raise Fault(f"a way from {neighbour} to {domain}, each domain once", " ".join(way)[:200], WHERE)
    return way


def _version(given: object) -> Version:
    if (
        not isinstance(given, list)
        or len(given) != 2
        or not all(type(one) is int and 0 <= one < 1 << 63 for one in given)
    ):
        raise Fault("a version, two numbers", repr(given)[:60], WHERE)
    return given[0], given[1]


def _texts(message: Mapping[str, Any], name: str) -> frozenset[str]:
    given = message.get(name, [])
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise Fault(f"{name}: a list of filters", repr(given)[:60], WHERE)
    return frozenset(given)
