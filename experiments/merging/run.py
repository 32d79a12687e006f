"""How much covering and merging save, and what that costs: the setting of Tarkoma's figure 1 (Channels §3).

Schemas are made up: a few attributes, each an integer, a double, a boolean or one of 100 random strings. Subscriptions
constrain every attribute of a schema; events have uniformly distributed values. The paper does not say which
operators its "simple constraints" had; `RANGES` gives what it reports, `ALL` is the harder mix.
"""

from __future__ import annotations

import gzip
import random
import string
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

import numpy as np

from nearcast.language.cql2 import write
from nearcast.model.event import Event
from nearcast.model.filter import And, Atom, Filter, Operator
from nearcast.model.values import Value
from nearcast.routing.table import MergingPolicy, RoutingTable
from nearcast.routing.traffic import TrafficSample

Kind = Literal["integer", "double", "boolean", "string"]
KINDS: tuple[Kind, ...] = ("integer", "double", "boolean", "string")

RANGES = (Operator.LT, Operator.LE, Operator.GT, Operator.GE)
ALL = (*RANGES, Operator.EQ, Operator.NE)
OPERATORS = {"ranges": RANGES, "all": ALL}
"""What subscriptions ask of numbers and strings; of a boolean always its value."""

HIGHEST = 1_000
"""Numbers lie from 0 up to this."""

STRINGS = 100


@dataclass(frozen=True, slots=True)
class Setting:
    """What is compared; the defaults are the paper's, but for `precisions`, which it has not.

    `events`: how many are expected of each schema; as many others are measured.
    """

    schemas: int = 10
    subscriptions: int = 200
    replications: int = 20
    attributes: tuple[int, ...] = (2, 3, 4)
    precisions: tuple[float, ...] = (0.99, 0.95, 0.9, 0.8)
    operators: Literal["ranges", "all"] = "ranges"
    events: int = 1_000
    seed: int = 1

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The ways of keeping a table, from the most precise to the smallest."""
        kept = (Variant(f"kept {share * 100:g} %", MergingPolicy.IMPERFECT, share) for share in self.precisions)
        return (*PRECISE, *kept, BLIND)

    @property
    def rounds(self) -> int:
        """How many times a table is filled."""
        return self.replications * len(self.attributes) * len(self.variants)


@dataclass(frozen=True, slots=True)
class Variant:
    """A way of keeping a table: how it merges, and the precision it keeps; at 0 it does not look."""

    name: str
    merging: MergingPolicy
    precision: float = 1.0


PRECISE = (
    Variant("unmerged", MergingPolicy.NONE),
    Variant("covered", MergingPolicy.COVERING),
    Variant("perfect", MergingPolicy.PERFECT),
)
BLIND = Variant("imperfect", MergingPolicy.IMPERFECT, 0.0)
"""The paper's: whatever has the same structure becomes one."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One table after one replication: its filters, their bytes in three forms, its precision, seconds to fill it."""

    attributes: int
    variant: str
    filters: float
    raw: float
    gzip_filter: float
    gzip_stream: float
    precision: float
    seconds: float


MEASURES = ("filters", "raw", "gzip_filter", "gzip_stream", "precision", "seconds")

Schema = tuple[tuple[str, Kind], ...]
"""Names and kinds of a schema's attributes."""


def run(setting: Setting, advance: Callable[[int], None] = lambda _: None) -> Iterator[Outcome]:
    """Every replication of every variant; `advance` is told of each."""
    for attributes in setting.attributes:
        for replication in range(setting.replications):
            source = random.Random(f"{setting.seed} {attributes} {replication}")
            yield from _replicate(setting, attributes, source, advance)


