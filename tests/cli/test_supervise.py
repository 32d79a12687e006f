"""When a part that died is started again."""

from __future__ import annotations

from nearcast.cli.supervise import Part


def test_pauses_begin_with_half_a_second_and_double() -> None:
    """After each death of a part that never ran for long; a pause is over when it is."""
    part = Part("part", [], module="no_such_module")
    now, pauses = 100.0, []
    for _ in range(3):
        part.start(now)
        assert part.process and 1 == part.process.wait()
        part.look(now)
        assert part.process is None
        pauses.append(part._due - now)
    assert [0.5, 1.0, 2.0] == pauses
    assert 3 == part.restarts
