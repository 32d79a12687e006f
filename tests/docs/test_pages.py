"""What the pages say of files, links, commands, paths and metrics is so."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from starlette.routing import WebSocketRoute

from experiments.__main__ import command as experiments
from nearcast.cli.main import COMMANDS, nearcast
from nearcast.language.checks.file_check import check
from nearcast.pipeline.monitoring import PipelineMetrics
from nearcast.server.app import create_app
from nearcast.server.config import ServerConfig
from nearcast.server.metrics import ServerMetrics
from tests.docs.pages import PAGES, ROOT, blocks, commands

DOCS = ROOT / "docs"
EXPERIMENTS = ("fulcrum", "foraging", "margins", "merging")
WIDTH = 100
"""Columns of the help texts in the reference of commands."""


def anchor(heading: str) -> str:
    """The anchor that a heading has on the web pages of repositories."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    """A link to another page, or to a heading of one, finds it."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            name, _, place = target.partition("#")
            other = (page.parent / name).resolve() if name else page
            assert other.exists(), target
            headings = re.findall(r"^#+ (.*)$", other.read_text(encoding="utf-8"), re.MULTILINE)
            assert not place or place in map(anchor, headings), target


def test_every_example_of_the_definitions_reference_loads(tmp_path: Path) -> None:
    """Each YAML block is a whole definitions file; the XML and event files beside it load too."""
    page = list(blocks(DOCS / "reference-definitions.md"))
    for number, block in enumerate(block for block in page if block.kind in ("yaml", "xml", "json")):
        path = tmp_path / (block.name or f"example-{number}.yaml")
        path.write_text(block.text, encoding="utf-8")
    for path in tmp_path.iterdir():
        report = check([path])
        assert ((), ()) == (report.faults, report.warnings)
    assert len(list(tmp_path.iterdir())) > 10


PROGRAMS: dict[str, tuple[str, click.Command]] = {
    "nearcast": ("reference-cli.md", nearcast),
    "python -m experiments": ("experiments.md", experiments),
}
"""The page that shows the helps of a program."""


@pytest.mark.parametrize(
    ("program", "name"),
    [*(("nearcast", name) for name in ("", *COMMANDS)), *(("python -m experiments", name) for name in EXPERIMENTS)],
)
def test_the_reference_of_commands_shows_the_help_as_it_is(program: str, name: str) -> None:
    """Each command's block is its help; `python -m tests.docs.cli_reference` writes them anew."""
    shown = {command: text for block in blocks(DOCS / PROGRAMS[program][0]) for command, text in commands(block)}
    assert help_of(name, program) == shown[" ".join(filter(None, [program, name, "--help"]))].strip()


def named(words: list[str], program: click.Command = nearcast) -> click.Command:
    """The command of a program that the first word names."""
    if not words or words[0].startswith("-"):
        return program
    assert isinstance(program, click.Group)
    command = program.get_command(click.Context(program), words[0])
    assert command, words
    return command


def help_of(name: str, program: str = "nearcast") -> str:
    """The help of a command of a program, or of the program itself."""
    whole = PROGRAMS[program][1]
    if name:
        # Click remembers the help option from wherever a command was first called, a test that calls it alone perhaps.
        named([name], whole)._help_option = None
    asked = CliRunner().invoke(whole, [*name.split(), "--help"], prog_name=program, terminal_width=WIDTH)
    return "\n".join(line.rstrip() for line in asked.output.strip().splitlines())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_of_a_page_has_the_options_it_is_given(page: Path) -> None:
    """Each `nearcast …` in a console block names a subcommand and options that there are."""
    for block in blocks(page):
        for text, _ in commands(block) if block.kind == "console" else ():
            for words in re.findall(r"(?:^|[;&|(=] *)nearcast ((?:[^;&|'\"]|'[^']*'|\"[^\"]*\")*)", text):
                rest = shlex.split(words.rstrip(") "))
                command = named(rest)
                known = {option for one in command.params for option in one.opts} | {"--help", "--version"}
                given = {word.partition("=")[0] for word in rest if word.startswith("--")}
                assert set() == given - known, text


def test_the_http_reference_has_every_path_of_the_api_and_no_other(tmp_path: Path) -> None:
    """Its headings are the methods and paths of /openapi.json, and the WebSocket."""
    app = create_app(ServerConfig(tmp_path / "journal"))
    there = {(method.upper(), path) for path, of in app.openapi()["paths"].items() for method in of}
    there |= {("WS", route.path) for route in app.routes if isinstance(route, WebSocketRoute)}
    there |= {("WS", "/clients/{id}/stream")}
    text = (DOCS / "reference-http.md").read_text(encoding="utf-8")
    assert there == set(re.findall(r"^### `(\w+) (\S+)`$", text, re.MULTILINE))


@pytest.mark.parametrize("metrics", [ServerMetrics(), PipelineMetrics()], ids=["server", "pipeline"])
def test_the_http_reference_names_every_metric(metrics: ServerMetrics | PipelineMetrics) -> None:
    """A counter by its name with _total, anything else by its name."""
    text = (DOCS / "reference-http.md").read_text(encoding="utf-8")
    for family in metrics.registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert f"`{name}`" in text


def test_python_in_pages_is_python() -> None:
    """Every Python block compiles."""
    for page in PAGES:
        for block in blocks(page):
            if block.kind == "python":
                compile(block.text, f"{page.name}:{block.line}", "exec")
