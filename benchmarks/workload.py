"""A workload with a fixed seed: conjunctive filters, one subscription each, and events with twenty attributes.

Texts t0 … t9 have 100 to 1,000 distinct values, drawn by Zipf's law (exponent 1); integers n0 … n9 are uniform in
0 … 9,999. A filter joins 3 to 5 atoms on distinct attributes: one or two equalities of texts, drawn as the events' are,
and bounds on integers that 20 to 80 % of the events keep.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from nearcast.errors import Mark
from nearcast.language.cql2 import parse
from nearcast.model.columns import ATTRIBUTE, EVENTS
from nearcast.model.filter import And, Atom, Filter, Operator
from nearcast.model.subscription import ClientProfile, Subscription
from nearcast.state.registry import Registry

SEED = 20_260_101
TEXTS = {f"t{index}": 100 * (index + 1) for index in range(10)}
"""The texts' names and how many values each has."""
INTEGERS = tuple(f"n{index}" for index in range(10))
RANGE = 10_000
"""Integers are below it."""
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def filters(count: int, seed: int = SEED, texts: int | None = None) -> list[And]:
    """So many filters; fewer are the first of more. Each has so many equalities of texts, or one or two by chance."""
    chance = random.Random(f"filters {seed}")
    shares = {name: _shares(size) for name, size in TEXTS.items()}
    return [_filter(chance, shares, texts) for _ in range(count)]


def expression_filters(count: int, seed: int = SEED) -> list[Filter]:
    """So many filters that each compute something else of every event, and select one event in some hundreds."""
    chance = random.Random(f"expressions {seed}")
    pairs = (chance.sample(INTEGERS, 2) for _ in range(count))
    texts = (f"{a} * {chance.randint(2, 99)} + {b} < {chance.randint(100, 5_000)}" for a, b in pairs)
    return [parse(text, Mark("benchmark")) for text in texts]


def _shares(size: int) -> npt.NDArray[np.float64]:
    """What share of the values Zipf's law gives to the first, the first two, …"""
    weights = np.cumsum(1.0 / np.arange(1, size + 1))
    return weights / weights[-1]


def _filter(chance: random.Random, shares: dict[str, npt.NDArray[np.float64]], texts: int | None) -> And:
    size, drawn = chance.randint(3, 5), chance.randint(1, 2)
    texts = drawn if texts is None else texts
    equal = [
        Atom(name, Operator.EQ, f"{name}-{np.searchsorted(shares[name], chance.random())}")
        for name in chance.sample(list(TEXTS), texts)
    ]
    bounds = [_bound(chance, name) for name in chance.sample(INTEGERS, size - texts)]
    return And((*equal, *bounds))


def _bound(chance: random.Random, name: str) -> Atom:
    kept = round(RANGE * chance.uniform(0.2, 0.8))
    operator = chance.choice((Operator.LT, Operator.LE, Operator.GT, Operator.GE))
    return Atom(name, operator, kept if operator in (Operator.LT, Operator.LE) else RANGE - kept)


def registry(found: Sequence[Filter]) -> Registry:
    """A client and a subscription for each filter: the number of the filter is in both ids."""
    clients = {f"client {number}": ClientProfile(f"client {number}") for number in range(len(found))}
    subscriptions = (Subscription(str(number), (f"client {number}",), filter) for number, filter in enumerate(found))
    return Registry(clients=clients, subscriptions={each.id: each for each in subscriptions})


def values(count: int, seed: int = SEED) -> pa.Table:
    """So many events as a user of tables would have them: `position`, and a column per attribute."""
    chance = np.random.default_rng(seed)
    columns = {"position": pa.array(np.arange(1, count + 1))}
    for name, size in TEXTS.items():
        drawn = np.searchsorted(_shares(size), chance.random(count)).astype(np.int32)
        known = pa.array([f"{name}-{value}" for value in range(size)])
        columns[name] = pa.DictionaryArray.from_arrays(pa.array(drawn), known).dictionary_decode()
    for name in INTEGERS:
        columns[name] = pa.array(chance.integers(0, RANGE, count))
    return pa.table(columns)


def events(found: pa.Table) -> pa.Table:
    """The same as EVENTS, with CloudEvents as their payloads."""
    count = len(found)
    ids = [str(position) for position in found["position"].to_pylist()]
    rows = found.drop_columns(["position"]).to_pylist()
    payloads = [
        orjson.dumps({"specversion": "1.0", "type": "reading", "source": "workload", "id": id, "data": row})
        for id, row in zip(ids, rows, strict=True)
    ]
    given = {
        "position": found["position"],
        "id": pa.array(ids),
        "type": pa.array(["reading"] * count),
        "source": pa.array(["workload"] * count),
        "subject": pa.array([f"entity {number % 1000}" for number in range(count)]),
        "accepted": pa.array([NOON] * count, EVENTS.field("accepted").type),
        "attributes": _attributes(found),
        "payload": pa.array(payloads, pa.binary()),
        "part": pa.array([0] * count, pa.int32()),
    }
    return pa.table([given.get(field.name, pa.nulls(count, field.type)) for field in EVENTS], schema=EVENTS)


def _attributes(found: pa.Table) -> pa.ListArray:
    """All attributes of all events, event by event: twenty each, the texts first."""
    count, width = len(found), len(TEXTS) + len(INTEGERS)
    order = pa.array(np.arange(count * width).reshape(width, count).T.ravel())
    texts = pa.concat_arrays([*(found[name].combine_chunks() for name in TEXTS), pa.nulls(count * 10, pa.string())])
    integers = pa.concat_arrays(
        [pa.nulls(count * 10, pa.int64()), *(found[name].combine_chunks() for name in INTEGERS)]
    )
    given = {
        "name": pa.array([*TEXTS, *INTEGERS] * count),
        "text": texts.take(order),
        "integer": integers.take(order),
    }
    fields = [given.get(field.name, pa.nulls(count * width, field.type)) for field in ATTRIBUTE]
    entries = pa.StructArray.from_arrays(fields, fields=list(ATTRIBUTE))
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * width)
    return pa.ListArray.from_arrays(offsets, entries).cast(EVENTS.field("attributes").type)
