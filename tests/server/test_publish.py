"""Publishing over HTTP: every form of CloudEvents, and every way to be wrong."""

from __future__ import annotations

import asyncio
import gzip
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import orjson
import pytest

from nearcast.errors import EventError, Fault
from nearcast.journal.memory import Abort, MemoryJournal, Pause
from nearcast.model.columns import to_events
from nearcast.model.event import Event
from nearcast.server.access import tokens_from
from nearcast.server.config import ServerLimits
from nearcast.server.ingest import cloudevents_http
from nearcast.server.ingest.cloudevents_http import STRUCTURED, header_value, read_request
from tests.server.conftest import Running, run, running, unit, until
from tests.written_events import write_event

BATCHED = "application/cloudevents-batch+json"
SHARED = Path(os.environ.get("NEARCAST_SHARED", Path(__file__).parents[3] / "shared"))
FEATURE = SHARED / "data/cloudevents_conformance/features/http-protocol-binding.feature"


def stored(server: Running) -> list[Event]:
    return to_events(server.journal.read("events", 0, 1_000_000))


async def post(server: Running, content: Any, content_type: str = STRUCTURED, **headers: str) -> Any:
    body = content if isinstance(content, bytes) else orjson.dumps(content)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return await server.http.post("/events", content=body, headers={"Content-Type": content_type, **names})


def test_a_structured_event_is_kept_as_it_came() -> None:
    """The payload in the journal is the body, byte by byte."""

    async def test() -> None:
        async with running() as server:
            body = b'{"specversion": "1.0", "id": "1", "type": "t",  "source": "s", "data": {"n": 1.50}}'
            answer = await post(server, body, "application/cloudevents+json; charset=utf-8")
            assert (202, {"positions": [1], "faults": []}) == (answer.status_code, answer.json())
            [event] = stored(server)
            assert (body, (("n", 1.5),)) == (event.payload, event.attributes[-1:])

    run(test)


def test_a_binary_event_has_its_attributes_in_headers() -> None:
    """Headers are percent-decoded; JSON data is data, other data is base 64."""

    async def test() -> None:
        async with running() as server:
            headers = {"ce_specversion": "1.0", "ce_type": "t", "ce_source": "s", "ce_subject": "Euro%20%E2%82%AC"}
            assert 202 == (await post(server, {"n": 1}, "application/json", ce_id="1", **headers)).status_code
            assert 202 == (await post(server, b"\x00\xff", "image/png", ce_id="2", **headers)).status_code
            assert 202 == (await post(server, b"hello", "text/plain", ce_id="3", **headers)).status_code
            first, second, third = (orjson.loads(event.payload) for event in stored(server))
            assert ("Euro €", {"n": 1}, "application/json") == (
                first["subject"],
                first["data"],
                first["datacontenttype"],
            )
            assert ("AP8=", "hello") == (second["data_base64"], third["data"])

    run(test)


def test_of_a_batch_the_good_ones_are_taken_and_the_bad_ones_answered_and_buried() -> None:
    """Each by its index, with what was expected; the dead letters have the reason and the content."""

    async def test() -> None:
        async with running() as server:
            batch = [unit("1"), {"specversion": "1.0"}, unit("2"), 7, unit("3", n=2**70 + 1), unit("4", v=1, w=2)]
            body = str(batch).replace("'", '"').replace('"w"', '"v"').encode()
            answer = await post(server, body, BATCHED)
            assert (202, [1, None, 2, None, None, None]) == (answer.status_code, answer.json()["positions"])
            assert [1, 3, 4, 5] == [fault["index"] for fault in answer.json()["faults"]]
            assert ("event 1", "v again") == (answer.json()["faults"][0]["where"], answer.json()["faults"][3]["came"])
            await until(lambda: server.journal.end("dead letters") == 4)
            letters = server.journal.read("dead letters", 0, 10).to_pylist()
            assert b'"v": 1, "v": 2' in letters[3]["content"]
            assert (b'{"specversion": "1.0"}', True) == (letters[0]["content"], "expected id" in letters[0]["reason"])

    run(test)


