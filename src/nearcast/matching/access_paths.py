"""Filters' trees over literals, and for each a few rare ones of which one holds wherever it does; in compiled code.

The same normal form as `filters.normal_form` gives, over flat arrays. A node's parts have greater numbers than the
node, so a pass from the root down is ascending and a pass from the leaves up descending, and nothing is recursive.
A literal is its atom's number times four plus the truth wanted: TRUE, FALSE, not TRUE, not FALSE.

The same normal form as `filters.normal_form` gives, over flat arrays. A node's parts have greater numbers than the
node, so a pass from the root down is ascending and a pass from the leaves up descending, and nothing is recursive.
A literal is its atom's number times four plus the truth wanted: TRUE, FALSE, not TRUE, not FALSE.

Of an Every the cheapest part's cover is enough; a Some needs the covers of all its parts. The events that satisfy a
cover's literal lie side by side once events are sorted by its column, so all others are never looked at.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nearcast.matching.column_tests import NEARBY, OPAQUE, OUTSIDE, POINTS, RANGE
from nearcast.matching.postfix import AND, FALSE, NOT, NOT_FALSE, NOT_TRUE, PLAIN_NOT, TRUE
from nearcast.model.arrays import Floats, Int32s, Integers
from nearcast.runtime.jit_cache import compiled

SOME, EVERY, LEAF = range(3)
"""Kinds of nodes."""


class Tree(NamedTuple):
    """Room for one filter's tree: per node its parent, kind, literal, class, first part and next part (−1: none)."""

    parent: Integers
    kind: Integers
    literal: Integers
    level: Integers
    head: Integers
    next: Integers


class Draft(NamedTuple):
    """Room for the nodes of one filter as it was written, by token."""

    head: Integers
    next: Integers
    there: Integers
    wanted: Integers
    parent: Integers
    stack: Integers
    own: Integers


def tree_room(size: int) -> Tree:
    """A tree of up to so many nodes."""
    return Tree(*(np.zeros(size, np.int64) for _ in Tree._fields))


def draft_room(size: int) -> Draft:
    """A draft of up to so many tokens."""
    return Draft(*(np.zeros(size, np.int64) for _ in Draft._fields))


@compiled
def build_trees(tokens: Integers, first: int, last: int, classes: Integers, own: int, draft: Any, tree: Any) -> int:
    """Makes the tree of the filter whose tokens these are; returns how many nodes it has, 0 if nothing is there."""
    count = last - first
    depth = 0
    for node in range(count):
        token = tokens[first + node]
        draft.head[node] = -1
        # Tokens come in postfix order: an atom's number, or a connective with how many parts before it are its own.
        if token >= 0:
            draft.own[node] = classes[own]
            draft.there[node] = 1 if classes[own] >= 0 else 0
            own += 1
        else:
            there = 0
            # Parts are popped last first and each put in front, so they end in the order in which they were written.
            for _ in range((-1 - token) >> 2):
                depth -= 1
                part = draft.stack[depth]
                draft.next[part] = draft.head[node]
                draft.head[node] = part
                if draft.there[part] > 0:
                    there += 1
            draft.there[node] = there
        draft.stack[depth] = node
        depth += 1
    draft.parent[count - 1] = -1
    draft.wanted[count - 1] = TRUE
    size = 0
    # A part has a lower number than its whole, so going down the numbers is going down the tree.
    for node in range(count - 1, -1, -1):
        if draft.there[node] > 0:
            size = _grow(tokens[first + node], node, draft, tree, size)
    for node in range(size - 1, 0, -1):
        parent = tree.parent[node]
        tree.next[node] = tree.head[parent]
        tree.head[parent] = node
    return size


