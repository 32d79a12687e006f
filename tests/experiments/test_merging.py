"""The merging experiment: what must hold of any run, and what it prints."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

from experiments.merging.plot import plot
from experiments.merging.run import Outcome, Setting, run, summarized
from tests.experiments.command import experiment, experiment_of_its_own

SMALL = Setting(schemas=3, subscriptions=30, replications=2, attributes=(2, 3), precisions=(0.9,), events=200)


def outcomes(setting: Setting = SMALL) -> dict[tuple[int, str], list[Outcome]]:
    found: dict[tuple[int, str], list[Outcome]] = {}
    for outcome in run(setting):
        found.setdefault((outcome.attributes, outcome.variant), []).append(outcome)
    return found


def test_each_way_of_merging_forwards_no_more_filters_than_the_one_before() -> None:
    """And those that merge perfectly, or not at all, forward nothing that nobody wants."""
    found = outcomes()
    for attributes in SMALL.attributes:
        for which in range(SMALL.replications):
            row = {variant.name: found[attributes, variant.name][which] for variant in SMALL.variants}
            assert 30 == row["unmerged"].filters >= row["covered"].filters >= row["perfect"].filters
            assert row["perfect"].filters >= row["kept 90 %"].filters >= row["imperfect"].filters
            assert 1.0 == row["unmerged"].precision == row["covered"].precision == row["perfect"].precision
            assert row["kept 90 %"].precision >= row["imperfect"].precision


def test_blind_merging_leaves_a_filter_for_each_schema() -> None:
    """The filters of one schema have one structure."""
    assert {3} == {
        outcome.filters for (_, variant), all_ in outcomes().items() if variant == "imperfect" for outcome in all_
    }


def test_a_seed_gives_one_outcome() -> None:
    """But for the time it took."""
    first, again = ([(one.filters, one.raw, one.precision) for one in run(SMALL)] for _ in range(2))
    other = [(one.filters, one.raw, one.precision) for one in run(Setting(**{**vars_of(SMALL), "seed": 2}))]
    assert first == again != other


def vars_of(setting: Setting) -> dict[str, object]:
    return {name: getattr(setting, name) for name in Setting.__slots__}


def test_progress_is_told_of_every_table() -> None:
    """As often as was said."""
    told: list[int] = []
    assert SMALL.rounds == len(list(run(SMALL, told.append))) == sum(told)


def test_the_plot_is_a_picture_with_a_bar_for_every_mean() -> None:
    """Well-formed, and each bar says what it is."""
    summaries = summarized(list(run(SMALL)))
    picture = ElementTree.fromstring(plot(SMALL, summaries))
    said = [title.text or "" for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert 6 * len(summaries) == len(said)
    assert any(text.startswith("kept 90 %, 3 attributes: ") for text in said)


def test_the_command_prints_rows_and_writes_files(tmp_path: Path) -> None:
    """A table for people, JSON for programs; what is written holds the setting too."""
    small = ["merging", "--schemas", "2", "--subscriptions", "8", "--replications", "1", "--attributes", "2"]
    printed = experiment_of_its_own(*small, "--out", str(tmp_path)).stdout
    assert "imperfect" in printed
    assert "100 %" in printed
    rows = [json.loads(line) for line in experiment(*small, "--json").stdout.splitlines()]
    assert [variant.name for variant in Setting().variants] == [row["variant"] for row in rows]
    written = json.loads((tmp_path / "merging.json").read_text())
    assert (8, 8) == (written["setting"]["subscriptions"], len(written["rows"]))
    assert (tmp_path / "merging.svg").read_text().startswith("<svg")