def test_a_batch_may_be_large() -> None:
    """Up to the limit of a batch, 8 MiB."""

    async def test() -> None:
        async with running() as server:
            batch = [unit(str(number), text="x" * 100_000) for number in range(70)]
            assert list(range(1, 71)) == (await post(server, batch, BATCHED)).json()["positions"]

    run(test)


def test_publishing_again_answers_the_position_it_has() -> None:
    """Source and id identify an event."""

    async def test() -> None:
        async with running() as server:
            first = await post(server, [unit("1"), unit("2")], BATCHED)
            again = await post(server, [unit("2"), unit("3"), unit("1")], BATCHED)
            assert ([1, 2], [2, 3, 1]) == (first.json()["positions"], again.json()["positions"])

    run(test)


def test_any_of_many_events_may_be_published_again() -> None:
    """At whichever position it is: each is known, and none is another one."""

    async def test() -> None:
        async with running() as server, server.publisher() as publisher:
            many = [unit(str(number)) for number in range(1, 2_101)]
            await publisher.publish(many)
            for again in (many, many[998:1_001], many[1_999:2_000]):
                published = await publisher.publish(again)
                assert ({}, set(range(len(again)))) == (published.faults, published.known)
                assert [int(event["id"]) for event in again] == published.positions

    run(test)


def test_another_event_of_the_same_source_and_id_is_refused() -> None:
    """By its index, beside those that are the same again; spaces and the order of names are no content."""

    async def test() -> None:
        async with running() as server, server.publisher() as publisher:
            first = unit("1", speed=1, kind="H")
            await publisher.publish([first, unit("2")])
            again = dict(reversed([*first.items()]))
            others = [unit("1", speed=2, kind="H"), unit("1", speed=1.0, kind="H"), unit("1", speed=True, kind="H")]
            published = await publisher.publish([again, *others, unit("3"), unit("2", late=True)])
            assert [1, None, None, None, 3, None] == published.positions
            assert ({0}, [1, 2, 3, 5]) == (published.known, sorted(published.faults))
            assert "another event with this source and id than the one at position 1" == published.faults[1].came
            answer = await post(server, unit("2", late=True))
            assert (400, [None], "another") == (
                answer.status_code, answer.json()["positions"], answer.json()["came"].split()[0]
            )  # fmt: skip
            assert 2 == len(stored(server)) - 1

    run(test)


DEEP = b'{"specversion":"1.0","id":"1","type":"t","source":"s","data":' + b"[" * 5000 + b"]" * 5000 + b"}"
NO_CLIENT = {**unit("1"), "type": "nearcast.client", "data": {"role": 7}}

BAD: list[tuple[str, bytes, str, int]] = [
    ("malformed JSON", b'{"specversion": ', STRUCTURED, 400),
    ("NaN", b'{"specversion":"1.0","id":"1","type":"t","source":"s","data":{"n":NaN}}', STRUCTURED, 400),
    ("a key twice", orjson.dumps(unit("1", v=1, w=2)).replace(b'"w"', b'"v"'), STRUCTURED, 400),
    ("no id", b'{"specversion":"1.0","type":"t","source":"s"}', STRUCTURED, 400),
    ("another version", b'{"specversion":"0.3","id":"1","type":"t","source":"s"}', STRUCTURED, 400),
    ("no object", b"[]", STRUCTURED, 400),
    ("not UTF-8", b'{"specversion":"1.0","id":"\xff","type":"t","source":"s"}', STRUCTURED, 400),
    ("coordinates", orjson.dumps(unit("1", lon=500, lat=0)), STRUCTURED, 400),
    ("a clock far off", orjson.dumps({**unit("1"), "time": "2099-01-01T00:00:00Z"}), STRUCTURED, 400),
    ("deep", DEEP, STRUCTURED, 400),
    ("too large", b" " * (1 << 20) + b"{}", STRUCTURED, 413),
    ("too large a batch", b"[" + b" " * (8 << 20) + b"]", BATCHED, 413),
    ("no array", b"{}", BATCHED, 400),
    ("other content", b"{}", "application/json", 415),
    ("Avro", b"", "application/cloudevents+avro", 415),
    ("a control event that means nothing", orjson.dumps(NO_CLIENT), STRUCTURED, 400),
    ("an unknown control event", orjson.dumps({**unit("1"), "type": "nearcast.other"}), STRUCTURED, 400),
]  # fmt: skip


