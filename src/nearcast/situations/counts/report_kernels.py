"""Reports that count, in cells, compiled: one report is taken in by all that is counted, and tells what it may change.

All are chained by cell, of each size that is asked for; so are the discs in which counts are followed. What is in a
chain is held against the metres: of two places on the plane they are known, on the globe those are doubtful whose chord
is between two bounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nearcast.geo.distance import SHORTEST
from nearcast.model.arrays import Floats, Integers
from nearcast.runtime.jit_cache import compiled
from nearcast.situations.counts.report_arrays import (
    ABSENT,
    AFTER,
    AT,
    BEFORE,
    BEHIND,
    BEYOND,
    ENOUGH,
    FALSE,
    FORM,
    HIGH,
    KEY,
    LEVEL,
    METRES,
    MOMENT,
    NAME,
    NEXT,
    NODE,
    NOWHERE,
    ON_GLOBE,
    POSITION,
    SAID,
    SINCE,
    SIZE,
    SPARE,
    TRUE,
    UNTOLD,
    VALID,
    WITHIN,
    ReportArrays,
)

FURTHEST = 2.0**60
"""Numbers of cells end here: what lies beyond is all in the last one, where it is as near as it was."""

MIX = 0x1E3779B97F4A7C15
SPREAD = 0x2545F4914F6CDD1D
SHIFT = 24
ROOM = 1e-8
SLACK = 1e-9
"""A little more than asked for is looked through, so that rounding hides nothing."""


@compiled
def _number(at: float, width: float) -> int:
    """The number of a cell along one axis."""
    return int(np.floor(min(max(at / width, -FURTHEST), FURTHEST)))


@compiled
def _key(name: int, level: int, x: int, y: int, z: int) -> int:
    """Others may have the same: what is found by it is of any cell."""
    return (((name * MIX + level) * MIX + x) * MIX + y) * MIX + z


@compiled
def _bucket(key: int, heads: Integers) -> int:
    return (key * SPREAD >> SHIFT) & (len(heads) - 1)


@compiled
def _scale(form: int) -> float:
    # A chord through the sphere of the least radius of curvature is never longer than the way over the ground.
    return SHORTEST if form == ON_GLOBE else 1.0


@compiled
def _key_at(name: int, level: int, points: Floats, number: int, form: int, width: float) -> int:
    scale = _scale(form)
    z = _number(points[number, 2] * scale, width) if form == ON_GLOBE else 0
    x, y = _number(points[number, 0] * scale, width), _number(points[number, 1] * scale, width)
    return _key(name, level, x, y, z)


@compiled
def _chain(chains: Integers, heads: Integers, link: int, key: int) -> None:
    bucket = _bucket(key, heads)
    first = heads[bucket]
    chains[link, KEY], chains[link, NEXT], chains[link, BEFORE] = key, first, -1
    if first >= 0:
        chains[first, BEFORE] = link
    heads[bucket] = link


@compiled
def _unchain(chains: Integers, heads: Integers, link: int) -> None:
    behind, before = chains[link, NEXT], chains[link, BEFORE]
    if before >= 0:
        chains[before, NEXT] = behind
    else:
        heads[_bucket(chains[link, KEY], heads)] = behind
    if behind >= 0:
        chains[behind, BEFORE] = before


@compiled
def _is_within(
    x: float,
    y: float,
    z: float,
    form: int,
    points: Floats,
    number: int,
    other: int,
    metres: float,
    within: float,
    beyond: float,
) -> int:
    """Whether two points are within so many metres: 0, 1, or 2 where only a geodesic tells."""
    dx, dy, dz = x - points[number, 0], y - points[number, 1], z - points[number, 2]
    if form == ON_GLOBE or other == ON_GLOBE:
        if form != other:
            return 0
        apart = dx * dx + dy * dy + dz * dz
        return 0 if apart > beyond else 1 if apart <= within else 2
    if abs(dx) > metres or abs(dy) > metres:
        return 0
    if form != HIGH or other != HIGH:
        dz = 0.0
    return 1 if np.sqrt(dx * dx + dy * dy + dz * dz) <= metres else 0


@compiled
def _enter(own: ReportArrays, node: int) -> None:
    name, form, levels = own.facts[node, NAME], own.facts[node, FORM], own.widths.shape[1]
    if form == NOWHERE:
        return
    for level in range(levels):
        width = own.widths[name, level]
        if width == 0.0:
            return
        key = _key_at(name, level, own.points, node, form, width)
        _chain(own.chains, own.heads, node * levels + level, key)


@compiled
def _leave(own: ReportArrays, node: int) -> None:
    name, levels = own.facts[node, NAME], own.widths.shape[1]
    if own.facts[node, FORM] == NOWHERE:
        return
    for level in range(levels):
        if own.widths[name, level] == 0.0:
            return
        _unchain(own.chains, own.heads, node * levels + level)


@compiled
def _move(own: ReportArrays, node: int, x: float, y: float, z: float, form: int) -> None:
    """Brings a node elsewhere; mostly that is in the same cells."""
    points, name, levels = own.points, own.facts[node, NAME], own.widths.shape[1]
    if form == NOWHERE or own.facts[node, FORM] == NOWHERE:
        _leave(own, node)
        points[node, 0], points[node, 1], points[node, 2] = x, y, z
        own.facts[node, FORM] = form
        _enter(own, node)
        return
    points[node, 0], points[node, 1], points[node, 2] = x, y, z
    own.facts[node, FORM] = form
    for level in range(levels):
        width = own.widths[name, level]
        if width == 0.0:
            return
        key, link = _key_at(name, level, points, node, form, width), node * levels + level
        if key != own.chains[link, KEY]:
            _unchain(own.chains, own.heads, link)
            _chain(own.chains, own.heads, link, key)


@compiled
def _shake(own: ReportArrays, node: int, said: int, x: float, y: float, z: float, form: int, found: int) -> int:
    """Finds the discs that a node leaves by what it says now, and there, for which too few may be left; where they end
    in `told`.
    """
    points, facts, discs, followed = own.points, own.facts, own.discs, own.followed
    name, own_form, levels = facts[node, NAME], facts[node, FORM], own.widths.shape[1]
    if own_form == NOWHERE or facts[node, SAID] != TRUE:
        return found
    own_x, own_y, own_z, scale = points[node, 0], points[node, 1], points[node, 2], _scale(own_form)
    for level in range(levels):
        width = own.widths[name, level]
        if width == 0.0:
            break
        # Discs are at most twice as wide as cells.
        wide, reach = 4 * width, (2 * width) * (1 + SLACK) + ROOM
        west, east = _number(own_x * scale - reach, wide), _number(own_x * scale + reach, wide)
        south, north = _number(own_y * scale - reach, wide), _number(own_y * scale + reach, wide)
        low, high = 0, 0
        if own_form == ON_GLOBE:
            low, high = _number(own_z * scale - reach, wide), _number(own_z * scale + reach, wide)
        for k in range(low, high + 1):
            for j in range(south, north + 1):
                for i in range(west, east + 1):
                    key = _key(name, level, i, j, k)
                    disc = own.disc_heads[_bucket(key, own.disc_heads)]
                    while disc >= 0:
                        behind = own.disc_chains[disc, NEXT]
                        if (
                            own.disc_chains[disc, KEY] == key
                            and followed[disc, NAME] == name
                            and followed[disc, SIZE] == level
                            and facts[node, AT] >= followed[disc, SINCE]
                        ):
                            metres, within, beyond = discs[disc, METRES], discs[disc, WITHIN], discs[disc, BEYOND]
                            there = followed[disc, FORM]
                            if _is_within(
                                own_x, own_y, own_z, own_form, discs, disc, there, metres, within, beyond
                            ) and not (
                                said == TRUE
                                and form != NOWHERE
                                and _is_within(x, y, z, form, discs, disc, there, metres, within, beyond) == 1
                            ):
                                followed[disc, SPARE] -= 1
                                if followed[disc, SPARE] < 0:
                                    own.told[found] = disc
                                    found += 1
                        disc = behind
    return found


@compiled
def _look(own: ReportArrays, node: int, now: int, found: int) -> int:
    """Finds the looks around a node that find enough, or may; where they end in `told`."""
    looks, name = own.looks, own.facts[node, NAME]
    first, last = own.first_look[name], own.first_look[name + 1]
    while first < last:
        end = first
        while end < last and looks[end, LEVEL] == looks[first, LEVEL]:
            own.hits[end] = 0
            end += 1
        _count_around(own, node, now, first, end)
        for look in range(first, end):
            if own.hits[look] >= looks[look, ENOUGH]:
                own.told[found] = look
                found += 1
        first = end
    return found


@compiled
def _count_around(own: ReportArrays, node: int, now: int, first: int, end: int) -> None:
    """Counts for looks at one size of cells, the widest look first, until all of them have enough."""
    points, facts, looks, bounds = own.points, own.facts, own.looks, own.bounds
    name, form, levels, level = facts[node, NAME], facts[node, FORM], own.widths.shape[1], looks[first, LEVEL]
    x, y, z, scale, width = points[node, 0], points[node, 1], points[node, 2], _scale(form), own.widths[name, level]
    wide = bounds[first, METRES] * (1 + SLACK) + ROOM
    low, high = 0, 0
    if form == ON_GLOBE:
        low, high = _number(z * scale - wide, width), _number(z * scale + wide, width)
    lacking = 0
    for look in range(first, end):
        lacking += looks[look, ENOUGH] > 0
    for k in range(low, high + 1):
        for j in range(_number(y * scale - wide, width), _number(y * scale + wide, width) + 1):
            for i in range(_number(x * scale - wide, width), _number(x * scale + wide, width) + 1):
                key = _key(name, level, i, j, k)
                link = own.heads[_bucket(key, own.heads)]
                while link >= 0:
                    other = link // levels
                    if (
                        own.chains[link, KEY] == key
                        and facts[other, NAME] == name
                        and link % levels == level
                        and facts[other, SAID] == TRUE
                    ):
                        for look in range(first, end):
                            metres, within, beyond = bounds[look, METRES], bounds[look, WITHIN], bounds[look, BEYOND]
                            there = facts[other, FORM]
                            if not _is_within(x, y, z, form, points, other, there, metres, within, beyond):
                                break
                            valid = looks[look, VALID]
                            fresh = valid < 0 or facts[other, AT] >= now - valid
                            if fresh and facts[other, BEHIND] > looks[look, AFTER]:
                                own.hits[look] += 1
                                lacking -= own.hits[look] == looks[look, ENOUGH]
                        if lacking == 0:
                            return
                    link = own.chains[link, NEXT]


@compiled
def put_report(
    own: ReportArrays,
    slot: int,
    said: Any,
    x: float,
    y: float,
    z: float,
    form: int,
    moment: int,
    position: int,
    now: int,
) -> None:
    """Takes in the report of an entity, where it is the newest. To `told`: of how many names it changes something, how
    many discs may have too few, how many looks find enough; then each name with its nodes before and now, −1 for none,
    and what it said before; the discs; the looks.
    """
    names, pairs, told, facts = own.widths.shape[0], own.pairs, own.told, own.facts
    changed = 0
    for name in range(names):
        pair = slot * names + name
        if said[name] == UNTOLD or pairs[pair, MOMENT] == ABSENT or moment < pairs[pair, MOMENT]:
            continue
        pairs[pair, MOMENT], pairs[pair, POSITION] = moment, position
        if pairs[pair, NODE] >= 0 or said[name] != FALSE:
            told[3 + 4 * changed] = name
            changed += 1
    found = begin = 3 + 4 * changed
    for number in range(changed):
        at = 3 + 4 * number
        name = told[at]
        node = pairs[slot * names + name, NODE]
        told[at + 1], told[at + 2], told[at + 3] = node, -1, FALSE
        if node >= 0:
            told[at + 3] = facts[node, SAID]
            found = _shake(own, node, said[name], x, y, z, form, found)
            if said[name] == FALSE:
                _drop(own, slot * names + name)
                continue
            _move(own, node, x, y, z, form)
        else:
            node = _fresh(own, slot * names + name)
            own.points[node, 0], own.points[node, 1], own.points[node, 2] = x, y, z
            facts[node, NAME], facts[node, FORM] = name, form
            _enter(own, node)
        facts[node, SAID], facts[node, AT], facts[node, BEHIND] = said[name], moment, position
        told[at + 2] = node
    told[0], told[1] = changed, found - begin
    begin = found
    if form != NOWHERE:
        for number in range(changed):
            if said[told[3 + 4 * number]] == TRUE:
                found = _look(own, told[3 + 4 * number + 2], now, found)
    told[2] = found - begin


@compiled
def _fresh(own: ReportArrays, pair: int) -> int:
    """A node that is free, from now on a pair's."""
    own.free[0] -= 1
    node = own.free[1 + own.free[0]]
    own.pairs[pair, NODE] = node
    return node


