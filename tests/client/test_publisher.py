"""The publishing half of the client library, against a transport that does as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice

import httpx
import orjson
import pytest

from nearcast.client import Publisher
from nearcast.client.kept import Kept
from nearcast.client.post_connections import ProxiedPosts
from nearcast.client.publisher import _batches
from nearcast.client.receiver import pauses
from nearcast.errors import AccessError, Fault, RightError, SessionError

Answer = Callable[[httpx.Request], httpx.Response]


def publisher(answer: Answer, patience: float = 5.0) -> Publisher:
    made = Publisher("http://test", patience=patience)
    made._posts = ProxiedPosts(
        httpx.AsyncClient(base_url="http://test", transport=httpx.MockTransport(answer)), "/events"
    )
    return made


def event(number: int, size: int = 0) -> dict[str, object]:
    return {"specversion": "1.0", "id": str(number), "type": "t", "source": "s", "data": "x" * size}


def test_it_tries_again_until_it_is_answered() -> None:
    """Lost connections, and servers without room, cost only time."""
    late = httpx.Response(408, text="expected the whole header of a request sooner")
    answers = iter([httpx.ConnectError("no"), httpx.Response(503), late, httpx.ReadTimeout("late"), None])

    def answer(request: httpx.Request) -> httpx.Response:
        this = next(answers)
        if isinstance(this, Exception):
            raise this
        return this or httpx.Response(202, json={"positions": [7], "faults": []})

    assert [7] == asyncio.run(publisher(answer).publish([event(1)])).positions


def test_what_was_kept_and_did_not_arrive_is_sent_until_it_does() -> None:
    """Also if what is published behind it fails again and again, or the publisher is closed."""
    came, down = list[list[str]](), [True]

    def answer(request: httpx.Request) -> httpx.Response:
        if down[0]:
            return httpx.Response(503)
        came.append([one["id"] for one in orjson.loads(request.content)])
        return httpx.Response(202, json={"positions": [None] * len(came[-1]), "faults": []})

    async def test() -> None:
        made = publisher(answer, patience=0.0)
        await made._send_kept(Kept([event(1)], [7]))
        for _ in range(2):
            with pytest.raises(SessionError):
                await made.publish([event(2)])
        down[0] = False
        await made.publish([event(3)])
        down[0] = True
        await made._send_kept(Kept([event(4)], [8]))
        down[0] = False
        await made.close()

    asyncio.run(test())
    assert [["1", "3"], ["4"]] == came


def test_patience_ends() -> None:
    """Then the caller is told, and may publish the same again."""
    with pytest.raises(SessionError, match="status 503"):
        asyncio.run(publisher(lambda _: httpx.Response(503), patience=0.3).publish([event(1)]))


def test_faults_are_given_by_the_index_of_the_event() -> None:
    """Over all batches."""

    def answer(request: httpx.Request) -> httpx.Response:
        count = len(orjson.loads(request.content))
        fault = {"index": count - 1, "expected": "a", "came": "b", "where": "event", "advice": None}
        return httpx.Response(202, json={"positions": [*range(1, count), None], "faults": [fault]})

    published = asyncio.run(publisher(answer).publish([event(number) for number in range(1_100)]))
    assert ([999, 1_099], 1_100) == (sorted(published.faults), len(published.positions))


@pytest.mark.parametrize(("status", "error"), [(401, AccessError), (403, RightError), (408, Fault), (422, Fault)])
def test_what_has_no_sense_to_try_again_is_raised(status: int, error: type[Exception]) -> None:
    """Tokens and faulty requests."""
    body = {"expected": "a", "came": "b", "where": None, "advice": None}
    with pytest.raises(error):
        asyncio.run(publisher(lambda _: httpx.Response(status, json=body)).publish([event(1)]))


def test_batches_keep_within_their_bounds() -> None:
    """In number and in bytes; one that is too large goes alone, for the server to refuse."""
    sizes = [
        len(orjson.loads(batch)) for batch, _ in _batches([orjson.dumps(event(number)) for number in range(1_100)])
    ]
    assert [1_000, 100] == sizes
    assert [4, 1] == [
        len(orjson.loads(batch))
        for batch, _ in _batches([orjson.dumps(event(number, 1_000_000)) for number in range(5)])
    ]
    assert [] == list(_batches([]))
    assert [(b"[1,2]", 2)] == list(_batches([b"1", b"2"]))


UNWRITABLE: list[tuple[str, str, object]] = [
    ("a finite number as Temperature", "nan", float("nan")),
    ("a finite number as Temperature", "-inf", float("-inf")),
    ("whole characters in the text Temperature", "'cut \\ud83d'", "cut \ud83d"),
    ("Temperature within 64 bits", str(2**70), 2**70),
    ("Temperature within 64 bits", "an integer of 40,001 bits", 2**40_000),
    ("a JSON value as Temperature", "set", {1}),
    ("texts as keys of Temperature", "1", {1: 2}),
]


def test_what_json_cannot_say_is_refused_by_its_index() -> None:
    """The others are published, in their order; a number without end would come as null."""
    came: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        came.extend(one["id"] for one in orjson.loads(request.content))
        return httpx.Response(202, json={"positions": [7, 8, 9], "faults": [], "known": [1]})

    bad = [{**event(number), "data": {"Temperature": value}} for number, (_, _, value) in enumerate(UNWRITABLE)]
    given = [event(100), *bad, event(101), {**event(102), "data": {"none": None, "many": [1.5, None]}}]
    told = asyncio.run(publisher(answer).publish(given))
    assert ["100", "101", "102"] == came
    assert [7, *[None] * len(bad), 8, 9] == told.positions
    assert [(expected, shown) for expected, shown, _ in UNWRITABLE] == [
        (told.faults[index].expected, told.faults[index].came) for index in range(1, len(bad) + 1)
    ]
    assert {len(bad) + 1} == told.known


def test_an_event_that_is_more_than_a_server_reads_is_a_fault_of_its_own() -> None:
    """It goes alone, so that those before and behind it are published."""

    def answer(request: httpx.Request) -> httpx.Response:
        count = len(orjson.loads(request.content))
        if len(request.content) > 8 << 20:
            return httpx.Response(413, json={"expected": "less", "came": "more", "where": None, "advice": None})
        return httpx.Response(202, json={"positions": [7] * count, "faults": []})

    told = asyncio.run(publisher(answer).publish([event(1), event(2, 9 << 20), event(3)]))
    assert ([7, None, 7], {1: "less"}) == (told.positions, {at: fault.expected for at, fault in told.faults.items()})


def test_pauses_grow_to_a_bound() -> None:
    """Doubled, cut at random, at most ten seconds."""
    found = list(islice(pauses(), 20))
    assert 0.05 <= found[0] <= 0.1
    assert all(5.0 <= pause <= 10.0 for pause in found[10:])


@pytest.mark.parametrize("response", [httpx.Response(404, text="<html>"), httpx.Response(404, json={"detail": "no"})])
def test_another_server_is_told_from_an_access_server(response: httpx.Response) -> None:
    """What it answers is shown, instead of an error about its form."""
    with pytest.raises(SessionError, match="expected an access server at http://test, got status 404"):
        asyncio.run(publisher(lambda request: response).publish([event(1)]))


def test_what_a_lost_answer_took_is_not_known_from_before() -> None:
    """Where the connection is lost behind the server's taking, the same again is known there: by this publisher.

    What the journal had before, and what comes twice within a post, is known in any case. As long as nothing that the
    publisher sent was new, nobody can tell.
    """
    journal: dict[str, int] = {str(number): number for number in range(1, 4)}
    lost = [False]

    def answer(request: httpx.Request) -> httpx.Response:
        end, positions, known = len(journal), [], []
        for index, one in enumerate(orjson.loads(request.content)):
            if one["id"] in journal:
                known.append(index)
            positions.append(journal.setdefault(one["id"], len(journal) + 1))
        assert end <= len(journal)
        if lost[0]:
            lost[0] = False
            raise httpx.ReadError("lost")
        return httpx.Response(202, json={"positions": positions, "faults": [], "known": known})

    async def test() -> list[tuple[list[int | None], set[int]]]:
        made, found = publisher(answer), []
        for numbers in ([1, 2], [3, 4], [4, 5, 6, 6], [7, 7]):
            lost[0] = numbers[0] != 3
            told = await made.publish([event(number) for number in numbers])
            found.append((told.positions, set(told.known)))
        return found

    assert [([1, 2], {0, 1}), ([3, 4], {0}), ([4, 5, 6, 6], {0, 3}), ([7, 7], {1})] == asyncio.run(test())
