"""`nearcast compare`."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from nearcast.cli.compare import command
from nearcast.errors import DefinitionError


def compared(*words: str) -> Result:
    return CliRunner().invoke(command, words)


def test_it_prints_the_relation_and_an_event_for_each_difference() -> None:
    """What cannot be, such as an event that only the subset has, is not shown."""
    found = compared("size > 5", "size > 3")
    assert (0, ["SUBSET", "only SECOND accepts: size = 4", "both accept: size = 6"]) == (
        found.exit_code,
        found.stdout.splitlines(),
    )


def test_an_attribute_has_one_value_unless_it_is_said_that_it_may_have_several() -> None:
    """Where that makes a difference, a note says so."""
    both = ["size > 5", "size < 3"]
    assert "EMPTY" == compared(*both).stdout.splitlines()[0]
    assert "note: INTERSECT where an attribute may have several values (--repeated)\n" == compared(*both).stderr
    assert ("INTERSECT", "") == (
        compared(*both, "--repeated").stdout.splitlines()[0],
        compared(*both, "--repeated").stderr,
    )


def test_as_json_it_tells_what_the_relation_rests_on() -> None:
    """Several values of a name are a list; what users matter is told too."""
    plain = json.loads(compared("size > 5", "size < 3", "--json").stdout)
    assert ("EMPTY", "INTERSECT") == (plain["relation"], plain["repeated"])
    found = json.loads(compared("size > 5", "size < 3", "--json", "--repeated").stdout)
    assert ("INTERSECT", False, True, "INTERSECT") == (
        found["relation"],
        found["first_covers_second"],
        found["intersect"],
        found["repeated"],
    )
    assert {"id": "e1", "type": "event", "source": "somewhere", "size": [2, 6]} == found["both"]
    near = json.loads(compared("distance(user('a'), this) <= 5", "size > 3", "--json").stdout)
    assert {"a": [0.0, 0.0]} == near["only_first"]["users"]


def test_an_unknown_relation_is_exit_code_1() -> None:
    """A filter that never holds is noted as well."""
    assert (1, "UNKNOWN\n") == (
        (found := compared("distance(uform(), this) < 5", "distance(uform(), this) > 5")).exit_code,
        found.stdout,
    )
    assert "note: SECOND accepts no event at all\n" == compared("size = 1", "type = 5").stderr


def test_it_reads_advertisements() -> None:
    """One that names more attributes allows more."""
    assert "SUPERSET" == compared("--advertisements", "a = 1 AND b > 3", "a = 1").stdout.splitlines()[0]


def test_faults_of_both_filters_are_told_with_their_places() -> None:
    """As `check` tells them."""
    error = compared("size > ", "size < 3 AN").exception
    assert isinstance(error, DefinitionError)
    assert ["FIRST:1:7", "SECOND:1:10"] == [str(fault.where) for fault in error.faults]


@pytest.mark.parametrize("text", ["\0", "a = 1 AND", "'"])
def test_any_text_is_a_fault_at_worst(text: str) -> None:
    """Never a traceback of something else."""
    assert isinstance(compared(text, "a = 1").exception, DefinitionError)
