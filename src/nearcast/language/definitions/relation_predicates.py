"""The predicate of a relation: CQL2 over the attributes of two sides, `a.NAME` and `b.NAME`, and their distance."""

from __future__ import annotations

from collections.abc import Iterator

from nearcast.errors import Fault
from nearcast.language.cql2.conditions import Conditions
from nearcast.language.cql2.parser import read_text
from nearcast.language.cql2.syntax import Syntax
from nearcast.language.cql2.typed_expressions import Expressions, fault, is_aggregate
from nearcast.language.cql2.types import Type
from nearcast.language.marks import Locate
from nearcast.model.expression import COMPARISONS, PREVIOUS, TOLD_GEOMETRY, Call, Constant, Expression, Property, parts
from nearcast.model.filter import Atom, Filter, Operator, atoms
from nearcast.model.relation import SIDES

POSITIONS = ("position", "this")
"""Names, after a side's, of where it is; a side's letter alone means the same."""

FORM = "a.NAME or b.NAME"

_BETWEEN_SIDES = Call("DISTANCE", (Property("a"), Property("b")))


def read_predicate(text: str, locate: Locate) -> Filter:
    """The predicate that a text means; `locate` finds the place of each of its characters.

    Raises `Fault` for what is no CQL2, names no side, or is about one side only.
    """
    predicate = _PairConditions().condition(read_text(text, locate))
    sides = {name.partition(".")[0] for name in names_in(predicate)}
    lacking = [side for side in SIDES if side not in sides]
    if lacking:
        came = f"none of {' and '.join(lacking)}"
        advice = f"what is asked of one side alone belongs into its filter; for example: {FORM_EXAMPLE}"
        raise Fault("a predicate over both sides", came, locate(0), advice)
    return predicate


FORM_EXAMPLE = "distance(a, b) < 10"


def names_in(predicate: Filter) -> Iterator[str]:
    """The names that a predicate reads: `a`, `b`, `a.NAME`, `b.NAME`."""
    for atom in atoms(predicate):
        assert isinstance(atom.name, Call), "every atom of a predicate is computed"
        yield from (part.name for part in parts(atom.name) if isinstance(part, Property))


class _PairConditions(Conditions):
    """Conditions whose atoms are all computed, of two sides."""

    def __init__(self) -> None:
        super().__init__(inner=True)
        self._expressions = _PairExpressions(self._expression)

    def condition(self, syntax: Syntax) -> Filter:
        """The predicate that is meant where a condition is expected. Raises `Fault`."""
        if syntax.kind == "property":
            return self._atom(Call("=", (self._expressions.expression(syntax), Constant(True))), syntax)
        if syntax.calls("DISTANCE"):
            raise fault("a condition", syntax, f"compare it: {FORM_EXAMPLE}")
        return super().condition(syntax)

    def _plain(self, syntax: Syntax) -> Atom | None:
        """None: of two sides no atom is of one attribute and literals."""
        return None

    def _measured(self, syntax: Syntax) -> Atom | None:
        """None: between two sides a distance is a value like any other."""
        return None

    def _atom(self, predicate: Call, syntax: Syntax) -> Atom:
        return Atom(predicate, Operator.EQ, True, syntax.where)

    def _within(self, syntax: Syntax) -> Atom | None:
        """S_DWITHIN(a, b, metres) between positions is distance(a, b) <= metres; None for geometries in general."""
        a, b, metres = self._expressions.arguments(syntax, (3,), "S_DWITHIN(a.position, b.position, metres)")
        if {_position(a), _position(b)} != set(SIDES):
            return None
        return self._atom(Call("<=", (_BETWEEN_SIDES, Constant(self._metres(metres)))), syntax)

    def _check_comparable(self, syntax: Syntax, found: list[Expression]) -> None:
        super()._check_comparable(syntax, found)
        for part, expression in zip(syntax.parts, found, strict=True):
            if isinstance(expression, Property) and _is_place(expression.name):
                raise fault("something to compare", part, f"two places compare by their distance: {FORM_EXAMPLE}")
        if _BETWEEN_SIDES in found and str(syntax.value) in COMPARISONS:
            self._check_distance(syntax, found)

    def _check_distance(self, syntax: Syntax, found: list[Expression]) -> None:
        """A distance is never below 0, so it is compared with nothing that is."""
        for part, expression in zip(syntax.parts, found, strict=True):
            value = expression.value if isinstance(expression, Constant) else None
            if isinstance(value, (int, float)) and value < 0:
                raise fault("a distance in metres, 0 or more", part)
        below = found[::-1] if syntax.value == ">" else found
        if syntax.value in ("<", ">") and below[0] == _BETWEEN_SIDES and below[1] == Constant(0):
            raise fault("a distance in metres above 0", syntax, "no distance is below 0: use <= 0 for the same place")


class _PairExpressions(Expressions):
    """Expressions over the attributes of two sides, and over those of a time."""

    aggregated = "a.NAME"

    def __init__(self, condition: object) -> None:
        super().__init__(True, condition, over_time=True)  # type: ignore[arg-type]

    def expression(self, syntax: Syntax) -> Expression:
        """The expression that is meant. Raises `Fault`."""
        if syntax.kind == "property":
            return Property(_attribute(syntax))
        if syntax.calls("DISTANCE"):
            return self._distance(syntax)
        if syntax.calls("USER", "UFORM", "COUNT", *PREVIOUS) and not is_aggregate(syntax):
            advice = "a relation knows the newest events of its sides, and aggregates as AVG(a.NAME, 5 min), no more"
            raise fault(f"a condition on {FORM}", syntax, advice)
        return super().expression(syntax)

    def _subject(self, syntax: Syntax, advice: str) -> Property:
        name = _attribute(syntax) if syntax.kind == "property" else ""
        if not name or _is_place(name):
            raise fault(f"an attribute of a side, {FORM}", syntax, advice)
        return Property(name)

    def _argument(self, syntax: Syntax, takes: tuple[Type, ...]) -> Expression:
        if syntax.calls("DISTANCE") and "number" in takes:
            return self.expression(syntax)
        found = super()._argument(syntax, takes)
        if isinstance(found, Property) and _is_place(found.name) and "geometry" not in takes:
            raise fault(f"an attribute, {FORM}", syntax)
        return found

    def _distance(self, syntax: Syntax) -> Expression:
        a, b = self.arguments(syntax, (2,), "distance(a, b)")
        for part, other in ((a, b), (b, a)):
            if _position(part) is None or (part is b and _position(part) == _position(other)):
                twice = _position(part) is not None
                advice = "a distance from a side to itself is always 0" if twice else ""
                raise fault("the two sides, as in distance(a, b)", part, advice)
        return _BETWEEN_SIDES


def _attribute(syntax: Syntax) -> str:
    """The name of a side's attribute; of where a side is, that of the side alone."""
    side, dot, name = str(syntax.value).partition(".")
    if side not in SIDES or (dot and not name):
        raise fault(f"an attribute of a side, {FORM}", syntax)
    if not name or name in POSITIONS:
        return side
    return f"{side}.{TOLD_GEOMETRY[0]}" if name in TOLD_GEOMETRY else f"{side}.{name}"


def _position(syntax: Syntax) -> str | None:
    """The side whose position a node is; None if it is none's."""
    side, dot, name = str(syntax.value).partition(".") if syntax.kind == "property" else ("", "", "")
    return side if side in SIDES and (not dot or name in POSITIONS) else None


def _is_place(name: str) -> bool:
    attribute = name.partition(".")[2]
    return not attribute or attribute in TOLD_GEOMETRY
