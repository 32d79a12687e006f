"""What docstrings and comments cite is there: sections of docs/semantics.md, works under its Sources, pages."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

SEMANTICS = ROOT / "docs" / "semantics.md"

SECTION = re.compile(r"\bsemantics\s+§\s?(\d+)(?:\s?[–-]\s?(\d+))?((?:,\s*§?\s?\d+\b)*)", re.IGNORECASE)
"""`semantics §3`, `§2–4`, `§1, §2`, in either case."""

FORMS = {
    "a section or an equation": re.compile(r"\b(?!SEMANTICS\b)([A-Z]\w+)(?: \d\.\d)?,? (?:§|eqs?\. )"),
    "a standard": re.compile(r"\b((?:RFC|OGC)\s\d[\w-]*)"),
    "authors": re.compile(r"\b([A-Z]\w+) et al\."),
    "a work by name": re.compile(
        r"\b(Agent|Fulcrum|Foraging|Channels|TIP|thesis|CloudEvents 1\.0|Time Ontology|CFor|CPol|Karney|Tarkoma|Boyer"
        r"|Tsetsos|Hinze|Rinck)\b"
    ),
}
"""The short forms in which a work is cited."""

PAGE = re.compile(r"(?<![\w/.-])((?:[\w.-]+/)*[\w-]+\.md)\b")


def texts(path: Path) -> Iterator[str]:
    """The docstrings and comments of a file, each in one line."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield " ".join(node.value.value.split())
    comments = [
        (token.start[0], token.string.lstrip("# "))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    # A comment of several lines is one text.
    joined: list[tuple[int, str]] = []
    for line, text in comments:
        if joined and joined[-1][0] == line - 1:
            joined[-1] = (line, f"{joined[-1][1]} {text}")
        else:
            joined.append((line, text))
    yield from (text for _, text in joined)


@cache
def package() -> tuple[tuple[str, str], ...]:
    """Every docstring and comment of the package, with its file."""
    files = sorted((ROOT / "src" / "nearcast").rglob("*.py"))
    return tuple((path.relative_to(ROOT).as_posix(), text) for path in files for text in texts(path))


def sections_cited(text: str) -> set[int]:
    """The numbers of the sections that a text cites."""
    found = set()
    for first, last, more in SECTION.findall(text):
        found |= set(range(int(first), int(last or first) + 1)) | set(map(int, re.findall(r"\d+", more)))
    return found


def sections() -> dict[int, str]:
    """The page's numbered sections, by number, with their text."""
    parts = re.split(r"^## (\d+) .*$", SEMANTICS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(map(int, parts[1::2]), parts[2::2], strict=True))


def sources() -> str:
    """What the page says under Sources."""
    return SEMANTICS.read_text(encoding="utf-8").partition("\n## Sources\n")[2]


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ({3}, "(Agent §4.2–4.3; semantics §3)"),
        ({2, 3, 4}, "as semantics §2–4 says it"),
        ({1, 2}, "semantics §1, §2)"),
        ({2}, "(semantics §2, OGC 21-065r2)"),
        (set(), "(Channels §2, §3)"),
    ],
)
def test_a_citation_is_read_in_either_spelling(expected: set[int], text: str) -> None:
    """One section, a range, a list; what belongs to another work is none."""
    assert expected == sections_cited(text)


def test_the_sections_are_numbered_without_a_gap() -> None:
    """A number stays with its section: docstrings cite it."""
    assert list(range(1, len(sections()) + 1)) == list(sections())
    assert all(text.strip() for text in sections().values())


def test_every_section_that_is_cited_is_there() -> None:
    """`semantics §n` in the package is a section of docs/semantics.md."""
    cited = [(path, number) for path, text in package() for number in sorted(sections_cited(text))]
    assert len(cited) > 20
    assert [] == [one for one in cited if one[1] not in sections()]
    assert dict(cited).keys() == {path for path, text in package() if re.search(r"\bsemantics\s§", text, re.IGNORECASE)}


def test_every_work_that_is_cited_has_an_entry() -> None:
    """A short form in the package is told under Sources: who, what, when."""
    there = sources()
    cited = {
        (path, " ".join(name.split()))
        for path, text in package()
        for form in FORMS.values()
        for name in form.findall(text)
    }
    assert {"Agent", "Channels", "OGC 21-065r2", "Cardwell"} <= {name for _, name in cited}
    missing = {one for one in cited if not re.search(rf"\b{re.escape(one[1])}\b", there.replace("**", ""))}
    assert set() == missing


def test_every_entry_under_sources_says_who_and_when() -> None:
    """A short form in bold, a title in italics, a year unless it is a standard that is revised."""
    entries = [line for line in sources().splitlines() if line.startswith("- ")]
    assert len(entries) > 8
    for entry in entries:
        assert re.match(r"- \*\*[^*]+\*\*", entry), entry
        assert re.search(r"\*[^*]+\*.*(?:\b(?:19|20)\d\d\b|Recommendation)", entry), entry


def test_every_page_that_is_named_is_there() -> None:
    """A page in a docstring or comment is in docs/, or at the root."""
    named = {(path, page) for path, text in package() for page in PAGE.findall(text)}
    assert set() == {one for one in named if not any((ROOT / folder / one[1]).exists() for folder in ("", "docs"))}
