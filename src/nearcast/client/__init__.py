"""The client library: receive deliveries exactly once, publish events safely again. It needs no part of the server."""

from nearcast.client.publisher import Published, Publisher
from nearcast.client.receiver import Client, Delivery

__all__ = ["Client", "Delivery", "Published", "Publisher"]
