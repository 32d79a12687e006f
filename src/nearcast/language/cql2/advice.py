"""What to do about a filter's text where it stops making sense: habits of SQL and of other languages, and slips."""

from __future__ import annotations

from nearcast.language.cql2.tokens import Tokens
from nearcast.language.cql2.types import FUNCTIONS, OTHERS
from nearcast.language.nodes import closest

_LIKE = "LIKE compares with a pattern: name LIKE 'north%' begins with it, '%north%' contains it"
_ALONE = "a filter is a condition alone, as SQL has it after WHERE"
_PRESENT = "whether it is there is asked with size IS NOT NULL, whether it is absent with size IS NULL"
_CASE = "compare without case: CASEI(name) = CASEI('North')"
_CLOCK = "a filter has no clock: give a moment, as TIMESTAMP('2020-01-31T12:00:00Z')"
_TEXTS = "texts are compared, and matched by LIKE; nothing else is done with them"
_POINT = "write the geometry itself, as POINT(11.5 48.1)"
_COMMENT = "CQL2 has no comments"
_JOINED = "conditions are joined by AND or OR"
_LIST = "several values stand in a list, as in type IN ('a', 'b')"

_COMPARED = {
    **dict.fromkeys(("EQ", "EQUALS", "IS"), "="),
    **dict.fromkeys(("NE", "NEQ"), "<>"),
    **{"GT": ">", "GE": ">=", "GTE": ">=", "LT": "<", "LE": "<=", "LTE": "<="},
}

_WORDS = {
    "ILIKE": "compare without case: CASEI(name) LIKE CASEI('north%')",
    **dict.fromkeys(
        ("REGEXP", "RLIKE", "SIMILAR", "MATCHES", "CONTAINS", "STARTS", "STARTSWITH", "ENDS", "ENDSWITH", "GLOB"), _LIKE
    ),
    **dict.fromkeys(("LIMIT", "ORDER", "GROUP", "HAVING", "FROM", "WHERE", "UNION"), _ALONE),
    "EXISTS": _PRESENT,
    "XOR": "write (a OR b) AND NOT (a AND b)",
    "NULL": _PRESENT,
    "TO": "write size BETWEEN 1 AND 2",
    **{word: f"a comparison is a sign: {sign}" for word, sign in _COMPARED.items()},
}
"""Words that may stand behind an operand elsewhere."""

_BEGUN = {
    **dict.fromkeys(("SELECT", "WHERE", "FILTER"), _ALONE),
    **dict.fromkeys(("CASE", "IF", "WHEN"), "there are no branches: join conditions by AND, OR and NOT"),
    "EXISTS": _PRESENT,
}
"""Words with which a text may begin elsewhere."""

_UNITS = frozenset(
    {
        "m",
        "km",
        "cm",
        "mm",
        "mi",
        "ft",
        "nm",
        "s",
        "sec",
        "ms",
        "min",
        "h",
        "d",
        "kg",
        "g",
        "c",
        "kmh",
        "kn",
        "hpa",
        "ppm",
    }
)

_FUNCTIONS = {
    **dict.fromkeys(("LOWER", "UPPER", "LCASE", "UCASE", "TOLOWER", "TOUPPER"), _CASE),
    **dict.fromkeys(("UNACCENT", "NORMALIZE"), "compare without accents: ACCENTI(name) = ACCENTI('Zürich')"),
    **dict.fromkeys(("NOW", "CURRENT_TIMESTAMP", "CURRENT_DATE", "TODAY", "GETDATE", "SYSDATE"), _CLOCK),
    **dict.fromkeys(("COALESCE", "IFNULL", "ISNULL", "NVL", "NULLIF", "EXISTS"), _PRESENT),
    **dict.fromkeys(("LENGTH", "LEN", "SUBSTR", "SUBSTRING", "CONCAT", "TRIM", "REPLACE", "LEFT", "RIGHT"), _TEXTS),
    **dict.fromkeys(("CONTAINS_TEXT", "STARTSWITH", "ENDSWITH", "STARTS_WITH", "REGEXP_LIKE", "MATCHES"), _LIKE),
    **dict.fromkeys(
        ("ABS", "ROUND", "FLOOR", "CEIL", "CEILING", "SQRT", "MIN", "MAX"), "there are + - * / % ^ and DIV"
    ),
    **dict.fromkeys(("ST_DISTANCE", "ST_DISTANCESPHERE"), "write distance(a, b) <= 150, in metres"),
    **dict.fromkeys(("ST_POINT", "ST_MAKEPOINT", "ST_GEOMFROMTEXT", "ST_GEOGFROMTEXT"), _POINT),
    **dict.fromkeys(("ST_SETSRID", "ST_GEOMFROMGEOJSON", "ST_TRANSFORM"), _POINT),
    **dict.fromkeys(("ST_BUFFER", "CIRCLE", "BUFFER"), "write S_DWITHIN(geom, POINT(11.5 48.1), 150), in metres"),
    **dict.fromkeys(("ST_MAKEENVELOPE", "ENVELOPE", "BOX"), "write BBOX(west, south, east, north)"),
    **dict.fromkeys(("BEFORE", "AFTER", "DURING"), "write T_BEFORE, T_AFTER or T_DURING"),
    **dict.fromkeys(
        ("CAST", "TO_NUMBER", "TO_DATE", "TO_TIMESTAMP"), "values keep their types: DATE('2020-01-31') is a day"
    ),
    **dict.fromkeys(("==", "===", "EQ", "EQUALS"), "it is called ="),
    **dict.fromkeys(("!=", "NE", "NEQ"), "it is called <>"),
    **dict.fromkeys(("&&", "||", "!"), "they are called and, or, not"),
    **{word: f"it is called {_COMPARED[word]}" for word in ("GT", "GE", "GTE", "LT", "LE", "LTE")},
}


