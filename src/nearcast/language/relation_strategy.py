"""The strategy of a relation: there is one of this name, it takes these parameters, and it serves the predicate."""

from __future__ import annotations

from nearcast.decision.relate.measure import measure_of
from nearcast.decision.strategies.choice import GROUP, STRATEGIES, chosen, plug_ins
from nearcast.errors import Fault
from nearcast.language.nodes import Node
from nearcast.language.reading import Reader, closest
from nearcast.model.relation import Relation, Strategy


def read_strategy(node: Node, reader: Reader) -> Strategy | None:
    """A strategy's name, or a mapping with its name and its parameters; None after a fault."""
    named: Node | None = node
    parameters = {}
    if isinstance(node.value, dict):
        named = node.value.get("name")
        parameters = {key: child.plain() for key, child in node.value.items() if key != "name"}
        if named is None:
            reader.fault("name in a strategy", node, came="none")
    name = None if named is None else reader.text(named, "a strategy's name")
    if named is None or name is None:
        return None
    known = sorted({*STRATEGIES, *plug_ins()})
    if name not in known:
        advice = closest(name, known) or f"plug-ins have entry points in the group {GROUP}"
        reader.fault(f"a strategy: {', '.join(known)}", named, advice)
        return None
    return Strategy(name, parameters)


def serves(relation: Relation, strategy: Strategy, node: Node, reader: Reader) -> bool:
    """Whether the strategy takes its parameters and can serve the relation; else there is a fault where it is named."""
    measure = measure_of(relation)
    try:
        chosen(strategy.name, strategy.parameters, None if measure is None else measure.bound)
    except Fault as fault:
        reader.fault(fault.expected, _blamed(fault, node), fault.advice, fault.came)
        return False
    return True


def _blamed(fault: Fault, node: Node) -> Node:
    """The parameter that a fault names, else the whole strategy."""
    for name, child in node.value.items() if isinstance(node.value, dict) else ():
        if f"`{name}`" in fault.expected or fault.came == repr(name):
            return Node(child.value, node.key(name), child.path)
    return node
