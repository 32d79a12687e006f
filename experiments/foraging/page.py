"""One HTML page of the experiment: claims with verdicts and numbers, the figures, and what was taken for granted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from experiments.foraging.claims import Claim, claims
from experiments.foraging.figures import Figure, figures
from experiments.foraging.studies import FLOOD, Plan
from experiments.foraging.summary import Point, lines

STYLE = """
body { font: 16px/1.5 sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; vertical-align: top; padding: .4rem .6rem }
tr { border-bottom: 1px solid #ddd } td.number { text-align: right } h2 { margin-top: 2.5rem }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 1.5rem }
figure { margin: 0 } figcaption { color: #555; font-size: .9rem } svg { width: 100%; height: auto }
.supported { color: #1a7f37 } .partly { color: #9a6700 } .not { color: #b3202c } td.verdict { white-space: nowrap }
"""

SETTLED = (
    "All messages of a time unit travel within it: a hop takes no time. Every node within reach hears every message.",
    "Each composite request is one message, each response one, each forward of either one. A node forwards a message"
    " once, if it is within the spatial validity of where the message began.",
    "In a time unit nodes move, sensors read, requests go out, then responses; a value counts in its own unit only.",
    "CFor's providers answer with one response a time unit for all that is asked of them, CPol's with one per request.",
    "A rule counts once a time unit for a requestor, however many combinations of sensors would fire it.",
    "Values lie between 0 and 100, begin anywhere, and turn back at the ends; a value above 50 is smoke.",
    "The paper's figures show two variants of each scheme; its text does not say which validities CFor's had.",
    "Trigger level: satisfied local conditions ÷ local conditions. With two of three local, 0.66 asks for both.",
)


def page(points: Sequence[Point], plan: Plan) -> str:
    """The page as HTML, the figures within it."""
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>Context foraging</title><style>{STYLE}</style>",
        "<h1>Context foraging: what the paper says and what our runs say</h1>",
        "<p>V. Tsetsos and S. Hadjiefthymiades, <cite>An innovative architecture for context foraging</cite>"
        f" (MobiDE 2009), run again with {plan.seeds} seeds of {plan.duration} time units. Numbers are means with their"
        " 95 % confidence intervals.</p>",
        *_claims(claims(points)),
        *_figures(figures(points)),
        *_tables(points),
        "<h2>What the paper leaves open and we settled so</h2><ul>",
        *(f"<li>{escape(one)}</li>" for one in SETTLED),
        "</ul></html>",
    ]
    return "\n".join(parts)


def _claims(found: Sequence[Claim]) -> Iterator[str]:
    if not found:
        return
    yield "<h2>Claims of §4.2</h2><table><tr><th>The paper</th><th>Our data</th><th>Numbers</th></tr>"
    for one in found:
        verdict = f'<td class="verdict {one.verdict.split()[0]}">{one.verdict}</td>'
        yield f"<tr><td>{escape(one.said)}</td>{verdict}<td>{escape(one.numbers)}</td></tr>"
    yield "</table>"


def _figures(found: Sequence[Figure]) -> Iterator[str]:
    yield '<h2>Figures</h2><div class="figures">'
    for one in found:
        yield f'<figure id="{one.name}">{one.svg}<figcaption>{escape(one.caption)}</figcaption></figure>'
    yield "</div>"


def _tables(points: Sequence[Point]) -> Iterator[str]:
    for study, title in (
        ("flood", f"A node that sends {FLOOD} requests of its own each time unit"),
        ("recorded", "Real readings on moving nodes: without a fire, rules must stay quiet"),
        ("manners", "What relays that keep responses, and requests that follow the neighbourhood, cost and bring"),
    ):
        named = lines(points, study)
        if not named:
            continue
        yield f"<h2>{escape(title)}</h2><table><tr><th></th><th>x</th><th>requests</th><th>responses</th>"
        yield "<th>ASDR</th><th>fired</th><th>of it on values that no longer held</th></tr>"
        for name, some in named.items():
            yield from (_row(name, point) for point in some)
        yield "</table>"


def _row(name: str, point: Point) -> str:
    means = [
        point.mean(lambda one: one.requests),
        point.mean(lambda one: one.responses),
        point.mean(lambda one: one.asdr),
        point.mean(lambda one: one.fired),
        point.mean(lambda one: one.outdated),
    ]
    cells = "".join(f'<td class="number">{one if one.count else "nothing to detect"}</td>' for one in means)
    return f'<tr><td>{escape(name)}</td><td class="number">{point.x:g}</td>{cells}</tr>'
