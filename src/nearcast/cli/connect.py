"""`nearcast connect kafka`: publishes what comes in topics, and sends what clients receive to topics."""

from __future__ import annotations

import asyncio
import signal

import click

from nearcast.cli.options import server_options
from nearcast.cli.output import pluralize, warn
from nearcast.errors import NearcastError, first_error
from nearcast.kafka.kafka_binding import PlainMessages
from nearcast.kafka.kafka_brokers import MECHANISMS, KafkaBrokers
from nearcast.kafka.kafka_door import KafkaDoor
from nearcast.runtime.metrics_port import serve_metrics

TOLD_EVERY = 60.0
"""Seconds after which it is said how much has gone through."""


@click.group("connect")
def command() -> None:
    """Connect a running system with others.

    kafka --brokers HOST:PORT --from TOPIC --to CLIENT=TOPIC publishes what comes in topics, and sends what clients
    receive to topics.
    """


@command.command("kafka")
@click.option("--brokers", required=True, metavar="HOST:PORT,…", help="Brokers to begin with.")
@click.option("--from", "topics", multiple=True, metavar="TOPIC[=TYPE]", help="Publish what comes in this topic.")
@click.option("--to", "clients", multiple=True, metavar="CLIENT=TOPIC", help="Send what this client receives there.")
@click.option("--group", default="nearcast", show_default=True, help="Consumer group in which topics are read.")
@click.option("--structured", is_flag=True, help="Send events as JSON whole, instead of data with ce_ headers.")
@click.option("--dead-letters", "dead_topic", metavar="TOPIC", help="Where messages go that cannot pass.")
@click.option("--tls", is_flag=True, help="Encrypt, and check the brokers' certificate.")
@click.option("--ca", type=click.Path(exists=True, dir_okay=False), help="Authorities that are believed (PEM).")
@click.option("--cert", type=click.Path(exists=True, dir_okay=False), help="A certificate of one's own (PEM).")
@click.option("--key", type=click.Path(exists=True, dir_okay=False), help="And its key.")
@click.option("--sasl", type=click.Choice(MECHANISMS), default=MECHANISMS[-1], show_default=True, help="For a user.")
@click.option("--metrics-port", type=int, help="Answer /metrics on this port of the loopback.")
@server_options
def kafka(
    brokers: str,
    topics: tuple[str, ...],
    clients: tuple[str, ...],
    group: str,
    structured: bool,
    dead_topic: str | None,
    tls: bool,
    ca: str | None,
    cert: str | None,
    key: str | None,
    sasl: str,
    metrics_port: int | None,
    url: str,
    token: str | None,
) -> None:
    """Pass events on from Kafka topics, and deliveries to them, until Ctrl-C.

    Messages are CloudEvents, structured or binary; a message without ce_ headers becomes an event of its topic's name,
    or of TYPE, with its JSON as data and its key as subject. One message is one event, however often it is read.
    Deliveries are acknowledged when the brokers have them, so a topic may have one twice: ce_source and ce_id tell.
    NEARCAST_KAFKA_USER and NEARCAST_KAFKA_PASSWORD are the user for --sasl.
    """
    types = dict(_split(topic, "TOPIC[=TYPE]") for topic in topics)
    place = KafkaBrokers(brokers, tls, ca, cert, key, sasl)
    plain = PlainMessages({topic: type_ for topic, type_ in types.items() if type_})
    sent = dict(_split(one, "CLIENT=TOPIC", whole=True) for one in clients)
    if not types and not sent:
        raise click.UsageError("say what to pass on: --from TOPIC, --to CLIENT=TOPIC, or both")
    door = KafkaDoor(place, url, token, [*types], plain, group, sent, structured, dead_topic)
    if metrics_port is not None:
        serve_metrics(door.counts.registry, "127.0.0.1", metrics_port)
    try:
        asyncio.run(_until_asked(door))
    except* NearcastError as errors:
        raise first_error(errors) from None


def _split(text: str, form: str, whole: bool = False) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not name or (whole and not value):
        raise click.BadParameter(f"expected {form}, got {text!r}")
    return name, value


async def _until_asked(door: KafkaDoor) -> None:
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sign, stopping.set)
    warn("note", _directions(door))
    telling = asyncio.create_task(_tell_now_and_then(door))
    try:
        await door.run(stopping)
    finally:
        telling.cancel()
        warn("note", _told(door))


def _directions(door: KafkaDoor) -> str:
    parts = [f"{topic} → events" for topic in door.topics]
    return ", ".join([*parts, *(f"{client} → {topic}" for client, topic in door.clients.items())])


async def _tell_now_and_then(door: KafkaDoor) -> None:
    before = _told(door)
    while True:
        await asyncio.sleep(TOLD_EVERY)
        if (now := _told(door)) != before:
            warn("note", now)
            before = now


def _told(door: KafkaDoor) -> str:
    counts = door.counts
    return (
        f"{pluralize(counts.total('published'), 'event')} published, {counts.total('known'):,} known already,"
        f" {pluralize(counts.total('sent'), 'delivery', 'deliveries')} sent, {counts.total('refused'):,} refused"
    )
