"""`nearcast apply` to a real server: what it prints, changes, keeps and removes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from click.testing import CliRunner

from nearcast.cli import apply
from nearcast.cli.running_definitions import RunningDefinitions
from nearcast.language.definitions.document_differences import differences, documents_of
from nearcast.language.definitions.files import load
from tests.server.conftest import Running, running

FIRST = """\
channels: {ops: {coordinates: planar, types: [unit]}}
awareness: {bandwidth: {maximum: 3750}, battery: {intervals: [20, 60]}}
ontology: {classes: {Temperature: {unit: °C}}, situations: {Hot: {}, Cold: {}}}
clients:
  - {id: ann, role: crew, readings: {bandwidth: 200}, position: {x: 1, y: 2}, lists: {buddies: [ben]}}
  - {id: ben}
subscriptions:
  - {id: units, client: ann, filter: "type = 'unit'"}
  - {id: near, client: ben, filter: "distance(me, this) <= 50", ttl: 10 min}
relations:
  - {id: close, a: "type = 'unit'", b: "type = 'unit'", when: "distance(a, b) < 50"}
situations:
  - {id: hot, class: Hot, when: "Temperature > 30", within: 100}
actions:
  - {id: call, relation: close, webhook: "http://127.0.0.1:9/"}
zones:
  depots:
    of: "type = 'unit'"
    features:
      - {id: north, geometry: {type: Polygon, coordinates: [[[8, 47], [9, 47], [9, 48], [8, 47]]]}}
      - {id: south, geometry: {type: Polygon, coordinates: [[[8, 46], [9, 46], [9, 47], [8, 46]]]}}
