"""The conditions of situation rules and actions: a filter over classes of readings and situations, and its faults."""

from __future__ import annotations

from collections.abc import Iterator

from nearcast.decision.infer.names import names_in, range_of, unit_of
from nearcast.errors import Fault, Mark
from nearcast.language import cql2
from nearcast.language.filter_document import BRANCHES, read_filter
from nearcast.language.nodes import Node
from nearcast.language.reading import Reader, closest
from nearcast.language.situation_kinds import clashes
from nearcast.language.syntax import Syntax
from nearcast.model.expression import PREVIOUS, Call, parts
from nearcast.model.filter import And, Atom, Filter, Not, Operator, Or, PlainNot, atoms
from nearcast.model.ontology import Ontology
from nearcast.model.subscription import Settings


def read_conditions(node: Node, settings: Settings, reader: Reader, alone: bool = False) -> Filter | None:
    """Conditions over classes and situations, or over situations `alone`; None after a fault, each at the condition
    that is wrong.
    """
    weighted = read_filter(node, settings.levels, reader)
    if weighted is None:
        return None
    before = len(reader.faults)
    if any(value is not None for value in weighted.relevance):
        reader.fault("conditions", node, "relevance is for subscriptions", came="a relevance")
    if _has_plain_not(weighted.filter):
        reader.fault("not", node, "what is unknown counts neither as true nor as false", came="unless")
    bare = {(str(one.value), one.where) for one in _alone(node)}
    for atom in atoms(weighted.filter):
        for fault in _faults(atom, settings.ontology, bare, alone):
            reader.take(fault)
    return weighted.filter if len(reader.faults) == before else None


def _has_plain_not(node: Filter) -> bool:
    if isinstance(node, (And, Or)):
        return any(_has_plain_not(child) for child in node.children)
    return isinstance(node, PlainNot) or (isinstance(node, Not) and _has_plain_not(node.child))


def _alone(node: Node) -> Iterator[Syntax]:
    """The names that stand as conditions without being compared; the filter made of a node no longer tells."""
    if isinstance(node.value, list):
        for item in node.value:
            yield from _alone(item)
    elif isinstance(node.value, dict) and "op" not in node.value:
        for name in (*BRANCHES, "when"):
            if name in node.value:
                yield from _alone(node.value[name])
    else:
        yield from cql2.names_alone(node)


def _faults(atom: Atom, ontology: Ontology, bare: set[tuple[str, Mark]], alone: bool) -> Iterator[Fault]:
    """What is wrong with one condition of a rule."""
    calls = [part for part in parts(atom.name) if isinstance(part, Call)] if isinstance(atom.name, Call) else []
    outside = [call.function for call in calls if call.function in (*PREVIOUS, "USER")]
    if not isinstance(atom.name, (str, Call)) or outside:
        came = outside[0] if outside else "a distance or count"
        yield Fault("a condition over classes and situations", came, atom.where, "within says how near readings are")
        return
    if atom.operator is Operator.IS_NULL or any(call.function == "IS NULL" for call in calls):
        yield Fault("a condition over values", "IS NULL", atom.where, "a missing reading makes a condition unknown")
    yield from _unknown(atom, ontology, alone)
    # Where situations alone are asked for, a class is wrong however it is compared.
    if not alone:
        yield from clashes(atom, ontology)
    if not alone and isinstance(atom.name, str) and atom.name in (one.name for one in ontology.classes):
        yield from _unlike(atom, atom.name, ontology, bare)


def _unknown(atom: Atom, ontology: Ontology, alone: bool) -> Iterator[Fault]:
    """Names that the ontology has not, and situations that are compared."""
    situations = [one.name for one in ontology.situations]
    known = situations if alone else [*(one.name for one in ontology.classes), *situations]
    classes = [one.name for one in ontology.classes]
    expected = "a situation of the ontology" if alone else "a class or situation of the ontology"
    for name in dict.fromkeys(names_in(atom)):
        if alone and name in classes:
            advice = "write a rule that concludes a situation from it"
            yield Fault("a situation", f"{name}, a class of readings", atom.where, advice)
        elif name not in known:
            advice = closest(name, known) or ("add it to the ontology" if known else "define an ontology")
            yield Fault(expected, name, atom.where, advice)
        elif name in situations and not _asks_whether(atom):
            yield Fault(f"{name} or NOT {name}", f"{name} {atom.operator} …", atom.where, "a situation is or is not")


def _asks_whether(atom: Atom) -> bool:
    return isinstance(atom.name, str) and atom.operator is Operator.EQ and isinstance(atom.value, bool)


def _unlike(atom: Atom, name: str, ontology: Ontology, bare: set[tuple[str, Mark]]) -> Iterator[Fault]:
    """A class without a comparison, or one whose values are numbers compared with something else."""
    own = unit_of(ontology, name)
    numeric = own is not None or range_of(ontology, name) != (None, None)
    if atom.where is not None and (name, atom.where) in bare:
        example = f"{name} > 10" if numeric else f"{name} = TRUE"
        yield Fault("a comparison, or a situation", f"{name} alone", atom.where, f"for example: {example}")
    elif numeric and atom.operator is not Operator.IS_NULL:
        other = next((value for value in atom.literals if isinstance(value, (str, bool))), None)
        if other is not None:
            unit = f", in {own}" if own is not None else ""
            came = str(other).upper() if isinstance(other, bool) else f"'{other[:80]}'"
            yield Fault(f"a number to compare with {name}{unit}", came, atom.where, f"for example: {name} > 10")
