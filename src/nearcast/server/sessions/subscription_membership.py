"""Who has been in which subscription since when: a delivery counts for who was in it before its event."""

from __future__ import annotations

from nearcast.model.changes import Change, SubscriptionChange, SubscriptionRemoval


class SubscriptionMembership:
    """By subscription and client the position of the event from which on the client has been in it without a break."""

    def __init__(self) -> None:
        self._since: dict[str, dict[str, int]] = {}
        self._changed: dict[str, int] = {}

    def changed(self, client: str) -> int:
        """The position of the last change of a subscription that has the client; 0: there was none."""
        return self._changed.get(client, 0)

    def note_change(self, change: Change, position: int) -> None:
        """Takes note of a change of subscriptions; of other changes nothing."""
        match change:
            case SubscriptionChange(subscription):
                # A subscription that is replaced goes on for those who stay in it.
                before = self._since.get(subscription.id, {})
                self._changed.update(dict.fromkeys(subscription.clients, position))
                self._since[subscription.id] = {client: before.get(client, position) for client in subscription.clients}
            case SubscriptionRemoval(subscription):
                self._since.pop(subscription, None)

    def holds(self, subscription: str, client: str, position: int) -> bool:
        """Whether the client is in the subscription that selected an event at this position."""
        since = self._since.get(subscription, {}).get(client)
        return since is not None and since < position