"""


async def applied(server: Running, text: str, folder: Path, *words: str) -> tuple[int, list[str], str]:
    """The exit code of applying definitions, the lines that it printed, and what it complained of."""
    file = folder / "definitions.yaml"
    file.write_text(text)
    return await asyncio.to_thread(invoked, "--url", server.url, str(file), *words)


def invoked(*words: str) -> tuple[int, list[str], str]:
    """The same of a command with these words."""
    found = CliRunner().invoke(apply.command, words)
    complained = f"{found.stderr}{found.exception or ''}"
    return found.exit_code, found.stdout.splitlines(), complained


async def asked(server: Running, path: str) -> Any:
    return (await server.http.get(path)).raise_for_status().json()


def test_a_running_system_gets_what_files_say_and_keeps_the_rest(tmp_path: Path) -> None:
    """Each difference is printed, with what it was; the same again changes nothing; a dry run never does."""

    async def test() -> None:
        async with running() as server:
            code, said, complained = await applied(server, FIRST, tmp_path, "--dry-run")
            assert 0 == code, complained
            assert "+ subscription near" in said and "~ zones of depots: 2 added or changed" in said
            assert complained.endswith("a dry run: nothing is changed\n")
            assert [] == await asked(server, "/clients")

            assert (0, said) == (await applied(server, FIRST, tmp_path))[:2]
            assert {"ann", "ben"} == {one["id"] for one in await asked(server, "/clients")}
            assert 2 == (await asked(server, "/zones/depots"))["count"]
            end = server.journal.end("events")
            assert (0, []) == (await applied(server, FIRST, tmp_path))[:2]
            assert end == server.journal.end("events")

            (await server.http.put("/clients/ann", json={"readings": {"bandwidth": 900}})).raise_for_status()
            (
                await server.http.put("/subscriptions/other", json={"client": "ben", "filter": "a = 1"})
            ).raise_for_status()
            changed = FIRST.replace("role: crew", "role: chief").replace("<= 50", "<= 60").replace("south", "west")
            code, said, complained = await applied(server, changed, tmp_path)
            assert [
                "~ client ann",
                "    role: crew → chief",
                "~ subscription near",
                "    filter: distance(me, this) <= 50 → distance(me, this) <= 60",
                "~ zones of depots: 1 added or changed, 1 removed",
            ] == said
            assert "0 added, 3 changed, 0 removed, 6 as they were" in complained
            ann = await asked(server, "/clients/ann")
            assert ("chief", 900) == (ann["role"], ann["readings"]["bandwidth"])
            assert ["north", "west"] == (await asked(server, "/zones/depots"))["zones"]
            assert "other" in [one["id"] for one in await asked(server, "/subscriptions")]

    asyncio.run(test())


def test_settings_of_which_files_say_nothing_stay_unless_they_are_pruned(tmp_path: Path) -> None:
    """With `--prune` what stands in no file goes too: a relation before the client whom it names."""

    async def test() -> None:
        async with running() as server:
            assert 0 == (await applied(server, FIRST, tmp_path))[0]
            one = "clients: [{id: ann}]\nchannels: {more: {coordinates: planar, types: [car]}}\n"
            code, said, complained = await applied(server, one, tmp_path)
            settings = await asked(server, "/settings")
            assert (0, {"ops", "more"}) == (code, set(settings["channels"])), complained
            assert {"bandwidth", "battery"} == set(settings["awareness"])
            code, said, _ = await applied(server, one, tmp_path, "--prune", "--json")
            found = [orjson.loads(line) for line in said]
            assert ["zones", "actions", "situations", "relations", "subscriptions", "subscriptions", "clients"] == [
                one["kind"] for one in found if one["after"] is None
            ]
            assert {"more"} == set((await asked(server, "/settings"))["channels"])
            assert ["ann"] == [one["id"] for one in await asked(server, "/clients")]
            assert [] == await asked(server, "/zones")

    asyncio.run(test())


def test_what_is_wrong_is_told_and_what_was_made_is_counted(tmp_path: Path) -> None:
    """A fault in a file changes nothing; what only the system knows to be wrong is refused by it, with its reason."""

    async def test() -> None:
        async with running() as server:
            code, _, complained = await applied(server, FIRST.replace("< 50", "<< 50"), tmp_path)
            assert 0 != code and "definitions.yaml:" in complained
            assert 0 == (await applied(server, FIRST, tmp_path))[0]
            rule = {"class": "Cold", "when": "Hot", "within": 100}
            (await server.http.put("/situations/cold", json=rule)).raise_for_status()
            turned = "situations: [{id: hot, class: Hot, when: Cold, within: 100}]\nclients: [{id: cid}]\n"
            code, _, complained = await applied(server, turned, tmp_path)
            assert 0 != code and "cycle" in complained and "1 of 2 changes made" in complained

    asyncio.run(test())


def test_a_server_that_is_not_there_is_told_with_its_address(tmp_path: Path) -> None:
    """As by every command that asks one."""
    file = tmp_path / "definitions.yaml"
    file.write_text("clients: [{id: a}]")
    assert (
        "expected an access server at http://127.0.0.1:9, got" in invoked("--url", "http://127.0.0.1:9", str(file))[2]
    )


@pytest.mark.parametrize("prune", [False, True])
def test_documents_that_are_as_asked_are_no_difference(prune: bool) -> None:
    """Whatever else a client says of itself."""
    wanted = documents_of(load([{"clients": [{"id": "a", "role": "r", "readings": {"battery": 1}}]}]))
    there = {**wanted, "clients": {"a": {"id": "a", "role": "r", "readings": {"battery": 2}, "task": "own"}}}
    assert [] == differences(there, wanted, prune)


def test_what_the_server_has_no_room_for_yet_is_asked_for_again() -> None:
    """As long as it says when to come back."""
    answers = iter([503, 503, 200])

    def answer(request: httpx.Request) -> httpx.Response:
        """No room twice."""
        status = next(answers)
        return httpx.Response(status, json={}, headers={"Retry-After": "0"} if status == 503 else {})

    async def test() -> None:
        async with RunningDefinitions("http://there", None) as known:
            known._http = httpx.AsyncClient(base_url="http://there", transport=httpx.MockTransport(answer))
            assert {} == await known.settings()
            assert not [*answers]

    asyncio.run(test())
