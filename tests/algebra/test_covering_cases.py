"""Relations and covering stated by others, for advertisements: `shared/cases/covering/padres.json`."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from nearcast.algebra.comparison import compare
from nearcast.algebra.constraints import Premises
from nearcast.algebra.merging import advertised
from nearcast.errors import DefinitionError, Mark
from nearcast.language.cql2 import parse
from nearcast.model.filter import Filter
from tests.shared import shared

STATED = Premises(single=True, integers=True)
"""There an attribute has one value, and numbers are integers: above 50 is from 51 on."""

OPERATORS = {"eq": "= {}", "neq": "<> {}", "str-prefix": "LIKE '{}%'", "str-postfix": "LIKE '%{}'"}
OPERATORS |= {"str-contains": "LIKE '%{}%'", **{sign: sign + " {}" for sign in ("<", "<=", ">", ">=")}}

UNDERSTATED = {
    ("[class,eq,'string'],[string,neq,'no']", "[class,eq,'string'],[string,str-postfix,'padres']"): "SUPERSET",
    ("[class,eq,'string'],[string,str-postfix,'padres']", "[class,eq,'string'],[string,neq,'no']"): "SUBSET",
    ("[class,eq,'string'],[string,str-prefix,'padres']", "[class,eq,'string'],[string,neq,'no']"): "SUBSET",
}
"""Stated as INTERSECT, which they do; but what begins or ends with 'padres' never is 'no'."""


def said(conjunction: str) -> Filter:
    """The CQL2 filter of a list of [attribute, operator, value]."""
    parts = []
    for name, operator, value in re.findall(r"\[([^,]+),([^,]+),([^\]]+)\]", conjunction):
        form = OPERATORS[operator]
        parts.append(f"{name} {form.format(value.strip(chr(39)) if 'LIKE' in form else value)}")
    return parse(" AND ".join(parts), Mark("case", 1, 1))


def cases() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shared("cases", "covering", "padres.json").read_text())
    return found


def test_every_relation_is_decided_as_stated() -> None:
    """Also those that their authors' engine could not decide; three are decided more sharply than stated."""
    for case in cases()["relations"]:
        pair = (case["a"], case["b"])
        found = compare(*advertised(said(case["a"]), said(case["b"])), STATED)
        assert UNDERSTATED.get(pair, case["relation"]) == found.relation, pair
        assert (case["relation"] != "EMPTY") is found.meet, pair


def test_covering_is_decided_as_stated() -> None:
    """A filter is covered if one of the others accepts all that it accepts."""
    for case in cases()["is_covered"]:
        own = said(case["filter"])
        pairs = [advertised(said(other), own) for other in case["covered_by_any_of"]]
        assert case["expected"] is any(compare(wide, narrow, STATED).covers for wide, narrow in pairs)


def test_an_advertisement_is_a_conjunction() -> None:
    """A disjunction says nothing of which attributes come together."""
    with pytest.raises(DefinitionError, match="joined by AND"):
        advertised(parse("a = 1 OR b = 1", Mark("case", 1, 1)), parse("a = 1", Mark("case", 1, 1)))