@compiled
def _drop(own: ReportArrays, pair: int) -> None:
    node = own.pairs[pair, NODE]
    _leave(own, node)
    own.free[1 + own.free[0]] = node
    own.free[0] += 1
    own.pairs[pair, NODE] = -1


@compiled
def drop_entity(own: ReportArrays, slot: int) -> None:
    """Forgets an entity's reports. To `told`: how many discs may have too few then, and which."""
    names, found = own.widths.shape[0], 1
    for name in range(names):
        pair = slot * names + name
        own.pairs[pair, MOMENT] = ABSENT
        node = own.pairs[pair, NODE]
        if node >= 0:
            found = _shake(own, node, FALSE, 0.0, 0.0, 0.0, NOWHERE, found)
            _drop(own, pair)
    own.told[0] = found - 1


@compiled
def chain_all(own: ReportArrays) -> None:
    """Chains all nodes and discs into buckets that are empty."""
    for pair in range(len(own.pairs)):
        if own.pairs[pair, NODE] >= 0:
            _enter(own, own.pairs[pair, NODE])
    for disc in range(len(own.followed)):
        if own.followed[disc, NAME] >= 0:
            chain_disc(own, disc)


@compiled
def chain_disc(own: ReportArrays, disc: int) -> None:
    """Lets a disc be found by what leaves it."""
    name, form, level = own.followed[disc, NAME], own.followed[disc, FORM], own.followed[disc, SIZE]
    key = _key_at(name, level, own.discs, disc, form, 4 * own.widths[name, level])
    _chain(own.disc_chains, own.disc_heads, disc, key)


