"""Reports that count, in cells, compiled: one report is taken in by all that is counted, and tells what it may change.

All are chained by cell, of each size that is asked for; so are the discs in which counts are followed. What is in a
chain is held against the metres: of two places on the plane they are known, on the globe those are doubtful whose chord
is between two bounds.
"""

from __future__ import annotations

from typing import Any

from nearcast.runtime.jit_cache import compiled
from nearcast.situations.counts.cell_chains import (
    ROOM,
    SLACK,
    bucket_of,
    cell_key,
    cell_number,
    enter_cells,
    is_within,
    key_at,
    leave_cells,
    move_cells,
    scale_of,
    write_row,
)
from nearcast.situations.counts.report_arrays import (
    ABSENT,
    AFTER,
    AT,
    BEHIND,
    BEYOND,
    DISC_BEFORE,
    DISC_KEY,
    DISC_NEXT,
    ENOUGH,
    FALSE,
    FORM,
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
    SINCE,
    SIZE,
    SPARE,
    TAG,
    TRUE,
    UNTOLD,
    VALID,
    WITHIN,
    ReportArrays,
    X,
    Y,
    Z,
)


@compiled
def _shake(own: ReportArrays, node: int, said: int, x: float, y: float, z: float, form: int, found: int) -> int:
    """Finds the discs that a node leaves by what it says now, and there, for which too few may be left; where they end
    in `told`.
    """
    followed, levels = own.followed, own.widths.shape[1]
    row = node * levels
    tag, at = own.rows[row, TAG], own.rows[row, AT]
    name, own_form = (tag >> 4) // levels, tag >> 2 & 3
    if own_form == NOWHERE or tag & 3 != TRUE:
        return found
    own_x, own_y, own_z, scale = own.spots[row, X], own.spots[row, Y], own.spots[row, Z], scale_of(own_form)
    for level in range(levels):
        width = own.widths[name, level]
        if width == 0.0:
            break
        # Discs are at most twice as wide as cells.
        wide, reach = 4 * width, (2 * width) * (1 + SLACK) + ROOM
        west, east = cell_number(own_x * scale - reach, wide), cell_number(own_x * scale + reach, wide)
        south, north = cell_number(own_y * scale - reach, wide), cell_number(own_y * scale + reach, wide)
        low, high = 0, 0
        if own_form == ON_GLOBE:
            low, high = cell_number(own_z * scale - reach, wide), cell_number(own_z * scale + reach, wide)
        for k in range(low, high + 1):
            for j in range(south, north + 1):
                for i in range(west, east + 1):
                    key = cell_key(name, level, i, j, k)
                    disc = own.disc_heads[bucket_of(key, own.disc_heads)]
                    while disc >= 0:
                        behind = own.disc_chains[disc, DISC_NEXT]
                        if (
                            own.disc_chains[disc, DISC_KEY] == key
                            and followed[disc, NAME] == name
                            and followed[disc, SIZE] == level
                            and at >= followed[disc, SINCE]
                            and _is_in(own, disc, own_x, own_y, own_z, own_form)
                            and not (said == TRUE and form != NOWHERE and _is_in(own, disc, x, y, z, form) == 1)
                        ):
                            followed[disc, SPARE] -= 1
                            if followed[disc, SPARE] < 0:
                                own.told[found] = disc
                                found += 1
                        disc = behind
    return found


@compiled
def _is_in(own: ReportArrays, disc: int, x: float, y: float, z: float, form: int) -> int:
    """Whether a point is in a disc, as `_is_within` says it."""
    dx, dy, dz = x - own.discs[disc, 0], y - own.discs[disc, 1], z - own.discs[disc, 2]
    metres, within, beyond = own.discs[disc, METRES], own.discs[disc, WITHIN], own.discs[disc, BEYOND]
    return is_within(dx, dy, dz, form, own.followed[disc, FORM], metres, within, beyond)


