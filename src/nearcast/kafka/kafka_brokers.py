"""Connections to Kafka brokers; needs the package aiokafka, which the extra `nearcast[kafka]` brings."""

from __future__ import annotations

import importlib
import os
import ssl
from dataclasses import dataclass
from typing import Any

from nearcast.errors import SetupError

USER, PASSWORD = "NEARCAST_KAFKA_USER", "NEARCAST_KAFKA_PASSWORD"
"""The environment variables of a user with a password: command lines are seen by every user of a machine."""

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

MESSAGE_BYTES = 1 << 20
"""What a message that is sent may have, as brokers take it by default."""


@dataclass(frozen=True, slots=True)
class KafkaBrokers:
    """Where brokers are, `host:port` with commas between, and how one gets in: by TLS, by a user of the environment."""

    addresses: str
    tls: bool = False
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    mechanism: str = "SCRAM-SHA-512"

    def consumer(self, *topics: str, group: str) -> Any:
        """A consumer of topics in a group, which commits nothing by itself and begins with what is there."""
        return _library().AIOKafkaConsumer(
            *topics, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest", **self._shared()
        )

    def producer(self) -> Any:
        """A producer whose messages are answered when all replicas have them. It has one request under way for each
        partition, so they stay in their order also where one is repeated.
        """
        return _library().AIOKafkaProducer(acks="all", max_request_size=MESSAGE_BYTES + 65_536, **self._shared())

    def _shared(self) -> dict[str, Any]:
        user = os.environ.get(USER)
        tls = self.tls or bool(self.ca or self.cert)
        found: dict[str, Any] = {
            "bootstrap_servers": self.addresses.split(","),
            "client_id": "nearcast",
            "security_protocol": ("SASL_" if user else "") + ("SSL" if tls else "PLAINTEXT"),
        }
        if tls:
            found["ssl_context"] = self._context()
        if user:
            found |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": user,
                "sasl_plain_password": os.environ.get(PASSWORD, ""),
            }
        return found

    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.cert:
                context.load_cert_chain(self.cert, self.key)
        except OSError as error:
            raise SetupError(f"expected certificates in PEM, got {error}; look at --ca, --cert and --key") from None
        return context


def _library(name: str = "aiokafka") -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise SetupError("expected the package aiokafka, got none; install nearcast[kafka]") from None


def kafka_errors() -> type[Exception]:
    """What a broker's refusals and absences are raised as. Raises SetupError without the package."""
    found: type[Exception] = _library("aiokafka.errors").KafkaError
    return found


def message_too_large() -> type[Exception]:
    """What a message is refused with that is larger than the brokers take."""
    found: type[Exception] = _library("aiokafka.errors").MessageSizeTooLargeError
    return found
