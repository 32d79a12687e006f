"""What parameters of strategies must be; each check raises a `Fault`, to which whoever reads definitions adds where."""

from __future__ import annotations

import math

from nearcast.errors import Fault


def checked_share(share: object) -> None:
    """The share of the room that side a gets: from 0 to 1."""
    if not _is_number(share) or not 0 <= share <= 1:  # type: ignore[operator]
        raise Fault("a number from 0 to 1 for `share`", repr(share), advice="0.5 gives both sides the same")


def checked_speed(name: str, speed: object) -> None:
    """A top speed, in units of the dimension per second, or None."""
    if speed is not None and (not _is_number(speed) or not 0 <= speed < math.inf):  # type: ignore[operator]
        raise Fault(f"a speed of at least 0 for `{name}`, in units per second", repr(speed))


def checked_flag(name: str, flag: object) -> None:
    """True or false."""
    if not isinstance(flag, bool):
        raise Fault(f"true or false for `{name}`", repr(flag))


def _is_number(value: object) -> bool:
    # By exact type: in Python a bool is an integer.
    return type(value) in (int, float)
