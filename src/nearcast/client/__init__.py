"""The client library: receive deliveries exactly once, publish events safely again. It needs no part of the server."""

from nearcast.client.delivered_event import DeliveredEvent
from nearcast.client.publisher import Published, Publisher
from nearcast.client.receiver import Client, Delivery
from nearcast.client.sync import SyncClient, SyncPublisher

__all__ = ["Client", "DeliveredEvent", "Delivery", "Published", "Publisher", "SyncClient", "SyncPublisher"]
