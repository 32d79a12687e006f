"""A strategy by its name and parameters, one of those here or a plug-in; what cannot be is a located fault."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from nearcast.errors import Fault, Mark
from nearcast.runtime.plug_ins import EntryPoint, plug_ins
from nearcast.suppression.strategies.builtin import (
    CommonNode,
    ParallelLine,
    RangeRing,
    SharedRing,
    SpeedBound,
    Subscriber,
)
from nearcast.suppression.strategies.seam import Strategy, ThresholdPredicate
from nearcast.suppression.strategies.watched import LINES, TooLong, WatchedStrategy, within

GROUP = "nearcast.strategies"
"""The entry point group of plug-ins."""

STRATEGIES: dict[str, type[Strategy]] = {
    strategy.name: strategy for strategy in (Subscriber, CommonNode, RangeRing, ParallelLine, SpeedBound, SharedRing)
}
"""The strategies that are here, by name; a plug-in cannot take the place of one."""


def chosen(
    name: str, parameters: Mapping[str, Any], bound: ThresholdPredicate | None, where: Mark | None = None
) -> Strategy:
    """The strategy of a relation; `bound` is its predicate, None if it is no comparison of one reading.

    Raises `Fault` for a name that there is not, parameters that make no sense, and a predicate it cannot serve.
    """
    if name in STRATEGIES:
        strategy = _made(name, STRATEGIES[name], parameters, where)
    elif name in plug_ins(GROUP):
        strategy = _plugged_in(plug_ins(GROUP)[name], parameters, where)
    else:
        known = ", ".join(sorted({*STRATEGIES, *plug_ins(GROUP)}))
        raise Fault(f"a strategy: {known}", repr(name), where, f"plug-ins have entry points in the group {GROUP}")
    expected = strategy.serves(bound)
    if expected is not None:
        came = "another predicate" if bound is None else f"a {bound.dimension.name} one"
        raise Fault(f"{expected}, for the strategy {name}", came, where, "common-node serves every predicate")
    return strategy


def _plugged_in(point: EntryPoint, parameters: Mapping[str, Any], where: Mark | None) -> Strategy:
    """A plug-in's strategy, under watch from its first line on."""
    try:
        made = point.load()
    # It is anybody's code: importing it may raise anything.
    except Exception as error:
        raise Fault(f"the plug-in {point.value} to load", f"{type(error).__name__}: {error}", where) from error
    return WatchedStrategy(_made(point.name, made, parameters, where))


def _made(name: str, make: Callable[..., Strategy], parameters: Mapping[str, Any], where: Mark | None) -> Strategy:
    """What the parameters make; a fault says which there are, or what is wrong with one."""
    try:
        fields = inspect.signature(make).parameters
    except (TypeError, ValueError) as error:
        raise Fault(f"the strategy {name} to be a class or function", repr(make), where) from error
    for parameter in parameters:
        if parameter not in fields:
            known = ", ".join(fields) or "none"
            raise Fault(f"parameters of the strategy {name}: {known}", repr(parameter), where)
    try:
        return within(LINES, lambda: make(**parameters))
    except Fault as fault:
        raise Fault(fault.expected, fault.came, fault.where or where, fault.advice) from fault
    except (Exception, TooLong) as error:
        raise Fault(f"parameters that the strategy {name} takes", f"{type(error).__name__}: {error}", where) from error
