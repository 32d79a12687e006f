"""Options of the benchmarks that put a load on a running system."""

from __future__ import annotations

import argparse

from benchmarks.load import Load


def add_load(parser: argparse.ArgumentParser, rate: float, subscriptions: int, clients: int) -> None:
    """Options of a load, with what they are unless given."""
    parser.add_argument("--rate", type=float, default=rate, help="Events a second.")
    parser.add_argument("--subscriptions", type=int, default=subscriptions)
    parser.add_argument("--clients", type=int, default=clients)


def load_of(given: argparse.Namespace) -> Load:
    """The load that options ask for."""
    return Load(given.rate, given.subscriptions, given.clients)
