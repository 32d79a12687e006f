"""For those who forward events between networks: a table of few filters that select all that many ask for, and what
neighbours tell each other of what they want.
"""

from nearcast.errors import Mark
from nearcast.language.cql2 import parse, write
from nearcast.model.event import Event
from nearcast.routing.interest_exchange import DomainInterest, InterestExchange
from nearcast.routing.table import MergingPolicy, RoutingTable
from nearcast.routing.traffic import TrafficSample

__all__ = [
    "DomainInterest",
    "Event",
    "InterestExchange",
    "Mark",
    "MergingPolicy",
    "RoutingTable",
    "TrafficSample",
    "parse",
    "write",
]
