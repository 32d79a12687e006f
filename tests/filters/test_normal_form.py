"""Threshold forms against the plain evaluator."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.errors import Mark
from nearcast.filters.evaluate import NO_CONTEXT, RequiredTruth, atom_truth, level_of, truth
from nearcast.filters.normal_form import Every, Form, Literal, Some, plain_form, threshold_forms
from nearcast.language.cql2 import parse
from nearcast.model.event import Event
from nearcast.model.filter import Filter, atoms
from tests.random_filters import events, filters

HERE = Mark("here")


def holds(form: Form, event: Event) -> bool:
    """Whether a form holds, read as it stands."""
    if isinstance(form, Literal):
        return form.wanted.holds(atom_truth(form.atom, event, NO_CONTEXT))
    parts = [holds(part, event) for part in form.parts]
    return all(parts) if isinstance(form, Every) else any(parts)


@settings(max_examples=500, deadline=None)
@given(filters, st.data(), events())
def test_a_threshold_form_holds_where_the_level_is_at_least_its_own(
    node: Filter, data: st.DataObject, event: Event
) -> None:
    """So the greatest level whose form holds is the level; none holds where the filter does not select."""
    count = sum(1 for _ in atoms(node))
    classes = data.draw(st.lists(st.integers(-1, 2), min_size=count, max_size=count))
    level = level_of(node, classes, event, NO_CONTEXT)
    forms = threshold_forms(node, classes)
    for k, form in forms.items():
        assert (level is not None and level >= k) == holds(form, event)
    assert max((k for k, form in forms.items() if holds(form, event)), default=None) == level


@settings(deadline=None)
@given(filters, events())
def test_the_plain_form_holds_where_the_filter_is_true(node: Filter, event: Event) -> None:
    """UNKNOWN is not TRUE."""
    assert (truth(node, event, NO_CONTEXT) is True) == holds(plain_form(node), event)


def test_no_form_is_left_of_a_filter_without_atoms() -> None:
    """Relevance 0 throughout selects nothing."""
    assert {} == threshold_forms(parse("a = 1 OR b = 2", HERE), (-1, -1))


def test_equal_parts_are_kept_once_and_like_parts_flattened() -> None:
    """A OR (B OR A) is Some of A and B."""
    a, b = (Literal(atom, RequiredTruth.TRUE) for atom in atoms(parse("a = 1 OR b = 2", HERE)))
    assert Some((a, b)) == plain_form(parse("a = 1 OR (b = 2 OR a = 1)", HERE))
    assert a == plain_form(parse("a = 1 AND (a = 1 AND a = 1)", HERE))


def test_negation_goes_to_the_atoms() -> None:
    """NOT (A AND B) is Some of what is FALSE."""
    a, b = (Literal(atom, RequiredTruth.FALSE) for atom in atoms(parse("a = 1 OR b = 2", HERE)))
    assert Some((a, b)) == plain_form(parse("NOT (a = 1 AND b = 2)", HERE))
