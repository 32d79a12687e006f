"""Mobile links as they were measured: HSDPA logs of commuters around Oslo (Riiser et al., MMSys 2013).

86 logs, 93,104 samples of about one second, 31.2 hours. 759 samples last longer than five seconds, the longest 995: no
measurement came for so long (a tunnel, an outage), so the link counts as dead after the first five. 482 samples are 0.
"""

from __future__ import annotations

import bisect
import itertools
import random
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import orjson

from nearcast.errors import Fault, Mark
from nearcast.importers.event_documents import Document, client_change, moment

SOURCE = "links"
STALE = 5.0
"""Seconds for which a sample is believed; what it lasts longer, the link is dead."""


@dataclass(frozen=True, slots=True)
class LinkTrace:
    """One link's bandwidth over time: `ends` are the samples' ends in seconds, ascending; `kbits` their bandwidths."""

    name: str
    ends: tuple[float, ...]
    kbits: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """How long the trace lasts; after that it begins anew."""
        return self.ends[-1]

    def bandwidth(self, at: float) -> float:
        """kbit/s at a second of the trace, which repeats itself for ever; 0: the link is dead."""
        at %= self.seconds
        index = bisect.bisect_right(self.ends, at)
        began = self.ends[index - 1] if index else 0.0
        return self.kbits[index] if at - began < STALE else 0.0


def traces(path: Path) -> list[LinkTrace]:
    """The traces of a tar, plain or packed, of JSON lists of {duration_ms, bandwidth_kbps}, by name (it says when it
    was recorded). Raises `Fault`.
    """
    try:
        with tarfile.open(path) as archive:
            files = [(member.name, archive.extractfile(member)) for member in archive if member.name.endswith(".json")]
            read = [_trace_of(name, file.read(), path) for name, file in files if file]
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise Fault("a tar of JSON logs", str(error), Mark(str(path)), "fetch it again") from None
    if not read:
        raise Fault("a tar of JSON logs", "none with files that end in .json", Mark(str(path)))
    return sorted(read, key=lambda trace: trace.name)


def _trace_of(name: str, content: bytes, path: Path) -> LinkTrace:
    try:
        found = trace(Path(name).stem, orjson.loads(content))
    except (KeyError, TypeError, ValueError) as error:
        raise Fault("a log of {duration_ms, bandwidth_kbps}", str(error)[:80], Mark(f"{path}, {name}")) from None
    if not found.ends:
        raise Fault("a log of {duration_ms, bandwidth_kbps}", "no samples that last", Mark(f"{path}, {name}"))
    return found


def trace(name: str, samples: Sequence[dict[str, float]]) -> LinkTrace:
    """A trace of samples {duration_ms, bandwidth_kbps}; those without duration are left out."""
    lasting = [sample for sample in samples if sample["duration_ms"] > 0]
    ends = itertools.accumulate(sample["duration_ms"] / 1000 for sample in lasting)
    return LinkTrace(name, tuple(ends), tuple(float(sample["bandwidth_kbps"]) for sample in lasting))


def readings(
    links: Sequence[LinkTrace],
    clients: Sequence[str],
    start: datetime,
    seconds: float,
    every: float = 60.0,
    bounds: Sequence[float] = (0.0, 1250.0, 2500.0),
    seed: int = 1,
) -> Iterator[Document]:
    """Changes of the reading `bandwidth` of each client, whose link follows a trace from a point of its own, by time.

    Looks every `every` seconds and tells only what crosses one of the ascending, inclusive `bounds` (kbit/s).
    """
    chance = random.Random(f"links {seed}")
    offsets = [chance.uniform(0, link.seconds) for link, _ in zip(itertools.cycle(links), clients)]
    last: dict[str, int] = {}
    for step in range(int(seconds // every) + 1):
        for client, link, offset in zip(clients, itertools.cycle(links), offsets):
            rate = link.bandwidth(offset + step * every)
            between = bisect.bisect_left(bounds, rate)
            if last.get(client) != between:
                last[client] = between
                time = moment(start, step * every)
                yield client_change(SOURCE, f"{client}-{time}", time, client, readings={"bandwidth": rate})
