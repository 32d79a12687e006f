"""For those who forward events between networks: a table of few filters that select all that many ask for."""

from nearcast.errors import Mark
from nearcast.language.cql2 import parse, write
from nearcast.model.event import Event
from nearcast.routing.table import MergingPolicy, RoutingTable
from nearcast.routing.traffic import TrafficSample

__all__ = ["Event", "Mark", "MergingPolicy", "RoutingTable", "TrafficSample", "parse", "write"]
