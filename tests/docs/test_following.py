"""Pages that a newcomer follows do what they say: every file is saved, every command run, every output compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import ROOT, terminal


@pytest.mark.spark
@pytest.mark.parametrize(
    "page", ["README.md", "docs/tutorial.md", "docs/how-to.md", "docs/explanation.md", "docs/reference-http.md"]
)
def test_a_newcomer_who_follows_the_page_sees_what_it_shows(page: str, tmp_path: Path) -> None:
    """From an empty folder to an explained delivery, command by command."""
    with terminal(tmp_path) as newcomer:
        otherwise = newcomer.follow(ROOT / page)
    assert not otherwise, "\n\n".join(otherwise)


@pytest.mark.parametrize("page", ["docs/how-to-strategies.md", "docs/reference-python.md"])
def test_a_page_of_scripts_prints_what_it_shows(page: str, tmp_path: Path) -> None:
    """Pages that need no running system."""
    with terminal(tmp_path) as newcomer:
        otherwise = newcomer.follow(ROOT / page)
    assert not otherwise, "\n\n".join(otherwise)
