"""A port on which a process that is no server answers what it counts."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, start_http_server

from nearcast.errors import SetupError


def serve_metrics(registry: CollectorRegistry, host: str, port: int) -> None:
    """Answers `/metrics` there from a thread of its own. Raises SetupError for a taken port, and another host."""
    try:
        start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise SetupError(
            f"expected to answer /metrics on {host}:{port}, got {error.strerror or error}; another program may"
            " use the port: end it or choose another with --metrics-port"
        ) from error
