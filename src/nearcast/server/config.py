"""What an access server is told: where to listen, which journal, who may do what, and its limits."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from nearcast.errors import SetupError
from nearcast.journal.locations import Location
from nearcast.model.event import MAIN
from nearcast.server.access import AccessToken

MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Bounds on what others can make the server keep or do; bytes, seconds, counts."""

    event_bytes: int = MEBIBYTE
    batch_bytes: int = 8 * MEBIBYTE
    batch_events: int = 100_000
    document_bytes: int = 4 * MEBIBYTE
    message_bytes: int = MEBIBYTE
    bodies_bytes: int = 512 * MEBIBYTE
    """Bodies of requests that are still coming, all together; beyond it their senders are asked to come back."""
    stall_seconds: float = 30.0
    """A body of which nothing comes for so long is given up; so is a connection that takes nothing for so long."""
    body_seconds: float = 300.0
    """A body that is not whole by then is given up, however steadily it comes."""
    connections: int = 4_000
    """Connections at once; fewer where the process may not have so many file descriptors."""
    address_connections: int = 2_000
    """Connections of one address: of all that come through one proxy, too."""
    idle_connections: int = 500
    """Connections that wait for a request's header, or for the next request; beyond it the oldest are closed."""
    header_seconds: float = 10.0
    """A request whose header is not whole by then is given up."""
    header_bytes: int = 64 * 1024
    keep_alive_seconds: int = 5
    """A connection is kept so long for the next request."""
    close_seconds: float = 2.0
    """A connection that is closed is waited for so long."""
    intake_events: int = 20_000
    """Events accepted and not yet in the journal; beyond it publishers are asked to come back."""
    block_events: int = 500
    block_seconds: float = 0.0
    """So long the first event of a block waits for others; in any case those that come while a block is written share
    the next one."""
    outcome_seconds: float = 0.02
    waiting: int = 100_000
    """Deliveries kept for one client; beyond it the least urgent, oldest first, end as "overflowed"."""
    early_deliveries: int = 100_000
    """Events decided early, and deliveries of these, that the pipeline has not decided yet, about; beyond it events are
    left to the pipeline until half of them are confirmed."""
    cache_bytes: int = 32 * MEBIBYTE
    """Payloads kept in memory for all clients together; the others are read from the journal when sent."""
    reading_seconds: float = 5.0
    """A reading that changes no class is written to the journal at most so often per client."""
    place_seconds: float = 1.0
    """A client's place is written to the journal at most so often."""
    active: int = 100_000
    """Relations that hold, and situations, that are listed when it is asked: those that began last."""
    entities: int = 200_000
    """Entities whose newest report is answered when it is asked: those heard of last."""
    client_changes: float = 10.0
    """Changes of itself that a client may say per second; beyond it the newest of each wait, and it hears so."""
    client_changes_burst: int = 50
    """So many of them at once."""
    definition_work: float = 20_000.0
    """Atoms of filters that who manages may define per second, one that no index finds as eight, one that compares
    geometries as sixteen; beyond it the request waits. They take the pipeline 0.4 seconds, for which all wait."""
    definition_burst: int = 100_000
    """So many of them at once."""
    long_work: float = 0.005
    """Seconds of work that holds everybody up, for more than 4 ms a piece, that one sender may cause per second while
    others publish: large definitions, and large events. Beyond it the sender waits."""
    long_work_burst: float = 0.1
    """So many of them at once: three filters of a thousand atoms, or one event of a megabyte."""
    said_bytes: int = 32 * 1024
    """Bytes of what a client says of itself in one message, beside what it acknowledges."""
    reordered_deliveries: int = 100_000
    """Waiting deliveries of one client that are put in a new order per second; beyond it the next order waits."""
    dead_letters: int = 10_000
    dead_letter_bytes: int = 64 * MEBIBYTE
    """Dead letters that are kept, the newest, about."""
    dead_letter_seconds: float = 5.0
    """So often is looked whether there are more."""
    webhook_seconds: float = 10.0
    """An attempt to post a webhook: from the look-up of the name to the end of the answer, however that drips."""
    webhook_answer_bytes: int = 16 * 1024
    """Of an answer's body, as it comes over the wire; what is longer is left there. Nobody reads it."""
    action_attempts: int = 8
    """Of one action, webhook or Python; then it is given up."""
    actions_at_once: int = 4
    """Actions that are run for one target at the same time."""
    actions_waiting: int = 10_000
    """Actions that wait for one target; what comes beyond them is given up at once."""
    action_room_seconds: float = 1.0
    """So long is waited for room in the queue of a target that works: a long log may come faster than it takes."""
    action_wait_seconds: float = 3_600.0
    """What waited longer for a target that does not answer is given up without another attempt."""
    action_failures: int = 5
    """Failures in a row after which a target is left alone for a while."""
    action_pause_seconds: float = 60.0
    """The longest pause between attempts, and for which a target is left alone, also where it asks for more."""
    action_threads: int = 16
    """Python actions that are run at the same time, of all targets."""
    held_seconds: float = 0.25
    """An event loop that is held for so long is told in the log, with what held it, and counted."""
    sessions: int = 4_000
    """Sessions that are connected; who comes beyond them is sent to another server, or asked to come back."""
    renew_seconds: float = 1.5
    """So often a server says anew, to the others of its domain, that it is there and what it does."""
    lapse_seconds: float = 8.0
    """A server that did not say so for so long counts as gone."""
    follow_seconds: float = 0.05
    """Between two looks at what other servers of the domain wrote; who waits for it does not wait so long."""
    redirects: int = 3
    """So often a client is sent on to another server for balance; then it is taken where it is."""
    balance_margin: float = 0.2
    balance_slack: int = 10
    """A server sends clients away that has more sessions than the fair share, by more than this share of it and by more
    than so many sessions."""
    moved_together: int = 50
    """Sessions that a server which has too many, or drains, sends away before it looks again."""
    drain_seconds: float = 12.0
    """A server that drains ends its last connections after so long, whatever is in flight."""
    acknowledge_seconds: float = 2.0
    """A client that is sent away is waited for so long to acknowledge what it was sent."""
    session_rows: int = 100_000
    """Claims of sessions that the journal keeps, the newest, about."""
    ping_seconds: float = 10.0
    lease_seconds: float = 2.0
    """A publisher that holds back by itself is waited for so long; it speaks more often."""


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """How an access server is set up. Without tokens everything is allowed, and only to this machine."""

    journal: Location
    host: str = "127.0.0.1"
    port: int = 8640
    tokens: tuple[AccessToken, ...] = ()
    measure: bool = True
    """Whether a measured bandwidth becomes the client's reading `bandwidth`."""
    node: str = MAIN
    """The server's name: the entry node of what comes in through it."""
    suppress: bool = False
    """Whether events that can change nothing are held back; of global relations only where there is no other server."""
    precision: float = 1.0
    """The share of what publishers are told to send that has to be wanted; with 1 only what loses nothing is merged."""
    private_webhooks: bool = False
    """Whether webhooks may reach this machine and private networks."""
    origins: tuple[str, ...] = ()
    """Origins of pages that may use the server from a browser, besides its own."""
    limits: ServerLimits = field(default_factory=ServerLimits)
    url: str = ""
    """Where clients reach the server, which others of its domain send them to; empty: where it
    listens, or nowhere if that is all addresses."""
    notes: Path | None = None
    """Beside this path it notes how far it is, and holds its name; None: beside the journal, which is a file then."""

    @property
    def beside(self) -> Path:
        """Beside which path it notes how far it is."""
        return self.notes or Path(self.journal)

    def check(self) -> None:
        """Refuses to listen beyond loopback without tokens; raises SetupError."""
        if not self.tokens and not loopback(self.host):
            raise SetupError(
                f"expected tokens for listening on {self.host}, got none; set NEARCAST_TOKENS to"
                " name:token:publish,receive,manage (several separated by spaces), name a file of such with --tokens,"
                " or listen on 127.0.0.1"
            )


def check_address(url: str) -> str:
    """A URL where clients reach a server. Raises SetupError."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits or parts.query or parts.fragment or "@" in parts.netloc or len(url) > 1_000:
        raise SetupError(
            f"expected where clients reach this server, as https://north.example.org, got {url[:80]!r}; no user, no"
            " query"
        )
    return url.rstrip("/")


@lru_cache(maxsize=64)
def loopback(host: str) -> bool:
    """Whether a host name or address, without a port, is this machine's own loopback."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