def on_function(name: str) -> str:
    """What to do about a function that there is not, by its name in capitals; empty if nothing is known."""
    spatial = f"S_{name.removeprefix('ST_')}"
    if spatial in FUNCTIONS:
        return f"did you mean {spatial}?"
    return _FUNCTIONS.get(name) or closest(name, (*FUNCTIONS, *OTHERS))


def on_token(tokens: Tokens, at: int) -> str:
    """What to do about a token that cannot stand where it does; empty if nothing is known."""
    kind, text = tokens.kinds[at], tokens.texts[at]
    before = tokens.kinds[at - 1] if at else ""
    if kind == "compare" or before == "compare":
        return _on_comparison(tokens, at)
    if kind == ",":
        return _on_comma(tokens, at)
    if kind != "text" and text.upper() in _WORDS and before != "IS":
        return _WORDS[text.upper()]
    if at and tokens.texts[0].upper() in _BEGUN:
        return _BEGUN[tokens.texts[0].upper()]
    if kind == "sign" and text in "*/" and before in ("sign", ""):
        return _COMMENT
    if kind == "sign" and text == "*" and before == "(":
        return "count(uform(conditions)) counts entities"
    return _behind(tokens, at)


def _on_comparison(tokens: Tokens, at: int) -> str:
    text, before = tokens.texts[at], tokens.texts[at - 1] if at else ""
    meant = {"==": "=", "=>": ">=", "=<": "<=", "<=>": "=", "><": "<>", "=!": "<>"}.get(before + text)
    if meant:
        return f"write {meant}"
    if (before, text[:1]) == ("-", ">"):
        return "a part of an object has a dotted name: a.b"
    return "" if tokens.kinds[at] != "end" else f"a value comes behind {before}, as a number or a text in single quotes"


def _on_comma(tokens: Tokens, at: int) -> str:
    numbers = tokens.kinds[at - 1] == "number" and tokens.kinds[at + 1] == "number"
    if numbers and tokens.starts[at + 1] == tokens.starts[at] + 1:
        return "a number has a decimal point, and nothing between its thousands"
    return f"{_JOINED}; {_LIST}"


def _behind(tokens: Tokens, at: int) -> str:
    """What to do about a token for what stands before it."""
    kind, text = tokens.kinds[at], tokens.texts[at]
    before, written = (tokens.kinds[at - 1], tokens.texts[at - 1]) if at else ("", "")
    if kind == "text" and written.upper() in ("DATE", "TIMESTAMP", "INTERVAL"):
        return f"write {written.upper()}({text})" if written.upper() != "INTERVAL" else "write INTERVAL(start, end)"
    if kind == "text" and written.upper() in ("USER", "CASEI", "ACCENTI"):
        return f"write {written}({text})"
    if text == ":":
        return "a comparison is a sign: ="
    if kind == "end" and written == "%":
        return "a pattern stands in single quotes; elsewhere % is the remainder of a division"
    if kind == "text" and before == "text":
        return "between the values of a list stands a comma; a ' within a text is written twice"
    if before == "number" and kind == "name":
        unit = text.lower() in _UNITS
        return (
            "a number has no unit: distances are in metres"
            if unit
            else "a number is of digits, a point and an exponent"
        )
    if before == "name" and kind == "name":
        return f'if {written} {text} is one name, write it in double quotes: "{written} {text}"'
    if before in ("name", "quoted") and kind in ("number", "text"):
        return f"say how they compare, as in {written} = {text}"
    if kind == "end" and before not in ("", "name", "number", "text", ")"):
        return f"something must come behind {written}"
    if kind == ")" and before == ",":
        return "there is no comma before )"
    if kind == ")" and before == "(":
        return "a list has at least one value"
    return ""