@compiled
def _grow(token: int, node: int, draft: Any, tree: Any, size: int) -> int:
    """Adds a node of the draft to the tree, unless it only passes its parts on to its parent."""
    parent, wanted = draft.parent[node], draft.wanted[node]
    kind, below = LEAF, parent
    if token < 0:
        connective = (-1 - token) & 3
        if connective == NOT:
            wanted ^= 1
        elif connective == PLAIN_NOT:
            # The thesis' NOT has two truths: it holds where its part is not TRUE, UNKNOWN included, and fails where it
            # is.
            wanted = NOT_TRUE if wanted in (TRUE, NOT_FALSE) else TRUE
        else:
            # De Morgan: under a NOT an AND needs one part, an OR all.
            joint = (connective == AND) == (wanted in (TRUE, NOT_FALSE))
            own = EVERY if joint else SOME
            # A node of one part, or like its parent, is left out: its parts become its parent's.
            if draft.there[node] > 1 and (parent < 0 or tree.kind[parent] != own):
                kind, below = own, size
        part = draft.head[node]
        while part >= 0:
            draft.parent[part] = below
            draft.wanted[part] = wanted
            part = draft.next[part]
        if kind == LEAF:
            return size
    tree.parent[size] = parent
    tree.kind[size] = kind
    tree.head[size] = -1
    tree.next[size] = -1
    if kind == LEAF:
        tree.literal[size] = token * 4 + wanted
        tree.level[size] = draft.own[node]
    return size + 1


ENTRY = 0.0008
"""What one more range to look at costs, in shares of all events."""

NEVER = 1e9
"""The cost of what has no cover."""

NO, YES, OPEN = range(3)
"""What is known of a node once one literal of the cover holds and those before it do not."""


class AccessPath(NamedTuple):
    """Room for a form: per node whether it is in the form, its probability, cost, cheapest part, and what is known.

    `chosen` are the literals of the cover, rarest first.
    """

    alive: Integers
    share: Floats
    cost: Floats
    best: Integers
    known: Integers
    chosen: Integers


class CoverTests(NamedTuple):
    """The atoms as tests (see `LaidOutAtoms`), the share of events for which each is TRUE or FALSE."""

    kind: Int32s
    column: Int32s
    low: Int32s
    high: Int32s
    points: Int32s
    true: Floats
    false: Floats


def access_path_room(size: int) -> AccessPath:
    """Room for forms of up to so many nodes."""
    alive, best, known, chosen = (np.zeros(size, np.int64) for _ in range(4))
    return AccessPath(alive, np.zeros(size, np.float64), np.zeros(size, np.float64), best, known, chosen)


@compiled
def share_of(literal: int, tests: Any) -> float:
    """The share of events in which a literal is expected to hold."""
    atom, wanted = literal >> 2, literal & 3
    share = tests.true[atom] if (wanted in (TRUE, NOT_TRUE)) else tests.false[atom]
    return share if wanted <= FALSE else 1.0 - share


@compiled
def _literal_cost(literal: int, tests: Any) -> float:
    """What it costs to take a literal as (part of) a cover."""
    atom, wanted = literal >> 2, literal & 3
    kind = tests.kind[atom]
    if (
        # What selects no range of codes side by side cannot be looked up: rows of opaque literals, and complements.
        kind == OPAQUE
        or (kind == NEARBY and wanted != tests.high[atom])
        or wanted >= NOT_TRUE
        or (wanted == TRUE and kind == OUTSIDE)
        or (wanted == FALSE and kind == POINTS)
    ):
        return NEVER
    ranges = 1
    if kind == POINTS:
        ranges = tests.high[atom] - tests.low[atom]
    return share_of(literal, tests) + ENTRY * ranges


@compiled
def access_path(tree: Any, size: int, level: int, tests: Any, room: Any) -> int:
    """Finds the cover of the form "at least `level`" of a tree of `size` nodes; returns how many literals it has.

    0: it has none, or one that selects so much that looking at all events is cheaper. −1: the form holds nowhere.
    """
    # Parts have greater numbers, so from the last node down each part is known before its whole.
    for node in range(size - 1, -1, -1):
        if tree.kind[node] == LEAF:
            room.alive[node] = 1 if tree.level[node] >= level else 0
            room.share[node] = share_of(tree.literal[node], tests)
            room.cost[node] = _literal_cost(tree.literal[node], tests)
            continue
        every = tree.kind[node] == EVERY
        share, cost, best, alive = 1.0, (NEVER if every else 0.0), -1, (1 if every else 0)
        part = tree.head[node]
        while part >= 0:
            if room.alive[part] == 0:
                if every:
                    alive = 0
            elif every:
                # As if parts were independent: where they are not the cover is a worse one, never a wrong one.
                share *= room.share[part]
                if room.cost[part] < cost:
                    cost, best = room.cost[part], part
            else:
                alive = 1
                share *= 1.0 - room.share[part]
                cost += room.cost[part]
            part = tree.next[part]
        room.alive[node], room.cost[node], room.best[node] = alive, cost, best
        room.share[node] = share if every else 1.0 - share
    if room.alive[0] == 0:
        return -1
    # As much as looking at every event.
    if room.cost[0] >= 1.0:
        return 0
    return _choose(tree, size, tests, room)