@compiled
def _look(own: ReportArrays, node: int, now: int, found: int) -> int:
    """Finds the looks around a node that find enough, or may; where they end in `told`."""
    looks, name = own.looks, (own.rows[node * own.widths.shape[1], TAG] >> 4) // own.widths.shape[1]
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
    rows, spots, looks, bounds, levels = own.rows, own.spots, own.looks, own.bounds, own.widths.shape[1]
    centre, level = node * levels, looks[first, LEVEL]
    name, form = (rows[centre, TAG] >> 4) // levels, rows[centre, TAG] >> 2 & 3
    x, y, z, scale, width = (
        spots[centre, X],
        spots[centre, Y],
        spots[centre, Z],
        scale_of(form),
        own.widths[name, level],
    )
    whose = name * levels + level
    wide = bounds[first, METRES] * (1 + SLACK) + ROOM
    low, high = 0, 0
    if form == ON_GLOBE:
        low, high = cell_number(z * scale - wide, width), cell_number(z * scale + wide, width)
    lacking = 0
    for look in range(first, end):
        lacking += looks[look, ENOUGH] > 0
    for k in range(low, high + 1):
        for j in range(cell_number(y * scale - wide, width), cell_number(y * scale + wide, width) + 1):
            for i in range(cell_number(x * scale - wide, width), cell_number(x * scale + wide, width) + 1):
                key = cell_key(name, level, i, j, k)
                row = own.heads[bucket_of(key, own.heads)]
                while row >= 0:
                    tag = rows[row, TAG]
                    if rows[row, KEY] == key and tag >> 4 == whose and tag & 3 == TRUE:
                        dx, dy, dz, there = x - spots[row, X], y - spots[row, Y], z - spots[row, Z], tag >> 2 & 3
                        for look in range(first, end):
                            metres, within, beyond = bounds[look, METRES], bounds[look, WITHIN], bounds[look, BEYOND]
                            if not is_within(dx, dy, dz, form, there, metres, within, beyond):
                                break
                            valid = looks[look, VALID]
                            fresh = valid < 0 or rows[row, AT] >= now - valid
                            if fresh and rows[row, BEHIND] > looks[look, AFTER]:
                                own.hits[look] += 1
                                lacking -= own.hits[look] == looks[look, ENOUGH]
                        if lacking == 0:
                            return
                    row = rows[row, NEXT]


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
    names, levels, pairs, told = own.widths.shape[0], own.widths.shape[1], own.pairs, own.told
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
            told[at + 3] = own.rows[node * levels, TAG] & 3
            found = _shake(own, node, said[name], x, y, z, form, found)
            if said[name] == FALSE:
                _drop(own, slot * names + name)
                continue
            move_cells(own, node, x, y, z, form, said[name], moment, position)
        else:
            node = _fresh(own, slot * names + name)
            write_row(own, node * levels, name, x, y, z, form, said[name], moment, position)
            enter_cells(own, node)
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
    leave_cells(own, node)
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
            enter_cells(own, own.pairs[pair, NODE])
    for disc in range(len(own.followed)):
        if own.followed[disc, NAME] >= 0:
            chain_disc(own, disc)


@compiled
def chain_disc(own: ReportArrays, disc: int) -> None:
    """Lets a disc be found by what leaves it."""
    name, form, level = own.followed[disc, NAME], own.followed[disc, FORM], own.followed[disc, SIZE]
    chains, width = own.disc_chains, 4 * own.widths[name, level]
    key = key_at(name, level, own.discs[disc, 0], own.discs[disc, 1], own.discs[disc, 2], form, width)
    bucket = bucket_of(key, own.disc_heads)
    first = own.disc_heads[bucket]
    chains[disc, DISC_KEY], chains[disc, DISC_NEXT], chains[disc, DISC_BEFORE] = key, first, -1
    if first >= 0:
        chains[first, DISC_BEFORE] = disc
    own.disc_heads[bucket] = disc


@compiled
def unchain_disc(own: ReportArrays, disc: int) -> None:
    """Lets it be found no longer."""
    chains = own.disc_chains
    behind, before = chains[disc, DISC_NEXT], chains[disc, DISC_BEFORE]
    if before >= 0:
        chains[before, DISC_NEXT] = behind
    else:
        own.disc_heads[bucket_of(chains[disc, DISC_KEY], own.disc_heads)] = behind
    if behind >= 0:
        chains[behind, DISC_BEFORE] = before
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
    rows, spots, levels, width = own.rows, own.spots, own.widths.shape[1], own.widths[name, level]
    whose = name * levels + level
    scale, wide, found, counted = scale_of(form), metres * (1 + SLACK) + ROOM, 0, 0
    low, high = 0, 0
    if form == ON_GLOBE:
        low, high = cell_number(z * scale - wide, width), cell_number(z * scale + wide, width)
    for k in range(low, high + 1):
        for j in range(cell_number(y * scale - wide, width), cell_number(y * scale + wide, width) + 1):
            for i in range(cell_number(x * scale - wide, width), cell_number(x * scale + wide, width) + 1):
                key = cell_key(name, level, i, j, k)
                row = own.heads[bucket_of(key, own.heads)]
                while row >= 0:
                    tag = rows[row, TAG]
                    if (
                        rows[row, KEY] == key
                        and tag >> 4 == whose
                        and rows[row, AT] >= oldest
                        and rows[row, BEHIND] > after
                    ):
                        dx, dy, dz = x - spots[row, X], y - spots[row, Y], z - spots[row, Z]
                        near = is_within(dx, dy, dz, form, tag >> 2 & 3, metres, within, beyond)
                        if near:
                            node = row // levels
                            own.told[found] = node if near == 1 else -1 - node
                            found += 1
                            counted += near == 1 and tag & 3 == TRUE
                            if counted >= most:
                                return found
                    row = rows[row, NEXT]
    return found
