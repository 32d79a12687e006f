"""Kinds of hostile input: a name, and a function of the server's address that sends it once and returns."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable
from functools import cache
from typing import Any

import httpx

from nearcast.model.limits import Limits

Corner = list[float]
Documents = list[dict[str, Any]]

LIMITS = Limits()

BEYOND = 20
"""So many times as much as a filter may have is asked for too."""

AREA = "POLYGON((0 0, 9 0, 9 9, 0 9, 0 0))"
LINE = "LINESTRING(" + ", ".join(f"{n / 100} {9 if n % 2 else 0}" for n in range(100)) + ")"

DEFINITIONS: dict[str, Any] = {
    "channels": {"zones": {"coordinates": "geographic"}},
    "clients": [{"id": "watcher"}],
    "subscriptions": [
        {"id": f"zones {number}", "client": "watcher", "filter": f"type = 'zone' AND {filter}"}
        for number, filter in enumerate(
            (f"S_INTERSECTS(geom, {AREA})", f"S_OVERLAPS(geom, {LINE})", f"S_DWITHIN(geom, {LINE}, 1000)")
        )
    ],
}
"""What is defined beside the ordinary work, for kinds to meet."""


def publish(url: str, make: Callable[[], Documents]) -> None:
    """Publishes events of type `zone` with what is made as their data, each by itself."""
    for data in _written(make):
        head = {"specversion": "1.0", "id": uuid.uuid4().hex, "type": "zone", "source": "hostile"}
        body = b'%b,"data":%b}' % (json.dumps(head, separators=(",", ":"))[:-1].encode(), data)
        headers = {"Content-Type": "application/cloudevents+json"}
        httpx.post(f"{url}/events", content=body, headers=headers, timeout=120.0)


@cache
def _written(make: Callable[[], Documents]) -> list[bytes]:
    """What is made, as JSON; once, for it takes longer than to send it."""
    return [json.dumps(data, separators=(",", ":")).encode() for data in make()]


def define(url: str, id: str, filter: str) -> None:
    """Defines a subscription of the watcher, and removes it."""
    document = {"client": "watcher", "filter": filter}
    httpx.put(f"{url}/subscriptions/{id}", json=document, timeout=120.0)
    httpx.delete(f"{url}/subscriptions/{id}", timeout=120.0)


def comb(corners: int) -> list[Corner]:
    """Teeth that lean, so that the boxes of all edges meet; closed, they are a valid ring."""
    teeth = [[n / corners + (8.0 if n % 2 else 1.0), 8.0 if n % 2 else 1.0] for n in range(corners)]
    return [*teeth, [9.5, 8.0], [9.5, 0.0], [0.0, 0.0]]


def tangle(corners: int) -> list[Corner]:
    """A ring in which every edge crosses many others."""
    chance = random.Random(1)
    return [[chance.uniform(0, 9), chance.uniform(0, 9)] for _ in range(corners)]


def polygon(ring: list[Corner]) -> dict[str, Any]:
    """A geometry of one ring."""
    return {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}


def _crossing() -> Documents:
    return [{"geom": polygon(tangle(1_000))}]


def _combs() -> Documents:
    return [{"geom": polygon(comb(16_000))}, {"geom": {"type": "LineString", "coordinates": comb(16_000)}}]


def _nested() -> Documents:
    rings = ([[0, 0], [1 + n / 30, 0], [1 + n / 30, 1 + n / 30], [0, 1 + n / 30]] for n in range(200))
    return [{"geom": {"type": "GeometryCollection", "geometries": [polygon(ring) for ring in rings]}}]


def _hundred() -> Documents:
    return [{"geom": [polygon(tangle(50 + n % 10)) for n in range(100)]}]


def _longest_line() -> Documents:
    return [{"geom": {"type": "LineString", "coordinates": [[n % 9, n % 7] for n in range(150_000)]}}]


def crossing_polygon(url: str) -> None:
    """A thousand corners, of which every edge crosses hundreds."""
    publish(url, _crossing)


def long_comb(url: str) -> None:
    """Valid polygons and lines of 16,000 corners whose edges all lie beside each other."""
    publish(url, _combs)


def nested_squares(url: str) -> None:
    """A collection of squares within each other."""
    publish(url, _nested)


def many_geometries(url: str) -> None:
    """A hundred outlines in one event."""
    publish(url, _hundred)


def megabyte(url: str) -> None:
    """A line as long as an event may be."""
    publish(url, _longest_line)


@cache
def _large_filters(beyond: int) -> list[tuple[str, str]]:
    found = []
    for times in (1, beyond):
        found.append(("atoms", " OR ".join(f"kind = 'k{n}'" for n in range(times * LIMITS.filter_atoms))))
        literals = ", ".join(f"'k{n}'" for n in range(times * LIMITS.filter_literals))
        found.append(("literals", f"kind IN ({literals})"))
    return found


def large_filters(url: str, beyond: int = BEYOND) -> None:
    """Filters of as many atoms and literals as one may have, or so many times as many."""
    for id, filter in _large_filters(beyond):
        define(url, id, filter)


@cache
def _costly_filters(beyond: int) -> list[tuple[str, str]]:
    found = []
    for count in (LIMITS.filter_expressions, beyond * LIMITS.filter_expressions):
        found.append(("sums", " OR ".join(f"size + {n} > speed * {n}" for n in range(count))))
        found.append(("patterns", " OR ".join(f"kind LIKE '%{n}%'" for n in range(count))))
    return found


def costly_filters(url: str, beyond: int = BEYOND) -> None:
    """As many expressions and patterns as a filter may have, or so many times as many."""
    for id, filter in _costly_filters(beyond):
        define(url, id, filter)


@cache
def _outlines() -> list[str]:
    rings = (comb(2_500), tangle(500), comb(20_000))
    texts = (", ".join(f"{x} {y}" for x, y in [*ring, ring[0]]) for ring in rings)
    return [f"S_OVERLAPS(geom, POLYGON(({text})))" for text in texts]


def filters_of_geometries(url: str) -> None:
    """Outlines that take long to look at, in filters."""
    for filter in _outlines():
        define(url, "outline", filter)


def dear_outline(url: str, filters: int = 5) -> None:
    """Teeth under two hundred areas of each of so many filters, of which each edge crosses all of them."""
    ids = [f"areas {number}" for number in range(filters)]
    for number, id in enumerate(ids):
        lows = (number + one / LIMITS.filter_expressions for one in range(LIMITS.filter_expressions))
        areas = (f"S_OVERLAPS(geom, POLYGON((0 {low}, 9 {low}, 9 {low + 3}, 0 {low + 3}, 0 {low})))" for low in lows)
        document = {"client": "watcher", "filter": f"type = 'zone' AND ({' OR '.join(areas)})"}
        httpx.put(f"{url}/subscriptions/{id}", json=document, timeout=120.0)
    publish(url, _comb_of_a_thousand)
    for id in ids:
        httpx.delete(f"{url}/subscriptions/{id}", timeout=120.0)


def _comb_of_a_thousand() -> Documents:
    return [{"geom": polygon(comb(1_000))}]


def nothing(url: str) -> None:
    """Sends nothing: what differs beside it is noise."""


CONTROL: tuple[str, Callable[[str], None]] = ("nothing", nothing)

KINDS: list[tuple[str, Callable[[str], None]]] = [
    ("a ring that crosses itself", crossing_polygon),
    ("16,000 teeth", long_comb),
    ("squares within each other", nested_squares),
    ("a hundred geometries", many_geometries),
    ("a megabyte of corners", megabyte),
    ("the largest filters", large_filters),
    ("sums and patterns", costly_filters),
    ("outlines in filters", filters_of_geometries),
    ("a dear outline under many areas", dear_outline),
]
