"""Filters' trees over literals, in compiled code: NOT pushed to the atoms, what is absent left out, like parts joined.

The same normal form as `decision.normal_form` gives, over flat arrays. A node's parts have greater numbers than the
node, so a pass from the root down is ascending and a pass from the leaves up descending, and nothing is recursive.
A literal is its atom's number times four plus the truth wanted: TRUE, FALSE, not TRUE, not FALSE.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearcast.decision.match.flat import AND, NOT, NOT_FALSE, NOT_TRUE, PLAIN_NOT, TRUE
from nearcast.decision.match.kept import compiled

Integers = npt.NDArray[np.int64]

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
def plant(tokens: Integers, first: int, last: int, classes: Integers, own: int, draft: Any, tree: Any) -> int:
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