@compiled
def unchain_disc(own: ReportArrays, disc: int) -> None:
    """Lets it be found no longer."""
    _unchain(own.disc_chains, own.disc_heads, disc)
    own.followed[disc, NAME] = -1


@compiled
def list_around(
    own: ReportArrays,
    name: int,
    level: int,
    x: float,
    y: float,
    z: float,
    form: int,
    metres: float,
    within: float,
    beyond: float,
    oldest: int,
    after: int,
    most: int,
) -> int:
    """How many nodes are within so many metres of a point, not older than a moment and behind a position: no more than
    until `most` count. They are written to `told`, of those that are doubtful −1 − node.
    """
    facts, levels, width = own.facts, own.widths.shape[1], own.widths[name, level]
    scale, wide, found, counted = _scale(form), metres * (1 + SLACK) + ROOM, 0, 0
    low, high = 0, 0
    if form == ON_GLOBE:
        low, high = _number(z * scale - wide, width), _number(z * scale + wide, width)
    for k in range(low, high + 1):
        for j in range(_number(y * scale - wide, width), _number(y * scale + wide, width) + 1):
            for i in range(_number(x * scale - wide, width), _number(x * scale + wide, width) + 1):
                key = _key(name, level, i, j, k)
                link = own.heads[_bucket(key, own.heads)]
                while link >= 0:
                    node = link // levels
                    if (
                        own.chains[link, KEY] == key
                        and facts[node, NAME] == name
                        and link % levels == level
                        and facts[node, AT] >= oldest
                        and facts[node, BEHIND] > after
                    ):
                        there = facts[node, FORM]
                        near = _is_within(x, y, z, form, own.points, node, there, metres, within, beyond)
                        if near:
                            own.told[found] = node if near == 1 else -1 - node
                            found += 1
                            counted += near == 1 and facts[node, SAID] == TRUE
                            if counted >= most:
                                return found
                    link = own.chains[link, NEXT]
    return found