def _replicate(
    setting: Setting, attributes: int, source: random.Random, advance: Callable[[int], None]
) -> Iterator[Outcome]:
    words = ["".join(source.choices(string.ascii_lowercase, k=8)) for _ in range(STRINGS)]
    schemas = [_schema(f"s{number}", attributes, source) for number in range(setting.schemas)]
    operators = OPERATORS[setting.operators]
    filters = [_subscription(source.choice(schemas), operators, words, source) for _ in range(setting.subscriptions)]
    # Merging decides on one sample and is measured on another: precision is not what it was fitted to.
    expected, measured = (
        TrafficSample([event for schema in schemas for event in _events(schema, setting.events, words, source)])
        for _ in range(2)
    )
    for variant in setting.variants:
        yield _outcome(attributes, variant, filters, expected, measured)
        advance(1)


def _schema(name: str, attributes: int, source: random.Random) -> Schema:
    return tuple((f"{name}.a{number}", source.choice(KINDS)) for number in range(attributes))


def _subscription(schema: Schema, operators: Sequence[Operator], words: Sequence[str], source: random.Random) -> Filter:
    atoms = []
    for name, kind in schema:
        operator = Operator.EQ if kind == "boolean" else source.choice(operators)
        atoms.append(Atom(name, operator, _value(kind, words, source)))
    return And(tuple(atoms))


def _value(kind: Kind, words: Sequence[str], source: random.Random) -> Value:
    match kind:
        case "integer":
            return source.randint(0, HIGHEST)
        case "double":
            return round(source.uniform(0, HIGHEST), 3)
        case "boolean":
            return source.random() < 0.5
    return source.choice(words)


def _events(schema: Schema, count: int, words: Sequence[str], source: random.Random) -> Iterator[Event]:
    for number in range(count):
        attributes = tuple((name, _value(kind, words, source)) for name, kind in schema)
        yield Event(str(number), "event", "publisher", attributes=attributes)


def _outcome(
    attributes: int,
    variant: Variant,
    filters: Sequence[Filter],
    expected: TrafficSample,
    measured: TrafficSample,
) -> Outcome:
    looks = variant.merging is MergingPolicy.IMPERFECT and variant.precision > 0
    # Each table learns for itself what its filters select: the time would else be that of the first.
    traffic = TrafficSample(expected.events) if looks else None
    table = RoutingTable(variant.merging, traffic, variant.precision)
    began = time.perf_counter()
    for number, filter in enumerate(filters):
        table.add_filter(str(number), filter)
    seconds = time.perf_counter() - began
    sent = [write(filter).encode() + b"\n" for filter in table.forwards()]
    return Outcome(
        attributes,
        variant.name,
        len(sent),
        sum(map(len, sent)),
        sum(len(gzip.compress(line, mtime=0)) for line in sent),
        len(gzip.compress(b"".join(sent), mtime=0)),
        precision_of(table.forwards(), filters, measured),
        seconds,
    )


def precision_of(forwarded: Sequence[Filter], filters: Sequence[Filter], traffic: TrafficSample) -> float:
    """The share of forwarded events that some filter selects; 1 if none is forwarded."""
    sent, wanted = (np.logical_or.reduce([traffic.selects(filter) for filter in some]) for some in (forwarded, filters))
    return float(np.count_nonzero(sent & wanted) / np.count_nonzero(sent)) if np.any(sent) else 1.0


@dataclass(frozen=True, slots=True)
class Summary:
    """Mean and standard deviation of each measure over the replications."""

    attributes: int
    variant: str
    mean: dict[str, float]
    deviation: dict[str, float]


def summarized(outcomes: Sequence[Outcome]) -> list[Summary]:
    """One summary for each number of attributes and variant, in the order of the outcomes."""
    groups: dict[tuple[int, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.attributes, outcome.variant), []).append(outcome)
    return [
        Summary(
            attributes,
            variant,
            {name: fmean(getattr(one, name) for one in group) for name in MEASURES},
            {name: stdev(getattr(one, name) for one in group) if len(group) > 1 else 0.0 for name in MEASURES},
        )
        for (attributes, variant), group in groups.items()
    ]


PUBLISHED = {2: (1.0, 1.0), 3: (0.92, 0.99), 4: (0.60, 0.82)}
"""The paper's precision of imperfect merging by number of attributes, from and to. Its sizes are in a picture only."""
