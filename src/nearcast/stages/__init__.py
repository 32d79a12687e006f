"""Deciding a batch: what is known is folded, events are derived, matched, and handed to clients."""
