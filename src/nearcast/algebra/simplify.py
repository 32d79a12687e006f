"""Filters that say the same with less: the same truth, TRUE, FALSE or UNKNOWN, of every event.

What is left out or put together is proven to make no difference; what is not proven stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from nearcast.algebra.comparison import find
from nearcast.algebra.texts import Undecided
from nearcast.algebra.value_sets import ValueSet, satisfying
from nearcast.model.filter import And, Atom, Distance, Filter, Not, Operator, Or, PlainNot, atoms
from nearcast.model.values import Value, kind_of

MANY = 64
"""Up to so many children of one node are held against each other for what is redundant."""

QUICK = 5_000
"""How many steps one look for what is redundant may take."""

_LISTS = (Operator.EQ, Operator.IN)
_RANGES = (Operator.LT, Operator.LE, Operator.GT, Operator.GE)


def simplify(filter: Filter) -> Filter:
    """A filter of the same truth with fewer or shorter parts."""
    if isinstance(filter, Atom):
        return _atom(filter)
    if isinstance(filter, (Not, PlainNot)):
        inner = simplify(filter.child)
        return inner.child if isinstance(filter, Not) and isinstance(inner, Not) else type(filter)(inner)
    return joined(type(filter), [simplify(child) for child in filter.children])


def joined(kind: type[And] | type[Or], children: Sequence[Filter]) -> Filter:
    """Simple children under one connective, simplified: flat, each once, none redundant."""
    flat = [inner for child in children for inner in (child.children if isinstance(child, kind) else (child,))]
    once = list(dict.fromkeys(flat))
    # Not under And: two atoms about a name may hold for two of its values.
    if kind is Or:
        once = _atoms_united(once)
    if len(once) <= MANY:
        once = _needed(kind, once)
    return once[0] if len(once) == 1 else kind(tuple(once))


def _atom(atom: Atom) -> Atom:
    """IN with one literal is =; BETWEEN with one value too; a literal counts once."""
    if not isinstance(atom.value, tuple):
        return atom
    if atom.operator is Operator.IN:
        once = _ordered(atom.value)
        return Atom(atom.name, Operator.EQ, once[0], atom.where) if len(once) == 1 else _in(atom, once)
    same = len(set(atom.kinds)) == 1 and atom.value[0] == atom.value[1]
    return Atom(atom.name, Operator.EQ, atom.value[0], atom.where) if same else atom


def _in(atom: Atom, values: tuple[Value, ...]) -> Atom:
    return Atom(atom.name, Operator.IN, values, atom.where)


def _atoms_united(children: list[Filter]) -> list[Filter]:
    """Children of an Or in which atoms about one name that one atom can say have become one."""
    listed = _lists_united(children)
    if len(listed) > MANY:
        return listed
    found: list[Filter] = []
    waiting = list(reversed(listed))
    while waiting:
        child = waiting.pop()
        for at, known in enumerate(found):
            whole = united(known, child)
            if whole:
                del found[at]
                # What two have become may join with one that was passed over before.
                waiting.append(whole)
                break
        else:
            found.append(child)
    return found


def _lists_united(children: list[Filter]) -> list[Filter]:
    """The same of equalities and lists alone, however many there are: those of a name and kinds become one list."""
    found: dict[object, Filter | list[Atom]] = {}
    for child in children:
        if isinstance(child, Atom) and child.operator in _LISTS and isinstance(child.name, (str, Distance)):
            # A list stands where its first atom stood, so the order of the rest stays.
            atoms = found.setdefault((child.name, frozenset(child.kinds)), [])
            assert isinstance(atoms, list)
            atoms.append(child)
        else:
            found[child] = child
    return [_list(one) if isinstance(one, list) else one for one in found.values()]


def _list(atoms: list[Atom]) -> Atom:
    values = [value for atom in atoms for value in atom.literals]
    return atoms[0] if len(atoms) == 1 else _atom(Atom(atoms[0].name, Operator.IN, _ordered(values), atoms[0].where))


def united(one: Filter, other: Filter) -> Atom | None:
    """The atom that has the truth of `one OR other` for every event, if there is one that is easily found.

    Atoms hold for some value, so a union of atoms is an atom whose values are the union; and it is FALSE alike where
    the same values compare.
    """
    if not isinstance(one, Atom) or not isinstance(other, Atom) or one.name != other.name:
        return None
    if not isinstance(one.name, (str, Distance)) or Operator.IS_NULL in (one.operator, other.operator):
        return None
    try:
        holding, comparable = satisfying(one)
        more, compared = satisfying(other)
        # Of unequal kinds a union would be FALSE where the two are UNKNOWN.
        return _saying(one, other, holding | more) if comparable == compared else None
    except Undecided:
        return None


def _saying(one: Atom, other: Atom, values: ValueSet) -> Atom | None:
    """An atom about the same name, of the literals of two, that exactly these values satisfy."""
    if {one.operator, other.operator} <= {Operator.EQ, Operator.IN}:
        return _atom(Atom(one.name, Operator.IN, _ordered((*one.literals, *other.literals)), one.where))
    # Equal sets have equal intervals, so a look at the few atoms that could be meant is enough.
    for candidate in (one, other, *_candidates(one, other)):
        if satisfying(candidate)[0] == values:
            return candidate
    return None


def _candidates(one: Atom, other: Atom) -> Iterator[Atom]:
    bounds = [value for atom in (one, other) if _is_range(atom) for value in atom.literals]
    for value in bounds:
        for operator in _RANGES:
            yield Atom(one.name, operator, value, one.where)
    if len({kind_of(value) for value in bounds}) == 1:
        for low, high in combinations(_ordered(bounds), 2):
            yield Atom(one.name, Operator.BETWEEN, (low, high), one.where)


def _ordered(values: Iterable[Value]) -> tuple[Value, ...]:
    """Each value once, by kind and size; Python holds 1 and True to be one."""
    return tuple(value for _, value in sorted({(kind_of(value), value) for value in values}))


def _is_range(atom: Atom) -> bool:
    return atom.operator in (*_RANGES, Operator.BETWEEN, Operator.EQ)


def _needed(kind: type[And] | type[Or], children: list[Filter]) -> list[Filter]:
    """The children without those that, given the others, make no difference."""
    remaining = list(children)
    # The longest first: of two that say the same the shorter stays.
    for child in sorted(children, key=_size, reverse=True):
        # What is about other names than all the rest hardly follows from it: that is not worth the asking.
        rest = [other for other in remaining if other is not child]
        alike = [other for other in rest if not _names(other).isdisjoint(_names(child))]
        if alike and redundant(kind, child, alike):
            remaining = rest
    return remaining


def _names(filter: Filter) -> set[object]:
    return {atom.name for atom in atoms(filter)}


def redundant(kind: type[And] | type[Or], child: Filter, rest: list[Filter]) -> bool:
    """Whether a connective over `rest` has the same truth for every event as one over `rest` and `child`."""
    others = rest[0] if len(rest) == 1 else kind(tuple(rest))
    # TRUE alike, and FALSE alike: of a third value nothing is left to say.
    if kind is And:
        return _covers(child, others) and _covers(Not(others), Not(child))
    return _covers(others, child) and _covers(Not(child), Not(others))


def _covers(wide: Filter, narrow: Filter) -> bool:
    return find(narrow, but=wide, steps=QUICK).possible is False


def _size(filter: Filter) -> int:
    if isinstance(filter, Atom):
        return 1 + len(filter.literals)
    if isinstance(filter, (Not, PlainNot)):
        return 1 + _size(filter.child)
    return sum(_size(child) for child in filter.children)
