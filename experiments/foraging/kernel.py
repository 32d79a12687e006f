"""The simulation compiled: both schemes, their messages and what fires, thousands of nodes, as fast as it goes.

It says in arrays what the nodes of `foraging` do one by one; a test holds both against each other. Two things
make it short. Who hears a message depends on where it began, not on what it says, so each node's flood is walked
once a time unit and multiplied. And a provider that is polled is one whose filters last for one time unit and which
answers each request instead of all at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
import numpy.typing as npt

from experiments.foraging.setting import CLASSES, CONDITIONS, OWN_SENSORS, RULES, SMOKING, Setting, rules_of
from nearcast.model.filter import And, Atom, Operator

Array = npt.NDArray[Any]
F = TypeVar("F", bound=Callable[..., Any])
_njit: Any = numba.njit


def _compiled(function: F) -> F:
    """The function as machine code, compiled at its first call; kept where there is a place for it."""
    try:
        # Numba looks whether this file has changed: all that its functions call is in it.
        return _njit(cache=True)(function)
    except RuntimeError:
        return _njit(function)


class Coded(NamedTuple):
    """Rules as numbers. Per condition its class, whether it asks for more than (1) or less than (−1) its limit; per
    requestor its two rules, each up to three conditions (−1: none); whether requestors measure each class.
    """

    classes: Array
    signs: Array
    limits: Array
    rules: Array
    own: Array


class Simulated(NamedTuple):
    """Messages sent as requests and as responses, with all forwards; and what fired: (time, requestor, rule)."""

    requests: int
    responses: int
    fired: Array


def coded(setting: Setting) -> Coded:
    """The rules of a setting as numbers."""
    rules = np.full((setting.requestors, 2, 3), -1, dtype=np.int64)
    for requestor in range(setting.requestors):
        for which, name in enumerate(rules_of(setting.part, requestor, setting.requestors)):
            numbers = [CONDITIONS.index(atom) for atom in _atoms(RULES[name])]
            rules[requestor, which, : len(numbers)] = numbers
    own = np.array([name in OWN_SENSORS[setting.part] for name in CLASSES])
    classes = np.array([CLASSES.index(str(atom.name)) for atom in CONDITIONS])
    signs = np.array([-1.0 if atom.operator is Operator.LT else 1.0 for atom in CONDITIONS])
    limits = np.array([SMOKING if atom.value is True else float(str(atom.value)) for atom in CONDITIONS])
    return Coded(classes, signs, limits, rules, own)


def _atoms(rule: And) -> list[Atom]:
    return [child for child in rule.children if isinstance(child, Atom)]


def simulate(setting: Setting, places: Array, values: Array) -> Simulated:
    """One run over given places and values."""
    code, scheme = coded(setting), setting.scheme
    satisfied = _satisfied(values, code.classes, code.signs, code.limits)
    measured = ~np.isnan(values[0][:, code.classes])
    fired = np.zeros((setting.duration, setting.requestors, 2), dtype=np.bool_)
    requests, responses = _run(
        places,
        satisfied,
        measured,
        code.classes,
        code.rules,
        code.own[code.classes],
        fired,
        setting.side,
        setting.reach,
        setting.within,
        scheme.valid,
        scheme.polled,
        scheme.threshold,
    )
    return Simulated(int(requests), int(responses), fired)


def observe(setting: Setting, places: Array, values: Array) -> tuple[Array, Array]:
    """What an all-knowing observer would have fired, (time, requestor, rule): within the spatial validity of each; and
    of this what remains if the conditions that a requestor can see itself must hold by its own sensors (for ASDR′).
    """
    code = coded(setting)
    satisfied = _satisfied(values, code.classes, code.signs, code.limits)
    every = np.zeros((2, setting.duration, setting.requestors, 2), dtype=np.bool_)
    _observe(places, satisfied, code.rules, code.own[code.classes], every, setting.side, setting.within)
    return every[0], every[1]


def _satisfied(values: Array, classes: Array, signs: Array, limits: Array) -> Array:
    """Whether each node's value satisfies each condition, (time, node, condition); none where there is no value."""
    with np.errstate(invalid="ignore"):
        return np.asarray(signs * (values[:, :, classes] - limits) > 0)


