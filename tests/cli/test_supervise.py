"""When a part that died is started again."""

from __future__ import annotations

import pytest

from nearcast.cli.supervisor import SystemPart
from nearcast.errors import SetupError


def test_pauses_begin_with_half_a_second_and_double() -> None:
    """After each death of a part that never ran for long; a pause is over when it is."""
    part = SystemPart("part", [], module="no_such_module")
    now, pauses = 100.0, []
    for _ in range(3):
        part.start(now)
        assert part.process and 1 == part.process.wait()
        part.look(now)
        assert part.process is None
        pauses.append(part._due - now)
    assert [0.5, 1.0, 2.0] == pauses
    assert 3 == part.restarts


def test_a_part_that_has_worked_is_started_again_whatever_it_says() -> None:
    """One that never did, and says that it cannot be run, ends the supervisor."""
    part = SystemPart("part", ["no such subcommand"])
    part.start(100.0)
    assert part.process and 2 == part.process.wait()
    with pytest.raises(SetupError, match="the part cannot run"):
        part.look(100.0)
    part.proven = True
    part.look(100.0)
    assert 1 == part.restarts
