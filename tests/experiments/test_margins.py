"""The experiment of margins: what holding classes saves on measured links, and what it costs."""

from __future__ import annotations

import json

from experiments.margins.run import run
from nearcast.importers.mobile_links import LinkTrace, traces
from tests.experiments.command import experiment
from tests.shared import shared


def test_a_margin_of_a_tenth_for_three_seconds_leaves_a_tenth_of_the_changes() -> None:
    """On real links; for less than a fifth of the time they are in another class than without it."""
    links = traces(shared("data", "hsdpa_norway_3g", "3Glogs.tar.gz"))[::4]
    plain, held = run(links, (0.0, 10.0), (3.0,))
    assert plain.alone == held.alone > 2_000
    assert held.held < plain.held < plain.alone / 5
    assert held.share <= 0.1
    assert 0.1 < held.elsewhere < 0.2


def test_without_margin_and_time_nothing_is_held() -> None:
    """As many changes as there are, and no time elsewhere."""
    link = LinkTrace("up and down", (1.0, 2.0, 3.0, 4.0), (1000.0, 2000.0, 3000.0, 1000.0))
    [one] = run([link], (0.0,), (0.0,))
    assert (3, 3, 0.0, 1.0) == (one.alone, one.held, one.elsewhere, one.share)


def test_the_command_prints_a_row_for_each_pair() -> None:
    """As JSON too."""
    file = str(shared("data", "hsdpa_norway_3g", "3Glogs.tar.gz"))
    done = experiment("margins", "--links", file, "--margin", "10", "--for", "3", "--json")
    [row] = [json.loads(line) for line in done.stdout.splitlines()]
    assert (10, 3) == (row["margin"], row["lasting"]) and row["share"] < 0.1
    assert "10 %" in experiment("margins", "--links", file, "--margin", "10", "--for", "3").stdout
