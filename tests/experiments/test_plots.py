"""Pictures show every mark, say what it is, and are the same for the same data."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest

from experiments.plots import Axes, Bar, Dot, Line, Panel, bar_chart, line_chart

LINES = {
    "a": Line([Dot(1, 20.0, 3.0, "a: 20"), Dot(10, 300.0, 0.0, "a: 300")], "#cc0000"),
    "b & c": Line([Dot(1, 5.0, 1.0, "b < c")], "#0000cc", "s", dashed=True),
}


def told(picture: str) -> list[str]:
    """What is told of the marks of a picture."""
    found = ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}title")
    return [title.text or "" for title in found]


def texts(picture: str) -> list[str]:
    """The texts in a picture, in its order."""
    return [text.text or "" for text in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("axes", [Axes("rate", "sent"), Axes("rate", "sent", x_scale="log", y_scale="log")])
def test_a_line_chart_has_a_mark_for_each_dot_and_says_what_it_shows(axes: Axes) -> None:
    """Title, axes, legend and note are text that can be searched."""
    picture = line_chart("Sent by rate", axes, LINES, "means of 3")
    assert ["a: 20", "a: 300", "b < c"] == told(picture)
    assert {"Sent by rate", "rate", "sent", "a", "b & c", "means of 3", "1", "10"} <= set(texts(picture))


def test_logarithmic_axes_have_round_ticks_at_equal_factors() -> None:
    """One, two and five times each power of ten."""
    picture = line_chart("t", Axes("x", "y", x_scale="log", y_scale="log"), LINES)
    assert {"5", "10", "20", "50", "100", "200"} <= set(texts(picture))


def test_a_mean_of_nothing_is_not_drawn() -> None:
    """Browsers draw no line that has a place which is no number."""
    nothing = Dot(0, math.nan)
    some = line_chart("t", Axes("x", "y"), {"a": Line([nothing, Dot(1, 2.0, what="2"), Dot(2, 1.0, what="1")], "red")})
    none = line_chart("t", Axes("x", "y"), {"a": Line([nothing], "red")})
    assert (["2", "1"], []) == (told(some), told(none))
    assert "nan" not in some + none


def test_a_bar_chart_has_a_bar_for_each_series_of_each_group() -> None:
    """In panels with titles of their own."""
    groups = [(label, [Bar(1.0, 0.1, f"{label} one"), Bar(3.0, what=f"{label} two")]) for label in "xy"]
    panels = [Panel("first", groups, 4.0, {"x": (1.0, 2.0)}), Panel("second", groups[:1])]
    picture = bar_chart("Bars", {"one": "#cc0000", "two": "#0000cc"}, panels, note="a note")
    assert ["x one", "x two", "y one", "y two", "x one", "x two"] == told(picture)
    assert {"Bars", "first", "second", "x", "y", "one", "two", "a note"} <= set(texts(picture))


def test_the_same_data_give_the_same_picture() -> None:
    """No date, no random names; and no names of groups, of which a page with several pictures would have two."""
    first, again = (line_chart("t", Axes("x", "y"), LINES) for _ in range(2))
    assert first == again
    assert "<g id=" not in first
    assert "date" not in first
