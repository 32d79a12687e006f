"""Layers of zones over HTTP: their rules, their zones, and who is in which."""

from __future__ import annotations

from nearcast.journal.memory import MemoryJournal
from nearcast.model.zone import ZONE_EVENT
from tests.server.conftest import run, running
from tests.server.test_reading_state import page, told
from tests.zones.stories import box

RULE = {"of": "type = 'unit'", "detect": ["enter", "exit", "outside"]}


def test_a_layer_is_defined_changed_and_ended() -> None:
    """A rule, then zones of it; what is wrong with one is told, and nothing of it taken."""

    async def test() -> None:
        async with running() as server:
            answer = await server.http.put("/zones/depots", json=RULE)
            assert 200 == answer.status_code, answer.text
            features = [{"id": name, "geometry": box(0, 0, 1, 1)} for name in ("north", "south")]
            answer = await server.http.put("/zones/depots/features", json={"features": features})
            assert {"layer": "depots", "zones": ["north", "south"], "removed": []} == answer.json()["document"]
            shown = await page(server, "/zones/depots/features")
            again = await server.http.put("/zones/depots/features", json={"features": shown["features"]})
            assert (200, shown) == (again.status_code, await page(server, "/zones/depots/features"))
            assert (["north", "south"], None) == ([one["id"] for one in shown["features"]], shown["next"])
            assert shown["features"][1:] == (await page(server, "/zones/depots/features", after=1))["features"]
            (await server.http.put("/zones/depots/features", json={"removed": ["south"]})).raise_for_status()
            found = await page(server, "/zones/depots")
            assert (1, ["north"], "type = 'unit'") == (found["count"], found["zones"], found["of"])
            assert [found] == await page(server, "/zones")
            wrong = {"features": [{"id": "east", "geometry": {"type": "Point", "coordinates": [1, 2]}}]}
            answer = await server.http.put("/zones/depots/features", json=wrong)
            assert 422 == answer.status_code and "feature 1" in answer.text and "Polygon" in answer.text
            assert 404 == (await server.http.put("/zones/yards/features", json={"features": features})).status_code
            assert 422 == (await server.http.put("/zones/depots/features", json={"of": "x"})).status_code
            assert 422 == (await server.http.put("/zones/depots", json={"of": "type ="})).status_code
            (await server.http.delete("/zones/depots")).raise_for_status()
            assert 404 == (await server.http.get("/zones/depots")).status_code

    run(test)


def test_who_is_in_which_zone_is_read_page_by_page() -> None:
    """As far as `exit` is told; by layer and by entity."""

    async def test() -> None:
        journal = MemoryJournal()

        def event(detect: str, entity: str, zone: str | None = "north", layer: str = "depots") -> tuple[str, dict]:  # type: ignore[type-arg]
            """What tells of an entity and a zone."""
            return ZONE_EVENT, {"layer": layer, "zone": zone, "entity": entity, "detect": detect}

        told(
            journal,
            event("enter", "van"),
            event("enter", "bus"),
            event("enter", "van", "south"),
            event("exit", "van"),
            event("outside", "tram", None),
            event("enter", "van", layer="other"),
        )
        async with running(journal) as server:
            (await server.http.put("/zones/depots", json=RULE)).raise_for_status()
            found = (await page(server, "/active/zones"))["zones"]
            assert [("bus", "north"), ("van", "south")] == [(one["entity"], one["zone"]) for one in found]
            [only] = (await page(server, "/active/zones", layer="depots", entity="van"))["zones"]
            assert "south" == only["zone"]
            assert [] == (await page(server, "/active/zones", layer="other"))["zones"]

    run(test)
