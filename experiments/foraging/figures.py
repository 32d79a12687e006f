"""The paper's figures 4 to 11 from our runs, and those of what it leaves open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from experiments.foraging.claims import asdr, asdr_own, messages
from experiments.foraging.run import Measured
from experiments.foraging.studies import CHANGING
from experiments.foraging.summary import Point, lines
from experiments.plots import MARKERS, Axes, Dot, Line, line_chart

COLOURS = {
    "CFor1": "#9ecae1",
    "CFor2": "#6baed6",
    "CFor5": "#2171b5",
    "CFor10": "#08306b",
    "CPol1": "#cb181d",
    "CPol2": "#fb6a4a",
}
OTHERS = ("#2171b5", "#cb181d", "#238b45", "#6a51a3", "#d94801")

Measure = Callable[[Measured], float]


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture: its name as a file, what stands beneath it, and the SVG."""

    name: str
    caption: str
    svg: str


SPEED, VALIDITY, LEVEL = "maximum speed", "spatial validity", "trigger level"

PAPER = (
    ("figure-04", "A1", SPEED, "messages"),
    ("figure-05", "A1", SPEED, "ASDR"),
    ("figure-06", "A2", VALIDITY, "messages"),
    ("figure-07", "A2", VALIDITY, "ASDR"),
    ("figure-08", "B1", SPEED, "messages"),
    ("figure-09", "B1", SPEED, "ASDR"),
    ("figure-10", "B2", VALIDITY, "messages"),
    ("figure-11", "B2", VALIDITY, "ASDR"),
)

ASKED = {"A": "foraging (CFor) and polling (CPol)", "B": "lazy foraging (CFor) and polling (CPol)"}
"""What the two parts of the paper compare."""


def figures(points: Sequence[Point]) -> list[Figure]:
    """The figures for which there are points, the paper's first."""
    studies = {point.study for point in points}
    paper = [_paper(points, *each) for each in PAPER if each[1] in studies]
    return [*paper, *_beyond(points, studies)]


def _paper(points: Sequence[Point], name: str, study: str, x: str, y: str) -> Figure:
    whole = lines(points, study)
    # Part B of the paper is lazy throughout; the eager lines are for comparing, which the claims do.
    chosen = {each: found for each, found in whole.items() if study[0] == "A" or each.endswith(" lazy")}
    number = int(name.split("-")[1])
    if y == "messages":
        drawn, shown = _drawn(chosen, messages), "Messages"
    elif study[0] == "A":
        drawn, shown = _drawn(chosen, asdr), "Situations detected (ASDR)"
    else:
        upper = {f"{each} ′": line for each, line in _drawn(chosen, asdr_own).items()}
        drawn, shown = {**upper, **_drawn(chosen, asdr, dashed=True)}, "Situations detected (ASDR′, and ASDR dashed)"
    title = f"{shown} by {x}, {ASKED[study[0]]}"
    caption = f"Figure {number}, {study}. {title}."
    return Figure(name, caption, line_chart(title, Axes(x, y, None if y == "messages" else 1.0), drawn))


def _drawn(
    named: Mapping[str, Sequence[Point]], measure: Measure, dashed: bool = False, per_node: bool = False
) -> dict[str, Line]:
    found = {}
    for number, (name, some) in enumerate(named.items()):
        colour = COLOURS.get(name.split(" ")[0], OTHERS[number % len(OTHERS)])
        marker = MARKERS[number % len(MARKERS)]
        found[name] = Line([_dot(point, measure, per_node) for point in some], colour, marker, dashed)
    return found


def _dot(point: Point, measure: Measure, per_node: bool) -> Dot:
    found = point.mean(measure)
    share = 1 / point.nodes if per_node else 1.0
    return Dot(point.x, found.value * share, found.spread * share, f"{point.line} at {point.x:g}: {found}")


def _beyond(points: Sequence[Point], studies: set[str]) -> Iterator[Figure]:
    if "size" in studies:
        axes = Axes("nodes, as dense as the paper's", "messages", x_scale="log")
        yield _figure(points, "size", "messages per node", axes)
    if "crowd" in studies:
        yield _figure(points, "crowd", "messages per node", Axes("nodes in 500 × 500", "messages"))
    if "threshold" in studies:
        yield _figure(points, "threshold", "messages", Axes(LEVEL, "messages"))
        yield _figure(points, "threshold", "ASDR′", Axes(LEVEL, "ASDR′", 1.0))
    if "values" in studies:
        kinds = ", ".join(f"{number} {kind}" for number, kind in enumerate(CHANGING))
        yield _figure(points, "values", "ASDR′", Axes(f"values: {kinds}", "ASDR′", 1.0))
    if "manners" in studies:
        yield _figure(points, "manners", "messages", Axes(SPEED, "messages"))
        yield _figure(points, "manners", "ASDR", Axes(SPEED, "ASDR", 1.0))


TITLES = {
    "size": "by the number of nodes, as dense as the paper's",
    "crowd": "by the number of nodes in the paper's field",
    "threshold": "by the trigger level from which on requests are sent",
    "values": "by how a sensor's values follow each other",
    "manners": "by the maximum speed, with what the paper leaves open",
}

CAPTIONS = {
    "size": "How messages per node grow with the number of nodes where the field grows with it.",
    "crowd": "How they grow where all the nodes share the paper's field.",
    "threshold": "Lazy requesting by threshold; with two local conditions the levels are 0, ½ and 1.",
    "values": "Values that are noise, that wander as the paper's, and that keep their direction; lazy requesting.",
    "manners": "CFor10 with what the paper leaves open: relays that keep responses for two time units, requests that"
    " follow how fast neighbours change, limited rates.",
}

MEASURES: dict[str, tuple[Measure, bool]] = {
    "messages": (messages, False),
    "messages per node": (messages, True),
    "ASDR": (asdr, False),
    "ASDR′": (asdr_own, False),
}


def _figure(points: Sequence[Point], study: str, what: str, axes: Axes) -> Figure:
    measure, per_node = MEASURES[what]
    drawn = _drawn(lines(points, study), measure, per_node=per_node)
    name = f"{study}-{'asdr' if what.startswith('ASDR') else 'messages'}"
    measured = f"{what[0].upper()}{what[1:]}"
    chart = line_chart(f"{measured} {TITLES[study]}", axes, drawn)
    return Figure(name, f"{CAPTIONS[study]} {measured}.", chart)