@_compiled
def _run(
    places: Array,
    satisfied: Array,
    measured: Array,
    classes: Array,
    rules: Array,
    own: Array,
    fired: Array,
    side: float,
    reach: float,
    within: float,
    valid: int,
    polled: bool,
    threshold: float,
) -> tuple[int, int]:
    duration, nodes, conditions = satisfied.shape
    requestors = len(rules)
    following = np.zeros((requestors, 2), dtype=np.int64)
    until = np.zeros((nodes, conditions), dtype=np.int64)
    got = np.full((requestors, conditions), -1, dtype=np.int64)
    answers = np.zeros(nodes, dtype=np.int64)
    seen, queue = np.full(nodes, -1, dtype=np.int64), np.empty(nodes, dtype=np.int64)
    requests, responses, mark = 0, 0, 0
    lasting = 1 if polled else valid
    for now in range(duration):
        here, true = places[now], satisfied[now]
        starts, links = _links(here, side, reach)
        answers[:] = 0
        # First all requests, then all responses: what is measured in a time unit meets the filters that came in it.
        for one in range(requestors):
            due = _due(one, now, following, rules, own, true, threshold)
            if not due.any():
                continue
            # A mark of its own for each flood, so that `seen` need not be cleared.
            mark += 1
            heard = _flood(one, here, within, starts, links, seen, mark, queue)
            for rule in range(2):
                if due[rule]:
                    following[one, rule] = now + valid
                    requests += heard
                    _register(rules[one, rule], own, measured, true, queue[1:heard], now + lasting, until, answers)
        for one in range(nodes):
            wanted = _wanted(until[one], true[one], now)
            # One response for all who have asked; a polled provider knows of each request by itself only.
            count = answers[one] if polled else int(wanted)
            if count:
                mark += 1
                heard = _flood(one, here, within, starts, links, seen, mark, queue)
                responses += heard * count
                _tell(until[one], true[one], classes, now, queue[1:heard], got)
        for one in range(requestors):
            for rule in range(2):
                fired[now, one, rule] = _fires(rules[one, rule], own, true[one], got[one], now)
    return requests, responses


@_compiled
def _due(one: int, now: int, following: Array, rules: Array, own: Array, true: Array, threshold: float) -> Array:
    """Which of a requestor's rules ask now: their last request has run out, and they are near enough to firing."""
    due = np.zeros(2, dtype=np.bool_)
    for rule in range(2):
        local, held = 0, 0
        for condition in rules[one, rule]:
            if condition >= 0 and own[condition]:
                local += 1
                held += true[one, condition]
        # A rule of which the node sees nothing has nothing against it.
        level = held / local if local else 1.0
        due[rule] = now >= following[one, rule] and level >= threshold
    return due


@_compiled
def _register(
    conditions: Array,
    own: Array,
    measured: Array,
    true: Array,
    hearers: Array,
    until_when: int,
    until: Array,
    answers: Array,
) -> None:
    """Puts a request's conditions into its hearers' filters; counts who could answer it at once."""
    for one in hearers:
        answered = False
        for condition in conditions:
            # What the requestor measures itself it does not ask for.
            if condition >= 0 and not own[condition] and measured[one, condition]:
                until[one, condition] = max(until[one, condition], until_when)
                answered |= true[one, condition]
        answers[one] += answered


@_compiled
def _wanted(until: Array, true: Array, now: int) -> bool:
    return bool(np.any((until > now) & true))


@_compiled
def _tell(until: Array, true: Array, classes: Array, now: int, hearers: Array, got: Array) -> None:
    """Lets the requestors among the hearers know the values; a value satisfies also what others asked for."""
    requestors = len(got)
    for asked in range(len(until)):
        if until[asked] > now and true[asked]:
            # A response has the value, not the condition: GasA > 40 may be asked for, and GasA > 50 follow too.
            for condition in range(len(until)):
                if classes[condition] == classes[asked] and true[condition]:
                    for one in hearers:
                        if one < requestors:
                            got[one, condition] = now


@_compiled
def _fires(conditions: Array, own: Array, true: Array, got: Array, now: int) -> bool:
    for condition in conditions:
        if condition >= 0 and not (true[condition] if own[condition] else got[condition] == now):
            return False
    return True


