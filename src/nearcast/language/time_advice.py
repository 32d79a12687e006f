"""Which part of a text is wrong where a date and time of RFC 3339 with its zone was expected."""

from __future__ import annotations

import re
from datetime import date

_LIKE = re.compile(
    r"(?P<year>[+-]?\d+)-(?P<month>\d+)-(?P<day>\d+)"
    r"(?:(?P<between>\s*[Tt]\s*|[\s_]+)(?P<hour>\d+)(?::(?P<minute>\d+))?(?::(?P<second>\d+))?"
    r"(?P<fraction>[.,]\d*)?(?P<zone>.*))?",
    re.ASCII | re.DOTALL,
)
"""What a date and time looks like that is wrong in some of its parts."""

_OFFSET = re.compile(r"([+-])(\d\d):(\d\d)", re.ASCII)
_OTHER_OFFSET = re.compile(r"\s*(?:UTC|GMT)?\s*([+-−])(\d\d?):?(\d\d)?", re.ASCII)
_DIGITS = {"year": 4, "month": 2, "day": 2, "hour": 2, "minute": 2, "second": 2}
_EXAMPLE = "2020-01-31T12:00:00Z"


def time_advice(written: object) -> str:
    """What to do about a value that names no moment with a zone: about the first part of it that is wrong."""
    if not isinstance(written, str):
        return (
            f"a time is a text, as '{_EXAMPLE}', not a count of seconds" if _is_number(written) else "a time is a text"
        )
    found = _LIKE.fullmatch(written)
    if not found:
        return f"a time is written year-month-day, T, hour:minute:second and zone, as {_EXAMPLE}"
    parts = found.groupdict()
    return _of_date(parts) or _of_clock(parts) or _of_zone(parts) or "in UTC it lies outside the years 1 to 9999"


def day_advice(written: str) -> str:
    """What to do about a text that names no day."""
    found = _LIKE.fullmatch(written)
    if not found or found["between"] is not None:
        return "a day is written year-month-day, as 2020-01-31"
    return _of_date(found.groupdict()) or "a day is written year-month-day, as 2020-01-31"


def _is_number(written: object) -> bool:
    return isinstance(written, (int, float)) and not isinstance(written, bool)


def _of_date(parts: dict[str, str | None]) -> str:
    year, month, day = (str(parts[name]) for name in ("year", "month", "day"))
    for name, text in (("year", year), ("month", month), ("day", day)):
        if len(text) != _DIGITS[name]:
            return f"a {name} has {_DIGITS[name]} digits"
    if year == "0000":
        return "there is no year 0"
    if not 1 <= int(month) <= 12:
        return f"there is no month {month}"
    try:
        date(int(year), int(month), int(day))
    except ValueError:
        return f"there is no day {day} in {year}-{month}"
    return ""


def _of_clock(parts: dict[str, str | None]) -> str:
    """What is wrong with the time of day."""
    if parts["between"] is None:
        return f"a time needs its time of day and its zone, as {_EXAMPLE}"
    if parts["between"] not in ("T", "t", " "):
        return "between the day and the time of day stands a T"
    if parts["minute"] is None and len(str(parts["hour"])) > 2:
        return "between hours, minutes and seconds stand colons"
    if parts["minute"] is None:
        return "a time needs its minutes and seconds"
    if parts["second"] is None:
        return "a time needs its seconds"
    for name, most in (("hour", 23), ("minute", 59), ("second", 60)):
        text = str(parts[name])
        if len(text) != _DIGITS[name]:
            return f"the {name} has {_DIGITS[name]} digits"
        if int(text) > most:
            midnight = "; midnight is 00 of the day that begins" if (name, text) == ("hour", "24") else ""
            return f"there is no {name} {text}{midnight}"
    fraction = parts["fraction"]
    if fraction and fraction[0] == ",":
        return "a point before the fraction of a second, not a comma"
    if fraction == ".":
        return "after the point stands the fraction of a second"
    return ""


def _of_zone(parts: dict[str, str | None]) -> str:
    zone = str(parts["zone"] or "")
    offset = _OFFSET.fullmatch(zone)
    if not zone:
        return "a time needs its zone, Z for UTC or as +01:00"
    if offset and (int(offset[2]) > 23 or int(offset[3]) > 59):
        return f"there is no zone {zone}"
    if not offset and zone not in "Zz":
        other = _OTHER_OFFSET.fullmatch(zone)
        if other and int(other[2]) <= 23:
            sign = "+" if other[1] == "+" else "-"
            return f"write the zone as {sign}{other[2]:0>2}:{other[3] or '00'}, with a colon"
        return "a zone is Z for UTC or an offset as +01:00; it has no name"
    if parts["second"] == "60":
        return "a second 60 is a leap second, the last of a month in UTC"
    return ""