@compiled
def _choose(tree: Any, size: int, tests: Any, room: Any) -> int:
    """Collects the literals of the cheapest cover, rarest first."""
    count = 0
    for node in range(size):
        room.known[node] = 1 if node == 0 else 0
    for node in range(size):
        if room.known[node] == 0:
            continue
        if tree.kind[node] == LEAF:
            literal = tree.literal[node]
            place, there = count, False
            for index in range(count):
                if room.chosen[index] == literal:
                    there = True
            if there:
                continue
            while place > 0 and share_of(room.chosen[place - 1], tests) > share_of(literal, tests):
                room.chosen[place] = room.chosen[place - 1]
                place -= 1
            room.chosen[place] = literal
            count += 1
        elif tree.kind[node] == EVERY:
            room.known[room.best[node]] = 1
        else:
            part = tree.head[node]
            while part >= 0:
                room.known[part] = room.alive[part]
                part = tree.next[part]
    return count


@compiled
def _implies(chosen: int, literal: int, tests: Any) -> bool:
    """Whether a value that lets `chosen` hold lets `literal` hold too, so that it may be taken as true.

    Only from value to value: what other values of the same name do is not known.
    """
    if chosen == literal:
        return True
    if (chosen & 3) != TRUE or (literal & 3) != TRUE:
        return False
    a, b = chosen >> 2, literal >> 2
    if tests.column[a] != tests.column[b] or tests.kind[a] != RANGE:
        return False
    if tests.kind[b] == RANGE:
        return tests.low[b] <= tests.low[a] and tests.high[a] <= tests.high[b]
    if tests.kind[b] == OUTSIDE:
        return tests.high[a] <= tests.low[b] or tests.high[b] <= tests.low[a]
    if tests.kind[b] == POINTS and tests.high[a] - tests.low[a] == 1:
        for index in range(tests.low[b], tests.high[b]):
            if tests.points[index] == tests.low[a]:
                return True
    return False


@compiled
def estimate_known(tree: Any, size: int, turn: int, tests: Any, room: Any) -> int:
    """What is known of each node once literal `turn` of the cover holds, none before it; returns that of the root."""
    chosen = room.chosen[turn]
    for node in range(size - 1, -1, -1):
        if room.alive[node] == 0:
            room.known[node] = NO
        elif tree.kind[node] == LEAF:
            literal = tree.literal[node]
            known = YES if _implies(chosen, literal, tests) else OPEN
            # An event goes with the first literal that holds in it, so that no pair comes twice.
            for before in range(turn):
                if room.chosen[before] == literal:
                    known = NO
            room.known[node] = known
        else:
            # One part decides an Every by NO, a Some by YES; else one that is open keeps the node open.
            decisive = NO if tree.kind[node] == EVERY else YES
            known = YES + NO - decisive
            part = tree.head[node]
            while part >= 0:
                if room.known[part] == decisive:
                    known = decisive
                    break
                if room.known[part] == OPEN:
                    known = OPEN
                part = tree.next[part]
            room.known[node] = known
    return room.known[0]


@compiled
def disjoint(a: int, b: int, tests: Any) -> bool:
    """Whether two literals of a cover surely select by different values of one column."""
    first, second = a >> 2, b >> 2
    if tests.column[first] < 0 or tests.column[first] != tests.column[second] or (a & 3) != TRUE or (b & 3) != TRUE:
        return False
    if tests.kind[first] == RANGE and tests.kind[second] == RANGE:
        return tests.high[first] <= tests.low[second] or tests.high[second] <= tests.low[first]
    if tests.kind[first] == POINTS and tests.kind[second] == POINTS:
        for index in range(tests.low[first], tests.high[first]):
            for other in range(tests.low[second], tests.high[second]):
                if tests.points[index] == tests.points[other]:
                    return False
        return True
    points, spread = (first, second) if tests.kind[first] == POINTS else (second, first)
    for index in range(tests.low[points], tests.high[points]):
        if tests.low[spread] <= tests.points[index] < tests.high[spread]:
            return False
    return True