@pytest.mark.parametrize(("body", "content_type", "status"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input_is_answered_and_nothing_else_stops(body: bytes, content_type: str, status: int) -> None:
    """What was expected, what came, where and what to do; then a good event is taken."""

    async def test() -> None:
        async with running() as server:
            answer = await post(server, body, content_type)
            assert (status, True) == (
                answer.status_code,
                {"expected", "came", "where", "advice"} <= answer.json().keys(),
            )
            assert 202 == (await post(server, unit("good"))).status_code
            assert ["good"] == [event.id for event in stored(server)]

    run(test)


def test_a_body_without_a_length_is_cut_off_at_the_limit() -> None:
    """Chunks are counted as they come."""

    async def chunks() -> Any:
        for _ in range(40):
            yield b" " * 65_536

    async def test() -> None:
        async with running() as server:
            answer = await server.http.post("/events", content=chunks(), headers={"Content-Type": STRUCTURED})
            assert 413 == answer.status_code

    run(test)


def test_an_event_of_an_unknown_channel_is_refused() -> None:
    """Where channels are defined, every event needs one."""

    async def test() -> None:
        async with running() as server:
            document = {"channels": {"ops": {"coordinates": "planar", "types": ["unit"]}}}
            assert 200 == (await server.http.put("/settings", json=document)).status_code
            assert 202 == (await post(server, unit("1", x=1, y=2))).status_code
            assert 400 == (await post(server, {**unit("2"), "type": "chat"})).status_code
            assert 400 == (await post(server, unit("3", lon=1, lat=2))).status_code

    run(test)


def test_without_room_publishers_are_told_to_come_back() -> None:
    """503 with Retry-After, and nothing is lost: the client library publishes again."""

    async def test() -> None:
        journal = MemoryJournal([Pause("events", 1, 0.4, "append")])
        async with running(journal, limits=ServerLimits(intake_events=2)) as server:
            answers = await asyncio.gather(*(post(server, unit(str(number))) for number in range(10)))
            refused = [answer for answer in answers if answer.status_code == 503]
            assert refused and all(answer.headers["Retry-After"] == "1" for answer in refused)
            async with server.publisher() as publisher:
                assert not (await publisher.publish([unit(str(number)) for number in range(10)])).faults
            assert {str(number) for number in range(10)} == {event.id for event in stored(server)}

    run(test)


def test_a_journal_that_fails_is_told_and_the_next_event_is_taken() -> None:
    """Nothing is answered as durable that is not."""

    async def test() -> None:
        async with running(MemoryJournal([Abort("events", 1, "append")])) as server:
            answer = await post(server, unit("1"))
            assert (503, "5") == (answer.status_code, answer.headers["Retry-After"])
            assert 202 == (await post(server, unit("1"))).status_code

    run(test)


@pytest.mark.data
def test_the_conformance_feature_of_the_http_binding_holds() -> None:
    """Every scenario of the CloudEvents conformance tests: attributes and data as its tables say."""
    if not FEATURE.exists():
        pytest.skip(f"needs {FEATURE}; set NEARCAST_SHARED")
    scenarios = re.split(r"Scenario Outline:", FEATURE.read_text())[1:]
    checked = 0
    for scenario in scenarios:
        request = re.search(r'HTTP request\s+"""\n(.*?)\n\s*"""', scenario, re.DOTALL)
        assert request
        for content_type in re.findall(r"\| (application/\S.*?)\s*\|\n?", scenario.partition("Examples:")[2]):
            _check_scenario(request[1].replace("<contentType>", content_type), scenario, content_type)
            checked += 1
    assert 4 == checked


def _check_scenario(request: str, scenario: str, content_type: str) -> None:
    head, _, body = request.partition("\n\n")
    lines = [line.strip() for line in head.splitlines()][1:]
    headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    came = read_request(headers, body.strip().encode(), 1 << 20)
    expected = dict(re.findall(r"\|\s+(\w+)\s+\|\s+(.*?)\s+\|\n", scenario.partition("Examples:")[0]))
    del expected["key"]
    expected = {name: value.replace("<contentType>", content_type) for name, value in expected.items()}
    assert expected == {name: value for name, value in came.documents[0].items() if name != "data"}
    assert {"message": "Hello World!"} == came.documents[0]["data"]


def test_header_values_are_decoded() -> None:
    """Percent-encoding and quotes; UTF-8 that was not encoded, which HTTP gives as Latin-1, is read as what it is."""
    raw = "München".encode().decode("latin-1")
    assert ("Euro € 😀", 'a "b"', "100%", "München", "a+b") == (
        header_value("Euro%20%E2%82%AC%20%F0%9F%98%80", "ce-id"),
        header_value('"a \\"b\\""', "ce-id"),
        header_value("100%", "ce-id"),
        header_value(raw, "ce-id"),
        header_value("a+b", "ce-id"),
    )


@pytest.mark.parametrize("value", ["%C0%80", "%FF%FE", "M\xfcnchen", "%ED%A0%80", "a%E2%82"])
def test_a_header_that_is_no_utf_8_is_refused(value: str) -> None:
    """Two ids that would look the same are two (HTTP binding 1.0.2, 3.1.3.2)."""
    with pytest.raises(Fault, match=r"expected UTF-8 in the header ce-id, got .*; percent-encode the UTF-8 of ce-id"):
        header_value(value, "ce-id")


def test_binary_events_with_broken_headers_are_refused_and_buried() -> None:
    """Percent-encoding that is no UTF-8, and a header that comes twice; the fault names the header."""

    async def test() -> None:
        async with running() as server:
            headers = [("ce-specversion", "1.0"), ("ce-type", "t"), ("ce-source", "s"), ("Content-Type", "text/plain")]
            for more in ([("ce-id", "%C0%80")], [("ce-id", "1"), ("ce-id", "2")], [("ce-id", "3"), headers[3]]):
                answer = await server.http.post("/events", content=b"x", headers=[*headers, *more])
                name = "content-type" if more[-1] is headers[3] else "ce-id"
                assert (400, True) == (answer.status_code, f"the header {name}" in answer.json()["expected"])
            subject = ("ce-subject", "Zürich".encode())
            answer = await server.http.post("/events", content=b"x", headers=[*headers, ("ce-id", "4"), subject])  # type: ignore[list-item]
            assert 202 == answer.status_code
            assert ["Zürich"] == [event.subject for event in stored(server)]
            await until(lambda: server.journal.end("dead letters") == 3)

    run(test)


DATA = ("data", "data_base64")

BROKEN: list[tuple[str, bytes]] = [
    ("half an emoji", rb'{"t": "cut emoji \ud83d"}'),
    ("an infinite number", b'{"v": 1e999}'),
    ("NaN", b'{"v": NaN}'),
    ("a long integer", b'{"v": 1180591620717411303424}'),
    ("no UTF-8", b'{"v": "\xff"}'),
    ("too deep", b"[" * 2_000 + b"]" * 2_000),
    ("a key twice", b'{"v": 1, "v": 2}'),
    ("no JSON", b"{'v': 1}"),
    ("too large", b'"' + b"x" * (1 << 20) + b'", "more": 1e999'),
]


@pytest.mark.parametrize("bad", [case[1] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_one_bad_event_of_a_batch_spoils_no_other(bad: bytes) -> None:
    """The good ones are taken; it is answered by its index, and is a dead letter with what came."""

    async def test() -> None:
        async with running() as server:
            first, last = (orjson.dumps(unit(id)) for id in ("a, ] 1", "c"))
            event = b'{"specversion":"1.0","id":"b","type":"t","source":"p","data":' + bad + b"}"
            answer = await post(server, b" [" + first + b",\n" + event + b" , " + last + b"]\n", BATCHED)
            assert (202, [1, None, 2]) == (answer.status_code, answer.json()["positions"])
            [fault] = answer.json()["faults"]
            assert (1, True) == (fault["index"], fault["where"].startswith("event 1"))
            await until(lambda: server.journal.end("dead letters") == 1)
            [letter] = server.journal.read("dead letters", 0, 10).to_pylist()
            assert event[:1_000] == letter["content"][:1_000]

    run(test)


@pytest.mark.parametrize("body", [b'[{"a":1},]', b'[{"a":1},,{"b":2}]', b'[{"a": 1}, {"b"', b'[{"a": 1}', b"{}", b"7"])
def test_what_is_no_array_is_refused_as_a_whole(body: bytes) -> None:
    """And is one dead letter: nobody could tell which events were meant."""

    async def test() -> None:
        async with running() as server:
            answer = await post(server, body, BATCHED)
            assert (400, False) == (answer.status_code, "positions" in answer.json())
            await until(lambda: server.journal.end("dead letters") == 1)

    run(test)


def test_events_of_a_large_broken_batch_are_told_apart() -> None:
    """However many there are: only the one that is no JSON has a fault."""
    events = b",".join([orjson.dumps(unit("1", at=[[1, 2], [3, 4]], lon=1.5, lat=2.5))] * 20_000)
    found = read_request([("content-type", BATCHED)], b"[NaN," + events + b"]", 1 << 20)
    assert (20_001, [0]) == (len(found.contents), [*found.faults])


def test_what_is_too_large_in_a_batch_is_not_parsed() -> None:
    """Nor is a batch of too many events, or one whose brackets do not match: the parser would hold up all others."""
    headers, brackets = [("content-type", BATCHED)], b"[" + b"[1,2]," * 100_000 + b"[]]"
    with mock.patch.object(orjson, "loads", side_effect=AssertionError):
        fault = read_request(headers, b"[" + brackets + b"]", 1_000).faults[0]
        assert ("an event of at most 1,000 bytes", "600,004") == (fault.expected, fault.came)
        for body, told in (
            (brackets, "at most 100,000 events, got 100,001"),
            (b"{%b}" % brackets, "got something else"),
        ):
            with pytest.raises(EventError, match=told):
                read_request(headers, body, 1 << 20)
        with pytest.raises(EventError, match="brackets or quotes do not match"):
            read_request(headers, brackets[:-1], 1 << 20)


def test_a_large_batch_is_read_as_a_small_one_is() -> None:
    """In parts, of which none is larger than what is parsed together, or one event."""
    events = [unit(str(number), text='"], [{' * 40 + "\\" * (number % 3)) for number in range(2_000)]
    with mock.patch.object(cloudevents_http, "loads_items", side_effect=cloudevents_http.loads_items) as loads:
        found = read_request([("content-type", BATCHED)], orjson.dumps(events, option=orjson.OPT_INDENT_2), 1 << 20)
    assert events == found.documents
    assert [orjson.dumps(one) for one in events] == found.contents
    assert loads.call_count > 10
    assert max(len(call.args[0]) for call in loads.call_args_list) < cloudevents_http.TOGETHER + 2_000


def test_gzipped_content_is_unpacked_within_the_limit() -> None:
    """In every mode; what unpacks to more than may come, and what is no gzip, is refused."""

    async def test() -> None:
        async with running() as server:
            packed = {"Content_Encoding": "gzip"}
            body = gzip.compress(orjson.dumps(unit("1"))[:20]) + gzip.compress(orjson.dumps(unit("1"))[20:])
            assert 202 == (await post(server, body, **packed)).status_code
            headers = {"ce_specversion": "1.0", "ce_type": "t", "ce_source": "s", "ce_id": "2"}
            assert 202 == (await post(server, gzip.compress(b"hello"), "text/plain", **headers, **packed)).status_code
            assert ("hello", unit("1")) == (write_event(stored(server)[1])["data"], write_event(stored(server)[0]))
            bomb = gzip.compress(b" " * (64 << 20))
            for status, content in ((413, bomb), (400, body[:-9]), (400, b"{}")):
                answer = await post(server, content, **packed)
                assert (status, True) == (
                    answer.status_code,
                    answer.json()["expected"].startswith(("a body", "content")),
                )
            document = gzip.compress(b'{"role": "x", "task": "y"}')
            answer = await server.http.put(
                "/clients/a", content=document, headers={"Content-Encoding": "gzip", "Content-Type": "application/json"}
            )
            assert (200, "x") == (answer.status_code, answer.json()["document"]["role"])

    run(test)


@pytest.mark.parametrize("coding", ["br", "deflate", "gzip, gzip", "zstd"])
def test_any_other_content_coding_is_told_what_is_taken(coding: str) -> None:
    """415, with what to send instead (RFC 9110, 15.5.16)."""

    async def test() -> None:
        async with running() as server:
            answer = await post(server, unit("1"), Content_Encoding=coding)
            assert (415, "gzip", coding) == (
                answer.status_code,
                answer.headers["accept-encoding"],
                answer.json()["came"],
            )
            assert 202 == (await post(server, unit("1"), Content_Encoding="identity")).status_code

    run(test)


@pytest.mark.parametrize(
    ("data", "content_type", "body"),
    [
        ({"data": {"n": 1}}, "application/vnd.x+json; charset=utf-8", b'{"n": 1}'),
        ({"data": {"n": 1}}, "model/gltf+JSON", b'\xef\xbb\xbf{"n": 1}'),
        ({"data": "ü"}, "text/plain", "ü".encode()),
        ({"data": "ü"}, 'text/plain; charset="ISO-8859-1"', b"\xfc"),
        ({"data_base64": "/A=="}, "text/plain", b"\xfc"),
        ({"data": "<a/>"}, "image/svg+xml", b"<a/>"),
        ({"data_base64": "W10K"}, "application/json-seq", b"[]\n"),
        ({}, "application/json", b""),
    ],
)
def test_data_by_their_media_type(data: dict[str, Any], content_type: str, body: bytes) -> None:
    """JSON of any media type with +json, texts in their character set, anything else in base 64."""
    headers = [("ce-specversion", "1.0"), ("ce-id", "1"), ("content-type", content_type)]
    came = read_request(headers, body, 1 << 20)
    assert ({}, data) == (
        came.faults,
        {name: value for name, value in came.documents[0].items() if "data" in name[:4] and name != "datacontenttype"},
    )


def test_what_was_known_already_is_told_apart() -> None:
    """Of another request, also before a restart of the server, and within one batch."""

    async def test() -> None:
        journal = MemoryJournal()
        async with running(journal) as server, server.publisher() as publisher:
            assert frozenset() == (await publisher.publish([unit("1"), unit("2")])).known
            published = await publisher.publish([unit("3"), unit("1"), unit("4"), unit("4"), {"id": "5"}])
            assert ({1, 3}, [4]) == (published.known, list(published.faults))
        async with running(journal) as server, server.publisher() as publisher:
            assert {1} == (await publisher.publish([unit("5"), unit("4")])).known

    run(test)


def test_bodies_that_come_slowly_are_given_up() -> None:
    """With an answer, and nothing of them is held any longer; together they have a bound."""

    async def test() -> None:
        async with running(limits=ServerLimits(stall_seconds=3.0, bodies_bytes=3_000)) as server:
            host, port = server.url.removeprefix("http://").split(":")
            head = b"POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/cloudevents+json\r\n"
            slow = []
            for _ in range(4):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(head + b"Content-Length: 2000\r\n\r\n" + b"[" * 900)
                slow.append((reader, writer))
            answers = [(await reader.readline()).strip() for reader, _ in slow]
            for _, writer in slow:
                writer.close()
            assert {b"HTTP/1.1 408 Request Timeout", b"HTTP/1.1 503 Service Unavailable"} == {*answers}
            assert 1 == answers.count(b"HTTP/1.1 503 Service Unavailable")
            assert 0 == server.service.bodies.held
            assert [1] == await server.publish(unit("1"))

    run(test)


TOKENS = tokens_from("city:aaa:publish,sources=s,types=unit ops:bbb:publish,manage")


def _many() -> list[Any]:
    """Events of two forms, read in columns, with others between them: faulty, known, not plain, about a client."""
    batch: list[Any] = [unit(str(number), n=number) for number in range(20)]
    batch += [{**unit(str(number), speed=0.5, kind="H"), "extra": "e"} for number in range(20, 40)]
    batch[5::7] = [{"specversion": "1.0"}, unit("1", n=1), unit("1", n=2), unit("list", n=[1, 2]), unit("13", n=13)]
    batch[3] = {**unit("client"), "type": "nearcast.client", "data": {"client": "a"}}
    batch[30] = {**unit("30"), "source": "elsewhere"}
    return [batch[number * 7 % 40] for number in range(40)]


@pytest.mark.parametrize("secret", ["aaa", "bbb"])
def test_of_a_large_batch_becomes_what_becomes_of_its_events_one_by_one(secret: str) -> None:
    """Positions, faults and rows, in this order, whatever forms they have: what is known keeps its position, and what
    the token must not publish is refused.
    """

    async def test() -> None:
        headers = {"Authorization": f"Bearer {secret}"}
        async with running(tokens=TOKENS) as server, running(tokens=TOKENS) as other:
            together = (await post(server, _many(), BATCHED, **headers)).json()
            answers = [(await post(other, [event], BATCHED, **headers)).json() for event in _many()]
            assert [position for answer in answers for position in answer["positions"]] == together["positions"]
            one_by_one = [
                {**fault, "index": index, "where": fault["where"].replace("event 0", f"event {index}")}
                for index, answer in enumerate(answers)
                for fault in answer["faults"]
            ]
            assert sorted(one_by_one, key=str) == sorted(together["faults"], key=str)
            assert [index for index, answer in enumerate(answers) if "known" in answer] == together["known"]
            events = [[replace(event, accepted=None) for event in stored(one)] for one in (server, other)]
            assert events[1] == events[0]
            assert (36 if secret == "bbb" else 34) == len(events[0])
            assert {"main"} == {event.node for event in events[0]}

    run(test)


def test_what_is_too_deep_to_be_written_again_is_a_fault() -> None:
    """Of this event alone."""

    async def test() -> None:
        async with running() as server:
            deep = DEEP.replace(b"[" * 5_000, b"[" * 500).replace(b"]" * 5_000, b"]" * 500)
            answer = await post(server, b"[%b,%b]" % (orjson.dumps(unit("2")), deep), BATCHED)
            assert (202, [1, None]) == (answer.status_code, answer.json()["positions"])
            assert "data at most 64 deep" == answer.json()["faults"][0]["expected"]
            data = b"[" * 500 + b"]" * 500
            names = {"ce_specversion": "1.0", "ce_id": "3", "ce_type": "t", "ce_source": "s"}
            answer = await post(server, data, "application/json", **names)
            assert (400, "JSON that is not so deep") == (answer.status_code, answer.json()["expected"])

    run(test)