@_compiled
def _near(a: Array, b: Array, limit: float) -> bool:
    dx, dy = a[0] - b[0], a[1] - b[1]
    return np.sqrt(dx * dx + dy * dy) <= limit


@_compiled
def _flood(
    source: int,
    here: Array,
    within: float,
    starts: Array,
    links: Array,
    seen: Array,
    mark: int,
    queue: Array,
) -> int:
    """Who sends a message that begins at `source`, in `queue`: each node near enough to it that hears it; how many."""
    # Breadth first: the queue, once walked, is the list of those who have sent.
    queue[0] = source
    seen[source] = mark
    count, at = 1, 0
    while at < count:
        one = queue[at]
        at += 1
        for link in range(starts[one], starts[one + 1]):
            other = links[link]
            # Who hears it but is too far from where it began drops it, and may hear it again.
            if seen[other] != mark and _near(here[other], here[source], within):
                seen[other] = mark
                queue[count] = other
                count += 1
    return count


@_compiled
def _cells(here: Array, side: float, size: float) -> tuple[int, Array, Array, Array]:
    """Nodes by squares at least `size` wide: how many squares a side, each node's, and the nodes sorted by them."""
    across = max(1, int(side // size))
    cell = np.empty(len(here), dtype=np.int64)
    starts = np.zeros(across * across + 1, dtype=np.int64)
    for one in range(len(here)):
        column = min(across - 1, int(here[one, 0] / side * across))
        row = min(across - 1, int(here[one, 1] / side * across))
        cell[one] = row * across + column
        starts[cell[one] + 1] += 1
    # A counting sort: where each square's nodes begin, then each node into the next free place of its square.
    starts = np.cumsum(starts)
    order, filled = np.empty(len(here), dtype=np.int64), starts.copy()
    for one in range(len(here)):
        order[filled[cell[one]]] = one
        filled[cell[one]] += 1
    return across, cell, starts, order


@_compiled
def _around(one: int, across: int, cell: Array, starts: Array, order: Array, found: Array) -> int:
    """The nodes of the nine squares around a node, in `found`; how many."""
    count = 0
    row, column = cell[one] // across, cell[one] % across
    for y in range(max(0, row - 1), min(across, row + 2)):
        for x in range(max(0, column - 1), min(across, column + 2)):
            for at in range(starts[y * across + x], starts[y * across + x + 1]):
                found[count] = order[at]
                count += 1
    return count


@_compiled
def _links(here: Array, side: float, reach: float) -> tuple[Array, Array]:
    """Who hears whom: the neighbours of node i are links[starts[i] : starts[i + 1]]."""
    across, cell, cells, order = _cells(here, side, reach)
    nodes = len(here)
    found = np.empty(nodes, dtype=np.int64)
    starts = np.zeros(nodes + 1, dtype=np.int64)
    links = np.empty(16 * nodes, dtype=np.int64)
    count = 0
    for one in range(nodes):
        for at in range(_around(one, across, cell, cells, order, found)):
            if found[at] != one and _near(here[found[at]], here[one], reach):
                # Sixteen neighbours each are room enough but where nodes crowd.
                if count == len(links):
                    links = np.concatenate((links, np.empty(len(links), dtype=np.int64)))
                links[count] = found[at]
                count += 1
        starts[one + 1] = count
    return starts, links


@_compiled
def _observe(
    places: Array, satisfied: Array, rules: Array, own: Array, every: Array, side: float, within: float
) -> None:
    duration, nodes, conditions = satisfied.shape
    found = np.empty(nodes, dtype=np.int64)
    near = np.empty(conditions, dtype=np.bool_)
    for now in range(duration):
        here, true = places[now], satisfied[now]
        # Squares as wide as the spatial validity: whatever is within it lies in the nine around.
        across, cell, cells, order = _cells(here, side, within)
        for one in range(len(rules)):
            near[:] = False
            for at in range(_around(one, across, cell, cells, order, found)):
                if _near(here[found[at]], here[one], within):
                    near |= true[found[at]]
            for rule in range(2):
                whole, by_itself = True, True
                for condition in rules[one, rule]:
                    if condition >= 0:
                        whole &= near[condition]
                        by_itself &= true[one, condition] if own[condition] else near[condition]
                every[0, now, one, rule] = whole
                every[1, now, one, rule] = by_itself
